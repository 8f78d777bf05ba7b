#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command in a mount namespace of its own, whose mounts are private.

    tests/tools/own_mounts.py COMMAND...

unshare(1) does the same only where the top of the file system is a mount, which that of a chroot is not. A program that has
threads cannot do it to itself: only the thread that asks would move.
"""

import ctypes
import os
import re
import sys

CLONE_NEWNS, MS_PRIVATE = 0x20000, 0x40000  # <sched.h>, <sys/mount.h>


def main():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    with open("/proc/self/mountinfo", "rb") as f:
        mounts = [line.split(b" - ")[0].split(b" ") for line in f]
    # One by one: the top of a chroot is no mount.
    for words in mounts:
        point = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), words[4])
        if any(w.startswith(b"shared:") for w in words[6:]) and libc.mount(None, point, None, MS_PRIVATE, None):
            raise OSError(ctypes.get_errno(), "no private mount", os.fsdecode(point))
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
