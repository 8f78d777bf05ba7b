# SPDX-License-Identifier: Apache-2.0
"""A small, ordinary training script: fits a line to points, saves a checkpoint every few steps, resumes from the last one.

    train.py CHECKPOINT_DIR STEPS [--slow-save STEP]

It uses PyTorch where it is installed, else NumPy. It knows nothing of the file system below CHECKPOINT_DIR.
--slow-save makes the save of that step dawdle after half of the last one's bytes, as a large model on a slow disk does.
"""

import json
import os
import sys
import time

try:
    import torch

    torch.manual_seed(0)
except ImportError:
    torch = None
    import numpy

SAVE_EVERY = 10


class TorchTrainer:
    suffix = "pt"

    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.data = torch.randn(256, 64)
        self.target = self.data.sum(dim=1, keepdim=True)

    def train(self):
        loss = torch.nn.functional.mse_loss(self.model(self.data), self.target)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def save(self, step, file):
        torch.save({"step": step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}, file)

    def load(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return state["step"]


class NumpyTrainer:
    suffix = "npz"

    def __init__(self):
        random = numpy.random.default_rng(0)
        self.data = random.standard_normal((256, 4096))
        self.target = self.data[:, :64].sum(axis=1)
        self.weights = numpy.zeros(4096)

    def train(self):
        error = self.data @ self.weights - self.target
        self.weights -= 1e-3 * self.data.T @ error / len(error)
        return float((error**2).mean())

    def save(self, step, file):
        numpy.savez(file, step=step, weights=self.weights)

    def load(self, path):
        with numpy.load(path) as state:
            self.weights = state["weights"]
            return int(state["step"])


class SlowFile:
    """Passes writes on, and stops for a long while once `limit` bytes are written."""

    def __init__(self, file, limit):
        self.file = file
        self.left = limit

    def write(self, data):
        if len(data) < self.left:
            self.left -= len(data)
            return self.file.write(data)
        data = memoryview(data)
        self.file.write(data[: self.left])
        self.file.flush()
        print("saving ...", flush=True)
        time.sleep(60)
        self.file.write(data[self.left :])
        self.left = float("inf")
        return len(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


def main():
    directory, steps = sys.argv[1], int(sys.argv[2])
    slow_step = int(sys.argv[4]) if len(sys.argv) > 4 and sys.argv[3] == "--slow-save" else None
    trainer = TorchTrainer() if torch else NumpyTrainer()
    path = os.path.join(directory, "model." + trainer.suffix)
    first = 1
    if os.path.exists(path):
        first = trainer.load(path) + 1
        print("resumed after step %d" % (first - 1), flush=True)
    log = open(os.path.join(directory, "train.log"), "a", encoding="utf-8")
    for step in range(first, first + steps):
        loss = trainer.train()
        log.write("step %d loss %.6f\n" % (step, loss))
        log.flush()
        if step % SAVE_EVERY:
            continue
        with open(os.path.join(directory, "trainer.json"), "w", encoding="utf-8") as file:
            json.dump({"step": step, "loss": loss}, file)
        last_size = os.path.getsize(path) if os.path.exists(path) else 0
        with open(path, "wb") as file:
            trainer.save(step, SlowFile(file, last_size // 2) if step == slow_step else file)
        print("step %3d  loss %8.4f  saved %s" % (step, loss, os.path.basename(path)), flush=True)
        time.sleep(1.5)  # the next steps of a real run take longer than this


if __name__ == "__main__":
    main()
