# SPDX-License-Identifier: Apache-2.0
"""The limits that epochfs keeps: bytes stored, memory, numbers of requests, times.

Times are set against a reference of the same run, turn by turn, and the least of each counts (of waits at a seal, the median): so a busy machine is no failure,
and what misses the limit is. tests/bench/limits.py has the exact ones, for a quiet machine.
"""

import contextlib
import hashlib
import os
import pathlib
import subprocess
import threading
import time

import pytest

from conftest import BIN, LIMIT, python, run, wait_until
from measure import MIB, Writer, answers, counted, cpu, least, list_long, list_sizes, middle, peak_memory, save_many, seconds, stored, write

SANITIZED = bool(os.environ.get("EPOCHFS_TEST_SAN"))
SLOWER = 4 if SANITIZED else 1  # a sanitizer slows the daemon down, the reference not

no_memory_limit = pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not the daemon's")


def settle(mnt):
    mnt.seal()
    mnt.wait_durable()


@contextlib.contextmanager
def holding(path):
    p = python("import sys\nf = open(sys.argv[1], 'w')\nprint('open')\nsys.stdin.read()", path)
    try:
        assert p.stdout.readline() == "open\n"
        yield
    finally:
        p.communicate(timeout=LIMIT)


def test_closing_copies_nothing(mnt):
    size, block = 256 * MIB, os.urandom(MIB)
    below, here = mnt.base / "below", mnt.path / "f"

    def written_below():
        return seconds(lambda: os.close(write(below, size, block)))

    def closed_here():  # new first, then in place of a committed one
        fd = write(here, size, block)
        before = counted(mnt.pid, "wchar")
        took = seconds(lambda: (os.close(fd), os.stat(here)))
        assert counted(mnt.pid, "wchar") - before < MIB
        return took

    # Another process has it open, so that no epoch is to keep what is replaced; beside our own saves it would be output.
    with holding(mnt.path / "busy"):
        copying, closing = least(written_below, closed_here, times=4)
        below.unlink()
        print("closing took %.4f s, writing the same on the disk %.4f s" % (closing, copying))
        assert closing < SLOWER * copying / 4
        # What was replaced is gone.
        (folder,) = mnt.cache.glob("*/objects")
        wait_until(lambda: sum(p.stat().st_blocks for p in folder.iterdir()) * 512 < size + 32 * MIB,
                   "what was replaced to be removed")


