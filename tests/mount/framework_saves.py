# SPDX-License-Identifier: Apache-2.0
"""What the tests of frameworks share: one epoch for a save, and the files that several of them write.

Where a name marks the whole (a rename, a framework's last file), the epoch is there at once, but for the first save of its kind: from that the mount learns
what a save has. Where nothing does, quiet seals, and nothing before.
"""

import contextlib
import io
import json
import os
import struct
import zipfile

import pytest

from conftest import wait_until
from test_contract_epochs import log_of


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


def first_of_its_kind(mnt, number, step=None):
    """After a save: no sign of it has sealed it, as nobody knows yet what such a save has. It is asked for."""
    assert number not in mnt.epochs()
    assert mnt.seal() == number
    is_whole(mnt, number, step)


def nothing_more(mnt):
    """What came after the seal opens no epoch."""
    changes = wait_until(lambda: mnt.status()["pending"]["changes"] != "changes that open an epoch" and
                         mnt.status()["pending"]["changes"], "no change that opens an epoch")
    assert changes in ("none", "changes that ride in the next epoch")


def tensors(size=20000):
    return os.urandom(size)


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


def safetensors(data):
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return struct.pack("<Q", len(header)) + header + data


def save_trainer(folder, step, save_model=lambda path, data: path.write_bytes(safetensors(data))):
    """HF Trainer: straight into the directory, trainer_state.json last."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    save_model(folder / "model.safetensors", tensors())
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        save_zip(folder / name, tensors(5000))
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step}))
