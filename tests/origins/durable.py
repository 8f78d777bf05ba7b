#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Saves, restores and deletes by the calls of Ray Tune's DurableTrainable (ray/tune/durable_trainable.py, trainable.py, sync_client.py,
checkpoint_manager.py of Ray 1.x), with their arguments and in their order.

    durable.py --logdir DIR --remote URL --sync-up T --sync-down T --delete T [--keep K] [--restore NAME] [--at-once] ITERATIONS

    a save      makes LOGDIR/checkpoint_NNNNNN, then sync_up(LOGDIR, URL) and wait(): the whole of LOGDIR, to the same place each time
    a restore   sync_down(URL, LOGDIR) and wait()
    a deletion  delete(URL/checkpoint_NNNNNN), which nobody waits for, and meanwhile it goes here

As the original's, the client starts nothing while a command is under way: then a save is not synced until the next one. An iteration takes longer than a
deletion, but with --at-once. Of more than K checkpoints the one of the lowest score goes, never the newest.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys

from training import Training, load_archive, moment, save_archive, say

NAMES = ("model", "optimizer")


class CommandBasedClient:
    def __init__(self, a):
        self.up, self.down, self.remove = a.sync_up, a.sync_down, a.delete
        for template in (self.up, self.down):
            if "{source}" not in template or "{target}" not in template:
                sys.exit("a template without {source} or {target}: " + template)
        self.process = None

    @property
    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def _execute(self, template, **places):
        """False: another one is under way, and this one is not started."""
        if self.is_running:
            return False
        command = template.format(**{name: shlex.quote(place) for name, place in places.items()})
        self.process = subprocess.Popen(command, shell=True, stderr=subprocess.PIPE)
        return True

    def sync_up(self, source, target):
        return self._execute(self.up, source=source, target=target)

    def sync_down(self, source, target):
        return self._execute(self.down, source=source, target=target)

    def delete(self, target):
        return self._execute(self.remove, target=target)

    def wait(self):
        """For the command that was started last, whatever it was. What it prints must be ASCII."""
        if not self.process:
            return
        message = self.process.communicate()[1].decode("ascii")
        code, self.process = self.process.returncode, None
        if code:
            sys.exit("Sync error (%d): %s" % (code, message))


class DurableTrainable:
    def __init__(self, a):
        self.logdir, self.remote_checkpoint_dir = a.logdir, a.remote
        self.storage_client = CommandBasedClient(a)
        self.training = Training()

    def _make_checkpoint(self):
        folder = os.path.join(self.logdir, "checkpoint_%06d" % self.training.steps)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, ".is_checkpoint"), "a", encoding="ascii"):
            pass
        path = os.path.join(folder, "model.pt")
        save_archive(path, self.training, NAMES)
        with open(path + ".tune_metadata", "wb") as f:
            f.write(self.training.progress())
        return path

    def save(self):
        path = self._make_checkpoint()
        synced = self.storage_client.sync_up(self.logdir, self.remote_checkpoint_dir)
        say("syncs" if synced else "skipped", self.training.steps)
        self.storage_client.wait()
        say("committed" if synced else "kept", self.training.steps)
        return path

    def restore(self, path):
        self.storage_client.sync_down(self.remote_checkpoint_dir, self.logdir)
        self.storage_client.wait()
        self.training = load_archive(path, NAMES)
        with open(path + ".tune_metadata", "rb") as f:
            if f.read() != self.training.progress():
                sys.exit("the metadata is of another checkpoint")

    def _storage_path(self, local_path):
        return os.path.join(self.remote_checkpoint_dir, os.path.relpath(local_path, self.logdir))

    def delete_checkpoint(self, path):
        folder = os.path.dirname(path)
        self.storage_client.delete(self._storage_path(folder))
        shutil.rmtree(folder)
        say("deleted", os.path.basename(folder))

    def train(self, at_once):
        if not at_once and self.storage_client.process:
            self.storage_client.process.wait()
        with open(os.path.join(self.logdir, "result.json"), "ab") as f:
            f.write(self.training.progress() + b"\n")
        self.training.step()


class CheckpointManager:
    """Keeps the best; the newest goes only once there is a newer one."""

    def __init__(self, keep, delete):
        self.keep, self.delete = keep, delete
        self.best, self.newest = [], None

    def on_checkpoint(self, score, path):
        before, self.newest = self.newest, path
        if before and before not in [n for _, n in self.best]:
            self.delete(before)
        self.best = sorted(self.best + [(score, path)])
        if len(self.best) > self.keep:
            _, worst = self.best.pop(0)
            if worst != path:
                self.delete(worst)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--logdir", "--remote", "--sync-up", "--sync-down", "--delete"):
        parser.add_argument(name, required=True)
    parser.add_argument("--keep", type=int, default=1 << 30)
    parser.add_argument("--restore")
    parser.add_argument("--at-once", action="store_true")
    parser.add_argument("iterations", type=int)
    a = parser.parse_args()
    trainable = DurableTrainable(a)
    if a.restore:
        trainable.restore(os.path.join(a.logdir, a.restore, "model.pt"))
    say("starts", trainable.training.steps)
    manager = CheckpointManager(a.keep, trainable.delete_checkpoint)
    while trainable.training.steps < a.iterations:
        trainable.train(a.at_once)
        # The first is the best of all: it stays, and the worst of the others goes.
        manager.on_checkpoint(100 if trainable.training.steps == 1 else trainable.training.steps, trainable.save())
        moment("saved %d" % trainable.training.steps)
    # Tune ends its syncer in order, too.
    trainable.storage_client.wait()
    trainable.training.done()


if __name__ == "__main__":
    main()
