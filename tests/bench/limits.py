#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The limits that epochfs is to keep, measured on a real mount and set against the disk below.

    tests/bench/limits.py [--folder DIR] [--turns N] [--seed N] [--options NAME=VALUE,...] [NAME...]

Prints a row a figure: the median of the turns with the least and the most, the same on the disk below in turns between ours (which of the two comes first
is drawn by the seed, and all is synced before each), the limit, and whether it is kept: ok, OVER, or void, where the disk below spread more than
turns.SPREAD times, others took more than turns.FOREIGN processors while it was measured, or something else kept the disk dirty before it (turns.py). Exits with 1 where a limit is OVER, else with 2 where a row is void. NAMEs
pick some: close, seal, list, big, many, epochs, byte, dedup. DIR ($TMPDIR or /tmp) holds cache and remote and needs 20 GiB; all in it is removed at the
end. The program is EPOCHFS_BIN.
"""

import argparse
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "mount"), str(TESTS / "bench")]

import turns as fair  # noqa: E402
from conftest import BIN, Mount  # noqa: E402
from measure import (  # noqa: E402
    MIB, Writer, close_seconds, list_long, peak_memory, save_many, seconds, stored, write)

GIB = 1 << 30
MORE = 0.05  # seconds that close may take beside the disk's
SOURCE_BYTES = 64 * MIB


class Figures:
    """What a measure saw in its turns, and what else the machine did before and in what was measured."""

    def __init__(self):
        self.seen = []
        self.dirty, self.cpu, self.seconds = 0, 0.0, 0.0

    def measure(self, call, prepare=None):
        """Adds what call() gives: with all of before written back, and the load of others watched for as long as it runs. Parts of some milliseconds
        are too short for the clock of /proc: all turns are judged together. `prepare` is done between, and its result is handed to the call."""
        self.dirty = max(self.dirty, fair.sync())
        prepared = () if prepare is None else (prepare(),)
        with fair.Load() as load:
            value = call(*prepared)
        self.cpu += load.cpu
        self.seconds += load.seconds
        self.seen.append(value)
        return value

    def disturbed(self):
        """Why they say nothing, or None."""
        if self.dirty > fair.DIRTY_MIB:
            return "%.0f MiB of others were still dirty" % self.dirty
        foreign = fair.processors(self.cpu, self.seconds)
        return "others took %.2f processors" % foreign if foreign > fair.FOREIGN else None

    @property
    def median(self):
        return statistics.median(self.seen)

    def text(self, unit, scale):
        low, high = min(self.seen) * scale, max(self.seen) * scale
        spread = " (%.1f to %.1f)" % (low, high) if len(self.seen) > 1 else ""
        return "%.1f%s %s" % (self.median * scale, spread, unit)


def milliseconds(figures):
    return figures.text("ms", 1000)


def mebibytes(count):
    return "%.1f MiB" % (count / MIB)


def wide(figures, slack):
    """Whether the reference was not the same thing in all turns, by more than a limit in seconds leaves room for."""
    return max(figures.seen) - min(figures.seen) > slack and fair.spread_of(figures.seen) > fair.SPREAD


def tell_disturbed(*every):
    """Whether one of them says nothing; prints why."""
    why = [text for text in (figures.disturbed() for figures in every if figures) if text]
    for text in why:
        print("    " + text, flush=True)
    return bool(why)


class Report:
    """The rows, and what comes of them."""

    def __init__(self, seed=0):
        self.draw = fair.Draw(seed)
        self.verdicts = []

    def row(self, what, here, below, limit, kept, void=False):
        """`void`: the reference does not hold. Sizes and memory have none, and do not depend on who else runs."""
        verdict = "void" if void else "ok" if kept else "OVER"
        self.verdicts.append(verdict)
        print("  %-50s %-28s %-26s %-20s %s" % (what, here, below, limit, verdict), flush=True)

    def timed(self, what, figures, below, limit, kept, slack=0):
        """A row of times. `below`: the reference's Figures, or None where the limit is absolute; `slack`: seconds of it that are no matter."""
        why = tell_disturbed(figures, below)
        self.row(what, milliseconds(figures), milliseconds(below) if below else "", limit, kept, why or below is not None and wide(below, slack))

    @property
    def code(self):
        return 1 if "OVER" in self.verdicts else 2 if "void" in self.verdicts else 0


def random_file(path, size):
    """Bytes of which no two blocks are alike."""
    with open(path, "wb") as f:
        for _ in range(0, size, SOURCE_BYTES):
            f.write(os.urandom(SOURCE_BYTES))


