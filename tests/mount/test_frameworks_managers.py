# SPDX-License-Identifier: Apache-2.0
"""How checkpoint managers (AdaptDL's, caffe2's, Ray's, KIT's) write a checkpoint, system call by system call where it matters: each makes
one epoch."""

import fcntl
import os
import shutil
import struct

import pytest

from conftest import python, run, wait_until
from framework_saves import is_whole, nothing_more, one_epoch_by_quiet, quickly, save_trainer, tensors
from test_contract_epochs import log_of


# ---- AdaptDL


def save_adaptdl(top, restarts):
    """Rank 0 writes _checkpoint/ and renames; ENOTEMPTY if the target is there; the others go."""
    temporary = top / "_checkpoint"
    temporary.mkdir(exist_ok=True)
    for state in ("model", "optimizer", "epoch"):
        with open(temporary / state, "wb") as f:
            f.write(tensors(5000))
    os.rename(temporary, top / ("checkpoint-%d" % restarts))
    for name in os.listdir(top):
        if name != "checkpoint-%d" % restarts and name.startswith("checkpoint-"):
            int(name.split("-")[1])
            shutil.rmtree(top / name)


def test_adaptdl(mnt):
    for restarts in range(3):
        save_adaptdl(mnt.path, restarts)
        one_epoch = restarts + 1
        wait_until(lambda: one_epoch in mnt.epochs(), "an epoch a save")
        nothing_more(mnt)
        record = log_of(mnt)[one_epoch]
        assert record["trigger"] == "rename" and record["step"] == restarts and record["complete"] is True
        assert len(os.listdir(mnt.epoch(one_epoch) / ("checkpoint-%d" % restarts))) == 3
    assert os.listdir(mnt.path) == ["checkpoint-2"]
    (mnt.path / "_checkpoint").mkdir()
    with pytest.raises(OSError) as error:
        os.rename(mnt.path / "_checkpoint", mnt.path / "checkpoint-2")
    assert error.value.errno == 39  # ENOTEMPTY


# ---- caffe2's CheckpointManager


@quickly
def test_caffe2_minidb(mnt):
    """fopen wb, ab, rb of <node>.<epoch>: epoch 0 comes before the training."""
    for epoch in (0, 1):
        with one_epoch_by_quiet(mnt, epoch + 1, epoch):
            for node in ("trainer", "reader"):
                for mode in ("wb", "ab"):
                    with open(mnt.path / ("%s.%d" % (node, epoch)), mode) as f:
                        f.write(struct.pack("<ii", 4, 10000) + b"blob" + tensors(10000))
        assert os.stat(mnt.path / ("trainer.%d" % epoch)).st_size == 2 * 10012


@quickly
def test_caffe2_leveldb(mnt):
    """A directory with LOCK by fcntl, a log, tables, CURRENT by rename."""
    for epoch in (0, 1):
        with one_epoch_by_quiet(mnt, epoch + 1, epoch):
            db = mnt.path / ("trainer.%d" % epoch)
            db.mkdir()
            lock = os.open(db / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (db / "MANIFEST-000001").write_bytes(tensors(100))
            (db / "000001.dbtmp").write_bytes(b"MANIFEST-000001\n")
            os.rename(db / "000001.dbtmp", db / "CURRENT")
            with open(db / "000003.log", "ab") as log:
                for _ in range(10):
                    log.write(tensors(1000))
                    log.flush()
            (db / "000005.ldb").write_bytes(tensors())
            (db / "LOG").write_bytes(b"started\n")
            fcntl.lockf(lock, fcntl.LOCK_UN)
            os.close(lock)
        with pytest.raises(FileExistsError):
            db.mkdir()


@quickly
def test_caffe2_lmdb(mnt):
    """A sparse map, written through a shared mapping, locks by fcntl."""
    lmdb = pytest.importorskip("lmdb")
    for epoch in (0, 1):
        with one_epoch_by_quiet(mnt, epoch + 1, epoch):
            with lmdb.open(os.fspath(mnt.path / ("trainer.%d" % epoch)), map_size=1 << 26, writemap=True) as env:
                with env.begin(write=True) as txn:
                    for i in range(200):
                        txn.put(b"blob%d" % i, os.urandom(500))
    # The map stays sparse, here and in the cache.
    assert sum(p.stat().st_blocks for p in mnt.cache.rglob("*") if p.name != "reserve") * 512 < 1 << 24
    with lmdb.open(os.fspath(mnt.epoch(2) / "trainer.1"), readonly=True, lock=False) as env:
        with env.begin() as txn:
            assert len(txn.get(b"blob199")) == 500 and txn.stat()["entries"] == 200


# ---- Ray, KIT


@quickly
def test_ray_copies_a_directory_and_waits(mnt, tmp_path):
    """In the directory's order: where the Trainer's last files are not the last to be copied, the epoch that is then sealed is continued."""
    before = 0
    for index in range(3):
        local = tmp_path / ("local%d" % index)
        save_trainer(local, index)
        (local / ".metadata.json").write_text("{}")
        shutil.copytree(local, mnt.path / ("checkpoint_%06d" % index))
        run("sync", mnt.epochs_dir)  # Ray: committed once wait() returns
        number = mnt.epochs()[-1]
        is_whole(mnt, number, index)
        assert not any(e["complete"] for n, e in log_of(mnt).items() if before < n < number)
        before = number
        assert os.getxattr(mnt.epoch(number), "user.epochfs.state") == b"durable"
    shutil.rmtree(mnt.path / "checkpoint_000000")
    nothing_more(mnt)


@quickly
def test_kit_saves_when_it_is_told_to_end(mnt):
    """On SIGTERM it saves, transfers and exits with 85: closed before, so it is no killed writer."""
    job = python("""
import os, shutil, signal, sys
def save(*_):
    with open(sys.argv[1] + "/checkpoint.tar", "wb") as f:
        f.write(b"x" * 100000)
    sys.exit(85)
signal.signal(signal.SIGTERM, save)
print("trains", flush=True)
signal.pause()
""", mnt.path)
    with one_epoch_by_quiet(mnt, 1):
        assert job.stdout.readline() == "trains\n"
        job.terminate()
        assert job.wait(timeout=60) == 85
        job.stdin.close()
        job.stdout.close()
    assert mnt.torn() == []
