# SPDX-License-Identifier: Apache-2.0
"""mount -o supervise: the process that serves dies or is restarted, and who uses the mount goes on: open files, directories, locks
and mappings included. What cannot be done again is EIO; nothing hangs."""

import errno
import fcntl
import mmap
import os
import signal
import sqlite3
import stat
import threading

import pytest

from conftest import LIMIT, OTHER_OWNER, Mapping, python, run, wait_until
from supervised import kill, restart, worker

pytestmark = pytest.mark.options(supervise=True)


@pytest.fixture(params=[kill, restart])
def end_worker(request):
    return request.param


def in_background(function):
    """Calls function(stop) in a thread: a call that ends it and gives what went wrong."""
    stop, errors = threading.Event(), []

    def work():
        try:
            function(stop)
        except Exception as error:  # pylint: disable=broad-except
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def end():
        stop.set()
        thread.join(LIMIT)
        assert not thread.is_alive(), "it hangs"
        return errors

    return end


def test_an_idle_mount_answers_again(mnt, end_worker):
    (mnt.path / "d").mkdir()
    (mnt.path / "d" / "f").write_text("text")
    number = mnt.seal()
    before = mnt.status()
    assert before["supervised"] and before["restarts"] == 0 and before["supervisor"] == mnt.pid
    here = python("import os, sys; os.chdir(sys.argv[1]); print('in', flush=True); sys.stdin.readline(); print(os.listdir('.'), open('f').read())",
                  mnt.path / "d")
    assert here.stdout.readline() == "in\n"
    directory = os.open(mnt.path / "d", os.O_RDONLY)
    end_worker(mnt)
    assert os.listdir(mnt.path) == ["d"] and os.listdir(directory) == ["f"]
    os.close(directory)
    assert here.communicate("go\n", timeout=LIMIT)[0] == "['f'] text\n"
    assert (mnt.path / "d" / "f").read_text() == "text"
    assert (mnt.epoch(number) / "d" / "f").read_text() == "text"
    after = mnt.status()
    assert after["supervised"] and after["restarts"] == 1 and after["supervisor"] == mnt.pid
    (mnt.path / "g").write_text("new")
    assert mnt.seal() == number + 1
    mnt.unmount()


def test_open_files_are_read_on(mnt, end_worker):
    data = os.urandom(3 << 20)
    (mnt.path / "live").write_bytes(data)
    (mnt.path / "replaced").write_bytes(data[1:])
    (mnt.path / "removed").write_bytes(data[2:])
    number = mnt.seal()
    with open(mnt.path / "live", "rb") as live, open(mnt.path / "replaced", "rb") as replaced, \
            open(mnt.path / "removed", "rb") as removed, open(mnt.epoch(number) / "live", "rb") as epoch:
        os.rename(mnt.path / "removed", mnt.path / "gone")
        os.unlink(mnt.path / "gone")
        (mnt.path / "replaced").write_bytes(b"other")
        mapped = mmap.mmap(live.fileno(), 0, prot=mmap.PROT_READ)
        end_worker(mnt)
        assert live.read() == data and replaced.read() == data[1:] and epoch.read() == data
        assert removed.read() == data[2:]
        assert mapped[:] == data
        mapped.close()
        # Changed in place, while the old content is read through an epoch.
        with open(mnt.path / "live", "r+b") as f:
            f.write(b"changed")
        epoch.seek(0)
        assert epoch.read(7) == data[:7]
        assert (mnt.path / "replaced").read_bytes() == b"other"
    assert (mnt.epoch(number) / "live").read_bytes() == data
    assert (mnt.path / "live").read_bytes()[:7] == b"changed"


