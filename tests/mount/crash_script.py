# SPDX-License-Identifier: Apache-2.0
"""What tests/crash/calls.c shares, and the script that runs over it: once through what happens to a checkpoint directory.

test_crash.py kills the daemon after a call, test_fault.py lets calls fail. Each step of the script is a method, named in
STEPS: a new one has to be listed there too.
"""

import contextlib
import json
import os
import random
import sqlite3
import struct

from conftest import BIN, run
from kill_session import Session, check_remote, check_tree

LIBRARY = os.path.join(os.environ["EPOCHFS_UNITS"], "libcalls.so")


class Calls:
    """The numbers that the library shares."""

    FORMAT = "=QQQQQ256s"

    def __init__(self, path, kill_after=0, fail=(0, 0), error=0, below=None):
        self.path, self.below = path, below
        path.write_bytes(struct.pack(self.FORMAT, 0, kill_after, *fail, error, b""))

    @property
    def count(self):
        return struct.unpack(self.FORMAT, self.path.read_bytes())[0]

    @property
    def failed(self):
        """The call that failed first, and its file."""
        return struct.unpack(self.FORMAT, self.path.read_bytes())[-1].partition(b"\0")[0].decode()

    def environment(self, monkeypatch):
        monkeypatch.setenv("LD_PRELOAD", LIBRARY)
        monkeypatch.setenv("EPOCHFS_CALLS", str(self.path))
        if self.below:
            monkeypatch.setenv("EPOCHFS_CALLS_BELOW", str(self.below))


class Script(Session):
    """What happens to a checkpoint directory, once."""

    STEPS = ("write", "append", "seal", "edit", "fsync", "directory", "wait", "killed_writer", "mapping", "remove", "xattr",
             "rename_best", "rollback", "untag", "drop", "collect", "unmount")

    def __init__(self, mnt):
        super().__init__(mnt)
        self.sealed = {}  # number of an epoch -> what was promised when it was sealed

    def append(self, path, version):
        with open(self.mnt.path / path, "ab") as f:
            f.write(b"line %d\n" % version)

    def seal(self):
        name = self.mnt.epochs_dir / ("s%d" % len(os.listdir(self.mnt.epochs_dir)))
        os.mkdir(name)
        self.sealed[int(os.readlink(name))] = dict(self.promised)

    def wait(self):
        self.mnt.wait_durable()

    def xattr(self):
        os.setxattr(self.mnt.path / "model", "user.step", b"2")

    def rename_best(self):
        self.doing = {"checkpoint-2/w": None}
        os.rename(self.mnt.path / "checkpoint-2", self.mnt.path / "best")
        self.promised["best/w"] = self.promised.pop("checkpoint-2/w")
        self.doing = {}

    def rollback(self):
        self.mnt.rollback(2)

    def untag(self):
        os.unlink(min(self.tag_paths()))

    def drop(self):
        self.sealed.pop(1, None)
        os.rmdir(self.mnt.epoch(1))

    def collect(self):
        """Beside the mount; nothing of it is counted."""
        run(BIN, "gc", "--grace", "0", self.mnt.url)

    def unmount(self):
        self.mnt.unmount()

    def work(self):
        self.write("model", 1)
        self.append("train.log", 1)
        self.seal()
        self.write("model", 2)
        self.write("new", 2)
        self.append("train.log", 2)
        self.edit("model", 12)
        self.fsync("safe", 2)
        self.directory("checkpoint-2", 2)
        self.wait()
        self.killed_writer("model")
        self.mapping("mapped", 2)
        self.remove("new")
        self.xattr()
        self.rename_best()
        self.seal()
        self.wait()
        self.promised = {}  # the tree of an epoch: only its wholeness is checked from here on, and what is new
        self.rollback()
        self.untag()
        self.drop()
        self.wait()
        self.collect()
        self.write("model", 3)
        self.seal()
        self.wait()
        self.unmount()

    def check_sealed(self):
        """What was there when an epoch was sealed is in it."""
        for number, promised in self.sealed.items():
            self.check_promises(promised, self.mnt.epoch(number))


def chosen(total, options, how_many, which, kind):
    """Numbers of calls: those that the option `which` names, or as many as `how_many` says, by the seed."""
    first, _, last = options.getoption(which).partition("-")
    if first:
        return range(int(first), int(last or first) + 1)
    count, seed = options.getoption(how_many), options.getoption("seed")
    print("--seed %d" % seed)
    if not count or count >= total:
        return list(range(1, total + 1))
    # One of each part, so that none is left out.
    chooser = random.Random("%d %s" % (seed, kind))
    return [chooser.randint(total * i // count + 1, total * (i + 1) // count) for i in range(count)]


def age_temporaries(mnt):
    """As if it went on an hour and more later."""
    for path in mnt.remote.glob(".tmp-*"):
        os.utime(path, (0, 0))


def check_objects(mnt):
    """Each file in objects/ is a version's."""
    cache = next(mnt.cache.iterdir())
    with contextlib.closing(sqlite3.connect("file:%s?mode=ro" % (cache / "state.db"), uri=True)) as state:
        versions = {"%016x" % number for (number,) in state.execute("SELECT id FROM versions")}
    assert set(os.listdir(cache / "objects")) <= versions


def check_no_orphans(mnt):
    """What no epoch needs does not stay in the remote for ever; and all that is there reads whole."""
    run(BIN, "fsck", "--read-data", mnt.url)
    run(BIN, "gc", "--grace", "0", mnt.url)
    report = json.loads(run(BIN, "fsck", "--json", "--read-data", mnt.url).stdout)
    assert report["orphans"] == report["condemned"] == 0 and not report["problems"], report


def check_after(session, tmp_path, edited):
    """The machine goes on: what was promised is there, nothing is torn, and the remote has it too. `edited`: names that may be."""
    mnt = session.mnt
    age_temporaries(mnt)
    mnt.mount(settle="1h")
    session.check_promises()
    check_tree(mnt.path, edited)
    mnt.seal()
    mnt.wait_durable()
    session.check_sealed()
    for number in mnt.epochs():
        check_tree(mnt.epoch(number), edited)
    mnt.unmount()
    assert not list(mnt.remote.glob(".tmp-*"))
    check_objects(mnt)
    check_no_orphans(mnt)
    check_remote(mnt, tmp_path, edited)
    mnt.empty_cache()
    mnt.mount(settle="1h")
    session.check_promises()
    session.check_sealed()
    check_tree(mnt.path, edited)
    mnt.unmount()
