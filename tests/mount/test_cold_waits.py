# SPDX-License-Identifier: Apache-2.0
"""A mount with an empty cache whose remote is slow or away: what waits for it can be ended, and says why it failed."""

import errno
import mmap
import os
import pathlib
import signal
import time

import pytest

from conftest import python, wait_until
from stored_data import MIB

READER = """
import mmap, os, signal, sys
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGUSR1, stop)
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.signal(signal.SIGPROF, lambda *_: None)
fd = os.open(sys.argv[1], os.O_RDONLY | int(sys.argv[2]))
page = mmap.mmap(-1, 4096)
print(fd, flush=True)
try:
    os.preadv(fd, [page], 0)
    print("read")
except Stop:
    print("interrupted")
"""


@pytest.mark.parametrize("flags,number,code,said", [
    (0, signal.SIGTERM, -signal.SIGTERM, ""),
    (0, signal.SIGKILL, -signal.SIGKILL, ""),
    (os.O_DIRECT, signal.SIGUSR1, 0, "interrupted\n"),
])
def test_a_signal_ends_a_read_that_waits_for_the_remote(volume, tmp_path, flags, number, code, said):
    """A read through the page cache is left, as on any file system, for a signal that ends the process only."""
    faults = tmp_path / "faults"
    volume.url = "fault+file://%s?control=%s" % (volume.remote, faults)
    volume.mount(settle="1h")
    (volume.path / "model").write_bytes(os.urandom(2 * MIB))
    volume.seal()
    volume.remount(empty_cache=True)
    faults.write_text("get.delay=1h&only=packs/")
    reader = python(READER, volume.path / "model", str(int(flags)))
    fd = int(reader.stdout.readline())

    def waits():
        """In a system call on that descriptor."""
        with open("/proc/%d/syscall" % reader.pid, encoding="ascii") as f:
            words = f.read().split()
        return len(words) > 2 and int(words[1], 16) == fd

    wait_until(waits, "the reader to read")
    if flags:
        # What happens beside it ends no wait.
        for other in (signal.SIGCHLD, signal.SIGPROF):
            reader.send_signal(other)
        time.sleep(1.5)
        assert waits()
    reader.send_signal(number)
    assert reader.communicate(timeout=60)[0] == said
    assert reader.returncode == code
    # The mount serves others, and ends although a fetch is under way.
    assert os.listdir(volume.path) == ["model"]
    volume.unmount()


STOPPED = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.pread.restype = ctypes.c_long
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
print(fd, flush=True)
print(libc.pread(fd, (ctypes.c_char * 4096).from_buffer(page), ctypes.c_size_t(4096), ctypes.c_long(0)), ctypes.get_errno())
"""


def test_a_stop_does_not_interrupt_a_read_that_waits_for_the_remote(volume, tmp_path):
    """The kernel says that the request was interrupted, but nothing that the process has to know of came."""
    faults = tmp_path / "faults"
    volume.url = "fault+file://%s?control=%s" % (volume.remote, faults)
    volume.mount(settle="1h")
    (volume.path / "model").write_bytes(os.urandom(2 * MIB))
    volume.seal()
    volume.remount(empty_cache=True)
    faults.write_text("get.delay=3s&only=packs/")
    reader = python(STOPPED, volume.path / "model")
    fd = int(reader.stdout.readline())

    def field(name, at):
        with open("/proc/%d/%s" % (reader.pid, name), encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[at:]

    wait_until(lambda: [int(word, 16) for word in field("syscall", 1)[:1]] == [fd], "the reader to read")
    reader.send_signal(signal.SIGSTOP)
    wait_until(lambda: field("stat", 0)[0] == "T", "the reader to stop")
    reader.send_signal(signal.SIGCONT)
    assert reader.communicate(timeout=60)[0] == "4096 0\n"


CHANGER = """
import os, sys
how, path = sys.argv[1:]
fd = os.open(path, os.O_RDWR) if how in ("ftruncate", "write", "fallocate") else -1
print("ready", flush=True)
if how == "truncate":
    os.truncate(path, 1 << 20)
elif how == "ftruncate":
    os.ftruncate(fd, 1 << 20)
elif how == "write":
    os.pwrite(fd, b"x", 0)
else:
    os.posix_fallocate(fd, 0, 4096)
"""


@pytest.mark.parametrize("how", ["truncate", "ftruncate", "write", "fallocate"])
def test_a_signal_ends_a_change_that_waits_for_the_remote(volume, tmp_path, how):
    """What a change of cold content keeps is fetched first. With passthrough it is the same: the kernel is given no file that is not all here, so the change
    comes to the daemon. Who opens a file that the kernel has already finds all of it here, and has nothing to fetch."""
    faults = tmp_path / "faults"
    volume.url = "fault+file://%s?control=%s" % (volume.remote, faults)
    volume.mount(settle="1h")
    data = os.urandom(2 * MIB)
    (volume.path / "model").write_bytes(data)
    volume.seal()
    volume.remount(empty_cache=True)
    faults.write_text("get.delay=1h&only=packs/")
    changer = python(CHANGER, how, volume.path / "model")
    assert changer.stdout.readline() == "ready\n"
    where = pathlib.Path("/proc/%d/wchan" % changer.pid)
    wait_until(lambda: where.read_text().startswith(("fuse_", "request_wait_answer", "__fuse_")), "a change that waits")
    opened = volume.status()["passthrough"]
    assert (opened["opens"], opened["ordinary_opens"]) == (0, 0 if how == "truncate" else 1)
    changer.send_signal(signal.SIGTERM)
    changer.communicate(timeout=60)
    assert changer.returncode == -signal.SIGTERM
    faults.unlink()
    assert (volume.path / "model").stat().st_size == len(data)
    volume.unmount()


@pytest.mark.parametrize("passthrough", ["off"])
def test_a_cold_mount_of_an_unreachable_remote_says_so(volume, tmp_path):
    faults = tmp_path / "faults"
    volume.url = "fault+file://%s?control=%s" % (volume.remote, faults)
    volume.mount(settle="1h", patience="100ms")
    data = os.urandom(2 * MIB)
    (volume.path / "model").write_bytes(data)
    volume.seal()
    volume.remount(empty_cache=True, patience="100ms")
    faults.write_text("get.down=1&only=packs/")
    fd = os.open(volume.path / "model", os.O_RDONLY | os.O_DIRECT)  # one try only
    with pytest.raises(OSError) as failure:
        os.preadv(fd, [mmap.mmap(-1, 4096)], 0)
    os.close(fd)
    assert failure.value.errno in (errno.EHOSTUNREACH, errno.ETIMEDOUT)
    os.unlink(faults)
    assert (volume.path / "model").read_bytes() == data
