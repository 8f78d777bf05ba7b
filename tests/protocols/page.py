# SPDX-License-Identifier: Apache-2.0
"""The rules of saves (lib/saves) without the engine: a place where protocols are played in a moment.

Here is what files do, as the contract's part 1.2 says: a replacement is seen by its writer alone, what a killed writer left is undone. When an epoch
is sealed, what it is and when the live tree goes back, tests/saves/main.c says, which is told of each thing that happens. Nothing is stored; time is
a number.
"""

import hashlib
import os
import subprocess

from place import PATIENCE, SETTLE, PlaceError

def digest(data):
    return (len(data), hashlib.sha1(data).hexdigest())


def seconds(time):
    """As a line of an event has them."""
    return ("%.9f" % time).rstrip("0").rstrip(".")


def quoted(path):
    return "/" + "".join("%%%02X" % ord(c) if c <= " " or c in "\x7f%" else c for c in path)


class Rules:
    """The program that knows the rules."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def ask(self, line):
        """What it answers: decisions, and when it wants to be told the time."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answers = []
        while True:
            words = self.process.stdout.readline().rstrip("\n").split(" ", 1)
            if words[0] == "due":
                return answers, float("inf") if words[1] == "never" else float(words[1])
            if not words[0]:
                raise PlaceError("status %s of the rules after: %s" % (self.process.wait(), line))
            answers.append(words)


class Version:
    """Bytes that are written: kind "new", "replace" or "edit"."""

    def __init__(self, kind, data):
        self.kind, self.data = kind, bytearray(data)
        self.handles, self.killed, self.fragile = 0, False, False


class Inode:
    def __init__(self):
        self.closed, self.version = None, None  # bytes of the last close; what is written and seen by all


class Handle:
    def __init__(self, number, inode, version, flags, path, who):
        self.number, self.inode, self.version, self.flags, self.at, self.path, self.who = number, inode, version, flags, 0, path, who


class Epoch:
    def __init__(self, number, tree, verdict, rule):
        self.number, self.tree, self.verdict, self.rule, self.links = number, tree, verdict, rule, {}


