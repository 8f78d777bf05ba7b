# SPDX-License-Identifier: Apache-2.0
"""What libraries keep in files, saved whole, interrupted and killed: PyTorch, HDF5, SQLite, LMDB."""

import contextlib
import os
import shutil
import signal
import sqlite3
import zipfile

import pytest

from conftest import BIN, LIMIT, python, run, wait_until
from test_contract_epochs import log_of


@contextlib.contextmanager
def killed_at_work(code, *arguments, **keywords):
    """A process that prints a line when it is in the middle of its work; it is killed there."""
    process = python(code, *arguments, **keywords)
    assert process.stdout.readline() == "at work\n"
    yield process
    process.kill()
    assert process.wait(timeout=60) == -signal.SIGKILL
    process.stdin.close()
    process.stdout.close()


# ---- PyTorch and HDF5


def test_torch_save_and_load(mnt):
    torch = pytest.importorskip("torch")
    state = {"w%d" % i: torch.randn(50, 50) for i in range(4)}
    path = mnt.path / "model.pt"
    for epoch in (1, 2):
        state["step"] = epoch
        torch.save(state, path)
        loaded = torch.load(path)
        assert loaded["step"] == epoch and all(torch.equal(loaded[k], state[k]) for k in state if k != "step")
        assert mnt.seal() == epoch
    assert [torch.load(mnt.epoch(e) / "model.pt")["step"] for e in (1, 2)] == [1, 2]
    assert all(e["complete"] for e in log_of(mnt).values())
    mnt.remount(empty_cache=True)
    assert torch.equal(torch.load(path)["w3"], state["w3"])


def test_a_mapped_load_outlives_the_file_that_replaces_it(mnt):
    """torch.load(mmap=True) and safetensors: private mappings of what is then saved again."""
    numpy = pytest.importorskip("numpy")
    path = mnt.path / "w.npy"
    old = numpy.arange(100000, dtype="f4")
    numpy.save(path, old)
    mapped = numpy.load(path, mmap_mode="c")
    mapped[0] = -1  # writable, and private
    numpy.save(path, old + 1)
    assert mapped[0] == -1 and (mapped[1:] == old[1:]).all()
    assert (numpy.load(path) == old + 1).all()
    mnt.seal()
    os.unlink(path)
    assert (mapped[1:] == old[1:]).all()


def test_a_killed_torch_save_leaves_the_last_good_file(mnt):
    path = mnt.path / "model.pt"
    path.write_bytes(b"good" * 10000)
    mnt.seal()
    with killed_at_work("""
import sys, zipfile
z = zipfile.ZipFile(sys.argv[1], "w")
for i in range(5):
    z.writestr("model/data/%d" % i, b"x" * 100000)
z.fp.flush()
print("at work", flush=True)
sys.stdin.read()
""", path):
        pass
    wait_until(mnt.torn, "the torn bytes")
    assert path.read_bytes() == b"good" * 10000


# torch.save that Ctrl-C reaches after so many records, of which the first is the pickle; with 0 it fails while it pickles.
INTERRUPTED = r"""
import os, signal, sys, torch

class Writer(torch._C.PyTorchFileWriter):
    records = 0

    def write_record(self, *args):
        super().write_record(*args)
        Writer.records += 1
        if Writer.records == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGINT)

class NotToBePickled:
    def __reduce__(self):
        raise KeyboardInterrupt

torch._C.PyTorchFileWriter = Writer
state = {"w%d" % i: torch.full((1000,), 2.) for i in range(20)}
if sys.argv[2] == "0":
    state["last"] = NotToBePickled()
try:
    torch.save(state, sys.argv[1])
except KeyboardInterrupt:
    sys.exit(5)
"""


