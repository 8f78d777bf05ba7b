# SPDX-License-Identifier: Apache-2.0
"""epochfs verify: an epoch read whole, on a mount, from its remote, and on a mount without one."""

import fnmatch
import io
import json
import os
import re
import struct
import zipfile

import pytest

from conftest import BIN, run

DONE, USAGE, UNREACHABLE, NOT_FOUND, DAMAGED = 0, 2, 3, 5, 6


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of the command."""
    return "auto"


def verify(*words, code=DONE):
    """The lines of the files, and the summary."""
    done = run(BIN, "verify", *words, check=False)
    assert done.returncode == code, done
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    return lines[:-1], lines[-1]


def parsed(*words, code=DONE):
    done = run(BIN, "verify", "--json", *words, check=False)
    assert done.returncode == code, done
    return json.loads(done.stdout)


def zip_of(members, size):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for i in range(members):
            z.writestr("archive/data/%06d" % i, os.urandom(size))
    return out.getvalue()


def safetensors_of(names, size):
    header = json.dumps({"layer.%06d.weight" % i: {"dtype": "U8", "shape": [size], "data_offsets": [i * size, (i + 1) * size]}
                         for i in range(names)}).encode()
    return struct.pack("<Q", len(header)) + header + os.urandom(names * size)


@pytest.fixture
def volume7(make_volume):
    """Epoch 1 with big.bin, epoch 2 with it and others: what 2 added lies in a pack of its own."""
    mnt = make_volume(settle="1h")
    mnt.mount()
    (mnt.path / "big.bin").write_bytes(os.urandom(3 << 20))
    mnt.seal()
    mnt.wait_durable()
    (mnt.path / "sub").mkdir()
    (mnt.path / "sub" / "model.pt").write_bytes(zip_of(4, 100000))
    (mnt.path / "empty").touch()
    (mnt.path / "small").write_text("lr=1")
    with open(mnt.path / "sparse", "wb") as f:
        f.truncate(1 << 20)
        f.seek(500000)
        f.write(os.urandom(1000))
    os.link(mnt.path / "small", mnt.path / "small-too")
    os.symlink("small", mnt.path / "link")
    mnt.seal()
    mnt.wait_durable()
    return mnt


def packs(volume):
    return {p for p in (volume.remote / "packs").rglob("*") if p.is_file()}


def first_pack(volume):
    """Of epoch 1."""
    return min(packs(volume), key=lambda p: p.stat().st_mtime_ns)


def test_what_is_whole(volume7):
    size = sum(os.path.getsize(volume7.path / n) for n in ("big.bin", "sub/model.pt", "small", "sparse"))
    for target in (volume7.path, volume7.remote, volume7.url):
        lines, summary = verify(target)
        assert lines == [] and re.fullmatch(r"epoch 000002: 5 files, .*, all read: no damage", summary), summary
        assert parsed(target, "2") == {"epoch": 2, "files": 5, "bytes": size, "damaged": 0, "problems": []}
        assert verify(target, "1")[1].startswith("epoch 000001: 1 file, 3.0 MiB")


@pytest.mark.parametrize("missing", [False, True])
def test_a_pack_that_is_damaged_or_missing(volume7, missing):
    pack = first_pack(volume7)
    if missing:
        pack.unlink()
    else:
        data = bytearray(pack.read_bytes())
        data[len(data) // 2] ^= 1
        pack.write_bytes(data)
    for target in (volume7.path, volume7.remote):
        lines, summary = verify(target, "2", code=DAMAGED)
        assert lines == ["big.bin: its data is damaged or missing in the remote, in pack %s" % pack.name]
        assert summary.endswith("1 damaged")
        found = parsed(target, "2", code=DAMAGED)
        assert found["files"] == 5 and found["damaged"] == 1
        assert [p["path"] for p in found["problems"]] == ["big.bin"] and pack.name in found["problems"][0]["problem"]


def test_an_epoch_whose_tree_is_gone(volume7):
    for pack in packs(volume7) - {first_pack(volume7)}:
        pack.unlink()
    done = run(BIN, "verify", volume7.remote, "2", check=False)
    assert done.returncode == DAMAGED and len(done.stderr.splitlines()) == 1 and "fsck" in done.stderr, done
    assert verify(volume7.remote, "1")[0] == []


# Whole ones whose directories and headers are longer than what is kept while the content goes by.
LONG_ZIP = zip_of(4000, 10)
LONG_HEADER = safetensors_of(2000, 10)


@pytest.mark.parametrize("local", [False, True])
def test_files_that_are_torn_inside(make_volume, local):
    mnt = make_volume(settle="1h")
    if local:
        mnt.url = "none"
    mnt.mount()
    whole = {"a.pt": zip_of(3, 100000), "long.npz": LONG_ZIP, "long.safetensors": LONG_HEADER, "tiny.safetensors": safetensors_of(1, 1)}
    torn = {"cut.pt": whole["a.pt"][:200000], "cut.npz": LONG_ZIP[:-30], "cut.safetensors": LONG_HEADER[:-1],
            "two\nlines.pt": b"PK\3\4" + bytes(100)}
    for name, data in {**whole, **torn}.items():
        (mnt.path / name).write_bytes(data)
    mnt.seal()
    for target in (mnt.path,) if local else (mnt.path, mnt.remote):
        lines, summary = verify(target, "1", code=DAMAGED)
        assert sorted(line.split(": torn: ")[0] for line in lines) == sorted(n.replace("\n", "\\x0a") for n in torn), lines
        assert summary.startswith("epoch 000001: 8 files") and summary.endswith("4 damaged")
        assert {p["path"] for p in parsed(target, "1", code=DAMAGED)["problems"]} == set(torn)
    for name in torn:
        (mnt.path / name).unlink()
    mnt.seal()
    assert verify(mnt.path)[0] == []


def test_a_log_may_hold_anything(mnt):
    (mnt.path / "x.log").write_bytes(b"PK\3\4" + bytes(1000000))
    mnt.seal()
    assert verify(mnt.path)[0] == []


def test_an_epoch_that_is_not_durable_yet_is_made_so(mnt):
    mnt.remount(settle="1h")
    (mnt.path / "f").write_bytes(os.urandom(3 << 20))
    run(BIN, "commit", mnt.path)
    assert verify(mnt.path)[1].startswith("epoch 000001: 1 file")


def test_what_cannot_be_verified(volume7):
    for words, code in (((volume7.remote, "7"), NOT_FOUND), ((volume7.path, "7"), NOT_FOUND), ((), USAGE),
                        ((volume7.remote, "a/b"), USAGE), ((volume7.base / "missing",), NOT_FOUND)):
        done = run(BIN, "verify", *words, check=False)
        assert done.returncode == code and len(done.stderr.splitlines()) == 1 and not done.stdout, done


def test_a_remote_that_goes_away_is_no_damage(volume7):
    # The tree comes; the data of epoch 1 does not.
    pack = first_pack(volume7)
    key = str(pack.relative_to(volume7.remote))
    done = run(BIN, "verify", "fault+file://%s?get.error=1&only=%s" % (volume7.remote, key), "2", check=False, timeout=120)
    assert done.returncode == UNREACHABLE and not done.stdout, done
    assert len(done.stderr.splitlines()) == 1 and "does not answer" in done.stderr


# ---- databases


def make_leveldb(path):
    """Tables, of two sessions, and a log: what was put last."""
    plyvel = pytest.importorskip("plyvel")
    db = plyvel.DB(os.fspath(path), create_if_missing=True, write_buffer_size=100000)
    for i in range(1000):
        db.put(b"%d" % (i * 7 % 500), os.urandom(500))
    db.compact_range()
    db.close()
    db = plyvel.DB(os.fspath(path))
    db.put(b"last", b"x")
    db.close()


def make_lmdb(path, **how):
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(os.fspath(path), map_size=1 << 40, **how) as env:
        for turn in range(3):
            with env.begin(write=True) as transaction:
                for i in range(0, 300, turn + 1):
                    transaction.put(b"%d" % i, os.urandom(500))


@pytest.fixture
def databases(make_volume, request):
    mnt = make_volume(settle="1h")
    if request.param == "local":
        mnt.url = "none"
    mnt.mount()
    (mnt.path / "sub").mkdir()
    make_leveldb(mnt.path / "sub" / "level")
    make_lmdb(mnt.path / "lm")
    make_lmdb(mnt.path / "one.lmdb", subdir=False)
    mnt.seal()
    return mnt


def cut(path, length):
    os.truncate(path, os.path.getsize(path) - length)


def overwrite(path, offset, data):
    with open(path, "r+b") as f:
        f.seek(offset, os.SEEK_END if offset < 0 else os.SEEK_SET)
        f.write(data)


# Each damage of whole databases, and what is said of which file.
DAMAGE = {
    "a table is missing": (lambda top: os.unlink(tables(top)[0]), "sub/level/MANIFEST-*", "LevelDB: it names 0*.ldb, which is not there"),
    "all are": (lambda top: [os.unlink(t) for t in tables(top)], "sub/level/MANIFEST-*", "LevelDB: it names 0*.ldb and * more that are not there"),
    "a table is cut": (lambda top: cut(tables(top)[0], 10), "sub/level/0*.ldb", "LevelDB: it has * bytes, and its manifest says *"),
    "a table ends in zeros": (lambda top: overwrite(tables(top)[0], -8, bytes(8)), "sub/level/0*.ldb", "LevelDB: it does not end as a table does"),
    "the manifest is missing": (lambda top: os.unlink(manifest(top)), "sub/level/CURRENT", "LevelDB: it names MANIFEST-*, which is not there"),
    "the manifest is cut": (lambda top: cut(manifest(top), 1), "sub/level/MANIFEST-*", "LevelDB: its last record is cut off"),
    "the manifest is damaged": (lambda top: overwrite(manifest(top), 20, b"\xff\xff"), "sub/level/MANIFEST-*", "LevelDB: a record in it has another checksum"),
    "the log is missing": (lambda top: [os.unlink(p) for p in (top / "sub" / "level").glob("*.log")], "sub/level/MANIFEST-*",
                           "LevelDB: it names 0*.log, which is not there: what was written last is lost"),
    "CURRENT is empty": (lambda top: os.truncate(top / "sub" / "level" / "CURRENT", 0), "sub/level/CURRENT", "LevelDB: it does not name a manifest"),
    "data.mdb is cut": (lambda top: cut(top / "lm" / "data.mdb", 1), "lm/data.mdb", "torn: LMDB's last page, as its meta page says, lies behind*"),
    "data.mdb is cut early": (lambda top: os.truncate(top / "lm" / "data.mdb", 4100), "lm/data.mdb", "torn: LMDB's second meta page is missing or damaged"),
    "data.mdb begins with zeros": (lambda top: overwrite(top / "lm" / "data.mdb", 0, bytes(4096)), "lm/data.mdb", "torn: LMDB's first meta page is *"),
    "one.lmdb is cut": (lambda top: cut(top / "one.lmdb", 4096), "one.lmdb", "torn: LMDB's last page, as its meta page says, lies behind*"),
    "one.lmdb has a hole": (lambda top: overwrite(top / "one.lmdb", 8192, bytes(os.path.getsize(top / "one.lmdb") - 8192)), "one.lmdb",
                            "torn: a root page of LMDB is not where its meta page says"),
}


def tables(top):
    return sorted((top / "sub" / "level").glob("*.ldb"))


def manifest(top):
    return next((top / "sub" / "level").glob("MANIFEST-*"))


@pytest.mark.parametrize("databases", ["remote", "local"], indirect=True)
def test_databases(databases):
    mnt = databases
    targets = [mnt.path] if mnt.url == "none" else [mnt.path, mnt.remote]
    mnt.wait_durable()
    assert len(tables(mnt.path)) > 1
    for target in targets:
        assert verify(target)[0] == []
    for name, (damage, path, problem) in DAMAGE.items():
        damage(mnt.path)
        # A file of it is missing, or was not saved: without a word it would be no latest.
        run(BIN, "commit", "--whole", mnt.path)
        mnt.wait_durable()
        assert os.getxattr(mnt.epochs_dir / "latest", "user.epochfs.complete") == b"true"
        for target in targets:
            found = parsed("--deep", target, code=DAMAGED)
            assert found["damaged"] == len(found["problems"]) == 1 and "databases" not in found, (name, found)
            assert fnmatch.fnmatch(found["problems"][0]["path"], path) and fnmatch.fnmatch(found["problems"][0]["problem"], problem), (name, found)
            # What `latest` names never gives exit 6, and no seal has looked at databases.
            seen = parsed(target)
            assert (seen["damaged"], seen["databases"], seen["problems"]) == (0, 1, found["problems"]), (name, seen)
        mnt.rollback(1)
    assert verify("--deep", mnt.path)[0] == []


@pytest.mark.rules("2")
def test_an_epoch_that_was_sealed_while_leveldb_was_open(mnt):
    """LevelDB holds its manifest open: the epoch lacks it and is not whole, and verify says what is missing. The next one is whole."""
    plyvel = pytest.importorskip("plyvel")
    db = plyvel.DB(os.fspath(mnt.path / "buffer"), create_if_missing=True)
    db.put(b"k", b"v")
    assert mnt.seal() == 1
    db.close()
    assert mnt.seal() == 2
    problem = "LevelDB: it names MANIFEST-000002, which is not there"
    assert parsed("--deep", mnt.path, "1", code=DAMAGED)["problems"] == [{"path": "buffer/CURRENT", "problem": problem}]
    lines, summary = verify(mnt.path, "1")
    assert lines == ["buffer/CURRENT: " + problem]
    assert summary.endswith("no damage, 1 file of a database is not whole (--deep: damage)")
    assert verify("--deep", mnt.path, "2")[0] == []
    records = {e["epoch"]: e for e in mnt.request("log")["epochs"]}
    assert (records[1]["complete"], records[1]["rule"], records[2]["complete"]) == (False, "J3", True)
