# SPDX-License-Identifier: Apache-2.0
"""Real programs on the mount."""

import contextlib
import fcntl
import hashlib
import mmap
import os
import random
import shutil
import signal
import sqlite3
import tarfile
import time
import zipfile

import pytest

from conftest import BIN, LIMIT, python, run, wait_until
from test_contract_epochs import log_of
from test_contract_writing import Writer


def digests(root):
    return {os.path.relpath(os.path.join(folder, n), root): hashlib.sha256(open(os.path.join(folder, n), "rb").read()).hexdigest()
            for folder, _, names in os.walk(root) for n in names if not os.path.islink(os.path.join(folder, n))}


def some_tree(top, seed=1):
    """A directory with what trees have: many files, links, modes, times."""
    dice = random.Random(seed)
    top.mkdir(parents=True, exist_ok=True)
    for i in range(8):
        folder = top / ("d%d" % (i // 2)) / ("e%d" % i)
        folder.mkdir(parents=True)
        for j in range(8):
            f = folder / ("file %d-%d" % (i, j))
            f.write_bytes(dice.randbytes(dice.choice([0, 1, 100, 5000, 70000])))
            os.chmod(f, dice.choice([0o600, 0o644, 0o755]))
            os.utime(f, ns=(10**18, dice.randrange(10**18, 16 * 10**17)))
    os.symlink("d0/e0", top / "link")
    os.link(top / "d0" / "e0" / "file 0-1", top / "hard")
    (top / "näme \n with everything \\ in it").write_text("x")
    with open(top / "sparse", "wb") as f:
        f.seek(1 << 20)
        f.write(b"end")
    return top


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
    """torch.load(mmap=True) and safetensors: private mappings of what is then saved anew."""
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


@pytest.mark.parametrize("records", [0, 1, 8, 20])
@pytest.mark.options(keep="last:1")
def test_an_interrupted_torch_save_is_torn(mnt, records):
    """It closes its archive in good order all the same."""
    torch = pytest.importorskip("torch")
    path = mnt.path / "model.pt"
    state = {"w%d" % i: torch.full((1000,), 1.) for i in range(20)}
    torch.save(state, path)
    assert mnt.seal() == 1
    save = python(INTERRUPTED, path, str(records))
    out, _ = save.communicate(timeout=LIMIT)
    assert save.returncode == 5, out
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None and 1 + records <= len(z.namelist()) <= 3 + records
    assert mnt.seal() == 2
    record = log_of(mnt)[2]
    assert record["complete"] is False and "model.pt" in record["reason"]
    mnt.wait_durable()
    assert int(os.readlink(mnt.epochs_dir / "latest")) == 1 and mnt.epochs() == [1, 2]
    assert run(BIN, "verify", mnt.path, "2", check=False).returncode == 6
    assert torch.equal(torch.load(mnt.epoch(1) / "model.pt")["w19"], state["w19"])
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


# ---- git, rsync, tar, cp


def git(*arguments, cwd):
    identity = {"GIT_%s_%s" % (who, what): "test@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return run("git", *arguments, cwd=cwd, env={"PATH": os.environ["PATH"], "HOME": os.fspath(cwd), **identity}).stdout


def test_git(mnt, tmp_path):
    origin = some_tree(tmp_path / "origin")
    os.unlink(origin / "sparse")
    git("init", "-q", "-b", "main", cwd=origin)
    git("add", "-A", cwd=origin)
    git("commit", "-q", "-m", "one", cwd=origin)
    git("clone", "-q", "--no-hardlinks", origin, "clone", cwd=mnt.path)
    clone = mnt.path / "clone"
    git("fsck", "--strict", cwd=clone)
    assert git("status", "--porcelain", cwd=clone) == ""
    (clone / "new").write_text("x")
    git("add", "new", cwd=clone)
    git("commit", "-q", "-m", "two", cwd=clone)
    git("gc", "-q", cwd=clone)
    git("checkout", "-q", "HEAD~1", cwd=clone)
    assert not (clone / "new").exists()
    git("checkout", "-q", "main", cwd=clone)
    git("fsck", "--strict", cwd=clone)
    number = mnt.seal()
    mnt.remount(empty_cache=True)
    assert git("status", "--porcelain", cwd=clone) == ""
    git("-c", "safe.directory=*", "fsck", cwd=mnt.epoch(number) / "clone")


def test_rsync_twice(mnt, tmp_path):
    source = some_tree(tmp_path / "source")
    target = mnt.path / "target"
    first = run("rsync", "-aHS", "--itemize-changes", "%s/" % source, "%s/" % target).stdout
    assert "file 0-1" in first
    assert run("rsync", "-aHS", "--itemize-changes", "%s/" % source, "%s/" % target).stdout == ""
    assert run("rsync", "-acH", "--itemize-changes", "%s/" % source, "%s/" % target).stdout == ""
    number = mnt.seal()
    mnt.remount(empty_cache=True)
    # Times, modes, links and bytes came back from the remote; an epoch is as good a source.
    assert run("rsync", "-acH", "--itemize-changes", "%s/" % source, "%s/" % target).stdout == ""
    back = tmp_path / "back"
    run("rsync", "-aH", "%s/target/" % mnt.epoch(number), "%s/" % back)
    assert run("rsync", "-acH", "--itemize-changes", "%s/" % source, "%s/" % back).stdout == ""


def test_tar(mnt, tmp_path):
    source = some_tree(tmp_path / "source")
    run("tar", "-C", tmp_path, "-cf", mnt.path / "a.tar", "source")
    run("tar", "-C", mnt.path, "-xpf", mnt.path / "a.tar")
    assert run("tar", "-C", mnt.path, "--compare", "-f", mnt.path / "a.tar").stdout == ""
    assert digests(mnt.path / "source") == digests(source)
    number = mnt.seal()
    with tarfile.open(mnt.epoch(number) / "a.tar") as t:
        assert len(t.getmembers()) == 64 + 1 + 4 + 8 + 4
    run("tar", "-C", mnt.epoch(number), "-cf", tmp_path / "b.tar", "source")
    assert run("tar", "-C", mnt.path, "--compare", "-f", tmp_path / "b.tar").stdout == ""


def test_cp(mnt, tmp_path):
    source = some_tree(tmp_path / "source")
    assert run("cp", "-a", source, mnt.path / "copy").stderr == ""
    assert digests(mnt.path / "copy") == digests(source)
    number = mnt.seal()
    victim = mnt.path / "copy" / "d0" / "e0" / "file 0-1"
    old = victim.read_bytes()
    victim.write_bytes(b"spoilt")
    # From an epoch onto the live file, and onto the live tree.
    assert run("cp", "-a", mnt.epoch(number) / "copy" / "d0" / "e0" / "file 0-1", victim).stderr == ""
    assert victim.read_bytes() == old
    shutil.rmtree(mnt.path / "copy" / "d1")
    (mnt.path / "copy" / "sparse").write_text("spoilt")
    assert run("cp", "-a", "--remove-destination", mnt.epoch(number) / "copy", mnt.path).stderr == ""
    assert digests(mnt.path / "copy") == digests(source)
    assert run("diff", "-r", "--no-dereference", mnt.epoch(number) / "copy", mnt.path / "copy").stdout == ""
    assert run("cp", "--reflink=auto", "--sparse=always", mnt.path / "copy" / "sparse", mnt.path / "again").stderr == ""
    assert (mnt.path / "again").read_bytes() == (source / "sparse").read_bytes()


def test_an_editor_saves(mnt):
    path = mnt.path / "notes.txt"
    path.write_text("one\ntwo\n")
    os.chmod(path, 0o640)
    first = mnt.seal()
    vi = shutil.which("vim") or shutil.which("vi")
    run(vi, "-Nes", "-u", "NONE", "-c", "set backup writebackup backupdir=. backupskip=", "-c", "%s/two/2/", "-c", "wq", path,
        stdin=open(os.devnull), cwd=mnt.path)
    assert path.read_text() == "one\n2\n" and os.stat(path).st_mode & 0o777 == 0o640
    assert (mnt.path / "notes.txt~").read_text() == "one\ntwo\n"
    assert not list(mnt.path.glob(".*.sw?"))
    run("sed", "-i", "s/one/1/", path)
    assert path.read_text() == "1\n2\n"
    number = mnt.seal()
    assert (mnt.epoch(number) / "notes.txt").read_text() == "1\n2\n"
    assert (mnt.epoch(first) / "notes.txt").read_text() == "one\ntwo\n"


# ---- locks, mappings, descriptors


LOCKER = """
import fcntl, os, sys
for _ in range(int(sys.argv[3])):
    fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    (fcntl.flock if sys.argv[4] == "flock" else fcntl.lockf)(fd, fcntl.LOCK_EX)
    with open(sys.argv[2]) as f:
        n = int(f.read())
    with open(sys.argv[2], "w") as f:
        f.write(str(n + 1))
    os.close(fd)
"""


@pytest.mark.parametrize("kind", ["flock", "fcntl"])
def test_two_lockers(mnt, kind):
    """A lock file opened O_RDWR|O_TRUNC by two processes stays one file: no update is lost."""
    (mnt.path / "counter").write_text("0")
    lockers = [python(LOCKER, mnt.path / "lock", mnt.path / "counter", "40", kind) for _ in range(2)]
    for locker in lockers:
        locker.communicate(timeout=100)
        assert locker.returncode == 0
    assert (mnt.path / "counter").read_text() == "80"


def test_a_lock_that_holds_a_pid(mnt):
    """It is not empty: opened O_TRUNC it would be another's version. Tools open it without, lock, then truncate."""
    path = mnt.path / "run.pid"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.ftruncate(fd, 0)
    os.write(fd, b"%d\n" % os.getpid())
    other = python("""
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("locked")
except BlockingIOError:
    print("held by", os.read(fd, 100).decode().strip())
""", path)
    out, _ = other.communicate(timeout=60)
    assert out == "held by %d\n" % os.getpid()
    os.close(fd)


def test_a_shared_mapping_that_outlives_the_close(mnt):
    path = mnt.path / "mapped"
    path.write_bytes(b"0" * 100000)
    before = mnt.seal()
    fd = os.open(path, os.O_RDWR)
    mapping = mmap.mmap(fd, 0)
    os.close(fd)
    mapping[:4] = b"late"
    assert path.read_bytes()[:4] == b"late"
    mnt.seal()
    mapping[50000:50004] = b"last"
    mapping.flush()
    assert path.read_bytes()[50000:50004] == b"last"
    assert (mnt.epoch(before) / "mapped").read_bytes() == b"0" * 100000
    mapping.close()

    def in_an_epoch():
        number = mnt.seal()
        data = (mnt.epoch(number) / "mapped").read_bytes()
        return data[:4] == b"late" and data[50000:50004] == b"last"

    wait_until(in_an_epoch, "what the mapping wrote in an epoch")
    mnt.remount()
    assert path.read_bytes()[50000:50004] == b"last"
    assert (mnt.epoch(before) / "mapped").read_bytes() == b"0" * 100000


def test_a_forked_child_that_keeps_the_descriptor(mnt):
    """A data loader's worker holds what its parent had open: only that file waits."""
    parent = python("""
import os, sys
f = open(sys.argv[1] + "/held.pt", "wb")
f.write(b"x" * 50000)
f.flush()
read, write = os.pipe()
if os.fork() == 0:
    os.close(write)
    os.read(read, 1)
    os._exit(0)
os.close(read)
f.close()
with open(sys.argv[1] + "/free.pt", "wb") as g:
    g.write(b"y")
print("closed", flush=True)
sys.stdin.readline()
os.close(write)
os.wait()
print("gone", flush=True)
sys.stdin.read()
""", mnt.path)
    assert parent.stdout.readline() == "closed\n"
    assert (mnt.path / "held.pt").read_bytes() == b"x" * 50000
    number = mnt.seal()
    assert os.listdir(mnt.epoch(number)) == ["free.pt"]
    assert any("held.pt" in line for line in mnt.status()["pending"]["open"])
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "gone\n"
    number = mnt.seal()
    assert (mnt.epoch(number) / "held.pt").read_bytes() == b"x" * 50000
    assert log_of(mnt)[number]["complete"] is True
    parent.communicate(timeout=60)
    assert parent.returncode == 0


# ---- another user

# Started in the mount: the directories above it may be closed to others.
AS_NOBODY = "import os\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n"


@pytest.mark.options(allow_other=True, settle="1h")
def test_a_writer_of_another_uid(mnt):
    os.chmod(mnt.path, 0o1777)
    (mnt.path / "roots").write_text("not yours")
    os.chmod(mnt.path / "roots", 0o644)
    (mnt.path / "secret").touch(mode=0o600)
    writer = python(AS_NOBODY + """
import errno
top = "."
def error(call, *arguments):
    try:
        call(*arguments)
        return "done"
    except OSError as e:
        return errno.errorcode[e.errno]
os.mkdir(top + "/mine")
with open(top + "/mine/model", "wb") as f:
    f.write(b"first")
with open(top + "/mine/model", "wb") as f:
    f.write(b"second")
print(error(open, top + "/roots", "r+b"), error(open, top + "/secret", "rb"), error(os.unlink, top + "/roots"),
      error(os.chmod, top + "/roots", 0o777), error(os.chown, top + "/mine/model", 0, 0),
      open(top + "/roots").read())
""", cwd=mnt.path)
    out, _ = writer.communicate(timeout=60)
    assert out == "EACCES EACCES EPERM EPERM EPERM not yours\n"
    st = os.stat(mnt.path / "mine" / "model")
    assert (st.st_uid, st.st_gid) == (65534, 65534) and (mnt.path / "mine" / "model").read_bytes() == b"second"
    number = mnt.seal()
    st = os.stat(mnt.epoch(number) / "mine" / "model")
    assert (st.st_uid, st.st_gid) == (65534, 65534)
    assert log_of(mnt)[number]["complete"] is True


@pytest.mark.options(allow_other=True, settle="1h")
def test_a_killed_writer_of_another_uid_commits_nothing(mnt):
    path = mnt.path / "model"
    path.write_bytes(b"good")
    os.chmod(path, 0o666)
    mnt.seal()
    with killed_at_work(AS_NOBODY + """
import sys
f = open("model", "wb")
f.write(b"x" * 50000)
f.flush()
print("at work", flush=True)
sys.stdin.read()
""", cwd=mnt.path):
        assert path.read_bytes() == b"good"
    wait_until(mnt.torn, "the torn bytes")
    assert path.read_bytes() == b"good"


def test_without_allow_other_the_mount_is_its_owners(mnt):
    other = python(AS_NOBODY + """
try:
    os.listdir(".")
except PermissionError:
    print("refused")
""", cwd=mnt.path)
    out, _ = other.communicate(timeout=60)
    assert out == "refused\n"


# ---- a shell


def test_a_shell_script(mnt):
    """Redirections close and reopen: each is whole for those that come after it."""
    run("sh", "-euc", """
        cd "$1"
        (echo a; echo b) > f
        echo c >> f
        test "$(cat f)" = "$(printf 'a\\nb\\nc')"
        sort -r f > g && mv g f
        test "$(head -1 f)" = c
        for i in 1 2 3 4 5 6 7 8 9 10; do echo $i > n; test "$(cat n)" = $i; done
        mkdir -p x/y && cp f x/y/ && ln -s x/y/f s && test "$(cat s)" = "$(cat f)"
        yes | head -c 1000000 | dd of=big bs=4k 2>/dev/null && test $(wc -c < big) = 1000000
        truncate -s 10 big && test $(stat -c %s big) = 10
        rm -r x && ! cat s 2>/dev/null
        find . -type f | wc -l
    """, "sh", mnt.path)
    number = mnt.seal()
    assert sorted(os.listdir(mnt.epoch(number))) == ["big", "f", "n", "s"]
    assert mnt.torn() == []


def test_times_move_forward(mnt):
    """make and ninja compare the times of what they write with one another."""
    (mnt.path / "a.c").write_text("x")
    before = time.time_ns()
    for i in range(20):
        (mnt.path / "a.o").write_text(str(i))
        assert os.stat(mnt.path / "a.o").st_mtime_ns >= os.stat(mnt.path / "a.c").st_mtime_ns
        (mnt.path / "a.c").write_text(str(i))
        assert os.stat(mnt.path / "a.c").st_mtime_ns >= os.stat(mnt.path / "a.o").st_mtime_ns
    # A file's time is that of the kernel's clock, which ticks.
    assert os.stat(mnt.path / "a.c").st_mtime_ns >= before - 10**9


def test_a_reader_of_a_directory_that_is_written(mnt):
    """find and ls meet each name once that is there all the time."""
    for i in range(300):
        (mnt.path / ("stays%d" % i)).touch()
    writer = python("""
import os, sys
print("writes", flush=True)
i = 0
while not os.path.exists(sys.argv[1] + "/stop"):
    open(sys.argv[1] + "/comes%d" % (i % 50), "wb").close()
    os.unlink(sys.argv[1] + "/comes%d" % (i % 50))
    i += 1
""", mnt.path)
    assert writer.stdout.readline() == "writes\n"
    for _ in range(30):
        names = [n for n in os.listdir(mnt.path) if n.startswith("stays")]
        assert len(names) == 300 and len(set(names)) == 300
    (mnt.path / "stop").touch()
    writer.communicate(timeout=60)
    assert writer.returncode == 0


def test_a_log_and_tail(mnt):
    """tail -f reads what another process appends."""
    path = mnt.path / "train.log"
    path.touch()
    reader = python("""
import os, sys, time
print("reads", flush=True)
with open(sys.argv[1]) as f:
    seen = ""
    while not seen.endswith("end\\n"):
        seen += f.read()
        time.sleep(0.01)
print(len(seen))
""", path)
    assert reader.stdout.readline() == "reads\n"
    writer = Writer(path, mode="ab", data="line\n", times=100)
    writer.leave()
    with open(path, "a") as f:
        f.write("end\n")
    out, _ = reader.communicate(timeout=60)
    assert out == "504\n"
