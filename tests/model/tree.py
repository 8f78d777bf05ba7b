# SPDX-License-Identifier: Apache-2.0
"""The parts of the reference model: files, their content, who has it open, and the tree of names."""

import itertools

LOG_ENDINGS = (".log", ".jsonl", ".csv", ".out", ".err")
DEPTH = 10  # links followed


class Errno(Exception):
    """The operation fails with this errno."""


class Wrong(Exception):
    """What was seen is not what the contract allows."""


class Branch(Exception):
    """The contract allows several outcomes here: model.py tries them all."""

    def __init__(self, count):
        super().__init__(count)
        self.count = count


def is_log(name):
    return name.endswith(LOG_ENDINGS) or name.startswith("events.out.tfevents.")


def is_temporary(name):
    return name == "_checkpoint" or name.startswith("tmp-") or ".tmp" in name or name.endswith("_temp")


# In which order content was begun and writers were killed.
SERIALS = itertools.count(1)


class Version:
    """Closed content. Two are the same only if they are one object."""

    def __init__(self, data, born=0, serial=0):
        self.data = data
        self.serial = serial
        self.born = born  # the first epoch that can have it
        self.torn = False  # a killed writer left it; None: the contract does not say


class File:
    """An identity, whatever its content: a directory, a regular file, a symlink or a fifo."""

    def __init__(self, kind, mode):
        self.kind = kind
        self.mode = mode
        self.names = {}  # of a directory: name -> Name
        self.links = 0  # names of another type; those that a rename covers count too
        self.target = None
        self.xattrs = {}
        self.mtime = None  # in ns where somebody set it and nothing changed since
        self.inode = None  # once it was seen
        self.body = None  # what everybody sees
        self.pending = []  # replacements, oldest first
        self.closed = None  # the Version that the next epoch takes; None: never closed


class Name:
    """An entry of a directory. A rename by a writer who may yet be killed covers the committed file of before."""

    def __init__(self, file, covered=None):
        self.file = file
        self.covered = covered


class Body:
    """A lineage of content: it stays while it is changed in place, and is another after a replacement."""

    def __init__(self, file, data, kind, fragile):
        self.file = file
        self.data = data
        self.kind = kind  # "new", "replace", or "edit" of closed content
        self.fragile = fragile  # a kill of its writer undoes it
        self.born = 0  # of a new file or a replacement: the newest epoch by then
        self.serial = 0  # of what is written now, among kills
        self.is_changed = False
        self.changed = kind != "edit"  # since it was last closed
        self.kept = len(data) if kind == "edit" else 0  # bytes of what was closed last that may still be there
        self.written = 0  # bytes since
        self.changes = 0  # writes: who writes nothing vouches for nothing
        self.writers = []  # handles
        self.held = []  # those whose opener has closed them, taken in, while another process has them
        self.at_close = (-1, 0)  # changes and size when an opener closed a descriptor last
        self.members = set()  # processes that opened it while it was pending
        self.killed = self.closed_well = False  # some writer was, some writer did
        self.flushed = False  # its opener closed one descriptor: a crash may take that for the close
        self.orphan = False  # no longer what the file is: its close leads nowhere
        self.tear = False  # ... but to .epochs/torn, since a rollback did it
        self.output = False  # its process saved another name twice while it was open
        self.append_only = False  # all who write it append
        self.closer = None  # the process of the writer that closed last
        self.appended = False  # somebody opened it to append
        self.partial = False  # its writer was killed in the middle of a write
        self.unclear = False  # the contract does not say what becomes of writes: nobody writes then
        self.name = ""  # what it was called before the rollback
        self.unsynced = None  # the content without what was written through mappings and not synced since

    @property
    def changed(self):
        return self.is_changed

    @changed.setter
    def changed(self, value):
        if value and not self.is_changed:
            self.serial = next(SERIALS)
        self.is_changed = value

    def write(self, data, offset):
        if not data:
            return
        self.data = put(self.data, data, offset)
        if self.unsynced is not None:
            self.unsynced = put(self.unsynced, data, offset)
        self.changed = True
        self.changes += 1
        self.written += len(data)

    def resize(self, size):
        self.kept = min(self.kept, size)
        self.changed |= size != len(self.data)
        self.changes += 1
        self.data = fit(self.data, size)
        if self.unsynced is not None:
            self.unsynced = fit(self.unsynced, size)

    def reserve(self):
        """What changes no byte."""
        self.changed = True
        self.changes += 1

    def map_write(self, data, offset):
        if self.unsynced is None:
            self.unsynced = self.data
        self.data = put(self.data, data, offset)
        self.changed = True
        self.changes += 1
        self.written += len(data)

    @property
    def whole(self):
        """Whether nothing is left of what was closed last; None: where it was written is not followed, nor what the kernel writes by itself."""
        return True if not self.kept else False if self.written < self.kept else None

    def begin(self):
        """What is written from now on changes what was closed just now."""
        self.kind, self.fragile, self.changed = "edit", False, False
        self.kept, self.written = len(self.data), 0

    def sync(self):
        self.unsynced = None


def put(old, data, offset):
    return fit(old, max(offset, len(old)))[:offset] + data + old[offset + len(data):]


def fit(old, size):
    return old[:size] + bytes(max(0, size - len(old)))


class Handle:
    """An open file description: one open(2), and the descriptors that lead to it."""

    def __init__(self, body, letters, opener):
        self.body = body
        self.reads = letters[0] in "r+"
        self.writes = letters[0] in "w+"
        self.appends = "a" in letters
        self.position = 0
        self.opener = opener
        self.descriptors = set()  # (process, slot)
        self.killed = False
        self.by = opener  # ... though another process may have that one's number by now
        self.over = False  # its opener has no descriptor of it any more
        self.was_held = False  # ... and that was taken in
        self.written_since = False  # before that
        self.opened_at = 0  # by its process's count of saves
        self.found = -1 if "t" in letters else body.changes
        self.unsure = False  # the daemon that knew what it found has ended since


class Process:
    def __init__(self):
        self.slots = {}
        self.count, self.saves = 0, {}  # of names without their numbers: the count of the last save of each


# ---- names


def lookup(root, path, follow=False, depth=0):
    """(directory, last name, its Name or None). Errors as the kernel gives them."""
    here = root
    parts = [p for p in path.split("/") if p and p != "."]
    above = []
    for i, part in enumerate(parts):
        last = i == len(parts) - 1
        if here.kind != "dir":
            raise Errno("ENOTDIR")
        if part == "..":
            if not above:
                raise Errno("OUTSIDE")
            here = above.pop()
            continue
        name = here.names.get(part)
        if name and name.file.kind == "link" and (follow or not last):
            if depth == DEPTH:
                raise Errno("ELOOP")
            rest = "/".join([path_of(above, here, root), name.file.target] + parts[i + 1:])
            return lookup(root, rest, follow, depth + 1)
        if last:
            return here, part, name
        if not name:
            raise Errno("ENOENT")
        above.append(here)
        here = name.file
    return None, ".", Name(here)


def path_of(above, here, root):
    """The path of a directory that was walked to."""
    words = []
    for parent, child in zip(above, above[1:] + [here]):
        words.append(next(n for n, name in parent.names.items() if name.file is child))
    return "/".join(words)


def walk(directory, prefix=""):
    """Every (path, Name) below a directory, parents first."""
    for word, name in list(directory.names.items()):
        path = prefix + word
        yield path, name
        if name.file.kind == "dir":
            yield from walk(name.file, path + "/")


def is_inside(top, directory):
    return top is directory or any(name.file is directory for _, name in walk(top))
