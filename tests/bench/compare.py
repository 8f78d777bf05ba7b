#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""epochfs beside what people use instead, measured turn by turn in one run on this machine.

    tests/bench/compare.py BUILD/epochfs [--quick] [--turns N] [--mib N] [--only NAME,...] [--measures NAME,...]
        [--folder DIR] [--series DIR] [--out DIR] [--readme FILE]

Writes results.md, results.svg and results.json to --out (build/bench). What is measured once, bytes stored and
memory, is kept from the results that lie there when --measures does not name it. --readme puts table and plot between
the marks of that file. --quick: small sizes, two turns, to see that all works. --series keeps the trained
checkpoints in a folder and uses them again. The folder ($TMPDIR or /tmp) should be on the disk that caches
would be on, and needs 20 times --mib. Whatever happens, what it starts is stopped by its pid, unmounted
and removed. Who is not installed or does not mount here is left out, with the reason in the results.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE.parent / "remotes")]

import measures  # noqa: E402
import passthrough_hp  # noqa: E402
import report  # noqa: E402
import series  # noqa: E402
from competitors import COMPETITORS, EpochfsFolder, Unusable  # noqa: E402
from cpu_group import cpu_group  # noqa: E402
from server import ServerMissing  # noqa: E402
from server_rgw import Rgw  # noqa: E402
from server_sshd import Sshd  # noqa: E402

BUILD = HERE.parents[1] / "build" / "bench"
MEASURES = ("life", "small", "blocks", "noise", "training", "pipeline", "stored", "memory")
YARDSTICKS = ("epochfs", "rclone-copy")  # whose upload depends on what is there and in it, and what that is set against
TRAINING = ("rclone-full", "rclone-copy", "aws-cp", "epochfs")  # who uploads while training goes on


