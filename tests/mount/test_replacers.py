# SPDX-License-Identifier: Apache-2.0
"""Many processes replace one file at once, and others read it, change it and its attributes: each sees whole content, and no call fails."""

import os
import random
import subprocess
import sys

import pytest

from conftest import LIMIT, run, wait_until

REPLACERS = r"""
import mmap, os, random, sys, time
path, who, percent, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
rnd, end, bad, n = random.Random(who), time.monotonic() + seconds, [], 0

def content(tag):
    return b"%08d" % tag * random.Random(tag).randrange(500, 20000)

def replace(tag):
    data = content(tag)
    truncates = rnd.randrange(100) < percent
    name = path if truncates else "%s.%d" % (path, who)
    with open(name, "wb", buffering=0) as f:
        f.write(data[:len(data) // 3])
        f.write(data[len(data) // 3:])
    if not truncates:
        os.rename(name, path)

def read():
    fd = os.open(path, os.O_RDONLY)
    size, data = os.fstat(fd).st_size, b""
    while part := os.read(fd, 1 << 20):
        data += part
    if data != content(int(data[:8] or -1)):
        bad.append("torn: %d bytes, it said %d, begins with %r" % (len(data), size, data[:8]))
    elif len(data) != size or os.fstat(fd).st_size != size:
        bad.append("it said %d, then %d, and has %d" % (size, os.fstat(fd).st_size, len(data)))
    elif n % 5 == 0:
        with mmap.mmap(fd, size, prot=mmap.PROT_READ) as m:
            if m[:] != data:
                bad.append("the mapping is another")
    os.close(fd)

while time.monotonic() < end and not bad:
    n += 1
    try:
        if percent >= 0:
            replace(who * 100000 + n)
        else:
            read()
    except OSError as e:
        bad.append(str(e))
print(n)
for line in bad:
    print(line, file=sys.stderr)
"""


def replacers(mnt, writers, readers, percent, seconds):
    path = mnt.path / "model.pt"
    path.write_bytes(b"%08d" % 7 * random.Random(7).randrange(500, 20000))
    wishes = [(i + 1, percent) for i in range(writers)] + [(100 + i, -1) for i in range(readers)]
    all_of_them = [
        subprocess.Popen(
            [sys.executable, "-c", REPLACERS, path, str(who), str(what), str(seconds)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for who, what in wishes
    ]
    outputs = [p.communicate(timeout=LIMIT + seconds) for p in all_of_them]
    assert [err for _, err in outputs if err] == []
    assert min(int(out) for out, _ in outputs) > 0


ONE_NODE = r"""
import mmap, os, struct, sys, time
path, readers, shared, turns = sys.argv[1], 4, mmap.mmap(-1, 4096), int(sys.argv[2])

def turn_of(who):
    return struct.unpack_from("i", shared, 4 * who)[0]

def read(who):
    for turn in range(1, turns + 1):
        node = os.open(path, os.O_PATH)
        os.stat(node)
        struct.pack_into("i", shared, 4 * who, turn)
        while turn_of(0) < turn:
            pass
        fd = os.open("/proc/self/fd/%d" % node, os.O_RDONLY)
        size, data = os.fstat(fd).st_size, os.read(fd, 1 << 20)
        if len(data) != size:
            print("it said %d, and has %d" % (size, len(data)))
        os.close(fd), os.close(node)

for who in range(1, readers + 1):
    if not os.fork():
        read(who)
        sys.exit()
for turn in range(1, turns + 1):
    while any(turn_of(who) < turn for who in range(1, readers + 1)):
        time.sleep(0)
    with open(path, "wb") as f:
        f.write(bytes(100 + 7 * turn))
    struct.pack_into("i", shared, 0, turn)
for _ in range(readers):
    os.wait()
"""


def test_readers_that_open_by_one_node_at_once_see_the_size_of_what_they_read(mnt):
    """It stood for what was there before; one of them lets it go over, and the kernel is to know before another is answered."""
    path = mnt.path / "f"
    path.write_text("0")
    assert run(sys.executable, "-u", "-c", ONE_NODE, path, "300").stdout == ""


@pytest.mark.parametrize("percent", [70, 0, 100])
def test_replacing_is_isolated_however_many_race(mnt, percent):
    replacers(mnt, 20, 20, percent, 4)


def test_replacements_leave_no_descriptors(mnt):
    replacers(mnt, 8, 2, 70, 4)
    # 40 is what a mount at rest has; before, each replacement left one or two.
    wait_until(lambda: len(os.listdir("/proc/%d/fd" % mnt.pid)) < 60, "the descriptors of replacements to go")
    mnt.seal()


ATTRIBUTES = """
import collections, errno, os, random, sys, time
who, names, end = int(sys.argv[1]), int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
rnd, failed, counts = random.Random(who), collections.Counter(), collections.Counter()

def by_descriptor(fd):
    os.fchmod(fd, 0o640), os.utime(fd), os.ftruncate(fd, 3), os.setxattr(fd, "user.a", b"1")
    os.pwrite(fd, b"x", 1), os.pread(fd, 3, 0), os.fstat(fd), os.fsync(fd), os.close(fd)

def save(path, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
    fd = os.open(path, flags)
    os.write(fd, b"content"), os.close(fd)

def linked(name, other):
    if os.path.lexists("link%d" % who):
        os.unlink("link%d" % who)
    os.link(name, "link%d" % who)
    os.rename("link%d" % who, other)

NAMES = {
    "renamed": lambda name, other: (save("new%d" % who), os.rename("new%d" % who, name)),
    "linked": linked,
    "replaced": lambda name, other: save(name, os.O_WRONLY | os.O_TRUNC),
}
FILES = {
    "descriptor": lambda name, other: by_descriptor(os.open(name, os.O_RDWR)),
    "chmod": lambda name, other: os.chmod(name, rnd.randrange(0o600, 0o640)),
    "utime": lambda name, other: os.utime(name),
    "truncate": lambda name, other: os.truncate(name, 3),
    "setxattr": lambda name, other: os.setxattr(name, "user.b", b"2"),
    "append": lambda name, other: save(name, os.O_WRONLY | os.O_APPEND),
    "read": lambda name, other: open(name, "rb").read(),
}
kinds = NAMES if who % 2 else {**FILES, "replaced": NAMES["replaced"]}
while time.monotonic() < end:
    kind = rnd.choice(list(kinds))
    counts[kind] += 1
    try:
        kinds[kind]("n%d" % rnd.randrange(names), "n%d" % rnd.randrange(names))
    except OSError as e:
        # A file that has lost its name since it was looked up cannot be linked, on ext4 either.
        if (kind, e.errno) != ("linked", errno.ENOENT):
            failed[kind, e.strerror] += 1
print(failed or "", min(counts.values()) if len(counts) == len(kinds) else "not all of " + str(sorted(kinds)))
"""


@pytest.mark.parametrize("names", [1, 4])
def test_no_operation_fails_because_others_replace_the_file(mnt, names):
    for i in range(names):
        (mnt.path / ("n%d" % i)).write_text("old")
    all_of_them = [
        subprocess.Popen([sys.executable, "-c", ATTRIBUTES, str(who), str(names), "8"], cwd=mnt.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for who in range(10)
    ]
    outputs = [p.communicate(timeout=LIMIT + 8)[0].split() for p in all_of_them]
    assert [out for out in outputs if len(out) != 1 or int(out[0]) < 1] == []
