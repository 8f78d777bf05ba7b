#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The enumerator on volumes in its own process, on real mounts, or on an ordinary directory.

    histories.py BUILD [--on volume|mount|directory] [--jobs N] [--passthrough on|off] [--shards N [--done FILE] [--first N]]
                       [what `enumerate` takes]

With --jobs so many processes share all histories. With --shards N they take one share of N after the other and say how far they
are; --done FILE has a line for each share that was run, and whoever gives the file again goes on behind them; --first N ends after
so many. What it makes lies under TMPDIR, or in memory for a volume. Exit code 1 where a history was not as it must be, 3 where --all was given
and --seconds ended that; without --all, --seconds ends it in order.
"""

import argparse
import concurrent.futures
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
MEMORY = "/dev/shm"
CUT = 3
SOME = re.compile(r"^length (\d+) \(some\): (\d+) histories", re.MULTILINE)
TOTAL = re.compile(r"^(\d+) histories, (\d+) not as they must be", re.MULTILINE)


def on_a_mount(base, program, passthrough, arguments, say):
    from conftest import Mount  # it wants pytest, which nothing else here does
    from on_mount import EVICTS, enumerate_on

    (base / "m").mkdir()
    mount = Mount(base / "m", {"passthrough": passthrough, "settle": "24h", "resume": "off", **EVICTS})
    mount.mount()
    try:
        return enumerate_on(mount, program, *arguments, say=say)[0]
    finally:
        if mount.process:
            mount.unmount()


def run(command, say):
    """Its exit code; `say` has each line as it comes."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            say(line.rstrip("\n"))
    return process.returncode


def one(args, program, arguments, say=print):
    memory = MEMORY if args.on == "volume" and os.path.isdir(MEMORY) else None
    base = pathlib.Path(tempfile.mkdtemp(prefix="epochfs-enumerate-", dir=memory))
    try:
        if args.on == "mount":
            return on_a_mount(base, program, args.passthrough, arguments, say)
        more = ["--passthrough", args.passthrough] if args.on == "volume" else []
        return run([program, "--on", args.on, *more, *arguments, base], say)
    finally:
        shutil.rmtree(base, ignore_errors=True)


class Shares:
    """All shares of a run that may end and go on: which were run, and what came of them."""

    def __init__(self, args, program, arguments):
        self.args, self.program, self.arguments = args, program, arguments
        self.what = [args.on, args.passthrough, args.shards, *arguments]
        self.lock = threading.Lock()
        self.histories = self.failed = self.finished = 0
        self.begin = time.monotonic()
        before = self.read() if args.done and args.done.exists() else {}
        self.to_do = [i for i in range(args.shards) if i not in before][:args.first]
        self.before = len(before)
        self.failed_before = sum(failed for failed in before.values())

    def read(self):
        """{share: how many of it failed}."""
        lines = [json.loads(line) for line in self.args.done.read_text().splitlines()]
        if any(line["what"] != self.what for line in lines):
            sys.exit("%s is of other histories: %s" % (self.args.done, lines[0]["what"]))
        return {line["share"]: line["failed"] for line in lines}

    def run(self, share):
        said = io.StringIO()
        code = one(self.args, self.program, [*self.arguments, "--keep-going", "--shard", "%d/%d" % (share, self.args.shards)],
                   lambda line: said.write(line + "\n"))
        total = TOTAL.search(said.getvalue())
        cut = SOME.search(said.getvalue())
        with self.lock:
            if cut:
                print("share %d was cut off by --seconds at length %s, after %s of its histories" % (share, *cut.groups()), flush=True)
            elif code not in (0, 1) or not total:
                print("share %d: exit code %d\n%s" % (share, code, said.getvalue()), flush=True)
            if cut or code not in (0, 1) or not total:
                self.failed += 1  # and comes again
                return
            histories, failed = map(int, total.groups())
            if failed:
                print(said.getvalue(), flush=True)
            self.note(share, histories, failed)

    def note(self, share, histories, failed):
        self.histories += histories
        self.failed += failed
        self.finished += 1
        if self.args.done:
            with open(self.args.done, "a", encoding="utf-8") as f:
                f.write(json.dumps({"what": self.what, "share": share, "histories": histories, "failed": failed}) + "\n")
        seconds = time.monotonic() - self.begin
        left = (self.args.shards - self.before - self.finished) * seconds / self.finished
        print("%d of %d shares; %d histories, %.0f a second, %d not as they must be; the rest takes %.1f h like this" % (
            self.before + self.finished, self.args.shards, self.histories, self.histories / seconds,
            self.failed_before + self.failed, left / 3600), flush=True)

    def run_all(self):
        with concurrent.futures.ThreadPoolExecutor(self.args.jobs) as pool:
            list(pool.map(self.run, self.to_do))
        return 1 if self.failed or self.failed_before else 0


def run_jobs(args, program, arguments):
    said = [[] for _ in range(args.jobs)]

    def job(i):
        def say(line):
            said[i].append(line)
            print(line, flush=True)

        share = ["--shard", "%d/%d" % (i, args.jobs)] if args.jobs > 1 else []
        return one(args, program, arguments + share, say)

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        codes = list(pool.map(job, range(args.jobs)))
    # Who was ended by a signal has a negative one.
    code = max(map(abs, codes))
    # Where one fails, and the others are not asked for, that is the end, too.
    cut = [found.groups() for found in (SOME.search("\n".join(lines)) for lines in said) if found]
    if args.all is None or not cut or code and "--keep-going" not in arguments:
        return code
    print("cut off by --seconds: not all histories of up to %s steps were run; %s" % (
        args.all, ", ".join("%s of length %s" % (count, length) for length, count in cut)), flush=True)
    return code or CUT


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--on", default="volume", choices=["volume", "mount", "directory"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--passthrough", default="on", choices=["on", "off"])
    parser.add_argument("--shards", type=int)
    parser.add_argument("--done", type=pathlib.Path)
    parser.add_argument("--first", type=int)
    parser.add_argument("--all", metavar="N")
    args, arguments = parser.parse_known_args()
    if args.all is not None:
        arguments += ["--all", args.all]
    os.environ.setdefault("EPOCHFS_BIN", str(args.build.resolve() / "epochfs"))
    program = args.build.resolve() / "tests/enumerate/enumerate"
    if args.shards:
        return Shares(args, program, arguments).run_all()
    return run_jobs(args, program, arguments)


if __name__ == "__main__":
    sys.exit(main())
