# SPDX-License-Identifier: Apache-2.0
"""epochfs verify: an epoch read whole, on a mount, from its remote, and on a mount without one."""

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
        assert verify(target, "1")[1].startswith("epoch 000001: 1 files, 3.0 MiB")


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
        assert sorted(line.split(": torn: ")[0] for line in lines) == sorted(n.replace("\n", "?") for n in torn), lines
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
    assert verify(mnt.path)[1].startswith("epoch 000001: 1 files")


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
