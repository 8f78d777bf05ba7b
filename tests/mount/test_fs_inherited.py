# SPDX-License-Identifier: Apache-2.0
"""A file is closed once the process that opened it has closed it, whoever has inherited the descriptor (contract 1.2.3)."""

import os
import signal
import sys

import pytest

from conftest import BIN, python, run, wait_until
from inherited import Trainer

OLD = b"old" * 1000


@pytest.fixture
def trainer():
    with Trainer() as t:
        yield t


def log_of(mnt):
    return mnt.request("log")["epochs"]


def objects(mnt):
    return sum(len(files) for folder, _, files in os.walk(mnt.cache) if folder.endswith("/objects"))


@pytest.mark.parametrize("name", ["new", "replaced"])
def test_what_is_closed_is_seen_and_sealed_while_a_worker_has_it(mnt, trainer, name):
    path = mnt.path / name
    if name == "replaced":
        path.write_bytes(OLD)
        mnt.seal()
    trainer.save(path, "new")
    assert path.read_bytes() == b"new" * 1000
    number = mnt.seal()
    assert (mnt.epoch(number) / name).read_bytes() == b"new" * 1000
    assert os.readlink(mnt.epochs_dir / "latest") == "%06d" % number
    assert any(str(trainer.workers[0]) in word for word in mnt.status()["pending"]["open"])


def test_a_seal_takes_it_without_a_look(mnt, trainer):
    """Who seals asks for no name."""
    (mnt.path / "f").write_bytes(OLD)
    mnt.seal()
    trainer.save(mnt.path / "f", "new")
    assert (mnt.epoch(mnt.seal()) / "f").read_bytes() == b"new" * 1000


@pytest.mark.parametrize("end", ["end", signal.SIGKILL])
def test_the_end_of_the_worker_changes_nothing(mnt, trainer, end):
    path = mnt.path / "f"
    path.write_bytes(OLD)
    mnt.seal()
    trainer.save(path, "new")
    number, inode = mnt.seal(), path.stat().st_ino
    trainer.end_worker(0, end)
    wait_until(lambda: not mnt.status()["pending"]["open"], "the release")
    assert mnt.seal() == number
    assert path.read_bytes() == b"new" * 1000 and path.stat().st_ino == inode
    assert log_of(mnt)[-1]["complete"] is True and mnt.torn() == []
    mnt.remount()
    assert path.read_bytes() == b"new" * 1000
    assert len(mnt.epochs()) == number


def test_a_worker_that_is_killed_before_anybody_looks_spoils_nothing(mnt, trainer):
    path = mnt.path / "f"
    path.write_bytes(OLD)
    trainer.save(path, "new")
    trainer.end_worker(0, signal.SIGKILL)
    assert path.read_bytes() == b"new" * 1000
    mnt.seal()
    assert log_of(mnt)[-1]["complete"] is True and mnt.torn() == []


@pytest.mark.parametrize("forks", ["once", "each time"])
def test_later_saves_in_place_are_seen_too(mnt, trainer, forks):
    path = mnt.path / "latest.pt"
    for i in range(8):
        trainer.save(path, "save%d" % i, forks=not i or forks == "each time")
        assert path.read_bytes() == b"save%d" % i * 1000
        if i % 2:
            assert (mnt.epoch(mnt.seal()) / "latest.pt").read_bytes() == b"save%d" % i * 1000
    number = mnt.seal()
    for worker in range(len(trainer.workers)):
        trainer.end_worker(worker, signal.SIGTERM)
        assert path.read_bytes() == b"save7" * 1000
    wait_until(lambda: not mnt.status()["pending"]["open"], "the releases")
    assert mnt.seal() == number
    assert all(e["complete"] for e in log_of(mnt))


def test_what_the_worker_has_is_opened_and_changed_in_part(mnt, trainer):
    """As h5py goes on with a file: each of its closes counts."""
    path = mnt.path / "f"
    trainer.save(path, "x")
    for i in range(1, 4):
        trainer.tell("open", path, "r+b")
        trainer.tell("write", "%d" % i, 10)
        trainer.tell("close")
        assert (mnt.epoch(mnt.seal()) / "f").read_bytes() == b"%d" % i * 10 + b"x" * 990
    assert len(mnt.epochs()) == 3
    run(sys.executable, "-c", "import os, sys; os.truncate(sys.argv[1], 500)", path)
    assert (mnt.epoch(mnt.seal()) / "f").read_bytes() == b"3" * 10 + b"x" * 490
    number = mnt.seal()
    trainer.end_worker()
    wait_until(lambda: not mnt.status()["pending"]["open"], "the release")
    assert path.read_bytes() == b"3" * 10 + b"x" * 490
    assert mnt.seal() == number