def close(report, mnt, turns):
    """close(2) of 1 GiB and the next look at its name: a new file, and in place of a committed one."""
    block, name = os.urandom(MIB), mnt.base / "below"
    figures = {what: (Figures(), Figures()) for what in ("new", "replaced")}
    for turn in range(turns):
        for what in ("new", "replaced"):
            pairs = list(zip((mnt.path / ("f%d" % turn), name), figures[what]))
            for path, figure in report.draw.shuffled(pairs, "close", what, turn):
                figure.measure(lambda fd, p=path: close_seconds(p, fd), lambda p=path: write(p, GIB, block))
        for path in (mnt.path / ("f%d" % turn), name):
            path.unlink()
    for what, (here, below) in figures.items():
        report.timed("close of 1 GiB, %s" % what, here, below, "50 ms more", here.median < below.median + MORE, MORE)


def waits(folder, while_it_writes):
    """The longest wait of a writer of small files."""
    with Writer(folder) as writer:
        before = writer.count
        while writer.count < before + 50:
            time.sleep(0.001)
        while_it_writes()
        before = writer.count
        while writer.count < before + 50:
            time.sleep(0.001)
    return writer.worst


def seal(report, mnt, turns):
    """10,000 unchanged and 10 changed files are sealed while somebody writes others."""
    save_many(mnt.path / "d", 10000)
    mnt.seal()
    mnt.wait_durable()
    here, idle, below = Figures(), Figures(), Figures()
    folder = mnt.base / "below"
    folder.mkdir()
    took = Figures()
    for turn in range(turns):
        for i in range(10):
            (mnt.path / "d" / ("f%06d" % (1000 * i))).write_text("changed in %d" % turn)
        here.measure(lambda: waits(mnt.path, lambda: took.seen.append(seconds(mnt.seal))))
        for path, figure in report.draw.shuffled([(mnt.path, idle), (folder, below)], "seal", turn):
            figure.measure(lambda p=path: waits(p, lambda: time.sleep(took.seen[-1])))
    # A longest wait is one sample of a tail: it says nothing of the reference that it spreads.
    tell_disturbed(idle, below)
    report.timed("longest wait of a writer at a seal", here, None, "100 ms more than without one", here.median - idle.median < 0.1)
    print("    the same writer on the disk below waited %s at most" % milliseconds(below))
    print("    10,000 files and 10 changed; the seal took %s; the same writer without one waited %s at most"
          % (milliseconds(took), milliseconds(idle)))


def listing(report, mnt, turns):
    """ls -l of 10,000 files."""
    live, below = mnt.path / "d", mnt.base / "below"
    save_many(live, 10000)
    save_many(below, 10000)
    old = mnt.epoch(mnt.seal()) / "d"
    mnt.wait_durable()
    for path in (live, old, below):
        list_long(path)
    figures = {path: Figures() for path in (live, old, below)}
    for turn in range(turns):
        for path in report.draw.shuffled(figures, "list", turn):
            figures[path].measure(lambda p=path: seconds(lambda: list_long(p)))
    for what, path in (("live", live), ("in an epoch", old)):
        ratio = figures[path].median / figures[below].median
        report.timed("ls -l of 10,000 files, %s" % what, figures[path], figures[below], "3 times; it is %.1f" % ratio, ratio <= 3)


def big(report, mnt, _):
    """Memory of the daemon: one file of 4 GiB written, uploaded, and read back by another daemon."""
    random_file(mnt.path / "big", 4 * GIB)
    mnt.seal()
    mnt.wait_durable()
    written = peak_memory(mnt.pid)
    mnt.remount(empty_cache=True)
    subprocess.run(["cat", os.fspath(mnt.path / "big")], stdout=subprocess.DEVNULL, check=True)
    read = peak_memory(mnt.pid)
    for what, value in (("written and uploaded", written), ("fetched", read)):
        report.row("memory, 4 GiB file %s" % what, mebibytes(value), "", "200 MiB", value < 200 * MIB)


def many(report, mnt, _):
    """Memory of the daemon with 100,000 files."""
    for d in range(100):
        save_many(mnt.path / ("d%02d" % d), 1000, "%%d of %d" % d)
    mnt.seal()
    mnt.wait_durable()
    subprocess.run(["ls", "-lR", os.fspath(mnt.path)], stdout=subprocess.DEVNULL, check=True)
    made = peak_memory(mnt.pid)
    mnt.remount(empty_cache=True)
    subprocess.run(["ls", "-lR", os.fspath(mnt.path)], stdout=subprocess.DEVNULL, check=True)
    found = peak_memory(mnt.pid)
    for what, value in (("made and uploaded", made), ("mounted with an empty cache", found)):
        report.row("memory, 100,000 files %s" % what, mebibytes(value), "", "400 MiB", value < 400 * MIB)


