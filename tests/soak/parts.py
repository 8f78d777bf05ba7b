# SPDX-License-Identifier: Apache-2.0
"""What the processes of a soak share: files that tell by themselves whether they are whole, and words by files."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import random
import time


def blob(name, version, size):
    """Half of it is the same in each version, as of a model that is trained."""
    body = random.Random("%s/%d" % (name, size)).randbytes(size // 2)
    body += random.Random("%s/%d/%d" % (name, size, version)).randbytes(size - len(body))
    return b"soak %s %d %d %s\n" % (name.encode(), version, size, hashlib.sha256(body).hexdigest().encode()) + body


def version_of(data):
    """The version of a whole blob, else None."""
    head, _, body = data.partition(b"\n")
    words = head.split(b" ")
    if len(words) != 5 or words[0] != b"soak" or int(words[3]) != len(body):
        return None
    return int(words[2]) if hashlib.sha256(body).hexdigest().encode() == words[4] else None


def lines(count, first=0):
    return b"".join(b"line %d of a log that grows\n" % i for i in range(first, count))


def what_is_wrong(path, data):
    """With a file of the soak that was closed, wherever it is read; None: nothing."""
    name = os.path.basename(path)
    if name.startswith("rows.db"):
        return None  # a database between two commits is whole only with its journal
    if name.startswith("grows"):
        return None if data == lines(data.count(b"\n")) else "%d bytes are not the lines of a log" % len(data)
    return None if version_of(data) is not None else "torn: %d bytes, %r" % (len(data), data[:60])


class Shared:
    """A folder outside of the mounts."""

    def __init__(self, base):
        self.base = pathlib.Path(base)
        self.mnt, self.follower = self.base / "mnt", self.base / "follower"
        self.work = self.mnt / "work"
        (self.base / "lock").touch()

    def number(self, name):
        try:
            return int((self.base / name).read_text() or 0)
        except (FileNotFoundError, ValueError):
            return 0

    def set_number(self, name, value):
        (self.base / (name + ".new")).write_text(str(value))
        os.replace(self.base / (name + ".new"), self.base / name)

    def problem(self, text):
        with open(self.base / "problems", "a", encoding="utf-8") as f:
            f.write("%s %s\n" % (time.strftime("%H:%M:%S"), text))

    def problems(self):
        try:
            return (self.base / "problems").read_text().splitlines()
        except FileNotFoundError:
            return []

    @contextlib.contextmanager
    def turn(self):
        """Every worker's; none begins while somebody wants stillness, who would wait for ever."""
        while (self.base / "still").exists() and not self.stopped():
            time.sleep(0.02)
        with open(self.base / "lock", "rb") as f:
            fcntl.flock(f, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def stillness(self):
        """The live tree stands still."""
        (self.base / "still").touch()
        with open(self.base / "lock", "rb") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            yield
            (self.base / "still").unlink()

    def stopped(self):
        return (self.base / "stop").exists()

    def is_down(self):
        return (self.base / "down").exists()


def picture(root):
    """{path: hash} of the regular files below; ENOENT and EIO are the caller's to judge."""
    found = {}
    for folder, _, files in os.walk(root, onerror=_raise):
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                found[os.path.relpath(path, root)] = hashlib.sha256(f.read()).hexdigest()
    return found


def _raise(error):
    raise error
