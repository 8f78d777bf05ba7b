#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a run of the demo as a moving picture of a terminal, for the README: `make picture`.

    EPOCHFS_BIN=... tests/demo/picture.py FILE.svg

The demo runs, and each line is shown when it came. The picture needs no script: an SVG whose text is moved up by CSS, one
line after the other. What shows no animation shows the first lines.
"""

import html
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROWS, COLUMNS = 24, 104
CHARACTER, LINE, MARGIN = 7.83, 18, 14  # in pixels; a monospaced font of 13 px
LONGEST_S, READ_S, FIRST_S, END_S = 1.0, 0.3, 0.5, 6  # a pause is cut to the first; a line is read in the second
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %(width)d %(height)d" width="%(width)d" height="%(height)d" role="img">
<title>A run of make demo: a checkpoint directory is mounted, trained on, killed in mid-save, rolled back, and restored elsewhere</title>
<!-- SPDX-License-Identifier: Apache-2.0; made by `make picture` -->
<style>
text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #d0d7de; white-space: pre }
.said { fill: #7ee787; font-weight: bold } .typed { fill: #ffffff; font-weight: bold }
.lines { animation: lines %(seconds).2fs step-end infinite }
@keyframes lines {
%(moves)s}
</style>
<rect width="100%%" height="100%%" rx="8" fill="#161b22"/>
<svg x="0" y="%(margin)d" width="%(width)d" height="%(inside)d"><g class="lines" xml:space="preserve">
"""


def lines_of(demo):
    """(seconds since the one before, text) of all that the demo prints."""
    before = time.monotonic()
    for line in demo.stdout:
        now = time.monotonic()
        yield min(now - before, LONGEST_S), tidied(line.rstrip("\n"))
        before = now


def tidied(line):
    """As it is on a machine where epochfs is installed."""
    line = line.replace(os.environ["EPOCHFS_BIN"], "epochfs").replace("/usr/bin/python3 %s/" % HERE, "python3 ")
    return re.sub(r"-o cache-dir=(\S+?),\S+ ", r"-o cache-dir=\1 ", line)


def readable(shown):
    """The same, with time to read each part before the next one begins."""
    lines = 0
    for wait, line in shown:
        if line.startswith("# "):
            wait, lines = max(wait, READ_S * lines), 0
        lines += 1
        yield wait, line


def wrapped(line):
    while len(line) > COLUMNS:
        cut = line.rfind(" ", 1, COLUMNS) + 1 or COLUMNS
        yield line[:cut]
        line = "    " + line[cut:]
    yield line


def drawn(shown):
    """The picture of [(seconds, text)]."""
    rows = [(wait if i == 0 else 0, part) for wait, line in readable(shown) for i, part in enumerate(wrapped(line))]
    seconds = FIRST_S + sum(wait for wait, _ in rows) + END_S
    height = ROWS * LINE
    at, moves = FIRST_S, ["0%% { transform: translateY(%dpx) }\n" % height]
    text = []
    for n, (wait, line) in enumerate(rows):
        at += wait
        moves.append("%.2f%% { transform: translateY(%dpx) }\n" % (100 * at / seconds, height - (n + 1) * LINE))
        kind = "said" if line.startswith("# ") else "typed" if line.startswith("$ ") else ""
        if line:
            text.append('<text x="%d" y="%d"%s>%s</text>\n' % (MARGIN, n * LINE + 13, ' class="%s"' % kind if kind else "", html.escape(line)))
    head = HEAD % {"width": COLUMNS * CHARACTER + 2 * MARGIN, "height": height + 2 * MARGIN, "inside": height, "margin": MARGIN,
                   "seconds": seconds, "moves": "".join(moves)}
    return head + "".join(text) + "</g></svg>\n</svg>\n"


def main():
    with subprocess.Popen([HERE / "demo.sh"], stdout=subprocess.PIPE, text=True) as demo:
        shown = list(lines_of(demo))
    while shown and not shown[0][1]:
        del shown[0]
    if demo.returncode:
        sys.exit("picture.py: the demo failed")
    pathlib.Path(sys.argv[1]).write_text(drawn(shown))


if __name__ == "__main__":
    main()
