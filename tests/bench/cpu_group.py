# SPDX-License-Identifier: Apache-2.0
"""One group for the scheduler of all that a run starts, as a batch system's job, a container and a login under systemd have one.

Where nobody makes such groups, Linux makes one of each session (kernel.sched_autogroup_enabled), and shares the processors out
among sessions, whatever nice values there are within them. That is no place where people train, and no competitor's work."""

import contextlib
import os
import pathlib

FOLDERS = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup")  # version 1, version 2


def autogroup():
    try:
        return pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
    except OSError:
        return False


def own_group(text):
    """The group of the cpu controller that /proc/PID/cgroup names, or None."""
    fields = [line.split(":", 2) for line in text.splitlines()]
    of = {names: path for _, names, path in fields}
    return of.get("cpu") or of.get("cpu,cpuacct") or of.get("")


def join(top):
    """A group of this process alone below top, or None."""
    folder = top / ("epochfs-bench-%d" % os.getpid())
    try:
        folder.mkdir()
    except OSError:
        return None
    try:
        if any((folder / name).exists() for name in ("cpu.shares", "cpu.weight")):
            (folder / "cgroup.procs").write_text(str(os.getpid()))
            return folder
    except OSError:
        pass
    folder.rmdir()
    return None


def leave(folder):
    with contextlib.suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text().split():
            (folder.parent / "cgroup.procs").write_text(pid)
        folder.rmdir()


@contextlib.contextmanager
def cpu_group():
    """Puts this process, and so all that it starts, into such a group where it has none. Yields whether sessions still count."""
    if not autogroup() or own_group(pathlib.Path("/proc/self/cgroup").read_text()) not in ("/", None):
        yield False
        return
    folder = next(filter(None, map(join, map(pathlib.Path, FOLDERS))), None)
    try:
        yield folder is None
    finally:
        if folder is not None:
            leave(folder)