@pytest.mark.parametrize("name", ["final", "temporary"])
def test_a_save_under_a_temporary_name(mnt, trainer, name):
    """The rename seals, with what was closed before it."""
    path = mnt.path / "model.pt"
    path.write_bytes(OLD)
    mnt.seal()
    trainer.save(mnt.path / "model.pt.tmp", "new")
    os.rename(mnt.path / "model.pt.tmp", path)
    number = wait_until(lambda: len(mnt.epochs()) == 2 and 2, "the epoch of the rename")
    assert (mnt.epoch(number) / "model.pt").read_bytes() == b"new" * 1000
    if name == "temporary":
        trainer.save(mnt.path / "model.pt.tmp", "newer", forks=False)
        os.rename(mnt.path / "model.pt.tmp", path)
    trainer.end_worker(0, signal.SIGKILL)
    assert path.read_bytes() == (b"newer" if name == "temporary" else b"new") * 1000
    assert all(e["complete"] for e in log_of(mnt))


def test_what_the_worker_writes_later_changes_no_epoch(mnt, trainer):
    path = mnt.path / "f"
    path.write_bytes(OLD)
    mnt.seal()
    trainer.save(path, "new")
    number = mnt.seal()
    trainer.tell("tell", 0, "write", "more")
    assert (mnt.epoch(number) / "f").read_bytes() == b"new" * 1000
    assert path.read_bytes() == b"new" * 1000 + b"more"
    mnt.seal()
    assert (mnt.epoch(number) / "f").read_bytes() == b"new" * 1000
    trainer.end_worker()
    last = wait_until(lambda: mnt.seal() > number and mnt.seal(), "what the worker wrote")
    assert (mnt.epoch(last) / "f").read_bytes() == b"new" * 1000 + b"more"
    assert (mnt.epoch(number) / "f").read_bytes() == b"new" * 1000


def test_nothing_is_copied_again_for_who_asks(mnt, trainer):
    path = mnt.path / "f"
    trainer.save(path, "new")
    path.stat()
    before = objects(mnt)
    for _ in range(20):
        assert path.read_bytes() == b"new" * 1000
        mnt.seal()
    assert objects(mnt) == before
    assert len(mnt.epochs()) == 1


@pytest.mark.options(settle="1s")
def test_an_epoch_comes_by_itself_though_nobody_asks(mnt, trainer):
    (mnt.path / "f").write_bytes(OLD)
    wait_until(lambda: len(mnt.epochs()) == 1, "the first epoch")
    trainer.save(mnt.path / "f", "new")
    number = wait_until(lambda: len(mnt.epochs()) == 2 and 2, "the epoch of what was closed")
    assert (mnt.epoch(number) / "f").read_bytes() == b"new" * 1000


def test_wait_and_an_export_have_it(mnt, trainer, tmp_path):
    (mnt.path / "f").write_bytes(OLD)
    mnt.wait_durable()
    trainer.save(mnt.path / "f", "new")
    mnt.wait_durable()
    run(BIN, "export", mnt.url + "@latest", tmp_path / "out")
    assert (tmp_path / "out" / "f").read_bytes() == b"new" * 1000


THREAD_SAVES = """
import os, sys, threading
os.environ["HDF5_USE_FILE_LOCKING"] = "FALSE"  # the worker inherits the lock, too: as on any disk
import h5py, numpy

path = sys.argv[1]
opened, forked = threading.Event(), threading.Event()

def save():
    with h5py.File(path, "w") as f:
        f["w"] = numpy.arange(10000)
        opened.set(); forked.wait()
        f["step"] = 1

t = threading.Thread(target=save)
t.start(); opened.wait()
read, write = os.pipe()
pid = os.fork()
if not pid:
    os.close(write); os.read(read, 1); os._exit(0)
forked.set(); t.join()
print("saved", flush=True)
sys.stdin.readline()
with h5py.File(path, "a") as f:
    f["step"][...] = 2
print("saved", flush=True)
sys.stdin.readline()
os.close(write); os.waitpid(pid, 0)
"""


