#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Line coverage by file, after a run of a build with --coverage.

    tests/tools/coverage.py BUILD

Asks gcov for every .gcda file in BUILD. A header's line counts as run where any object ran it.
"""

import collections
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def lines_of(data):
    """{source: {line: count}} of one .gcda file."""
    run = subprocess.run(["gcov", "--json-format", "--stdout", str(data.resolve())],
                         stdout=subprocess.PIPE, cwd=ROOT)
    if run.returncode:
        print("  %s cannot be read: was its program killed?" % data)
        return
    for text in run.stdout.splitlines():
        for entry in json.loads(text)["files"]:
            yield entry["file"], {row["line_number"]: row["count"] for row in entry["lines"]}


def main():
    total = collections.defaultdict(collections.Counter)
    for data in sorted(pathlib.Path(sys.argv[1]).rglob("*.gcda")):
        for name, lines in lines_of(data):
            if name.startswith(("lib/", "fs/", "tools/")):
                for line, count in lines.items():
                    total[name][line] += count
    every = run = 0
    for name in sorted(total):
        hit = sum(count > 0 for count in total[name].values())
        every, run = every + len(total[name]), run + hit
        print("  %5.1f %%  %5d/%-5d  %s" % (100 * hit / len(total[name]), hit, len(total[name]), name))
    if not every:
        sys.exit("coverage.py: nothing was run")
    print("  %5.1f %%  %5d/%-5d  all" % (100 * run / every, run, every))


if __name__ == "__main__":
    main()
