# SPDX-License-Identifier: Apache-2.0
"""What epochfs-semantics(7) says of safety: what survives what, a remote that is away, a cache that is full."""

import errno
import hashlib
import os
import select
import shutil
import sqlite3
import zipfile
from pathlib import Path

import pytest

from conftest import BIN, OTHER_OWNER, python, run, wait_until
from test_contract_writing import Writer

NUMBER = "%020d.json"


class Weather:
    """What befalls the requests to the remote, by the parameters of lib/remote/fault.c."""

    def __init__(self, volume):
        self.file = volume.base / "weather"
        volume.url = "fault+file://%s?control=%s" % (volume.remote, self.file)

    def turn(self, parameters):
        new = self.file.with_suffix(".new")
        new.write_text(parameters)
        new.rename(self.file)

    def clear(self):
        self.file.unlink()


@pytest.fixture
def weather(volume):
    """Before mnt among the arguments: the remote of that mount has a weather."""
    return Weather(volume)


def upload(mnt):
    return mnt.status()["upload"]


def fails_now(mnt):
    """Waits until the upload has failed and will be tried again: what status says."""
    return wait_until(lambda: "error" in upload(mnt) and upload(mnt).get("retries", 0) > 1 and upload(mnt), "a failure")


def in_remote(mnt, folder="epochs"):
    return sorted(p.name for p in (mnt.remote / folder).rglob("*") if p.is_file())


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
    """The machine was started anew, and the disk never got the bytes of these files and epochs' trees."""
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


# ---- the cache is full

PART = 4 << 20

FILLER = """
import errno, os, sys
for i in range(int(sys.argv[2])):
    try:
        with open(os.path.join(sys.argv[1], "part%d" % i), "wb", buffering=0) as f:
            for j in range(4):
                assert f.write(bytes([i]) * (1 << 20)) == 1 << 20
    except OSError as error:
        print(errno.errorcode[error.errno], flush=True)
        sys.exit(0)
    print(i, flush=True)
print("all", flush=True)
"""


@pytest.fixture
def small_disk(volume):
    """The cache lies on a file system of 48 MiB."""
    run("mount", "-t", "tmpfs", "-o", "size=48m", "cache", volume.cache)
    yield volume.cache
    volume.clean_up()
    run("umount", "-l", volume.cache)


def check_parts(mnt, count):
    for i in range(count):
        assert (mnt.path / ("part%d" % i)).read_bytes() == bytes([i]) * PART


def lines_of(process):
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    return out.split()


@pytest.mark.options(full="error", settle="1h")
@pytest.mark.parametrize("limit", ["cache-size", "the disk but for min-free"])
def test_full_is_an_error_of_the_writer_and_nothing_else_is_lost(weather, volume, limit, request):
    if limit == "cache-size":
        volume.options["cache_size"] = "24M"
    else:
        request.getfixturevalue("small_disk")
        volume.options["min_free"] = 50
    mnt = request.getfixturevalue("mnt")
    weather.turn("put.down=1")
    lines = lines_of(python(FILLER, mnt.path, "20"))
    done = len(lines) - 1
    assert lines == [str(i) for i in range(done)] + ["ENOSPC"]
    assert 3 <= done <= 7
    check_parts(mnt, done)
    with pytest.raises(OSError) as error:
        for i in range(20):
            (mnt.path / ("more%d" % i)).write_bytes(bytes(PART))
    assert error.value.errno == errno.ENOSPC
    # What is durable gives way.
    weather.clear()
    mnt.wait_durable()
    for path in mnt.path.glob("more*"):
        os.unlink(path)
    (mnt.path / "again").write_bytes(b"x" * PART)
    assert (mnt.path / "again").read_bytes() == b"x" * PART
    check_parts(mnt, done)


@pytest.mark.options(cache_size="24M", settle="100ms", patience="1h")
def test_a_writer_waits_for_space_until_there_is_some(weather, mnt):
    """full=wait is the default."""
    weather.turn("put.down=1")
    filler = python(FILLER, mnt.path, "12")
    wait_until(lambda: mnt.status()["cache"]["dirty_bytes"] >= 20 << 20, "a full cache")
    fails_now(mnt)
    assert filler.poll() is None
    weather.clear()
    assert lines_of(filler) == [str(i) for i in range(12)] + ["all"]
    check_parts(mnt, 12)


