# SPDX-License-Identifier: Apache-2.0
"""Retention: -o keep. What a policy makes of a list of epochs is a unit test's (test_meta_retention_policy.c)."""

import contextlib
import errno
import json
import os
import shutil
import signal
import sqlite3
import time

import pytest

import remote_weather
from conftest import MountError, run, wait_until
from test_contract_writing import Writer, log_of
from remote_weather import fails_now
from retention import epochfs, holds, records, save, wait_settled

weather = remote_weather.weather


def fails(number, call, *arguments):
    with pytest.raises(OSError) as e:
        call(*arguments)
    return e.value.errno == number


# ---- -o keep


@pytest.mark.options(keep="last:3,tagged")
def test_what_the_policy_lets_go_is_dropped_here_and_in_the_remote(mnt, make_volume):
    save(mnt, 1)
    save(mnt, 2, tag="best")
    mnt.wait_durable()
    save(mnt, *range(3, 9))
    wait_settled(mnt)
    assert mnt.epochs() == [2, 6, 7, 8]
    assert records(mnt) == ([2, 6, 7, 8], [1, 3, 4, 5])
    for n in mnt.epochs():
        assert holds(mnt.epoch(n), n)
    assert mnt.status()["retention"]["keep"] == "last:3,tagged"
    assert "keep: dropped epoch" in mnt.log.read_text()
    # Without its tag it goes with the next one.
    os.unlink(mnt.epochs_dir / "best")
    assert save(mnt, 9) == 9
    wait_settled(mnt)
    assert mnt.epochs() == [7, 8, 9]
    # Whoever else looks sees the same.
    reader = make_volume(ro=True)
    reader.url = mnt.url
    reader.mount()
    assert reader.epochs() == [7, 8, 9]
    assert holds(reader.path, 9)


def test_a_policy_that_comes_later_is_obeyed_at_the_mount(volume):
    volume.options["settle"] = "1h"
    volume.mount()
    save(volume, *range(1, 6), step=500)
    save(volume, 6, step=1000)
    save(volume, 7)
    volume.remount(keep="last:1,every:1000")
    wait_settled(volume)
    assert volume.epochs() == [6, 7]
    # A mount that does not write drops nothing, whatever it is told.
    volume.remount(keep="last:1", ro=True)
    assert volume.epochs() == [6, 7]
    assert "retention" not in volume.status()


def test_without_a_remote(volume):
    volume.url = "none"
    volume.options.update(settle="1h", keep="last:2")
    volume.mount()
    save(volume, 1, 2, 3, 4)
    wait_until(lambda: volume.epochs() == [3, 4], "the drop")
    assert holds(volume.epoch(3), 3)


@pytest.mark.options(keep="last:1")
def test_an_outage_keeps_what_is_durable(weather, mnt):
    """What is not durable pushes nothing out of the remote."""
    save(mnt, 1)
    wait_settled(mnt)
    weather.turn("down=1")
    save(mnt, 2, 3)
    fails_now(mnt)
    assert mnt.epochs() == [1, 2, 3]
    os.rmdir(mnt.epoch(2))
    assert mnt.epochs() == [1, 3]
    weather.clear()
    wait_settled(mnt)
    assert mnt.epochs() == [3]
    assert records(mnt) == ([3], [1, 2])


@pytest.mark.options(settle="300ms", keep="last:1", patience="1h")
def test_an_epoch_of_a_pause_does_not_push_out_the_one_before(mnt):
    """It may be continued, and is not complete then: without the one before, no complete epoch would be left."""
    def quiet(number):
        (mnt.path / "f").write_bytes(b"%d\n" % number * 5000)
        wait_until(lambda: number in mnt.epochs(), "epoch %d by quiet" % number)
        wait_settled(mnt)
    save(mnt, 1)
    quiet(2)
    assert mnt.epochs() == [1, 2]
    # So may be a further one.
    quiet(3)
    assert mnt.epochs() == [1, 2, 3]
    # A word that the save is over needs no patience, and once that is over, nobody kicks.
    save(mnt, 4)
    wait_settled(mnt)
    assert mnt.epochs() == [4]
    mnt.remount(patience="3s")
    quiet(5)
    wait_until(lambda: mnt.epochs() == [5], "the patience to end")


