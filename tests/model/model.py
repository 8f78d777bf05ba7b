# SPDX-License-Identifier: Apache-2.0
"""The contract of a mount, small enough to be read: what each operation gives, and what may be lost when.

It is written from the contract, epochfs-semantics(7), not from the code: the live tree with files as identities (tree.py), versions that are
closed, pending for their writer or being changed in place, epochs with their trees, what a crash of a writer or of the
daemon takes away. An operation is applied together with what came of it on the real mount; Wrong says that this was not
allowed. Where several outcomes are, choose() asks for each in turn (the runner keeps all models that are not refuted).
An operation chooses before it changes anything.
"""

import pickle
import re

from epochs import Epochs
from names import Names
from tree import Body, Branch, Errno, File, Handle, Name, Process, Version, Wrong, is_log, is_temporary, lookup, walk
from worker import BLOCK, CHUNK, pattern

SEEN = object()  # the method has looked at the result itself


class Model(Names, Epochs):
    def __init__(self):
        self.root = File("dir", 0o755)
        self.processes = {}
        self.decisions = []
        self.restarted = False
        self.renamed_to = set()  # final names, also in earlier histories on this mount
        super().__init__()

    # ---- applying

    def choose(self, count):
        """Which of `count` allowed outcomes it was."""
        if not self.decisions:
            raise Branch(count)
        return self.decisions.pop(0)

    def apply(self, op, result):
        """Raises Wrong, with what was expected, or Branch where there was no decision for a choice."""
        try:
            self.take_closes(op)
            expected = ("ok", getattr(self, "do_" + op[0])(result[1] if result[0] == "ok" else None, *op[1:]))
        except Errno as error:
            expected = ("error", str(error))
        if expected[1] is SEEN and result[0] == "ok":
            return
        if expected != result:
            raise Wrong("expected " + ("it to succeed" if expected[1] is SEEN else repr(expected)))

    def applies(self, op):
        """Whether the operation makes sense now: descriptors that it names are there, and nothing is unclear."""
        name, *arguments = op
        if name == "both":
            return all(self.applies(part) and not is_racy(part) for part in arguments)
        if name == "crash":
            return not arguments[0] or self.applies(arguments[0]) and not is_racy(arguments[0])
        if name in ("open", "dup", "fork"):
            free = arguments[1] if name == "open" else arguments[2] if name == "dup" else None
            if free is not None and free in self.process(arguments[0]).slots:
                return False
            if name == "open":
                return True
            if name == "fork":
                return arguments[0] in self.processes and arguments[1] not in self.processes
        if name == "end":
            return arguments[0] in self.processes
        if name == "direct":
            return not self.is_unclear(arguments[1])
        if name not in USE_A_SLOT:
            return True
        handle = self.process(arguments[0]).slots.get(arguments[1])
        if not handle or (handle.body.unclear and name not in ("close", "fstat", "dup")):
            return False
        if name == "torn":
            return self.can_be_torn(handle, arguments[0], arguments[4])
        if name == "mapwrite":
            return handle.reads and handle.writes and arguments[3] + arguments[4] <= len(handle.body.data)
        if name == "copy":
            target = self.process(arguments[0]).slots.get(arguments[2])
            return (target and not target.body.unclear and target.body is not handle.body and handle.reads and target.writes
                    and not target.appends)
        return name not in ("fallocate", "reserve", "punch") or handle.writes

    def is_unclear(self, path):
        try:
            file = self.find(path, True)[2].file
        except Errno:
            return False
        return file.kind == "file" and any(body.unclear for body in [file.body] + file.pending)

    def can_be_torn(self, handle, process, path):
        """The only writer, of what this path leads to."""
        try:
            file = self.find(path, True)[2].file
        except Errno:
            return False
        alone = handle.body.writers == [handle] and {p for p, _ in handle.descriptors} == {handle.opener} == {process}
        return alone and file is handle.body.file and not handle.body.orphan

    def process(self, number):
        return self.processes.setdefault(number, Process())

    # ---- who sees what

    def view(self, process, file):
        """The body that this process has under the file's names."""
        for body in reversed(file.pending):
            if process in body.members:
                if any(h.opener == process for h in body.writers):
                    return body
                # It closed, others that joined have not: it may see what it wrote, or what all see.
                return file.body if self.choose(2) else body
        return file.body

    def find(self, path, follow=False):
        directory, name, entry = lookup(self.root, path, follow)
        if not entry:
            raise Errno("ENOENT")
        return directory, name, entry

    def find_free(self, path):
        """Where a name can be made."""
        directory, name, entry = lookup(self.root, path)
        if entry:
            raise Errno("EEXIST")
        return directory, name

    def add(self, directory, word, file):
        directory.names[word] = Name(file)
        directory.mtime = None
        file.links += 1
        self.note_made(directory, word)

    # ---- open, and what is done with a descriptor

    def do_open(self, _, process, slot, path, letters, mode):
        directory, word, entry = lookup(self.root, path, "x" not in letters)
        if entry and "x" in letters:
            raise Errno("EEXIST")
        if not entry and not ("c" in letters or "x" in letters):
            raise Errno("ENOENT")
        if not entry:
            file = File("file", mode & ~0o022)
            file.body = Body(file, b"", "new", letters[0] == "w" and "a" not in letters and not is_log(word))
            file.body.born = self.last
            self.add(directory, word, file)
            body = file.body
        else:
            file = entry.file
            if file.kind == "dir" and (letters != "r"):
                raise Errno("EISDIR")
            if file.kind == "fifo" and letters[0] == "w":
                raise Errno("ENXIO")
            if file.kind != "file":
                return file.kind
            body = self.choose_body(process, file, letters)
        handle = Handle(body, letters if entry else letters + "t", process)
        handle.descriptors.add((process, slot))
        self.process(process).slots[slot] = handle
        if handle.writes:
            handle.opened_at = self.process(process).count
            body.append_only = handle.appends and (body.append_only or not body.writers)
            body.appended |= handle.appends
            body.writers.append(handle)
        if body in file.pending:
            body.members.add(process)
        if "t" in letters and body.data:
            file.mtime = None
            body.resize(0)
        elif "t" in letters:
            file.mtime = None
        return "file"

    def choose_body(self, process, file, letters):
        body = self.view(process, file)
        if body in file.pending or letters[0] == "r":
            return body
        if "t" in letters and file.closed and file.closed.data and not self.file_is_log(file) and not file.body.output:
            body = Body(file, b"", "replace", True)
            body.born = self.last
            file.pending.append(body)
        elif "t" not in letters and file.pending:
            body = file.pending[-1]
        return body

    def file_is_log(self, file):
        return any(name.file is file and is_log(path.rsplit("/", 1)[-1]) for path, name in walk(self.root))

    def handle(self, process, slot, writing=None):
        handle = self.process(process).slots[slot]
        if writing and not handle.writes or writing is False and not handle.reads:
            raise Errno("EBADF")
        return handle

    def do_write(self, _, process, slot, seed, length):
        handle = self.handle(process, slot, True)
        self.about_to_change(handle.body)
        offset = len(handle.body.data) if handle.appends else handle.position
        handle.body.write(pattern(seed, length), offset)
        handle.body.file.mtime = None
        handle.position = offset + length
        return length

    def do_pwrite(self, _, process, slot, seed, length, offset):
        handle = self.handle(process, slot, True)
        self.about_to_change(handle.body)
        # Linux appends, whatever the offset is (pwrite(2), BUGS).
        handle.body.write(pattern(seed, length), len(handle.body.data) if handle.appends else offset)
        handle.body.file.mtime = None
        return length

    def do_async(self, seen, process, slot, seed, length, offset):
        return self.do_pwrite(seen, process, slot, seed, length, offset)

    def do_read(self, _, process, slot):
        return self.handle(process, slot, False).body.data

    def do_ftruncate(self, _, process, slot, size):
        handle = self.process(process).slots[slot]
        if not handle.writes:
            raise Errno("EINVAL")
        self.about_to_change(handle.body)
        handle.body.resize(size)
        closed = handle.body.file.closed
        # Of the same size, too.
        handle.body.changed |= bool(closed and closed.torn is not False)
        handle.body.file.mtime = None

    def do_fallocate(self, _, process, slot, offset, length):
        body = self.handle(process, slot).body
        self.about_to_change(body)
        body.resize(max(len(body.data), offset + length))
        body.changed = True
        body.file.mtime = None

    def do_reserve(self, _, process, slot, offset, length):
        body = self.handle(process, slot).body
        self.about_to_change(body)
        body.reserve()
        body.file.mtime = None

    def do_punch(self, _, process, slot, offset, length):
        body = self.handle(process, slot).body
        self.about_to_change(body)
        body.write(bytes(max(0, min(len(body.data) - offset, length))), min(offset, len(body.data)))
        body.reserve()
        body.file.mtime = None

    def do_copy(self, _, process, source, target, length, offset_in, offset_out):
        data = self.handle(process, source).body.data[offset_in:offset_in + length]
        body = self.handle(process, target).body
        if data:
            self.about_to_change(body)
            body.write(data, offset_out)
            body.file.mtime = None
        return len(data)

    def do_direct(self, seen, process, path, seed, blocks, at):
        if self.find(path, True)[2].file.kind == "fifo":
            raise Errno("EINVAL")
        kind = self.do_open(seen, process, None, path, "+", 0)
        if kind != "file":
            return None
        self.do_pwrite(None, process, None, seed, blocks * BLOCK, at * BLOCK)
        self.do_close(None, process, None)
        return blocks * BLOCK

    def do_mapwrite(self, _, process, slot, seed, length, offset, sync):
        body = self.handle(process, slot).body
        self.about_to_change(body)
        body.map_write(pattern(seed, length), offset)
        body.file.mtime = None
        if sync:
            body.sync()

    def do_fsync(self, _, process, slot):
        body = self.handle(process, slot).body
        body.sync()
        if body.kind == "new":
            body.fragile = False

    def do_fstat(self, _, process, slot):
        return len(self.handle(process, slot).body.data)

    def do_dup(self, _, process, slot, other):
        handle = self.process(process).slots[slot]
        handle.descriptors.add((process, other))
        self.process(process).slots[other] = handle

    def do_close(self, _, process, slot):
        self.close(process, slot, False)

    def do_fork(self, _, parent, child):
        self.process(child).slots = dict(self.process(parent).slots)
        for slot, handle in self.process(child).slots.items():
            handle.descriptors.add((child, slot))
        return SEEN

    def do_end(self, _, process, how):
        for slot in list(self.process(process).slots):
            self.close(process, slot, how != "exit")
        del self.processes[process]
        return SEEN

    def do_torn(self, seen, process, slot, seed, chunks, path, _):
        """Killed in the middle of writing. `seen`: what another process then finds under the path, or None."""
        handle = self.process(process).slots[slot]
        body, whole = handle.body, b"".join(pattern(seed + i, CHUNK) for i in range(chunks))
        offset = len(body.data) if handle.appends else handle.position
        body.partial = True
        body.file.mtime = None
        found = seen[1] if seen else b""
        if found != body.data and (not body.fragile or body.closed_well):
            # Some beginning of it has come; the file tells how much.
            body.write(common(found[offset:offset + len(whole)], whole), offset)
        self.do_end(None, process, "kill")
        if body.file.body is body and not body.orphan:
            compare(body.data, found, path)
        return SEEN

    # ---- closing

    def close(self, process, slot, killed):
        handle = self.process(process).slots.pop(slot)
        handle.descriptors.remove((process, slot))
        body = handle.body
        body.sync()  # the kernel writes out what was mapped
        if process == handle.opener and handle.writes:
            if killed:
                handle.killed = True
            else:
                body.flushed = True
                body.at_close = (body.changes, len(body.data))
            handle.over = not any(p == process for p, _ in handle.descriptors)
        if handle.over:
            handle.opener = None  # another process may get its number
        if handle.descriptors or not handle.writes:
            return
        if handle in body.held:
            body.held.remove(handle)
        else:
            self.count_off(handle)
        if not body.writers and not (body.held and handle.was_held):
            self.finish(body)

    def count_off(self, handle):
        """It writes no more: how it ended counts."""
        body = handle.body
        body.writers.remove(handle)
        body.closer = handle.by
        body.killed |= handle.killed
        body.closed_well |= not handle.killed and self.vouches(handle)

    # ---- closed by who opened it, while others have inherited the descriptor

    def is_closable(self, body):
        """Closed is what its openers have closed, but for what they gave away: with nothing in it, or written by others since."""
        if body.orphan or not body.writers or not all(h.over for h in body.writers) or self.file_is_log(body.file):
            return False
        if any(h.killed for h in body.writers):
            return True
        changes, size = body.at_close
        return changes == body.changes and (body.kind == "edit" or size > 0)

    def settle(self, body):
        """Its closes are taken in, though no release has come."""
        # Where others wrote by it before anybody looked, and somebody else closed it then, the contract does not say.
        if any(h.written_since for h in body.writers) and not self.choose(2):
            return
        for handle in list(body.writers):
            self.count_off(handle)
            handle.killed, handle.was_held = False, True
            body.held.append(handle)
        self.finish(body)

    def about_to_change(self, body):
        """Closes are taken in when somebody asks, or a while later, and then by what is there."""
        if not self.is_closable(body):
            return
        if self.choose(2):
            self.settle(body)
        else:
            for handle in body.writers:
                handle.written_since = True

    def take_closes(self, op):
        """What is asked for by name, and all that is about epochs, takes closes in."""
        paths = [word for word in op[BY_NAME[op[0]]] if word] if op[0] in BY_NAME else []
        if op[0] in ASK_ALL:
            files = [name.file for _, name in walk(self.root)] + [name.covered for _, name in walk(self.root) if name.covered]
        else:
            files = [self.find_file(path) for path in paths]
        seen = []
        for file in files:
            if not file or file.kind != "file" or file in seen:
                continue
            seen.append(file)
            for body in [file.body] + list(file.pending):
                if self.is_closable(body):
                    self.settle(body)

    def find_file(self, path):
        try:
            return self.find(path, True)[2].file
        except Errno:
            return None

    def vouches(self, handle):
        """It was written while it was open, by it or by another."""
        if handle.unsure and handle.found == handle.body.changes and handle.body.fragile:
            return bool(self.choose(2))
        return handle.found != handle.body.changes

    def note_restart(self):
        self.restarted = True
        for process in self.processes.values():
            for handle in process.slots.values():
                handle.unsure = True

    def finish(self, body):
        """Its last writer closed: committed, undone, or let go."""
        file = body.file
        log = self.file_is_log(file) or body.output
        undone = body.killed and body.fragile and not body.closed_well and not log
        if body.killed and not body.orphan and not log:
            self.note_killed(body, undone)
        if body.orphan:
            if body.tear is not False and body.data and self.torn is not None:
                self.torn.append((body.name, body.data, body.tear is True))
        elif undone:
            self.undo(body)
        else:
            self.commit(body)
        body.killed = body.closed_well = body.flushed = body.output = False

    def note_output(self, process, path, word):
        """The process has saved this name: what it has kept open since before the last time that it did is output."""
        p = self.processes.get(process)
        if not p or is_log(word):
            return
        shape = re.sub("[0-9]+", "#", path)
        before = p.saves.get(shape, 0)
        p.count += 1
        p.saves[shape] = p.count
        # What replaces a committed file would have to be text, and no content here is.
        for file in [file for file in self.files() if file.kind == "file"]:
            body = file.body
            opened = [h for h in body.writers if h.opener == process and h.opened_at < before]
            if not opened or body.output or body.orphan or self.file_is_log(file):
                continue
            # A name with an addition is that file's own, too. Which of several names counts is not said, nor what the daemon before this one has seen.
            own = [re.fullmatch(re.escape(re.sub("[0-9]+", "#", name)) + "([-._~].*)?", shape) is not None for name in self.names(file)]
            if all(own) or (any(own) or any(h.unsure for h in opened)) and self.choose(2):
                continue
            # Which kills before it that settles, the model does not know.
            self.fog |= bool(self.kills)
            body.output, body.fragile = True, False

    def commit(self, body):
        file = body.file
        if not body.changed:
            if body.killed and body.partial and file.closed:
                # The write that was killed may have set the time before any byte of it came.
                file.closed.torn = None
            return
        before, first = file.closed, file.closed is None
        file.closed = Version(body.data, self.last + 1, body.serial)
        self.note_replaced(file, before)
        if body.whole:
            self.note_saved(file, before)
        else:
            self.note_changed_in_part(file, before, body.whole is False)
        if before and before.torn is not False and not body.whole:
            file.closed.torn = before.torn if body.whole is False else None
        elif body.killed and not self.file_is_log(file) and not body.output and body.closed_well is not True:
            # What is only appended to is not torn, and whether its opener closed it is not always told.
            file.closed.torn = None if body.appended or body.closed_well is None else True
        file.mtime = None
        if body in file.pending:
            file.pending.remove(body)
            file.body.orphan = True
            file.body = body
        body.begin()
        body.members.clear()
        if not body.append_only and not body.output and (not body.killed or body.closed_well):
            for path in self.names(file)[:1]:
                self.note_output(body.closer, path, path.rsplit("/", 1)[-1])
        if first:
            for _, name in walk(self.root):
                if name.file is file and name.covered:
                    self.unlink(name.covered)
                    name.covered = None

    def undo(self, body):
        file = body.file
        if self.torn is not None and (body.data or body.partial):
            surely = len(self.names(file)) == 1 and not body.partial
            self.torn.append((self.first_name(file), None if body.partial else body.data, surely))
        body.orphan = True
        if body in file.pending:
            file.pending.remove(body)
            return
        for directory in [self.root] + [n.file for _, n in walk(self.root) if n.file.kind == "dir"]:
            for word, name in list(directory.names.items()):
                if name.file is not file:
                    continue
                if name.covered:
                    directory.names[word] = Name(name.covered)
                else:
                    del directory.names[word]
                directory.mtime = None
        file.links = 0

    def names(self, file):
        return [path for path, name in walk(self.root) if name.file is file]

    def first_name(self, file):
        return (self.names(file) or [""])[0].rsplit("/", 1)[-1]

    def unlink(self, file):
        """One name less."""
        file.links -= 1
        if file.links == 0 and file.kind == "file":
            for body in [file.body] + file.pending:
                body.orphan = True
            file.pending = []

    # ---- looking

    def do_look(self, _, process, path):
        file = self.find(path, True)[2].file
        if file.kind != "file":
            return None
        data = self.view(process, file).data
        return len(data), data

    def do_check(self, seen):
        """The whole tree, as a process sees it that writes nothing."""
        if seen is None:
            return SEEN
        expected = {path: name for path, name in walk(self.root)}
        expected["."] = Name(self.root)
        compare(sorted(expected), sorted(seen), "names")
        inodes = {}
        for path, name in expected.items():
            file = name.file
            kind, mode, links, inode, mtime, content, xattrs = seen[path]
            data = {"file": lambda: file.body.data, "link": lambda: file.target}.get(file.kind, lambda: None)()
            if file.kind == "file" and file.body.unclear:
                data = content
            compare([file.kind, file.mode, file.xattrs], [kind, mode, xattrs], path)
            compare(data, content, path)
            if file.kind == "dir":
                compare(2 + sum(n.file.kind == "dir" for n in file.names.values()), links, "links of " + path)
            elif not any(n.covered for _, n in walk(self.root)):
                compare(file.links, links, "links of " + path)
            if file.mtime is not None:
                compare(file.mtime, mtime, "mtime of " + path)
            if file.inode is None:
                file.inode = inode
            compare(file.inode, inode, "inode of " + path)
            if inodes.setdefault(inode, file) is not file:
                raise Wrong("%s has the inode of another file" % path)
        return SEEN

    # ---- several at once

    def do_both(self, seen, *parts):
        """Two processes at the same moment: one was first."""
        order = [0, 1] if self.choose(2) == 0 else [1, 0]
        for i in order:
            self.apply(parts[i], tuple(seen[i]))
        return SEEN


