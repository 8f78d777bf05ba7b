#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One process of a soak: it writes, or reads and checks, until the file `stop` is there.

    workers.py KIND BASE SEED

What a writer knows of its own files is what it was promised: what it closed is there, also after the daemon was killed; of what
was under way then, either. A rollback (the number in `generation`) makes it forget. Errors count unless the daemon was killed meanwhile (`kills`).
"""

import json
import mmap
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
import traceback

from parts import Shared, blob, lines, picture, version_of, what_is_wrong


class Worker:
    def __init__(self, shared, name, seed):
        self.shared, self.name = shared, name
        self.random = random.Random("%s %s" % (name, seed))
        self.folder = shared.work / name
        self.generation = self.version = self.turns = 0
        self.may = {}  # path -> versions that it may hold; 0: it may be absent
        self.forget()

    def forget(self):
        self.may = {}

    def run(self):
        while not self.shared.stopped():
            with self.shared.turn():
                kills = self.shared.number("kills")
                if not self.shared.is_down():
                    self.one_turn(kills)
            time.sleep(self.random.uniform(0, 0.1))
        print("%s: %d turns" % (self.name, self.turns), flush=True)

    def one_turn(self, kills):
        generation = self.shared.number("generation")
        if generation != self.generation:
            self.generation = generation
            self.forget()
        try:
            self.turn()
            self.turns += 1
        except (OSError, sqlite3.Error, subprocess.SubprocessError, Failed) as error:
            if kills == self.shared.number("kills") and not self.shared.is_down():
                self.shared.problem("%s: %s" % (self.name, error if isinstance(error, Failed) else traceback.format_exc()))

    def turn(self):
        raise NotImplementedError

    # ---- files that are written as a whole

    def write(self, name, size):
        path = self.folder / name
        new = not path.exists()
        before = {0} if new else self.may.get(name) or self.read_versions(name)
        self.version += 1
        self.may[name] = before | {self.version}
        target = path.with_name("tmp-" + path.name) if new or self.random.random() < 0.3 else path
        data = blob(name.replace("/", "-"), self.version, size)
        with open(target, "wb") as f:
            for at in range(0, len(data), 300000):
                f.write(data[at:at + 300000])
            if self.random.random() < 0.2:
                f.flush()
                os.fsync(f.fileno())
        if target != path:
            os.rename(target, path)
        self.may[name] = {self.version}

    def read_versions(self, name):
        with open(self.folder / name, "rb") as f:
            found = version_of(f.read())
        if found is None:
            raise Failed("%s/%s is torn" % (self.name, name))
        self.version = max(self.version, found)
        return {found}

    def remove(self, name):
        # Where the daemon is killed meanwhile, it may still be there.
        self.may[name] = {0} | (self.may.get(name) or self.read_versions(name))
        os.unlink(self.folder / name)
        self.may[name] = {0}

    def check(self):
        """What it knows, it finds."""
        for name, may in self.may.items():
            try:
                with open(self.folder / name, "rb") as f:
                    data = f.read()
                found = version_of(data)
            except FileNotFoundError:
                data, found = b"", 0
            if found not in may:
                raise Failed("%s/%s: version %s (%d bytes %r), promised %s" % (self.name, name, found, len(data), data[:50], sorted(may)))
        self.may = {name: may for name, may in self.may.items() if may != {0}}


class Failed(Exception):
    """Something is not as it was promised."""


class Saver(Worker):
    """As torch.save does it, in place and as directories with a temporary name."""

    def turn(self):
        os.makedirs(self.folder, exist_ok=True)
        self.check()
        self.write("model.pt", self.random.choice([200000, 1500000]))
        if self.random.random() < 0.4:
            self.directory()
        self.check()

    def directory(self):
        there = sorted((n for n in os.listdir(self.folder) if n.startswith("ckpt-")), key=lambda n: int(n[5:]))
        number = max([int(n[5:]) for n in there] + [self.version]) + 1
        self.version = number
        part, final = self.folder / ("tmp-%d" % number), self.folder / ("ckpt-%d" % number)
        os.makedirs(part, exist_ok=True)
        for name in ("weights", "optimizer"):
            (part / name).write_bytes(blob("%s-%s" % (self.name, name), number, 400000))
        self.may.update({"ckpt-%d/%s" % (number, n): {0, number} for n in ("weights", "optimizer")})
        os.rename(part, final)
        self.may.update({"ckpt-%d/%s" % (number, n): {number} for n in ("weights", "optimizer")})
        for old in there[:-2]:
            for name in os.listdir(self.folder / old):
                self.remove(old + "/" + name)
            os.rmdir(self.folder / old)


class Small(Worker):
    """Many small files, replaced and removed."""

    def turn(self):
        os.makedirs(self.folder, exist_ok=True)
        for _ in range(20):
            name = "f%02d" % self.random.randrange(60)
            if self.random.random() < 0.2 and (self.folder / name).exists():
                self.remove(name)
            else:
                self.write(name, self.random.choice([0, 100, 3000, 9000]))
        self.check()


class Appender(Worker):
    """Logs that grow; what was closed is never lost."""

    def forget(self):
        self.count = {}

    def turn(self):
        os.makedirs(self.folder, exist_ok=True)
        for name in ("grows.log", "grows.data"):
            path = self.folder / name
            there = path.read_bytes() if path.exists() else b""
            whole = there[:there.rfind(b"\n") + 1]
            count = whole.count(b"\n")
            if whole != lines(count) or count < self.count.get(name, 0):
                raise Failed("%s: %d lines, %d were closed" % (name, count, self.count.get(name, 0)))
            if count > 20000 or whole != there:  # what a killed daemon cut off goes
                with open(path, "r+b") as f:
                    self.count[name] = 0
                    f.truncate(0 if count > 20000 else len(whole))
                    count = 0 if count > 20000 else count
            more = count + self.random.choice([1, 20, 500])
            with open(path, "ab") as f:
                f.write(lines(more, count))
            self.count[name] = more


class Database(Worker):
    """SQLite commits; a kill of the daemon is a crash to it."""

    def forget(self):
        self.rows = 0

    def turn(self):
        os.makedirs(self.folder, exist_ok=True)
        db = sqlite3.connect(self.folder / "rows.db", isolation_level=None, timeout=30)
        try:
            db.execute("PRAGMA synchronous = EXTRA")
            db.execute("CREATE TABLE IF NOT EXISTS rows (i INTEGER PRIMARY KEY, data BLOB)")
            (count,) = db.execute("SELECT count(*) FROM rows").fetchone()
            if count < self.rows:
                raise Failed("rows.db: %d rows, %d were committed" % (count, self.rows))
            if count > 2000:
                self.rows = count = 0
                db.execute("DELETE FROM rows")
            db.execute("BEGIN")
            for i in range(count, count + 20):
                db.execute("INSERT INTO rows VALUES (?, ?)", (i, self.random.randbytes(300)))
            db.execute("COMMIT")
            self.rows = count + 20
            if self.random.random() < 0.1 and db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                raise Failed("rows.db is damaged")
        finally:
            db.close()


class Killed(Worker):
    """Writers that die in the middle: the file stays what it was."""

    CODE = "import sys\nf = open(sys.argv[1], 'wb')\nf.write(b'torn' * 9000)\nf.flush()\nprint(1, flush=True)\nsys.stdin.read()"

    def turn(self):
        os.makedirs(self.folder, exist_ok=True)
        self.write("model.pt", 300000)
        with subprocess.Popen([sys.executable, "-c", self.CODE, self.folder / "model.pt"], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
            writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
        self.check()
        time.sleep(self.random.uniform(0, 1))


class Overlapping(Worker):
    """Two readers of one file, of which the first ends before somebody appends to it; the other one then reads what it holds."""

    PATH = "grows.read"

    def forget(self):
        self.count = 0

    def turn(self):
        os.makedirs(self.folder, exist_ok=True)
        path = self.folder / self.PATH
        if not path.exists() or path.stat().st_size > 1 << 20:
            path.write_bytes(lines(1))
            self.count = 1
        for _ in range(5):  # from the second on, what was closed is hardly durable yet
            self.overlap(path)

    def overlap(self, path):
        ends, left = open(path, "rb"), open(path, "rb")
        if self.random.random() < 0.3:
            ends, left = left, ends
        with left:
            with ends:
                there = ends.read()
            self.judge("before", there)
            count = there.count(b"\n")
            self.append(path, count, count + self.random.choice([1, 40]))
            self.judge("another reader", left.read())
        self.judge("after the last reader", path.read_bytes())

    def append(self, path, count, more):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, lines(more, count))
        finally:
            os.close(fd)
        self.count = more

    def judge(self, who, data):
        if data != lines(data.count(b"\n")) or data.count(b"\n") < self.count:
            raise Failed("%s of %s: %d lines, %d were closed" % (who, self.PATH, data.count(b"\n"), self.count))


class Crowd(Worker):
    """One of several who replace one file, in each way, and read it: whoever has it open has one whole version."""

    def turn(self):
        path = self.shared.work / "crowd" / "model.pt"
        os.makedirs(path.parent, exist_ok=True)
        for _ in range(10):
            self.random.choice([self.look, self.look, self.hold, self.replace, self.move])(path)

    def data(self):
        self.version += 1
        return blob(self.name, self.version, self.random.choice([100, 5000, 200000]))

    def replace(self, path):
        if path.exists():  # what is new is seen while it is written
            path.write_bytes(self.data())

    def move(self, path):
        part = path.with_name("tmp-" + self.name)
        part.write_bytes(self.data())
        os.rename(part, path)

    def look(self, path):
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        with open(fd, "rb", buffering=0) as f:
            size, first = os.fstat(fd).st_size, f.readall()
            os.lseek(fd, 0, os.SEEK_SET)
            again = f.readall()
            if version_of(first) is None or again != first or {size, os.fstat(fd).st_size} != {len(first)}:
                raise Failed("crowd/model.pt: %d bytes %r, then %d, by fstat %d and %d" % (
                    len(first), first[:50], len(again), size, os.fstat(fd).st_size))


    def hold(self, path):
        """Overlapping readers, one of them with a mapping, while the others of the crowd replace what they read."""
        try:
            fds = [os.open(path, os.O_RDONLY) for _ in range(3)]
        except FileNotFoundError:
            return
        files = [open(fd, "rb", buffering=0) for fd in fds]
        try:
            with files.pop(self.random.randrange(3)) as ends:
                ends.read(100)
            first = [f.readall() for f in files]
            with mmap.mmap(files[0].fileno(), 0, prot=mmap.PROT_READ) as mapped:
                time.sleep(self.random.uniform(0, 0.2))
                self.move(path)
                again = [os.pread(f.fileno(), len(data) + 1, 0) for f, data in zip(files, first)]
                if None in map(version_of, first) or again != first or mapped[:] != first[0]:
                    raise Failed("crowd/model.pt changed under who had it open: %r, then %r, mapped %r" % (
                        [d[:50] for d in first], [d[:50] for d in again], mapped[:50]))
        finally:
            for f in files:
                f.close()


class Tail(Worker):
    """One of several who read what `overlapping` appends to, by two descriptors of which one ends: nothing that was read once goes."""

    def turn(self):
        path = self.shared.work / "overlapping" / Overlapping.PATH
        try:
            fds = [os.open(path, os.O_RDONLY) for _ in range(2)]
        except FileNotFoundError:
            return
        os.close(fds.pop(self.random.randrange(2)))
        with open(fds[0], "rb", buffering=0) as f:
            before = b""
            for _ in range(5):
                data = os.pread(f.fileno(), 2 << 20, 0)
                count = data.count(b"\n")
                if not lines(count + 1).startswith(data) or not data.startswith(before):
                    raise Failed("a reader of %s: %d lines, %d before, %r" % (path.name, count, before.count(b"\n"), data[-60:]))
                before = data
                time.sleep(self.random.uniform(0, 0.05))


class Reader(Worker):
    """The live tree of the mount: all that has a final name is whole."""

    root = "mnt"

    def turn(self):
        for folder, _, files in os.walk(self.shared.base / self.root / "work"):
            for name in files:
                path = os.path.join(folder, name)
                if "tmp-" in path or "grows" in name:
                    continue
                try:
                    with open(path, "rb") as f:
                        wrong = what_is_wrong(path, f.read())
                except FileNotFoundError:
                    continue
                if wrong and os.path.exists(path):
                    raise Failed("%s: %s" % (path, wrong))


class EpochReader(Worker):
    """An epoch says the same whoever reads it, however often; a complete one is whole."""

    root = "mnt"

    def turn(self):
        epochs = self.shared.base / self.root / ".epochs"
        numbers = [n for n in os.listdir(epochs) if n.isdigit()]
        if not numbers:
            return
        number = self.random.choice(numbers)
        try:
            found = picture(epochs / number)
            complete = os.getxattr(epochs / number, "user.epochfs.complete") == b"true"
            if complete:
                self.check_whole(epochs / number)
        except OSError:
            # It was dropped, and a collection without a grace took what it held.
            if self.stays(number):
                raise
            return
        self.compare(number, found)

    def stays(self, number):
        """The kernel forgets the name of an epoch a moment after what is in it."""
        end = time.monotonic() + 5
        while self.is_there(number) and time.monotonic() < end:
            time.sleep(0.05)
        return self.is_there(number)

    def is_there(self, number):
        return (self.shared.mnt / ".epochs" / number).exists() and (self.shared.base / self.root / ".epochs" / number).exists()

    def check_whole(self, root):
        for folder, _, files in os.walk(root):
            for name in files:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    data = f.read()
                wrong = what_is_wrong(path, data[:data.rfind(b"\n") + 1] if name == "grows.log" else data)
                if wrong:
                    raise Failed("%s is complete, but %s" % (path, wrong))

    def compare(self, number, found):
        """The first who reads an epoch writes down what it is."""
        text = json.dumps(found, sort_keys=True)
        path = self.shared.base / "epochs" / number
        part = path.with_name("%s.%s" % (number, self.name))
        part.write_text(text)
        try:
            os.link(part, path)
        except FileExistsError:
            first = json.loads(path.read_text())
            if first != found:
                other = sorted(p for p in {*first, *found} if first.get(p) != found.get(p))
                raise Failed("epoch %s of %s differs from what it was: %s" % (number, self.root, other[:5])) from None
        finally:
            part.unlink()


class FollowerReader(EpochReader):
    root = "follower"


KINDS = {"saver-1": Saver, "saver-2": Saver, "small": Small, "appender": Appender, "database": Database, "killed": Killed,
         "overlapping": Overlapping, "tail-1": Tail, "tail-2": Tail, **{"crowd-%d" % i: Crowd for i in range(1, 7)},
         "reader": Reader, "epochs": EpochReader, "follower": FollowerReader}


def main():
    kind, base, seed = sys.argv[1:]
    KINDS[kind](Shared(base), kind, seed).run()


if __name__ == "__main__":
    main()
