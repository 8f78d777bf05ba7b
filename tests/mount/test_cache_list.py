# SPDX-License-Identifier: Apache-2.0
"""epochfs cache list and drop: the caches of a machine, mounted or not."""

import json
import os

import pytest

from conftest import BIN, run

DONE, USAGE, NOT_FOUND, CONFLICT = 0, 2, 5, 8


@pytest.fixture
def passthrough():
    """It makes no difference here."""
    return "auto"


def cache(word, place, *words, code=DONE):
    done = run(BIN, "cache", word, "--cache-dir", place, *words, check=False)
    assert done.returncode == code, done
    assert done.stderr.count("\n") == (1 if code else 0), done
    return done


def listed(place):
    return json.loads(cache("list", place, "--json").stdout)


def drop(vol, *words, code=DONE):
    return cache("drop", vol.cache, *words, code=code)


def test_a_cache_is_listed_and_dropped(mnt):
    (mnt.path / "model.pt").write_bytes(os.urandom(1 << 20))
    mnt.wait_durable()
    uuid = mnt.status()["uuid"]
    found = listed(mnt.cache)[0]
    assert (found["uuid"], found["remote"]) == (uuid, mnt.url)
    assert found["in_use"] and found["mounted_at"] == str(mnt.path) and found["bytes"] > 1 << 20
    assert "is in use" in drop(mnt, uuid, code=CONFLICT).stderr
    assert "is in use" in drop(mnt, "--force", uuid, code=CONFLICT).stderr
    assert (mnt.path / "model.pt").stat().st_size == 1 << 20

    mnt.unmount()
    row = cache("list", mnt.cache).stdout.splitlines()[1]
    assert uuid in row and mnt.url in row and row.endswith(" not mounted")
    # By the remote, as it is listed; and all of it comes back.
    assert uuid in drop(mnt, mnt.url).stdout
    assert not listed(mnt.cache) and not os.listdir(mnt.cache)
    mnt.mount()
    assert (mnt.path / "model.pt").stat().st_size == 1 << 20


def test_looking_leaves_the_state_as_it_was(mnt):
    (mnt.path / "model.pt").write_bytes(b"weights")
    mnt.wait_durable()
    mnt.unmount()
    state = next(mnt.cache.glob("*/state.db"))
    before = state.read_bytes(), sorted(p.name for p in state.parent.iterdir())
    assert "only_here" not in listed(mnt.cache)[0]
    assert (state.read_bytes(), sorted(p.name for p in state.parent.iterdir())) == before


def test_what_is_only_there_is_kept_unless_forced(volume):
    volume.url = "none"
    volume.mount()
    (volume.path / "model.pt").write_bytes(b"weights")
    volume.seal()
    volume.unmount()
    assert "1 epoch that no remote has" in listed(volume.cache)[0]["only_here"]
    assert "1 epoch that no remote has" in drop(volume, "none", code=CONFLICT).stderr
    volume.mount()
    assert (volume.path / "model.pt").read_bytes() == b"weights"
    volume.unmount()
    drop(volume, "--force", "none")
    assert not listed(volume.cache)


def test_a_killed_mount_is_not_dropped(mnt):
    (mnt.path / "model.pt").write_bytes(b"weights")
    mnt.wait_durable()
    (mnt.path / "model.pt").unlink()
    mnt.kill()
    uuid = listed(mnt.cache)[0]["uuid"]
    assert "which was killed" in drop(mnt, uuid, code=CONFLICT).stderr
    mnt.mount()
    assert not (mnt.path / "model.pt").exists()


def test_an_import_has_one_too(tmp_path):
    source, remote, place = tmp_path / "ckpt", tmp_path / "remote", tmp_path / "cache"
    source.mkdir()
    remote.mkdir()
    (source / "model.pt").write_bytes(b"weights")
    run(BIN, "import", "-o", "cache-dir=%s" % place, source, remote)
    found = listed(place)[0]
    assert found["remote"] == str(remote) and not found["in_use"] and "only_here" not in found
    cache("drop", place, found["uuid"])
    run(BIN, "import", "-o", "cache-dir=%s" % place, source, remote)


def test_mistakes(tmp_path):
    for word in ("list", "drop"):
        place = tmp_path / "nowhere"
        assert str(place) in cache(word, place, *["x"] * (word == "drop"), code=NOT_FOUND).stderr
        assert not place.exists()
    assert "no cache of /backup/run7" in cache("drop", tmp_path, "/backup/run7", code=NOT_FOUND).stderr
    cache("drop", tmp_path, code=USAGE)
    cache("list", tmp_path, "more", code=USAGE)
    assert run(BIN, "cache", "warm", "--force", tmp_path, check=False).returncode == USAGE
    assert not list(tmp_path.iterdir())
