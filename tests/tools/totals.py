#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sums the results of test runs; the last line is "N passed, N failed, N skipped".

    tests/tools/totals.py FOLDER...

Of several folders each has a line, too. Where CI=true a skip that tests/skips.txt does not list counts as a failure. Exits 1
where a test failed, or where none ran.
"""

import fnmatch
import os
import pathlib
import sys

import results

TOTALS = "%(passed)d passed, %(failed)d failed, %(skipped)d skipped"
SKIPS = pathlib.Path(__file__).resolve().parents[1] / "skips.txt"


def listed_skips():
    """The pairs of patterns of tests/skips.txt."""
    lines = [line.strip() for line in SKIPS.read_text().splitlines()]
    return [tuple(part.strip() for part in line.split("|", 1)) for line in lines if line and not line.startswith("#")]


def judged(tests):
    """The tests with each skip that is not listed as a failure, where CI=true; else as they are."""
    if os.environ.get("CI") != "true":
        return tests
    listed = listed_skips()

    def may_be_skipped(name, reason):
        return any(fnmatch.fnmatchcase(name, n) and fnmatch.fnmatchcase(reason, r) for n, r in listed)

    return [(name, "failed", "skipped, which tests/skips.txt does not list: " + detail)
            if outcome == "skipped" and not may_be_skipped(name, " ".join(detail.split())) else (name, outcome, detail)
            for name, outcome, detail in tests]


def count_of(tests):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for _, outcome, _ in tests:
        count[outcome] += 1
    return count


def report(tests):
    """Prints what was skipped and what failed, then the totals; returns the exit status."""
    tests = judged(tests)
    count = count_of(tests)
    for outcome in ("skipped", "failed"):
        if count[outcome]:
            print("\n%s:" % outcome)
        for name, got, detail in tests:
            if got == outcome:
                line = " ".join(detail.split())[:200]
                print("  %s%s" % (name, ": " + line if line else ""))
    print("\n" + TOTALS % count, flush=True)
    return 1 if count["failed"] or not count["passed"] else 0


def main():
    parts = [(folder, results.read(folder)) for folder in sys.argv[1:]]
    status = report([test for _, tests in parts for test in tests])
    if len(parts) > 1:
        print()
        for folder, tests in parts:
            print("  %-24s %s" % (folder, TOTALS % count_of(judged(tests))))
        print("\n" + TOTALS % count_of(judged([test for _, tests in parts for test in tests])), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
