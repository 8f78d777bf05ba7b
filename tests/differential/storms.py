# SPDX-License-Identifier: Apache-2.0
"""Readers and writers that overlap, in three processes of three threads: which of them comes first differs between two
runs, so what each sees, and what is there at the end, is judged by what any order may give.

    prepare   one process makes what is fought over, in the directory "storm"
    take_part all processes at the same time
    finish    one process looks at what is left

Each gives a list of lines: what no order can explain. The ordinary directory is judged in the same way.
"""

import ctypes
import errno
import mmap
import os
import random
import threading

DIRECTORY = "storm"
PROCESSES, WRITERS = 3, 2  # writers in each process; and one reader
OWNERS = PROCESSES * WRITERS
ROUNDS = 12
BLOCK = 3001  # a region of one owner: never a page
REGIONS = 5 * OWNERS
RECORD = 64
EXCHANGE = 2
LIBC = ctypes.CDLL(None, use_errno=True)


def at(name):
    return "%s/%s" % (DIRECTORY, name)


def write_file(path, data, flags=os.O_CREAT | os.O_WRONLY | os.O_EXCL):
    fd = os.open(path, flags, 0o666)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def read_file(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(fd, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)


class Storm:
    """One kind: what its threads do. WRONG collects what they find."""

    def __init__(self, seed):
        self.seed = seed
        self.wrong = []

    def prepare(self):
        pass

    def write(self, owner, draw):
        pass

    def read(self, draw, writing):
        """WRITING() says whether the writers of this process are at work."""

    def finish(self):
        pass

    def expect(self, condition, text):
        if not condition and len(self.wrong) < 5:
            self.wrong.append(text)


class Regions(Storm):
    """Each writer writes its own blocks of one file, round by round; a reader never sees a byte go back."""

    def prepare(self):
        write_file(at("regions"), b"".join(self.block(region, 0) for region in range(REGIONS)))

    @staticmethod
    def block(region, turn):
        return bytes([region % OWNERS * 16 + turn]) * BLOCK

    def write(self, owner, draw):
        fd = os.open(at("regions"), os.O_RDWR)
        mapping = mmap.mmap(fd, 0) if draw.random() < 0.3 else None
        for turn in range(1, ROUNDS + 1):
            for region in range(owner, REGIONS, OWNERS):
                block = self.block(region, turn)
                if mapping:
                    mapping[region * BLOCK:(region + 1) * BLOCK] = block
                else:
                    os.pwrite(fd, block, region * BLOCK)
                self.expect(os.pread(fd, BLOCK, region * BLOCK) == block, "a writer reads not what it wrote")
            if not mapping and draw.random() < 0.3:
                os.close(fd)
                fd = os.open(at("regions"), os.O_RDWR)
        if mapping:
            mapping.close()
        os.close(fd)

    def read(self, draw, writing):
        seen = bytearray(REGIONS * BLOCK)
        fd = os.open(at("regions"), os.O_RDONLY)
        mapping = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
        while writing():
            how = draw.randrange(3)
            data = mapping[:] if how == 0 else os.pread(fd, len(seen), 0) if how == 1 else read_file(at("regions"))
            self.expect(len(data) == len(seen), "%d bytes of %d are read" % (len(data), len(seen)))
            for region in range(REGIONS):
                part = data[region * BLOCK:(region + 1) * BLOCK]
                low, high, before = min(part), max(part), seen[region * BLOCK]
                self.expect(low // 16 == high // 16 == region % OWNERS, "a reader sees bytes that nobody wrote there")
                self.expect(low >= before, "a reader sees round %d after %d (%s)" %
                            (low % 16, before % 16, ("mapping", "pread", "open")[how]))
                seen[region * BLOCK] = low
        mapping.close()
        os.close(fd)

    def finish(self):
        right = b"".join(self.block(region, ROUNDS) for region in range(REGIONS))
        self.expect(read_file(at("regions")) == right, "a block is not as its last writer left it")


class Appends(Storm):
    """Each appends records; a reader sees whole ones, and what it saw stays where it was."""

    def prepare(self):
        write_file(at("appends"), b"")

    @staticmethod
    def record(owner, number):
        return (b"%d %d " % (owner, number)).ljust(RECORD - 1, b".") + b"\n"

    def write(self, owner, draw):
        fd = os.open(at("appends"), os.O_WRONLY | os.O_APPEND)
        for number in range(5 * ROUNDS):
            self.expect(os.write(fd, self.record(owner, number)) == RECORD, "a record is written in part")
            if draw.random() < 0.1:
                os.close(fd)
                fd = os.open(at("appends"), os.O_WRONLY | os.O_APPEND)
        os.close(fd)

    def read(self, draw, writing):
        before = b""
        while writing():
            data = read_file(at("appends"))
            self.expect(data.startswith(before), "what a reader saw has changed, or is gone")
            self.expect(len(data) % RECORD == 0, "a reader sees a part of a record")
            before = data

    def finish(self):
        data = read_file(at("appends"))
        found = sorted(data[i:i + RECORD] for i in range(0, len(data), RECORD))
        right = sorted(self.record(o, n) for o in range(OWNERS) for n in range(5 * ROUNDS))
        self.expect(found == right, "%d records, expected %d" % (len(found), len(right)))
        os.unlink(at("appends"))


class Replaced(Storm):
    """A file is renamed over again and again: whoever opens it has one version, whole."""

    def prepare(self):
        write_file(at("replaced"), bytes([0]) * 20000)

    def write(self, owner, draw):
        for number in range(ROUNDS):
            write_file(at("new-%d" % owner), bytes([owner * ROUNDS + number + 1]) * draw.choice((100, 5000, 70000)))
            os.rename(at("new-%d" % owner), at("replaced"))

    def read(self, draw, writing):
        kept = []
        while writing():
            data = read_file(at("replaced"))
            self.expect(data and data.count(data[0]) == len(data), "a reader sees two versions in one")
            fd = os.open(at("replaced"), os.O_RDONLY)
            kept.append((fd, os.pread(fd, 50, 0), os.fstat(fd).st_size))
            if len(kept) > 5:
                self.look_again(*kept.pop(0))
        for one in kept:
            self.look_again(*one)

    def look_again(self, fd, head, size):
        self.expect(os.pread(fd, 50, 0) == head and os.fstat(fd).st_size == size, "an open file has changed")
        os.close(fd)

    def finish(self):
        self.expect(os.listdir(DIRECTORY).count("replaced") == 1, "the name is gone")
        data = read_file(at("replaced"))
        self.expect(data.count(data[0]) == len(data), "two versions in one")
        os.unlink(at("replaced"))


class Exchanged(Storm):
    """Two names are exchanged: both are there at each moment."""

    def prepare(self):
        write_file(at("left"), b"left")
        write_file(at("right"), b"right")

    def write(self, owner, draw):
        for _ in range(2 * ROUNDS):
            if LIBC.renameat2(-100, at("left").encode(), -100, at("right").encode(), EXCHANGE) < 0:
                self.expect(False, "exchange: %s" % os.strerror(ctypes.get_errno()))

    def read(self, draw, writing):
        while writing():
            for name in ("left", "right"):
                self.expect(read_file(at(name)) in (b"left", b"right"), "neither content")

    def finish(self):
        self.expect(read_file(at("left")) == b"left" and read_file(at("right")) == b"right",
                    "an even number of exchanges changed something")


class Claimed(Storm):
    """Of all who create a name, or make or rename a directory, exactly one succeeds."""

    def prepare(self):
        os.mkdir(at("claims"), 0o777)
        os.chmod(at("claims"), 0o777)

    def write(self, owner, draw):
        for number in range(2 * ROUNDS):
            name = at("claims/%d" % number)
            try:
                if number % 3 == 0:
                    write_file(name, b"%d" % owner)
                elif number % 3 == 1:
                    os.mkdir(name)
                else:
                    os.symlink("%d" % owner, name)
            except FileExistsError:
                continue
            write_file(at("claims/%d-%d" % (number, owner)), b"")

    def finish(self):
        names = os.listdir(at("claims"))
        for number in range(2 * ROUNDS):
            won = [n for n in names if n.startswith("%d-" % number)]
            self.expect(len(won) == 1, "%d have created %d" % (len(won), number))
            os.unlink(at("claims/" + won[0]))
            (os.rmdir if number % 3 == 1 else os.unlink)(at("claims/%d" % number))
        os.rmdir(at("claims"))


class Listed(Storm):
    """What stays is in each listing once, whatever comes and goes beside it."""

    STAY = 150

    def prepare(self):
        os.mkdir(at("listed"), 0o777)
        os.chmod(at("listed"), 0o777)
        for number in range(self.STAY):
            write_file(at("listed/stays-%d" % number), b"")

    def write(self, owner, draw):
        for number in range(ROUNDS):
            name = at("listed/goes-%d-%d" % (owner, number))
            write_file(name, b"x")
            if draw.random() < 0.5:
                os.rename(name, name + "-away")
                name += "-away"
            os.unlink(name)

    def read(self, draw, writing):
        while writing():
            stay = [n for n in os.listdir(at("listed")) if n.startswith("stays-")]
            self.expect(len(stay) == len(set(stay)) == self.STAY, "%d of %d names are listed" % (len(stay), self.STAY))

    def finish(self):
        self.expect(len(os.listdir(at("listed"))) == self.STAY, "a name that was removed is listed")


class Shuffled(Storm):
    """Directories and files under few names, anything at any time: at the end names, links and listings agree."""

    NAMES = ("u", "v", "w", "u/x", "v/x", "u/y", "u/x/z")

    def write(self, owner, draw):
        for _ in range(4 * ROUNDS):
            one, two = at(draw.choice(self.NAMES)), at(draw.choice(self.NAMES))
            how = draw.randrange(7)
            try:
                if how == 0:
                    os.mkdir(one, 0o777)
                elif how == 1:
                    os.rename(one, two)
                elif how == 2:
                    os.rmdir(one)
                elif how == 3:
                    os.unlink(one)
                elif how == 4:
                    os.link(one, two)
                elif how == 5:
                    write_file(one, b"%d" % owner, os.O_CREAT | os.O_WRONLY)
                else:
                    os.listdir(one)
            except OSError as error:
                allowed = (errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.EINVAL, errno.EPERM,
                           errno.EACCES)
                self.expect(error.errno in allowed, "%d: %s" % (how, error))

    def finish(self):
        links = {}
        for folder, _, files in os.walk(DIRECTORY):
            for name in files:
                st = os.lstat(os.path.join(folder, name))
                links.setdefault(st.st_ino, [st.st_nlink, 0])[1] += 1
        for count, names in links.values():
            self.expect(count == names, "%d links, but %d names" % (count, names))
        for folder, folders, files in os.walk(DIRECTORY, topdown=False):
            for name in files:
                os.unlink(os.path.join(folder, name))
            for name in folders:
                os.rmdir(os.path.join(folder, name))


class Resized(Storm):
    """A file grows and shrinks: nobody reads beyond what it ever was, nor other bytes than zeros and what was written."""

    LONGEST = 50000

    def prepare(self):
        write_file(at("resized"), b"")

    def write(self, owner, draw):
        fd = os.open(at("resized"), os.O_RDWR)
        for _ in range(3 * ROUNDS):
            if draw.random() < 0.5:
                os.ftruncate(fd, draw.randrange(self.LONGEST))
            else:
                length = draw.randrange(1, 9000)
                os.pwrite(fd, b"r" * length, draw.randrange(self.LONGEST - length))
        os.close(fd)

    def read(self, draw, writing):
        while writing():
            data = read_file(at("resized"))
            self.expect(len(data) <= self.LONGEST and not data.strip(b"\0r"), "a reader sees what nobody wrote")

    def finish(self):
        os.truncate(at("resized"), 0)
        os.truncate(at("resized"), 3 * BLOCK)
        self.expect(not read_file(at("resized")).strip(b"\0"), "what was cut off is there again")


KINDS = {kind.__name__.lower(): kind for kind in (Regions, Appends, Replaced, Exchanged, Claimed, Listed, Shuffled, Resized)}
PREPARE, FINISH = -1, -2


def guarded(storm, function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        storm.wrong.append("%s: %s" % (function.__name__, error))


def take_part(kind, number, seed):
    """What the process NUMBER does, of PROCESSES; PREPARE before, and FINISH after all of them."""
    storm = KINDS[kind](seed)
    before = os.umask(0)  # of the whole process: everybody writes to these files
    try:
        return run_part(storm, number, seed)
    finally:
        os.umask(before)


def run_part(storm, number, seed):
    if number in (PREPARE, FINISH):
        guarded(storm, storm.prepare if number == PREPARE else storm.finish)
        return storm.wrong
    writers = [threading.Thread(target=guarded, args=(storm, storm.write, number * WRITERS + i,
                                                      random.Random("%s/%d/%d" % (seed, number, i)))) for i in range(WRITERS)]
    reader = threading.Thread(target=guarded, args=(storm, storm.read, random.Random("%s/%d/reader" % (seed, number)),
                                                    lambda: any(w.is_alive() for w in writers)))
    for thread in writers:
        thread.start()
    reader.start()
    for thread in writers + [reader]:
        thread.join()
    return storm.wrong
