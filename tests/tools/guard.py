#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""After a run of mount tests: takes away what is left mounted or running, and fails if there was.

    tests/tools/guard.py RUN RESULTS

RUN is the run's temporary directory, named in the environment (EPOCHFS_TEST_RUN) or the command
line of all that it started. Also fails for reports of sanitizers in RUN/reports. Writes
RESULTS/mount-guard.json and removes RUN.
"""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import results

GRACE_S = 30  # a daemon whose mount is gone may still be finishing its state


def mounts_under(run):
    """Mount points under RUN, the innermost first."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        octal = line.split(" ")[4]
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), octal)
        if point.startswith(run + "/"):
            found.append(point)
    return found[::-1]


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


def clean(run):
    """Unmounts and kills; what there was to do, as results."""
    left = []
    for point in mounts_under(run):
        left.append(("left mounted: " + point, "failed", ""))
        if subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL).returncode:
            subprocess.run(["fusermount3", "-uz", point])
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
    """What the sanitizers wrote, printed whole, as results."""
    found = []
    for path in sorted(pathlib.Path(run, "reports").glob("*")):
        text = path.read_text(errors="replace")
        print("-- %s\n%s" % (path.name, text), flush=True)
        summary = re.search(r"SUMMARY: .*|.*runtime error: .*", text)
        found.append(("sanitizer report " + path.name, "failed", summary[0] if summary else ""))
    return found


def main():
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
