# SPDX-License-Identifier: Apache-2.0
"""How training frameworks write a checkpoint, system call by system call where it matters: each makes one epoch.

Where a name marks the whole (a rename), the epoch is there at once. Where nothing does, quiet seals, and nothing before.
"""

import contextlib
import fcntl
import io
import json
import mmap
import os
import shutil
import struct
import tempfile
import time
import zipfile

import pytest

from conftest import python, run, wait_until
from test_contract_epochs import log_of

CLOCK_REALTIME_COARSE = 5  # of Linux; Python's module time does not name it


def files_below(root):
    return sorted(os.path.relpath(os.path.join(folder, n), root) for folder, _, names in os.walk(root) for n in names)


def is_whole(mnt, number, step):
    """The epoch is the live tree, complete, and has the step."""
    record = log_of(mnt)[number]
    assert record["complete"] is True and record.get("step") == step, record
    assert files_below(mnt.epoch(number)) == files_below(mnt.path)
    for name in files_below(mnt.path):
        if not os.path.islink(mnt.path / name):
            assert (mnt.epoch(number) / name).read_bytes() == (mnt.path / name).read_bytes(), name
    assert os.readlink(mnt.epochs_dir / "latest") == "%06d" % number


quickly = pytest.mark.options(settle="200ms")


@contextlib.contextmanager
def one_epoch_by_quiet(mnt, number, step=None):
    """Around a save. A temporary name of ours keeps quiet from counting while it lasts, however slow the machine is; it
    keeps no name or marker of the save from sealing at once, which is seen."""
    busy = mnt.path / "tmp-of-the-test"
    busy.touch()
    yield
    assert number not in mnt.epochs()
    busy.unlink()
    wait_until(lambda: number in mnt.epochs(), "quiet to seal")
    assert log_of(mnt)[number]["trigger"] == "quiet"
    is_whole(mnt, number, step)


def one_epoch_at_once(mnt, number, step=None, trigger="rename"):
    wait_until(lambda: number in mnt.epochs(), "epoch %d" % number)
    nothing_more(mnt)
    assert log_of(mnt)[number]["trigger"] == trigger
    is_whole(mnt, number, step)


def nothing_more(mnt):
    """What came after the seal opens no epoch."""
    changes = wait_until(lambda: mnt.status()["pending"]["changes"] != "changes that open an epoch" and
                         mnt.status()["pending"]["changes"], "no change that opens an epoch")
    assert changes in ("none", "changes that ride in the next epoch")


def tensors(size=20000):
    return os.urandom(size)


def read_private(path):
    """As torch.load(mmap=True) and safetensors read: a private mapping."""
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY) as m:
        return bytes(m)


# ---- PyTorch


def save_zip(path, data):
    """torch.save: the final name, O_TRUNC, strictly sequential, entries named after the file, ZIP64 end."""
    stem = os.path.splitext(os.path.basename(path))[0]
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as z:
        z.writestr(stem + "/data.pkl", b"pickle")
        z.writestr(stem + "/data/0", data)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    for at in range(0, len(memory.getvalue()), 4096):
        os.write(fd, memory.getvalue()[at:at + 4096])
    os.close(fd)


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


def test_torch_distributed_checkpoint(mnt):
    save_distributed(mnt.path, 7)
    one_epoch_at_once(mnt, 1, 7)
    save_distributed(mnt.path, 7)  # over the same one
    one_epoch_at_once(mnt, 2, 7)


# ---- Hugging Face


def safetensors(data):
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


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


def test_safetensors_by_rename(mnt):
    data = tensors()
    save_safetensors(mnt.path / "model.safetensors", data)
    one_epoch_at_once(mnt, 1)
    assert read_private(mnt.path / "model.safetensors") == safetensors(data)
    assert os.stat(mnt.path / "model.safetensors").st_mode & 0o777 == 0o644


@quickly
def test_safetensors_in_place(mnt):
    for number in (1, 2):
        with one_epoch_by_quiet(mnt, number):
            (mnt.path / "model.safetensors").write_bytes(safetensors(tensors()))


def save_trainer(folder, step, save_model=lambda path, data: path.write_bytes(safetensors(data))):
    """HF Trainer: straight into the directory, trainer_state.json last."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    save_model(folder / "model.safetensors", tensors())
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        save_zip(folder / name, tensors(5000))
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))


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


def test_trainer_with_safetensors_by_rename(mnt):
    """The model's rename seals too early; the epoch that has the rest continues it, and `latest` is never the half."""
    (mnt.path / "before").touch()
    mnt.seal()
    save_trainer(mnt.path / "checkpoint-500", 500, save_safetensors)
    wait_until(lambda: 2 in mnt.epochs(), "the epoch that comes too early")
    one_epoch_at_once(mnt, 3, 500, "marker")
    records = log_of(mnt)
    assert records[3]["continues"] == 2 and records[2]["complete"] is False
    assert mnt.request("resolve", epoch="step=500")["epoch"] == 3


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


# ---- Keras and TensorFlow


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


def test_keras_backup_and_restore(mnt):
    """Weights, then the JSON file that says so; the whole directory goes at the end of the training."""
    backup = mnt.path / "backup"
    backup.mkdir()
    for epoch in (0, 1):
        with zipfile.ZipFile(backup / "latest.keras", "w") as z:
            z.writestr("model.weights.h5", tensors())
        (backup / "training_metadata.json").write_text(json.dumps({"epoch": epoch}))
        one_epoch_at_once(mnt, epoch + 1, trigger="marker")
    shutil.rmtree(backup)
    nothing_more(mnt)


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


def test_tensorflow(mnt):
    save_tensorflow(mnt.path, 20)
    one_epoch_at_once(mnt, 1, 20)
    save_tensorflow(mnt.path, 40)
    one_epoch_at_once(mnt, 2, 40)
    os.unlink(mnt.path / "ckpt-20.index")
    os.unlink(mnt.path / "ckpt-20.data-00000-of-00001")
    nothing_more(mnt)


# ---- DeepSpeed and Megatron-LM


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


def test_megatron(mnt):
    for number, iteration in enumerate((100, 200), 1):
        save_megatron(mnt.path, iteration)
        one_epoch_at_once(mnt, number, iteration, "marker")


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


# ---- Orbax and AdaptDL


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


# ---- Ray, KIT, TensorBoard


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
