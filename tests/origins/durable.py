#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Saves, restores and deletes as Ray Tune's DurableTrainable does (ray/tune/durable_trainable.py, sync_client.py, checkpoint_manager.py).

    durable.py --logdir DIR --storage DIR --sync-up T --sync-down T --delete T [--keep K] [--restore NAME] ITERATIONS

Each iteration makes DIR/checkpoint_NNNNNN, runs the command `--sync-up` with {source} and {target} put in, and takes the checkpoint
as committed once that has ended well. Of more than K the one of the lowest score goes, never the newest: removed here, then by `--delete`.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys

from training import Training, load_archive, save_archive

NAMES = ("model", "optimizer")


class CommandBasedClient:
    """Starts a command; wait() tells whether it ended well."""

    def __init__(self, a):
        self.templates = a
        self.process = None

    def _start(self, template, **places):
        if self.process:
            sys.exit("a command is under way")
        self.process = subprocess.Popen(template.format(**{k: shlex.quote(v) for k, v in places.items()}), shell=True)

    def sync_up(self, source, target):
        self._start(self.templates.sync_up, source=source, target=target)

    def sync_down(self, source, target):
        self._start(self.templates.sync_down, source=source, target=target)

    def delete(self, target):
        self._start(self.templates.delete, target=target)

    def wait(self):
        code = self.process.wait()
        self.process = None
        if code:
            sys.exit("a sync ended with %d" % code)


class DurableTrainable:
    def __init__(self, a):
        self.logdir, self.storage = a.logdir, a.storage
        self.client = CommandBasedClient(a)
        self.training = Training()

    def local(self, name):
        return os.path.join(self.logdir, name, "")

    def remote(self, name):
        return os.path.join(self.storage, os.path.basename(self.logdir), name, "")

    def save(self):
        name = "checkpoint_%06d" % self.training.steps
        os.makedirs(self.local(name))
        with open(self.local(name) + ".is_checkpoint", "w", encoding="utf-8"):
            pass
        save_archive(self.local(name) + "model.pt", self.training, NAMES)
        with open(self.local(name) + "model.pt.tune_metadata", "wb") as f:
            f.write(self.training.progress())
        self.client.sync_up(self.local(name), self.remote(name))
        self.client.wait()
        print("committed", name, flush=True)
        return name

    def restore(self, name):
        os.makedirs(self.local(name), exist_ok=True)
        self.client.sync_down(self.remote(name), self.local(name))
        self.client.wait()
        self.training = load_archive(self.local(name) + "model.pt", NAMES)
        with open(self.local(name) + "model.pt.tune_metadata", "rb") as f:
            if f.read() != self.training.progress():
                sys.exit("the metadata is of another checkpoint")

    def delete_checkpoint(self, name):
        shutil.rmtree(self.local(name))
        self.client.delete(self.remote(name))
        self.client.wait()
        print("deleted", name, flush=True)


class CheckpointManager:
    """Keeps the best; the newest goes only once there is a newer one."""

    def __init__(self, keep, delete):
        self.keep, self.delete = keep, delete
        self.best, self.newest = [], None

    def on_checkpoint(self, score, name):
        before, self.newest = self.newest, name
        if before and before not in [n for _, n in self.best]:
            self.delete(before)
        self.best = sorted(self.best + [(score, name)])
        if len(self.best) > self.keep:
            _, worst = self.best.pop(0)
            if worst != name:
                self.delete(worst)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--logdir", "--storage", "--sync-up", "--sync-down", "--delete"):
        parser.add_argument(name, required=True)
    parser.add_argument("--keep", type=int, default=1 << 30)
    parser.add_argument("--restore")
    parser.add_argument("iterations", type=int)
    a = parser.parse_args()
    trainable = DurableTrainable(a)
    if a.restore:
        trainable.restore(a.restore)
    print("starts", trainable.training.steps, flush=True)
    manager = CheckpointManager(a.keep, trainable.delete_checkpoint)
    while trainable.training.steps < a.iterations:
        trainable.training.step()
        # The first is the best of all: it stays, and the worst of the others goes.
        manager.on_checkpoint(100 if trainable.training.steps == 1 else trainable.training.steps, trainable.save())
    trainable.training.done()


if __name__ == "__main__":
    main()
