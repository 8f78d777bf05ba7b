# SPDX-License-Identifier: Apache-2.0
"""How PyTorch and what builds on it (Hugging Face, Lightning, DeepSpeed, Megatron-LM) write a checkpoint, system call by system call where
it matters: each makes one epoch."""

import io
import json
import mmap
import os
import shutil
import tempfile
import time
import zipfile

import pytest

from conftest import python, wait_until
from framework_saves import (
    files_below, first_of_its_kind, nothing_more, one_epoch_at_once, one_epoch_by_quiet, quickly, safetensors, save_trainer, save_zip,
    tensors)

CLOCK_REALTIME_COARSE = 5  # of Linux; Python's module time does not name it


def read_private(path):
    """As torch.load(mmap=True) and safetensors read: a private mapping."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
        return bytes(m)


# ---- PyTorch


@quickly
def test_torch_save(mnt):
    for number, step in enumerate((100, 200), 1):
        with one_epoch_by_quiet(mnt, number, step):
            save_zip(mnt.path / ("model_%d.pt" % step), tensors())
            save_zip(mnt.path / "last.pt", tensors())
    with zipfile.ZipFile(io.BytesIO(read_private(mnt.path / "last.pt"))) as z:
        assert z.testzip() is None


def save_distributed(top, step, ranks=3):
    """torch.distributed.checkpoint: each rank fsyncs its files, the coordinator renames .metadata.tmp."""
    folder = top / ("step-%d" % step)
    folder.mkdir(parents=True, exist_ok=True)
    writers = [python("""
import os, sys
for i in range(2):
    with open("%s/__%s_%d.distcp" % (sys.argv[1], sys.argv[2], i), "wb") as f:
        f.write(os.urandom(30000)); f.flush(); os.fsync(f.fileno())
""", folder, str(rank)) for rank in range(ranks)]
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    with open(folder / ".metadata.tmp", "wb") as f:
        f.write(b"metadata")
        f.flush()
        os.fsync(f.fileno())
    if (folder / ".metadata").exists():
        os.unlink(folder / ".metadata")
    os.rename(folder / ".metadata.tmp", folder / ".metadata")


@pytest.mark.rules("2")
def test_torch_distributed_checkpoint(mnt):
    save_distributed(mnt.path, 7)
    first_of_its_kind(mnt, 1, 7)
    save_distributed(mnt.path, 7)  # over the same one
    one_epoch_at_once(mnt, 2, 7)


# ---- Hugging Face


def save_safetensors(path, data, chunk=8192):
    """From 0.8: a temporary beside it, extended to its size, written, chmod, renamed."""
    whole = safetensors(data)
    fd, temporary = tempfile.mkstemp(prefix=".tmp", dir=os.path.dirname(path))
    os.ftruncate(fd, len(whole))
    for at in range(0, len(whole), chunk):
        os.write(fd, whole[at:at + chunk])
    os.close(fd)
    os.chmod(temporary, 0o644)
    os.rename(temporary, path)


@pytest.mark.rules("2")
def test_safetensors_by_rename(mnt):
    save_safetensors(mnt.path / "model.safetensors", tensors())
    first_of_its_kind(mnt, 1)
    # Such a rename seals once a second at most.
    sealed = time.monotonic()
    wait_until(lambda: time.monotonic() > sealed + 1, "a second")
    data = tensors()
    save_safetensors(mnt.path / "model.safetensors", data)
    one_epoch_at_once(mnt, 2)
    assert read_private(mnt.path / "model.safetensors") == safetensors(data)
    assert os.stat(mnt.path / "model.safetensors").st_mode & 0o777 == 0o644


@quickly
def test_safetensors_in_place(mnt):
    for number in (1, 2):
        with one_epoch_by_quiet(mnt, number):
            (mnt.path / "model.safetensors").write_bytes(safetensors(tensors()))


def rotate(top, keep):
    """By the directories' mtimes, as the Trainer does after a save."""
    checkpoints = sorted(top.glob("checkpoint-*"), key=os.path.getmtime)
    for old in checkpoints[:-keep]:
        shutil.rmtree(old)


