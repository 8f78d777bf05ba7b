#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzz targets one after another, for a while each, and ends with a verdict.

    tests/tools/fuzz_run.py --bin BUILD/fuzz --out BUILD/found [--fuzzer libfuzzer|afl] [--minutes N] [NAME...]

Each target starts from tests/fuzz/corpus/<what> and from what earlier runs found, which OUT keeps. Inputs on which one
crashes, hangs, leaks or takes too much memory are copied to OUT/bad/<target>-<kind>-<hash>: add them to the corpus under a name
that says what they are, once what they show is put right. Exits 1 where there are any. Takes one processor, at nice 19.
"""

import argparse
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIMEOUT_S = 30  # of one input, under the sanitizers, on a processor that others use, too
MEMORY_MB = 1024  # of the process
MALLOC_MB = 512  # of one allocation
GRACE_S = 120  # beyond its time: reading the corpus, leaving
SANITIZE = "abort_on_error=1:symbolize=0:detect_stack_use_after_return=1:hard_rss_limit_mb=%d" % MEMORY_MB


class Outcome:
    def __init__(self, name):
        self.name, self.runs, self.inputs, self.seconds = name, 0, 0, 0.0
        self.bad = []  # files
        self.failure = ""  # of the fuzzer itself


def keep_bad(outcome, folder, kind, path):
    """Copies an input to a name that is the same whenever it is found."""
    data = path.read_bytes()
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / ("%s-%s-%s" % (outcome.name, kind, hashlib.sha256(data).hexdigest()[:12]))
    copy.write_bytes(data)
    if copy not in outcome.bad:
        outcome.bad.append(copy)


def execute(command, env, log, limit):
    """The exit status; a fuzzer that outlives its time by far is ended: that is a failure, too."""
    with open(log, "wb") as out:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   start_new_session=True)
        try:
            return process.wait(limit)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return -signal.SIGKILL
            raise


def with_libfuzzer(outcome, program, seeds, out, seconds):
    found, raw, log = out / "corpus" / seeds.name, out / "raw" / outcome.name, out / (outcome.name + ".log")
    shutil.rmtree(raw, ignore_errors=True)
    for folder in (found, raw):
        folder.mkdir(parents=True, exist_ok=True)
    command = [str(program), "-max_total_time=%d" % seconds, "-timeout=%d" % TIMEOUT_S,
               "-report_slow_units=%d" % TIMEOUT_S, "-print_final_stats=1",
               "-rss_limit_mb=%d" % MEMORY_MB, "-malloc_limit_mb=%d" % MALLOC_MB, "-verbosity=1",
               "-artifact_prefix=%s/" % raw, str(found), str(seeds)]
    words = ROOT / "tests/fuzz/words" / seeds.name
    if words.exists():
        command.insert(1, "-dict=%s" % words)
    status = execute(command, dict(os.environ), log, seconds + GRACE_S)
    text = log.read_text(errors="replace")
    runs = re.findall(r"stat::number_of_executed_units: +(\d+)|^#(\d+)\t", text, re.M)
    outcome.runs = max((int(a or b) for a, b in runs), default=0)
    outcome.inputs = len(list(found.iterdir()))
    for path in sorted(raw.iterdir()):
        keep_bad(outcome, out / "bad", path.name.rpartition("-")[0], path)
    if status and not outcome.bad:
        outcome.failure = "exit status %d, see %s" % (status, log)


def with_afl(outcome, program, seeds, out, seconds):
    state, log = out / "afl" / outcome.name, out / (outcome.name + "-afl.log")
    state.parent.mkdir(parents=True, exist_ok=True)
    env = dict(os.environ, AFL_NO_UI="1", AFL_NO_AFFINITY="1", AFL_SKIP_CPUFREQ="1", AFL_AUTORESUME="1",
               AFL_I_DONT_CARE_ABOUT_MISSING_CRASHES="1", AFL_FORKSRV_INIT_TMOUT="30000",
               ASAN_OPTIONS=SANITIZE + ":detect_leaks=0", UBSAN_OPTIONS=SANITIZE + ":halt_on_error=1")
    command = ["afl-fuzz", "-i", str(seeds), "-o", str(state), "-V", str(seconds), "-t", str(1000 * TIMEOUT_S // 4),
               "-m", "none"]
    words = ROOT / "tests/fuzz/words" / seeds.name
    if words.exists():
        command += ["-x", str(words)]
    status = execute(command + ["--", str(program)], env, log, seconds + GRACE_S)
    stats = state / "default/fuzzer_stats"
    if stats.exists():
        row = dict(line.split(":", 1) for line in stats.read_text().splitlines() if ":" in line)
        row = {key.strip(): value.strip() for key, value in row.items()}
        outcome.runs, outcome.inputs = int(row["execs_done"]), int(row["corpus_count"])
    elif not status:
        status = 1
    for kind, pattern in (("crash", "crashes/id*"), ("timeout", "hangs/id*")):
        for path in sorted((state / "default").glob(pattern)):
            keep_bad(outcome, out / "bad", kind, path)
    if status and not outcome.bad:
        outcome.failure = "exit status %d, see %s" % (status, log)


def run(name, args, seconds):
    outcome, start = Outcome(name), time.monotonic()
    program, seeds = pathlib.Path(args.bin, name), ROOT / "tests/fuzz/corpus" / name[len("fuzz_"):]
    if not program.exists() or not seeds.is_dir():
        outcome.failure = "it is not built" if seeds.is_dir() else "it has no corpus"
        return outcome
    one = with_afl if args.fuzzer == "afl" else with_libfuzzer
    one(outcome, program.resolve(), seeds, pathlib.Path(args.out).resolve(), seconds)
    outcome.seconds = time.monotonic() - start
    return outcome


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--fuzzer", choices=("libfuzzer", "afl"), default="libfuzzer")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()

    known = sorted(path.stem for path in ROOT.glob("tests/fuzz/fuzz_*.c"))
    if set(args.names) - set(known):
        sys.exit("fuzz_run.py: no such fuzz target: %s" % ", ".join(sorted(set(args.names) - set(known))))
    names = args.names or known
    seconds = max(5, int(args.minutes * 60 / len(names)))
    os.nice(19 - os.getpriority(os.PRIO_PROCESS, 0))
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)

    outcomes = []
    for name in names:
        outcomes.append(run(name, args, seconds))
        last = outcomes[-1]
        state = "BAD" if last.bad or last.failure else "ok"
        print("  %-3s %-24s %6.0f s %12d runs %6d inputs" % (state, name, last.seconds, last.runs, last.inputs), flush=True)
        for line in [str(path) for path in last.bad] + [last.failure] * bool(last.failure):
            print("        " + line, flush=True)
    bad = sum(len(o.bad) for o in outcomes)
    failed = sum(bool(o.failure) for o in outcomes)
    print("fuzzing with %s: %d targets, %.0f minutes, %d runs: %s%s" % (
        args.fuzzer, len(outcomes), sum(o.seconds for o in outcomes) / 60, sum(o.runs for o in outcomes),
        "%d bad inputs" % bad if bad else "no crash, no hang", ", %d targets did not run" % failed if failed else ""))
    return 1 if bad or failed else 0


if __name__ == "__main__":
    sys.exit(main())
