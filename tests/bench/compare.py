#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""epochfs beside what people use instead, measured turn by turn in one run on this machine.

    tests/bench/compare.py BUILD/epochfs [--quick | --short] [--turns N] [--seed N] [--mib N] [--files N] [--only NAME,...] [--measures NAME,...]
        [--directory] [--folder DIR] [--series DIR] [--out DIR] [--readme FILE]

turns.py has what a turn is, and when it is void. Writes results.json, with every sample, the commit and the seed, to --out (build/bench), and from it
results.md and results.svg. What is measured once, bytes stored and memory, is kept from the results of the same commit that lie there when --measures does not name it.
--readme puts the table between the marks of that file; report.py does it later, or checks it. --series keeps the trained
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
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [os.fspath(HERE.parent / "remotes")]

import measures  # noqa: E402
import passthrough_hp  # noqa: E402
import report  # noqa: E402
import series  # noqa: E402
import series_goals  # noqa: E402
import turns  # noqa: E402
from competitors import COMPETITORS, EpochfsFolder, Unusable  # noqa: E402
from cpu_group import cpu_group  # noqa: E402
from server import ServerMissing  # noqa: E402
from server_rgw import Rgw  # noqa: E402
from server_sshd import Sshd  # noqa: E402

BUILD = HERE.parents[1] / "build" / "bench"
MEASURES = ("local", "small", "blocks", "life", "noise", "training", "pipeline", "stored", "memory")
TRAINED = {"local", "life", "noise", "training", "pipeline", "stored"}  # with the checkpoints of a model
ONCE = ("stored", "memory")  # need no turns
FORKED = ("local", "small", "blocks")  # done by a process of whoever the mount is of
KEPT = ("small",)  # an ext4 without a journal passes over each inode that was freed within the last minutes, which slows whoever makes files after that
AGAIN = ("local", "small", "blocks")  # ... and once more in the reverse order; the others take too long, but for ours
YARDSTICKS = ("epochfs", "rclone-copy")  # whose upload depends on what is there and in it, and what that is set against
TRAINING = ("rclone-full", "rclone-copy", "aws-cp", "epochfs")  # who uploads while training goes on
SHORT = ("disk", "passthrough_hp", "rclone-copy", "epochfs", "epochfs-user")


def references(measure, name):
    """What a rival is set against in this measure."""
    if measure == "local":
        return ("disk", "epochfs") if name in ("rclone-full", "s3fs") else ("disk",)
    if measure == "small":
        return ("passthrough_hp", "disk") if name.startswith("epochfs") else ("disk",)
    return {"blocks": ("disk",), "life": ("rclone-copy",), "noise": ("rclone-copy",)}.get(measure, ())


def concerns(measure, kind):
    if measure == "blocks":
        return kind.blocks
    if measure == "local":
        return not kind.script
    if measure == "life":
        return kind.remote and kind.user is None
    if measure in ("noise", "training", "pipeline"):
        return kind.name in {"noise": YARDSTICKS, "pipeline": ("epochfs",), "training": TRAINING}[measure]
    return not kind.script


