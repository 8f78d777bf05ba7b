# SPDX-License-Identifier: Apache-2.0
"""What the recorder wrote down, and the disks that a power loss may leave of it."""

import json
import mmap
import os
import random
import struct
import subprocess

HEAD = struct.Struct("=IIQ")
WRITE, FLUSH, MARK = 1, 2, 3
SECTOR = 4096  # what a disk writes whole or not at all: ext4 itself does not stand a block that is torn inside

MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=8", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K", "-s", "4096"],
}
# The journal is committed often, so that names reach the disk long before contents do.
MOUNT = {"ext4": "loop,commit=1", "xfs": "loop,nouuid", "btrfs": "loop,commit=1"}
SIZE = {"ext4": 320 << 20, "xfs": 400 << 20, "btrfs": 400 << 20}


def make(kind, image):
    with open(image, "wb") as f:
        f.truncate(SIZE[kind])
    subprocess.run([*MAKE[kind], image], check=True)


def copy(source, target):
    subprocess.run(["cp", "--sparse=always", source, target], check=True)


class Log:
    """The records in order. A point is a number of records: the power goes after that many."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.bytes = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        self.records = []  # (type, start of the data, its length, offset on the disk)
        at = 0
        while at < len(self.bytes):
            kind, length, offset = HEAD.unpack_from(self.bytes, at)
            at += HEAD.size
            self.records.append((kind, at, length, offset))
            at += length

    def __len__(self):
        return len(self.records)

    def mark(self, i):
        """The mark that record i is, or None."""
        kind, start, length, _ = self.records[i]
        return json.loads(self.bytes[start:start + length]) if kind == MARK else None

    def flushes(self):
        return [i for i, r in enumerate(self.records) if r[0] == FLUSH]

    def last_flush(self, point):
        """The number of records up to and with the last flush before this point."""
        return next((i + 1 for i in range(point - 1, -1, -1) if self.records[i][0] == FLUSH), 0)


class Disk:
    """The image as it is on stable storage after each flush, built forward."""

    def __init__(self, log, base, stable):
        self.log, self.base, self.path = log, base, stable
        self.done = None

    def advance(self, point):
        """All writes up to here are on it. Points in rising order cost least."""
        if self.done is None or point < self.done:
            copy(self.base, self.path)
            self.done = 0
        with open(self.path, "r+b") as f:
            for i in range(self.done, point):
                self.write(f, i, None)
        self.done = point

    def write(self, f, i, chance):
        """Record i; with a random.Random as `chance`, some sectors of it."""
        kind, start, length, offset = self.log.records[i]
        if kind != WRITE:
            return
        if chance is None:
            os.pwrite(f.fileno(), self.log.bytes[start:start + length], offset)
            return
        for at in range(0, length, SECTOR):
            if chance.random() < 0.5:
                os.pwrite(f.fileno(), self.log.bytes[start + at:start + min(at + SECTOR, length)], offset + at)

    def leave(self, target, point, seed):
        """The disk that a power loss at this point may leave: all that was flushed, and of each later write all of it,
        nothing, or some sectors, as a disk's cache may have got to."""
        stable = self.log.last_flush(point)
        self.advance(stable)
        copy(self.path, target)
        chance = random.Random("%s %s" % (seed, point))
        kept = chance.choice([0.1, 0.5, 0.9])
        with open(target, "r+b") as f:
            for i in range(stable, point):
                if chance.random() < kept:
                    self.write(f, i, chance if chance.random() < 0.2 else None)
