# SPDX-License-Identifier: Apache-2.0
"""What the programs of this folder share: a training whose state is known in advance, and moments at which a test may stop it.

The weights after so many steps are a function of that number alone, so that whoever loads a checkpoint can tell whether it is
the one that was saved, bit for bit, and whoever trains to the end, over however many restarts, must come to the same state.
"""

import hashlib
import io
import json
import os
import sys
import zipfile

BLOB = 120000
# Names of moments, by commas; each counts once.
_stops = set(os.environ.get("STOP_AT", "").split(","))


def say(*words):
    """A line, written at once: print refuses to be called by a handler of a signal that came while it wrote."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


def moment(name):
    """Where STOP_AT names this moment: says so, and waits for a line, for whatever is done to the program meanwhile."""
    if name in _stops:
        _stops.remove(name)
        say("stopped", name)
        sys.stdin.readline()


class Training:
    """Some steps of it."""

    def __init__(self):
        self.steps = 0
        self.digest = hashlib.sha256(b"seed").hexdigest()

    def step(self, gradient=0):
        self.steps += 1
        self.digest = hashlib.sha256(("%s %d %d" % (self.digest, self.steps, gradient)).encode()).hexdigest()

    def blob(self, name, size=BLOB):
        """Weights: they do not compress, and differ with each step."""
        return hashlib.shake_128(("%s %s" % (self.digest, name)).encode()).digest(size)

    def progress(self):
        return json.dumps({"steps": self.steps, "digest": self.digest}).encode()

    def set_progress(self, data):
        loaded = json.loads(data)
        self.steps, self.digest = loaded["steps"], loaded["digest"]

    def check(self, name, data):
        """A blob that was loaded is the one that was saved."""
        if data != self.blob(name, len(data)) or not data:
            sys.exit("the blob %s is not that of step %d" % (name, self.steps))

    def done(self):
        say("done", self.steps, self.digest)


def save_archive(path, training, names, half=lambda: None):
    """As torch.save: the final name, truncated, written in order, closed. Nothing else."""
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("archive/progress", training.progress())
        for name in names:
            archive.writestr("archive/data/" + name, training.blob(name))
    data = memory.getvalue()
    with open(path, "wb") as f:
        f.write(data[:len(data) // 2])
        f.flush()
        half()
        f.write(data[len(data) // 2:])


def load_archive(path, names):
    """The training as it was saved there."""
    training = Training()
    with zipfile.ZipFile(path) as archive:
        training.set_progress(archive.read("archive/progress"))
        for name in names:
            training.check(name, archive.read("archive/data/" + name))
    return training
