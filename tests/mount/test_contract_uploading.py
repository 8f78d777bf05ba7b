# SPDX-License-Identifier: Apache-2.0
"""What epochfs-semantics(7) says of uploading: an epoch in the remote is whole at any moment, and a remote that is away is waited for."""

import os
import shutil

import pytest

from conftest import BIN, run, wait_until
import remote_weather
from remote_weather import NUMBER, fails_now, in_remote, upload
from test_contract_safety import picture

weather = remote_weather.weather


# ---- an epoch in the remote never names data that is not there


def test_the_order_is_packs_index_epoch(weather, mnt):
    weather.turn("put.down=1&only=packs/")
    (mnt.path / "f").write_bytes(os.urandom(1 << 20))
    mnt.seal()
    fails_now(mnt)
    assert in_remote(mnt, "packs") == in_remote(mnt, "index") == in_remote(mnt) == []
    weather.turn("put.down=1&only=index/")
    wait_until(lambda: in_remote(mnt, "packs"), "the pack")
    fails_now(mnt)
    assert in_remote(mnt, "index") == in_remote(mnt) == []
    weather.turn("put.down=1&only=epochs/")
    wait_until(lambda: in_remote(mnt, "index"), "the index")
    fails_now(mnt)
    assert in_remote(mnt) == []
    weather.clear()
    mnt.wait_durable()
    assert in_remote(mnt) == [NUMBER % 1]


def test_at_any_moment_each_epoch_in_the_remote_is_whole(weather, mnt):
    weather.turn("put.error=0.2&put.lost=0.2&get.error=0.1&seed=7")
    expected, copies = {}, []

    def copy():
        """Epochs first: what they name must have been there before."""
        to = mnt.base / ("copy%d" % len(copies))
        for part in ("epochs", "index", "packs"):
            if (mnt.remote / part).exists():
                shutil.copytree(mnt.remote / part, to / part, ignore=shutil.ignore_patterns("*.tmp*", ".*"))
        shutil.copy(mnt.remote / "epochfs.json", to / "epochfs.json")
        copies.append(to)

    for i in range(6):
        (mnt.path / ("checkpoint-%d" % i)).mkdir()
        for j in range(3):
            (mnt.path / ("checkpoint-%d" % i) / ("f%d" % j)).write_bytes(os.urandom(100000))
        number = mnt.seal()
        expected[number] = picture(mnt.epoch(number))
        if in_remote(mnt):
            copy()
    mnt.wait_durable()
    copy()
    for to in copies:
        for name in os.listdir(to / "epochs"):
            number = int(name.split(".")[0])
            restored = to / ("restored%d" % number)
            run(BIN, "export", "%s@%d" % (to, number), restored)
            assert picture(restored) == expected[number]
    assert len(os.listdir(copies[-1] / "epochs")) == 6


# ---- uploading


def test_an_outage_stops_nothing_and_is_made_good(weather, mnt):
    weather.turn("down=1")
    for i in range(5):
        (mnt.path / "model").write_bytes(b"%d" % i * 100000)
        assert mnt.seal() == i + 1
        assert (mnt.epoch(i + 1) / "model").read_bytes() == b"%d" % i * 100000
    mnt.rollback(2)
    os.rmdir(mnt.epoch(1))
    fails_now(mnt)
    assert upload(mnt)["pending_epochs"] == 5 and in_remote(mnt) == []
    weather.clear()
    mnt.wait_durable()
    assert upload(mnt)["pending_epochs"] == 0
    mnt.remount(empty_cache=True)
    assert mnt.epochs() == [2, 3, 4, 5, 6]
    assert [(mnt.epoch(n) / "model").read_bytes()[:1] for n in mnt.epochs()] == [b"1", b"2", b"3", b"4", b"1"]
    assert (mnt.path / "model").read_bytes() == b"1" * 100000


@pytest.mark.parametrize("what", ["down", "error", "denied", "enospc", "lost"])
def test_uploads_are_retried_for_ever_and_status_says_since_when_and_why(weather, mnt, what):
    weather.turn("put.%s=1" % what)
    (mnt.path / "f").write_text("1")
    mnt.seal()
    first = fails_now(mnt)
    assert first["pending_epochs"] == 1 and first["oldest_epoch"] == 1
    assert first["oldest_sealed_ns"] == os.stat(mnt.epoch(1)).st_mtime_ns
    assert first["failing_since_ns"] >= first["oldest_sealed_ns"]
    wait_until(lambda: upload(mnt).get("retries", 0) > first["retries"], "another try")
    later = upload(mnt)
    assert later["failing_since_ns"] == first["failing_since_ns"] and later["error"]
    text = run(BIN, "status", mnt.path).stdout
    assert later["error"] in text and "failing since" in text
    weather.clear()
    mnt.wait_durable()
    wait_until(lambda: "error" not in upload(mnt) and "failing_since_ns" not in upload(mnt), "status to say that all is well")


@pytest.mark.parametrize("end", ["crash", "in order", "umount --no-drain"])
def test_uploads_survive_restarts(weather, mnt, end):
    (mnt.path / "f").write_text("0")
    mnt.wait_durable()
    weather.turn("put.down=1&only=packs/")
    (mnt.path / "f").write_bytes(os.urandom(1 << 20))
    before = (mnt.path / "f").read_bytes()
    mnt.seal()
    os.symlink("2", mnt.epochs_dir / "best")
    fails_now(mnt)
    if end == "crash":
        mnt.kill()
    elif end == "in order":
        mnt.unmount()
    else:
        run(BIN, "umount", "--no-drain", mnt.path)
        mnt.wait_end()
    mnt.mount()
    assert upload(mnt)["pending_epochs"] == 1
    fails_now(mnt)
    assert in_remote(mnt) == [NUMBER % 1]
    weather.clear()
    mnt.wait_durable()
    wait_until(lambda: in_remote(mnt, "tags") == ["best"], "the tag in the remote")
    mnt.remount(empty_cache=True)
    assert (mnt.path / "f").read_bytes() == before and mnt.tags() == {"best": 2}


@pytest.mark.options(settle="1h")
def test_a_remote_directory_that_is_renamed_away_is_told_and_nothing_there_is_called_durable(mnt):
    (mnt.path / "f").write_text("one")
    mnt.seal()
    mnt.wait_durable()
    away = mnt.remote.parent / "away"
    mnt.remote.rename(away)
    (mnt.path / "f").write_text("two")
    mnt.seal()
    wait_until(lambda: "put it back" in (mnt.status()["upload"].get("error") or ""), "the word in the status")
    assert run(BIN, "wait", "--timeout", "100ms", mnt.path, check=False).returncode == 7
    away.rename(mnt.remote)
    mnt.wait_durable()
