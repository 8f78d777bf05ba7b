# SPDX-License-Identifier: Apache-2.0
"""What a program means: the tree as it makes it, what belongs to each save, and whether a tree holds whole saves alone.

Nothing here knows what epochfs does. Trees are {path: (size, SHA-1 in hex)}; a symbolic link counts as a file that has its target in it. None stands for
bytes that nobody knows.
"""

import hashlib
import os

import content
from protocol import ProtocolError


def digest(data):
    return None if data is None else (len(data), hashlib.sha1(data).hexdigest())


class Inode:
    """data: a bytearray, or None where what is in it is not known; save: the attempt that wrote there last, or None."""

    def __init__(self, data=b"", save=None):
        self.data = None if data is None else bytearray(data)
        self.save, self.digest = save, None

    def seen(self):
        if self.digest is None:
            self.digest = digest(self.data)
        return self.digest

    def changed(self, save):
        self.save, self.digest = save, None


class OpenFile:
    def __init__(self, inode, flags):
        self.inode, self.flags, self.at = inode, flags, 0


class Files:
    """A directory as POSIX has it, with the descriptors of processes."""

    def __init__(self):
        self.names, self.directories, self.open = {}, set(), {}
        self.saving = None  # the attempt to which belongs what is written now
        self.known = {}  # (bytes, attempt that wrote them) by their digest, of all trees that were asked for

    def tree(self):
        tree = {}
        for path, inode in self.names.items():
            tree[path] = inode.seen()
            if tree[path] is not None and tree[path] not in self.known:
                self.known[tree[path]] = bytes(inode.data), inode.save
        return tree

    def descriptor(self, who, fd):
        return self.open[who][fd]

    def do_open(self, who, fd, path, flags):
        inode = self.names.get(path)
        if inode is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(path)
            inode = self.names[path] = Inode(save=self.saving)
        if flags & os.O_TRUNC:
            inode.data = bytearray()
            inode.changed(self.saving)
        self.open.setdefault(who, {})[fd] = OpenFile(inode, flags)

    def where(self, who, fd, size, offset):
        """Where so many bytes go that are written there, or with None where the descriptor stands, which moves on."""
        file = self.descriptor(who, fd)
        if offset is not None:
            return offset
        data = file.inode.data
        start = len(data) if file.flags & os.O_APPEND and data is not None else file.at
        file.at = start + size
        return start

    def put(self, who, fd, start, data):
        inode = self.descriptor(who, fd).inode
        inode.changed(self.saving)
        if inode.data is not None:
            inode.data.extend(bytes(max(0, start - len(inode.data))))
            inode.data[start:start + len(data)] = data

    def do_truncate(self, who, fd, size):
        inode = self.descriptor(who, fd).inode
        inode.changed(self.saving)
        if inode.data is not None:
            del inode.data[size:]
            inode.data.extend(bytes(size - len(inode.data)))

    def do_close(self, who, fd):
        del self.open[who][fd]

    def do_fork(self, who, child):
        self.open[child] = dict(self.open.get(who, {}))

    def do_exit(self, who, _status=0):
        self.open.pop(who, None)

    def do_mkdir(self, _who, path):
        self.directories.add(path)

    def do_rmdir(self, _who, path):
        self.directories.discard(path)

    def do_unlink(self, _who, path):
        self.names.pop(path, None)

    def do_rename(self, _who, old, new):
        if old in self.names:
            self.names[new] = self.names.pop(old)
            return
        if any(path.startswith(new + "/") for path in self.names):
            return
        self.directories.discard(old)
        self.directories.add(new)
        for path in [p for p in self.names if p.startswith(old + "/")]:
            self.names[new + path[len(old):]] = self.names.pop(path)
        for path in [d for d in self.directories if d.startswith(old + "/")]:
            self.directories.discard(path)
            self.directories.add(new + path[len(old):])

    def do_exchange(self, who, one, other):
        self.do_rename(who, one, one + "\0")
        self.do_rename(who, other, one)
        self.do_rename(who, one + "\0", other)

    def do_link(self, _who, old, new):
        if old in self.names:
            self.names.setdefault(new, self.names[old])

    def do_symlink(self, _who, target, path):
        self.names.setdefault(path, Inode(target.encode(), self.saving))

    def nothing(self, *_arguments):
        pass

    do_fsync = do_fsyncdir = do_chmod = do_utimens = nothing

    def become(self, live, written):
        """What somebody else's eyes see there; `written`: bytes by their digest, besides those of its own trees."""
        self.tree()
        self.open = {}
        self.names = {path: Inode(*self.known.get(seen, (written.get(seen),))) for path, seen in live.items()}


