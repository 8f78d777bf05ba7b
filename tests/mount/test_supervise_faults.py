# SPDX-License-Identifier: Apache-2.0
"""mount -o supervise: the process that serves dies at each step of a change, and a program that makes them all does not notice."""

import os
import pathlib
import re
import subprocess

import pytest

import conftest
from conftest import LIMIT, python

pytestmark = pytest.mark.options(supervise=True)


# One program that must not notice: each step once, right after what a worker may have left half done.
STEPS = """
put("a", b"one", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
assert get("a") == b"one"
put("a", b"two")
assert get("a") == b"two"
put("a", b"T", os.O_WRONLY)
assert get("a") == b"Two"
os.mkdir(p("tmp-d"))
put("tmp-d/x", b"x")
os.rename(p("tmp-d"), p("d"))
assert get("d/x") == b"x" and not os.path.exists(p("tmp-d"))
os.link(p("a"), p("b"))
assert get("b") == b"Two"
os.symlink("a", p("s"))
os.unlink(p("b"))
assert sorted(os.listdir(home)) == ["a", "d", "s"], os.listdir(home)
os.setxattr(p("a"), "user.k", b"v", os.XATTR_CREATE)
assert os.getxattr(p("a"), "user.k") == b"v"
os.removexattr(p("a"), "user.k")
fd = os.open(p("held"), os.O_CREAT | os.O_RDWR)
os.write(fd, b"held")
os.unlink(p("held"))
assert os.pread(fd, 9, 0) == b"held"
os.close(fd)
put("e", b"e")
os.rename(p("e"), p("a"))
assert get("a") == b"e" and sorted(os.listdir(home)) == ["a", "d", "s"]
os.unlink(p("d/x"))
os.rmdir(p("d"))
fd = os.open(p("a"), os.O_RDWR)
os.write(fd, b"E!")
os.fsync(fd)
os.close(fd)
assert get("a") == b"E!"
if os.fork() == 0:
    fd = os.open(p("a"), os.O_WRONLY | os.O_TRUNC)
    os.write(fd, b"half")
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
assert get("a") == b"E!"
put("n", b"gone", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
os.unlink(p("n"))
if os.fork() == 0:
    fd = os.open(p("n"), os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"half")
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
assert not os.path.exists(p("n"))
"""

# Beside a reader, by whose file the kernel reads: what it has must be what the file is, whatever is changed.
STEPS_BESIDE_A_READER = """
put("k", b"kept")
os.utime(p("k"), (1, 1))
prepare()
r = os.open(p("k"), os.O_RDONLY)
mapped = Mapping(r, 4, mmap.PROT_READ)
assert os.pread(r, 9, 0) == b"kept"
os.close(os.open(p("k"), os.O_RDWR))
assert os.pread(r, 9, 0) == b"kept" and get("k") == b"kept"
fd = os.open(p("k"), os.O_RDWR)
assert os.pread(fd, 9, 0) == b"kept"
os.pwrite(fd, b"K", 0)
assert os.pread(r, 9, 0) == b"Kept" and mapped.read() == b"Kept" and get("k") == b"Kept"
os.close(fd)
assert os.pread(r, 9, 0) == b"Kept" and get("k") == b"Kept"
fd = os.open(p("k"), os.O_RDWR)
left = Mapping(fd, 4)
os.pwrite(fd, b"and more", 4)
os.close(fd)
left.write(b"L")
assert os.pread(r, 99, 0) == b"Leptand more" and mapped.read() == b"Lept", (os.pread(r, 99, 0), mapped.read())
assert get("k") == b"Leptand more"  # the close is done
left.close()
os.close(r)
mapped.close()
assert get("k") == b"Leptand more"
"""

STEPS_BEGIN = """
import mmap, os, signal, sys
sys.path.append(sys.argv[2])
from conftest import Mapping
home = sys.argv[1]
def p(name):
    return os.path.join(home, name)
def put(name, data, flags=os.O_CREAT | os.O_WRONLY | os.O_TRUNC):
    fd = os.open(p(name), flags, 0o644)
    os.write(fd, data)
    os.close(fd)
def get(name):
    with open(p(name), "rb") as f:
        return f.read()
def prepare():
    if len(sys.argv) > 3:
        print("ready")
        sys.stdin.readline()
"""