@pytest.mark.options(settle="300ms", keep="last:1", patience="1s")
def test_half_a_step_does_not_push_out_the_one_before_however_long_it_pauses(mnt):
    """What goes on in its directory continues it at any time. Then that is killed."""
    def put(*names):
        for name in names:
            os.makedirs(mnt.path / os.path.dirname(name), exist_ok=True)
            (mnt.path / name).write_bytes(name.encode() * 5000)
    put("checkpoint-1/model", "checkpoint-1/optimizer")
    assert mnt.seal() == 1
    shutil.rmtree(mnt.path / "checkpoint-1")
    put("checkpoint-2/model")
    wait_until(lambda: 2 in mnt.epochs(), "half of the second by quiet")
    wait_settled(mnt)
    time.sleep(2)
    assert mnt.epochs() == [1, 2]
    Writer(mnt.path / "checkpoint-2" / "optimizer").end("kill")
    wait_until(lambda: 3 in mnt.epochs(), "what the killed one left")
    wait_settled(mnt)
    assert int(os.readlink(mnt.epochs_dir / "latest")) == 1
    put("checkpoint-2/optimizer")
    wait_until(lambda: int(os.readlink(mnt.epochs_dir / "latest")) == 4, "the whole of it")
    put("checkpoint-3/model", "checkpoint-3/optimizer")
    assert mnt.seal() == 5
    wait_settled(mnt)
    assert mnt.epochs() == [5]


@pytest.mark.options(settle="300ms", keep="last:1", patience="1s")
def test_half_a_step_does_not_push_out_the_one_before_when_something_comes_beside_it(mnt):
    (mnt.path / "checkpoint-1").mkdir()
    (mnt.path / "checkpoint-1" / "model").write_bytes(b"1" * 5000)
    assert mnt.seal() == 1
    (mnt.path / "checkpoint-2").mkdir()
    (mnt.path / "checkpoint-2" / "model").write_bytes(b"2" * 5000)
    wait_until(lambda: 2 in mnt.epochs(), "half of the second by quiet")
    (mnt.path / "notes").write_bytes(b"n" * 50)
    wait_until(lambda: 3 in mnt.epochs(), "the notes by quiet")
    wait_settled(mnt)
    time.sleep(2)
    assert mnt.epochs() == [1, 2, 3]
    (mnt.path / "notes").write_bytes(b"m" * 50)
    wait_until(lambda: 4 in mnt.epochs(), "more notes by quiet")
    wait_settled(mnt)
    time.sleep(2)
    assert mnt.epochs() == [1, 2, 4]
    (mnt.path / "checkpoint-3").mkdir()
    (mnt.path / "checkpoint-3" / "model").write_bytes(b"3" * 5000)
    assert mnt.seal() == 5
    wait_settled(mnt)
    assert mnt.epochs() == [5]


@pytest.mark.options(keep="last:1")
def test_what_a_rollback_left_stays_to_undo_it(mnt):
    save(mnt, 1, tag="one")
    save(mnt, 2)
    mnt.rollback(1)
    wait_settled(mnt)
    assert mnt.epochs() == [1, 2, 3] and holds(mnt.path, 1)
    mnt.rollback(2)
    wait_settled(mnt)
    assert mnt.epochs() == [1, 3, 4] and holds(mnt.path, 2)
    save(mnt, 5)
    wait_settled(mnt)
    assert mnt.epochs() == [1, 5]


@pytest.mark.options(keep="last:1")
def test_a_file_that_is_open_stays_readable(mnt):
    """Also where its bytes are only in the remote."""
    save(mnt, 1)
    wait_settled(mnt)
    mnt.remount(empty_cache=True, keep=None)
    save(mnt, 2)
    mnt.wait_durable()
    mnt.remount(empty_cache=True, keep=None)
    with open(mnt.epoch(1) / "f", "rb") as old:
        directory = os.open(mnt.epoch(1), os.O_RDONLY)
        os.rmdir(mnt.epoch(1))
        wait_settled(mnt)
        assert records(mnt) == ([2], [1])
        assert fails(errno.ENOENT, os.stat, mnt.epoch(1))
        assert old.read() == b"1\n" * 5000
        os.close(directory)


def test_drops_are_announced(volume, tmp_path):
    database = tmp_path / "c.db"
    volume.mount(settle="1h", keep="last:1", catalog=database)
    save(volume, 1, 2, 3)
    wait_settled(volume)

    def dropped():
        with contextlib.closing(sqlite3.connect(database, timeout=60)) as db:
            return [r[0] for r in db.execute("SELECT epoch FROM checkpoints WHERE dropped ORDER BY epoch")]
    wait_until(lambda: dropped() == [1, 2], "the drops in the table")


