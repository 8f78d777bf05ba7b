# SPDX-License-Identifier: Apache-2.0
"""Where protocols are played: a real mount, and real processes that do the system calls (protocol_worker.py).

The mount has a clock that the player moves: slow_mount.py.
"""

import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time

import protocol_worker
from place import as_tree
from slow_mount import LIMIT, TICK, SlowMount

class Process:
    """A process of a protocol, on our side."""

    def __init__(self, connection, parent):
        self.socket, self.parent = connection, parent
        self.lines = connection.makefile("r", encoding="utf-8", newline="\n")
        self.name, pid = self.lines.readline().split()
        self.pid = int(pid)
        self.end = os.pidfd_open(self.pid)

    def tell(self, *words):
        self.socket.sendall((" ".join(map(str, words)) + "\n").encode())

    def ask(self, *words):
        """Its answer, or "" where it ended."""
        self.tell(*words)
        try:
            return self.lines.readline().rstrip("\n")
        except ConnectionResetError:
            return ""

    def wait_end(self):
        if not select.select([self.end], [], [], LIMIT)[0]:
            raise TimeoutError("process %s does not end" % self.name)
        os.close(self.end)
        self.lines.close()
        self.socket.close()


class Mounted:
    """As place.InProcess. `new_mount()` gives a conftest.Mount that is not mounted: each play has its own."""

    name = "on a mount"

    def __init__(self, program, arena, new_mount):
        self.program, self.arena, self.new_mount, self.on = program, arena, new_mount, None

    def close(self):
        if self.on:
            self.stop_processes()

    # ---- a play

    def begin(self, resume):
        self.failed, self.written, self.processes, self.seen = [], 0, {}, {}
        mount = self.new_mount()
        self.on = SlowMount(self.program, mount, resume=resume or None, min_free="0", threads="1", upload_ahead="0")
        self.file = open(pathlib.Path(mount.base) / "arena", "wb", buffering=0)
        self.listener = socket.socket(socket.AF_UNIX)
        # The path of a socket has an end.
        self.address = "/tmp/epochfs-%d-%s" % (os.getpid(), os.urandom(4).hex())
        self.listener.bind(self.address)
        self.listener.listen(64)
        self.maker = subprocess.Popen([sys.executable, "-ESu", protocol_worker.__file__, self.address, os.fspath(mount.path), self.file.name],
                                      stdin=subprocess.PIPE, text=True, bufsize=1)

    def end(self):
        self.stop_processes()
        self.on.end()
        self.on = None

    def stop_processes(self):
        self.kill_all()
        self.maker.stdin.close()
        self.maker.wait(timeout=LIMIT)
        self.listener.close()
        os.unlink(self.address)
        self.file.close()

    def lose_machine(self):
        self.kill_all()
        self.on.lose_machine()
        self.seen = {}

    def pause(self, seconds):
        self.on.pause(seconds)

    def latest(self):
        """As whoever looks at this moment finds it: an epoch may be on its way."""
        try:
            number = int(os.readlink(self.on.mount.epochs_dir / "latest"))
        except FileNotFoundError:
            return {}, 0
        if number not in self.seen:
            self.seen[number] = self.tree(number)
        return self.seen[number], number

    def tree(self, number):
        return as_tree(dict(protocol_worker.files_below(self.on.mount.epoch(number))))

    # ---- processes

    def process(self, name):
        if name not in self.processes:
            self.maker.stdin.write(name + "\n")
            self.expect(name, None)
        return self.processes[name]

    def expect(self, name, parent):
        self.listener.settimeout(LIMIT)
        connection, _ = self.listener.accept()
        connection.settimeout(LIMIT)
        self.processes[name] = Process(connection, parent)
        assert self.processes[name].name == name

    def gone(self, name):
        """It has ended, or is about to."""
        process = self.processes.pop(name)
        process.wait_end()
        if process.parent in self.processes:
            self.processes[process.parent].ask("reap", process.pid)

    def act(self, op, at=None):
        words = list(op.args)
        if op.what in ("write", "store"):
            fd, size, offset = op.args
            self.send_arena()
            words = [fd, size, at, -1 if offset is None else offset]
        elif op.what == "open":
            words[2] &= ~os.O_DIRECT  # which needs memory and sizes that are aligned
        answer = self.process(op.who).ask(op.what, *words)
        if op.what == "exit":
            self.gone(op.who)
        elif op.what == "fork" and answer == "0":
            self.expect(op.args[0], op.who)
        if answer not in ("0", ""):
            self.failed.append("%s %s %s: %s" % (op.who, op.what, op.args[0], answer))

    def send_arena(self):
        if self.written < len(self.arena.data):
            self.file.write(self.arena.data[self.written:])
            self.written = len(self.arena.data)

    def kill_all(self):
        for process in self.processes.values():
            os.kill(process.pid, signal.SIGKILL)
        for name in list(self.processes):
            self.processes.pop(name).wait_end()

    def look(self, what):
        self.on.idle()
        epochs = [(e["epoch"], {True: "whole", False: "not whole"}.get(e["complete"], "unknown"), e["trigger"]) for e in self.on.mount.request("log")["epochs"]]
        seen = {"epochs": epochs, "latest": self.latest()[1], "stored": sum(p.stat().st_size for p in self.on.mount.remote.glob("packs/**/*") if p.is_file())}
        if what == "tree":
            seen["tree"] = self.latest()[0]
        elif what == "trees":
            seen["trees"] = {number: self.tree(number) for number, _, _ in epochs}
        elif what == "live":
            seen["live"] = self.look_live()
        return seen

    def look_live(self):
        """Who looks was started after all that happened."""
        time.sleep(TICK)
        seen = json.loads(self.process("look").ask("look"))
        self.processes["look"].tell("exit", 0)
        self.gone("look")
        return as_tree(seen)

    def failures(self):
        failed, self.failed = self.failed, []
        return failed
