# SPDX-License-Identifier: Apache-2.0
"""The trainer of tests/crash/killed_trainer.py on a mount with a slow clock, killed after one of its calls: what its framework finds then."""

import json
import os
import platform
import struct
import subprocess
import sys

import pytest

from conftest import LIMIT
from crash_script import LIBRARY, Calls
from place import PATIENCE, SETTLE  # of tests/protocols
from slow_mount import SlowMount

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PROGRAM = os.path.join(os.environ.get("EPOCHFS_UNITS", ""), "protocols/epochfs")
STYLES = ("in place", "directory", "rename")
ENDINGS = {"torch": ".pt", "safetensors": ".safetensors"}


class UserCalls(Calls):
    """The numbers that the library shares with processes that use mounts below `top`: they map them once, so the file stays."""

    def __init__(self, path, top):
        super().__init__(path)
        self.top = top

    def begin(self, kill_after):
        with open(self.path, "r+b") as file:
            file.write(struct.pack(self.FORMAT, 0, kill_after, 0, 0, 0, b""))


class Server:
    """The process that has the framework, and forks the others."""

    def __init__(self, framework, calls):
        if framework == "safetensors" and platform.freedesktop_os_release().get("VERSION_ID") == "12":
            pytest.skip("Debian 12 has no safetensors")
        self.ending = ENDINGS[framework]
        environment = {**os.environ, "LD_PRELOAD": LIBRARY, "EPOCHFS_CALLS": str(calls.path), "EPOCHFS_CALLS_OF": str(calls.top)}
        self.process = subprocess.Popen([sys.executable, "-u", os.path.join(TESTS, "crash/killed_trainer.py"), framework], env=environment, text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.read() != "ready":
            error = self.process.communicate()[1]
            pytest.skip("%s is not installed" % framework) if "No module named '%s" % framework in error else pytest.fail(error)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=LIMIT)
        self.process.stdout.close()
        self.process.stderr.close()

    def read(self):
        return self.process.stdout.readline().rstrip("\n")

    def tell(self, text):
        self.process.stdin.write(text + "\n")

    def load(self, path, style):
        """{file: step}, or what the framework says."""
        self.tell("load %s %s" % (path, style))
        found = json.loads(self.read())
        assert self.read() == "ended 0"
        return found


class Job:
    """A job on a fresh volume, that saves NUMBER times and is killed after a call of the last one (0: not at all)."""

    def __init__(self, server, calls, mount, style, resume):
        self.server, self.calls, self.style = server, calls, style
        self.on = SlowMount(PROGRAM, mount, resume=resume or None, min_free="0", threads="1", upload_ahead="0")
        self.top = mount.path

    def run(self, number, call):
        """What was called last, as "close model.pt", or None where it was not killed."""
        self.server.tell("train %s %s" % (self.top, self.style))
        for _ in range(number - 1):
            self.save()
            self.on.pause(SETTLE + 1)
        self.calls.begin(call)
        self.server.tell("save")
        answer = self.server.read()
        if answer != "saved":
            assert answer == "ended -9"
            what, _, path = self.calls.failed.partition(" ")
            path = os.path.relpath(os.path.join(self.calls.top, path), self.top).replace("checkpoint-%d" % number, "checkpoint-N")
            return "%s %s" % (what, path.replace(self.server.ending, ""))
        self.server.tell("end")
        assert self.server.read() == "ended 0"
        return None

    def save(self):
        self.calls.begin(0)
        self.server.tell("save")
        assert self.server.read() == "saved"

    def faults(self, number, resume):
        """What is wrong: after the kill, after settle, after patience. `latest`, and with resume the live tree, as a new process has them."""
        found = {}
        for seconds in (0, SETTLE + 1, PATIENCE):
            if seconds:
                self.on.pause(seconds)
            why = self.wrong(self.on.mount.epochs_dir / "latest", number)
            if why:
                found.setdefault("latest", why)
        if resume:
            why = self.wrong(self.top, number)
            if why:
                found["live"] = why
        return found

    def wrong(self, path, number):
        steps = self.server.load(path, self.style)
        whole = isinstance(steps, dict) and set(steps.values()) in ({number - 1}, {number})
        return None if whole else "%s" % (steps,)