class Run:
    """What is measured with what, and every sample of it."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.mib, self.files = options.mib, options.files
        # Copies: a build in between changes nothing.
        self.program = pathlib.Path(shutil.copy2(options.program, folder / "epochfs"))
        pipeline = pathlib.Path(options.program).parent / "bench" / "bench_pipeline"
        self.pipeline = pathlib.Path(shutil.copy2(pipeline, folder)) if pipeline.exists() else None
        self.yardsticks = YARDSTICKS
        self.draw = turns.Draw(options.seed)
        self.samples, self.left_out = [], {}
        self.stored, self.memory = {}, {}
        self.sample, self.dirty, self.foreign, self.count = None, 0, 0.0, 0
        self.pid = os.getpid()
        self.told = {}  # group: why it is void

    def note(self, metric, who, value, reckoned=False):
        assert who.name == self.sample["who"]
        self.sample["values"][metric] = value
        if reckoned:
            self.sample["reckoned"] = True

    # ---- one sample

    @contextlib.contextmanager
    def watched(self):
        """Around what is timed: what others take of that counts by itself, for the rest of a sample is longer, and would thin it out."""
        with turns.Load(self.pid) as load:
            yield
        self.foreign = max(self.foreign, load.foreign)

    def timed(self, call):
        with self.watched():
            return measures.seconds(call)

    def measure_here(self, measure, who):
        getattr(measures, measure)(self, who)

    def measure_forked(self, measure, who):
        """By a child, which becomes the user whose mount it is."""
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            told = None
            try:
                os.close(ours)
                if who.user is not None and os.geteuid() == 0:
                    os.setgroups([])
                    os.setresgid(who.user, who.user, who.user)
                    os.setresuid(who.user, who.user, who.user)
                self.measure_here(measure, who)
                told = [self.sample, self.dirty, self.foreign, None]
            except (Unusable, OSError) as failed:
                told = [self.sample, self.dirty, self.foreign, str(failed)]
            except BaseException:  # pylint: disable=broad-exception-caught
                traceback.print_exc()
            finally:
                # Nothing of what this process copied may run its end, whatever happens here.
                try:
                    os.write(theirs, json.dumps(told).encode())
                finally:
                    os._exit(0)
        os.close(theirs)
        try:
            with open(ours, "rb") as f:
                told = json.loads(f.read() or "null")
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            os.waitpid(pid, 0)
        if not told:
            raise Unusable("who measured it has ended")
        self.sample, self.dirty, self.foreign, error = told
        if error:
            raise Unusable(error)

    def attempt(self, measure, kind, group, turn):
        """One measure of one competitor, started for it and stopped after it: whether there is a sample."""
        print("    %s" % kind.label, end="", flush=True)
        self.count += 1
        who = kind(self)
        who.kept = measure in KEPT
        self.sample = {"measure": measure, "group": group, "turn": turn, "who": kind.name, "number": self.count, "values": {}}
        with contextlib.ExitStack() as stack:
            try:
                stack.callback(who.stop)
                who.start("%s-%d" % (kind.name, self.count))
                self.dirty, self.foreign = turns.sync(), 0.0
                with turns.Load() as load:
                    (self.measure_forked if measure in FORKED else self.measure_here)(measure, who)
            except (Unusable, OSError) as error:
                self.left_out[kind.name] = "%s, turn %d: %s" % (measure, turn, error)
                print(" is left out: %s" % self.left_out[kind.name], flush=True)
                return False
        foreign = max(load.foreign, self.foreign)
        self.sample.update(foreign=round(foreign, 3), dirty=round(self.dirty, 1))
        self.samples.append(self.sample)
        print(": %s; others took %.2f processors" % (
            ", ".join("%s %.3g" % pair for pair in self.sample["values"].items()), foreign), flush=True)
        return True

    # ---- one turn

    def turn(self, measure, kind, number):
        """A rival and its references, in the drawn order: False where one of them cannot be had."""
        names = [kind.name, *(name for name in references(measure, kind.name) if name != kind.name)]
        if missing := [name for name in names if name in self.left_out]:
            print("  no %s of %s: %s is left out" % (measure, kind.label, ", ".join(missing)), flush=True)
            return False
        group = "%s, %s, %d" % (measure, kind.name, number)
        again = measure in AGAIN or kind.name == "epochfs" and bool(references(measure, kind.name))
        print("  %s, turn %d of %s" % (measure, number, kind.label), flush=True)
        return all(self.attempt(measure, COMPETITORS[name], group, number) for name in self.draw.group(names, again, group))

    def pair(self, measure, kind):
        """Turns until there are enough that count, or twice as many were tried."""
        number = 0
        while number < 2 * self.options.turns:
            number += 1
            if not self.turn(measure, kind, number):
                return
            judged = report.Judged(self.results())
            self.tell_void(judged, measure, kind, number)
            if judged.counted(measure, kind.name) >= self.options.turns:
                return

    def tell_void(self, judged, measure, kind, number):
        """Of all turns of this pair so far, for each is held against the others, too: what is new."""
        for turn in range(1, number + 1):
            group = "%s, %s, %d" % (measure, kind.name, turn)
            why = judged.void(group)
            if why and self.told.get(group) != why:
                print("  void%s: %s" % (", turn %d" % turn if turn < number else "", why), flush=True)
            self.told[group] = why

    def check(self):
        """Leaves out who cannot be had."""
        for name, kind in COMPETITORS.items():
            try:
                if self.options.only and name not in self.options.only:
                    raise Unusable("not asked for")
                kind(self).check()
            except Unusable as error:
                self.left_out[name] = str(error)

    # ---- what came of it

    def facts(self):
        """The machine and the run, as the report names them."""
        kind = subprocess.run(["stat", "-f", "-c", "%T", self.folder], capture_output=True, text=True, check=True).stdout.strip()
        model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if line.startswith("model name")), "?")
        return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cpu": model, "cores": len(os.sched_getaffinity(0)),
                "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 30, "kernel": platform.release(),
                "disk": "ext4" if kind == "ext2/ext3" else kind, "mib": self.mib, "turns": self.options.turns, "files": self.files,
                "session_groups": self.options.session_groups}

    def results(self):
        return {"commit": self.options.commit, "seed": self.options.seed, "facts": self.facts(),
                "labels": {name: kind.label for name, kind in COMPETITORS.items()}, "samples": self.samples,
                "stored": self.stored, "memory": self.memory, "left_out": self.left_out}


def start_servers(run, stack, name, mib):
    """The servers, for so many MiB at a time, or why there is none."""
    folder = run.folder / name
    for name, make in (("rgw", lambda: Rgw(folder / "rgw", memory=mib << 20)), ("sshd", lambda: Sshd(folder / "sshd"))):
        try:
            if run.options.directory:
                raise ServerMissing("not asked for")
            setattr(run, name, stack.enter_context(make()))
        except (ServerMissing, RuntimeError) as error:
            setattr(run, name, Unusable("%s: %s" % (name, error)))


def stored(run, made):
    for number, (name, (_, goal)) in enumerate(series_goals.SERIES.items()):
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
        run.stored, run.memory = report.measured_once(json.loads(path.read_text()), run.options.commit)


def compare(run):
    options = run.options
    take_over(run)
    made = {}
    if TRAINED.intersection(options.measures):
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
        for measure in [m for m in options.measures if m not in ONCE]:
            kinds = [kind for kind in COMPETITORS.values() if concerns(measure, kind) and kind.name not in references(measure, kind.name)]
            for kind in run.draw.shuffled(kinds, measure):
                run.pair(measure, kind)
                write(run)
        write(run)


# What is measured, and what measures; the results lie beside that.
SOURCES = ("lib", "fs", "tools", "Makefile", "tests/remotes", ":(glob)tests/bench/*.py", ":(glob)tests/bench/*.c")


def commit():
    """Of this tree; "+" behind it where what is measured, or what measures, differs from that."""
    git = lambda *words: subprocess.run(["git", "-C", os.fspath(HERE.parents[1]), *words], capture_output=True, text=True, check=False).stdout.strip()  # noqa: E731
    return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", *SOURCES) else "")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--quick", action="store_true", help="small sizes, two turns: shows that all works")
    parser.add_argument("--short", action="store_true", help="three turns of epochfs and its references alone, at full size, for the measures of the disk and the server")
    parser.add_argument("--turns", type=int, default=None, help="that count (5)")
    parser.add_argument("--seed", type=int, default=None, help="of the orders; else a fresh one. It is printed and in the results")
    parser.add_argument("--files", type=int, default=None, help="of the measure of small files (5000)")
    parser.add_argument("--directory", action="store_true", help="no server is started: epochfs has a directory as its remote, and others that need one are left out")
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
    options.seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    options.commit = commit()
    if options.short:
        options.only = options.only or list(SHORT)
        options.measures = [m for m in options.measures if m in ("local", "small", "blocks", "life", "noise")]
    options.turns = options.turns or (2 if options.quick else 3 if options.short else 5)
    options.files = options.files or (500 if options.quick else measures.FILES)
    options.mib = options.mib or (64 if options.quick else 1024)
    options.memory_gib = options.memory_gib or (.25 if options.quick else 8)
    return options


def let_users_mount():
    """An ordinary user needs a /dev/fuse that everybody may open. Where it is root's, this goes on with another node in a mount namespace of its own."""
    if os.geteuid() != 0 or os.stat("/dev/fuse").st_mode & 0o006 == 0o006 or "EPOCHFS_BENCH_ALONE" in os.environ:
        return
    script = 'd=$(mktemp -d) && mknod -m 666 "$d/fuse" c 10 229 && mount --bind "$d/fuse" /dev/fuse && rm "$d/fuse" && rmdir "$d"; exec "$@"'
    os.environ["EPOCHFS_BENCH_ALONE"] = "1"
    os.execvp("unshare", ["unshare", "--mount", os.fspath(HERE.parent / "tools" / "alone.sh"), "sh", "-c", script, "sh", sys.executable, *sys.argv])


def main():
    options = arguments()
    let_users_mount()
    print("  seed %d, commit %s; a turn is void where a reference spreads more than %.1f times, or others take more than %.2f processors" % (
        options.seed, options.commit, turns.SPREAD, turns.FOREIGN), flush=True)
    # Nothing of this machine's configuration counts, for none of them.
    for name in [name for name in os.environ if name.upper().startswith(("AWS_", "RCLONE_", "EPOCHFS_")) or name.lower().endswith("_proxy")]:
        del os.environ[name]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    with (cpu_group() as options.session_groups,
          tempfile.TemporaryDirectory(prefix="epochfs-bench-", dir=options.folder, ignore_cleanup_errors=True) as folder):
        os.chmod(folder, 0o711)
        run = Run(options, pathlib.Path(folder))
        compare(run)
    if lost := [name for name in run.left_out if name.startswith("epochfs") and run.left_out[name] != "not asked for"]:
        sys.exit("epochfs itself was left out: %s" % ", ".join("%s: %s" % (name, run.left_out[name]) for name in lost))


if __name__ == "__main__":
    main()
