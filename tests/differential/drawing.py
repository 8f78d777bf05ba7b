# SPDX-License-Identifier: Apache-2.0
"""Histories drawn at random. A step is a list: who, what, and the arguments of actors.Actor.op_WHAT.

Who is "p0", "p1" or "p2", a process; "p0~alice" is p0 with alice's rights on files (setfsuid(2)), and a "'" at the end
its other thread. "*" is for steps of the whole: seal, look, storm, kill, restart, remount, cold.

Nothing is known here of what a step will meet: names and slots are few, so that most meet something. What cannot be
compared is left out when it is run (beside.py).
"""

import random

DEEP = "deep" + "/n" * 24
DIRECTORIES = ("d", "d", "d/e", "d/e", "d/e/f", "g", "tmp-d", "sticky", DEEP)
NAMES = ("a", "a", "b", "c", "x.log", "tmp-1")
ODD = ("", "a/", "d/", "d/../a", "a/b", ".", "d/.", "n" * 255, "n" * 256, "\udce4\udc80", "loop", "s/a", "s", "s", "fifo", "d/s")
SLOTS = 5
MODES = (0o777, 0o755, 0o700, 0o1777, 0o2775, 0o644, 0o600, 0o666, 0o4755, 0o2755, 0o6777, 0o6766, 0o2745, 0o000, 0o444, 0o555)
LENGTHS = (0, 1, 10, 100, 4000, 4095, 4096, 4097, 5000, 65536, 100_000, 300_000)
OFFSETS = (0, 0, 0, 1, 100, 4095, 4096, 8192, 12_000, 65_536, 70_000, 200_000, 1_000_000)
XATTRS = ("user.a", "user.b", "trusted.t", "nonsense")
TIMES = ("now", "omit", 0, 1_000_000_001, 1_500_000_000_123_456_789, 2**31 * 10**9, -1)
ACCESS = ("rdonly", "rdonly", "wronly", "rdwr", "rdwr", "rdwr")

# How often each comes; the functions below make them.
WEIGHTS = {
    "open": 26, "close": 14, "pread": 8, "read": 5, "pwrite": 12, "write": 10, "seek": 3, "holes": 2, "ftruncate": 5, "truncate": 4,
    "fallocate": 5, "copy": 4, "sendfile": 2, "fsync": 2, "fdatasync": 1, "fstat": 8, "fchmod": 2, "fchown": 2, "futimens": 2,
    "fsetxattr": 1, "fgetxattr": 1, "fremovexattr": 1, "same": 2, "flock": 2, "lock": 3, "linkfd": 2, "mmap": 5, "mget": 6,
    "mput": 6, "msync": 1, "munmap": 3, "stat": 8, "lstat": 6, "access": 3, "mkdir": 7, "mkdirs": 3, "rmdir": 3, "unlink": 6,
    "rename": 14, "link": 6, "symlink": 3, "readlink": 1, "mknod": 3, "readdir": 3, "many": 1, "few": 1, "chmod": 6, "chown": 6,
    "utimens": 3, "setxattr": 3, "getxattr": 2, "listxattr": 2, "removexattr": 1, "umask": 1,
}