def test_the_policy_from_the_environment(volume, monkeypatch):
    monkeypatch.setenv("EPOCHFS_KEEP", "last:1,tagged")
    volume.mount(settle="1h")
    save(volume, 1, 2)
    wait_settled(volume)
    assert volume.epochs() == [2]


@pytest.mark.parametrize("point", ["drop.rows:2", "retain.dropped:1", "retain.dropped:3"])
def test_the_daemon_is_killed_while_it_drops(volume, point, monkeypatch, tmp_path):
    volume.options["settle"] = "1h"
    volume.mount()
    save(volume, *range(1, 7))
    volume.wait_durable()
    volume.unmount()
    with monkeypatch.context() as m:
        m.setenv("EPOCHFS_FAULT", point)
        with contextlib.suppress(MountError, OSError):
            volume.mount(keep="last:2")
        if volume.process:
            assert volume.process.wait(timeout=60) == -signal.SIGKILL
            volume.process = None
    run("umount", "-l", volume.path, check=False)
    volume.mount(keep="last:2")
    wait_settled(volume)
    assert volume.epochs() == [5, 6]
    assert records(volume) == ([5, 6], [1, 2, 3, 4])
    assert holds(volume.path, 6) and holds(volume.epoch(5), 5)
    volume.unmount()
    epochfs("fsck", "--read-data", volume.url)


# ---- what fills a place may be taken back yet (contract 2.2), and small epochs


def rounds(mnt, numbers, each=5, best=()):
    """A picture each round, a checkpoint each fifth one, and the best one now and then; each round is an epoch by quiet."""
    for number in numbers:
        before = max(mnt.epochs(), default=0)
        if number % each == 0:
            (mnt.path / "latest.pth").write_bytes(os.urandom(400_000))
        if number in best:
            (mnt.path / "best.pth").write_bytes(os.urandom(400_000))
        (mnt.path / "sample.png").write_bytes(os.urandom(4000))
        wait_until(lambda n=before: max(mnt.epochs(), default=0) > n, "the round's epoch")
        mnt.wait_durable()


def complete_in_the_remote(mnt):
    return [e["epoch"] for e in json.loads(epochfs("log", "--json", mnt.url).stdout) if e["complete"] is True]


@pytest.mark.options(settle="250ms", keep="last:3", patience="1h")
def test_epochs_that_are_taken_back_have_pushed_nothing_out(mnt, make_volume):
    """latest.pth was saved again beside best.pth before: a kill in it makes all since best.pth halves of its save."""
    rounds(mnt, range(15), best=(3, 12))
    wait_settled(mnt)
    held = {n: (mnt.epoch(n) / "latest.pth").read_bytes() for n in mnt.epochs()}
    plan = json.loads(epochfs("prune", "--dry-run", "--json", "--keep", "last:3", mnt.path).stdout)
    assert not plan["dropped"] and {e["epoch"]: e["reasons"] for e in plan["kept"]}[14] == ["last", "recent"]
    Writer(mnt.path / "latest.pth").end("kill")
    wait_until(lambda: 16 in mnt.epochs(), "the epoch of the kill")
    wait_settled(mnt)
    good = [e["epoch"] for e in log_of(mnt) if e["complete"] is True]
    assert max(good) == 12 and len(good) >= 3 and all((mnt.epoch(n) / "latest.pth").read_bytes() == held[n] for n in good)
    assert sorted(good) == sorted(complete_in_the_remote(mnt))
    # Whoever goes on elsewhere has them, too.
    mnt.unmount()
    other = make_volume(keep="last:3", settle="1h")
    other.url = mnt.url
    other.mount()
    wait_settled(other)
    assert set(good[:3]) <= set(other.epochs())


@pytest.mark.options(settle="250ms", keep="last:2", patience="500ms")
def test_small_epochs_push_no_checkpoint_out(mnt):
    rounds(mnt, range(18))
    wait_until(lambda: mnt.epochs() == [11, 16, 17, 18], "the patience to end")
    wait_settled(mnt)
    assert records(mnt)[0] == [11, 16, 17, 18]


@pytest.mark.options(settle="250ms", keep="last:3", patience="1s")
def test_an_ordinary_run_keeps_what_it_was_told(mnt):
    rounds(mnt, range(20), each=1)
    wait_until(lambda: mnt.epochs() == [18, 19, 20], "the patience to end")
    wait_settled(mnt)
    assert records(mnt)[0] == [18, 19, 20]
