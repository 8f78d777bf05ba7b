# SPDX-License-Identifier: Apache-2.0
"""A training run that saves once more when it is told to end, under `epochfs run`, and the processes of such a run."""

import json
import os
import subprocess
import sys

from conftest import BIN, LIMIT, is_mounted, run, wait_until

# Saves once it is told to end: after a moment in which it has nothing open, and slowly. More signals change nothing.
TRAINING = """
import os, signal, sys, time
top, pause = sys.argv[1], float(sys.argv[2])
told = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda n, frame: told.append(n))
def save(step):
    with open(os.path.join(top, "tmp-step"), "w") as f:
        for part in range(4):
            f.write(step)
            f.flush()
            time.sleep(pause / 4)
    os.rename(os.path.join(top, "tmp-step"), os.path.join(top, "step"))
save("1")
print("saved", flush=True)
while not told:
    time.sleep(0.01)
end = time.monotonic() + pause
while time.monotonic() < end:
    time.sleep(0.01)
save("2")
print("saved again", flush=True)
"""


def children_of(pid):
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task), encoding="utf-8") as f:
                found += [int(word) for word in f.read().split()]
    except OSError:  # it ends
        pass
    return found


def tree_of(pid):
    return [pid] + [p for child in children_of(pid) for p in tree_of(child)]


def name_of(pid):
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return "epochfs, ended"


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Job:
    """`epochfs run` of the training above, and its processes."""

    def __init__(self, base, options="settle=1h", pause=0.4):
        self.base, self.path, self.remote = base, base / "mnt", base / "remote"
        self.remote.mkdir(exist_ok=True)
        self.env = {**os.environ, "EPOCHFS_CACHE_DIR": str(base / "cache")}
        self.command = [BIN, "run", "-o", options, "--mount", "%s:%s" % (self.remote, self.path), "--grace", "20s", "--",
                        sys.executable, "-c", TRAINING, str(self.path), str(pause)]
        self.process = None

    def start(self, *before):
        self.process = subprocess.Popen([*before, *self.command], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line == "saved\n", line + self.process.stderr.read()
        return self

    def processes(self):
        """By what they are: the runner, training, and those that serve the mount."""
        runner = next(p for p in tree_of(self.process.pid) if name_of(p) == "epochfs")
        rest = [p for p in tree_of(runner) if p != runner]
        training = [p for p in rest if not name_of(p).startswith("epochfs")]
        return {"runner": [runner], "training": training, "daemon": [p for p in rest if p not in training]}

    def end(self):
        out, err = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, out, err

    def check_saved(self, step="2222"):
        """The last save is in the remote, in a whole epoch, and nothing is below the mount point."""
        wait_until(lambda: not is_mounted(self.path), "the unmount")
        assert os.listdir(self.path) == []
        newest = json.loads(run(BIN, "log", "--json", self.remote).stdout)[0]
        assert newest["complete"] is True and newest["state"] == "durable"
        run(BIN, "export", "--force", self.remote, self.base / "out")
        assert (self.base / "out" / "step").read_text() == step