@pytest.mark.rules("2")
@pytest.mark.parametrize("records", [0, 1, 8, 20])
@pytest.mark.options(keep="last:1", resume="off")
def test_an_interrupted_torch_save_is_torn(mnt, records):
    """It closes its archive in good order all the same. A replacement is not committed; a new file is, and its epoch is not whole."""
    torch = pytest.importorskip("torch")
    path, new = mnt.path / "model.pt", mnt.path / "new.pt"
    state = {"w%d" % i: torch.full((1000,), 1.) for i in range(20)}
    torch.save(state, path)
    assert mnt.seal() == 1
    whole = path.read_bytes()
    for written in (path, new):
        save = python(INTERRUPTED, written, str(records))
        out, _ = save.communicate(timeout=LIMIT)
        assert save.returncode == 5, out
        assert path.read_bytes() == whole
        (torn,) = mnt.torn()
        with zipfile.ZipFile(mnt.epochs_dir / "torn" / torn if written == path else new) as z:
            assert z.testzip() is None and 1 + records <= len(z.namelist()) <= 3 + records
    assert mnt.seal() == 2
    record = log_of(mnt)[2]
    assert record["complete"] is False and record["rule"] == "J1" and "new.pt" in record["reason"]
    mnt.wait_durable()
    assert int(os.readlink(mnt.epochs_dir / "latest")) == 1 and mnt.epochs() == [1, 2]
    assert run(BIN, "verify", mnt.path, "2", check=False).returncode == 6
    assert torch.equal(torch.load(mnt.epoch(1) / "model.pt")["w19"], state["w19"])
    torch.save(state, new)
    torch.save(state, path)
    assert mnt.seal() == 3
    assert log_of(mnt)[3]["complete"] is True


@pytest.mark.parametrize("form", ["zip", "protocol 4", "legacy", "script"])
def test_what_pytorch_wrote_to_its_end_is_whole(mnt, form):
    torch = pytest.importorskip("torch")
    path = mnt.path / "model.pt"
    weight = torch.randn(50, 50)
    if form == "script":
        torch.jit.script(torch.nn.Linear(3, 4)).save(str(path))
    else:
        state = {"0": weight, "1": weight[0], "2": torch.nn.Parameter(torch.ones(3)), "none": torch.empty(0)}
        torch.save(state, path, _use_new_zipfile_serialization=form != "legacy", pickle_protocol=4 if form == "protocol 4" else 2)
    assert mnt.seal() == 1
    assert log_of(mnt)[1]["complete"] is True
    assert run(BIN, "verify", mnt.path, "1", check=False).returncode == 0


def test_h5py(mnt):
    h5py = pytest.importorskip("h5py")
    path = mnt.path / "data.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=list(range(1000)), chunks=(100,), maxshape=(None,))
        f.attrs["step"] = 1
    first = mnt.seal()
    with h5py.File(path, "a") as f:
        f["x"].resize((2000,))
        f["x"][1000:] = list(range(1000, 2000))
        f["y/z"] = b"nested"
        f.attrs["step"] = 2
        # Edited in place: an epoch has it as it was last closed.
        (mnt.path / "other").touch()
        during = mnt.seal()
    last = mnt.seal()
    for number, step, count in ((first, 1, 1000), (during, 1, 1000), (last, 2, 2000)):
        with h5py.File(mnt.epoch(number) / "data.h5", "r") as f:
            assert f.attrs["step"] == step and list(f["x"]) == list(range(count))
    assert all(e["complete"] for e in log_of(mnt).values())


@pytest.mark.options(resume="off")
def test_h5py_killed_in_mid_write(mnt):
    """As on a disk: the file stays as the killed one left it, what an epoch has stays whole, the next one says so."""
    h5py = pytest.importorskip("h5py")
    path = mnt.path / "data.h5"
    with h5py.File(path, "w") as f:
        f["x"] = list(range(1000))
    good = mnt.seal()
    with killed_at_work("""
import sys, h5py
f = h5py.File(sys.argv[1], "a")
for i in range(20):
    f["more%d" % i] = list(range(5000))
f.flush()
print("at work", flush=True)
sys.stdin.read()
""", path):
        pass
    number = mnt.seal()
    assert number == good + 1 and log_of(mnt)[number]["complete"] is False
    assert os.readlink(mnt.epochs_dir / "latest") == "%06d" % good
    with h5py.File(mnt.epoch(good) / "data.h5", "r") as f:
        assert list(f) == ["x"] and list(f["x"]) == list(range(1000))


# ---- SQLite and LMDB


