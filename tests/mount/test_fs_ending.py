# SPDX-License-Identifier: Apache-2.0
"""How a mount ends: by umount, by signals, with files open, or cut off."""

import ctypes
import errno
import os
import pathlib
import signal
import subprocess

import pytest

from conftest import BIN, LIMIT, in_the_kernel, is_mounted, need_root, python, run, wait_until
from test_notices import Cold

HOLD = """
import os, sys
fd = os.open(sys.argv[1], int(sys.argv[2]), 0o644)
if int(sys.argv[2]) & os.O_ACCMODE:
    os.write(fd, b"half")
print("open", flush=True)
sys.stdin.readline()
os.close(fd)
print("closed", flush=True)
sys.stdin.read()
"""


def holder(path, flags):
    p = python(HOLD, path, str(flags))
    assert p.stdout.readline() == "open\n"
    return p


@pytest.mark.options(settle="1h", grace="0")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_seals_and_unmounts(mnt, number):
    (mnt.path / "f").write_text("text")
    mnt.terminate(number)
    assert not is_mounted(mnt.path)
    mnt.mount()
    assert mnt.epochs() == [1] and (mnt.epoch(1) / "f").read_text() == "text"


def test_umount_seals(mnt):
    (mnt.path / "f").write_text("text")
    mnt.unmount()
    mnt.mount()
    assert mnt.epochs() == [1] and (mnt.epoch(1) / "f").read_text() == "text"


def test_umount_right_after_close(mnt):
    """The kernel may drop the last word of a close when the mount goes: the close counts all the same."""
    for i in range(12):
        (mnt.path / "f").write_text(str(i))
        assert run("umount", mnt.path, check=False).returncode == 0
        mnt.wait_end()
        mnt.mount()
        assert (mnt.path / "f").read_text() == str(i)
        assert (mnt.epochs_dir / "latest" / "f").read_text() == str(i)


def background(mnt):
    """The command that mounts the volume again, as a user gives it."""
    return [word for word in mnt.command() if word != "-f"]


def test_a_mount_waits_for_the_daemon_that_ends(mnt):
    """However long that takes: here the daemon is stopped, and the kernel has unmounted."""
    need_root("unmount without asking the daemon")
    (mnt.path / "f").write_text("text")
    mnt.process.send_signal(signal.SIGSTOP)
    if ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(mnt.path), 0):
        pytest.fail(os.strerror(ctypes.get_errno()))
    again = subprocess.Popen(background(mnt), stderr=subprocess.PIPE, text=True)
    line = again.stderr.readline()
    mnt.process.send_signal(signal.SIGCONT)
    assert "waiting for process %d" % mnt.pid in line
    mnt.wait_end()
    assert again.wait(timeout=LIMIT) == 0, again.stderr.read()
    again.stderr.close()
    assert (mnt.path / "f").read_text() == "text" and mnt.epochs() == [1]
    pid = mnt.status()["pid"]
    run("umount", mnt.path)
    wait_until(lambda: not os.path.exists("/proc/%d" % pid), "the daemon to end")


@pytest.mark.parametrize("way", [["umount"], ["fusermount3", "-u"], [BIN, "umount", "--no-drain"], "signal"], ids=["umount", "fusermount", "epochfs", "signal"])
def test_a_mount_right_after_the_end_of_another(mnt, way):
    pid = mnt.pid
    for i in range(5):
        # By a process that ends: a signal to the daemon waits for writers that live.
        run("sh", "-c", 'head -c 8388608 /dev/urandom >"$1"', "sh", mnt.path / "f")
        if way == "signal":
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: not is_mounted(mnt.path), "the end of the mount")
        else:
            run(*way, mnt.path)
        run(*background(mnt))
        pid = mnt.status()["pid"]
        assert mnt.epochs()[-1] == i + 1
    mnt.wait_end()
    run("umount", mnt.path)
    wait_until(lambda: not os.path.exists("/proc/%d" % pid), "the daemon to end")


def test_umount_of_a_busy_mount_fails_and_serves_on(mnt):
    with open(mnt.path / "f", "wb") as f:
        done = run("umount", mnt.path, check=False)
        assert done.returncode and "busy" in done.stderr
        f.write(b"still works")
    assert (mnt.path / "f").read_bytes() == b"still works"


def test_a_lazily_unmounted_file_is_served_to_its_end(mnt):
    (mnt.path / "old").write_text("old")
    with open(mnt.path / "f", "wb") as f, open(mnt.path / "old", "rb") as old:
        run("umount", "-l", mnt.path)
        assert not is_mounted(mnt.path) and not list(mnt.path.iterdir())
        f.write(b"written after it")
        f.flush()
        assert old.read() == b"old"
        assert mnt.process.poll() is None
    mnt.wait_end()
    mnt.mount()
    assert (mnt.path / "f").read_bytes() == b"written after it"
    assert (mnt.epochs_dir / "latest" / "f").read_bytes() == b"written after it"


