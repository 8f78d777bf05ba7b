# SPDX-License-Identifier: Apache-2.0
"""Histories from a seed: lists of operations, [name, arguments...], that mean something whatever came before them.

What makes no sense when its turn comes (a descriptor that is not open) is left out by the runner, so any part of a
history is a history, which is what shrinking needs. Each history likes some operations and never does others.
"""

import random

WORKERS, SLOTS = 3, 3
DIRECTORIES = ["d", "e", "tmp-1"]
NAMES = ["a", "b", "c", "m.tmp", "t.log", "d", "e", "tmp-1", "l"]
UNUSUAL = ["x" * 255, "with space", "caf\u00e9"]
SIZES = [0, 1, 10, 100, 4095, 4096, 4097, 20000, 70000]
OPENS = ["r", "w", "+", "wct", "wct", "wct", "wct", "+ct", "wc", "+c", "wac", "wa", "+a", "wx", "+x", "wt", "+t"]
XATTRS = ["user.one", "user.two"]
LIKING = 8


class Generator:
    def __init__(self, seed, crashes, outages, likes):
        self.random = random.Random("epochfs %s" % seed)
        self.count = 0  # makes each piece of data another
        self.epochs = 1
        self.outages = outages
        self.cold = False  # listings of epochs are in the remote alone
        kinds = [(weight * self.random.choice([0, 1, 1, 3]), make) for weight, make in (
            (12, self.open), (10, self.write), (4, self.change), (4, self.read), (2, self.fsync), (8, self.close),
            (2, self.dup), (2, self.fork), (4, self.end), (2, self.torn), (6, self.save), (2, self.save_by_rename),
            (4, self.rename), (5, self.names), (3, self.attributes), (3, self.look), (2, self.check), (4, self.seal),
            (2, self.rollback), (2, self.change_epochs), (4, self.both), (1, self.wait), (4, self.readers), (3, self.crowd), (3, self.copy),
            (2, self.direct), (3, self.beside))]
        if crashes:
            kinds += [(6, self.crash), (self.random.choice([0, 3]), self.remount), (self.random.choice([0, 2]), self.machine)]
        if outages:
            kinds.append((4, self.weather))
        self.kinds = [(weight * LIKING if make.__name__ in likes else weight, make) for weight, make in kinds]
        self.paths = self.random.sample(NAMES[:5], self.random.randint(1, 5))
        if self.random.random() < 0.1:
            self.paths.append(self.random.choice(UNUSUAL))
        self.depth = self.random.choice([0, 0.2, 0.5])

    def history(self):
        ops = [["save", 0, "a", self.data(), 100], ["mkdir", 0, "d", 0o755], ["save", 0, "d/b", self.data(), 5000], self.seal()]
        weights, makes = zip(*self.kinds)
        for _ in range(self.random.choice([4, 8, 15, 30])):
            made = self.random.choices(makes, weights)[0]() if any(weights) else self.save()
            ops += made if isinstance(made[0], list) else [made]
        return expand(ops)

    # ---- what operations are about

    def data(self):
        self.count += 1
        return self.count

    def size(self):
        return self.random.choice(SIZES)

    def path(self, names=None):
        name = self.random.choice(names or self.paths)
        if self.random.random() < self.depth:
            return self.random.choice(DIRECTORIES) + "/" + name
        return name

    def any_path(self):
        return self.path(NAMES) if self.random.random() < 0.4 else self.path()

    def plain_path(self):
        """None that a log has, nor will have: what is a log is decided when it is opened."""
        path = self.any_path()
        return "c" if path.endswith(".log") else path

    def worker(self):
        return self.random.randrange(WORKERS)

    def slot(self):
        return self.random.randrange(SLOTS)

    # ---- operations

    def open(self):
        """Mostly something is done with it at once."""
        worker, slot = self.worker(), self.slot()
        ops = [["open", worker, slot, self.path(), self.random.choice(OPENS), self.random.choice([0o644, 0o600])]]
        if self.random.random() < 0.7:
            ops.append(["write", worker, slot, self.data(), self.size()])
        return ops

    def write(self):
        return ["write", self.worker(), self.slot(), self.data(), self.size()]

    def change(self):
        worker, slot, offset = self.worker(), self.slot(), self.random.choice([0, 1, 50, 4096, 10000])
        return self.random.choice([
            ["pwrite", worker, slot, self.data(), self.size(), offset],
            ["async", worker, slot, self.data(), self.random.choice(SIZES[1:]), offset],
            ["ftruncate", worker, slot, self.random.choice([0, 1, 99, 4096, 50000])],
            ["fallocate", worker, slot, offset, 9000],
            ["reserve", worker, slot, offset, 9000], ["punch", worker, slot, offset, self.random.choice([1, 4096, 9000])],
            ["mapwrite", worker, slot, self.data(), self.random.choice([1, 90, 3000]), offset, self.random.random() < 0.5]])

    def places(self, count):
        """Different handles."""
        return self.random.sample([(worker, slot) for worker in range(WORKERS) for slot in range(SLOTS)], count)

    def readers(self):
        """Two that overlap, of which the first closes; then somebody writes in place, and the other one reads; they end in any order."""
        path, (one, two, writer) = self.path(), self.places(3)
        changes = [["write", *writer, self.data(), self.size()], ["ftruncate", *writer, self.random.choice([0, 1, 99, 50000])],
                   ["mapwrite", *writer, self.data(), 1, 0, True], ["pwrite", *writer, self.data(), self.size(), 50],
                   ["async", *writer, self.data(), 4096, 50]]
        ends = [[["close", *two]], [["close", *writer]], [["look", self.worker(), path]]]
        self.random.shuffle(ends)
        return [["open", *one, path, "r", 0o644], ["open", *two, path, "r", 0o644], ["close", *one],
                ["open", *writer, path, self.random.choice(["w", "+", "wa", "+a"]), 0o644], self.random.choice(changes),
                ["read", *two], *[op for end in ends for op in end], ["read", *two]]

    def crowd(self):
        """All processes on one name at once."""
        path, handles = self.path(["a", "b", "c"]), self.places(5)
        ops = []
        for handle in handles:
            letters = self.random.choice(["r", "r", "wct", "wct", "+", "wac"])
            ops.append(["open", *handle, path, letters, 0o644])
            ops.append(["read", *handle] if letters == "r" else ["write", *handle, self.data(), self.size()])
        if self.random.random() < 0.4:
            ops += [["save", self.worker(), path + ".new", self.data(), self.size()], ["rename", self.worker(), path + ".new", path]]
        self.random.shuffle(handles)
        for handle in handles:
            ops += [["read", *handle], ["close", *handle], ["look", self.worker(), path]]
        return ops

    def copy(self):
        """copy_file_range of what is read to what is written."""
        worker, (source, target) = self.worker(), self.random.sample(range(SLOTS), 2)
        return [["open", worker, source, self.path(), "r", 0o644], ["open", worker, target, self.path(), self.random.choice(["w", "wct"]), 0o644],
                ["copy", worker, source, target, self.random.choice([1, 4096, 30000]), self.random.choice([0, 0, 50]),
                 self.random.choice([0, 0, 4096])], ["close", worker, target], ["close", worker, source]]

    def direct(self):
        """By O_DIRECT."""
        return ["direct", self.worker(), self.path(), self.data(), self.random.choice([1, 3]), self.random.choice([0, 1, 2])]

    def read(self):
        return [self.random.choice(["read", "read", "fstat"]), self.worker(), self.slot()]

    def fsync(self):
        return ["fsync", self.worker(), self.slot()]

    def close(self):
        return ["close", self.worker(), self.slot()]

    def dup(self):
        return ["dup", self.worker(), self.slot(), self.slot()]

    def fork(self):
        return ["fork", self.worker(), self.worker()]

    def end(self):
        return ["end", self.worker(), self.random.choice(["kill", "kill", "term", "fail", "exit"])]

    def torn(self):
        worker, slot, path = self.worker(), self.slot(), self.path()
        letters = self.random.choice(["wct", "wc", "wac", "+c"])
        return [["open", worker, slot, path, letters, 0o644],
                ["torn", worker, slot, self.data(), self.random.randint(1, 20), path, self.random.choice([0, 0.1, 0.5, 2])]]

    def save(self):
        return ["save", self.worker(), self.path(), self.data(), self.size()]

    def save_by_rename(self):
        """As most code saves: a temporary name that becomes final. Not always closed by then."""
        worker, slot, path = self.worker(), self.slot(), self.path(["a", "b", "c"])
        ops = [["open", worker, slot, path + ".tmp", "wct", 0o644], ["write", worker, slot, self.data(), self.size()],
               ["fsync", worker, slot], ["close", worker, slot], ["rename", worker, path + ".tmp", path]]
        if self.random.random() < 0.4:
            del ops[2]
        if self.random.random() < 0.3:
            ops[-2:] = ops[-1:] + ops[-2:-1]
        return ops

    def beside(self):
        """Something stays open while its process saves another name twice, as a trajectory does; then that ends."""
        worker, slot, path, name = self.worker(), self.random.choice([0, 1, 2]), self.path(["a", "b"]), self.path(["c"])
        ops = [["open", worker, slot, path, self.random.choice(["wct", "wct", "wct", "+ct"]), 0o644], ["write", worker, slot, self.data(), self.size()]]
        for _ in range(self.random.choice([1, 2, 2, 3])):
            ops.append(["save", worker, name, self.data(), self.random.choice(SIZES[1:])])
        if self.random.random() < 0.3:
            ops += [["write", worker, slot, self.data(), self.size()], self.seal()]
        return ops + [["look", self.worker(), path], self.random.choice([["end", worker, "kill"], ["end", worker, "kill"], ["close", worker, slot]])]

    def rename(self):
        return ["rename", self.worker(), self.plain_path(), self.plain_path()]

    def names(self):
        worker = self.worker()
        return self.random.choice([
            ["mkdir", worker, self.path(DIRECTORIES), self.random.choice([0o755, 0o700])],
            ["mkdir", worker, self.path(DIRECTORIES), 0o755],
            ["rmdir", worker, self.any_path()], ["unlink", worker, self.any_path()], ["unlink", worker, self.path()],
            ["link", worker, self.plain_path(), self.plain_path()],
            ["symlink", worker, self.random.choice(["a", "d/b", "nowhere", "l"]), self.random.choice(["l", self.path()])],
            ["mkfifo", worker, self.path(["b", "c"])]])

    def attributes(self):
        worker, path = self.worker(), self.any_path()
        return self.random.choice([
            ["truncate", worker, path, self.random.choice([0, 1, 4096, 30000])],
            ["chmod", worker, path, self.random.choice([0o600, 0o644, 0o755, 0o2750, 0o1777])],
            ["utime", worker, path, self.random.randrange(10**18, 17 * 10**17)],
            ["setxattr", worker, path, self.random.choice(XATTRS), self.data(), self.random.choice([0, 10, 300])],
            ["removexattr", worker, path, self.random.choice(XATTRS)]])

    def look(self):
        return ["look", self.worker(), self.any_path()]

    def check(self):
        return self.random.choice([["check"], ["check"], ["epochs"], ["epoch", self.random.randrange(9)], ["torn_bytes"]])

    def seal(self):
        self.epochs += 1
        return ["seal", "s%d" % self.epochs]

    def rollback(self):
        return ["rollback", self.random.randrange(9)]

    def change_epochs(self):
        number = self.random.randrange(9)
        return self.random.choice([["tag", number, self.random.choice(["best", "good"])],
                                   ["untag", self.random.choice(["best", "s1", "s2", "s3"])],
                                   ["drop", number], [["untag", "s%d" % (number + 1)], ["drop", number]]])

    def wait(self):
        return ["wait"]

    def single(self):
        """An operation of one process, that may be done at any moment."""
        make = self.random.choice([self.open, self.write, self.write, self.close, self.close, self.close, self.change, self.fsync,
                                   self.look, self.rename, self.names, self.attributes])
        made = make()
        return made[0] if isinstance(made[0], list) else made

    def both(self):
        """Two processes at the same time; what is a matter of the sealer alone is left out."""
        first, second = self.single(), self.random.choice([self.single, self.single, self.seal])()
        if second[0] != "seal":
            second[1] = (first[1] + 1) % WORKERS
            if "look" in (first[0], second[0]):
                # It is a stat, an open and reads: what another does between these is at no one moment.
                return second if first[0] == "look" else first
        return ["both", first, second]

    def crash(self):
        delay = self.random.choice([0, 0, 0.2, 1])
        if self.random.random() < 0.3:  # what a close has promised, before it is committed
            ops = self.open()
            _, worker, slot = ops[0][:3]
            return ops + [["crash", ["close", worker, slot], delay]]
        return ["crash", self.random.choice([None, self.single(), self.single(), self.seal()]), delay]

    def remount(self):
        return ["remount"]

    def machine(self):
        self.cold = True
        return self.random.choice([["cold"], ["lost"]])

    def weather(self):
        down = [] if self.cold else ["down=1"]
        return ["weather", self.random.choice(["", "", *down, "put.error=0.5", "put.lost=0.5&create.lost=0.3", "get.error=0.3"])]


def expand(ops):
    """Saves in single steps, so that each can be left out."""
    simple = []
    for op in ops:
        if op[0] == "save":
            _, worker, path, data, size = op
            simple += [["open", worker, 3, path, "wct", 0o644], ["write", worker, 3, data, size], ["close", worker, 3]]
        else:
            simple.append(op)
    return simple


def generate(seed, crashes=False, outages=False, likes=()):
    """`likes`: names of methods of Generator that are to come more often."""
    return Generator(seed, crashes, outages, likes).history()
