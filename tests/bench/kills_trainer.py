#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The trainer of compare_kills.py: saves model and optimizer twice, by torch.save, and stands still where it is asked to; and what a trainer can load of a directory.

    kills_trainer.py DIRECTORY [in-place|rename] [in-write|close-rename|between-files|never]

It says `saved 1`, `at MOMENT` and `saved 2`, and after the first two it waits for a line.
"""

import os
import sys

import torch

torch.set_num_threads(1)

FILES = {"model.pt": 1448, "optimizer.pt": 2048}  # the side of a square of numbers: 8 and 16 MiB


def stand_still(fact):
    print(fact, flush=True)
    sys.stdin.readline()


class Halved:
    """A file that stands still after half of the bytes."""

    def __init__(self, file, size):
        self.file, self.left = file, size // 2

    def write(self, data):
        data = memoryview(data).cast("B")
        if self.left is not None and len(data) >= self.left:
            self.file.write(data[:self.left])
            self.file.flush()
            rest, self.left = data[self.left:], None
            stand_still("at in-write")
            self.file.write(rest)
        else:
            self.left = self.left if self.left is None else self.left - len(data)
            self.file.write(data)
        return len(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


def save_file(path, step, side, how, moment):
    torch.manual_seed(step * side)  # no file holds what another one does
    final, path = path, path + ".tmp" if how == "rename" else path
    with open(path, "wb") as file:
        torch.save({"step": step, "weights": torch.randn(side, side)}, Halved(file, 4 * side * side) if moment == "in-write" else file)
    if moment == "close-rename":
        stand_still("at close-rename")
    if path != final:
        os.rename(path, final)


def save(directory, how="in-place", moment="never"):
    for step in (1, 2):
        for number, (name, side) in enumerate(FILES.items()):
            if number and step == 2 and moment == "between-files":
                stand_still("at between-files")
            save_file(os.path.join(directory, name), step, side, how, moment if (step, number) == (2, 0) else "never")
        if step == 1:
            stand_still("saved 1")
    print("saved 2", flush=True)


def what_is(path, side):
    if not os.path.exists(path):
        return "missing"
    try:
        state = torch.load(path)
        torch.manual_seed(state["step"] * side)
        return state["step"] if torch.equal(state["weights"], torch.randn(side, side)) else "torn"
    except Exception:  # pylint: disable=broad-except # whatever torch says of it, it is no checkpoint
        return "torn"


def load(directory):
    """What each of the two files is: a step, "torn" or "missing"."""
    return [what_is(os.path.join(directory, name), side) for name, side in FILES.items()]


if __name__ == "__main__":
    save(*sys.argv[1:])