class Attempt:
    """One try of a save. `forms`: what belongs to it, as it was when nothing of it changed any more, and as the program has changed that since it was over;
    none where it never came so far. `over`: the program takes it for whole."""

    def __init__(self, number, before):
        self.number, self.before, self.forms, self.over = number, before, [], False


class Intent:
    """The program's own view while a protocol is played. `course`: of each save, by its number, the names that belong to it and the operation after which
    nothing of it changes any more, in a run that nobody disturbs."""

    def __init__(self, protocol, plan, arena, course=None):
        self.protocol, self.plan, self.arena, self.course = protocol, plan, arena, course or {}
        self.files, self.attempts, self.inside = Files(), [], False
        self.standing = None  # the attempt that is over, until the next begins or the program is killed
        self.older = {}  # (path, what was in it) that stood outside of all saves: how many attempts there had been
        self.undone = {}  # what stood in a file, and in its journal: what was in the file when the journal was made
        self.bases = {}  # of each journal that is there: the same

    def counts(self, path):
        return not self.protocol.is_output(path) and not self.protocol.is_note(path)

    def apply(self, op):
        """Follows one operation. Of a write it returns where the bytes stand in the arena."""
        at = self.follow(op)
        self.follow_journals()
        if not self.inside:
            self.stand_outside()
        elif op.key == self.course.get(self.attempts[-1].number, ((), None))[1]:
            names = self.course[self.attempts[-1].number][0]
            self.attempts[-1].forms = [{path: seen for path, seen in self.members().items() if path in names}]
        return at

    def follow(self, op):
        if op.what == "save":
            self.begin_attempt(op.args[0])
        elif op.what == "over":
            self.attempts[-1].forms = [self.members()]
            self.attempts[-1].over, self.inside, self.standing = True, False, self.attempts[-1]
        elif op.what == "open":
            self.open(op)
        elif op.what in ("write", "store"):
            return self.write(op)
        elif op.what != "pause":
            getattr(self.files, "do_" + op.what)(op.who, *op.args)
        return None

    def open(self, op):
        fd, path, flags = op.args
        self.files.do_open(op.who, fd, path, flags)
        file = self.files.descriptor(op.who, fd)
        file.seed, (file.size, file.name) = "%s %s %d" % (self.protocol.name, path, op.key), self.plan.get(op.key, (0, path))

    def write(self, op):
        """Bytes of a file that is open over several saves are others in each."""
        fd, size, offset = op.args
        file = self.files.descriptor(op.who, fd)
        start, seed = self.files.where(op.who, fd, size, offset), "%s %d" % (file.seed, len(self.attempts))
        if start + size <= file.size:
            at = self.arena.put(seed, file.name, file.size) + start
        else:
            # What an undisturbed run never wrote: an output that goes on after a kill.
            at = self.arena.put("%s from %d, %d" % (seed, start, size), "", size)
        self.files.put(op.who, fd, start, self.arena.bytes(at, size))
        return at

    # ---- saves

    def begin_attempt(self, number):
        self.files.saving = Attempt(number, self.files.tree())
        self.attempts.append(self.files.saving)
        self.inside, self.standing = True, None

    def members(self):
        """What belongs to the newest save: what was written since it began."""
        tree = self.files.tree()
        return {path: tree[path] for path, inode in self.files.names.items() if inode.save is self.attempts[-1] and self.counts(path)}

    def stand_outside(self):
        """What stands here is of no later save; and the save that is over is whole in each form that the program gives it now."""
        for held in self.files.tree().items():
            self.older.setdefault(held, len(self.attempts))
        form = self.members() if self.standing else None
        if form and form not in self.standing.forms:
            self.standing.forms.append(form)

    def follow_journals(self):
        for journal, path in self.protocol.journals:
            if journal in self.files.names and path in self.files.names:
                now = self.files.names[path].seen()
                self.undone[now, self.files.names[journal].seen()] = self.bases.setdefault(journal, now)
            else:
                self.bases.pop(journal, None)

    def become(self, live, written):
        """The program is gone, and this is what it left."""
        self.files.become(live, written)
        self.inside, self.standing = False, None
        self.stand_outside()

    # ---- trees

    def as_restarted(self, tree):
        """A restart that finds a journal takes back what was changed since that was made."""
        for journal, path in self.protocol.journals:
            base = self.undone.get((tree.get(path), tree.get(journal)))
            if base:
                tree = {**tree, path: base}
        return tree

    def verdict(self, tree):
        """"whole" with the newest attempt that is there, "none" where no save has left a trace, else "half" with why."""
        tree, newest, held = self.as_restarted(tree), None, {}
        for index, attempt in enumerate(self.attempts):
            for form in attempt.forms:
                if all(tree.get(path) == seen for path, seen in form.items()):
                    newest, held = index, form
        if newest is not None and self.protocol.restart[0] == "by":
            return "whole", newest
        for index in range(len(self.attempts) - 1, -1 if newest is None else newest, -1):
            for path in self.names_of(self.attempts[index]):
                if path in tree and path not in held and self.is_of(index, path, tree[path]):
                    return "half", "%s of save %d" % (path, self.attempts[index].number)
        if newest is None:
            return "none", None
        return "whole", newest

    def is_of(self, index, path, seen):
        """Whether an attempt, or a later one, may have put that there."""
        return self.older.get((path, seen), len(self.attempts)) > index

    def names_of(self, attempt):
        """Final names of a save: as it was over, or as the same save of the undisturbed run was."""
        return attempt.forms[0] if attempt.forms else self.course.get(attempt.number, ((), None))[0]


