# SPDX-License-Identifier: Apache-2.0
"""What epochfs-semantics(7) says of safety: what survives a crash, a power loss and the loss of the machine."""

import hashlib
import os
import select
import sqlite3
import zipfile

import pytest

from conftest import BIN, OTHER_OWNER, python, run
import remote_weather
from remote_weather import NUMBER, fails_now, in_remote
from test_contract_writing import Writer

weather = remote_weather.weather


def picture(root):
    """All that a tree is."""
    found = {}
    for folder, names, files in os.walk(root):
        for path in [os.path.join(folder, n) for n in names + files]:
            st = os.lstat(path)
            found[os.path.relpath(path, root)] = (
                st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns, st.st_nlink,
                os.readlink(path) if os.path.islink(path) else None,
                hashlib.sha256(open(path, "rb").read()).hexdigest() if os.path.isfile(path) else None)
    return found


def work(top):
    """A bit of everything, all closed."""
    (top / "d" / "e").mkdir(parents=True)
    (top / "d" / "large").write_bytes(os.urandom(3 << 20))
    (top / "d" / "small").write_text("small")
    (top / "d" / "empty").touch()
    (top / "gone").write_text("x")
    (top / "old name").write_text("moved")
    os.rename(top / "old name", top / "d" / "e" / "new name")
    os.unlink(top / "gone")
    os.link(top / "d" / "large", top / "hard")
    os.symlink("d/large", top / "soft")
    (top / "replaced").write_text("first")
    (top / "replaced").write_text("second, longer")
    with open(top / "edited", "w+b") as f:
        f.write(b"0" * 100000)
    with open(top / "edited", "r+b") as f:
        f.seek(50000)
        f.write(b"1")
    os.truncate(top / "edited", 70000)
    os.chmod(top / "replaced", 0o640)
    os.chown(top / "d" / "small", *OTHER_OWNER)
    os.utime(top / "d" / "small", ns=(1, 1234567890123456789))
    os.utime(top / "d", ns=(1, 1234567890987654321))


# ---- after close: a crash of epochfs or of the program


def test_what_is_closed_survives_a_crash_of_epochfs(mnt):
    work(mnt.path)
    before = picture(mnt.path)
    mnt.kill()
    mnt.mount()
    assert picture(mnt.path) == before
    mnt.seal()
    assert picture(mnt.epoch(1)) == before
    mnt.kill()
    mnt.mount()
    assert picture(mnt.path) == picture(mnt.epoch(1)) == before


def test_what_is_closed_survives_a_crash_of_the_program(mnt):
    path = mnt.path / "model"
    for i in range(3):
        writer = Writer(path, times=1000 + i)
        writer.tell("close")
        writer.end("kill")
        assert path.read_bytes() == b"NEW" * (1000 + i)
    assert mnt.torn() == []


# ---- after fsync: power loss