def test_one_changed_byte(mnt):
    size = 256 * MIB
    os.close(write(mnt.path / "f", size, os.urandom(size)))
    settle(mnt)
    before = stored(mnt)
    assert before >= size // 2
    with open(mnt.path / "f", "r+b") as f:
        f.seek(size // 3)
        old = f.read(1)
        f.seek(size // 3)
        f.write(bytes([old[0] ^ 1]))
    settle(mnt)
    assert 0 < stored(mnt) - before < 8 * MIB


def test_identical_data_is_stored_once(mnt):
    data = os.urandom(24 * MIB)
    (mnt.path / "a").write_bytes(data)
    (mnt.path / "b").write_bytes(data)  # in another file
    settle(mnt)
    once = stored(mnt)
    assert len(data) <= once < len(data) + MIB
    (mnt.path / "d").mkdir()
    run("cp", mnt.path / "a", mnt.path / "d" / "c")  # in another epoch, by another process
    (mnt.path / "a").write_bytes(data)  # again, in place of itself
    settle(mnt)
    assert stored(mnt) - once < MIB
    mnt.remount(empty_cache=True)  # another daemon, which knows only the remote
    (mnt.path / "e").write_bytes(data)
    settle(mnt)
    assert stored(mnt) - once < MIB
    assert (mnt.path / "e").read_bytes() == data


@no_memory_limit
def test_memory_does_not_grow_with_files_sizes(mnt):
    block = os.urandom(32 * MIB)

    def save(name, size):
        """Random blocks, no two alike, and every second one a hole."""
        with open(mnt.path / name, "wb", buffering=0) as f:
            for at in range(0, size, 64 * MIB):
                f.seek(at)
                f.write((name + str(at)).encode().ljust(64))
                f.write(block[64:])
            f.truncate(size)

    save("big", 512 * MIB)
    threads = [threading.Thread(target=save, args=("f%d" % i, 128 * MIB)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    settle(mnt)
    assert peak_memory(mnt.pid) < 200 * MIB
    with open(mnt.path / "big", "rb") as f:
        before = hashlib.file_digest(f, "sha256").digest()
    mnt.remount(empty_cache=True)
    with open(mnt.path / "big", "rb") as f:
        assert hashlib.file_digest(f, "sha256").digest() == before
    assert peak_memory(mnt.pid) < 200 * MIB


@no_memory_limit
def test_memory_of_many_files(mnt):
    """A fifth of the 100,000 files that 400 MiB are for; most of them small enough for the tree itself."""
    for d in range(4):
        save_many(mnt.path / ("d%d" % d), 1500, "%%d %s" % ("x" * (1000 * d)))
    number = mnt.seal()
    mnt.wait_durable()
    list_long(mnt.epoch(number) / "d0")
    (mnt.path / "d0" / "f000000").write_text("changed")
    settle(mnt)
    mnt.rollback(number)
    assert peak_memory(mnt.pid) < 200 * MIB
    mnt.remount(empty_cache=True)
    assert len(os.listdir(mnt.path / "d3")) == 1500
    assert peak_memory(mnt.pid) < 200 * MIB


def ask(path, count):
    """So many requests that carry next to nothing, and that the kernel always asks."""
    for _ in range(count):
        os.statvfs(path)


def computed(mnt, call):
    """Seconds that the daemon computes for a call: the kernel counts hundredths, so as many calls as make a few tenths."""
    before = cpu(mnt.pid)
    calls = 0
    while calls < 3 or cpu(mnt.pid) - before < 0.3 and calls < 300:
        call()
        calls += 1
    return (cpu(mnt.pid) - before) / calls


def test_listing_takes_few_requests(mnt):
    count = 2000
    folder = mnt.path / "d"
    save_many(folder, count)
    number = mnt.seal()
    # The names of a file's attributes in an epoch are more than what ls first makes room for.
    # Below the number without zeros the kernel reads the link for each path.
    for path, most, attributes in ((folder, 0.2, 1), (mnt.epoch(number) / "d", 0.2, 2), (mnt.epochs_dir / str(number) / "d", 1.2, 4)):
        list_sizes(path)
        before = answers(mnt.pid)
        list_sizes(path)
        between = answers(mnt.pid)
        assert between - before < most * count + 100, path
        list_long(path)  # since coreutils 9.6 it asks for the names of each file's attributes, which the kernel never keeps of FUSE
        asked = answers(mnt.pid) - between
        assert asked < (most + attributes) * count + 100, path
        # No clock, which runs while others compute: what the daemon computes for one of these, and for a request that carries nothing. A
        # request for attributes takes about five times as much as that, and a file in a listing less than one.
        listing = computed(mnt, lambda: list_long(path))
        empty = computed(mnt, lambda: ask(mnt.path, 5 * count)) / (5 * count)
        print("listing took %.2f ms of the daemon, an empty request %.1f us" % (listing * 1e3, empty * 1e6))
        assert listing < SLOWER * empty * (10 * asked + 1.2 * count), path


def test_sealing_blocks_no_writer(mnt):
    save_many(mnt.path / "d", 3000)
    settle(mnt)
    sealed = []

    def longest_wait(what):
        with Writer(mnt.path) as writer:
            wait_until(lambda: writer.count > 20, "the writer to be under way")
            took = seconds(what)
            after = writer.count
            wait_until(lambda: writer.count > after + 20, "the writer to go on")
        return writer.worst, took

    def at_a_seal():
        for i in range(10):
            (mnt.path / "d" / ("f%06d" % i)).write_text("changed %d" % i)
        worst, took = longest_wait(lambda: sealed.append(mnt.seal()))
        at_a_seal.took = took
        return worst

    # Without one, for as long. A seal of these files takes some 20 to 60 ms.
    waiting, idle = middle(at_a_seal, lambda: longest_wait(lambda: time.sleep(at_a_seal.took))[0])
    print("the longest wait at a seal was, at the median, %.4f s, else %.4f s" % (waiting, idle))
    assert waiting < SLOWER * max(0.03, 5 * idle)
    assert (mnt.epoch(sealed[0]) / "d" / "f000003").read_text() == "changed 3"


def test_many_epochs(mnt):
    for i in range(300):
        (mnt.path / ("f%d" % (i % 10))).write_text(str(i))
        mnt.seal()
    before = answers(mnt.pid)
    list_sizes(mnt.epochs_dir)
    between = answers(mnt.pid)
    assert between - before < 3 * 300
    list_long(mnt.epochs_dir)
    assert answers(mnt.pid) - between < 4 * 300
    log = run(BIN, "log", mnt.path).stdout
    assert all(str(n) in log for n in (1, 150, 300))

    def takes(*words):
        return lambda: seconds(lambda: subprocess.run([os.fspath(word) for word in words], stdout=subprocess.DEVNULL, check=True))

    # A second for 1,000 of them, where a program that does nothing takes 5 ms.
    for command in (["ls", mnt.epochs_dir], ["ls", "-l", mnt.epochs_dir], [BIN, "log", mnt.path]):
        here, there = least(takes(*command), takes(BIN, "version"))
        print("%s took %.4f s, a program that does nothing %.4f s" % (command, here, there))
        assert here < 60 * there, command


# ---- limits in bytes a second


@pytest.mark.parametrize("kind", ["directory", "program"])
def test_transfers_take_the_time_that_a_limit_gives_them(tmp_path, kind):
    """Of every kind of remote. Only that it is not quicker is looked at: a busy machine makes it slower."""
    size, rate = 4 * MIB, 2 * MIB
    program = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "examples" / "exec-directory"
    remote = tmp_path / "remote" if kind == "directory" else "exec:%s %s" % (program, tmp_path / "remote")
    (tmp_path / "source").mkdir()
    (tmp_path / "remote").mkdir()
    (tmp_path / "source" / "model").write_bytes(os.urandom(size))
    least = (size - MIB) / rate  # a tenth of a second may be saved up, and its last piece be on its way
    options = ("-o", "min-free=0,cache-dir=%s" % (tmp_path / "cache"))
    up = seconds(lambda: run(BIN, "import", *options, tmp_path / "source", remote, env={**os.environ, "EPOCHFS_UPLOAD_LIMIT": str(rate)}))
    assert up > least
    down = seconds(lambda: run(BIN, "export", remote, tmp_path / "out", env={**os.environ, "EPOCHFS_DOWNLOAD_LIMIT": str(rate)}))
    assert down > least
    assert (tmp_path / "out" / "model").read_bytes() == (tmp_path / "source" / "model").read_bytes()


def test_a_mount_keeps_its_upload_limit(volume):
    volume.mount(settle="1h", upload_limit="2M")
    (volume.path / "model").write_bytes(os.urandom(4 * MIB))
    assert seconds(lambda: settle(volume)) > 1.5
    # An unmount does not wait for what is limited.
    (volume.path / "more").write_bytes(os.urandom(64 * MIB))
    volume.seal()