class Page:
    """The place: the interface of place.InProcess."""

    name = "page"

    def __init__(self, arena, program):
        self.arena, self.rules = arena, Rules(program)

    def close(self):
        self.rules.close()

    def begin(self, _resume):
        self.now, self.names, self.directories, self.links, self.fds = 0.0, {}, set(), {}, {}
        self.numbers, self.alive, self.handles = {}, set(), 0
        self.epochs, self.blobs, self.errors, self.trace = [], {digest(b""): b""}, [], []
        self.ask("new %s %s known" % (seconds(SETTLE), seconds(PATIENCE)))

    def end(self):
        pass

    def failures(self):
        errors, self.errors = self.errors, []
        return errors

    # ---- the rules

    def ask(self, line):
        self.trace.append(line)
        answers, self.due = self.rules.ask(line)
        for what, rest in answers:
            self.trace.append("    %s %s" % (what, rest))
            if what == "seal":
                number, _, rule, verdict = rest.split(" ", 3)
                self.epochs.append(Epoch(int(number), self.tree(), verdict.split(":")[0], rule))
                self.epochs[-1].links = dict(self.links)
            elif what == "decided":
                number, verdict = rest.split(" ", 1)
                self.epochs[int(number) - 1].verdict = verdict
            else:
                self.become(self.epochs[int(rest) - 1])

    def event(self, what, path=None, to=None, facts=(), **numbers):
        """The line of an event."""
        words = [seconds(self.now), what] + ["%s=%d" % number for number in numbers.items()]
        words += ["is=" + ",".join(facts)] if facts else []
        words += ["%s=%s" % (key, quoted(value)) for key, value in (("path", path), ("to", to)) if value is not None]
        return " ".join(words)

    def tell(self, *args, **numbers):
        self.ask(self.event(*args, **numbers))

    def before(self, *args, **numbers):
        """Gives the line, to be told once it has happened."""
        line = self.event(*args, **numbers)
        self.ask("before " + line)
        return line

    def is_output(self, what):
        line = "output %s" % (what if isinstance(what, int) else "/" + what)
        return self.rules.ask(line)[0] == [["yes"]]

    def stays(self, path):
        return self.rules.ask("stays /" + path)[0] == [["yes"]]

    def number(self, who):
        self.alive.add(who)
        return self.numbers.setdefault(who, len(self.numbers) + 1)

    # ---- operations

    def act(self, op, at=None):
        self.pause(0.001)
        try:
            self.number(op.who)
            if op.what in ("write", "store"):
                self.do_write(op.who, op.args[0], op.args[1], op.args[2], at)
            else:
                getattr(self, "do_" + op.what)(op.who, *op.args)
        except (KeyError, OSError) as error:
            self.errors.append("%s %s %s: %r" % (op.who, op.what, op.args, error))

    def do_open(self, who, fd, path, flags):
        inode = self.names.get(path)
        if path.rpartition("/")[0] and path.rpartition("/")[0] not in self.directories:
            raise FileNotFoundError(path)
        if inode is None and not flags & os.O_CREAT:
            raise FileNotFoundError(path)
        self.handles += 1
        handle = Handle(self.handles, inode, None, flags, path, who)
        if inode is None or (flags & os.O_ACCMODE) != os.O_RDONLY:
            self.open_to_write(handle)
        self.fds.setdefault(who, {})[fd] = handle

    def open_to_write(self, handle):
        inode, flags = handle.inode, handle.flags
        output = self.is_output(handle.path)
        kind = "new" if inode is None else "replace" if flags & os.O_TRUNC and inode.closed and not output else "edit"
        fact = "new" if inode is not None and inode.closed is None else kind
        line = self.before("opened", handle.path, facts=(fact,), process=self.number(handle.who), handle=handle.number)
        if kind == "new":
            inode = handle.inode = self.names[handle.path] = Inode()
        version = inode.version
        if kind != "edit" or version is None or not version.handles:
            version = Version(kind, inode.closed or b"" if kind == "edit" else b"")
            version.fragile = kind == "replace" or (
                kind == "new" and (flags & os.O_ACCMODE) == os.O_WRONLY and not flags & os.O_APPEND and not output)
        if kind != "replace":
            inode.version = version
        if flags & os.O_TRUNC:
            del version.data[:]
        handle.version = version
        version.handles += 1
        self.ask(line)

    def do_write(self, who, fd, size, offset, at):
        handle = self.fds[who][fd]
        data = handle.version.data
        start = offset
        if start is None:
            start = len(data) if handle.flags & os.O_APPEND else handle.at
            handle.at = start + size
        data.extend(bytes(max(0, start - len(data))))
        data[start:start + size] = self.arena.bytes(at, size)

    def do_truncate(self, who, fd, size):
        data = self.fds[who][fd].version.data
        del data[size:]
        data.extend(bytes(size - len(data)))

    def do_fsync(self, who, fd):
        version = self.fds[who][fd].version
        if version and version.kind == "new":
            version.fragile = False

    def do_fsyncdir(self, _who, _path):
        pass

    do_chmod = do_utimens = do_fsyncdir

    def do_symlink(self, who, target, path):
        self.links[path] = target
        self.tell("linked", path, process=self.number(who), size=len(target))

    def do_close(self, who, fd):
        handle = self.fds[who].pop(fd)
        if handle.version is not None and handle.who == who:
            self.release(handle)

    def do_fork(self, who, child):
        self.fds[child] = dict(self.fds.get(who, {}))

    def do_mkdir(self, who, path):
        if path in self.directories:
            raise FileExistsError(path)
        line = self.before("made", path, process=self.number(who))
        self.directories.add(path)
        self.ask(line)

    def do_rmdir(self, _who, path):
        if any(name.startswith(path + "/") for name in self.names):
            raise OSError("not empty")
        self.directories.remove(path)
        self.tell("removed", path, facts=("directory",))

    def do_unlink(self, _who, path):
        if path in self.links:
            del self.links[path]
        else:
            del self.names[path]
        self.tell("removed", path)

    def size_of(self, path):
        return len(self.names[path].closed or b"")

    def do_link(self, who, old, new):
        self.names[new] = self.names[old]
        self.tell("linked", new, process=self.number(who), size=self.size_of(new))

    def do_rename(self, who, old, new):
        if old in self.links:
            facts = ["over"] * (new in self.links)
            line = self.before("renamed", old, new, facts, process=self.number(who), size=len(self.links[old]))
            self.links[new] = self.links.pop(old)
            self.ask(line)
            return
        directory = old in self.directories
        if directory and any(name.startswith(new + "/") for name in self.names):
            raise OSError("not empty")
        facts = ["over"] * (new in self.names or new in self.directories) + ["directory"] * directory
        line = self.before("renamed", old, new, facts, process=self.number(who), size=0 if directory else self.size_of(old))
        if directory:
            self.directories = {new + path[len(old):] if (path + "/").startswith(old + "/") else path for path in self.directories}
            self.names = {new + path[len(old):] if path.startswith(old + "/") else path: inode for path, inode in self.names.items()}
        else:
            self.names[new] = self.names.pop(old)
        self.ask(line)

    def do_exchange(self, who, one, other):
        line = self.before("exchanged", one, other, process=self.number(who), size=self.size_of(other))
        self.names[one], self.names[other] = self.names[other], self.names[one]
        self.ask(line)

    # ---- the end of a process

    def do_exit(self, who, status):
        self.tell("ended", process=self.number(who), status=status)
        self.release_all(who, status != 0)

    def kill_all(self):
        self.pause(0.001)
        alive = sorted(self.alive | set(self.fds))
        for who in alive:
            self.tell("ended", process=self.number(who), status=137)
        for who in alive:
            self.release_all(who, True)

    def release_all(self, who, killed):
        self.alive.discard(who)
        for handle in self.fds.pop(who, {}).values():
            if handle.version is not None and handle.who == who:
                handle.version.killed |= killed
                self.release(handle)

    # ---- closing

    def release(self, handle):
        inode, version, path = handle.inode, handle.version, self.path_of(handle)
        version.handles -= 1
        if version.handles:
            self.tell("closed", facts=("shared",), handle=handle.number, size=0)
            return
        if inode.version is version:
            inode.version = None
        if version.killed and version.fragile and not self.is_output(handle.number):
            if version.kind == "new" and path is not None and inode.closed is None:
                del self.names[path]
            self.tell("undone", path or handle.path, facts=("killed",), handle=handle.number)
            return
        data, before, inode.closed = bytes(version.data), inode.closed, bytes(version.data)
        self.blobs[digest(data)] = data
        edit = version.kind == "edit" and before is not None
        facts = {"same": data == before, "grew": edit and before and data != before and data.startswith(before),
                 "had": edit and bool(self.epochs) and self.epochs[-1].tree.get(path) == digest(before), "killed": version.killed}
        self.tell("closed", path, facts=[fact for fact in facts if facts[fact]], handle=handle.number, size=0 if path is None else len(data))

    def path_of(self, handle):
        if self.names.get(handle.path) is handle.inode:
            return handle.path
        return next((path for path, inode in self.names.items() if inode is handle.inode), None)

    # ---- time

    def pause(self, duration):
        until = self.now + duration
        while self.due <= until:
            self.now = max(self.now, self.due)
            self.tell("time")
        self.now = until

    # ---- trees

    def link_digests(self):
        return {path: digest(target.encode()) for path, target in self.links.items()}

    def tree(self):
        out = self.link_digests()
        for path, inode in self.names.items():
            data = inode.closed
            if inode.version and self.is_output(path):
                data = bytes(inode.version.data)
            if data is not None:
                out[path] = digest(data)
                self.blobs[out[path]] = data
        return out

    def become(self, epoch):
        """The live tree goes back; output stays as it is."""
        names = {path: inode for path, inode in self.names.items() if self.stays(path)}
        self.links = dict(epoch.links)
        for path, seen in epoch.tree.items():
            if path not in names and path not in self.links:
                names[path] = Inode()
                names[path].closed = self.blobs[seen]
        self.names = names

    # ---- looks

    def newest_whole(self):
        return next((epoch for epoch in reversed(self.epochs) if epoch.verdict == "whole"), None)

    def latest(self):
        epoch = self.newest_whole()
        return (epoch.tree, epoch.number) if epoch else ({}, 0)

    def look(self, what):
        seen = {"epochs": [[e.number, e.verdict, e.rule] for e in self.epochs], "latest": self.latest()[1], "stored": 0}
        if what == "trees":
            seen["trees"] = {e.number: e.tree for e in self.epochs}
        if what == "live":
            seen["live"] = self.link_digests()
            for path, inode in self.names.items():
                data = bytes(inode.version.data) if inode.version else inode.closed
                if data is not None:
                    seen["live"][path] = digest(data)
        return seen

    def lose_machine(self):
        """Another machine mounts what is in the remote: all that was sealed."""
        self.tell("lost")
        self.fds, self.alive, self.names = {}, set(), {}
        if self.epochs:
            self.become(self.newest_whole() or self.epochs[-1])
        self.directories |= {path.rpartition("/")[0] for path in self.names if "/" in path}
