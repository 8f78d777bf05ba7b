# SPDX-License-Identifier: Apache-2.0
"""The callbacks by which Keras and Lightning call KIT's checkpointer (keras_callback.py, lightning_callback.py), and, in their order, the calls on files of
the two frameworks around them: keras.callbacks.BackupAndRestore, and Trainer.save_checkpoint with fsspec below it.

Keras saves weights (HDF5, by h5py itself) and then training_metadata.json into a directory, which the checkpointer packs into an archive that lies in it; at the
end of the training Keras removes the directory. Lightning asks the callbacks before it writes its file, so that the checkpointer transfers the file
before, and writes by way of a temporary file, which is moved.
"""

import io
import json
import os
import shutil
import tarfile
import tempfile
import zipfile

from kit import NAMES, Checkpointer
from training import Training, load_archive, moment, say


# ---- Keras


def save_weights(path, training):
    import h5py
    import numpy

    with h5py.File(path, "w") as f:
        for name in NAMES:
            f.create_group(name).create_dataset("vars", data=numpy.frombuffer(training.blob(name), numpy.uint8))
            moment("saving")


def load_weights(path, training):
    import h5py

    with h5py.File(path, "r") as f:
        for name in NAMES:
            training.check(name, f[name]["vars"][()].tobytes())


class BackupAndRestore:
    """Keras's own callback."""

    def __init__(self, backup_dir):
        self.backup_dir = backup_dir
        self.weights, self.metadata = (os.path.join(backup_dir, name) for name in ("latest.weights.h5", "training_metadata.json"))

    def on_train_begin(self, training):
        if os.path.exists(self.weights):
            with open(self.metadata, encoding="utf-8") as f:
                epoch = json.load(f)["epoch"]
            for _ in range(epoch):
                training.step()
            load_weights(self.weights, training)

    def on_epoch_end(self, training):
        if not os.path.exists(self.backup_dir):
            os.makedirs(self.backup_dir)
        save_weights(self.weights, training)
        with open(self.metadata, "w", encoding="utf-8") as f:
            f.write(json.dumps({"epoch": training.steps, "batch": 0}))

    def on_train_end(self):
        if os.path.exists(self.backup_dir):
            shutil.rmtree(self.backup_dir)


def pack(archive, folder):
    """tarfile leaves out the archive itself."""
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, arcname=os.path.basename(folder), recursive=True)


def unpack(archive, folder):
    with tarfile.open(archive, "r") as tar:
        tar.extractall(folder)


class KerasCallback(BackupAndRestore):
    def __init__(self, a):
        super().__init__(a.local)
        a.local = os.path.join(self.backup_dir, "checkpoint.zip")
        self.checkpointer = Checkpointer(a, lambda path, _: pack(path, self.backup_dir),
                                         lambda path: unpack(path, os.path.dirname(self.backup_dir)))

    def on_train_begin(self, training):
        self.checkpointer.restore(self.backup_dir)
        super().on_train_begin(training)

    def on_epoch_end(self, training):
        super().on_epoch_end(training)
        self.checkpointer.step(self.backup_dir)


def fit_keras(a):
    callback, training = KerasCallback(a), Training()
    callback.on_train_begin(training)
    say("starts", training.steps)
    while training.steps < a.steps:
        training.step()
        callback.on_epoch_end(training)
        moment("trained %d" % training.steps)
    callback.on_train_end()
    training.done()


# ---- Lightning


def atomic_save(data, path):
    """fsspec's transaction on a local file: a temporary file, moved, and what the umask leaves of 0666. Its directory is made first."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd, temporary = tempfile.mkstemp()
    os.close(fd)
    with open(temporary, "wb") as f:
        f.write(data)
    moment("saving")
    shutil.move(temporary, path)
    umask = os.umask(0)
    os.umask(umask)
    os.chmod(path, 0o666 & ~umask)


class Trainer:
    def __init__(self, a):
        self.callback = LightningCallback(a)
        self.training = Training()

    @property
    def steps(self):
        return self.training.steps

    def save_checkpoint(self, path):
        memory = io.BytesIO()
        self.callback.on_save_checkpoint()
        with zipfile.ZipFile(memory, "w") as archive:
            archive.writestr("archive/progress", self.training.progress())
            for name in NAMES:
                archive.writestr("archive/data/" + name, self.training.blob(name))
        atomic_save(memory.getvalue(), path)

    def fit(self, steps, ckpt_path):
        if ckpt_path:
            self.training = load_archive(ckpt_path, NAMES)
        self.callback.on_fit_start(self)
        say("starts", self.training.steps)
        while self.training.steps < steps:
            self.training.step()
            self.callback.on_train_epoch_end(self)
            moment("trained %d" % self.training.steps)
        self.training.done()


class LightningCallback:
    def __init__(self, a):
        self.checkpointer = Checkpointer(a, lambda path, trainer: trainer.save_checkpoint(path), lambda path: path)

    def on_fit_start(self, trainer):
        self.checkpointer.checkpoint_value = trainer

    def on_save_checkpoint(self):
        self.checkpointer.transfer_checkpoint_files()

    def restore(self):
        return self.checkpointer.restore(None)

    def on_train_epoch_end(self, trainer):
        self.checkpointer.step(trainer)


def fit(a):
    if a.framework == "keras":
        fit_keras(a)
        return
    trainer = Trainer(a)
    trainer.fit(a.steps, trainer.callback.restore())
