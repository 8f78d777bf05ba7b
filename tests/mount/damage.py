# SPDX-License-Identifier: Apache-2.0
"""A remote with objects of every kind, what each epoch in it holds, and ways to damage an object.

Used by test_damage.py. A remote is a directory here: what is damaged is a file in it.
"""

import json
import os
import pathlib
import random
import shutil

from conftest import BIN, run, wait_until

KIB = 1 << 10

# What of a remote is damaged: the kind, and which of its objects, as a pattern below the remote.
KINDS = {
    "volume": "epochfs.json",
    "record": "epochs/*.json",
    "tombstone": "epochs/*.json",
    "tag": "tags/*",
    "pack": "packs/*/*",
    "index": "index/*",
    "summary": "summaries/*",
    "lease": "lease/*.json",
    "gc": "gc/*",
}
DAMAGES = ("truncated", "emptied", "flipped", "swapped", "duplicated", "removed", "garbage", "huge")


def noise(size, seed):
    return random.Random(seed).randbytes(size)


class Template:
    """A volume that was written once: its remote, a cache that has all of it, and what is in it."""

    def __init__(self, volume):
        self.epochs = {}  # number: {path: bytes}
        self.tags = {"best": 2, "keep": 4}
        self.dropped = 3
        volume.mount()
        tree = {"a": noise(300 * KIB, 1), "b": b"short\n" * 9, "d/c": noise(200 * KIB, 2)}
        self._epoch(volume, tree)
        self._epoch(volume, {**tree, "a": noise(310 * KIB, 3), "e": tree["d/c"][:150 * KIB] + noise(50 * KIB, 4)})
        tree = dict(self.epochs[2])
        self._epoch(volume, {**tree, "gone": noise(100 * KIB, 5)})
        del tree["b"]
        self._epoch(volume, {**tree, "z": noise(150 * KIB, 6), "s": b"x"})
        for name, number in self.tags.items():
            os.symlink(str(number), volume.epochs_dir / name)
        os.rmdir(volume.epoch(self.dropped))
        del self.epochs[self.dropped]
        wait_until(lambda: len(json.loads(run(BIN, "log", "--json", volume.url).stdout)) == 3
                   and (volume.remote / "tags" / "keep").exists(), "the drop to reach the remote")
        volume.unmount()
        run(BIN, "gc", volume.url)
        if "EPOCHFS_KEY_FILE" not in os.environ:
            self._summarize(volume.remote)
        self.remote, self.cache = volume.remote, volume.cache

    def _epoch(self, volume, tree):
        there = {os.path.relpath(os.path.join(d, n), volume.path) for d, _, names in os.walk(volume.path) for n in names}
        for path in there - set(tree):
            os.unlink(volume.path / path)
        before = self.epochs.get(max(self.epochs, default=0), {})
        for path, data in tree.items():
            if before.get(path) != data:
                (volume.path / path).parent.mkdir(exist_ok=True)
                (volume.path / path).write_bytes(data)
        number = volume.seal()
        volume.wait_durable()
        self.epochs[number] = tree

    def _summarize(self, remote):
        """As the uploader writes it after the hundredth epoch."""
        texts = [json.loads((remote / "epochs" / ("%020d.json" % n)).read_text()) for n in self.epochs]
        (remote / "summaries").mkdir()
        (remote / "summaries" / ("%020d.json" % 100)).write_text(json.dumps({"format": 1, "records": texts}))

    def objects(self, kind):
        """Paths of the objects of a kind, below the remote."""
        found = sorted(p for p in self.remote.glob(KINDS[kind]) if p.is_file())
        if kind in ("record", "tombstone"):
            found = [p for p in found if (int(p.stem) == self.dropped) == (kind == "tombstone")]
        return [str(p.relative_to(self.remote)) for p in found]

    def copy(self, volume, cache=False):
        """The volume's remote, and its cache where asked for, become copies of this one's."""
        shutil.rmtree(volume.remote)
        shutil.copytree(self.remote, volume.remote)
        if cache:
            shutil.rmtree(volume.cache)
            shutil.copytree(self.cache, volume.cache)


def others_of(remote, key):
    """What an object may be taken for: of its own kind, or where that is the only one, records."""
    folder = remote / pathlib.PurePath(key).parts[0]
    if not folder.is_dir():
        folder = remote / "epochs"
    return sorted(p for p in folder.rglob("*") if p.is_file() and p != remote / key)


def can_be(remote, key, how):
    """Whether this damages the object: swapping wants another one."""
    return how not in ("swapped", "duplicated") or bool(others_of(remote, key))


def apply(remote, key, how, rng):
    """Damages an object."""
    path = remote / key
    data = path.read_bytes()
    others = others_of(remote, key)
    if how == "truncated":
        path.write_bytes(data[:rng.randrange(1, len(data))])
    elif how == "emptied":
        path.write_bytes(b"")
    elif how == "flipped":
        at = rng.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1:])
    elif how == "swapped":
        other = rng.choice(others)
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif how == "duplicated":
        rng.choice(others).write_bytes(data)
    elif how == "removed":
        path.unlink()
    elif how == "garbage":
        path.write_bytes(rng.randbytes(len(data)))
    elif how == "huge":
        with open(path, "ab") as f:
            f.truncate(len(data) + (48 << 20))
    else:
        raise ValueError(how)