def test_open_files_are_written_on(mnt, end_worker):
    (mnt.path / "edited").write_bytes(b"0123456789")
    (mnt.path / "replaced").write_bytes(b"old")
    mnt.seal()
    with open(mnt.path / "new", "wb", 0) as new, open(mnt.path / "edited", "r+b", 0) as edited, \
            open(mnt.path / "replaced", "wb", 0) as replaced, open(mnt.path / "log", "ab", 0) as log, \
            open(mnt.path / "untouched", "w+b", 0), open(mnt.path / "edited", "r+b", 0) as late:
        for f in (new, edited, replaced, log):
            f.write(b"one")
        end_worker(mnt)
        for f in (new, edited, replaced, log):
            f.write(b"two")
        late.seek(8)
        late.write(b"X")
        # A replacement is the writer's own until he closes it.
        assert run("cat", mnt.path / "replaced").stdout == "old"
        assert (mnt.path / "replaced").read_bytes() == b"onetwo"
        replaced.flush()
        os.fsync(replaced.fileno())
        os.ftruncate(new.fileno(), 5)
        assert os.fstat(new.fileno()).st_size == 5
        assert mnt.status()["pending"]["open"]
    assert not mnt.status()["pending"]["open"]
    number = mnt.seal()
    for where in (mnt.path, mnt.epoch(number)):
        assert (where / "new").read_bytes() == b"onetw"
        assert (where / "edited").read_bytes() == b"onetwo67X9"
        assert (where / "replaced").read_bytes() == b"onetwo"
        assert (where / "log").read_bytes() == b"onetwo"
        assert (where / "untouched").read_bytes() == b""
    assert mnt.request("log")["epochs"][-1]["complete"]
    assert not mnt.torn()


def test_a_writer_that_is_killed_afterwards_commits_nothing(mnt, end_worker):
    (mnt.path / "f").write_bytes(b"whole")
    writers = []
    for name in ("f", "new"):
        p = python("import sys\nf=open(sys.argv[1],'wb',0);f.write(b'torn')\nprint('x',flush=True)\nsys.stdin.read()", mnt.path / name)
        assert p.stdout.readline() == "x\n"
        writers.append(p)
    end_worker(mnt)
    for p in writers:
        p.kill()
        p.wait()
    wait_until(lambda: len(mnt.torn()) == 2, "the torn bytes")
    assert (mnt.path / "f").read_bytes() == b"whole" and os.listdir(mnt.path) == ["f"]


def test_a_writer_that_dies_meanwhile_commits_nothing(mnt):
    """Nobody serves while he is killed."""
    f = mnt.path / "f"
    f.write_bytes(b"whole")
    p = python("import sys\nf=open(sys.argv[1],'wb',0);f.write(b'torn')\nprint('x',flush=True)\nsys.stdin.read()", f)
    assert p.stdout.readline() == "x\n"
    pid = worker(mnt)
    os.kill(pid, signal.SIGSTOP)
    p.kill()
    os.kill(pid, signal.SIGKILL)
    p.wait(timeout=LIMIT)
    wait_until(lambda: len(mnt.torn()) == 1, "the torn bytes")
    assert f.read_bytes() == b"whole"


def test_locks_and_shared_mappings_stay(mnt, end_worker):
    with open(mnt.path / "f", "w+b") as f:
        f.truncate(1 << 20)
        mapped = mmap.mmap(f.fileno(), 1 << 20)
        mapped[:3] = b"one"
        fcntl.lockf(f, fcntl.LOCK_EX)
        end_worker(mnt)
        mapped[-3:] = b"two"
        other = python("import fcntl, sys\ntry:\n  fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
                       "except OSError as e:\n  print(type(e).__name__)", mnt.path / "f")
        assert other.communicate(timeout=LIMIT)[0] == "BlockingIOError\n"
        mapped.flush()
        mapped.close()
    data = (mnt.path / "f").read_bytes()
    assert data[:3] == b"one" and data[-3:] == b"two" and len(data) == 1 << 20


def test_a_mapping_that_its_writer_left_changes_no_epoch(mnt, end_worker):
    """The descriptor is closed, so with passthrough nothing but the mapping itself tells the next worker of it. Without, a mapping is
    an open file; what is there at a look is committed all the same."""
    path, passes = mnt.path / "f", mnt.options["passthrough"] == "on"
    with open(path, "w+b", 0) as f:
        f.write(b"a" * 8192)
        mapped = Mapping(f.fileno(), 8192)
    wait_until(lambda: path.exists() and mapped.write(b"once") is None and path.read_bytes()[:4] == b"once", "the close")
    end_worker(mnt)
    number = mnt.seal()
    sealed = mnt.epoch(number) / "f"
    before = sealed.read_bytes()
    assert before[4:] == b"a" * 8188
    mapped.write(b"twice")
    assert sealed.read_bytes() == before
    assert not passes or path.read_bytes()[:5] == b"twice"
    mapped.close()
    wait_until(lambda: not mnt.status()["pending"]["open"], "the commit")
    assert (mnt.epoch(mnt.seal()) / "f").read_bytes() == b"twice" + b"a" * 8187
    assert path.read_bytes() == b"twice" + b"a" * 8187
    assert sealed.read_bytes() == before


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_has_no_content_and_no_name_is_what_it_was(mnt, end_worker, make):
    """It is open, of which the kernel tells nobody where it is a FIFO."""
    path = mnt.path / "it"
    make(path, 0o750)
    os.chown(path, *OTHER_OWNER)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    before = os.fstat(fd)
    (os.rmdir if make is os.mkdir else os.unlink)(path)
    for _ in range(2):
        found = os.fstat(fd)
        assert (found.st_mode, found.st_uid, found.st_gid, found.st_ino) == (before.st_mode, *OTHER_OWNER, before.st_ino) and found.st_nlink == 0
        end_worker(mnt)
    os.fchmod(fd, 0o700)
    os.fchown(fd, 0, 0)
    os.utime(fd)
    found = os.fstat(fd)
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o700, 0, 0)
    os.close(fd)


