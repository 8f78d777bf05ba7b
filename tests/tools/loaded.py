#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a command beside a load: four busy processes for each processor, which are as important as the command's.

    tests/tools/loaded.py COMMAND...

Where EPOCHFS_LOAD is a number, it is that of the busy processes a processor. They end with the command, and with this process.
"""

import ctypes
import os
import signal
import subprocess
import sys

PR_SET_PDEATHSIG = 1


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main():
    count = round(float(os.environ.get("EPOCHFS_LOAD", "4")) * len(os.sched_getaffinity(0)))
    busy = [subprocess.Popen([sys.executable, "-ESc", "while True: pass"], preexec_fn=end_with_parent) for _ in range(count)]
    print("%d busy processes beside: %s" % (count, " ".join(sys.argv[1:])), flush=True)
    try:
        return subprocess.call(sys.argv[1:])
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    # What ends this process is to end the load in order.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
