#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sums the results of test runs; the last line is "N passed, N failed, N skipped".

    tests/tools/totals.py FOLDER...

Exits 1 where a test failed, or where none ran.
"""

import sys

import results


def report(tests):
    """Prints what was skipped and what failed, then the totals; returns the exit status."""
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for _, outcome, _ in tests:
        count[outcome] += 1
    for outcome in ("skipped", "failed"):
        if count[outcome]:
            print("\n%s:" % outcome)
        for name, got, detail in tests:
            if got == outcome:
                line = " ".join(detail.split())[:200]
                print("  %s%s" % (name, ": " + line if line else ""))
    print("\n%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % count, flush=True)
    return 1 if count["failed"] or not count["passed"] else 0


def main():
    tests = []
    for folder in sys.argv[1:]:
        tests += results.read(folder)
    return report(tests)


if __name__ == "__main__":
    sys.exit(main())