def check(path):
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return db.execute("SELECT count(*), coalesce(sum(n), 0) FROM t").fetchone()


@pytest.mark.parametrize("journal", ["delete", "truncate", "wal"])
def test_sqlite(mnt, journal):
    path = mnt.path / "study.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode = %s" % journal).fetchone() == (journal,)
        db.execute("CREATE TABLE t (n INTEGER, b BLOB)")
        for i in range(20):
            with db:
                db.executemany("INSERT INTO t VALUES (?, randomblob(500))", [(n,) for n in range(10)])
            if i % 5 == 0:
                mnt.seal()
        # A second process reads and writes beside it.
        other = python("""
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60)
with db:
    db.execute("INSERT INTO t VALUES (1000, NULL)")
print(db.execute("SELECT count(*) FROM t").fetchone()[0])
""", path)
        out, _ = other.communicate(timeout=60)
        assert out == "201\n"
        assert db.execute("SELECT count(*) FROM t").fetchone() == (201,)
    assert check(path) == (201, 20 * 45 + 1000)
    number = mnt.seal()
    shutil.copy(mnt.epoch(number) / "study.db", mnt.base / "copy.db")
    assert check(mnt.base / "copy.db") == (201, 20 * 45 + 1000)
    assert run("sqlite3", path, "SELECT count(*) FROM t").stdout == "201\n"


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite_killed_in_mid_write(mnt, journal):
    """What it committed is there, what it did not is not."""
    path = mnt.path / "study.db"
    with killed_at_work("""
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = %s" % sys.argv[2])
db.execute("PRAGMA cache_size = 10")  # so that the open transaction reaches the file
db.execute("CREATE TABLE t (n INTEGER, b BLOB)")
db.execute("BEGIN")
db.executemany("INSERT INTO t VALUES (?, randomblob(1000))", [(n,) for n in range(100)])
db.execute("COMMIT")
db.execute("BEGIN")
db.executemany("INSERT INTO t VALUES (?, randomblob(1000))", [(n,) for n in range(500)])
print("at work", flush=True)
sys.stdin.read()
""", path, journal):
        pass
    assert check(path) == (100, 4950)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO t VALUES (1, NULL)")
    assert check(path) == (101, 4951)
    mnt.remount()
    assert check(path) == (101, 4951)


def test_lmdb(mnt):
    lmdb = pytest.importorskip("lmdb")
    path = os.fspath(mnt.path / "db")
    for writemap in (False, True):
        with lmdb.open(path, map_size=1 << 26, writemap=writemap) as env:
            for i in range(5):
                with env.begin(write=True) as txn:
                    for j in range(50):
                        txn.put(b"%d-%d-%d" % (writemap, i, j), os.urandom(300))
            reader = python("""
import lmdb, sys
env = lmdb.open(sys.argv[1], readonly=True)
print(env.begin().stat()["entries"])
""", path)
            out, _ = reader.communicate(timeout=60)
            assert out == "%d\n" % (250 * (1 + writemap))
    number = mnt.seal()
    mnt.remount()
    for where in (path, os.fspath(mnt.epoch(number) / "db")):
        with lmdb.open(where, readonly=True, lock=False) as env, env.begin() as txn:
            assert txn.stat()["entries"] == 500 and len(txn.get(b"1-4-49")) == 300


def test_lmdb_killed_in_mid_write(mnt):
    lmdb = pytest.importorskip("lmdb")
    path = os.fspath(mnt.path / "db")
    with killed_at_work("""
import lmdb, os, sys
env = lmdb.open(sys.argv[1], map_size=1 << 26)
with env.begin(write=True) as txn:
    for i in range(100):
        txn.put(b"%d" % i, os.urandom(300))
txn = env.begin(write=True)
for i in range(100, 5000):
    txn.put(b"%d" % i, os.urandom(300))
print("at work", flush=True)
sys.stdin.read()
""", path):
        pass
    with lmdb.open(path, map_size=1 << 26) as env:
        with env.begin(write=True) as txn:
            assert txn.stat()["entries"] == 100
            txn.put(b"after", b"x")
        with env.begin() as txn:
            assert txn.get(b"after") == b"x"
