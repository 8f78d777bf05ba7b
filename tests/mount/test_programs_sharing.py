# SPDX-License-Identifier: Apache-2.0
"""Processes that share files: by locks, mappings and descriptors that are inherited, and as another user."""

import fcntl
import mmap
import os

import pytest

from conftest import python, wait_until
from test_contract_epochs import log_of
from test_programs import killed_at_work


# ---- locks, mappings, descriptors


LOCKER = """
import fcntl, os, sys
for _ in range(int(sys.argv[3])):
    fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    (fcntl.flock if sys.argv[4] == "flock" else fcntl.lockf)(fd, fcntl.LOCK_EX)
    with open(sys.argv[2]) as f:
        n = int(f.read())
    with open(sys.argv[2], "w") as f:
        f.write(str(n + 1))
    os.close(fd)
"""


@pytest.mark.parametrize("kind", ["flock", "fcntl"])
def test_two_lockers(mnt, kind):
    """A lock file opened O_RDWR|O_TRUNC by two processes stays one file: no update is lost."""
    (mnt.path / "counter").write_text("0")
    lockers = [python(LOCKER, mnt.path / "lock", mnt.path / "counter", "40", kind) for _ in range(2)]
    for locker in lockers:
        locker.communicate(timeout=100)
        assert locker.returncode == 0
    assert (mnt.path / "counter").read_text() == "80"


def test_a_lock_that_holds_a_pid(mnt):
    """It is not empty: opened O_TRUNC it would be another's version. Tools open it without, lock, then truncate."""
    path = mnt.path / "run.pid"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.ftruncate(fd, 0)
    os.write(fd, b"%d\n" % os.getpid())
    other = python("""
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("locked")
except BlockingIOError:
    print("held by", os.read(fd, 100).decode().strip())
""", path)
    out, _ = other.communicate(timeout=60)
    assert out == "held by %d\n" % os.getpid()
    os.close(fd)


def test_a_shared_mapping_that_outlives_the_close(mnt):
    path = mnt.path / "mapped"
    path.write_bytes(b"0" * 100000)
    before = mnt.seal()
    fd = os.open(path, os.O_RDWR)
    mapping = mmap.mmap(fd, 0)
    os.close(fd)
    mapping[:4] = b"late"
    assert path.read_bytes()[:4] == b"late"
    mnt.seal()
    mapping[50000:50004] = b"last"
    mapping.flush()
    assert path.read_bytes()[50000:50004] == b"last"
    assert (mnt.epoch(before) / "mapped").read_bytes() == b"0" * 100000
    mapping.close()

    def in_an_epoch():
        number = mnt.seal()
        data = (mnt.epoch(number) / "mapped").read_bytes()
        return data[:4] == b"late" and data[50000:50004] == b"last"

    wait_until(in_an_epoch, "what the mapping wrote in an epoch")
    mnt.remount()
    assert path.read_bytes()[50000:50004] == b"last"
    assert (mnt.epoch(before) / "mapped").read_bytes() == b"0" * 100000


def test_a_forked_child_that_keeps_the_descriptor(mnt):
    """A data loader's worker holds what its parent had open: that is closed all the same."""
    parent = python("""
import os, sys
f = open(sys.argv[1] + "/held.pt", "wb")
f.write(b"x" * 50000)
f.flush()
read, write = os.pipe()
if os.fork() == 0:
    os.close(write)
    os.read(read, 1)
    os._exit(0)
os.close(read)
f.close()
with open(sys.argv[1] + "/free.pt", "wb") as g:
    g.write(b"y")
print("closed", flush=True)
sys.stdin.readline()
os.close(write)
os.wait()
print("gone", flush=True)
sys.stdin.read()
""", mnt.path)
    assert parent.stdout.readline() == "closed\n"
    assert (mnt.path / "held.pt").read_bytes() == b"x" * 50000
    number = mnt.seal()
    assert sorted(os.listdir(mnt.epoch(number))) == ["free.pt", "held.pt"]
    assert any("held.pt" in line for line in mnt.status()["pending"]["open"])
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "gone\n"
    assert mnt.seal() == number
    assert (mnt.epoch(number) / "held.pt").read_bytes() == b"x" * 50000
    assert log_of(mnt)[number]["complete"] is True
    parent.communicate(timeout=60)
    assert parent.returncode == 0


# ---- another user

# Started in the mount: the directories above it may be closed to others.
AS_NOBODY = "import os\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n"


@pytest.mark.options(allow_other=True, settle="1h")
def test_a_writer_of_another_uid(mnt):
    os.chmod(mnt.path, 0o1777)
    (mnt.path / "roots").write_text("not yours")
    os.chmod(mnt.path / "roots", 0o644)
    (mnt.path / "secret").touch(mode=0o600)
    mnt.seal()
    writer = python(AS_NOBODY + """
import errno
top = "."
def error(call, *arguments):
    try:
        call(*arguments)
        return "done"
    except OSError as e:
        return errno.errorcode[e.errno]
os.mkdir(top + "/mine")
with open(top + "/mine/model", "wb") as f:
    f.write(b"first")
with open(top + "/mine/model", "wb") as f:
    f.write(b"second")
print(error(open, top + "/roots", "r+b"), error(open, top + "/secret", "rb"), error(os.unlink, top + "/roots"),
      error(os.chmod, top + "/roots", 0o777), error(os.chown, top + "/mine/model", 0, 0),
      open(top + "/roots").read())
""", cwd=mnt.path)
    out, _ = writer.communicate(timeout=60)
    assert out == "EACCES EACCES EPERM EPERM EPERM not yours\n"
    st = os.stat(mnt.path / "mine" / "model")
    assert (st.st_uid, st.st_gid) == (65534, 65534) and (mnt.path / "mine" / "model").read_bytes() == b"second"
    number = mnt.seal()
    st = os.stat(mnt.epoch(number) / "mine" / "model")
    assert (st.st_uid, st.st_gid) == (65534, 65534)
    assert log_of(mnt)[number]["complete"] is True


@pytest.mark.options(allow_other=True, settle="1h")
def test_a_killed_writer_of_another_uid_commits_nothing(mnt):
    path = mnt.path / "model"
    path.write_bytes(b"good")
    os.chmod(path, 0o666)
    mnt.seal()
    with killed_at_work(AS_NOBODY + """
import sys
f = open("model", "wb")
f.write(b"x" * 50000)
f.flush()
print("at work", flush=True)
sys.stdin.read()
""", cwd=mnt.path):
        assert path.read_bytes() == b"good"
    wait_until(mnt.torn, "the torn bytes")
    assert path.read_bytes() == b"good"


def test_without_allow_other_the_mount_is_its_owners(mnt):
    other = python(AS_NOBODY + """
try:
    os.listdir(".")
except PermissionError:
    print("refused")
""", cwd=mnt.path)
    out, _ = other.communicate(timeout=60)
    assert out == "refused\n"
