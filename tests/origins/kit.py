#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as KIT's checkpointer for HTC workflows does (class Checkpointer): the same operations on files, in its five transfer modes.

    kit.py --mode None|shared|xrootd|manual|htcondor --local FILE [--target PATH] [--server URL] --every N STEPS

It writes FILE in place at each N-th step and transfers it to the target. On SIGTERM or SIGINT it saves, transfers, removes FILE where
another copy is to be had, and exits with 85, or what HTCondor's job says (CheckpointExitCode in the file that _CONDOR_JOB_AD names).
"""

import argparse
import os
import signal
import subprocess
import sys

from training import Training, load_archive, moment, save_archive, say

NAMES = ("model", "optimizer")


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
    os.chmod(target, os.stat(source).st_mode & 0o7777)


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
        subprocess.run(["cp", self.target, self.local], check=True)


class Manual(Shared):
    """A callback of the user's: rsync, both ways. Times of a second would hide a file of the same size."""

    def put(self):
        subprocess.run(["rsync", "--ignore-times", self.local, self.target], check=True)

    def get(self):
        subprocess.run(["rsync", "--ignore-times", self.target, self.local], check=True)


class Htcondor(InPlace):
    """HTCondor transfers, by what the job says."""

    def __init__(self, a):
        super().__init__(a)
        self.exit_code = int(job_ad("CheckpointExitCode"))
        if job_ad("TransferCheckpoint") != os.path.basename(self.local):
            sys.exit("HTCondor transfers another file")


class Xrootd(InPlace):
    """XRootD's own client, as the original's."""

    keeps_local = False

    def __init__(self, a):
        super().__init__(a)
        from XRootD import client
        self.client = client.FileSystem(self.server)

    def _copy(self, source, target, **how):
        status, _ = self.client.copy(source, target, **how)
        if not status.ok:
            sys.exit(status.message)

    def put(self):
        self._copy("file://" + self.local, self.server + self.target, force=True)

    def exists(self):
        return self.client.stat(self.target)[0].ok

    def get(self):
        self._copy(self.server + self.target, self.local, force=True)


MODES = {"None": InPlace, "shared": Shared, "xrootd": Xrootd, "manual": Manual, "htcondor": Htcondor}


class Checkpointer:
    def __init__(self, a):
        self.every, self.local = a.every, a.local
        self.mode = MODES[a.mode](a)
        self.calls = 0
        self.value = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.on_signal)

    def save(self):
        save_archive(self.local, self.value, NAMES, lambda: moment("saving"))
        self.mode.put()
        say("saved", self.value.steps)

    def step(self, value):
        self.value = value
        if self.calls % self.every == 0:
            self.save()
        self.calls += 1

    def on_signal(self, *_):
        self.save()
        if not self.mode.keeps_local:
            os.unlink(self.local)
        sys.exit(self.mode.exit_code)

    def restore(self):
        if self.mode.exists():
            self.mode.get()
        return load_archive(self.local, NAMES) if os.path.exists(self.local) else Training()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=MODES, required=True)
    parser.add_argument("--local", required=True)
    parser.add_argument("--target")
    parser.add_argument("--server")
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("steps", type=int)
    a = parser.parse_args()
    checkpointer = Checkpointer(a)
    training = checkpointer.restore()
    say("starts", training.steps)
    while training.steps < a.steps:
        training.step()
        checkpointer.step(training)
        moment("trained %d" % training.steps)
    training.done()


if __name__ == "__main__":
    main()