def course_of(protocol, plan, arena, operations):
    """What Intent wants to know of a run that nobody disturbs. Refuses a save that leaves nothing which was not there before."""
    intent, course, states = Intent(protocol, plan, arena), {}, []
    for op in operations:
        intent.apply(op)
        states.append((op.key, intent.files.tree()))
        if op.what != "over":
            continue
        attempt = intent.attempts[-1]
        names, last = attempt.forms[0], op.key
        if not any(attempt.before.get(path) != seen for path, seen in names.items()):
            raise ProtocolError("%s: nothing belongs to save %d" % (protocol.name, attempt.number))
        for key, tree in reversed(states):
            if any(tree.get(path) != seen for path, seen in names.items()):
                break
            last = key
        course[attempt.number], states = (set(names), last), []
    return course


class Arena:
    """All bytes that are written, in one file that the other side maps."""

    def __init__(self):
        self.data, self.at = bytearray(), {}
        self.whole = {}  # bytes by their digest

    def put(self, seed, path, size):
        if seed not in self.at:
            self.at[seed] = len(self.data)
            data = content.make(seed, path, size)
            self.data += data
            self.whole[digest(data)] = data
        return self.at[seed]

    def bytes(self, base, size):
        return bytes(self.data[base:base + size])


def plan_of(operations):
    """Of each open, by its key: how far the file is written, and the name that it has in the end, which says what is in it."""
    sizes, inodes, files = {}, {}, Files()
    for op in operations:
        if op.what == "open":
            files.do_open(op.who, *op.args)
            file = files.descriptor(op.who, op.args[0])
            file.key, inodes[op.key] = op.key, file.inode
            file.inode.name = op.args[1]
        elif op.what in ("write", "store"):
            fd, size, offset = op.args
            start, key = files.where(op.who, fd, size, offset), files.descriptor(op.who, fd).key
            files.put(op.who, fd, start, bytes(size))
            sizes[key] = max(sizes.get(key, 0), start + size)
        elif op.who:
            getattr(files, "do_" + op.what)(op.who, *op.args)
        if op.what == "rename":
            for path, inode in files.names.items():
                inode.name = path
    return {key: (sizes.get(key, 0), inode.name) for key, inode in inodes.items()}
