# SPDX-License-Identifier: Apache-2.0
"""Where protocols are played: here the engine in a process of its own, with a clock that jumps (main.c)."""

import json
import os
import shutil
import subprocess
import tempfile

SETTLE, PATIENCE = 5.0, 60.0


class PlaceError(Exception):
    """The program that has the engine ended; what it said."""


def as_tree(seen):
    return {path: tuple(file) for path, file in seen.items()}


class InProcess:
    name = "in process"

    def __init__(self, program, arena, passthrough):
        self.arena, self.written = arena, 0
        self.folder = tempfile.mkdtemp(prefix="protocols-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.file = open(os.path.join(self.folder, "arena"), "wb", buffering=0)
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([program, self.folder, self.file.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True, bufsize=1 << 16)
        self.passthrough, self.seen = passthrough, {}

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.file.close()
        self.errors.close()
        shutil.rmtree(self.folder)

    def say(self, *words):
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
        except OSError as error:
            raise self.ended() from error

    def ask(self, *words):
        try:
            self.say(*words)
            self.process.stdin.flush()
        except OSError as error:
            raise self.ended() from error
        line = self.process.stdout.readline()
        if not line:
            raise self.ended()
        return line

    def ended(self):
        self.process.wait()
        self.errors.seek(0)
        return PlaceError("status %d: %s" % (self.process.returncode, self.errors.read().decode(errors="replace")))

    # ---- a play

    def begin(self, resume):
        self.resume, self.seen = resume, {}
        self.say("new", "on" if self.passthrough else "off")
        self.up()

    def up(self):
        self.say("up", round(SETTLE * 1000), round(PATIENCE * 1000), int(self.resume))

    def end(self):
        self.say("down", 0, 0)
        self.say("end")

    def lose_machine(self):
        """What is sealed is in the remote; the machine is gone, and another mounts."""
        self.say("upload")
        self.say("down", 0, 1)
        self.up()
        self.seen = {}

    def act(self, op, at=None):
        if op.what in ("write", "store"):
            fd, size, offset = op.args
            self.send_arena()
            self.say(op.who, op.what, fd, size, at, -1 if offset is None else offset)
        else:
            self.say(op.who, op.what, *op.args)

    def send_arena(self):
        if self.written < len(self.arena.data):
            self.file.write(self.arena.data[self.written:])
            self.written = len(self.arena.data)

    def kill_all(self):
        self.say("*", "kill")

    def pause(self, seconds):
        self.say("pass", round(seconds * 1000))

    def latest(self):
        """The tree of the newest whole epoch, and its number: ({}, 0) where there is none."""
        number = int(self.ask("latest"))
        if number not in self.seen:
            self.seen[number] = self.look("tree")["tree"]
        return self.seen[number], number

    def look(self, what):
        seen = json.loads(self.ask("look", what))
        for key in ("tree", "live"):
            if key in seen:
                seen[key] = as_tree(seen[key])
        if "trees" in seen:
            seen["trees"] = {int(number): as_tree(tree) for number, tree in seen["trees"].items()}
        return seen

    def failures(self):
        return [text for text in self.ask("failed").rstrip("\n").split("\t") if text]