@pytest.mark.options(settle="1h", grace="0")
def test_a_signal_waits_for_open_files(mnt):
    p = holder(mnt.path / "f", os.O_WRONLY | os.O_CREAT)
    mnt.process.send_signal(signal.SIGTERM)
    p.stdin.write("go\n")
    p.stdin.flush()
    assert p.stdout.readline() == "closed\n"
    mnt.wait_end()
    p.stdin.close()
    assert p.wait() == 0
    mnt.mount()
    assert (mnt.epochs_dir / "latest" / "f").read_text() == "half"


CONNECTIONS = pathlib.Path("/sys/fs/fuse/connections")


@pytest.fixture
def abort():
    """Ends the connection of a device's minor number, by the file system fusectl: where it is, or at an empty directory."""
    if not os.path.ismount(CONNECTIONS):
        need_root("mount fusectl")

    def write(minor, empty):
        where = CONNECTIONS if os.path.ismount(CONNECTIONS) else empty
        if where == empty:
            run("mount", "-t", "fusectl", "none", empty)
        try:
            (where / str(minor) / "abort").write_text("1")
        finally:
            if where == empty:
                run("umount", empty)

    return write


def test_an_aborted_connection_ends_the_daemon(mnt, tmp_path, abort):
    (mnt.path / "f").write_text("text")
    minor = os.minor(os.stat(mnt.path).st_dev)
    abort(minor, tmp_path)
    mnt.process.wait(timeout=LIMIT)
    mnt.process = None
    if is_mounted(mnt.path):
        run("umount", "-l", mnt.path)
    mnt.mount()
    assert (mnt.path / "f").read_text() == "text"


def test_a_connection_aborted_with_a_writer(mnt, tmp_path, abort):
    """Its file was not closed: as if the machine had died."""
    f = mnt.path / "f"
    f.write_text("whole")
    mnt.seal("kept")
    minor = os.minor(os.stat(mnt.path).st_dev)
    p = holder(f, os.O_WRONLY | os.O_TRUNC)
    abort(minor, tmp_path)
    assert mnt.process.wait(timeout=LIMIT) == 1
    mnt.process = None
    p.kill()
    p.wait()
    if is_mounted(mnt.path):
        run("umount", "-l", mnt.path)
    mnt.mount()
    assert f.read_text() == "whole" and len(mnt.torn()) == 1


def test_a_killed_daemon_leaves_a_mount_that_can_be_replaced(mnt):
    (mnt.path / "f").write_text("text")
    mnt.kill()
    mnt.mount()
    assert (mnt.path / "f").read_text() == "text"


def test_a_daemon_killed_while_it_waits_for_a_reader_lets_him_go(volume, tmp_path):
    """The kernel keeps a connection for as long as a thread of the daemon is in it."""
    cold = Cold(volume, tmp_path / "faults")
    try:
        # The page that they wait for is to be invalidated.
        cold.write("truncate")
        wait_until(lambda: in_the_kernel(volume.pid), "the daemon to wait for a reader")
        volume.process.kill()
        for p in cold.processes:
            p.wait(timeout=LIMIT)
        volume.process.wait(timeout=LIMIT)
        assert is_mounted(volume.path)  # nobody writes below by mistake
        with pytest.raises(OSError) as failure:
            os.listdir(volume.path)
        assert failure.value.errno == errno.ENOTCONN
    finally:
        cold.close()
    volume.kill()


def test_nothing_is_left_of_a_working_directory(mnt):
    """A process that stands in the mount makes it busy, not broken."""
    (mnt.path / "d").mkdir()
    p = python("import os, sys; os.chdir(sys.argv[1]); print('in', flush=True); sys.stdin.read()", mnt.path / "d")
    assert p.stdout.readline() == "in\n"
    assert run("umount", mnt.path, check=False).returncode
    p.stdin.close()
    assert p.wait() == 0
    mnt.remount()
    assert os.listdir(mnt.path) == ["d"]


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_RDONLY | os.O_DIRECT])
def test_a_read_that_waits_for_the_remote_can_be_killed(mnt, flags):
    (mnt.path / "f").write_bytes(os.urandom(100000))
    mnt.wait_durable()
    mnt.unmount()
    mnt.empty_cache()
    control = mnt.base / "faults"
    mnt.url = "fault+file://%s?only=packs/&control=%s" % (mnt.remote, control)
    mnt.mount()
    (mnt.base / "new").write_text("get.delay=1h")
    os.rename(mnt.base / "new", control)
    p = python("""
import mmap, os, sys
fd = os.open(sys.argv[1], int(sys.argv[2]))
print("reading", flush=True)
print(os.preadv(fd, [mmap.mmap(-1, 4096)], 0))
""", mnt.path / "f", str(flags))
    assert p.stdout.readline() == "reading\n"
    assert os.listdir(mnt.path) == ["f"]
    p.kill()
    p.wait(timeout=LIMIT)
    assert p.stdout.read() == ""
    assert mnt.status()["pid"] == mnt.pid