def epochs(report, mnt, turns):
    """1,000 epochs, warm."""
    for i in range(1000):
        (mnt.path / ("f%d" % (i % 10))).write_text(str(i))
        mnt.seal()
    mnt.wait_durable()
    for command in (["ls", mnt.epochs_dir], ["ls", "-l", mnt.epochs_dir], [BIN, "log", mnt.path]):
        words = [os.fspath(word) for word in command]
        figures = {"command": Figures(), "nothing": Figures()}
        calls = {"command": words, "nothing": [os.fspath(BIN), "version"]}
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        for turn in range(turns):
            for what in report.draw.shuffled(figures, words, turn):
                figures[what].measure(lambda w=calls[what]: seconds(lambda: subprocess.run(w, stdout=subprocess.DEVNULL, check=True)))
        name = "epochfs log" if words[0] == os.fspath(BIN) else " ".join(words[:-1] + [".epochs"])
        ratio = figures["command"].median / figures["nothing"].median
        # A second, where a program that does nothing takes 5 ms.
        report.timed("%s, 1,000 epochs" % name, figures["command"], figures["nothing"], "200 times; it is %.1f" % ratio, ratio < 200, slack=0.005)


def byte(report, mnt, _):
    """Bytes that an epoch with one changed byte adds to the remote."""
    path = mnt.path / "f"
    random_file(path, GIB)
    mnt.seal()
    mnt.wait_durable()
    before = stored(mnt)
    with open(path, "r+b") as f:
        f.seek(GIB // 3)
        old = f.read(1)[0]
        f.seek(GIB // 3)
        f.write(bytes([old ^ 1]))
    mnt.seal()
    mnt.wait_durable()
    more = stored(mnt) - before
    report.row("stored for one changed byte in 1 GiB", mebibytes(more), "", "8 MiB", 0 < more < 8 * MIB)


def dedup(report, mnt, _):
    """Bytes that the same data adds again: in a second file, a second epoch, from a second daemon."""
    size = 256 * MIB
    random_file(mnt.path / "a", size)
    shutil.copyfile(mnt.path / "a", mnt.path / "b")
    mnt.seal()
    mnt.wait_durable()
    once = stored(mnt)
    shutil.copyfile(mnt.path / "a", mnt.path / "c")
    mnt.seal()
    mnt.remount(empty_cache=True)
    os.close(write(mnt.path / "d", size, (mnt.path / "a").read_bytes()))
    mnt.seal()
    mnt.wait_durable()
    report.row("stored, 256 MiB in 2 files of an epoch", mebibytes(once), "", "once", once < size + MIB)
    report.row("  and again, 2 more epochs, 2 daemons", mebibytes(stored(mnt) - once), "", "nothing of it",
        stored(mnt) - once < MIB)


MEASURES = {"close": close, "seal": seal, "list": listing, "big": big, "many": many, "epochs": epochs,
            "byte": byte, "dedup": dedup}


def measure(report, call, folder, options, turns):
    """Runs one measure on a volume of its own, which is gone afterwards."""
    base = tempfile.mkdtemp(prefix="epochfs-limits-", dir=folder)
    mnt = Mount(base, {"settle": "1h", **options})
    try:
        mnt.mount()
        call(report, mnt, turns)
    finally:
        left = mnt.clean_up()
        shutil.rmtree(base, ignore_errors=True)
    if left:
        sys.exit("limits.py: %s" % "; ".join(left))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of the order of a turn; printed")
    parser.add_argument("--options", default="", metavar="NAME=VALUE,...")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASURES))
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in MEASURES]
    if unknown:
        parser.error("no such measure: %s" % ", ".join(unknown))
    options = dict(word.split("=", 1) for word in args.options.split(",") if word)
    kind = subprocess.run(["stat", "-f", "-c", "%T", args.folder], capture_output=True, text=True, check=True)
    print("  on %s (%s), %d processors, seed %d; %d turns, medians" % (args.folder, kind.stdout.strip(), os.cpu_count(), args.seed, args.turns))
    print("  %-50s %-28s %-26s %-20s" % ("", "epochfs", "the disk below", "limit"))
    report = Report(args.seed)
    for name in args.names or MEASURES:
        measure(report, MEASURES[name], args.folder, options, args.turns)
    return report.code


if __name__ == "__main__":
    sys.exit(main())
