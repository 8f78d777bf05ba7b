# SPDX-License-Identifier: Apache-2.0
"""Volumes in which there is something for `epochfs gc`."""

import json
import os
import random

from conftest import BIN, run, wait_until

MIB = 1 << 20


def noise(size, seed):
    return random.Random(seed).randbytes(size)


def save(volume, **files):
    """One durable epoch with these files changed: its number."""
    for name, data in files.items():
        (volume.path / name).write_bytes(data)
    number = volume.seal()
    volume.wait_durable()
    return number


def in_log(url):
    """The epochs that the remote has; one that was dropped is a small text without a tree, and is not told."""
    return {e["epoch"] for e in json.loads(run(BIN, "log", "--json", url).stdout)}


def drop(volume, *numbers):
    for number in numbers:
        os.rmdir(volume.epoch(number))
    wait_until(lambda: not in_log("file://%s" % volume.remote) & set(numbers), "the drop to reach the remote")


def make_garbage(mnt):
    """Unmounts a volume with a pack that is mostly dead, one that is dead, and many small index objects: the files of its newest
    epoch."""
    files = {"f%d" % i: noise(300_000, i) for i in range(6)}
    first = save(mnt, **files)
    files = {"f3": files["f3"], **{name: b"gone" for name in files if name != "f3"}}
    second = save(mnt, **files, other=noise(MIB, 50))
    files["other"] = b"gone"
    for i in range(16):
        save(mnt, small=noise(10_000, 100 + i), **files)
    drop(mnt, first, second)
    mnt.unmount()
    return files