@pytest.mark.options(cache_size="24M", settle="100ms", patience="1s")
def test_a_writer_waits_no_longer_than_patience(weather, mnt):
    weather.turn("put.down=1")
    assert lines_of(python(FILLER, mnt.path, "12"))[-1] == "ENOSPC"
    weather.clear()


@pytest.mark.options(cache_size="24M", settle="1h", patience="1h")
def test_a_writer_that_waits_for_space_can_be_interrupted(weather, mnt):
    weather.turn("put.down=1")
    filler = python(FILLER, mnt.path, "12")
    wait_until(lambda: mnt.status()["cache"]["dirty_bytes"] >= 20 << 20, "a full cache")
    filler.terminate()
    assert filler.wait(timeout=60) < 0
    filler.stdin.close()
    filler.stdout.close()
    weather.clear()
    mnt.wait_durable()
    (mnt.path / "again").write_bytes(bytes(PART))


WRITER = """
import os, sys
with open(sys.argv[1], "wb", buffering=0) as f:
    os.posix_fallocate(f.fileno(), 0, 40 << 20) if sys.argv[2] == "fallocate" else None
    while f.write(bytes(1 << 20)):
        pass
"""


@pytest.mark.options(settle="1h", patience="1h")
@pytest.mark.parametrize("call", ["write", "fallocate"])
def test_a_wait_in_the_middle_of_a_file_can_be_interrupted(weather, small_disk, mnt, passthrough, call):
    if (call, passthrough) == ("write", "on"):
        pytest.skip("the kernel writes by itself, and waits for nothing")
    weather.turn("put.down=1")
    (mnt.path / "dirty").write_bytes(bytes(4 * PART))
    writer = python(WRITER, mnt.path / "f", call)
    where = Path("/proc/%d/wchan" % writer.pid)

    def waits():
        full = call == "fallocate" or os.statvfs(small_disk).f_bavail == 0
        return full and where.read_text().startswith(("fuse_", "request_wait_answer", "__fuse_"))

    wait_until(waits, "a writer that waits for space")
    assert writer.poll() is None
    writer.terminate()
    assert writer.wait(timeout=60) < 0
    writer.stdin.close()
    writer.stdout.close()
    weather.clear()


def test_dirty_data_is_never_evicted(weather, volume):
    mnt = volume.mount(settle="1h", cache_size="16M", full="error")
    data = {"durable": os.urandom(PART)}
    (mnt.path / "durable").write_bytes(data["durable"])
    mnt.wait_durable()
    weather.turn("put.down=1")
    for i in range(3):
        name = "f%d" % i
        data[name] = os.urandom(PART)
        (mnt.path / name).write_bytes(data[name])
        mnt.seal()
    # By now all but what is durable is dirty, and there is no room for more.
    assert lines_of(python(FILLER, mnt.path, "3"))[-1] == "ENOSPC"
    assert mnt.status()["cache"]["dirty_bytes"] >= 3 * PART
    assert all((mnt.path / name).read_bytes() == content for name, content in data.items() if name != "durable")
    weather.clear()
    mnt.wait_durable()
    assert all((mnt.path / name).read_bytes() == content for name, content in data.items())


@pytest.fixture
def small_ext4(volume):
    """The same on a real disk's file system, where space comes free only with its journal's commit."""
    image = volume.base / "image"
    with open(image, "wb") as f:
        f.truncate(48 << 20)
    if shutil.which("mkfs.ext4") is None or run("mkfs.ext4", "-q", "-m", "0", image, check=False).returncode:
        pytest.skip("mkfs.ext4 is not there")
    if run("mount", "-o", "loop", image, volume.cache, check=False).returncode:
        pytest.skip("no loop devices here")
    yield volume.cache
    volume.clean_up()
    run("umount", "-l", volume.cache)


def fill_the_disk(folder):
    """Another user of the disk takes the last byte."""
    with open(folder / "ballast", "ab", buffering=0) as ballast:
        with pytest.raises(OSError) as error:
            while True:
                assert ballast.write(bytes(4096))
    assert error.value.errno == errno.ENOSPC
    assert os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize < 1 << 20


