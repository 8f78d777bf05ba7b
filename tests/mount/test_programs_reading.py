# SPDX-License-Identifier: Apache-2.0
"""Programs that write while they only read (contract 1.2.10)."""

import os
import subprocess
import sys

import pytest

from conftest import BIN, run, wait_until
from retention import wait_settled
from test_contract_writing import log_of

H5 = """
import h5py, sys
with h5py.File(sys.argv[1], sys.argv[2]) as f:
    if sys.argv[2] == "w":
        f["x"] = [float(n + int(sys.argv[3])) for n in range(20000)]
    elif len(sys.argv) > 3:
        f["x"][19999] = float(sys.argv[3])
    assert len(f["x"][:]) == 20000
"""


def h5(path, *arguments):
    subprocess.run([sys.executable, "-c", H5, path, *arguments], check=True)


def epochs(mnt):
    return sorted(e["epoch"] for e in log_of(mnt))


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.options(settle="250ms", keep="last:3", patience="500ms")
def test_hdf5_that_is_opened_to_append_and_read_makes_no_epochs(mnt, durable):
    pytest.importorskip("h5py")
    path = mnt.path / "a.h5"
    if not durable:
        mnt.remount(keep=None)
    for number in (1, 2, 3):
        h5(path, "w", str(number))
        wait_until(lambda n=number: epochs(mnt) == list(range(1, n + 1)), "a save")
    if durable:
        wait_settled(mnt)
    for _ in range(4):
        before = os.stat(path)
        h5(path, "a")
        after = os.stat(path)
        assert after.st_mtime_ns > before.st_mtime_ns and after.st_ino == before.st_ino
        assert mnt.status()["pending"]["changes"] == "none"
    # What came then has the times; and what is written is written.
    h5(path, "a", "7")
    wait_until(lambda: max(epochs(mnt)) == 4, "the change")
    wait_settled(mnt)
    assert (mnt.epoch(4) / "a.h5").read_bytes() == path.read_bytes()
    wait_until(lambda: epochs(mnt) == ([2, 3, 4] if durable else [1, 2, 3, 4]), "the patience to end")
    mnt.remount(empty_cache=True)
    h5(path, "a")
    assert mnt.status()["pending"]["changes"] == "none"
    assert run(BIN, "verify", mnt.path, "latest").returncode == 0


@pytest.mark.options(settle="1h", durability="remote")
def test_where_each_close_waits_for_the_remote(mnt):
    path = mnt.path / "a"
    path.write_bytes(b"0123456789" * 10000)
    assert epochs(mnt) == [1]
    for _ in range(2):
        with open(path, "r+b") as f:
            f.write(b"0123456789")
    assert epochs(mnt) == [1]
    with open(path, "r+b") as f:
        f.write(b"9")
    assert epochs(mnt) == [1, 2]


@pytest.mark.options(settle="1h")
def test_who_seals_waits_for_the_look_at_the_bytes(mnt):
    """A change at the end of a large file is in the epoch of the next command."""
    path = mnt.path / "a"
    size = 300 << 20
    with open(path, "wb") as f:
        f.truncate(size)
        f.seek(size - 4)
        f.write(b"last")
    assert mnt.seal() == 1
    for number in range(2, 5):
        with open(path, "r+b") as f:
            f.seek(size // 3 + number)
            f.write(b"x")
        assert mnt.seal() == number
        with open(mnt.epoch(number) / "a", "rb") as f:
            f.seek(size // 3 + number)
            assert f.read(1) == b"x"
