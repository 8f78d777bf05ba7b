#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Records one session of work on a mount whose cache directory lies on a disk that is written down.

    unshare -m record.py FOLDER --seed S [--fs ext4] [--passthrough on] [--rounds N]

FOLDER gets `base` (the disk as it was made), `log` (what happened to it, recorder.c), `store` (all that the remote ever
held, remote.sh). Marks in the log say what was promised, in the words of expect.py. Meant to run in a mount namespace of
its own, which takes the mounts with it.
"""

import argparse
import ctypes
import json
import mmap
import os
import pathlib
import random
import shlex
import sqlite3
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE.parent), str(HERE.parent / "mount")]

from conftest import Mount, run, wait_until  # noqa: E402
import disk  # noqa: E402
from expect import BLOCK, block, lines, whole  # noqa: E402
from kill_session import LIBC, MS_SYNC  # noqa: E402

BLOCKS = 24
SYNC_FILE_RANGE_WRITE = 2
SETTLE = {"settle": "1h", "min_free": "1", "lease": "5s"}


class Session:
    def __init__(self, mnt, mark, seed):
        self.mnt, self.mark_file, self.random = mnt, mark, random.Random(seed)
        self.live = {}  # path -> token, of files that are written as a whole
        self.version = 0
        self.counts = {"lines": {}, "blocks": {}, "rows": {}}
        self.databases = {}
        self.trees = {}  # number of an epoch -> what was live
        self.generation = 1

    def mark(self, **words):
        with open(self.mark_file, "wb", buffering=0) as f:
            f.write(json.dumps(words).encode())

    def token(self, path):
        self.version += 1
        return "%s:%d" % (os.path.basename(path).replace(":", ""), self.random.choice([0, 1, 3, 30]) + self.version)

    def path(self, *names):
        return self.random.choice(names)

    # ---- whole files

    def replace(self, path, fsync, flags=os.O_TRUNC):
        token = self.token(path)
        if fsync and not flags & os.O_SYNC:
            flags |= self.random.choice([0, 0, os.O_SYNC, os.O_DSYNC])
        by_flag = bool(flags & os.O_SYNC)
        # Each write is synced by itself then: of a new file there may be the first ones alone. A replacement is there as a whole or not at all.
        self.mark(may={path: token}, torn=not fsync or (by_flag and path not in self.live))
        fd = os.open(self.mnt.path / path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
        data = whole(token)
        for at in range(0, len(data), 100000):
            os.write(fd, data[at:at + 100000])
        if fsync and not by_flag:
            self.random.choice([os.fsync, os.fdatasync])(fd)
        os.close(fd)
        self.live[path] = token
        if fsync:
            self.mark(must={path: token})

    def plain(self):
        self.replace(self.path("a", "b", "d/e"), False)

    def sparse(self):
        """Its size comes first, and its end before its beginning."""
        path = self.path("a", "b")
        token = self.token(path)
        data = whole(token)
        self.mark(may={path: token}, torn=True)
        with open(self.mnt.path / path, "wb") as f:
            f.truncate(len(data))
            for at in range(len(data) // 50000 * 50000, -1, -50000):
                os.pwrite(f.fileno(), data[at:at + 50000], at)
        self.live[path] = token

    def synced(self):
        self.replace(self.path("a", "s", "d/s"), True)

    def synced_after_close(self):
        """By another descriptor, of a file that is closed."""
        path = self.path("a", "b")
        self.replace(path, False)
        fd = os.open(self.mnt.path / path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        self.mark(must={path: self.live[path]})

    def atomic(self):
        """As everybody does it who wants to be safe."""
        path = self.path("a", "model", "d/model")
        part = path + ".new"
        self.replace(part, True)
        token = self.live.pop(part)
        self.mark(may={path: token, part: None})
        os.rename(self.mnt.path / part, self.mnt.path / path)
        self.live[path] = token
        if self.random.random() < 0.5:
            self.sync_folder(os.path.dirname(path))

    def directory(self):
        """A checkpoint that gets its final name: seals at once."""
        self.version += 1
        name = "checkpoint-%d" % self.version
        part = "tmp-" + name
        fsync = self.random.random() < 0.7
        os.mkdir(self.mnt.path / part)
        for file in ("w", "optimizer"):
            self.replace("%s/%s" % (part, file), fsync)
        if fsync:
            self.sync_folder(part)
        self.mark(move=[part, name])
        os.rename(self.mnt.path / part, self.mnt.path / name)
        self.rename_live(part, name)
        if self.random.random() < 0.6:
            self.sync_folder("")

    def rename_live(self, old, new):
        for path in [p for p in self.live if p.startswith(old + "/")]:
            self.live[new + path[len(old):]] = self.live.pop(path)

    def move_directory(self):
        names = [n for n in os.listdir(self.mnt.path) if n.startswith("checkpoint")]
        if not names:
            return
        old, self.version = self.random.choice(sorted(names)), self.version + 1
        new = "moved-%d" % self.version
        self.mark(move=[old, new])
        os.rename(self.mnt.path / old, self.mnt.path / new)
        self.rename_live(old, new)
        if self.random.random() < 0.6:
            self.sync_folder("")

    def remove(self):
        if not self.live:
            return
        path = self.random.choice(sorted(self.live))
        self.mark(may={path: None})
        os.unlink(self.mnt.path / path)
        del self.live[path]
        if self.random.random() < 0.6:
            self.mark(names=self.sync_only(os.path.dirname(path), {path: False}))

    def sync_only(self, folder, names):
        fd = os.open(self.mnt.path / folder, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        return names

    def sync_folder(self, folder):
        self.mark(names=self.sync_only(folder, {p: True for p in self.live if os.path.dirname(p) == folder}))

    def mapped(self):
        path = "m"
        token = self.token(path)
        data = whole(token)
        self.mark(may={path: token}, torn=True)
        with open(self.mnt.path / path, "w+b") as f:
            f.truncate(len(data))
            address = LIBC.mmap(None, len(data), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, f.fileno(), 0)
        ctypes.memmove(address, data, len(data))
        os.listdir(self.mnt.path)
        assert LIBC.msync(address, len(data), MS_SYNC) == 0
        LIBC.munmap(address, len(data))
        self.live[path] = token
        fd = os.open(self.mnt.path / path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        self.mark(must={path: token})

    def o_sync(self):
        self.replace(self.path("s", "a"), True, self.random.choice([os.O_SYNC, os.O_DSYNC]) | os.O_TRUNC)

    # ---- changed in place

    def append(self):
        path = self.path("train-%d.log", "events-%d", "d/late-%d.jsonl") % self.generation
        count, synced = self.counts["lines"].get(path, 0), self.random.random() < 0.5
        more = count + self.random.choice([1, 50, 3000])
        self.mark(lines=[path, more, False])
        with open(self.mnt.path / path, "ab") as f:
            f.write(lines(path, more)[len(lines(path, count)):])
            if synced:
                f.flush()
                os.fsync(f.fileno())
                self.mark(lines=[path, more, True])
        self.counts["lines"][path] = more

    def edit(self):
        """Some blocks of a file, with or without somebody who reads it meanwhile."""
        path = self.path("blocks-%d", "d/blocks-%d") % self.generation
        there, self.version = self.counts["blocks"].setdefault(path, {}), self.version + 1
        chosen = sorted(self.random.sample(range(BLOCKS), 5)) if there else range(BLOCKS)
        synced = not there or self.random.random() < 0.6
        self.mark(blocks=[path, {str(i): self.version for i in chosen}, False])
        reader = os.open(self.mnt.path / path, os.O_RDONLY) if there and self.random.random() < 0.5 else -1
        fd = os.open(self.mnt.path / path, os.O_RDWR | os.O_CREAT, 0o644)
        for i in chosen:
            os.pwrite(fd, block(path, i, self.version), i * BLOCK)
        if synced:
            os.fsync(fd)
        if synced:
            self.mark(blocks=[path, {str(i): self.version for i in range(BLOCKS) if i in chosen}, True])
        os.close(fd)
        if reader >= 0:
            os.close(reader)
        there.update({i: self.version for i in chosen})

    def database(self):
        path = self.path("rows-%d.db", "rows-wal-%d.db") % self.generation
        db = self.databases.get(path)
        if not db:
            db = self.databases[path] = sqlite3.connect(self.mnt.path / path, isolation_level=None)
            db.execute("PRAGMA journal_mode = %s" % ("WAL" if "wal" in path else "DELETE"))
            db.execute("PRAGMA synchronous = %s" % ("FULL" if "wal" in path else "EXTRA"))
            db.execute("CREATE TABLE IF NOT EXISTS rows (i INTEGER PRIMARY KEY, data BLOB)")
            self.mark(rows=[path, 0])
        count = self.counts["rows"].get(path, 0)
        db.execute("BEGIN")
        for i in range(count, count + 20):
            db.execute("INSERT INTO rows VALUES (?, ?)", (i, self.random.randbytes(200)))
        db.execute("COMMIT")
        self.counts["rows"][path] = count + 20
        self.mark(rows=[path, count + 20])
        if self.random.random() < 0.3:
            self.databases.pop(path).close()

    # ---- epochs

    def seal(self):
        number = self.mnt.seal()
        self.trees[number] = dict(self.live)
        return number

    def wait(self):
        number = self.seal()
        self.mnt.wait_durable()
        self.mark(durable=[number, self.trees[number]])

    def wait_only(self):
        self.mnt.wait_durable()

    def rollback(self):
        """The tree of another epoch comes back. Files that are changed in place get new names from then on."""
        self.close_databases()
        number = self.random.choice(sorted(self.trees))
        after = self.trees[number]
        self.mark(may={p: after.get(p) for p in {*after, *self.live}}, torn=True, forget=True)
        self.mnt.rollback(number)
        self.live, self.generation = dict(after), self.generation + 1
        self.counts = {"lines": {}, "blocks": {}, "rows": {}}
        if self.random.random() < 0.5:
            self.mark(names=self.sync_only("", {p: True for p in after}))

    def close_databases(self):
        for path in list(self.databases):
            self.databases.pop(path).close()

    # ---- what the machine does by itself

    def nudge(self):
        """Dirty pages may be written back, and the journal committed, at any time: it happens now."""
        (folder,) = [p for p in self.mnt.cache.iterdir() if (p / "state.db").exists()]
        objects = [folder / "objects" / n for n in os.listdir(folder / "objects")]
        trees = [folder / "trees" / n for n in os.listdir(folder / "trees")]
        path = self.random.choice([folder / "objects", folder / "objects", folder / "state.db", folder / "state.db-wal",
                                   folder, *self.random.sample(objects, min(3, len(objects))), *trees[:1]])
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        if self.random.random() < 0.4 and not path.is_dir():
            ctypes.CDLL(None).sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), SYNC_FILE_RANGE_WRITE)
        else:
            os.fsync(fd)
        os.close(fd)

    def work(self, rounds):
        os.mkdir(self.mnt.path / "d")
        self.seal()
        steps = [self.plain, self.plain, self.sparse, self.synced, self.synced, self.synced, self.synced_after_close, self.atomic, self.directory,
                 self.move_directory, self.remove, self.mapped, self.o_sync, self.append, self.append, self.edit, self.edit,
                 self.database, self.seal, self.wait, self.wait_only, self.rollback]
        for _ in range(rounds):
            self.random.shuffle(steps)
            for step in steps:
                self.mark(step=step.__name__)
                step()
                if self.random.random() < 0.5:
                    self.nudge()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--recorder", required=True)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--fs", choices=disk.MAKE, default="ext4")
    parser.add_argument("--passthrough", default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    folder = args.folder
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for name in ("disk", "store/blobs", "store/now", "session"):
        (folder / name).mkdir(parents=True)
    disk.make(args.fs, folder / "image")
    disk.copy(folder / "image", folder / "base")
    recorder = subprocess.Popen([args.recorder, folder / "image", folder / "log", folder / "disk"])
    wait_until(lambda: (folder / "disk" / "disk").exists(), "the recorder")
    mnt = Mount(folder / "session", {**SETTLE, "passthrough": args.passthrough})
    mnt.url = "exec:%s %s %s" % (HERE / "remote.sh", shlex.quote(str(folder / "store")), shlex.quote(str(folder / "disk" / "mark")))
    run("mount", "-o", disk.MOUNT[args.fs], folder / "disk" / "disk", mnt.cache)
    session = Session(mnt, folder / "disk" / "mark", args.seed)
    try:
        mnt.mount()
        session.mark(mounted=True)
        session.work(args.rounds)
        session.mark(done=True)
    finally:
        session.close_databases()
        if mnt.process:
            mnt.kill()
        run("umount", mnt.cache, check=False)
        run("umount", folder / "disk", check=False)
        recorder.wait(timeout=60)


if __name__ == "__main__":
    main()
