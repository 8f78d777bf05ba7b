#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as KIT's checkpointer for HTC workflows does (github.com/JonasEppelt/Checkpointer, class Checkpointer), in its five transfer modes.

    kit.py --mode None|shared|xrootd|manual|htcondor --local FILE [--target PATH] [--server URL] --every N [--with keras|lightning] STEPS
    kit.py --watch --mode ... --local FILE ...      stands alone: transfers FILE whenever there is a new one, until it is told to end

It writes FILE in place at each N-th step and transfers it to the target. On SIGTERM or SIGINT it saves, transfers, removes FILE where
another copy is to be had, and exits with 85, or what HTCondor's job says (CheckpointExitCode in the file that _CONDOR_JOB_AD names).
With Keras and Lightning the framework's training calls the checkpointer's callback (kit_callbacks.py).
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

from training import Training, load_archive, moment, save_archive, say

NAMES = ("model", "optimizer")
POLL = 0.02


def copy(source, target):
    """As shutil.copy: truncates, sends, takes over the mode. With a moment in the middle."""
    with open(source, "rb") as src, open(target, "wb") as dst:
        size = os.fstat(src.fileno()).st_size
        for until in (size // 2, size):
            while src.seek(0, os.SEEK_CUR) < until:
                at = src.tell()
                src.seek(at + os.sendfile(dst.fileno(), src.fileno(), at, until - at))
            if until < size:
                moment("transferring")
    shutil.copymode(source, target)


def job_ad(variable):
    with open(os.environ["_CONDOR_JOB_AD"], encoding="utf-8") as f:
        for line in f:
            name, _, value = line.strip().partition(" = ")
            if name == variable:
                return value.strip('"')
    sys.exit("the job has no " + variable)


class InPlace:
    """Mode None: the local file is the checkpoint."""

    exit_code = 85
    keeps_local = True

    def __init__(self, a):
        self.local, self.target, self.server = a.local, a.target, a.server

    def put(self):
        pass

    def exists(self):
        return os.path.exists(self.local)

    def get(self):
        pass


class Shared(InPlace):
    keeps_local = False

    def put(self):
        copy(self.local, self.target)

    def exists(self):
        return os.path.exists(self.target)

    def get(self):
        os.system("cp %s %s" % (shlex.quote(self.target), shlex.quote(self.local)))


class Manual(InPlace):
    """A callback of the user's: rsync. Times of a second would hide a file of the same size. The original asks for no checkpoint in this mode: who starts the
    job brings it."""

    keeps_local = False

    def put(self):
        subprocess.run(["rsync", "--ignore-times", self.local, self.target], check=True)

    def exists(self):
        return None


class Htcondor(InPlace):
    """HTCondor transfers, by what the job says, both ways."""

    def __init__(self, a):
        super().__init__(a)
        self.target = job_ad("TransferCheckpoint")
        self.exit_code = int(job_ad("CheckpointExitCode"))
        if self.target != os.path.basename(self.local):
            sys.exit("HTCondor transfers another file")

    def exists(self):
        return None


class Xrootd(InPlace):
    """XRootD's own client, as the original's. What fails is printed."""

    keeps_local = False

    def __init__(self, a):
        super().__init__(a)
        from XRootD import client
        from XRootD.client.flags import DirListFlags
        self.client, self.flags = client.FileSystem(self.server), DirListFlags

    def put(self):
        status, _ = self.client.copy("file://" + self.local, self.server + self.target, force=True)
        if not status.ok:
            say(status.message)

    def exists(self):
        return self.client.stat(self.target, self.flags.STAT)[0].ok

    def get(self):
        status, _ = self.client.copy(self.server + self.target, self.local)
        if not status.ok:
            say(status.message)


MODES = {"None": InPlace, "shared": Shared, "xrootd": Xrootd, "manual": Manual, "htcondor": Htcondor}


class Checkpointer:
    def __init__(self, a, checkpoint_function, restore_function):
        self.every, self.local = a.every, a.local
        self.mode = MODES[a.mode](a)
        self.checkpoint_function, self.restore_function = checkpoint_function, restore_function
        self.calls = 0
        self.checkpoint_value = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.on_signal)

    def told(self):
        say("saved", getattr(self.checkpoint_value, "steps", "all"))

    def checkpoint(self, value=None):
        self.checkpoint_value = self.checkpoint_value if value is None else value
        self.checkpoint_function(self.local, self.checkpoint_value)

    def transfer_checkpoint_files(self):
        if os.path.exists(self.local):
            self.mode.put()

    def step(self, value):
        self.checkpoint_value = value
        if self.calls % self.every == 0:
            self.checkpoint(value)
            self.transfer_checkpoint_files()
            self.told()
        self.calls += 1

    def on_signal(self, *_):
        self.checkpoint()
        self.transfer_checkpoint_files()
        if not self.mode.keeps_local:
            os.unlink(self.local)
        self.told()
        sys.exit(self.mode.exit_code)

    def restore(self, default):
        if self.mode.exists():
            self.mode.get()
        return self.restore_function(self.local) if os.path.exists(self.local) else default


def save(path, training):
    def half():
        moment("saving")
        moment("saving %d" % training.steps)

    save_archive(path, training, NAMES, half)


def train(a):
    """The original's simplest use: a loop that calls step()."""
    checkpointer = Checkpointer(a, save, lambda path: load_archive(path, NAMES))
    training = checkpointer.restore(None) or Training()
    say("starts", training.steps)
    while training.steps < a.steps:
        training.step()
        checkpointer.step(training)
        moment("trained %d" % training.steps)
    training.done()


def watch(a):
    """Beside a training that knows nothing of it. At the end what is there is transferred once more, and the local file stays the training's."""
    checkpointer = Checkpointer(a, lambda *_: None, None)
    checkpointer.mode.keeps_local = True
    seen = None
    say("watches")
    while True:
        try:
            there = os.stat(checkpointer.local)
            found = there.st_ino, there.st_mtime_ns, there.st_size
        except FileNotFoundError:
            found = None
        if found and found != seen:
            checkpointer.transfer_checkpoint_files()
            seen = found
            say("transferred", found[2])
        time.sleep(POLL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--local", required=True)
    parser.add_argument("--target")
    parser.add_argument("--server")
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--with", dest="framework", choices=("keras", "lightning"))
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("steps", type=int, nargs="?", default=0)
    a = parser.parse_args()
    if a.watch:
        watch(a)
    elif a.framework:
        import kit_callbacks
        kit_callbacks.fit(a)
    else:
        train(a)


if __name__ == "__main__":
    main()