@pytest.mark.options(full="error", min_free=0, settle="1h")
@pytest.mark.parametrize("disk", ["small_disk", "small_ext4"])
def test_with_not_a_byte_left_removal_sealing_and_uploading_go_on(weather, request, disk, volume):
    """The disk is the limit, and full of what is not durable and of what is not ours."""
    disk, mnt = request.getfixturevalue(disk), request.getfixturevalue("mnt")
    (mnt.path / "durable").write_bytes(os.urandom(PART))
    (mnt.path / "model").write_bytes(b"1" * PART)
    first = mnt.seal()
    mnt.wait_durable()
    weather.turn("put.down=1")
    log = open(mnt.path / "train.log", "ab", buffering=0)
    log.write(b"one line\n")
    lines = lines_of(python(FILLER, mnt.path, "20"))
    assert lines[-1] == "ENOSPC"
    done = len(lines) - 1
    parts = ["part%d" % i for i in range(1, done)]
    fill_the_disk(disk)
    for name in (mnt.path / "more", mnt.path / "model"):
        with pytest.raises(OSError) as error:
            name.write_bytes(b"2")
        assert error.value.errno == errno.ENOSPC
    check_parts(mnt, done)
    os.unlink(mnt.path / "part0")
    fill_the_disk(disk)
    for _ in range(1000):
        os.rename(mnt.path / parts[-1], mnt.path / "moved")
        os.rename(mnt.path / "moved", mnt.path / parts[-1])
    os.chmod(mnt.path / "model", 0o600)
    number = mnt.seal("full")
    fill_the_disk(disk)
    mnt.rollback(first)
    fill_the_disk(disk)
    assert sorted(p.name for p in mnt.path.iterdir()) == ["durable", "model"]
    mnt.rollback(number)
    fill_the_disk(disk)
    weather.clear()
    mnt.wait_durable()
    # What is durable gives way, to whoever wants the space.
    (mnt.path / "again").write_bytes(b"x" * PART)
    assert (mnt.path / "again").read_bytes() == b"x" * PART
    log.close()
    fill_the_disk(disk)
    mnt.kill()
    mnt.mount()
    fill_the_disk(disk)
    assert [(mnt.path / name).stat().st_size for name in parts] == [PART] * len(parts)
    for name in parts:
        os.unlink(mnt.path / name)
    assert (mnt.path / "again").read_bytes() == b"x" * PART
    mnt.unmount()
    run(BIN, "export", "%s@full" % mnt.remote, mnt.base / "restored")
    assert sorted(os.listdir(mnt.base / "restored")) == sorted(["durable", "model", "train.log"] + parts)
    assert [(mnt.base / "restored" / ("part%d" % i)).read_bytes() == bytes([i]) * PART
            for i in range(1, done)] == [True] * len(parts)


@pytest.mark.options(full="error", min_free=0, settle="1h")
def test_on_a_full_disk_making_names_fails_before_removing_them_does(weather, small_disk, mnt):
    """However many names somebody tries to make: the reserve is not theirs."""
    weather.turn("put.down=1")
    assert lines_of(python(FILLER, mnt.path, "20"))[-1] == "ENOSPC"
    fill_the_disk(small_disk)

    def fails(make):
        for i in range(100000):
            try:
                make(i)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                return True
        return False

    assert fails(lambda i: os.mkdir(mnt.path / ("d%d" % i)))
    assert fails(lambda i: os.symlink("x" * 4000, mnt.path / ("s%d" % i)))
    assert fails(lambda i: os.link(mnt.path / "part0", mnt.path / ("l%d" % i)))
    assert fails(lambda i: os.mkfifo(mnt.path / ("p%d" % i)))
    assert fails(lambda i: os.setxattr(mnt.path / "part0", "user.%d" % i, bytes(4000)))
    with pytest.raises(FileExistsError):
        os.mkdir(mnt.path / "part0")
    for path in mnt.path.iterdir():
        os.rmdir(path) if not path.is_symlink() and path.is_dir() else os.unlink(path)
    os.unlink(small_disk / "ballast")
    weather.clear()
    (mnt.path / "again").write_bytes(b"x" * PART)
    mnt.wait_durable()
    assert (mnt.path / "again").read_bytes() == b"x" * PART