def test_a_thread_saves_hdf5_while_workers_are_forked(mnt):
    pytest.importorskip("h5py")
    path = mnt.path / "model.h5"
    p = python(THREAD_SAVES, path)
    for step in (1, 2):
        assert p.stdout.readline() == "saved\n"
        number = mnt.seal()
        code = "import h5py, sys; print(h5py.File(sys.argv[1])['step'][()], len(h5py.File(sys.argv[1])['w']))"
        assert run(sys.executable, "-c", code, mnt.epoch(number) / "model.h5").stdout == "%d 10000\n" % step
        assert os.readlink(mnt.epochs_dir / "latest") == "%06d" % number
        p.stdin.write("\n")
        p.stdin.flush()
    assert p.wait(timeout=60) == 0
    p.stdout.close()
    p.stdin.close()


# ---- killed writers


@pytest.mark.parametrize("name", ["new", "replaced"])
def test_the_save_of_a_killed_writer_is_undone_while_its_worker_lives(mnt, trainer, name):
    path = mnt.path / name
    if name == "replaced":
        path.write_bytes(OLD)
        mnt.seal()
    trainer.tell("open", path, "wb")
    trainer.tell("write", "half", 100)
    trainer.fork()
    trainer.kill()
    if name == "new":
        assert not path.exists()
    else:
        assert path.read_bytes() == OLD
    assert len(mnt.torn()) == 1
    trainer.end_worker(0, signal.SIGTERM)
    assert path.exists() == (name == "replaced")


@pytest.mark.parametrize("mode", ["wb", "fsynced", "w+b", "r+b"])
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_an_orphan_worker_of_a_killed_job_spoils_nothing_of_the_next(mnt, trainer, mode, end):
    """Both save under one temporary name. The worker ends after the requeued job has saved."""
    path, tmp = mnt.path / "model.pt", mnt.path / "model.pt.tmp"
    if mode == "r+b":
        tmp.write_bytes(OLD)
    path.write_bytes(OLD)
    mnt.seal()
    trainer.tell("open", tmp, "wb" if mode == "fsynced" else mode)
    trainer.tell("write", "half", 100)
    if mode == "fsynced":
        trainer.tell("fsync")
    trainer.fork()
    trainer.kill()
    with Trainer() as requeued:
        requeued.save(tmp, "whole", forks=False)
        os.rename(tmp, path)
        assert path.read_bytes() == b"whole" * 1000
        number = mnt.seal()
        assert log_of(mnt)[-1]["complete"] is True, log_of(mnt)[-1]
        trainer.end_worker(0, end)
        assert path.read_bytes() == b"whole" * 1000
        wait_until(lambda: not mnt.status()["pending"]["open"], "the release")
        assert mnt.seal() == number
    assert log_of(mnt)[-1]["complete"] is True
    mnt.remount()
    assert path.read_bytes() == b"whole" * 1000 and not tmp.exists()


# ---- what is given away


@pytest.mark.parametrize("old", [None, OLD], ids=["new", "replaced"])
def test_a_file_that_is_handed_over_empty_is_closed_by_who_writes_it(mnt, old):
    """subprocess.Popen(command, stdout=open(path, "wb")): the one that opened it wrote nothing."""
    # Who has it is found by its name, also among the processes of other tests.
    name = "out-%d.zst" % mnt.pid
    path = mnt.path / name
    if old:
        path.write_bytes(old)
        mnt.seal()
    code = """
import subprocess, sys
p = subprocess.Popen(["sh", "-c", "read x; printf half; read x; printf whole; read x"], stdout=open(sys.argv[1], "wb"), stdin=0)
print(p.pid, flush=True)
p.wait()
"""
    p = python(code, path)
    child = int(p.stdout.readline())
    (mnt.path / "other").write_bytes(b"x")
    for _ in range(2):
        if old:
            assert path.read_bytes() == old
        number = mnt.seal()
        assert (mnt.epoch(number) / name).exists() == bool(old)
        assert any(str(child) in word for word in mnt.status()["pending"]["open"])
        (mnt.path / "other").write_bytes(b"y")
        p.stdin.write("\n")
        p.stdin.flush()
    p.communicate("\n", timeout=60)
    assert wait_until(lambda: path.read_bytes() == b"halfwhole", "what the child wrote")
    assert (mnt.epoch(mnt.seal()) / name).read_bytes() == b"halfwhole"
