# SPDX-License-Identifier: Apache-2.0
"""A program that saves while it starts workers, which inherit what it has open: as a trainer does whose data loader forks."""

import os
import signal

from conftest import LIMIT, python, wait_until

CODE = """
import os, sys

def work(commands, answers):
    for word in os.fdopen(commands):
        if word.startswith("write "):
            os.write(f, word[6:].rstrip().encode())
        elif word == "end\\n":
            os._exit(0)
        os.write(answers, b"done\\n")

def start():
    ask, answer = os.pipe(), os.pipe()
    pid = os.fork()
    if not pid:
        # It outlives who has started it: that is no end of what it reads.
        work(ask[0], answer[1])
    workers.append((pid, ask[1], os.fdopen(answer[0])))
    return pid

workers, f = [], -1
MODES = {"wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "w+b": os.O_RDWR | os.O_CREAT | os.O_TRUNC, "r+b": os.O_RDWR}
for line in sys.stdin:
    word, *rest = line.split()
    said = "done"
    if word == "open":
        f = os.open(rest[0], MODES[rest[1]], 0o644)
    elif word == "write":
        os.write(f, rest[0].encode() * int(rest[1]))
    elif word == "fsync":
        os.fsync(f)
    elif word == "fork":
        said = start()
    elif word == "close":
        os.close(f)
    elif word == "tell":
        os.write(workers[int(rest[0])][1], (" ".join(rest[1:]) + "\\n").encode())
        if rest[1] == "end":
            os.waitpid(workers[int(rest[0])][0], 0)
        else:
            workers[int(rest[0])][2].readline()
    print(said, flush=True)
"""


class Trainer:
    def __init__(self):
        self.process = python(CODE)
        self.workers = []

    def tell(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def save(self, path, word, times=1000, mode="wb", forks=True):
        """While it has the file open, half written, a worker is started."""
        self.tell("open", path, mode)
        self.tell("write", word, times // 2)
        if forks:
            self.fork()
        self.tell("write", word, times - times // 2)
        self.tell("close")

    def fork(self):
        self.workers.append(int(self.tell("fork")))

    def kill(self):
        self.process.kill()
        self.process.wait(timeout=LIMIT)

    def end_worker(self, worker=0, how="end"):
        """In order, or by a signal; it is gone then."""
        pid = self.workers[worker]
        if how == "end":
            self.tell("tell", worker, "end")
        else:
            os.kill(pid, how)
            wait_until(lambda: has_ended(pid), "the worker's end")
        self.workers[worker] = 0

    def leave(self):
        for pid in self.workers:
            if pid and not has_ended(pid):
                os.kill(pid, signal.SIGKILL)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=LIMIT)
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.leave()


def has_ended(pid):
    """Its descriptors are closed: nobody may have waited for it."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True