@pytest.mark.parametrize("keeps", ["descriptor", "mapping"])
def test_what_is_open_in_an_epoch_never_changes(mnt, end_worker, keeps):
    """A live file shows the very same content again, by a rollback, and is edited beside a reader of its own."""
    path = mnt.path / "f"
    path.write_bytes(b"a" * 8192)
    old = mnt.seal()
    path.write_bytes(b"b" * 5000)
    mnt.seal()
    kept = os.open(mnt.epoch(old) / "f", os.O_RDONLY)
    mapped = Mapping(kept, 8192, mmap.PROT_READ)
    if keeps == "mapping":
        os.close(kept)
    mnt.rollback(old)
    assert path.read_bytes() == b"a" * 8192
    end_worker(mnt)
    reader = os.open(path, os.O_RDONLY)
    with open(path, "r+b", 0) as f:
        f.write(b"c" * 4096)
    assert os.pread(reader, 1 << 16, 0) == b"c" * 4096 + b"a" * 4096
    assert mapped.read() == b"a" * 8192
    if keeps == "descriptor":
        assert os.pread(kept, 1 << 16, 0) == b"a" * 8192
        os.close(kept)
    mapped.close()
    os.close(reader)
    assert path.read_bytes() == b"c" * 4096 + b"a" * 4096
    assert (mnt.epoch(old) / "f").read_bytes() == b"a" * 8192


def sizes(paths):
    """Of those that are still there."""
    found = set()
    for path in paths:
        try:
            found.add(path.stat().st_size)
        except FileNotFoundError:
            pass  # removed just now
    return found


def leave_by_unlink(mnt, writer):
    os.unlink(mnt.path / "f")
    os.write(writer, b"more")


def leave_by_rename(mnt, _):
    (mnt.path / "n").write_bytes(b"n")
    os.rename(mnt.path / "n", mnt.path / "f")


def leave_by_truncation(mnt, _):
    (mnt.path / "f").write_bytes(b"new")


def leave_by_rollback(mnt, writer):
    mnt.seal()
    os.write(writer, b"more")
    mnt.rollback(1)


@pytest.mark.parametrize("leave", [leave_by_unlink, leave_by_rename, leave_by_truncation, leave_by_rollback])
def test_a_reader_outlives_the_last_writer_of_what_no_name_leads_to(mnt, end_worker, leave):
    (mnt.path / "f").write_bytes(b"1" * 5000)
    mnt.seal()
    reader, writer = os.open(mnt.path / "f", os.O_RDONLY), os.open(mnt.path / "f", os.O_WRONLY | os.O_APPEND)
    os.write(writer, b"a")
    leave(mnt, writer)
    os.close(writer)
    before = os.pread(reader, 9999, 0)
    assert os.fstat(reader).st_size == len(before) > 5000
    end_worker(mnt)
    assert os.pread(reader, 9999, 0) == before
    assert os.fstat(reader).st_size == len(before)
    os.close(reader)
    # And goes with it.
    wait_until(lambda: len(before) not in sizes(mnt.cache.glob("*/objects/*")), "the removal of what nobody reads")


def test_a_reader_outlives_a_rollback_to_what_it_reads(mnt, end_worker):
    (mnt.path / "f").write_bytes(b"1" * 8192)
    mnt.seal()
    reader = os.open(mnt.path / "f", os.O_RDONLY)
    (mnt.path / "f").write_bytes(b"3" * 10)
    mnt.seal()
    mnt.rollback(1)
    end_worker(mnt)
    assert os.fstat(reader).st_size == 8192 and os.pread(reader, 9999, 0) == b"1" * 8192
    os.close(reader)
    assert (mnt.path / "f").read_bytes() == b"1" * 8192