def test_fsync_never_waits_for_the_remote(weather, mnt):
    weather.turn("down=1")
    (mnt.path / "d").mkdir()
    with open(mnt.path / "d" / "f", "wb") as f:
        f.write(b"x" * 100000)
        f.flush()
        os.fsync(f.fileno())
        os.fdatasync(f.fileno())
    for folder in (mnt.path, mnt.path / "d"):
        fd = os.open(folder, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    run("sync", mnt.path / "d" / "f", mnt.path / "d")
    mnt.seal()
    fails_now(mnt)
    assert in_remote(mnt) == [] and os.getxattr(mnt.path / "d" / "f", "user.epochfs.state") != b"durable"
    weather.clear()


def lose_power(mnt, lost, trees=()):
    """The machine was restarted, and the disk never got the bytes of these files and epochs' trees."""
    mnt.kill()
    (folder,) = [p for p in mnt.cache.iterdir() if (p / "state.db").exists()]
    with sqlite3.connect(folder / "state.db") as state:
        for name in lost:
            ((version,),) = state.execute(
                "SELECT closed FROM files JOIN names USING (ino) WHERE name = ?", (name.encode(),))
            os.truncate(folder / "objects" / ("%016x" % version), 0)
        state.execute("UPDATE meta SET value = 'another' WHERE key = 'boot_id'")
    state.close()
    for number in trees:
        os.truncate(folder / "trees" / ("%020d" % number), 0)
    mnt.mount()


def test_after_a_power_loss_what_was_not_synced_is_checked(mnt):
    (mnt.path / "first").write_text("1")
    mnt.seal()
    synced = os.urandom(200000)
    with open(mnt.path / "synced", "wb") as f:
        f.write(synced)
        f.flush()
        os.fsync(f.fileno())
    (mnt.path / "lost").write_bytes(os.urandom(200000))
    (mnt.path / "written").write_bytes(synced)
    lose_power(mnt, ["lost"])
    assert (mnt.path / "synced").read_bytes() == synced == (mnt.path / "written").read_bytes()
    number = mnt.seal()
    record = mnt.request("log")["epochs"][-1]
    assert record["epoch"] == number and record["complete"] is False
    assert os.readlink(mnt.epochs_dir / "latest") == "000001"


def test_an_epoch_sealed_before_a_power_loss_is_not_complete_if_something_of_it_is_torn(weather, mnt):
    (mnt.path / "first").write_text("1")
    mnt.seal()
    mnt.wait_durable()
    weather.turn("put.down=1&only=packs/")
    (mnt.path / "d").mkdir()
    (mnt.path / "d" / "lost").write_bytes(os.urandom(200000))
    mnt.seal()
    os.rename(mnt.path / "d", mnt.path / "renamed since")
    (mnt.path / "whole").write_bytes(os.urandom(200000))
    mnt.seal()
    os.unlink(mnt.path / "renamed since" / "lost")
    (mnt.path / "more").write_bytes(os.urandom(200000))
    mnt.seal()
    assert os.readlink(mnt.epochs_dir / "latest") == "000004"
    mnt.kill()
    (folder,) = [p for p in mnt.cache.iterdir() if (p / "state.db").exists()]
    with sqlite3.connect(folder / "state.db") as state:
        state.execute("UPDATE meta SET value = 'another' WHERE key = 'boot_id'")
        ((version,),) = state.execute("SELECT id FROM versions WHERE size = 200000 AND died <> 0 ORDER BY id LIMIT 1")
    os.truncate(folder / "objects" / ("%016x" % version), 100000)
    state.close()
    mnt.mount()

    def check(epochs):
        assert [e["complete"] for e in epochs] == [True, False, False, True]
        assert "d/lost: " in epochs[1]["reason"] and "renamed since/lost: " in epochs[2]["reason"]

    check(mnt.request("log")["epochs"][:4])
    assert os.readlink(mnt.epochs_dir / "latest") == "000004"
    weather.clear()
    mnt.wait_durable()
    check(mnt.request("log")["epochs"][:4])
    mnt.remount(empty_cache=True)
    check(mnt.request("log")["epochs"][:4])
    files = mnt.request("show", epoch=2)["files"]
    assert [f["path"] for f in files if f.get("torn")] == ["d/lost"]
    assert (mnt.epoch(2) / "d" / "lost").stat().st_size == 200000


def test_a_power_loss_puts_files_in_doubt_and_not_epochs(weather, mnt):
    """What is torn of an older checkpoint costs a later one nothing, and each file is named."""
    weather.turn("put.down=1&only=packs/")
    for step in (500, 510):
        folder = mnt.path / ("checkpoint-%d" % step)
        folder.mkdir()
        (folder / "lost").write_bytes(os.urandom(100000 + step))
        (folder / "whole").write_bytes(os.urandom(200000))
        mnt.seal()
    mnt.kill()
    (folder,) = [p for p in mnt.cache.iterdir() if (p / "state.db").exists()]
    with sqlite3.connect(folder / "state.db") as state:
        state.execute("UPDATE meta SET value = 'another' WHERE key = 'boot_id'")
        ((version,),) = state.execute("SELECT id FROM versions WHERE size = 100500")
    os.truncate(folder / "objects" / ("%016x" % version), 50000)
    state.close()
    mnt.mount()

    def check():
        first, second = mnt.request("log")["epochs"][:2]
        assert [first["complete"], second["complete"]] == [False, True] and "reason" not in second
        assert [(d["path"], d["kind"], d.get("counts", False), d["since"]) for e in (first, second) for d in e["doubts"]] == [
            ("checkpoint-500/lost", "torn", True, 1), ("checkpoint-500/lost", "torn", False, 1)]
        assert os.readlink(mnt.epochs_dir / "latest") == "000002"

    check()
    weather.clear()
    mnt.wait_durable()
    check()
    mnt.remount(empty_cache=True)
    check()
    assert run(BIN, "verify", mnt.path, "latest", check=False).returncode == 0


def test_an_epoch_whose_listing_a_power_loss_took_is_dropped_and_the_next_one_has_it_all(weather, mnt):
    (mnt.path / "first").write_text("1")
    mnt.seal()
    mnt.wait_durable()
    weather.turn("put.down=1&only=packs/")
    (mnt.path / "second").write_bytes(os.urandom(200000))
    before = (mnt.path / "second").read_bytes()
    assert mnt.seal() == 2
    lose_power(mnt, [], trees=[2])
    assert (mnt.path / "second").read_bytes() == before
    weather.clear()
    number = mnt.seal()
    mnt.wait_durable()
    assert number > 2 and mnt.epochs() == [1, number]
    mnt.remount(empty_cache=True)
    assert mnt.epochs() == [1, number]
    assert (mnt.epoch(number) / "second").read_bytes() == before == (mnt.path / "second").read_bytes()


def test_after_a_power_loss_what_is_whole_is_believed(mnt):
    with zipfile.ZipFile(mnt.path / "model.pt", "w") as z:
        z.writestr("data", os.urandom(100000))
    before = (mnt.path / "model.pt").read_bytes()
    lose_power(mnt, [])
    assert (mnt.path / "model.pt").read_bytes() == before
    mnt.seal()
    assert mnt.request("log")["epochs"][-1]["complete"] is True


# ---- after wait, sync and with durability=remote: loss of the machine


@pytest.mark.parametrize("how", ["sync", "wait", "close"])
def test_what_is_durable_survives_the_loss_of_the_machine(volume, how):
    mnt = volume.mount(settle="1h", durability="remote" if how == "close" else "local")
    if how == "close":
        for i in range(3):
            (mnt.path / ("f%d" % i)).write_bytes(os.urandom(50000))
    else:
        work(mnt.path)
    before = picture(mnt.path)
    if how == "sync":
        run("sync", mnt.epochs_dir)
    elif how == "wait":
        run(BIN, "wait", mnt.path)
    mnt.kill()
    mnt.empty_cache()
    mnt.mount()
    assert picture(mnt.path) == before
    mnt.unmount()
    run(BIN, "export", mnt.remote, mnt.base / "restored")
    assert picture(mnt.base / "restored") == before


def said(process):
    """The line that a process has printed by now, or nothing."""
    return select.select([process.stdout], [], [], 0)[0] and process.stdout.readline()


CLOSER = """
import sys
f = open(sys.argv[1], "wb")
f.write(b"x" * 100000)
print("written", flush=True)
f.close()
print("closed", flush=True)
"""


@pytest.mark.options(durability="remote", settle="1h")
def test_with_remote_durability_each_close_waits(weather, mnt):
    weather.turn("put.down=1")
    closer = python(CLOSER, mnt.path / "f")
    assert closer.stdout.readline() == "written\n"
    fails_now(mnt)
    assert closer.poll() is None and not said(closer)
    weather.clear()
    assert closer.stdout.readline() == "closed\n"
    assert in_remote(mnt) == [NUMBER % 1]
    assert closer.wait(timeout=60) == 0
    closer.stdin.close()
    closer.stdout.close()


@pytest.mark.options(durability="remote", settle="1h")
def test_a_close_that_waits_can_be_interrupted(weather, mnt):
    weather.turn("put.down=1")
    closer = python(CLOSER, mnt.path / "f")
    assert closer.stdout.readline() == "written\n"
    fails_now(mnt)
    closer.terminate()
    assert closer.wait(timeout=60) < 0
    closer.stdin.close()
    closer.stdout.close()
    weather.clear()
    assert mnt.status()["pid"] == mnt.pid


def test_a_wait_has_a_time_limit_and_the_upload_goes_on(weather, mnt):
    weather.turn("put.down=1")
    (mnt.path / "f").write_text("1")
    done = run(BIN, "wait", mnt.path, "--timeout", "10ms", check=False)
    assert done.returncode == 7 and len(done.stderr.splitlines()) == 1
    weather.clear()
    run(BIN, "wait", mnt.path)
    assert in_remote(mnt) == [NUMBER % 1]