USE_A_SLOT = {"write", "pwrite", "async", "read", "ftruncate", "fallocate", "reserve", "punch", "copy", "mapwrite", "fsync", "fstat", "close", "dup", "torn"}

# What asks for files by name: the paths in the operation. What takes all closes in.
BY_NAME = {"open": slice(3, 4), "look": slice(2, 3), "direct": slice(2, 3), "rename": slice(2, 4), "truncate": slice(2, 3), "unlink": slice(2, 3),
           "utime": slice(2, 3)}
ASK_ALL = {"check", "seal", "wait", "rollback", "remount", "cold", "epochs", "epoch", "torn_bytes", "tag", "untag", "drop"}


def is_racy(op):
    """The sealer may do something by itself meanwhile."""
    return op[0] == "rename" and any(map(is_temporary, op[2].split("/") + op[3].split("/")))


def common(found, whole):
    """The beginning that both have."""
    low, high = 0, min(len(found), len(whole))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if found[:middle] == whole[:middle] else (low, middle - 1)
    return whole[:low]


def compare(expected, seen, what):
    if expected != seen:
        raise Wrong("%s: expected %s, found %s" % (what, short(expected), short(seen)))


def short(value):
    if isinstance(value, bytes) and len(value) > 40:
        return "%d bytes %r...%r" % (len(value), value[:16], value[-16:])
    return repr(value)


def outcomes(model, op, result):
    """All models that this result allows, and why not where there is none: (models, reasons)."""
    left, models, reasons = [[]], [], []
    closes = model.restarted and op[0] in ("close", "end", "direct")
    closes |= any(handle.over for process in model.processes.values() for handle in process.slots.values())
    saved = pickle.dumps(model) if closes or op[0] in ("both", "crash", "rename") else None
    while left:
        decisions = left.pop()
        if decisions:
            model = pickle.loads(saved)
        model.decisions = list(decisions)
        try:
            model.apply(op, result)
            models.append(model)
        except Branch as branch:
            saved = saved or pickle.dumps(model)
            left += [decisions + [i] for i in range(branch.count)]
        except Wrong as wrong:
            reasons.append(str(wrong))
    return models, reasons
