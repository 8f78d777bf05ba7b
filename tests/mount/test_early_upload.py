# SPDX-License-Identifier: Apache-2.0
"""Large files go to the remote when they are closed, before an epoch is sealed that has them."""

import json
import random

import pytest

from conftest import BIN, run, wait_until
from stored_data import MIB, bytes_read


@pytest.fixture
def mnt(make_volume):
    return make_volume(settle="1h", upload_ahead="1M").mount()


def noise(size, seed):
    return random.Random(seed).randbytes(size)


def objects(volume, kind):
    return {p.name for p in (volume.remote / kind).rglob("*") if p.is_file()}


def save_ahead(volume, name, data):
    """Written, closed, and in the remote, whole; nothing is sealed."""
    before, epochs = objects(volume, "index"), volume.epochs()
    (volume.path / name).write_bytes(data)
    wait_until(lambda: objects(volume, "index") > before, "the index object of %s" % name)
    assert volume.epochs() == epochs
    return objects(volume, "index") - before


def seal(volume):
    """A durable epoch: its record."""
    number = volume.seal()
    volume.wait_durable()
    return json.loads((volume.remote / "epochs" / ("%020d.json" % number)).read_text())


def named(record):
    return {key.split("/")[1] for key in record["indexes"]}


def gc(volume):
    run(BIN, "gc", "--grace", "0", volume.url)
    run(BIN, "gc", "--grace", "0", volume.url)


def assert_restored(volume, make_volume, **files):
    """Sound in the remote, and right on a machine that has nothing of it."""
    run(BIN, "fsck", "--read-data", volume.url)
    volume.unmount()
    volume.mount(cache_dir=volume.base / "elsewhere")
    for name, data in files.items():
        assert (volume.path / name).read_bytes() == data


def test_the_epoch_takes_what_is_there(mnt, make_volume):
    data = noise(5 * MIB, 1)
    index = save_ahead(mnt, "model.pt", data)
    packs, before = objects(mnt, "packs"), bytes_read(mnt)
    record = seal(mnt)
    assert bytes_read(mnt) - before < 2 * MIB, "its bytes were read again"
    assert named(record) > index and 5 * MIB <= record["bytes_new"] < 6 * MIB <= record["bytes_stored"] + MIB
    assert len(objects(mnt, "packs") - packs) == 1, "more than the tree was stored"
    assert_restored(mnt, make_volume, **{"model.pt": data})


def test_what_was_replaced_is_left_out(mnt, make_volume):
    first = save_ahead(mnt, "model.pt", noise(5 * MIB, 1))
    packs = objects(mnt, "packs")
    data = noise(3 * MIB, 2)
    # A file that is open keeps the second save from sealing the first.
    with open(mnt.path / "open", "xb"):
        second = save_ahead(mnt, "model.pt", data)
        (mnt.path / "open").unlink()
    record = seal(mnt)
    assert named(record) > second and not named(record) & first
    assert 3 * MIB <= record["bytes_new"] < 4 * MIB
    gc(mnt)
    assert not objects(mnt, "packs") & packs, "a collection left what no epoch names"
    assert_restored(mnt, make_volume, **{"model.pt": data})


def test_what_a_collection_took_is_stored_again(mnt, make_volume):
    data = noise(5 * MIB, 1)
    save_ahead(mnt, "model.pt", data)
    packs = objects(mnt, "packs")
    save_ahead(mnt, "other.pt", noise(2 * MIB, 2))
    gc(mnt)
    assert not objects(mnt, "packs") & packs
    seal(mnt)
    assert_restored(mnt, make_volume, **{"model.pt": data, "other.pt": noise(2 * MIB, 2)})


def test_after_a_kill_nothing_is_stored_twice(mnt, make_volume):
    data = noise(5 * MIB, 1)
    index = save_ahead(mnt, "model.pt", data)
    packs = objects(mnt, "packs")
    mnt.kill()
    mnt.mount()
    record = seal(mnt)
    assert objects(mnt, "packs") > packs and len(objects(mnt, "packs") - packs) == 1
    assert not named(record) & index or record["bytes_new"] < 6 * MIB
    assert_restored(mnt, make_volume, **{"model.pt": data})


def test_neither_logs_nor_edits_nor_small_files(mnt, make_volume):
    save_ahead(mnt, "model.pt", noise(2 * MIB, 1))
    seal(mnt)
    before = objects(mnt, "index")
    (mnt.path / "train.log").write_bytes(noise(2 * MIB, 2))
    (mnt.path / "small.pt").write_bytes(noise(MIB // 2, 3))
    with open(mnt.path / "model.pt", "r+b") as f:
        f.write(b"changed in place")
    data = b"changed in place" + noise(2 * MIB, 1)[16:]
    # They are taken in the order in which they were closed.
    index = save_ahead(mnt, "last.pt", noise(2 * MIB, 4))
    assert objects(mnt, "index") - before == index and len(index) == 1
    seal(mnt)
    assert_restored(mnt, make_volume, **{"model.pt": data, "last.pt": noise(2 * MIB, 4)})


def test_an_edit_of_what_was_stored(mnt, make_volume):
    """The epoch has the file as it is at the seal, not as it was stored."""
    save_ahead(mnt, "model.pt", noise(3 * MIB, 1))
    with open(mnt.path / "model.pt", "r+b") as f:
        f.seek(MIB)
        f.write(b"later")
    seal(mnt)
    data = bytearray(noise(3 * MIB, 1))
    data[MIB:MIB + 5] = b"later"
    assert_restored(mnt, make_volume, **{"model.pt": bytes(data)})