# Of all FAULT_POINTs of the source those that the steps come by, by their part; and the parts that have no open file in them.
PARTS_OF_STEPS = {"create", "open", "write", "flush", "release", "commit", "edit", "fsync", "undo"}
OTHER_PARTS = {"ahead", "announce", "catalog", "drop", "gc", "import", "nodes", "output", "recover", "repair", "resume", "retain",
               "rollback", "same", "seal", "store", "undrop", "upload"}
# Where the daemon reads and writes itself, no file is taken over.
OF_PASSTHROUGH = {"edit.linked", "edit.renamed", "commit.restored"}
# What the steps need not come by twice.
COME_BY_ONCE = {"commit.copied", "commit.restored", "fsync.data"}


def fault_points():
    found = set()
    for path in (pathlib.Path(__file__).parents[2]).glob("*/**/*.c"):
        if path.parts[-3] in ("lib", "fs") or path.parts[-2] in ("fs", "tools"):
            found |= set(re.findall(r'FAULT_POINT\("([^"]+)"\)', path.read_text(encoding="utf-8")))
    return sorted(found)


def test_each_fault_point_is_of_a_known_part():
    parts = {name.split(".")[0] for name in fault_points()}
    assert parts == PARTS_OF_STEPS | OTHER_PARTS
    assert OF_PASSTHROUGH < set(fault_points())


def steps(mnt, code, *more):
    return python(STEPS_BEGIN + code + 'print("done")', mnt.path, os.path.dirname(conftest.__file__), *more, stderr=subprocess.PIPE)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("point", [name for name in fault_points() if name.split(".")[0] in PARTS_OF_STEPS])
def test_a_program_goes_on_wherever_the_worker_dies(volume, monkeypatch, point, count):
    """The first worker dies at this step of its own; the one after it has no such fault."""
    monkeypatch.setenv("EPOCHFS_FAULT", "%s:%d" % (point, count))
    # One of the program's children is killed in its save: what goes back is not asked here.
    mnt = volume.mount(settle="1h", resume="off")
    p = steps(mnt, STEPS + STEPS_BESIDE_A_READER)
    out, err = p.communicate(timeout=LIMIT)
    assert (p.returncode, out) == (0, "done\n"), err + mnt.log.read_text()
    reached = mnt.options["passthrough"] == "on" or point not in OF_PASSTHROUGH
    restarts = mnt.status()["restarts"]
    assert restarts == reached or restarts == 0 and count == 2 and point in COME_BY_ONCE
    number = mnt.seal()
    assert (mnt.epoch(number) / "a").read_bytes() == b"E!"
    assert (mnt.epoch(number) / "k").read_bytes() == b"Leptand more"
    mnt.unmount()


@pytest.mark.parametrize("point", ["edit.linked", "edit.rows", "commit.begin", "commit.restored", "commit.rows"])
def test_what_the_remote_has_is_changed_wherever_the_worker_dies(volume, monkeypatch, point):
    """Then nothing is copied: the file's inode is given to its next version."""
    monkeypatch.setenv("EPOCHFS_FAULT", "%s:%d" % (point, 2 if point in ("commit.begin", "commit.rows") else 1))
    mnt = volume.mount(settle="1h")
    p = steps(mnt, STEPS_BESIDE_A_READER, "prepare")
    assert p.stdout.readline() == "ready\n"
    number = mnt.seal()
    mnt.wait_durable()
    out, err = p.communicate("go\n", timeout=LIMIT)
    assert (p.returncode, out) == (0, "done\n"), err + mnt.log.read_text()
    assert mnt.status()["restarts"] == (mnt.options["passthrough"] == "on" or point != "commit.restored")
    assert (mnt.epoch(number) / "k").read_bytes() == b"kept"
    assert (mnt.epoch(mnt.seal()) / "k").read_bytes() == b"Leptand more"
    mnt.unmount()
