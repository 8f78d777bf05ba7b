# SPDX-License-Identifier: Apache-2.0
"""How Keras, TensorFlow with TensorBoard, and Orbax write, system call by system call where it matters: each checkpoint makes one epoch."""

import fcntl
import json
import os
import shutil
import zipfile

import pytest

from framework_saves import first_of_its_kind, nothing_more, one_epoch_at_once, one_epoch_by_quiet, quickly, save_zip, tensors
from test_contract_epochs import log_of


# ---- Keras, TensorFlow, TensorBoard


@quickly
def test_keras_hdf5(mnt):
    """An O_RDWR probe, then O_RDWR|O_CREAT|O_TRUNC, flock, pwrite out of order, offset 0 written again."""
    h5py = pytest.importorskip("h5py")
    path = mnt.path / "weights.h5"
    for number in (1, 2):
        with one_epoch_by_quiet(mnt, number):
            try:
                os.close(os.open(path, os.O_RDWR))
            except FileNotFoundError:
                pass
            with h5py.File(path, "w") as f:
                for layer in range(5):
                    f["layer%d/kernel" % layer] = [[float(i * number) for i in range(50)] for _ in range(50)]
                f.attrs["backend"] = "test"
        with h5py.File(mnt.epoch(number) / "weights.h5", "r") as f:
            assert f["layer4/kernel"][0][2] == 2 * number


@quickly
def test_hdf5_by_system_calls(mnt):
    """The same where h5py is not: a lock that another one is refused, bytes out of order."""
    with one_epoch_by_quiet(mnt, 1):
        fd = os.open(mnt.path / "w.h5", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        other = os.open(mnt.path / "w.h5", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        os.pwrite(fd, b"head", 0)
        os.pwrite(fd, b"end", 50000)
        os.pwrite(fd, b"middle", 20000)
        os.pwrite(fd, b"HEAD", 0)
        os.ftruncate(fd, 60000)
        os.close(fd)
        os.close(other)
    data = (mnt.epoch(1) / "w.h5").read_bytes()
    assert (len(data), data[:4], data[20000:20006], data[50000:50003]) == (60000, b"HEAD", b"middle", b"end")


@pytest.mark.rules("2")
def test_keras_backup_and_restore(mnt):
    """Weights, then the JSON file that says so; the whole directory goes at the end of the training."""
    backup = mnt.path / "backup"
    backup.mkdir()
    for epoch in (0, 1):
        with zipfile.ZipFile(backup / "latest.keras", "w") as z:
            z.writestr("model.weights.h5", tensors())
        (backup / "training_metadata.json").write_text(json.dumps({"epoch": epoch}))
        if epoch == 0:
            first_of_its_kind(mnt, 1)
        else:
            one_epoch_at_once(mnt, 2, trigger="marker")
    # A save may begin so: what an epoch has then is never the latest while the program lives.
    shutil.rmtree(backup)
    assert mnt.seal() == 3 and log_of(mnt)[3]["rule"] == "J6"
    assert os.readlink(mnt.epochs_dir / "latest") == "000002"


def save_tensorflow(top, step):
    """Shards in <prefix>_temp, merged; `checkpoint` by a temporary and a rename, before and after the removal."""
    prefix = top / ("ckpt-%d" % step)
    temporary = top / ("ckpt-%d_temp" % step)
    temporary.mkdir()
    (temporary / "part-00000-of-00001.data-00000-of-00001").write_bytes(tensors())
    (temporary / "part-00000-of-00001.index").write_bytes(b"index")
    (top / ("ckpt-%d.tempstate12345" % step)).write_bytes(b"index")
    os.rename(temporary / "part-00000-of-00001.data-00000-of-00001", "%s.data-00000-of-00001" % prefix)
    os.rename(top / ("ckpt-%d.tempstate12345" % step), "%s.index" % prefix)
    os.unlink(temporary / "part-00000-of-00001.index")
    os.rmdir(temporary)
    record_tensorflow(top, step)


def record_tensorflow(top, step):
    (top / "checkpoint.tmpf00d").write_text('model_checkpoint_path: "ckpt-%d"\n' % step)
    os.rename(top / "checkpoint.tmpf00d", top / "checkpoint")


@pytest.mark.rules("2")
def test_tensorflow(mnt):
    save_tensorflow(mnt.path, 20)
    first_of_its_kind(mnt, 1, 20)
    save_tensorflow(mnt.path, 40)
    one_epoch_at_once(mnt, 2, 40)
    os.unlink(mnt.path / "ckpt-20.index")
    os.unlink(mnt.path / "ckpt-20.data-00000-of-00001")
    nothing_more(mnt)


@quickly
def test_tensorboard_appends_beside_the_checkpoints(mnt):
    """One event file for the whole run, read live; it is in every epoch and makes none."""
    name = "events.out.tfevents.1699999999.host"
    events = open(mnt.path / name, "ab")
    length = 0
    for step in (1, 2, 3):
        with one_epoch_by_quiet(mnt, step, step):
            for _ in range(5):
                events.write(tensors(100))
                events.flush()
                length += 100
            assert os.stat(mnt.path / name).st_size == length
            save_zip(mnt.path / ("model-%d.pt" % step), tensors())
        assert os.stat(mnt.epoch(step) / name).st_size == length
    events.write(tensors(100))
    events.flush()
    nothing_more(mnt)
    events.close()
    nothing_more(mnt)


# ---- Orbax


def test_orbax(mnt):
    for number, step in enumerate((1000, 2000), 1):
        temporary = mnt.path / ("%d.orbax-checkpoint-tmp-1699999999" % step)
        (temporary / "default").mkdir(parents=True)
        for name in ("_METADATA", "manifest.ocdbt"):
            (temporary / "default" / (name + ".tmp")).write_bytes(tensors(3000))
            os.rename(temporary / "default" / (name + ".tmp"), temporary / "default" / name)
        (temporary / "commit_success.txt").write_text("ok")
        os.rename(temporary, mnt.path / str(step))
        one_epoch_at_once(mnt, number, step)
    shutil.rmtree(mnt.path / "1000")
    nothing_more(mnt)
