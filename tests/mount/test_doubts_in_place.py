# SPDX-License-Identifier: Apache-2.0
"""What is half after a kill stays so until it is saved again whole: a change of a part of it, or beside it, settles nothing."""

import contextlib
import mmap
import os
import sqlite3
import sys

import pytest

from conftest import BIN, python, run, wait_until
from measure import await_tick
from test_contract_writing import Writer
from test_doubts import doubts, kill, latest, put, record

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")

SIZE = 1_000_000


def change_byte(path):
    with open(path, "r+b") as f:
        f.seek(77_777)
        f.write(b"x")


def append_byte(path):
    with open(path, "ab") as f:
        f.write(b"x")


def map_row(path):
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[8192:12288] = b"r" * 4096


def extend(path):
    os.truncate(path, 2 * SIZE)


def cut(path):
    os.truncate(path, 300_001)


def write_first_half(path):
    with open(path, "r+b") as f:
        f.write(b"3" * (SIZE // 2))


PARTS = {f.__name__: f for f in (change_byte, append_byte, map_row, extend, cut, write_first_half)}


def overwrite(path):
    with open(path, "r+b") as f:
        f.write(b"3" * SIZE)


def overwrite_backwards(path):
    with open(path, "r+b", buffering=0) as f:
        for at in reversed(range(0, SIZE, 100_000)):
            f.seek(at)
            f.write(b"3" * 100_000)


def overwrite_mapped(path):
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[:] = b"3" * SIZE


def empty_first(path):
    with open(path, "r+b") as f:
        f.truncate(0)
        f.write(b"3" * 10)


def replace(path):
    path.write_bytes(b"3" * SIZE)


def rename_over(path):
    path.with_name("new").write_bytes(b"3" * SIZE)
    path.with_name("new").rename(path)


WHOLE = {f.__name__: f for f in (overwrite, overwrite_backwards, overwrite_mapped, empty_first, replace, rename_over)}


@pytest.fixture
def torn(mnt):
    """Its first half is of a save in place that was killed."""
    path = mnt.path / "w.bin"
    path.write_bytes(b"1" * SIZE)
    assert mnt.seal() == 1
    Writer(path, "r+b", "2", SIZE // 2).end("kill")
    return path


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("how", PARTS)
def test_a_part_of_a_torn_file_is_changed(mnt, torn, how, sealed):
    if sealed:
        assert doubts(mnt, mnt.seal()) == {"w.bin": ("torn", True)}
    PARTS[how](torn)
    number = mnt.seal()
    assert doubts(mnt, number) == {"w.bin": ("torn", True)} and latest(mnt) == 1
    PARTS[how](torn)
    put(mnt.path / "notes", "x")
    number = mnt.seal()
    assert doubts(mnt, number) == {"w.bin": ("torn", True)} and latest(mnt) == 1
    run(BIN, "commit", "--whole", mnt.path)
    PARTS[how](torn)
    number = mnt.seal()
    assert "doubts" not in record(mnt, number) and latest(mnt) == number


@pytest.mark.parametrize("how", WHOLE)
def test_a_torn_file_is_saved_again_whole(mnt, torn, how):
    assert mnt.seal() == 2 and latest(mnt) == 1
    WHOLE[how](torn)
    assert mnt.seal() == 3 and latest(mnt) == 3 and "doubts" not in record(mnt, 3)


def test_a_torn_file_is_written_whole_while_another_reads_it(mnt, torn):
    with open(torn, "rb") as f:
        f.read(1)
        overwrite(torn)
        assert mnt.seal() == 2 and latest(mnt) == 2


def test_a_torn_file_is_changed_after_a_remount(mnt, torn):
    assert mnt.seal() == 2
    mnt.wait_durable()
    mnt.remount(empty_cache=True)
    change_byte(torn)
    assert doubts(mnt, mnt.seal()) == {"w.bin": ("torn", True)} and latest(mnt) == 1
    overwrite(torn)
    number = mnt.seal()
    assert latest(mnt) == number


def test_what_settles_it_is_told(mnt, torn):
    mnt.seal()
    assert "settled by saving it again whole or removing it, or by epochfs commit --whole" in run(BIN, "status", mnt.path).stdout


# ---- of a killed replacement, which is undone, and its companions


@pytest.fixture
def half(mnt):
    """Of a save of two files the first is new, the second as it was."""
    for name in "ab":
        (mnt.path / name).write_bytes(b"1" * SIZE)
    assert mnt.seal() == 1
    (mnt.path / "a").write_bytes(b"2" * SIZE)
    kill(mnt.path / "b")


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("how", PARTS)
def test_a_part_of_half_a_save_is_changed(mnt, half, name, how, sealed):
    if sealed:
        assert doubts(mnt, mnt.seal()) == {"b": ("undone", True)}
    for _ in range(2):
        PARTS[how](mnt.path / name)
        number = mnt.seal()
        assert doubts(mnt, number) == {"b": ("undone", True)} and latest(mnt) == 1
    assert record(mnt, number)["doubts"][0]["companions"] == ["a"]
    replace(mnt.path / "b")
    number = mnt.seal()
    assert latest(mnt) == number and "doubts" not in record(mnt, number)


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("how", WHOLE)
def test_half_a_save_is_saved_again_whole(mnt, half, name, how):
    assert mnt.seal() == 2 and latest(mnt) == 1
    WHOLE[how](mnt.path / name)
    assert mnt.seal() == 3 and latest(mnt) == 3 and "doubts" not in record(mnt, 3)


def test_a_database_beside_is_saved_again_by_a_transaction(mnt):
    def execute(command):
        with contextlib.closing(sqlite3.connect(mnt.path / "a.db")) as db, db:
            db.execute(command)

    execute("CREATE TABLE t (x)")
    put(mnt.path / "b", "1")
    assert mnt.seal() == 1
    execute("INSERT INTO t VALUES (1)")
    kill(mnt.path / "b")
    assert mnt.seal() == 2 and doubts(mnt, 2) == {"b": ("undone", True)}
    execute("INSERT INTO t VALUES (2)")
    assert mnt.seal() == 3 and latest(mnt) == 3


H5 = """
import os, signal, sys
import h5py, numpy
with h5py.File(sys.argv[1], sys.argv[2]) as f:
    for i in range(int(sys.argv[3])):
        if sys.argv[2] == "w":
            f.create_dataset("d%d" % i, data=numpy.full(50_000, 1.0))
        else:
            f["d%d" % i][:] = 2.0
    if sys.argv[4] == "kill":
        f.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[4] == "note":
        f.attrs["note"] = "x"
"""


def test_an_attribute_is_written_into_a_half_written_hdf5_file(mnt):
    pytest.importorskip("h5py")
    path = mnt.path / "m.h5"
    run(sys.executable, "-c", H5, path, "w", "10", "close")
    assert mnt.seal() == 1
    run(sys.executable, "-c", H5, path, "r+", "5", "kill", check=False)
    assert doubts(mnt, mnt.seal()) == {"m.h5": ("torn", True)}
    run(sys.executable, "-c", H5, path, "r+", "0", "note")
    assert doubts(mnt, mnt.seal()) == {"m.h5": ("torn", True)} and latest(mnt) == 1
    run(sys.executable, "-c", H5, path, "w", "10", "close")
    number = mnt.seal()
    assert latest(mnt) == number


def test_a_download_that_was_killed_is_completed(mnt):
    """The tail says what it lacks, so that to append it is enough."""
    header = b'{"a":{"dtype":"U8","shape":[1000000],"data_offsets":[0,1000000]}}'
    whole = len(header).to_bytes(8, "little") + header + b"1" * SIZE
    path = mnt.path / "m.safetensors"
    path.write_bytes(whole[:1000])
    assert doubts(mnt, mnt.seal()) == {"m.safetensors": ("torn", True)}
    script = "import os, signal, sys; f = open(sys.argv[1], 'r+b'); f.seek(1000); f.write(b'1' * 1000); f.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    run(sys.executable, "-c", script, path, check=False)
    assert doubts(mnt, mnt.seal()) == {"m.safetensors": ("torn", True)}
    with open(path, "ab") as f:
        f.write(whole[2000:])
    number = mnt.seal()
    assert path.read_bytes() == whole and latest(mnt) == number and "doubts" not in record(mnt, number)


# ---- of a mapping whose descriptor is closed


MAPPER = """
import ctypes, mmap, os, sys
path, flags, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
fd = os.open(path, os.O_RDWR | flags)
os.ftruncate(fd, size)
address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
assert address != ctypes.c_void_p(-1).value
os.close(fd)
print("mapped", flush=True)
sys.stdin.readline()
ctypes.memset(address, 50, int(sys.argv[4]))
print("stored", flush=True)
sys.exit(int(sys.stdin.readline()))
"""


class Mapper:
    def __init__(self, path, flags, stores):
        self.process = python(MAPPER, path, str(flags), str(SIZE), str(stores))
        assert self.process.stdout.readline() == "mapped\n"

    def store(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "stored\n"

    def end(self, how):
        if how == "kill":
            self.process.kill()
        else:
            self.process.stdin.write(how + "\n")
            self.process.stdin.flush()

    def wait(self):
        self.process.wait(timeout=60)
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.mark.parametrize("flags", [0, os.O_TRUNC], ids=["edit", "replace"])
@pytest.mark.parametrize("how", ["kill", "3"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_mapping_without_a_descriptor_whose_process_is_killed(mnt, flags, how, sealed):
    path = mnt.path / "w.bin"
    path.write_bytes(b"1" * SIZE)
    assert mnt.seal() == 1
    mapper = Mapper(path, flags, SIZE // 2)
    if sealed:
        mnt.seal()
    await_tick()
    mapper.store()
    mapper.end(how)
    # A replacement of which no copy was committed yet is undone.
    wait_until(lambda: doubts(mnt, mnt.seal()) or path.read_bytes() == b"1" * SIZE, "what the mapping left", limit=10)
    mapper.wait()
    number = mnt.seal()
    assert doubts(mnt, number) == ({} if path.read_bytes() == b"1" * SIZE else {"w.bin": ("torn", True)})
    path.write_bytes(b"3" * SIZE)
    number = mnt.seal()
    assert latest(mnt) == number and "doubts" not in record(mnt, number)


@pytest.mark.parametrize("stores, how", [(SIZE, "0"), (0, "kill"), (0, "3")])
def test_a_mapping_without_a_descriptor_that_is_whole(mnt, stores, how):
    path = mnt.path / "w.bin"
    path.write_bytes(b"1" * SIZE)
    assert mnt.seal() == 1
    mapper = Mapper(path, 0, stores)
    await_tick()
    mapper.store()
    mapper.end(how)
    mapper.wait()
    put(mnt.path / "notes", "x")
    wait_until(lambda: (mnt.epoch(mnt.seal()) / "w.bin").read_bytes() == (b"2" if stores else b"1") * SIZE, "what was mapped in an epoch")
    number = mnt.seal()
    assert latest(mnt) == number and "doubts" not in record(mnt, number)
