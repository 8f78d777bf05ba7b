# SPDX-License-Identifier: Apache-2.0
"""A mount with an empty cache of a damaged remote: what is damaged is an error and is told of, all else is read."""

import errno
import os
import shutil

import pytest

from conftest import MountError, run
from stored_data import MIB, away, digest, flip, packs, read_pages, told

DAMAGED = 6

DAMAGE = {
    "a-bit": flip,
    "zeros": lambda path, other: path.write_bytes(b"\0" * os.path.getsize(path)),
    "cut-off": lambda path, other: os.truncate(path, os.path.getsize(path) // 2),
    "empty": lambda path, other: os.truncate(path, 0),
    "missing": lambda path, other: os.unlink(path),
    "swapped": lambda path, other: shutil.copyfile(other, path),
}


# Each way of reading meets some of them: what differs begins where all is right and whole.
@pytest.mark.parametrize("kind,passthrough", [
    ("a-bit", "on"), ("a-bit", "off"), ("zeros", "on"), ("cut-off", "off"), ("empty", "on"), ("missing", "off"), ("swapped", "on"),
])
def test_a_damaged_pack_hits_what_is_in_it_and_says_so(mnt, kind):
    victim, other = os.urandom(3 * MIB), os.urandom(MIB)
    (mnt.path / "dir").mkdir()
    (mnt.path / "dir" / "victim").write_bytes(victim)
    first = mnt.seal()
    mnt.wait_durable()
    old = packs(mnt)
    (mnt.path / "other").write_bytes(other)
    second = mnt.seal()
    mnt.wait_durable()
    new = [p for p in packs(mnt) if p not in old]
    assert len(old) == 1 and len(new) == 1
    good = old[0].read_bytes()
    mnt.remount(empty_cache=True)
    run("ls", "-lR", mnt.epoch(first))
    DAMAGE[kind](old[0], new[0])

    pages = read_pages(mnt.path / "dir" / "victim", len(victim))
    right = [victim[i:i + 4096] for i in range(0, len(victim), 4096)]
    assert None in pages
    assert all(page in (None, whole) for page, whole in zip(pages, right))
    if kind == "a-bit":
        assert sum(page is not None for page in pages) > len(pages) // 4
    assert (mnt.path / "other").read_bytes() == other
    assert told(mnt, "epoch %d: dir/victim: " % second, old[0].name)
    with pytest.raises(OSError) as failure:
        digest(mnt.epoch(first) / "dir" / "victim")
    assert failure.value.errno == errno.EIO
    assert told(mnt, "epoch %d: dir/victim: " % first, old[0].name)
    assert not told(mnt, "other: ")

    old[0].parent.mkdir(exist_ok=True)
    old[0].write_bytes(good)
    assert (mnt.path / "dir" / "victim").read_bytes() == victim
    assert (mnt.epoch(first) / "dir" / "victim").read_bytes() == victim


def test_a_new_epoch_does_not_build_on_a_missing_pack(mnt):
    """What the remote lost is stored again with the next epoch that has it, and old ones are whole again."""
    data = os.urandom(3 * MIB)
    (mnt.path / "model").write_bytes(data)
    first = mnt.seal()
    mnt.wait_durable()
    lost = packs(mnt)
    run("ls", "-lR", mnt.epoch(first))
    mnt.unmount()
    for pack in lost:
        pack.unlink()
    mnt.mount()
    (mnt.path / "again").write_bytes(data)
    mnt.seal()
    mnt.remount(empty_cache=True)
    assert (mnt.path / "again").read_bytes() == data
    assert (mnt.path / "model").read_bytes() == data


def test_missing_index_objects_are_damage_and_can_be_put_back(mnt):
    data = os.urandom(2 * MIB)
    (mnt.path / "model").write_bytes(data)
    mnt.seal()
    mnt.wait_durable()
    mnt.unmount()
    mnt.empty_cache()
    with away(mnt.remote / "index"):
        mnt.mount()
        assert os.listdir(mnt.path) == ["model"]
        with pytest.raises(OSError) as failure:
            (mnt.path / "model").read_bytes()
        assert failure.value.errno == errno.EIO
    assert (mnt.path / "model").read_bytes() == data


def test_the_tree_of_an_old_epoch_is_damaged(mnt):
    (mnt.path / "old").write_bytes(os.urandom(100000))
    first = mnt.seal()
    mnt.wait_durable()
    hit = packs(mnt)
    (mnt.path / "new").write_bytes(os.urandom(100000))
    second = mnt.seal()
    mnt.wait_durable()
    mnt.unmount()
    mnt.empty_cache()
    good = hit[0].read_bytes()
    hit[0].unlink()
    mnt.mount()
    assert mnt.epochs() == [first, second]
    with pytest.raises(OSError) as failure:
        os.listdir(mnt.epoch(first))
    assert failure.value.errno == errno.EIO
    assert sorted(os.listdir(mnt.epoch(second))) == ["new", "old"]
    hit[0].write_bytes(good)
    assert os.listdir(mnt.epoch(first)) == ["old"]


def test_the_newest_tree_is_damaged(mnt):
    """There is no live tree to show: the mount says what is wrong, and nothing is written over it."""
    (mnt.path / "old").write_bytes(os.urandom(100000))
    first = mnt.seal()
    mnt.wait_durable()
    old = packs(mnt)
    (mnt.path / "new").write_bytes(os.urandom(100000))
    second = mnt.seal()
    mnt.wait_durable()
    hit = [p for p in packs(mnt) if p not in old]
    mnt.unmount()
    mnt.empty_cache()
    good = hit[0].read_bytes()
    hit[0].unlink()
    for _ in range(2):
        with pytest.raises(MountError) as failure:
            mnt.mount()
        assert failure.value.code == DAMAGED
        assert "the tree of epoch %d, the newest, is damaged or missing" % second in failure.value.output
    mnt.mount(ro=True, epoch=first)
    assert os.listdir(mnt.path) == ["old"]
    mnt.unmount()
    hit[0].write_bytes(good)
    mnt.mount()
    assert sorted(os.listdir(mnt.path)) == ["new", "old"]
