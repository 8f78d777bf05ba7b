# SPDX-License-Identifier: Apache-2.0
"""What the limits are measured by: test_limits.py asserts some of it, tests/bench/limits.py prints all."""

import os
import statistics
import subprocess
import threading
import time

MIB = 1 << 20
CLOCK_REALTIME_COARSE = 5  # clock_gettime(2)


def seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def await_tick():
    """Until what is written from now on has another time than what was written before: file systems stamp with a clock that goes on by
    ticks."""
    now = time.time_ns()
    while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= now:
        time.sleep(0.001)


def least(*calls, times=7):
    """The least that each of these gives (seconds), turn by turn: what else the machine does hits all alike, and the least the least."""
    return [min(column) for column in in_turn(calls, times)]


def middle(*calls, times=7):
    """The median, where one turn in which it does not happen must not excuse the others."""
    return [statistics.median(column) for column in in_turn(calls, times)]


def in_turn(calls, times):
    return zip(*[[call() for call in calls] for _ in range(times)])


def peak_memory(pid):
    """Bytes that the process had in memory at most."""
    with open("/proc/%d/status" % pid, encoding="ascii", errors="replace") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM:"))


def counted(pid, what):
    """A line of /proc/PID/io: wchar, bytes written and copied; syscw, calls that write."""
    with open("/proc/%d/io" % pid, encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(what + ":"))


def cpu(pid):
    """Seconds that the process has computed: what else the machine does counts little."""
    with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as f:
        return sum(int(n) for n in f.read().rpartition(")")[2].split()[11:13]) / os.sysconf("SC_CLK_TCK")


def answers(pid):
    """Writes of the daemon so far: one for each request, and what it writes itself."""
    return counted(pid, "syscw")


def stored(volume):
    """Bytes of the packs in the remote."""
    return sum(p.stat().st_size for p in volume.remote.glob("packs/*/*"))


def write(path, size, block, flags=os.O_CREAT | os.O_TRUNC):
    """Writes `size` bytes of repetitions of the block: an open descriptor."""
    fd = os.open(path, os.O_WRONLY | flags, 0o644)
    left = size
    while left > 0:
        left -= os.write(fd, block[:left])
    return fd


def close_seconds(path, fd):
    """How long close(2) takes of a file just written, and the next look at its name."""
    return seconds(lambda: (os.close(fd), os.stat(path)))


def save_many(folder, count, text="%d"):
    """Small files with different contents."""
    os.makedirs(folder, exist_ok=True)
    for i in range(count):
        with open(os.path.join(folder, "f%06d" % i), "w", encoding="ascii") as f:
            f.write(text % i)


def list_sizes(folder):
    """What is in a folder, with sizes and times."""
    subprocess.run(["find", os.fspath(folder), "-maxdepth", "1", "-printf", "%s %t %p\\n"], stdout=subprocess.DEVNULL, check=True)


def list_long(folder):
    """The same; coreutils 9.7 lists each file's extended attributes, too, which the kernel does not keep."""
    subprocess.run(["ls", "-l", os.fspath(folder)], stdout=subprocess.DEVNULL, check=True)


class Writer:
    """A thread that makes and rewrites small files all the time; `worst` is its longest wait."""

    def __init__(self, folder):
        self.folder = os.fspath(folder)
        self.worst = 0.0
        self.count = 0
        self.stopping = False
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stopping:
            begin = time.perf_counter()
            with open(os.path.join(self.folder, "w%d" % (self.count % 50)), "wb") as f:
                f.write(b"y")
            self.worst = max(self.worst, time.perf_counter() - begin)
            self.count += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping = True
        self.thread.join()