def test_no_symlink_says_what_another_said_before_a_restart(mnt, end_worker):
    """The kernel keeps what symlinks say, by their nodes. What it looked up last are tags here."""
    (mnt.path / "f").write_text("1")
    mnt.status()
    restart(mnt)
    for name in ("one", "two", "three"):
        mnt.seal(name)
        assert os.readlink(mnt.epochs_dir / name) == "000001"
    end_worker(mnt)
    for i in range(8):
        os.symlink("d%d" % i, mnt.path / ("s%d" % i))
    assert [os.readlink(mnt.path / ("s%d" % i)) for i in range(8)] == ["d%d" % i for i in range(8)]
    assert {os.readlink(mnt.epochs_dir / name) for name in ("one", "two", "three", "latest", "current")} == {"000001"}


def test_a_reader_and_a_writer_in_a_loop(mnt):
    """Kills and restarts fall anywhere."""
    data = os.urandom(1 << 20)
    (mnt.path / "f").write_bytes(data)
    rounds = [0, 0]

    def read(stop):
        while not stop.is_set():
            assert (mnt.path / "f").read_bytes() == data
            rounds[0] += 1

    def write(stop):
        with open(mnt.path / "big", "wb", 0) as f:
            while not stop.is_set():
                assert f.write(data) == len(data)
                rounds[1] += 1
                if rounds[1] % 50 == 0:
                    f.seek(0)

    ends = [in_background(read), in_background(write)]
    for end_one in (kill, restart, kill, restart):
        seen = list(rounds)
        end_one(mnt)
        wait_until(lambda before=seen: rounds[0] > before[0] + 2 and rounds[1] > before[1] + 2, "both to go on")
    for end in ends:
        assert not end()
    big = (mnt.path / "big").read_bytes()
    assert big and big == data * (len(big) // len(data))
    mnt.seal()
    assert (mnt.epochs_dir / "latest" / "big").read_bytes() == big


def test_names_in_a_storm(mnt):
    """Each operation is done exactly once, or fails with EIO or ESTALE, and then it was done or not."""
    unknown = []

    def once(what, act, *arguments):
        try:
            act(*arguments)
            return True
        except OSError as error:
            assert error.errno in (errno.EIO, errno.ESTALE), (what, error)
            unknown.append(what)
            return False

    def work(home):
        home.mkdir()

        def run_storm(stop):
            i = 0
            while not stop.is_set():
                i += 1
                a, b, c = (home / ("%s%d" % (n, i)) for n in "abc")
                fd = None
                try:
                    fd = os.open(a, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
                    os.write(fd, b"%d" % i)
                except OSError as error:
                    assert error.errno in (errno.EIO, errno.ESTALE), error
                    unknown.append("create")
                finally:
                    if fd is not None:
                        os.close(fd)
                if fd is None:
                    continue
                if once("mkdir", os.mkdir, c) and once("symlink", os.symlink, "x", c / "l"):
                    assert os.readlink(c / "l") == "x"
                    if once("unlink", os.unlink, c / "l"):
                        once("rmdir", os.rmdir, c)
                if once("link", os.link, a, b) and once("rename", os.rename, a, home / "kept") and once("unlink", os.unlink, b):
                    assert (home / "kept").read_bytes() == b"%d" % i
                    assert not a.exists() and not b.exists()

        return run_storm

    ends = [in_background(work(mnt.path / ("home%d" % i))) for i in range(4)]
    for end_one in (kill, restart, kill, restart, restart):
        end_one(mnt)
    for end in ends:
        errors = end()
        assert not errors, errors
    assert not unknown, unknown
    mnt.unmount()
    mnt.mount()
    for i in range(4):
        assert (mnt.path / ("home%d" % i) / "kept").read_bytes().isdigit()


def test_sqlite_in_a_transaction(mnt, end_worker):
    db = sqlite3.connect(mnt.path / "db", isolation_level=None)
    db.execute("PRAGMA journal_mode=DELETE")
    db.execute("CREATE TABLE t (n INTEGER)")
    for i in range(3):
        db.execute("BEGIN")
        db.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(2000)])
        if i == 1:
            end_worker(mnt)
        db.execute("COMMIT")
    db.execute("BEGIN")
    db.execute("DELETE FROM t")
    end_worker(mnt)
    db.execute("ROLLBACK")
    assert db.execute("SELECT count(*), sum(n) FROM t").fetchone() == (6000, 3 * 1999 * 1000)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