@pytest.mark.options(settle="200ms", marker="none")
def test_trainer_is_grouped_by_quiet(mnt):
    for number, step in enumerate((500, 1000, 1500), 1):
        with one_epoch_by_quiet(mnt, number, step):
            save_trainer(mnt.path / ("checkpoint-%d" % step), step)
            rotate(mnt.path, 2)
    assert sorted(os.listdir(mnt.path)) == ["checkpoint-1000", "checkpoint-1500"]
    assert sorted(os.listdir(mnt.epoch(1))) == ["checkpoint-500"]


@pytest.mark.rules("2")
def test_trainer_with_safetensors_by_rename(mnt):
    """The model's rename is no sign: the save has not what the one before had. The last file is, and `latest` is never the half."""
    save_trainer(mnt.path / "checkpoint-500", 500, save_safetensors)
    first_of_its_kind(mnt, 1, 500)
    sealed = time.monotonic()
    wait_until(lambda: time.monotonic() > sealed + 1, "the second in which a rename seals nothing")
    save_trainer(mnt.path / "checkpoint-1000", 1000, save_safetensors)
    one_epoch_at_once(mnt, 2, 1000, "marker")
    assert mnt.epochs() == [1, 2]
    assert mnt.request("resolve", epoch="step=1000")["epoch"] == 2


@pytest.mark.options(marker="trainer_state.json", settle="1h")
def test_trainer_with_a_marker(mnt):
    for number, step in enumerate((500, 1000, 1500), 1):
        save_trainer(mnt.path / ("checkpoint-%d" % step), step)
        one_epoch_at_once(mnt, number, step, "marker")
        rotate(mnt.path, 2)
        nothing_more(mnt)


