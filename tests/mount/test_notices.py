# SPDX-License-Identifier: Apache-2.0
"""Telling the kernel that content has changed waits for pages that it reads and writes, and so for answers of the daemon: it never waits for itself
(fs/invalidate.h), and ends whatever the remote does."""

import contextlib
import os
import pathlib
import signal
import stat
import subprocess

import pytest

from conftest import BIN, LIMIT, python, wait_until
from stored_data import MIB

CHANGER = """
import mmap, os, sys
fd, path, turns, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), 1 << 16
pages = mmap.mmap(fd, size)
for turn in range(turns):
    pages[turn % 4 * 4096] = turn % 256
    os.truncate(path, size)
"""


@pytest.mark.parametrize("nodes", ["of two bodies", "of one body"])
def test_truncations_by_two_nodes_beside_mappings_wait_for_each_other_in_vain(mnt, nodes):
    """The kernel holds back what a mapping has stored while a truncation by the same node is under way. Each of these tells it to drop what it has by the
    other node, for which that must be written."""
    path = mnt.path / "f"
    path.write_bytes(b"1" * (1 << 16))
    if nodes == "of two bodies":
        old = os.open(path, os.O_RDWR)
        path.write_bytes(b"2" * (1 << 16))
        new = os.open(path, os.O_RDWR)
    else:
        node = os.open(path, os.O_PATH)
        path.write_bytes(b"2" * (1 << 16))
        new = os.open(path, os.O_RDWR)
        old = os.open("/proc/self/fd/%d" % node, os.O_RDWR)
        os.close(node)
    changers = [python(CHANGER, str(old), "/proc/self/fd/%d" % old, "1000", pass_fds=[old]), python(CHANGER, str(new), path, "1000", pass_fds=[new])]
    for changer in changers:
        changer.communicate(timeout=60)
        assert changer.returncode == 0
    os.close(old), os.close(new)


READER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
print(fd, flush=True)
print(len(os.pread(fd, 4096, int(sys.argv[2]))))
"""

WRITER = """
import os, sys
how, node = sys.argv[1], "/proc/self/fd/" + sys.argv[2]
if how == "open":
    fd = os.open(node, os.O_WRONLY | os.O_TRUNC)
elif how == "truncate":
    os.truncate(node, 0)
elif how == "ftruncate":
    fd = os.open(node, os.O_RDWR)
    os.ftruncate(fd, 0)
else:
    os.pwrite(os.open(node, os.O_RDWR), b"x", 0)
