#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the parts of a test run one after another, all of them even when one fails, and sums up.

    tests/tools/run_parts.py --totals FOLDER... 'NAME=COMMAND'...

Each COMMAND is run by the shell. The FOLDERs of results are emptied first. A part that fails
without a failed test in them counts as one failed test. Exits 1 where anything failed.
"""

import argparse
import shutil
import subprocess
import sys
import time

import results
import totals


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--totals", action="append", required=True, metavar="FOLDER")
    parser.add_argument("parts", nargs="+", metavar="NAME=COMMAND")
    args = parser.parse_args()

    for folder in args.totals:
        shutil.rmtree(folder, ignore_errors=True)

    def tests_so_far():
        return [test for folder in args.totals for test in results.read(folder)]

    def failures():
        return sum(outcome == "failed" for _, outcome, _ in tests_so_far())

    broken, times = [], []
    for part in args.parts:
        name, command = part.split("=", 1)
        print("== %s" % name, flush=True)
        before, start = failures(), time.monotonic()
        # Inherited descriptors carry make's job server.
        status = subprocess.run(command, shell=True, close_fds=False).returncode
        times.append((name, status, time.monotonic() - start))
        if status != 0 and failures() == before:
            broken.append((name, "failed", "exit status %d, see above" % status))

    print("\nparts:")
    for name, status, seconds in times:
        print("  %-24s %-7s %6.1f s" % (name, "ok" if status == 0 else "FAILED", seconds))
    if broken:
        results.write(args.totals[0], "parts", broken)
    return max(totals.report(tests_so_far()), int(any(s for _, s, _ in times)))


if __name__ == "__main__":
    sys.exit(main())
