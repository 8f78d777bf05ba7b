#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Saves, loads and restarts as AdaptDL does (github.com/petuum/adaptdl, adaptdl/checkpoint.py and _signal.py): the same operations on files.

    ADAPTDL_CHECKPOINT_PATH=DIR ADAPTDL_NUM_REPLICAS=N ADAPTDL_NUM_RESTARTS=R adaptdl.py STEPS
    ADAPTDL_FROM_RAY=1 [RAY_CHECKPOINT=DIR] ADAPTDL_NUM_REPLICAS=N ADAPTDL_NUM_RESTARTS=R adaptdl.py STEPS

Rank 0 writes each state to DIR/_checkpoint/NAME, renames the directory to DIR/checkpoint-R, and removes the other checkpoint-*.
That happens when SIGTERM or SIGINT asks for the end (exit code 143), which is how AdaptDL gives a job another number of replicas.

Under Ray (from_ray(), and adaptdl_ray's save_all_states_remote) DIR is /tmp/checkpoint, rebuilt each time, with Ray's marker and metadata in it. Once all of it
is in Ray's memory the directory is removed. It is loaded from where Ray has put it: RAY_CHECKPOINT.
"""

import hashlib
import os
import shutil
import signal
import sys

from training import Training, moment, say

BATCH = 12  # samples of a step, over all replicas: any number of them comes to the same gradient
PREFIX = "checkpoint-"


def from_ray():
    return "ADAPTDL_FROM_RAY" in os.environ


def checkpoint_path():
    return os.environ["ADAPTDL_CHECKPOINT_PATH"]


def make_checkpoint_dir(parent, override):
    """Ray's TrainableUtil."""
    path = os.path.join(parent, "checkpoint")
    if override and os.path.exists(path):
        shutil.rmtree(path)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, ".is_checkpoint"), "a", encoding="ascii"):
        pass
    return path


def to_memory(folder, trial_state):
    """What Ray does with the directory that save_all_states has returned."""
    with open(os.path.join(folder, "") + ".tune_metadata", "wb") as f:
        f.write(trial_state)
    data = {}
    for base, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(base, name), "rb") as f:
                data[os.path.relpath(os.path.join(base, name), folder)] = f.read()
    say("in memory", len(data))
    moment("in memory")
    shutil.rmtree(os.path.join(folder, ""))


def num_restarts():
    return int(os.environ["ADAPTDL_NUM_RESTARTS"])


class Replicas:
    """Rank 0 is this process; the others are its children, which add up their part of each batch."""

    def __init__(self, count):
        self.count = count
        self.pipes = []
        for rank in range(1, count):
            (theirs, ask), (answer, ours) = os.pipe(), os.pipe()
            if os.fork() == 0:
                for other in [ask, answer] + [fd for pipe in self.pipes for fd in pipe]:
                    os.close(other)
                self._serve(rank, theirs, ours)
            os.close(theirs)
            os.close(ours)
            self.pipes.append((ask, answer))

    def part(self, rank, step):
        return sum(int.from_bytes(hashlib.sha256(b"%d %d" % (step, sample)).digest()[:4], "big")
                   for sample in range(rank, BATCH, self.count))

    def _serve(self, rank, theirs, ours):
        while True:
            asked = os.read(theirs, 8)
            if not asked:
                os._exit(0)
            os.write(ours, self.part(rank, int.from_bytes(asked, "big")).to_bytes(8, "big"))

    def all_reduce(self, step):
        for ask, _ in self.pipes:
            os.write(ask, step.to_bytes(8, "big"))
        return self.part(0, step) + sum(int.from_bytes(os.read(answer, 8), "big") for _, answer in self.pipes)


class State:
    """One file of a checkpoint."""

    def __init__(self, name, save, load):
        self.name, self.save, self.load = name, save, load


def temporary_directory(checkpoint_dir):
    path = os.path.join(checkpoint_dir, "_checkpoint")
    os.makedirs(path, exist_ok=True)
    return path


def save_all_states(states, sync):
    checkpoint_dir = make_checkpoint_dir("/tmp", override=True) if from_ray() else checkpoint_path()
    for state in states:
        sync()
        with open(os.path.join(temporary_directory(checkpoint_dir), state.name), "wb") as f:
            data = state.save()
            f.write(data[:len(data) // 2])
            f.flush()
            moment("saving " + state.name)
            f.write(data[len(data) // 2:])
    moment("saved")
    final = os.path.join(checkpoint_dir, PREFIX + str(num_restarts()))
    os.rename(temporary_directory(checkpoint_dir), final)
    moment("renamed")
    for name in os.listdir(checkpoint_dir):
        path = os.path.join(checkpoint_dir, name)
        if name.startswith(PREFIX) and path != final:
            shutil.rmtree(path)
    return checkpoint_dir


def load_state(state):
    """From the checkpoint of the greatest number: a name that is none stops it, as int() does."""
    checkpoint_dir = os.environ.get("RAY_CHECKPOINT") if from_ray() else checkpoint_path()
    if checkpoint_dir is None:
        return False
    names = os.listdir(checkpoint_dir)
    if not names:
        return False
    newest = max([int(name[len(PREFIX):]) for name in names if name.startswith(PREFIX)], default=0)
    path = os.path.join(checkpoint_dir, PREFIX + str(newest), state.name)
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as f:
        state.load(f.read())
    print("loaded", state.name, newest, flush=True)
    return True


def main():
    asked_to_end = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_end.append(True))
    training = Training()
    replicas = Replicas(int(os.environ["ADAPTDL_NUM_REPLICAS"]))
    states = [State("adaptdl-epoch", training.progress, training.set_progress)]
    for name in ("adaptdl-dataparallel", "adaptdl-dataloader-epoch0"):
        states.append(State(name, lambda n=name: training.blob(n), lambda data, n=name: training.check(n, data)))
    for state in states:
        load_state(state)
    print("starts", training.steps, flush=True)
    while training.steps < int(sys.argv[1]):
        training.step(replicas.all_reduce(training.steps))
        moment("trained %d" % training.steps)
        if asked_to_end:
            checkpoint = save_all_states(states, lambda: replicas.all_reduce(training.steps))
            if from_ray():
                to_memory(checkpoint, training.progress())
            sys.exit(143)
    training.done()


if __name__ == "__main__":
    main()
