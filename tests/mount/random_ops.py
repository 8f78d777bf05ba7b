# SPDX-License-Identifier: Apache-2.0
"""Random operations, done alike on a mount and on an ordinary directory."""

import errno
import os
import random
import shutil
import stat

NAMES = ["a", "b", "c", "dir", "model.bin", "x" * 255, "with space", "caf\u00e9", "tmp-1", "old"]
SIZES = [0, 1, 100, 4096, 4097, 70000, 300000]
XATTRS = ["user.one", "user.two"]


class Pair:
    """The same name in both trees."""

    def __init__(self, mount, plain):
        self.roots = (os.fspath(mount), os.fspath(plain))
        self.mount, self.plain = self.roots


class Walk:
    """One random walk. Every operation is done on both sides; results and errors must be equal."""

    def __init__(self, pair, seed):
        self.pair = pair
        self.random = random.Random(seed)
        self.handles = []  # pairs of descriptors
        self.log = []
        self.operations = [
            (10, self.write_file), (6, self.append), (6, self.write_inside), (4, self.truncate), (6, self.unlink),
            (6, self.mkdir), (3, self.rmdir), (8, self.rename), (3, self.symlink), (3, self.link), (3, self.chmod),
            (3, self.utime), (3, self.set_xattr), (2, self.remove_xattr), (4, self.read), (3, self.list),
            (3, self.create_exclusive), (6, self.open_handle), (10, self.use_handle), (5, self.close_handle),
            (2, self.fallocate), (1, self.mkfifo),
        ]

    # ---- doing one thing on both sides

    def both(self, what, function, *arguments):
        """Calls function(root side 0 or 1, ...) for both; equal results or equal errno."""
        self.log.append("%s %r" % (what, arguments))
        results = []
        for side in (0, 1):
            try:
                results.append(("ok", function(side, *arguments)))
            except OSError as error:
                results.append(("error", errno.errorcode.get(error.errno, error.errno)))
        assert results[0] == results[1], "%s %r: mount %r, directory %r\nlast operations:\n%s" % (
            what, arguments, results[0], results[1], "\n".join(self.log[-25:]))
        return results[0]

    def at(self, side, path):
        return os.path.join(self.pair.roots[side], path)

    def path(self):
        """Up to three names; mostly one that is there."""
        there = self.paths
        if there and self.random.random() < 0.7:
            path = self.random.choice(there)
            if self.random.random() < 0.3:
                path = os.path.join(path, self.random.choice(NAMES))
            return path
        return os.path.join(*(self.random.choice(NAMES) for _ in range(self.random.randint(1, 2))))

    def bytes(self):
        size = self.random.choice(SIZES)
        return bytes([self.random.randrange(256)]) * (size // 2) + self.random.randbytes(size - size // 2)

    # ---- operations

    def is_open(self, path):
        """Whether a handle has this file open: then O_TRUNC would show it something else than a plain directory does."""
        try:
            there = os.stat(self.at(1, path))
        except OSError:
            return False
        return any(os.fstat(h[1]).st_ino == there.st_ino for h in self.handles)

    def write_file(self):
        path, data = self.path(), self.bytes()
        if self.is_open(path):
            return

        def act(side):
            fd = os.open(self.at(side, path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o644)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)

        self.both("write %s (%d)" % (path, len(data)), act)

    def append(self):
        path, data = self.path(), self.bytes()

        def act(side):
            fd = os.open(self.at(side, path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
            try:
                os.write(fd, data)
                return os.fstat(fd).st_size
            finally:
                os.close(fd)

        self.both("append %s (%d)" % (path, len(data)), act)

    def write_inside(self):
        path, data, offset = self.path(), self.bytes(), self.random.choice([0, 1, 5000, 100000])

        def act(side):
            fd = os.open(self.at(side, path), os.O_RDWR)
            try:
                os.pwrite(fd, data, offset)
                return os.pread(fd, 1000, offset // 2)
            finally:
                os.close(fd)

        self.both("pwrite %s (%d at %d)" % (path, len(data), offset), act)

    def truncate(self):
        path, size = self.path(), self.random.choice([0, 1, 4096, 50000, 400000])
        self.both("truncate %s %d" % (path, size), lambda side: os.truncate(self.at(side, path), size))

    def unlink(self):
        path = self.path()
        self.both("unlink " + path, lambda side: os.unlink(self.at(side, path)))

    def mkdir(self):
        path = self.path()
        self.both("mkdir " + path, lambda side: os.mkdir(self.at(side, path), 0o755))

    def rmdir(self):
        path = self.path()
        self.both("rmdir " + path, lambda side: os.rmdir(self.at(side, path)))

    def rename(self):
        old, new = self.path(), self.path()
        self.both("rename %s %s" % (old, new), lambda side: os.rename(self.at(side, old), self.at(side, new)))

    def symlink(self):
        target, path = self.random.choice(["a", "dir/b", "/proc/nowhere", "../c"]), self.path()
        self.both("symlink %s %s" % (target, path), lambda side: os.symlink(target, self.at(side, path)))

    def link(self):
        old, new = self.path(), self.path()
        self.both("link %s %s" % (old, new), lambda side: os.link(self.at(side, old), self.at(side, new), follow_symlinks=False))

    def chmod(self):
        path, mode = self.path(), self.random.choice([0o600, 0o644, 0o755, 0o2750, 0o1777])
        self.both("chmod %s %o" % (path, mode), lambda side: os.chmod(self.at(side, path), mode))

    def utime(self):
        path, when = self.path(), self.random.randrange(10**18, 17 * 10**17)

        def act(side):
            os.utime(self.at(side, path), ns=(when, when), follow_symlinks=False)
            return os.lstat(self.at(side, path)).st_mtime_ns

        self.both("utime " + path, act)

    def set_xattr(self):
        path, name, value = self.path(), self.random.choice(XATTRS), self.random.randbytes(self.random.choice([0, 10, 300]))
        self.both("setxattr " + path, lambda side: os.setxattr(self.at(side, path), name, value))

    def remove_xattr(self):
        path, name = self.path(), self.random.choice(XATTRS)
        self.both("removexattr " + path, lambda side: os.removexattr(self.at(side, path), name))

    def read(self):
        path = self.path()

        def act(side):
            with open(self.at(side, path), "rb") as f:
                return f.read()

        if not self.is_fifo(path):
            self.both("read " + path, act)

    def is_fifo(self, path):
        try:
            return stat.S_ISFIFO(os.stat(self.at(1, path)).st_mode)
        except OSError:
            return False

    def list(self):
        path = self.path()
        self.both("list " + path, lambda side: sorted(os.listdir(self.at(side, path))))

    def create_exclusive(self):
        path = self.path()

        def act(side):
            os.close(os.open(self.at(side, path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640))

        self.both("create " + path, act)

    def fallocate(self):
        path = self.path()

        def act(side):
            fd = os.open(self.at(side, path), os.O_RDWR)
            try:
                os.posix_fallocate(fd, 1000, 9000)
                return os.fstat(fd).st_size
            finally:
                os.close(fd)

        if not self.is_fifo(path):
            self.both("fallocate " + path, act)

    def mkfifo(self):
        path = self.path()
        self.both("mkfifo " + path, lambda side: os.mkfifo(self.at(side, path), 0o644))

    # ---- files that stay open

    def open_handle(self):
        path = self.path()
        flags = os.O_RDWR | self.random.choice([0, os.O_CREAT, os.O_APPEND | os.O_CREAT])
        if self.is_fifo(path) or len(self.handles) >= 5:
            return
        opened = []

        def act(side):
            opened.append(os.open(self.at(side, path), flags, 0o644))

        if self.both("open %s %o" % (path, flags), act)[0] == "ok":
            self.handles.append(tuple(opened))

    def use_handle(self):
        if not self.handles:
            return
        handle, data = self.random.choice(self.handles), self.bytes()
        offset, size = self.random.choice([0, 10, 4096, 90000]), self.random.choice([0, 5000, 200000])
        what = self.random.choice(["pwrite", "pread", "ftruncate", "fsync", "fstat", "fchmod"])

        def act(side):
            fd = handle[side]
            if what == "pwrite":
                return os.pwrite(fd, data, offset)
            if what == "pread":
                return os.pread(fd, 100000, offset)
            if what == "ftruncate":
                return os.ftruncate(fd, size)
            if what == "fsync":
                return os.fsync(fd)
            if what == "fchmod":
                return os.fchmod(fd, 0o600)
            there = os.fstat(fd)
            return there.st_size, there.st_nlink, oct(there.st_mode)

        self.both("%s of a handle (%d at %d, %d)" % (what, len(data), offset, size), act)

    def close_handle(self):
        if self.handles:
            handle = self.handles.pop(self.random.randrange(len(self.handles)))
            self.both("close", lambda side: os.close(handle[side]))

    def close_all(self):
        while self.handles:
            self.close_handle()

    # ---- the walk

    def scan(self):
        self.paths = sorted(os.path.relpath(os.path.join(base, name), self.pair.plain)
                            for base, dirs, files in os.walk(self.pair.plain) for name in dirs + files)

    def run(self, count):
        weights = [w for w, _ in self.operations]
        for i in range(count):
            if i % 5 == 0:
                self.scan()
            self.random.choices(self.operations, weights)[0][1]()
            if i % 40 == 0:
                self.compare()

    def compare(self):
        mount, plain = describe(self.pair.mount), describe(self.pair.plain)
        assert mount == plain, "the trees differ: %s\nlast operations:\n%s" % (
            difference(mount, plain), "\n".join(self.log[-45:]))


def describe(root):
    """All that a user can see of a tree, but for times that nobody set and inode numbers, of which only equality counts."""
    tree, inodes = {}, {}
    for base, dirs, files in os.walk(root):
        for name in dirs + files + ["."]:
            path = os.path.join(base, name)
            there = os.lstat(path)
            entry = [oct(there.st_mode), there.st_nlink, there.st_uid, there.st_gid]
            if stat.S_ISREG(there.st_mode):
                with open(path, "rb") as f:
                    entry.append(f.read())
                entry.append({n: os.getxattr(path, n) for n in os.listxattr(path) if n in XATTRS})
                entry.append(inodes.setdefault(there.st_ino, os.path.relpath(path, root)))
            elif stat.S_ISLNK(there.st_mode):
                entry.append(os.readlink(path))
            tree[os.path.relpath(path, root)] = entry
    # The first name of a hard-linked file depends on the order of the directory.
    names = {}
    for path, entry in tree.items():
        if len(entry) == 7:
            names.setdefault(entry[6], []).append(path)
    for path, entry in tree.items():
        if len(entry) == 7:
            entry[6] = sorted(names[entry[6]])
    return tree


def difference(a, b):
    lines = []
    for path in sorted(set(a) | set(b)):
        if a.get(path) != b.get(path):
            lines.append("%s: mount %s, directory %s" % (path, short(a.get(path)), short(b.get(path))))
    return "\n".join(lines[:10])


def short(entry):
    if entry is None:
        return "nothing"
    return [e if not isinstance(e, bytes) else "%d bytes %r..." % (len(e), e[:20]) for e in entry]


def copy_tree(source, target):
    """The directory as it is now, hard links too."""
    shutil.rmtree(target, ignore_errors=True)
    if os.system("cp -a -- '%s' '%s'" % (source, target)):
        raise RuntimeError("cp -a failed")
