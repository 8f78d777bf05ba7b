#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs unit tests with one allocation of the library failing, again and again (tests/alloc).

    tests/tools/run_alloc.py --bin BUILD-asan/tests --results BUILD-asan/results [NAME...]

A run may fail its assertions; it must not crash, leak, hang or make a sanitizer's report. NAME is a program, or PROGRAM:TEST.
Of all allocations of a program that come from one place only the first fails, unless one of these is given:
    --every           each allocation of each test: 7 million
    --calls 7-9       only these
    --sample N        N allocations of each test, by --seed (fresh: another one each time; it is printed)
Others:
    --depth N         a place is what the N innermost functions on the stack are (5)
    --jobs N          so many programs at once (4; many of them wait for something)
    --seconds S       ends when so much time is over; the programs come in the order of the seed
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import results
from run_units import ROOT, kill_session

REPORTED = 99  # in alloc_run.c, too
SHOWN = 400  # lines of a program that failed
ROOMS = ("util", "format", "store", "remote", "net", "state", "meta", "cache", "live", "epochs", "upload", "volume", "import", "admin", "fs", "tools")
# Programs and tests that are left out, and why.
LEFT_OUT = {
    "test_store_pool:a_long_loop_does_not_hold_up_a_short_one": "it waits for two threads, and a pool makes do with one",
    "test_remote_conformance_races": "its threads race each other until they are done, whatever fails",
    "test_util_lock": "it ends processes by design",
}


def environment(folder, report, args, seed):
    env = dict(os.environ)
    env["TMPDIR"] = folder
    env["CK_TIMEOUT_MULTIPLIER"] = "100000"  # one test of check's is many runs; each has its own limit
    env["ASAN_OPTIONS"] = "detect_leaks=1:exitcode=%d:detect_stack_use_after_return=1" % REPORTED
    env["LSAN_OPTIONS"] = "exitcode=%d" % REPORTED
    env["UBSAN_OPTIONS"] = "print_stacktrace=1:halt_on_error=1:exitcode=%d" % REPORTED
    env["EPOCHFS_ALLOC_REPORT"] = str(report)
    depth = 0 if args.every or args.calls or args.sample else args.depth
    for name, value in (("CALLS", args.calls), ("SAMPLE", args.sample), ("PLACES", depth), ("SEED", seed)):
        env["EPOCHFS_ALLOC_" + name] = str(value or "")
    return env


def run(program, args, seed, ends):
    """Rows (test, runs, allocations, bad), what was printed, and whether it came to its end."""
    name, _, test = program.partition(":")
    left = None if ends is None else ends - time.monotonic()
    if left is not None and left <= 0:
        return program, [], "", True
    with tempfile.TemporaryDirectory(prefix="ea-", ignore_cleanup_errors=True) as folder:
        report = pathlib.Path(folder, "report")
        report.touch()
        env = environment(folder, report, args, seed)
        env["EPOCHFS_ALLOC_TEST"] = test
        env["EPOCHFS_ALLOC_NOT"] = ",".join(t for p, _, t in (key.partition(":") for key in LEFT_OUT) if p == name and t)
        process = subprocess.Popen([os.path.abspath(os.path.join(args.bin, name))], env=env, cwd=ROOT, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        cut = False
        try:
            output, _ = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            cut = True
            kill_session(process.pid)
            output, _ = process.communicate()
        rows = [line.split() for line in report.read_text().splitlines()]
    text = output.decode(errors="replace")
    # Its status says nothing: check takes a test that ends in its own way for one that failed.
    bad = "\n== " in text or any(int(row[3]) for row in rows) or not (rows or cut)
    return program, [(row[0], int(row[1]), int(row[2]), int(row[3])) for row in rows], text, not bad


def programs_of(args, seed):
    names = args.names or [p.stem for p in sorted(ROOT.glob("tests/unit/test_*.c")) if p.stem.split("_")[1] in ROOMS and p.stem not in LEFT_OUT]
    if args.seconds:
        random.Random(seed).shuffle(names)
    return names


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--results", required=True)
    parser.add_argument("--calls", default="")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--depth", type=int, default=5)
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", default="fresh")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()

    seed = random.randrange(10**9) if args.seed == "fresh" else int(args.seed)
    ends = time.monotonic() + args.seconds if args.seconds else None
    if args.sample:
        print("  --seed %d" % seed, flush=True)
    outcomes, all_runs = [], 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = [pool.submit(run, name, args, seed, ends) for name in programs_of(args, seed)]
        for job in concurrent.futures.as_completed(jobs):
            program, rows, text, good = job.result()
            runs, bad = sum(row[1] for row in rows), sum(row[3] for row in rows)
            all_runs += runs
            if rows or not good:
                print("  %-7s %-36s %6d runs, %d bad" % ("ok" if good else "FAILED", program, runs, bad), flush=True)
                outcomes.append(("%s (allocations fail)" % program, "passed" if good else "failed", "%d bad" % bad))
            if not good:
                print("\n".join("          " + line for line in text.splitlines()[:SHOWN]), flush=True)
    results.write(args.results, "alloc", sorted(outcomes))
    failed = sum(outcome == "failed" for _, outcome, _ in outcomes)
    print("  %d runs with a failed allocation; programs: %d passed, %d failed" % (all_runs, len(outcomes) - failed, failed))
    return 1 if failed or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
