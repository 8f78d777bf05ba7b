# SPDX-License-Identifier: Apache-2.0
"""Writes that the kernel alone refused (passthrough), by a program that ignores it: also where there is room again before the close."""

import os
import shutil
import time

import pytest

from conftest import python, run, wait_until
from test_doubts import doubts, latest, put, record

MIB = 1 << 20
GOOD = b"good" * (MIB + MIB // 8)
WARNING = "the cache's disk is full, and a write to it may have been refused"

WRITER = """
import errno, os, sys
flags = {"replace": os.O_TRUNC, "append": os.O_APPEND}[sys.argv[3]]
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | flags, 0o644)
def write(count):
    try:
        for _ in range(count):
            os.write(fd, b"new!" * (1 << 18))
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
    else:
        print("written", flush=True)
write(int(sys.argv[2]))
for line in sys.stdin:
    if line.startswith("write"):
        write(int(line.split()[1]))
    else:
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        write(1)
try:
    os.close(fd)
    print("closed", flush=True)
except OSError as e:
    print(errno.errorcode[e.errno], flush=True)
"""


@pytest.fixture
def passthrough():
    """The daemon itself sees what it refuses: test_doubts.py."""
    return "on"


def mount_on(volume, *arguments):
    run("mount", *arguments, volume.cache)
    return volume.mount(full="error", settle="1h", min_free=0)


@pytest.fixture
def small(volume):
    """The cache is on a disk of 48 MiB."""
    yield mount_on(volume, "-t", "tmpfs", "-o", "size=48m,mode=755", "tmpfs")
    volume.clean_up()
    run("umount", "-l", volume.cache)


class RawWriter:
    """Ends no save for an error of a write, as a program that closes on its way out."""

    def __init__(self, path, count, how="replace"):
        self.process = python(WRITER, path, str(count), how)
        self.says = self.process.stdout.readline().strip()

    def again(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def close(self):
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return out.strip()


def free_bytes(mnt):
    st = os.statvfs(mnt.cache)
    return st.f_bavail * st.f_frsize


def wait_for_warning(mnt, name):
    wait_until(lambda: "%s: %s" % (name, WARNING) in mnt.log.read_text(), "the line of the log")


def another_user_frees(mnt):
    os.unlink(mnt.cache / "ballast")


def the_evictor_frees(mnt):
    put(mnt.path / "note", "of another program")


@pytest.mark.parametrize("free", [another_user_frees, the_evictor_frees])
def test_room_that_comes_before_the_close_hides_no_refused_write(small, free):
    path = small.path / "model.bin"
    path.write_bytes(GOOD)
    if free == the_evictor_frees:
        (small.path / "durable").write_bytes(os.urandom(8 * MIB))
    assert small.seal() == 1
    small.wait_durable()
    if free == another_user_frees:
        (small.cache / "ballast").write_bytes(bytes(8 * MIB))
    put(small.path / "config.json", "of the new save")
    writer = RawWriter(path, 64)
    assert writer.says == "ENOSPC"
    wait_for_warning(small, "model.bin")
    free(small)
    assert free_bytes(small) > 4 * MIB
    assert writer.close() == "ENOSPC"
    assert path.read_bytes() == GOOD
    wait_until(small.torn, "the torn bytes")
    assert small.seal() == 2
    assert doubts(small, 2) == {"model.bin": ("undone", True)} and latest(small) == 1
    assert record(small, 2)["doubts"][0]["why"] == "the cache's disk was full as it was written"


def test_what_is_cut_to_nothing_and_saved_again_is_whole(small):
    path = small.path / "model.bin"
    path.write_bytes(GOOD)
    assert small.seal() == 1
    (small.cache / "ballast").write_bytes(bytes(8 * MIB))
    writer = RawWriter(path, 64)
    assert writer.says == "ENOSPC"
    wait_for_warning(small, "model.bin")
    another_user_frees(small)
    assert writer.again("again") == "written"
    assert writer.close() == "closed"
    assert path.read_bytes() == b"new!" * (MIB // 4)
    assert small.seal() == 2 and doubts(small, 2) == {} and latest(small) == 2


@pytest.mark.parametrize("full", ["full", "room again"])
def test_a_save_that_was_written_before_the_disk_became_full_is_whole(small, full):
    """Its writer only thinks before it closes."""
    path = small.path / "model.bin"
    path.write_bytes(GOOD)
    assert small.seal() == 1
    (small.cache / "ballast").write_bytes(bytes(8 * MIB))
    writer = RawWriter(path, 8)
    assert writer.says == "written"
    # An open is a look, and this one is later than the last write by more than a tick of the kernel's clock.
    done_ns = time.time_ns()
    wait_until(lambda: time.time_ns() > done_ns + 50 * 10**6, "the clock")
    other = RawWriter(small.path / "other.bin", 64)
    assert other.says == "ENOSPC"
    wait_for_warning(small, "other.bin")
    if full == "room again":
        another_user_frees(small)
    assert writer.close() == "closed"
    assert other.close() == "ENOSPC"
    assert path.read_bytes() == b"new!" * (2 * MIB)
    assert "model.bin: " + WARNING not in small.log.read_text()
    assert not (small.path / "other.bin").exists()


def test_a_save_that_nearly_fills_the_disk_is_whole(small):
    path = small.path / "model.bin"
    put(path, "good")
    assert small.seal() == 1
    writer = RawWriter(path, 16)
    count = 16
    while free_bytes(small) > 3 * MIB:
        assert writer.again("write 1") == "written"
        count += 1
    assert count > 30 and free_bytes(small) < 4 * MIB
    assert writer.close() == "closed"
    assert path.stat().st_size == count * MIB
    assert small.seal() == 2 and doubts(small, 2) == {} and latest(small) == 2


def test_a_log_keeps_what_was_written(small):
    log = small.path / "train.log"
    put(small.path / "model.bin", "good")
    (small.cache / "ballast").write_bytes(bytes(8 * MIB))
    writer = RawWriter(log, 64, "append")
    assert writer.says == "ENOSPC"
    size = log.stat().st_size
    assert free_bytes(small) < MIB
    another_user_frees(small)
    assert writer.again("write 1") == "written"
    assert writer.close() == "closed"
    assert log.stat().st_size == size + MIB
    number = small.seal()
    assert doubts(small, number) == {} and latest(small) == number


@pytest.mark.parametrize("use", ["some", "all"])
def test_room_that_is_kept_for_root_is_room(volume, use):
    """ext4 keeps some blocks for root, and the kernel writes with the rights of the daemon: statfs shows nothing left long before."""
    image = volume.base / "image"
    with open(image, "wb") as f:
        f.truncate(64 * MIB)
    if shutil.which("mkfs.ext4") is None or run("mkfs.ext4", "-q", "-m", "40", image, check=False).returncode:
        pytest.skip("mkfs.ext4 is not there")
    if run("mount", "-o", "loop", image, volume.cache, check=False).returncode:
        pytest.skip("no loop devices here")
    try:
        mnt = volume.mount(full="error", settle="1h", min_free=0)
        path = mnt.path / "model.bin"
        put(path, "good")
        assert mnt.seal() == 1
        writer = RawWriter(path, 1)
        count = 1
        while free_bytes(mnt):
            assert writer.again("write 1") == "written"
            count += 1
        for _ in range(2):
            assert writer.again("write 1") == "written"
        if use == "all":
            assert writer.again("write 64") == "ENOSPC"
            assert writer.close() == "ENOSPC" and path.read_text() == "good"
        else:
            assert writer.close() == "closed" and path.stat().st_size == (count + 2) * MIB
            assert mnt.seal() == 2 and doubts(mnt, 2) == {} and latest(mnt) == 2
    finally:
        volume.clean_up()
        run("umount", "-l", volume.cache)