def test_trainer_of_2023_renames_the_directory(mnt):
    for number, step in enumerate((500, 1000, 1500), 1):
        save_trainer(mnt.path / ("tmp-checkpoint-%d" % step), step)
        os.rename(mnt.path / ("tmp-checkpoint-%d" % step), mnt.path / ("checkpoint-%d" % step))
        fd = os.open(mnt.path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        one_epoch_at_once(mnt, number, step)
        rotate(mnt.path, 2)
        nothing_more(mnt)


def test_rotation_by_mtime_keeps_the_newest_over_remounts(mnt):
    for step in (9, 10, 11):
        save_trainer(mnt.path / ("checkpoint-%d" % step), step)
        # As on any local disk, times are of the kernel's tick: the next save is of a later one.
        saved = os.stat(mnt.path / ("checkpoint-%d" % step)).st_mtime_ns
        wait_until(lambda: time.clock_gettime_ns(CLOCK_REALTIME_COARSE) > saved, "the next tick")  # pylint: disable=W0640
    order = sorted(mnt.path.glob("checkpoint-*"), key=os.path.getmtime)
    times = [os.stat(p).st_mtime_ns for p in order]
    mnt.remount()
    assert [os.stat(p).st_mtime_ns for p in order] == times
    mnt.remount(empty_cache=True)
    assert [os.stat(p).st_mtime_ns for p in order] == times
    rotate(mnt.path, 2)
    assert sorted(os.listdir(mnt.path)) == ["checkpoint-10", "checkpoint-11"]


@pytest.mark.options(settle="200ms", marker="none")
def test_accelerate_removes_before_it_saves(mnt):
    top = mnt.path / "checkpoints"
    top.mkdir()
    for step in (1, 2, 3):
        with one_epoch_by_quiet(mnt, step, step):
            folders = sorted(os.listdir(top))  # it counts every entry
            if len(folders) >= 2:
                shutil.rmtree(top / folders[0])
            save_trainer(top / ("checkpoint_%d" % step), step)
    assert sorted(os.listdir(top)) == ["checkpoint_2", "checkpoint_3"]
    assert (mnt.epoch(1) / "checkpoints" / "checkpoint_1" / "optimizer.pt").exists()


# ---- Lightning


def save_lightning(path, tmp_path):
    """A temporary in $TMPDIR, shutil.move across file systems: O_TRUNC, sendfile, close, utimens, chmod."""
    local = tmp_path / "local.ckpt"
    save_zip(local, tensors())
    os.chmod(local, 0o600)
    os.utime(local, ns=(1, 1234567890123456789))
    shutil.move(local, path)


@quickly
def test_lightning(mnt, tmp_path):
    previous = None
    for epoch in (1, 2):
        with one_epoch_by_quiet(mnt, epoch, epoch * 100):
            name = "epoch=%d-step=%d.ckpt" % (epoch, epoch * 100)
            save_lightning(mnt.path / name, tmp_path)
            if os.path.lexists(mnt.path / "last.ckpt"):
                os.remove(mnt.path / "last.ckpt")
            os.symlink(name, mnt.path / "last.ckpt")  # save_last="link"
            if previous:
                os.remove(mnt.path / previous)  # the new one first, then the old one goes
            previous = name
        st = os.stat(mnt.epoch(epoch) / name)
        assert st.st_mtime_ns == 1234567890123456789 and st.st_mode & 0o777 == 0o600
        assert (mnt.epoch(epoch) / "last.ckpt").read_bytes() == (mnt.epoch(epoch) / name).read_bytes()


# ---- DeepSpeed and Megatron-LM


@pytest.mark.rules("2")
def test_deepspeed(mnt):
    """Each rank its states, `latest` by open("w"); the fast writer uses O_DIRECT."""
    for number, step in enumerate((12, 24), 1):
        folder = mnt.path / ("global_step%d" % step)
        folder.mkdir()
        for rank in range(3):
            save_zip(folder / ("zero_pp_rank_%d_mp_rank_00_optim_states.pt" % rank), tensors())
        memory = mmap.mmap(-1, 1 << 16)
        memory[:] = os.urandom(1 << 16)
        fd = os.open(folder / "fast.pt", os.O_WRONLY | os.O_CREAT | os.O_DIRECT | os.O_APPEND)
        assert os.write(fd, memory) == 1 << 16
        os.close(fd)
        (mnt.path / "latest").write_text("global_step%d" % step)
        if number == 1:
            first_of_its_kind(mnt, number, step)
        else:
            one_epoch_at_once(mnt, number, step, "marker")
        assert (folder / "fast.pt").read_bytes() == memory[:]
        memory.close()


def save_megatron(top, iteration):
    for rank in range(2):
        folder = top / ("iter_%07d" % iteration) / ("mp_rank_%02d" % rank)
        folder.mkdir(parents=True)
        save_zip(folder / "model_optim_rng.pt", tensors())
    fd = os.open(top / "latest_checkpointed_iteration.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(fd, b"%d" % iteration)
    os.close(fd)


@pytest.mark.rules("2")
def test_megatron(mnt):
    save_megatron(mnt.path, 100)
    first_of_its_kind(mnt, 1, 100)
    save_megatron(mnt.path, 200)
    one_epoch_at_once(mnt, 2, 200, "marker")


@pytest.mark.options(marker="latest_checkpointed_iteration.txt", settle="1h")
def test_megatron_with_its_tracker_as_the_marker(mnt):
    for number, iteration in enumerate((100, 200), 1):
        save_megatron(mnt.path, iteration)
        one_epoch_at_once(mnt, number, iteration, "marker")
    # Its cleanup meets no iteration but those in the directory.
    for path in mnt.path.rglob("iter_*"):
        shutil.rmtree(path)
    assert os.listdir(mnt.path) == ["latest_checkpointed_iteration.txt"]
    assert len(files_below(mnt.epoch(2))) == 5


def test_megatrons_tracker_is_never_seen_empty(mnt):
    """An empty tracker stops a run: it is truncated in place, and others see the old one until it is closed."""
    tracker = mnt.path / "latest_checkpointed_iteration.txt"
    tracker.write_text("100")
    reader = python("""
import json, sys
print("reads", flush=True)
seen = set()
while "200" not in seen:
    seen.add(open(sys.argv[1]).read())
print(json.dumps(sorted(seen)))
""", tracker)
    assert reader.stdout.readline() == "reads\n"
    for text in ["100"] * 50 + ["200"]:
        tracker.write_text(text)
    out, _ = reader.communicate(timeout=60)
    assert json.loads(out) in (["100", "200"], ["200"])