class Drawing:
    def __init__(self, seed, people):
        self.draw = random.Random(seed)
        self.people = people
        self.seed = 0
        self.made = list(NAMES)  # paths that steps have named before: more of these meet something

    def one(self, *choices):
        return self.draw.choice(choices)

    def path(self):
        draw = self.draw.random()
        if draw < 0.55:
            return self.draw.choice(self.made)
        if draw < 0.62:
            return self.draw.choice(ODD)
        if draw < 0.75:
            return self.draw.choice(DIRECTORIES)
        name = self.draw.choice(NAMES)
        if draw < 0.88:
            name = "%s/%s" % (self.draw.choice(DIRECTORIES), name)
        self.made.append(name)
        return name

    def directory(self):
        return self.draw.choice(DIRECTORIES + (".",) + tuple(self.made[-2:]))

    def slot(self):
        return self.draw.randrange(SLOTS)

    def fresh(self):
        self.seed += 1
        return self.seed

    def length(self):
        return self.draw.choice(LENGTHS) if self.draw.random() < 0.8 else self.draw.randrange(2_000_000)

    def offset(self):
        return self.draw.choice(OFFSETS) if self.draw.random() < 0.8 else self.draw.randrange(1_500_000)

    def mode(self):
        return self.draw.choice(MODES)

    def user(self):
        return self.draw.choice([-1] + [p[0] for p in self.people.values()])

    def group(self):
        return self.draw.choice([-1] + [g for p in self.people.values() for g in [p[1]] + p[2]])

    # ---- the arguments of each

    def open(self):
        flags = [self.draw.choice(ACCESS)]
        if self.draw.random() < 0.03:
            return [self.slot(), self.directory(), ["wronly" if flags == ["rdonly"] else flags[0], "tmpfile"], 0o644]
        for flag, chance in (("creat", 0.6), ("excl", 0.08), ("trunc", 0.2), ("append", 0.12), ("direct", 0.06), ("nofollow", 0.05),
                             ("sync", 0.02), ("directory", 0.02)):
            if self.draw.random() < chance:
                flags.append(flag)
        if "directory" in flags and "creat" in flags:  # what comes of it changed from kernel to kernel
            flags.remove("creat")
        return [self.slot(), self.path(), flags, self.mode() if self.draw.random() < 0.3 else 0o666]

    def close(self):
        return [self.slot()]

    fsync = fdatasync = fstat = holes = close

    def pread(self):
        return [self.slot(), self.length(), self.offset()]

    def read(self):
        return [self.slot(), self.length()]

    def pwrite(self):
        return [self.slot(), self.fresh(), self.length(), self.offset()]

    def write(self):
        return [self.slot(), self.fresh(), self.length()]

    def seek(self):
        return [self.slot(), self.one(-5000, -1, 0, 3, 4096, 100_000), self.draw.randrange(3)]

    def ftruncate(self):
        return [self.slot(), self.one(-1, 0, 0, self.length(), self.offset())]

    def truncate(self):
        return [self.path(), self.one(-1, 0, self.length(), self.offset())]

    def fallocate(self):
        # Nothing, KEEP_SIZE, PUNCH_HOLE with it and without, ZERO_RANGE with it and without.
        return [self.slot(), self.one(0, 0, 1, 3, 3, 3, 2, 16, 17), self.offset(), self.length()]

    def copy(self):
        return [self.slot(), self.offset(), self.slot(), self.offset(), self.length()]

    def sendfile(self):
        return [self.slot(), self.slot(), self.offset(), self.length()]

    def fchmod(self):
        return [self.slot(), self.mode()]

    def fchown(self):
        return [self.slot(), self.user(), self.group()]

    def times(self):
        return [self.draw.choice(TIMES), self.draw.choice(TIMES)]

    def futimens(self):
        return [self.slot(), self.times()]

    def utimens(self):
        return [self.path(), self.times()]

    def fsetxattr(self):
        return [self.slot(), self.draw.choice(XATTRS), self.fresh(), self.one(0, 5, 300), self.draw.randrange(3)]

    def setxattr(self):
        return [self.path()] + self.fsetxattr()[1:]

    def fgetxattr(self):
        return [self.slot(), self.draw.choice(XATTRS)]

    fremovexattr = fgetxattr

    def getxattr(self):
        return [self.path(), self.draw.choice(XATTRS)]

    removexattr = getxattr

    def same(self):
        return [self.slot(), self.path()]

    linkfd = same

    def flock(self):
        return [self.slot(), self.one(1, 2, 2, 8)]

    def lock(self):
        return [self.slot(), self.one(1, 2, 2, 8), self.one(0, 0, 10, 4096), self.one(0, 1, 100, 5000)]

    def mmap(self):
        return [self.slot(), self.slot(), self.length() or 1, self.one("s", "s", "sw", "sw", "sw", "p", "pw")]

    def mget(self):
        return [self.slot(), self.offset(), self.length()]

    def mput(self):
        return [self.slot(), self.fresh(), self.offset(), self.length()]

    def stat(self):
        return [self.path()]

    lstat = rmdir = unlink = readlink = listxattr = stat
    msync = munmap = close

    def mkdirs(self):
        return [self.one(DEEP, self.path())]

    def access(self):
        return [self.path(), self.draw.randrange(8)]

    def mkdir(self):
        if self.draw.random() < 0.7:
            return [self.draw.choice(DIRECTORIES), self.one(0o777, 0o755, 0o777, 0o1777, 0o2775)]
        return [self.path(), self.mode()]

    def rename(self):
        flags = self.one(0, 0, 0, 0, 0, 1, 2, 2, 2, 3)
        return [self.path() if self.draw.random() < 0.8 else self.directory(), self.path(), flags]

    def link(self):
        return [self.path(), self.path(), self.one(False, False, True)]

    def symlink(self):
        return [self.one("a", "d", "d/e", "d/../a", "nowhere", "loop", "t" * 300), self.one("s", "d/s", "loop", self.path())]

    def mknod(self):
        # FIFO, regular, socket, a character device (/dev/null's).
        kind = self.one(0o010000, 0o010000, 0o100000, 0o140000, 0o020000)
        return [self.one("fifo", self.path()), kind | self.mode(), [1, 3] if kind == 0o020000 else [0, 0]]

    def readdir(self):
        return [self.directory()]

    def many(self):
        return [self.directory(), self.one(20, 150)]

    def few(self):
        return [self.directory(), self.one(1, 2, 3)]

    def chmod(self):
        return [self.path(), self.mode()]

    def chown(self):
        return [self.path(), self.user(), self.group()]

    def umask(self):
        return [self.one(0, 0o022, 0o077, 0o027)]

    # ---- whole histories

    def who(self):
        process = self.one("p0", "p0", "p1", "p1", "p2")
        if process == "p0" and len(self.people) > 1 and self.draw.random() < 0.4:
            process = "p0~" + self.draw.choice(sorted(self.people))
        return process + self.one("", "", "", "'")

    def steps(self, count, whole):
        """COUNT steps; WHOLE: how often the whole is acted upon, {what: chance}."""
        names, weights = zip(*WEIGHTS.items())
        made = []
        while len(made) < count:
            for what, chance in whole.items():
                if self.draw.random() < chance:
                    made.append(["*", what] + self.of_whole(what))
            name, who = self.draw.choices(names, weights)[0], self.who()
            step = [who, name] + getattr(self, name)()
            made.append(step)
            # A change of an object is often looked at by somebody.
            if self.draw.random() < 0.3 and len(step) > 2:
                if isinstance(step[2], str):
                    made.append([self.who(), "lstat", step[2]])
                elif name not in ("close", "munmap", "mget", "mput", "msync"):
                    made.append([who, "fstat", step[2]])
        return made

    def of_whole(self, what):
        if what == "storm":
            return [self.draw.randrange(10**6)]
        if what == "kill":
            return [self.one("p0", "p1", "p2")]
        return []
