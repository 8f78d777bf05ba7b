# SPDX-License-Identifier: Apache-2.0
"""A trainer of three files (model, optim, state.json), for test_trainer_kills.py, which preloads calls.c into it.

    killed_trainer.py torch|safetensors

This process has imported the framework and does nothing with files: it forks one that trains, or loads, for each line that it reads.

    train DIR STYLE     a process that makes a step and saves it for each line "save", and says "saved"; "end" ends it. Once it has ended: "ended STATUS"
    load DIR STYLE      what the framework finds there: the steps of its files as JSON, or what it says of them. Then "ended STATUS"

Styles: "in place", "directory" (checkpoint-N), "rename" (each file under a temporary name, renamed when it is whole).
"""

import glob
import importlib
import json
import os
import random
import sys


class Torch:
    """A model and its optimizer."""

    files = ("model.pt", "optim.pt", "state.json")

    def __init__(self):
        self.torch = importlib.import_module("torch")
        self.torch.set_num_threads(1)

    def begin(self):
        self.model = self.torch.nn.Linear(40, 40)
        self.optim = self.torch.optim.Adam(self.model.parameters())

    def train(self):
        self.optim.zero_grad()
        self.model(self.torch.randn(4, 40)).sum().backward()
        self.optim.step()

    def write(self, name, step, path):
        of = self.model if name.startswith("model") else self.optim
        self.torch.save({"step": step, "state": of.state_dict()}, path)

    def step_in(self, path):
        return self.torch.load(path)["step"]


class Safetensors:
    """Arrays that change with each step."""

    files = ("model.safetensors", "optim.safetensors", "state.json")

    def __init__(self):
        self.numpy, self.safetensors = importlib.import_module("numpy"), importlib.import_module("safetensors.numpy")

    def begin(self):
        self.weights = self.numpy.zeros((40, 40), "float32")

    def train(self):
        self.weights += self.numpy.random.standard_normal((40, 40)).astype("float32")

    def write(self, name, step, path):
        count = 1 if name.startswith("model") else 2
        tensors = {"weight%d" % i: self.weights * (i + 1) for i in range(count)}
        self.safetensors.save_file({**tensors, "step": self.numpy.array([step])}, path)

    def step_in(self, path):
        found = self.safetensors.load_file(path)
        # All of it is read, as a trainer does.
        assert all(self.numpy.isfinite(tensor).all() for tensor in found.values())
        return int(found["step"][0])


class Trainer:
    def __init__(self, framework, top, style):
        self.framework, self.top, self.style, self.step = framework, top, style, 0
        framework.begin()

    def train(self):
        self.step += 1
        self.framework.train()

    def write(self, name, path):
        if not name.endswith(".json"):
            self.framework.write(name, self.step, path)
            return
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"step": self.step, "rng": random.getstate()[1][:100]}, file)

    def save(self):
        folder = self.top
        if self.style == "directory":
            folder = os.path.join(self.top, "checkpoint-%d" % self.step)
            os.mkdir(folder)
        for name in self.framework.files:
            path = os.path.join(folder, name)
            if self.style != "rename":
                self.write(name, path)
                continue
            self.write(name, path + ".tmp")
            os.rename(path + ".tmp", path)


def load(framework, top, style):
    """{file: the step that is in it}"""
    if style == "directory":
        top = max(glob.glob(os.path.join(top, "checkpoint-*")), key=lambda path: int(path.rpartition("-")[2]))
    steps = {}
    for name in framework.files:
        path = os.path.join(top, name)
        if name.endswith(".json"):
            with open(path, encoding="utf-8") as file:
                steps[name] = json.load(file)["step"]
        else:
            steps[name] = framework.step_in(path)
    return steps


def line():
    """Unbuffered: the next line may be another process's."""
    text = b""
    while not text.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return ""
        text += byte
    return text.decode().rstrip("\n")


def say(text):
    os.write(1, text.encode() + b"\n")


def train(framework, top, style):
    trainer = Trainer(framework, top, style)
    while line() == "save":
        trainer.train()
        trainer.save()
        say("saved")


def try_to_load(framework, top, style):
    try:
        say(json.dumps(load(framework, top, style)))
    except Exception as error:  # pylint: disable=broad-except
        say(json.dumps("%s: %s" % (type(error).__name__, str(error).split("\n", 1)[0])))


def main():
    framework = {"torch": Torch, "safetensors": Safetensors}[sys.argv[1]]()
    say("ready")
    while True:
        words = line().split(" ", 2)
        if not words[0]:
            return
        child = os.fork()
        if not child:
            {"train": train, "load": try_to_load}[words[0]](framework, words[1], words[2])
            os._exit(0)
        say("ended %d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