class Run:
    """What is measured with what, and what came of it."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.mib, self.files = options.mib, 500 if options.quick else measures.FILES
        # Copies: a build in between changes nothing.
        self.program = pathlib.Path(shutil.copy2(options.program, folder / "epochfs"))
        self.pipeline = pathlib.Path(shutil.copy2(pathlib.Path(options.program).parent / "bench" / "bench_pipeline", folder))
        self.yardsticks = YARDSTICKS
        self.figures, self.left_out, self.reckoned = {}, {}, set()
        self.stored, self.memory = {}, {}
        self.turn = 0

    def note(self, measure, who, value):
        turns = self.figures.setdefault(measure, {}).setdefault(who.name, {})
        turns[self.turn] = value

    def attempt(self, measure, kind):
        """One measure of one competitor, started for it and stopped after it."""
        if kind.name in self.left_out or not concerns(measure, kind):
            return
        print("  turn %d: %s of %s" % (self.turn + 1, measure, kind.label), flush=True)
        who = kind(self)
        with contextlib.ExitStack() as stack:
            try:
                stack.callback(who.stop)
                who.start("%s-%s-%d" % (kind.name, measure, self.turn))
                getattr(measures, measure)(self, who)
            except (Unusable, OSError) as error:
                self.left_out[kind.name] = "%s, turn %d: %s" % (measure, self.turn + 1, error)
                print("  left out: %s, %s" % (kind.label, self.left_out[kind.name]), flush=True)

    def check(self):
        """Leaves out who cannot be had."""
        for name, kind in COMPETITORS.items():
            try:
                if self.options.only and name not in self.options.only:
                    raise Unusable("not asked for")
                kind(self).check()
            except Unusable as error:
                self.left_out[name] = str(error)

    def facts(self):
        """The machine and the run, as the report names them."""
        kind = subprocess.run(["stat", "-f", "-c", "%T", self.folder], capture_output=True, text=True, check=True).stdout.strip()
        model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name")), "?")
        return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cpu": model, "cores": len(os.sched_getaffinity(0)),
                "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30, "kernel": platform.release(),
                "disk": "ext4" if kind == "ext2/ext3" else kind, "mib": self.mib, "turns": self.turn, "files": self.files,
                "session_groups": self.options.session_groups,
                "load": [round(load, 1) for load in self.loads]}

    def results(self):
        return {"facts": self.facts(), "labels": {name: kind.label for name, kind in COMPETITORS.items()},
                "figures": {m: {who: [turns.get(t) for t in range(self.turn)] for who, turns in of.items()} for m, of in self.figures.items()},
                "stored": self.stored, "memory": self.memory, "left_out": self.left_out, "reckoned": sorted(self.reckoned)}


def concerns(measure, kind):
    if measure == "blocks":
        return kind.blocks
    if measure == "noise":
        return kind.name in YARDSTICKS
    if measure == "pipeline":
        return kind.name == "epochfs"
    if measure == "training":
        return kind.name in TRAINING
    return True


def start_servers(run, stack, name, mib):
    """The servers, for so many MiB at a time, or why there is none."""
    folder = run.folder / name
    for name, make in (("rgw", lambda: Rgw(folder / "rgw", memory=mib << 20)), ("sshd", lambda: Sshd(folder / "sshd"))):
        try:
            setattr(run, name, stack.enter_context(make()))
        except (ServerMissing, RuntimeError) as error:
            setattr(run, name, Unusable("%s: %s" % (name, error)))


def stored(run, made):
    for number, (name, (_, goal)) in enumerate(series.SERIES.items()):
        if name not in made:
            run.stored[name] = None
            continue
        who = EpochfsFolder(run)
        try:
            who.start("stored-%d" % number)
            run.stored[name] = measures.stored(who, made[name])
        finally:
            who.stop()
        print("  stored of %s: %.3f (goal %.3f)" % (name, run.stored[name], goal), flush=True)


def memory(run):
    who = COMPETITORS["epochfs"](run)
    # The server keeps everything in memory, and takes twice as much for it.
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / (1 << 20)
    if available < 2.2 * run.options.memory_gib:
        print("  no memory: the server needs %.1f GiB for it, %.1f are free" % (2.2 * run.options.memory_gib, available), flush=True)
        return
    print("  memory with %g GiB" % run.options.memory_gib, flush=True)
    try:
        who.start("memory")
        run.memory = {"gib": run.options.memory_gib, **measures.memory(who, run.options.memory_gib)}
        print("  peaks of the daemon in MiB: %(up).0f uploading, %(down).0f restoring" % run.memory, flush=True)
    except Unusable as error:
        print("  no memory: %s" % error, flush=True)
    finally:
        who.stop()


def write(run):
    out = run.options.out
    out.mkdir(parents=True, exist_ok=True)
    results = run.results()
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    report.write(results, out, run.options.readme)


def take_over(run):
    """What needs no turns may be from an earlier run."""
    path = run.options.out / "results.json"
    if path.exists():
        there = json.loads(path.read_text())
        run.stored, run.memory = there["stored"], there["memory"]


def compare(run):
    options = run.options
    take_over(run)
    run.loads = [os.getloadavg()[0]]
    made = series.make(options.series or run.folder / "series", run.mib, options.quick)
    run.first, run.second = series.states(made["full"], run.mib)
    run.noise = series.noise(run.mib)
    run.trained = [path for _, path in made["full"]]
    try:
        run.passthrough_hp = passthrough_hp.build(BUILD / "libfuse")
    except Unusable as error:
        run.passthrough_hp = error
    if "memory" in options.measures:
        with contextlib.ExitStack() as stack:
            start_servers(run, stack, "large", int(run.options.memory_gib * 1024) + 1024)
            if not isinstance(run.rgw, Unusable):
                memory(run)
    with contextlib.ExitStack() as stack:
        start_servers(run, stack, "servers", 8 * run.mib + 1024)
        run.check()
        if "stored" in options.measures:
            stored(run, made)
        kinds = list(COMPETITORS.values())
        for turn in range(options.turns):
            run.turn = turn
            for measure in [m for m in options.measures if m not in ("stored", "memory")]:
                # In another order each time, so that nobody always follows the same: what one leaves to be written back
                # slows down the next.
                for kind in random.Random("%s %d" % (measure, turn)).sample(kinds, len(kinds)):
                    run.attempt(measure, kind)
            run.turn = turn + 1
            run.loads.append(os.getloadavg()[0])
            write(run)
        write(run)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--turns", type=int, default=None)
    parser.add_argument("--mib", type=int, default=None, help="of a checkpoint (1024)")
    parser.add_argument("--memory-gib", type=float, default=None, help="of the measure of memory (8)")
    words = lambda text: [word for word in text.split(",") if word]  # noqa: E731
    parser.add_argument("--only", type=words, default=[], help=", ".join(COMPETITORS))
    parser.add_argument("--measures", type=words, default=list(MEASURES), help=", ".join(MEASURES))
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument("--series", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=BUILD)
    parser.add_argument("--readme", type=pathlib.Path)
    options = parser.parse_args()
    for given, known in ((options.only, COMPETITORS), (options.measures, MEASURES)):
        if unknown := [word for word in given if word not in known]:
            parser.error("no such name: %s; there are %s" % (", ".join(unknown), ", ".join(known)))
    if options.turns is None:
        options.turns = 2 if options.quick else 5
    options.mib = options.mib or (64 if options.quick else 1024)
    options.memory_gib = options.memory_gib or (.25 if options.quick else 8)
    return options


def main():
    options = arguments()
    # Nothing of this machine's configuration counts, for none of them.
    for name in [name for name in os.environ if name.upper().startswith(("AWS_", "RCLONE_", "EPOCHFS_")) or name.lower().endswith("_proxy")]:
        del os.environ[name]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with (cpu_group() as options.session_groups,
          tempfile.TemporaryDirectory(prefix="epochfs-bench-", dir=options.folder, ignore_cleanup_errors=True) as folder):
        run = Run(options, pathlib.Path(folder))
        compare(run)
    if lost := [name for name in run.left_out if name.startswith("epochfs") and run.left_out[name] != "not asked for"]:
        sys.exit("epochfs itself was left out: %s" % ", ".join("%s: %s" % (name, run.left_out[name]) for name in lost))


if __name__ == "__main__":
    main()
