#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the unit test programs, some at a time, and replays the corpus of the fuzz targets.

    tests/tools/run_units.py --bin BUILD/tests --results BUILD/results [--san KIND] [NAME...]

Prints a line a program, all output of those that fail, and the totals. Results go to
RESULTS/unit.json (RESULTS/unit-KIND.json under a sanitizer).
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

import results

LIMIT_S = 300
SLOWNESS = {"address": 3, "thread": 8, "coverage": 2}
JOBS = len(os.sched_getaffinity(0)) + 2  # they wait for most of their time
ROOT = pathlib.Path(__file__).resolve().parents[2]
# "ok 3 - tests/unit/test_x.c:case:test: Passed"; check has "[source]:line:" only where it failed.
TAP = re.compile(r"^(ok|not ok) \d+ - (?:.*?):([^:]*):([^:]*): (.*)$")

# unit_skip() of tests/unit/unit.h; the function of a test has its name and "_fn".
SKIPPED = re.compile(r"^skipped: (\w+?)_fn: (.*)$", re.MULTILINE)


def kill_session(leader):
    """Kills all processes of a session; check moves each test to a process group of its own. Stopped first, none tells of another's end."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        signal_session(leader, number)


def signal_session(leader, number):
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = pathlib.Path("/proc", entry, "stat").read_text()
            if int(stat.rpartition(")")[2].split()[3]) == leader:
                os.kill(int(entry), number)
        except (OSError, ValueError, IndexError):
            continue  # gone meanwhile


def command_of(program):
    if program.name.startswith("fuzz_"):
        corpus = ROOT / "tests/fuzz/corpus" / program.name[len("fuzz_"):]
        return [str(program), str(corpus)]
    return [str(program)]


def environment(san, folder, tap):
    env = dict(os.environ)
    env.setdefault("CK_TIMEOUT_MULTIPLIER", str(SLOWNESS.get(san, 1)))
    env["TMPDIR"] = folder
    env["CK_TAP_LOG_FILE_NAME"] = str(tap)
    env["CK_VERBOSITY"] = "normal"
    env.setdefault("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=1")
    env.setdefault("TSAN_OPTIONS", "halt_on_error=1:second_deadlock_stack=1")
    return env


def parse_tap(name, text, output):
    """The tests of a program; of those that passed, the ones that say in its output that they were skipped. Of a test that runs in a
    loop as many as say so."""
    tests, skipped = [], {}
    for test, reason in SKIPPED.findall(output):
        skipped.setdefault(test, []).append(reason)
    for line in text.splitlines():
        match = TAP.match(line)
        if match:
            outcome = "passed" if match[1] == "ok" else "failed"
            detail = "" if outcome == "passed" else match[4]
            if outcome == "passed" and skipped.get(match[3]):
                outcome, detail = "skipped", skipped[match[3]].pop(0)
            tests.append(("%s:%s:%s" % (name, match[2], match[3]), outcome, detail))
    return tests


def run(program, san):
    """Runs one program: its tests, its output, how long it took."""
    if not program.exists():
        return program, [(program.name, "failed", "it is not built")], "it is not built", 0.0
    start, limit = time.monotonic(), LIMIT_S * min(SLOWNESS.get(san, 1), 3)
    # Short, because sockets are made there; removed even when the program was killed.
    with tempfile.TemporaryDirectory(prefix="eu-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)  # some tests go on as another user
        tap = pathlib.Path(folder, "tap")
        process = subprocess.Popen(command_of(program), env=environment(san, folder, tap), cwd=ROOT,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        ending = ""
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            kill_session(process.pid)
            output, _ = process.communicate()
            ending = "killed after %d s" % limit
        output = output.decode(errors="replace")
        tests = parse_tap(program.name, tap.read_text(errors="replace") if tap.exists() else "", output)
    if not ending and process.returncode:
        ending = "exit status %d" % process.returncode
    if program.name.startswith("fuzz_") and not ending:
        tests = [(program.name, "passed", "")]
    elif not ending and not tests:
        ending = "it ran no test"
    if ending and not any(outcome == "failed" for _, outcome, _ in tests):
        tests.append((program.name, "failed", ending))
    return program, tests, output, time.monotonic() - start


def programs_of(folder, names):
    """The programs whose source is still there, in order; or those that are named."""
    found = []
    for source in sorted(ROOT.glob("tests/unit/test_*.c")) + sorted(ROOT.glob("tests/fuzz/fuzz_*.c")):
        found.append((pathlib.Path(folder) / source.stem).resolve())
    unknown = set(names) - {p.name for p in found}
    if unknown:
        sys.exit("run_units.py: no such unit test: %s" % ", ".join(sorted(unknown)))
    return [p for p in found if not names or p.name in names]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--results", required=True)
    parser.add_argument("--san", default="")
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()

    every, label = [], "-" + args.san if args.san else ""
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        jobs = [pool.submit(run, p, args.san) for p in programs_of(args.bin, args.names)]
        for job in concurrent.futures.as_completed(jobs):
            program, tests, output, seconds = job.result()
            failed = sum(outcome == "failed" for _, outcome, _ in tests)
            state = "FAILED" if failed else "ok"
            print("  %-7s %-36s %3d tests %6.1f s" % (state, program.name, len(tests), seconds),
                  flush=True)
            for name, outcome, detail in tests:
                if outcome == "skipped":
                    print("          skipped: %s: %s" % (name, detail), flush=True)
            if failed:
                print("".join("          " + line + "\n" for line in output.splitlines()), flush=True)
            every += tests
    every.sort()
    results.write(args.results, "unit" + label,
                  [(name + (" (%s)" % args.san if args.san else ""), o, d) for name, o, d in every])
    failed, skipped = (sum(outcome == what for _, outcome, _ in every) for what in ("failed", "skipped"))
    print("  unit tests: %d passed, %d failed, %d skipped" % (len(every) - failed - skipped, failed, skipped))
    return 1 if failed or len(every) == skipped else 0


if __name__ == "__main__":
    sys.exit(main())
