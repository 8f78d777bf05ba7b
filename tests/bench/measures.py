# SPDX-License-Identifier: Apache-2.0
"""What compare.py measures of each competitor. A measure takes the run and a competitor that is started, and
notes figures by run.note(measure, competitor, value).

Before each timed part a little of the same work was done, the disk is synced until nothing is dirty, and free memory is touched once, the same for
everybody: what the host of a virtual machine takes to find memory is nobody's.
"""

import mmap
import os
import shutil
import struct
import subprocess
import sys
import time

import numpy
import torch

import turns
from competitors import Unusable, poll
from remotes import warm_up

MIB = 1 << 20
NAME = "model.pt"
FILES, SMALL = 5000, 4096
SMALL_WARM = 200
SMALL_LIMIT = 20  # seconds
IDLE_SECONDS = 3


def prepare(run, mib):
    """The state that each timed part begins in."""
    warm_up(2 * mib + 512)
    run.dirty = max(run.dirty, turns.sync())


def seconds(call):
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


def read_blocks(path, size):
    """Reads it in blocks of 1 MiB."""
    block, got = bytearray(MIB), 0
    fd = os.open(path, os.O_RDONLY)
    try:
        while count := os.readv(fd, [block]):
            got += count
    finally:
        os.close(fd)
    if got != size:
        raise Unusable("%d of %d bytes were read" % (got, size))


def read_mapped(path, size):
    """Reads each word of it through a mapping."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        if len(mapped) != size:
            raise Unusable("%d of %d bytes were mapped" % (len(mapped), size))
        words = numpy.frombuffer(mapped, numpy.uint64, size // 8)
        int(words.sum())
        del words


def save(run, who, state, name=NAME):
    """torch.save, and what it took: the stall."""
    path = who.path / name
    prepare(run, run.mib)
    took = run.timed(lambda: torch.save(state, path))
    return took, os.stat(path).st_size


def upload(run, who, name, size):
    """Seconds until it is in the server, and those of the upload alone."""
    with run.watched():
        begin = time.monotonic()
        alone = who.make_durable(name, size)
        took = time.monotonic() - begin
    return took, took if alone is None else alone


def warm(run, who, path, size, kind):
    """Reads what was read just before."""
    read_blocks(path, size)
    run.note("%s read" % kind, who, run.timed(lambda: read_blocks(path, size)))
    run.note("%s mmap" % kind, who, run.timed(lambda: read_mapped(path, size)))


def cold(run, who, size, kinds=("read", "mmap"), note="cold"):
    """Reads what only the server, or the disk, has."""
    for kind in kinds:
        who.forget(NAME)
        prepare(run, run.mib)
        before = who.usage()[0]
        if who.script:
            took = run.timed(lambda: who.download(NAME, who.path))
            if os.stat(who.path / NAME).st_size != size:
                raise Unusable("another size came back")
        else:
            took = run.timed(lambda k=kind: (read_mapped if k == "mmap" else read_blocks)(who.path / NAME, size))
        run.note("%s %s" % (note, kind), who, took)
        after, peak = who.usage()
        if kind == "read":
            run.note("%s cpu" % note, who, after - before)
            run.note("%s memory" % note, who, peak)
        if who.script:
            return


def rest(run, who, name, size):
    """Nothing is under way any more, neither to the disk nor to a server."""
    if who.remote:
        who.make_durable(name, size)
    run.dirty = max(run.dirty, turns.sync())


def save_warm(run, who):
    """A little of the same work, as far as the server."""
    path = who.path / "warm.pt"
    torch.save({"warm": 1}, path)
    rest(run, who, path.name, os.stat(path).st_size)


def local(run, who):
    """A checkpoint is saved, and read again while it is in memory."""
    torch.save({"warm": 1}, who.path / "warm.pt")
    stall, size = save(run, who, run.first)
    run.note("stall", who, stall)
    rest(run, who, NAME, size)
    warm(run, who, who.path / NAME, size, "warm")


def life(run, who):
    """A checkpoint's beside a server: saved, durable, lost here, restored."""
    save_warm(run, who)
    before = who.usage()[0]
    stall, size = save(run, who, run.first)
    took, alone = upload(run, who, NAME, size)
    run.note("durable", who, stall + took)
    run.note("upload", who, alone)
    after, peak = who.usage()
    run.note("upload cpu", who, after - before)
    run.note("upload memory", who, peak)
    if who.name in run.yardsticks:
        _, size = save(run, who, run.second, "next.pt")
        run.note("upload, 60 % there", who, upload(run, who, "next.pt", size)[1])
        os.unlink(who.path / "next.pt")
    cold(run, who, os.stat(who.path / NAME).st_size)


