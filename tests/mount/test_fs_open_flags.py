# SPDX-License-Identifier: Apache-2.0
"""Flags of open(2) that say how a file is written, O_DIRECT, O_SYNC and O_DSYNC, hold as on a local disk, whoever else has the file open."""

import fcntl
import mmap
import os
import signal
import subprocess
import sys

import pytest

from conftest import run, wait_until

BLOCK = 4096


def page(letter, blocks=1):
    aligned = mmap.mmap(-1, blocks * BLOCK)
    aligned.write(letter * (blocks * BLOCK))
    return aligned


def take_direct_away(fd):
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_DIRECT)


def dd(*arguments):
    return run("dd", *arguments, "bs=%d" % BLOCK, check=False)


@pytest.mark.parametrize("beside", ["nobody", "a reader", "a writer"])
@pytest.mark.parametrize("exists", [False, True])
def test_dd_writes_a_direct_tail_that_is_no_block(mnt, tmp_path, beside, exists):
    """It takes O_DIRECT away for the tail."""
    source, f = tmp_path / "source", mnt.path / "f"
    source.write_bytes(os.urandom(2 * BLOCK + 1808))
    if exists:
        f.write_bytes(b"old" * BLOCK)
    flags = {"nobody": None, "a reader": os.O_RDONLY | os.O_CREAT, "a writer": os.O_RDWR | os.O_CREAT}[beside]
    other = None if flags is None else os.open(f, flags, 0o644)
    done = dd("if=%s" % source, "of=%s" % f, "oflag=direct", "conv=notrunc")
    assert done.returncode == 0, done.stderr
    expected = source.read_bytes()
    if exists:
        expected += (b"old" * BLOCK)[len(expected):]
    if other is not None:
        assert os.pread(other, 1 << 20, 0) == expected
        os.close(other)
    assert f.read_bytes() == expected
    back = dd("if=%s" % f, "of=%s" % (tmp_path / "back"), "iflag=direct")
    assert back.returncode == 0, back.stderr
    assert (tmp_path / "back").read_bytes() == expected
    # And a replacement, as dd makes it by itself.
    done = dd("if=%s" % source, "of=%s" % f, "oflag=direct")
    assert (done.returncode, f.read_bytes()) == (0, source.read_bytes()), done.stderr


@pytest.mark.parametrize("where", ["live", "epoch"])
def test_a_reader_whose_direct_is_taken_away_reads_any_range(mnt, where):
    data = os.urandom(3 * BLOCK + 17)
    (mnt.path / "f").write_bytes(data)
    f = mnt.path / "f"
    if where == "epoch":
        f = mnt.epoch(mnt.seal()) / "f"
        mnt.wait_durable()
        (mnt.path / "f").write_bytes(b"newer")
    with open(f, "rb") as holder:
        assert holder.read() == data
        fd = os.open(f, os.O_RDONLY | os.O_DIRECT)
        assert os.readv(fd, [page(b"0", 8)]) == len(data)
        take_direct_away(fd)
        assert os.pread(fd, 100, 5001) == data[5001:5101]
        os.close(fd)


@pytest.mark.parametrize("flags", [os.O_DIRECT, os.O_SYNC, os.O_DSYNC])
def test_mappings_and_descriptors_of_all_flags_show_the_same(mnt, flags):
    f = mnt.path / "f"
    f.write_bytes(b"0" * 2 * BLOCK)
    plain = os.open(f, os.O_RDWR)
    served = os.open(f, os.O_RDWR | flags)
    maps = [mmap.mmap(fd, 2 * BLOCK) for fd in (plain, served)]
    back = page(b"x", 2)

    def all_show(expected):
        for fd in (plain, served):
            os.preadv(fd, [back], 0)
            assert back[:] == expected
        for m in maps:
            assert m[:] == expected

    os.pwritev(served, [page(b"1")], 0)
    all_show(b"1" * BLOCK + b"0" * BLOCK)
    os.pwrite(plain, b"2" * BLOCK, BLOCK)
    all_show(b"1" * BLOCK + b"2" * BLOCK)
    maps[1][:5] = b"store"
    all_show(b"store" + b"1" * (BLOCK - 5) + b"2" * BLOCK)
    maps[0][BLOCK:BLOCK + 5] = b"other"
    os.pwritev(served, [page(b"3")], 0)
    all_show(b"3" * BLOCK + b"other" + b"2" * (BLOCK - 5))
    for m in maps:
        m.close()
    os.close(served), os.close(plain)
    assert f.read_bytes() == b"3" * BLOCK + b"other" + b"2" * (BLOCK - 5)


WRITER = """
import os, signal, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | int(sys.argv[2]), 0o644)
assert os.write(fd, b"kept" * 2000) == 8000
print("written", flush=True)
signal.pause()
"""


def writes_and_is_killed(path, flags):
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path, str(flags)], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"written\n"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()


@pytest.mark.parametrize("flags", [os.O_SYNC, os.O_DSYNC])
def test_what_was_written_synchronously_outlives_its_writer(mnt, flags):
    """Contract 1.2.4: it is as fsynced."""
    f = mnt.path / "f"
    writes_and_is_killed(f, flags)
    mnt.seal()
    assert f.read_bytes() == b"kept" * 2000
    assert mnt.torn() == []


def test_what_was_written_in_the_ordinary_way_does_not(mnt):
    f = mnt.path / "f"
    writes_and_is_killed(f, 0)
    wait_until(lambda: not f.exists(), "the new file of a killed writer to go")


def test_a_synchronous_open_of_a_file_that_others_write_syncs(mnt):
    """The kernel works on its backing file by then."""
    f = mnt.path / "f"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, f, "0"], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"written\n"
    writes_and_is_killed(f, os.O_DSYNC)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    mnt.seal()
    assert f.read_bytes() == b"kept" * 2000


@pytest.mark.options(supervise=True)
def test_direct_and_synchronous_descriptors_go_on_with_the_next_worker(mnt):
    f = mnt.path / "f"
    f.write_bytes(b"0" * 2 * BLOCK)
    holder = os.open(f, os.O_RDONLY)
    direct = os.open(f, os.O_RDWR | os.O_DIRECT)
    synced = os.open(f, os.O_RDWR | os.O_SYNC)
    os.writev(direct, [page(b"1")])
    before = mnt.status()
    os.kill(before["pid"], signal.SIGKILL)
    os.writev(direct, [page(b"2")])
    take_direct_away(direct)
    os.write(direct, b"tail")
    os.pwrite(synced, b"synced", 3 * BLOCK)
    assert os.pread(holder, 1 << 20, 0) == b"1" * BLOCK + b"2" * BLOCK + b"tail" + bytes(BLOCK - 4) + b"synced"
    for fd in (holder, direct, synced):
        os.close(fd)
    assert mnt.status()["restarts"] == before["restarts"] + 1
