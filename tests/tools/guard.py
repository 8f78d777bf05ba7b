#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Watches over a run of mount tests: nothing may hang it, nothing may be left by it.

    tests/tools/guard.py RUN RESULTS
    tests/tools/guard.py --watch SECONDS RUN

The first form comes after the run: it takes away what is left mounted or running, and fails if
there was. The second runs beside it until killed, and aborts a mount under RUN on which a request
has waited for that long: a process that waits for such a mount feels no signal but SIGKILL.

RUN is the run's temporary directory, named in the environment (EPOCHFS_TEST_RUN) or the command
line of all that it started. Also fails for reports of sanitizers in RUN/reports. Writes
RESULTS/mount-guard.json and removes RUN.
"""

import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import results

MNT_FORCE, MNT_DETACH = 1, 2  # <sys/mount.h>
GRACE_S = 30  # a daemon whose mount is gone may still be finishing its state


def mounts_under(run):
    """[(mount point under RUN, a process that sees it or "self", its device)], the innermost first: each worker has a mount namespace of its own."""
    found = {}
    for pid in ["self"] + [pid for pid, _ in processes_of(run)]:
        try:
            text = pathlib.Path("/proc", str(pid), "mountinfo").read_text(errors="surrogateescape")
        except OSError:
            continue  # gone
        for line in text.splitlines():
            words = line.split(" ")
            point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), words[4])
            if point.startswith(run + "/"):
                found.setdefault((point, words[2]), pid)
    return [(point, pid, device) for (point, device), pid in found.items()][::-1]


def abort(mount):
    """Ends every request on the mount, waiting or to come, and unmounts it."""
    point, pid, device = mount
    # Who is not root may abort his own mounts only so.
    if os.geteuid():
        try:
            pathlib.Path("/sys/fs/fuse/connections", device.split(":")[1], "abort").write_text("1")
        except OSError:
            pass  # there is no fusectl
    if pid != "self":
        subprocess.run(["nsenter", "-t", str(pid), "-m", "umount", "-f", "-l", point], stderr=subprocess.DEVNULL)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(point), MNT_FORCE | MNT_DETACH) != 0:
        subprocess.run(["fusermount3", "-uz", point], stderr=subprocess.DEVNULL)


def processes_of(run):
    """(pid, command line) of every process that this run started and that still lives."""
    found, mine = [], {os.getpid(), os.getppid()}
    needle = os.fsencode(run)
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in mine:
            continue
        try:
            proc = pathlib.Path("/proc", entry)
            command = (proc / "cmdline").read_bytes()
            if command and (needle in command or needle in (proc / "environ").read_bytes()):
                found.append((int(entry), command.replace(b"\0", b" ").decode(errors="replace")))
        except OSError:
            continue  # gone, or another user's
    return found


def waits_on_fuse(run):
    """(thread, its system call with arguments) of this run's threads that wait for a FUSE answer."""
    for pid, _ in processes_of(run):
        try:
            tasks = list(pathlib.Path("/proc", str(pid), "task").iterdir())
        except OSError:
            continue  # gone
        for task in tasks:
            try:
                where = (task / "wchan").read_text()
                if where.startswith(("fuse_", "request_wait_answer", "__fuse_")):
                    yield task.name, (task / "syscall").read_text()
            except OSError:
                continue  # gone


def watch(run, limit):
    """Aborts the mounts that are there since before a wait that lasts for `limit` seconds."""
    mounted, waiting = {}, {}
    while True:
        now = time.monotonic()
        mounted = {m: mounted.get(m, now) for m in mounts_under(run)}
        waiting = {w: waiting.get(w, now) for w in waits_on_fuse(run)}
        for since in waiting.values():
            if now - since <= limit:
                continue
            for mount in [mount for mount, seen in mounted.items() if seen <= since]:
                line = "a request waited for %d s: aborted %s" % (limit, mount[0])
                print("guard.py: " + line, flush=True)
                with open(os.path.join(run, "reports", "hang"), "a") as file:
                    file.write(line + "\n")
                abort(mount)
        time.sleep(1)


def clean(run):
    """Unmounts and kills; what there was to do, as results."""
    left = []
    for mount in mounts_under(run):
        left.append(("left mounted: " + mount[0], "failed", ""))
        abort(mount)
    deadline = time.monotonic() + (0 if left else GRACE_S)
    while processes_of(run) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid, command in processes_of(run):
        left.append(("left running: %s" % command.strip()[:200], "failed", "pid %d" % pid))
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    return left


def reports(run):
    """What the sanitizers and the watch wrote, printed whole, as results."""
    found = []
    for path in sorted(pathlib.Path(run, "reports").glob("*")):
        text = path.read_text(errors="replace")
        print("-- %s\n%s" % (path.name, text), flush=True)
        summary = re.search(r"SUMMARY: .*|.*runtime error: .*", text)
        found.append(("report " + path.name, "failed", summary[0] if summary else text[:200]))
    return found


def main():
    if sys.argv[1] == "--watch":
        watch(os.path.realpath(sys.argv[3]), float(sys.argv[2]))
    run, folder = sys.argv[1:]
    run = os.path.realpath(run)
    left = clean(run) + reports(run)
    for name, _, detail in left:
        print("guard.py: %s %s" % (name, detail), flush=True)
    results.write(folder, "mount-guard", left or [("nothing is left mounted or running", "passed", "")])
    shutil.rmtree(run, ignore_errors=True)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