def noise(run, who):
    """Upload and restore of incompressible data, where its content makes a difference, and what it is set against."""
    save_warm(run, who)
    _, size = save(run, who, run.noise)
    run.note("upload, noise", who, upload(run, who, NAME, size)[1])
    cold(run, who, size, ("read",), "cold noise")


def blocks(run, who):
    """Twice the size, written in blocks of 1 MiB that repeat, closed, and read again."""
    path, block = who.path / "blocks", os.urandom(MIB)

    def write():
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            for _ in range(2 * run.mib):
                os.write(fd, block)
        finally:
            os.close(fd)
    with open(who.path / "warm", "wb") as f:
        f.write(block)
    prepare(run, 2 * run.mib)
    run.note("blocks write", who, run.timed(write))
    rest(run, who, "blocks", 2 * run.mib << 20)
    warm(run, who, path, 2 * run.mib << 20, "blocks")


def make_small(folder, count, content):
    """Seconds of a loop that does nothing else; who is not done in SMALL_LIMIT is stopped. Seconds, and how many files."""
    paths = ["%s/f%05d" % (folder, i) for i in range(count)]
    begin, done = time.monotonic(), 0
    for done, path in enumerate(paths, 1):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(fd, content)
        os.close(fd)
        if not done % 100 and time.monotonic() - begin > SMALL_LIMIT:
            break
    return time.monotonic() - begin, done


def small(run, who):
    """Small files, each opened, written and closed; where it takes too long the rest is reckoned."""
    content = os.urandom(SMALL)
    for name in ("warm", "small"):
        os.mkdir(who.path / name)
    make_small(who.path / "warm", SMALL_WARM, content)
    prepare(run, 256)
    with run.watched():
        took, done = make_small(who.path / "small", run.files, content)
    run.note("small", who, took * run.files / done, reckoned=done < run.files)


def pipeline(run, who):
    """CPU seconds a GB of fp32 checkpoints, for all that an upload does but reading the index and sending."""
    if run.pipeline is None:
        raise Unusable("bench_pipeline is not built")
    done = subprocess.run([run.pipeline, *run.trained], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unusable(done.stderr)
    total = next(line for line in done.stdout.splitlines() if line.startswith("all "))
    run.note("pipeline cpu", who, float(total.split()[-1]))


class Trainer:
    """trainer.py in the background, on the last processor; servers on the others."""

    def __init__(self, run):
        self.processors = sorted(os.sched_getaffinity(0))
        if len(self.processors) < 2:
            raise Unusable("there is one processor only")
        self.file = run.folder / "steps"
        self.servers = [process.pid for process in run.rgw.processes]

    def move_servers(self, processors):
        for pid in self.servers:
            for thread in os.listdir("/proc/%d/task" % pid):
                os.sched_setaffinity(int(thread), processors)

    def __enter__(self):
        self.file.write_bytes(bytes(8))
        self.move_servers(self.processors[:-1])
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer.py")
        self.process = subprocess.Popen([sys.executable, program, os.fspath(self.file), str(self.processors[-1])],
                                        start_new_session=True)
        try:
            poll(lambda: self.steps() > 100, "the training")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.move_servers(self.processors)

    def steps(self):
        return struct.unpack("<Q", self.file.read_bytes())[0]

    def rate(self, work):
        """Steps a second while the work is done."""
        before, begin = self.steps(), time.monotonic()
        work()
        return (self.steps() - before) / (time.monotonic() - begin)


def training(run, who):
    """Steps a second while an upload runs, over those right before and after."""
    def alone():
        prepare(run, run.mib)
        with run.watched():
            return trainer.rate(lambda: time.sleep(IDLE_SECONDS))

    with Trainer(run) as trainer:
        idle, path = alone(), who.path / NAME
        torch.save(run.first, path)
        size = os.stat(path).st_size
        with run.watched():
            busy = trainer.rate(lambda: who.make_durable(NAME, size))
        rest(run, who, NAME, size)
        idle = (idle + alone()) / 2
    for metric, value in ((turns.OWN_REFERENCE["training"], idle), ("training steps", busy), ("training", busy / idle)):
        run.note(metric, who, value)


def memory(who, gib):
    """The daemon's peaks in MiB: while so much is uploaded, and while another daemon restores it."""
    path = who.path / NAME
    with open(path, "wb") as f:
        for _ in range(int(gib * 16)):
            f.write(os.urandom(64 * MIB))
    size = os.stat(path).st_size
    who.make_durable(NAME, size)
    up = who.usage()[1]
    who.forget(NAME)
    read_blocks(path, size)
    return {"up": up, "down": who.usage()[1]}


def stored(who, files):
    """Bytes in the remote for each byte of a series, all that is there counted."""
    raw = 0
    for name, path in files:
        shutil.copyfile(path, who.path / name)
        who.make_durable(name, 0)
        raw += os.stat(path).st_size
    return who.stored() / raw
