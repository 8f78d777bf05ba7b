# SPDX-License-Identifier: Apache-2.0
"""The process that serves a supervised mount: which one it is, and how it ends."""

import os
import signal

from conftest import BIN, run, wait_until


def worker(mnt):
    return mnt.status()["pid"]


def kill(mnt):
    """SIGKILL to the process that serves; waits until another one does."""
    pid = worker(mnt)
    assert pid != mnt.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: os.stat(mnt.path) and worker(mnt) != pid, "another process")


def restart(mnt):
    run(BIN, "restart", mnt.path)