print("done", flush=True)
"""


def waits(process, fd):
    """In a system call on that descriptor."""
    words = pathlib.Path("/proc/%d/syscall" % process.pid).read_text(encoding="ascii").split()
    return len(words) > 2 and int(words[1], 16) == fd


def read_in_vain(path, offset=0):
    """Starts a process that waits for content that does not come."""
    reader = python(READER, path, str(offset))
    fd = int(reader.stdout.readline())
    wait_until(lambda: waits(reader, fd), "a reader to read")
    return reader


class Cold:
    """A file that is not here, of a remote that stands still; three processes that read it; and a second node of what they read, by `twin`."""

    def __init__(self, volume, faults):
        volume.url = "fault+file://%s?control=%s" % (volume.remote, faults)
        volume.options.update(settle="1h", grace="1s")
        volume.mount()
        self.path = volume.path / "model"
        epochs = []
        for _ in range(2):
            self.path.write_bytes(os.urandom(2 * MIB))
            epochs.append(volume.seal())
        volume.remount(empty_cache=True)
        node = os.open(self.path, os.O_PATH)
        volume.rollback(epochs[0])
        self.named = os.open(self.path, os.O_RDONLY)
        self.twin = os.open("/proc/self/fd/%d" % node, os.O_RDONLY)
        os.close(node)
        faults.write_text("get.delay=1h&only=packs/")
        self.processes = [read_in_vain(self.path) for _ in range(3)]

    def write(self, how):
        self.processes.append(python(WRITER, how, str(self.twin), pass_fds=[self.twin]))
        return self.processes[-1]

    def close(self):
        for process in self.processes:
            process.kill()
            process.communicate(timeout=60)
        for fd in (self.named, self.twin):
            # Of a mount that is dead it fails, and closes all the same.
            with contextlib.suppress(OSError):
                os.close(fd)


@pytest.mark.parametrize("how", ["open", "truncate", "ftruncate", "write"])
@pytest.mark.parametrize("by", ["SIGTERM", "umount"])
def test_a_mount_ends_though_a_twin_was_changed_while_others_read(volume, tmp_path, how, by):
    """Whatever they wait for, the remote or the kernel: each of them can be killed, and the daemon ends, with the remote standing still."""
    cold = Cold(volume, tmp_path / "faults")
    try:
        where = pathlib.Path("/proc/%d/wchan" % cold.write(how).pid)
        wait_until(lambda: where.read_text(encoding="ascii") == "request_wait_answer", "the writer to wait")
        # The daemon serves others.
        (volume.path / "other").write_bytes(b"other")
        assert (volume.path / "other").read_bytes() == b"other"
        if by == "SIGTERM":
            volume.process.send_signal(signal.SIGTERM)
    finally:
        cold.close()
    if by == "SIGTERM":
        volume.wait_end()
    else:
        volume.unmount()


def stands_still(volume, faults):
    """Gives what lets the remote of the volume stand still, as far as its largest pack goes."""
    volume.url = "fault+file://%s?control=%s" % (volume.remote, faults)

    def stop():
        pack = max((p for p in (volume.remote / "packs").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
        faults.write_text("get.delay=1h&only=%s" % pack.relative_to(volume.remote))

    return stop


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("by", ["symlink", "command"])
def test_a_rollback_waits_for_nobody_who_reads_what_it_replaces(volume, tmp_path, by):
    """Who reads goes on with the content that he opened, and the kernel keeps what it has of it; who opens the file next has the other one."""
    stop = stands_still(volume, tmp_path / "faults")
    path = volume.mount().path / "model"
    path.write_bytes(b"before")
    epoch, data = volume.seal(), os.urandom(8 * MIB)
    path.write_bytes(data)
    volume.remount(empty_cache=True)
    command = {"symlink": ["ln", "-sfn", str(epoch), volume.epochs_dir / "current"], "command": [BIN, "rollback", volume.path, str(epoch)]}[by]
    with open(path, "rb", buffering=0) as held:
        assert held.read(4096) == data[:4096]
        stop()
        reader = read_in_vain(path, 6 * MIB)
        try:
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as rollback:
                try:
                    assert rollback.wait(timeout=LIMIT) == 0
                finally:
                    reader_waits = reader.poll() is None
                    reader.kill()
            assert reader_waits
            assert path.read_bytes() == b"before" and path.stat().st_size == 6
            assert os.fstat(held.fileno()).st_size == len(data) and os.pread(held.fileno(), 4096, 0) == data[:4096]
        finally:
            reader.kill()
            reader.communicate(timeout=LIMIT)


def test_who_follows_waits_for_nobody_who_reads(make_volume, tmp_path):
    """The file stays what it was, and its attributes change, twice."""
    writer = make_volume(settle="1h").mount()
    path = writer.path / "model"
    path.write_bytes(os.urandom(2 * MIB))
    writer.wait_durable()
    follower = make_volume(ro=True, refresh="100ms")
    follower.remote = writer.remote
    stop = stands_still(follower, tmp_path / "faults")
    follower.mount()
    stop()
    reader = read_in_vain(follower.path / "model")
    try:
        for mode in (0o600, 0o640):
            path.chmod(mode)
            writer.wait_durable()
            wait_until(lambda mode=mode: stat.S_IMODE((follower.path / "model").stat().st_mode) == mode, "the mode %o" % mode)
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.communicate(timeout=LIMIT)
