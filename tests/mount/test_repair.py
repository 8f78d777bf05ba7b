# SPDX-License-Identifier: Apache-2.0
"""epochfs fsck --repair: what the cache has comes back, what nobody has is named, and the rest stays as it was."""

import errno
import json
import os
import re

import pytest

from conftest import BIN, run, wait_until
from damage import noise

DONE, USAGE, DAMAGED, CONFLICT = 0, 2, 6, 8
MIB = 1 << 20


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of the remote."""
    return "auto"


@pytest.fixture
def mnt(make_volume):
    """Three epochs in three packs: a, then b, then c."""
    volume = make_volume(settle="1h").mount()
    volume.data = {}
    for i, name in enumerate("abc"):
        volume.data[name] = noise(MIB + i, i)
        (volume.path / name).write_bytes(volume.data[name])
        assert volume.seal() == i + 1
    volume.wait_durable()
    return volume


def repair(target, *words, code=DONE):
    done = run(BIN, "fsck", "--repair", "--json", *words, target, check=False)
    assert done.returncode == code, done
    return json.loads(done.stdout)


def fsck(url, code=DONE):
    done = run(BIN, "fsck", "--read-data", "--json", url, check=False)
    assert done.returncode == code, done
    return json.loads(done.stdout)


def flip(path, at=None):
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def packs_of(volume, number):
    """The packs that an epoch added, by the index object that it names."""
    record = json.loads((volume.remote / "epochs" / ("%020d.json" % number)).read_text())
    return [volume.remote / "packs" / p[:2] / p for p in record["packs"]]


def exported(volume, number, path):
    out = volume.base / "out"
    done = run(BIN, "export", "--force", "%s@%d:%s" % (volume.url, number, path), out, check=False)
    return (out / path).read_bytes() if done.returncode == DONE else done.returncode


def test_what_the_cache_has_comes_back(mnt):
    pack, = packs_of(mnt, 2)
    mnt.unmount()
    flip(pack)
    problems = fsck(mnt.url, DAMAGED)["problems"]
    assert {p["where"] for p in problems} == {"2 epochs from 2 to 3: b"}
    assert exported(mnt, 3, "b") == DAMAGED
    words = "--cache-dir", mnt.cache
    before = sorted(p for p in mnt.remote.rglob("*"))
    plan = repair(mnt.url, "--dry-run", *words)
    assert plan["dry_run"] and len(plan["restored"]) == 1 and not plan["gone"]
    assert sorted(p for p in mnt.remote.rglob("*")) == before

    done = repair(mnt.url, *words)
    assert done["restored"] == plan["restored"] and not done["gone"] and done["condemned"] == 1
    assert pack.exists()  # until epochfs gc deletes it
    report = fsck(mnt.url)
    assert not report["problems"] and report["condemned"] == 1 and "gc" in report["notes"][0]["problem"]
    for number, name in enumerate("abc", 1):
        assert exported(mnt, number, name) == mnt.data[name]
    again = repair(mnt.url, *words)
    assert not again["restored"] and not again["condemned"]

    run(BIN, "gc", "--grace", "0", mnt.url)
    assert not pack.exists() and not fsck(mnt.url)["notes"]
    assert exported(mnt, 3, "b") == mnt.data["b"]


def test_a_mount_that_writes_repairs_its_own_remote(mnt, tmp_path):
    pack, = packs_of(mnt, 1)
    index, = (mnt.remote / "index").glob("%020d-*" % 2)
    pack.unlink()
    flip(index)
    done = run(BIN, "fsck", "--repair", "--cache-dir", mnt.cache, mnt.url, check=False)
    assert done.returncode == CONFLICT and str(mnt.path) in done.stderr
    assert run(BIN, "fsck", "--repair", "--cache-dir", tmp_path, mnt.path, check=False).returncode == USAGE
    report = repair(mnt.path)
    assert not report["gone"] and {r["where"] for r in report["restored"]} == {"3 epochs from 1 to 3: a", ""}
    assert not fsck(mnt.url)["problems"]
    # It goes on, and others read what was restored.
    (mnt.path / "d").write_bytes(noise(MIB, 9))
    number = mnt.seal()
    mnt.wait_durable()
    fsck(mnt.url)
    assert exported(mnt, number, "a") == mnt.data["a"] and exported(mnt, number, "d") == noise(MIB, 9)


def test_what_nobody_has_is_named_and_the_rest_reads(mnt, tmp_path):
    pack, = packs_of(mnt, 2)
    mnt.unmount()
    flip(pack)
    done = run(BIN, "fsck", "--repair", "--cache-dir", tmp_path, mnt.url, check=False)
    assert done.returncode == DAMAGED
    assert "GONE: packs/" in done.stdout and "epochfs rm %s 2 3" % mnt.url in done.stdout
    assert pack.exists()
    assert exported(mnt, 3, "a") == mnt.data["a"] and exported(mnt, 3, "c") == mnt.data["c"]
    mnt.empty_cache()
    mnt.mount(ro=True)
    assert (mnt.epoch(3) / "c").read_bytes() == mnt.data["c"]
    with pytest.raises(OSError) as e:
        (mnt.epoch(3) / "b").read_bytes()
    assert e.value.errno == errno.EIO
    mnt.unmount()
    # A writer does not build on what is damaged: saved again, it is whole, and the old epochs may go.
    mnt.mount()
    (mnt.path / "b").write_bytes(mnt.data["b"])
    mnt.seal()
    mnt.wait_durable()
    run(BIN, "rm", mnt.path, "2", "3")
    wait_until(lambda: "dropped" in (mnt.remote / "epochs" / ("%020d.json" % 3)).read_text(), "the drops")
    mnt.unmount()
    fsck(mnt.url)
    assert repair(mnt.url, "--cache-dir", tmp_path)["condemned"] <= 1


def test_an_epoch_whose_record_is_gone_can_be_dropped(mnt, tmp_path):
    mnt.unmount()
    record = mnt.remote / "epochs" / ("%020d.json" % 3)
    whole = record.read_bytes()
    record.write_text("{")
    report = repair(mnt.url, "--cache-dir", tmp_path, code=DAMAGED)
    assert report["gone_epochs"] == [3]
    assert repair(mnt.url, "--cache-dir", mnt.cache)["restored"][0]["where"] == "epoch 3"
    assert record.read_bytes() == whole
    record.write_text("{")
    run(BIN, "rm", mnt.url, "3")
    assert "dropped" in record.read_text()
    fsck(mnt.url)
    mnt.empty_cache()
    mnt.mount()
    assert sorted(os.listdir(mnt.path)) == ["a", "b"]


def test_the_record_of_the_newest_epoch_is_missed_and_comes_back(mnt, tmp_path):
    """No other object names it; but its packs, index and tree are there."""
    mnt.unmount()
    record = mnt.remote / "epochs" / ("%020d.json" % 3)
    whole = record.read_bytes()
    record.unlink()
    problem, = fsck(mnt.url, DAMAGED)["problems"]
    assert problem["where"] == "epoch 3" and "record is missing" in problem["problem"]
    restored, = repair(mnt.url, "--cache-dir", mnt.cache)["restored"]
    assert restored["where"] == "epoch 3" and "from the cache" in restored["what"]
    assert record.read_bytes() == whole
    assert not fsck(mnt.url)["problems"]


def test_the_record_of_the_newest_epoch_is_missed_after_drops_and_a_collection(mnt):
    """The collection has merged the index: it names trees of dropped epochs, too, which their tombstones tell."""
    (mnt.path / "a").unlink()
    assert mnt.seal() == 4
    mnt.wait_durable()
    run(BIN, "rm", mnt.path, "1", "2", "3")
    run(BIN, "gc", mnt.path)
    assert list((mnt.remote / "gc").iterdir())
    (mnt.path / "later").write_bytes(noise(MIB, 7))
    assert mnt.seal() == 5
    mnt.wait_durable()
    mnt.unmount()
    assert not fsck(mnt.url)["problems"] and not fsck(mnt.url)["notes"]
    record = mnt.remote / "epochs" / ("%020d.json" % 5)
    whole = record.read_bytes()
    record.unlink()
    problem, = fsck(mnt.url, DAMAGED)["problems"]
    assert problem["where"] == "epoch 5" and "record is missing" in problem["problem"]
    assert repair(mnt.url, "--cache-dir", mnt.cache)["restored"] and record.read_bytes() == whole
    assert not fsck(mnt.url)["problems"]


def test_the_record_of_the_newest_epoch_is_missed_beside_its_writer(mnt):
    """Who writes puts it last: without it an epoch may be on its way, or damaged; a report says so, and the mount restores it."""
    record = mnt.remote / "epochs" / ("%020d.json" % 3)
    assert not fsck(mnt.url)["notes"]
    whole = record.read_bytes()
    record.unlink()
    note, = fsck(mnt.url)["notes"]
    assert note["where"] == "epoch 3" and "its record is not there" in note["problem"]
    done = run(BIN, "fsck", mnt.url)
    assert "is about to put it, or it is missing: epoch 3\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("no certain damage")
    restored, = repair(mnt.path)["restored"]
    assert restored["where"] == "epoch 3" and record.read_bytes() == whole
    assert not fsck(mnt.url)["notes"]


def test_a_writer_that_was_killed_before_the_record_left_no_damage(make_volume, monkeypatch):
    """Its lease stays until it has lapsed, and the next mount puts the record."""
    monkeypatch.setenv("EPOCHFS_FAULT", "upload.index")
    volume = make_volume(settle="1h", lease="3s").mount()
    monkeypatch.delenv("EPOCHFS_FAULT")
    (volume.path / "a").write_bytes(noise(MIB, 1))
    volume.seal()
    wait_until(lambda: volume.process.poll() is not None, "the kill")
    volume.kill()
    note, = fsck(volume.url)["notes"]
    assert note["where"] == "epoch 1" and "its record is not there" in note["problem"]
    volume.mount()
    volume.wait_durable()
    assert not fsck(volume.url)["notes"]


def test_what_was_stored_early_and_never_sealed_is_no_missing_epoch(mnt):
    """Its index object has the number of the epoch that was to come, and no tree."""
    early = "%020d-" % 4
    (mnt.path / "large").write_bytes(noise(80 * MIB, 9))
    wait_until(lambda: any(p.name.startswith(early) for p in (mnt.remote / "index").iterdir()), "an early upload")
    (mnt.path / "large").unlink()
    mnt.unmount()
    assert not (mnt.remote / "epochs" / ("%020d.json" % 4)).exists()
    assert not fsck(mnt.url)["problems"]


def test_the_newest_epoch_without_its_tree_can_be_dropped(mnt, tmp_path):
    mnt.unmount()
    record = json.loads((mnt.remote / "epochs" / ("%020d.json" % 3)).read_text())
    pack, = packs_of(mnt, 3)
    flip(pack, record["tree"]["chunks"][0]["offset"] + 70)
    report = repair(mnt.url, "--cache-dir", tmp_path, code=DAMAGED)
    assert report["gone_epochs"] == [3] and "all of its tree" in report["gone"][0]["where"]
    run(BIN, "rm", mnt.url, "3")
    mnt.empty_cache()
    mnt.mount()
    assert (mnt.path / "b").read_bytes() == mnt.data["b"]


def test_names_of_a_volume_come_back(mnt):
    run(BIN, "tag", mnt.path, "2", "best")
    wait_until((mnt.remote / "tags" / "best").exists, "the tag")
    mnt.unmount()
    texts = {p: (mnt.remote / p).read_bytes() for p in ("epochfs.json", "tags/best")}
    for damaged in (b"", b"\0garbage"):
        for path in texts:
            (mnt.remote / path).write_bytes(damaged)
        report = repair(mnt.url, "--cache-dir", mnt.cache)
        assert {r["object"] for r in report["restored"]} == set(texts)
        assert {p: (mnt.remote / p).read_bytes() for p in texts} == texts
    info = json.loads(texts["epochfs.json"])
    uuid = ("a" if info["uuid"][0] == "b" else "b") + info["uuid"][1:]
    for altered in ({**info, "uuid": uuid}, {**info, "created": "2020-01-01T00:00:00Z"}):
        (mnt.remote / "epochfs.json").write_text(json.dumps(altered))
        assert "altered" in repair(mnt.url, "--cache-dir", mnt.cache)["restored"][0]["what"]
        assert (mnt.remote / "epochfs.json").read_bytes() == texts["epochfs.json"]
    (mnt.remote / "epochfs.json").unlink()
    (mnt.base / "elsewhere").mkdir()
    report = repair(mnt.url, "--cache-dir", mnt.base / "elsewhere")
    assert "rebuilt" in report["restored"][0]["what"]
    assert exported(mnt, 3, "c") == mnt.data["c"]


@pytest.mark.parametrize("point", ["repair.record", "repair.named", "repair.stored", "repair.condemned"])
def test_killed_anywhere_and_run_again(mnt, point):
    pack, = packs_of(mnt, 2)
    index, = (mnt.remote / "index").glob("%020d-*" % 1)
    record = mnt.remote / "epochs" / ("%020d.json" % 1)
    mnt.unmount()
    flip(pack)
    index.unlink()
    record.write_text("{")
    words = "fsck", "--repair", "--cache-dir", mnt.cache, mnt.url
    done = run(BIN, *words, check=False, env={**os.environ, "EPOCHFS_FAULT": point})
    assert done.returncode == -9, done
    report = repair(mnt.url, "--cache-dir", mnt.cache)
    assert not report["gone"]
    assert not fsck(mnt.url)["problems"]
    for number, name in enumerate("abc", 1):
        assert exported(mnt, number, name) == mnt.data[name]


def test_an_encrypted_volume(make_volume, tmp_path, monkeypatch):
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    monkeypatch.setenv("EPOCHFS_KEY_FILE", os.fspath(key))
    volume = make_volume(settle="1h").mount()
    data = noise(MIB, 1)
    (volume.path / "a").write_bytes(data)
    volume.seal()
    volume.wait_durable()
    volume.unmount()
    pack, = (volume.remote / "packs").glob("*/*")
    flip(pack)
    (volume.remote / "epochfs.json").unlink()
    (tmp_path / "none").mkdir()
    done = run(BIN, "fsck", "--repair", "--cache-dir", tmp_path / "none", volume.url, check=False)
    assert done.returncode == DAMAGED and "no cache has a copy" in done.stderr
    report = repair(volume.url, "--cache-dir", volume.cache)
    assert {r["object"].split("/")[0] for r in report["restored"]} == {"epochfs.json", "packs"}
    assert not fsck(volume.url)["problems"] and exported(volume, 1, "a") == data


def test_the_part_of_a_node(make_volume, tmp_path):
    """One of two nodes has sealed, the other never comes: its part waits, and is damaged."""
    a, b = [make_volume(settle="1h", lease="3s", refresh="200ms", nodes=2, run="job-7", node=name) for name in "ab"]
    b.url, b.remote = a.url, a.remote
    a.mount()
    b.mount()
    (a.path / "of-a").write_bytes(noise(MIB, 1))
    assert run(BIN, "commit", "--step", "1", a.path).returncode == DONE
    wait_until(lambda: list(a.remote.glob("parts/*/*")), "the part")
    a.unmount()
    b.unmount()
    part, = a.remote.glob("parts/*/*-a.json")
    whole, where = part.read_bytes(), "part %d of node a" % int(part.name.split("-")[0])
    other = re.sub(rb'"sequence": \d+', b'"sequence": 77', whole)
    for damaged in (b"", whole[:100], other):
        part.write_bytes(damaged)
        assert [p["where"] for p in fsck(a.url, DAMAGED)["problems"]] == [where]
        assert repair(a.url, "--cache-dir", a.cache)["restored"][0]["where"] == where
        assert part.read_bytes() == whole
    part.write_bytes(b"")
    assert "its record cannot be read" in run(BIN, "gc", a.url, check=False).stderr
    report = repair(a.url, "--cache-dir", tmp_path, code=DAMAGED)
    assert report["gone"][0]["where"] == where and not part.exists()
    fsck(a.url)
    run(BIN, "gc", a.url)
