# SPDX-License-Identifier: Apache-2.0
"""Content of files in the live tree: what programs that save checkpoints do to them."""

import ctypes
import errno
import fcntl
import mmap
import os
import random

import pytest

from conftest import python, run

SEEK_DATA, SEEK_HOLE = 3, 4
MIB = 1 << 20


def opened(path, flags, mode=0o644):
    return os.open(path, flags | os.O_CLOEXEC, mode)


class Fd:
    """A descriptor for a with statement."""

    def __init__(self, path, flags, mode=0o644):
        self.fd = opened(path, flags, mode)

    def __enter__(self):
        return self.fd

    def __exit__(self, *_):
        os.close(self.fd)


def test_random_writes_read_back_as_on_a_local_disk(mnt, tmp_path):
    seed = 20240607
    rng = random.Random(seed)
    ours, theirs = mnt.path / "f", tmp_path / "f"
    with Fd(ours, os.O_RDWR | os.O_CREAT) as a, Fd(theirs, os.O_RDWR | os.O_CREAT) as b:
        for _ in range(400):
            offset, length = rng.randrange(3 * MIB), rng.choice([1, 7, 4096, 65536, 300001])
            what = rng.random()
            if what < 0.6:
                data = rng.randbytes(length)
                assert os.pwrite(a, data, offset) == os.pwrite(b, data, offset)
            elif what < 0.8:
                assert os.pread(a, length, offset) == os.pread(b, length, offset), "seed %d" % seed
            else:
                os.ftruncate(a, offset)
                os.ftruncate(b, offset)
            assert os.fstat(a).st_size == os.fstat(b).st_size
    assert ours.read_bytes() == theirs.read_bytes(), "seed %d" % seed
    mnt.seal()
    mnt.remount()
    assert ours.read_bytes() == theirs.read_bytes(), "seed %d" % seed


def test_truncate_both_ways(mnt):
    f = mnt.path / "f"
    f.write_bytes(b"x" * 10000)
    with Fd(f, os.O_RDWR) as fd:
        os.ftruncate(fd, 100)
        assert os.fstat(fd).st_size == 100
        os.ftruncate(fd, 5000)
        assert os.pread(fd, 9000, 0) == b"x" * 100 + bytes(4900)
    os.truncate(f, 3)
    assert f.read_bytes() == b"xxx"
    os.truncate(f, 0)
    assert f.read_bytes() == b"" and f.stat().st_blocks == 0


def test_rewrite_by_o_trunc(mnt):
    f = mnt.path / "f"
    for size in (100000, 10, 0, 5, 200000):
        f.write_bytes(bytes([size % 251]) * size)
        assert f.stat().st_size == size
        assert f.read_bytes() == bytes([size % 251]) * size


def test_append_by_two_writers(mnt):
    f = mnt.path / "f"
    with Fd(f, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as a, Fd(f, os.O_WRONLY | os.O_APPEND) as b:
        for i in range(200):
            os.write(a if i % 2 else b, b"%4d\n" % i)
        os.lseek(a, 0, os.SEEK_SET)
        os.write(a, b"last\n")
        assert os.fstat(b).st_size == 201 * 5
    lines = f.read_text().splitlines()
    assert lines == ["%4d" % i for i in range(200)] + ["last"]


def test_appends_of_processes_do_not_overwrite_each_other(mnt):
    f = mnt.path / "f"
    f.touch()
    code = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for i in range(300):
    os.write(fd, (sys.argv[2] * 20 + "\\n").encode())
"""
    writers = [python(code, f, letter) for letter in "abcd"]
    assert [w.wait() for w in writers] == [0] * 4
    lines = f.read_text().splitlines()
    assert sorted(lines) == sorted(letter * 20 for letter in "abcd" for _ in range(300))


def test_o_direct(mnt):
    f = mnt.path / "f"
    page = mmap.mmap(-1, 64 << 10)
    page.write(os.urandom(64 << 10))
    with Fd(f, os.O_RDWR | os.O_CREAT | os.O_DIRECT) as fd:
        for block in range(8):
            assert os.pwrite(fd, page, block * len(page)) == len(page)
        back = mmap.mmap(-1, 64 << 10)
        assert os.preadv(fd, [back], 3 * len(page)) == len(page)
        assert back[:] == page[:]
        assert os.fstat(fd).st_size == 8 * len(page)
    assert f.read_bytes() == page[:] * 8
    with Fd(f, os.O_WRONLY | os.O_DIRECT | os.O_APPEND) as fd:
        assert os.write(fd, page) == len(page)
    assert f.read_bytes() == page[:] * 9


def test_direct_and_cached_opens_agree(mnt):
    f = mnt.path / "f"
    f.write_bytes(bytes(1 << 16))
    page = mmap.mmap(-1, 4096)
    page.write(b"d" * 4096)
    with Fd(f, os.O_RDWR) as cached, Fd(f, os.O_RDWR | os.O_DIRECT) as direct:
        assert os.pread(cached, 4096, 0) == bytes(4096)
        os.pwrite(direct, page, 0)
        assert os.pread(cached, 4096, 0) == b"d" * 4096
        os.pwrite(cached, b"c" * 4096, 4096)
        assert os.preadv(direct, [page], 4096) == 4096 and page[:] == b"c" * 4096


def test_sparse_files(mnt):
    f = mnt.path / "f"
    with Fd(f, os.O_RDWR | os.O_CREAT) as fd:
        os.pwrite(fd, b"end", 1 << 30)
        os.pwrite(fd, b"x" * 4096, 1 << 20)
        assert os.fstat(fd).st_size == (1 << 30) + 3
        assert os.lseek(fd, 0, SEEK_DATA) == 1 << 20
        assert os.lseek(fd, 1 << 20, SEEK_HOLE) == (1 << 20) + 4096
        assert os.lseek(fd, 2 << 20, SEEK_DATA) == 1 << 30
        with pytest.raises(OSError) as error:
            os.lseek(fd, (1 << 30) + 3, SEEK_DATA)
        assert error.value.errno == errno.ENXIO
    assert f.stat().st_blocks * 512 < 4 * MIB
    with Fd(f, os.O_RDONLY) as fd:
        assert os.pread(fd, 10, 12345) == bytes(10)
        assert os.pread(fd, 10, 1 << 30) == b"end"


def test_closed_sparse_files_stay_sparse_in_du(mnt):
    """Live, in an epoch, after a mount; with an empty cache, and fetched from the remote."""
    def du(path):
        return path.stat().st_blocks * 512

    f, dense, small = (mnt.path / name for name in ("sparse", "dense", "small"))
    with Fd(f, os.O_RDWR | os.O_CREAT) as fd:
        os.ftruncate(fd, 64 * MIB)
        os.pwrite(fd, os.urandom(MIB), 32 * MIB)
    dense.write_bytes(os.urandom(3 * MIB))
    small.write_text("x")
    number = mnt.seal()
    mnt.wait_durable()

    def check():
        for top in (mnt.path, mnt.epoch(number)):
            assert MIB <= du(top / "sparse") < 2 * MIB
            assert 3 * MIB <= du(top / "dense") < 4 * MIB
            assert du(top / "small") == 4096
        run("cp", "-a", mnt.epoch(number) / "sparse", mnt.base / "copy")
        assert du(mnt.base / "copy") < 2 * MIB
        os.unlink(mnt.base / "copy")

    check()
    mnt.remount()
    check()
    mnt.remount(empty_cache=True)
    check()
    for name in ("sparse", "dense", "small"):
        with open(mnt.path / name, "rb") as whole:
            while whole.read(MIB):
                pass
    mnt.remount()
    check()


def du(path):
    return int(run("du", "-sB1", path).stdout.split()[0])


def test_a_sparse_tebibyte_of_another_machine(mnt):
    """Its blocks are told before anything of it was read, and its holes are known to whoever copies it."""
    f, empty = mnt.path / "f", mnt.path / "hole"
    with Fd(f, os.O_RDWR | os.O_CREAT) as fd:
        os.ftruncate(fd, 1 << 40)
        os.pwrite(fd, b"x" * MIB, 1 << 39)
    with open(empty, "wb") as out:
        out.truncate(1 << 30)
    number = mnt.seal()
    mnt.wait_durable()
    mnt.remount(empty_cache=True)
    for top in (mnt.path, mnt.epoch(number)):
        assert du(top / "hole") == 0
        assert MIB <= du(top / "f") < 2 * MIB and (top / "f").stat().st_size == 1 << 40
        with Fd(top / "f", os.O_RDONLY) as fd:
            assert os.lseek(fd, 0, SEEK_HOLE) == 0
            start = os.lseek(fd, 0, SEEK_DATA)
            assert (1 << 39) - MIB < start <= 1 << 39
            end = os.lseek(fd, start, SEEK_HOLE)
            assert end == os.lseek(fd, end, SEEK_HOLE) and (1 << 39) + MIB <= end < (1 << 39) + 2 * MIB
            assert os.lseek(fd, (1 << 39) + 5, SEEK_DATA) == (1 << 39) + 5
            with pytest.raises(OSError) as error:
                os.lseek(fd, end, SEEK_DATA)
            assert error.value.errno == errno.ENXIO
    names = ["f", "hole"]
    run("tar", "-cSf", mnt.base / "tar", "-C", mnt.epoch(number), *names)
    run("tar", "-xSf", mnt.base / "tar", "-C", mnt.base)
    run("cp", "--sparse=auto", mnt.path / "f", mnt.base / "copy")
    for path, size in ((mnt.base / "f", 1 << 40), (mnt.base / "copy", 1 << 40), (mnt.base / "hole", 1 << 30)):
        assert path.stat().st_size == size and path.stat().st_blocks * 512 < 2 * MIB
    for name in ("f", "copy"):
        with Fd(mnt.base / name, os.O_RDONLY) as fd:
            assert os.pread(fd, MIB + 2, (1 << 39) - 1) == b"\0" + b"x" * MIB + b"\0"
    # What this machine has never read keeps its blocks in what it seals.
    with open(mnt.path / "other", "wb") as out:
        out.write(b"y" * 5000)
    later = mnt.seal()
    mnt.wait_durable()
    assert MIB <= du(mnt.epoch(later) / "f") < 2 * MIB
    mnt.remount(empty_cache=True)
    assert MIB <= du(mnt.epoch(later) / "f") < 2 * MIB and MIB <= du(mnt.path / "f") < 2 * MIB


def test_fallocate(mnt):
    f = mnt.path / "f"
    libc = ctypes.CDLL(None, use_errno=True)
    keep_size, punch_hole, zero_range = 1, 2, 16

    def fallocate(fd, mode, offset, length):
        if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) < 0:
            raise OSError(ctypes.get_errno(), "fallocate")

    with Fd(f, os.O_RDWR | os.O_CREAT) as fd:
        os.posix_fallocate(fd, 0, 1 << 20)
        assert os.fstat(fd).st_size == 1 << 20 and os.fstat(fd).st_blocks * 512 >= 1 << 20
        os.pwrite(fd, b"x" * (1 << 20), 0)
        fallocate(fd, punch_hole | keep_size, 4096, 8192)
        assert os.pread(fd, 16384, 0) == b"x" * 4096 + bytes(8192) + b"x" * 4096
        fallocate(fd, zero_range, 0, 100)
        assert os.pread(fd, 101, 0) == bytes(100) + b"x"
        fallocate(fd, keep_size, 1 << 20, 1 << 20)
        assert os.fstat(fd).st_size == 1 << 20


def test_unlinked_open_file(mnt):
    f = mnt.path / "f"
    with Fd(f, os.O_RDWR | os.O_CREAT) as fd:
        os.write(fd, b"kept")
        os.unlink(f)
        assert not f.exists() and os.listdir(mnt.path) == []
        assert os.fstat(fd).st_nlink == 0
        os.pwrite(fd, b" still", 4)
        assert os.pread(fd, 100, 0) == b"kept still"
        os.ftruncate(fd, 2)
        os.fchmod(fd, 0o600)
        assert os.fstat(fd).st_size == 2 and os.fstat(fd).st_mode & 0o777 == 0o600
        f.write_text("another")
        assert os.pread(fd, 100, 0) == b"ke"
    assert f.read_text() == "another"


def test_file_replaced_by_rename_while_open(mnt):
    f, tmp = mnt.path / "f", mnt.path / "t"
    f.write_text("old")
    with Fd(f, os.O_RDONLY) as fd:
        tmp.write_text("new content")
        os.rename(tmp, f)
        assert os.pread(fd, 100, 0) == b"old"
        assert os.fstat(fd).st_nlink == 0
    assert f.read_text() == "new content"


def test_shared_mapping(mnt):
    f = mnt.path / "f"
    f.write_bytes(bytes(MIB))
    with Fd(f, os.O_RDWR) as fd, Fd(f, os.O_RDONLY) as reader:
        with mmap.mmap(fd, MIB) as m:
            m[5000:5005] = b"hello"
            assert os.pread(reader, 5, 5000) == b"hello"
            os.pwrite(fd, b"world", 6000)
            assert m[6000:6005] == b"world"
            m.flush()
    assert f.read_bytes()[5000:5005] == b"hello"
    mnt.remount()
    assert f.read_bytes()[5000:5005] == b"hello"


def test_shared_mapping_between_processes(mnt):
    f = mnt.path / "f"
    f.write_bytes(bytes(4096))
    code = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 4096)
while m[0] == 0:
    pass
m[1] = m[0] + 1
"""
    with Fd(f, os.O_RDWR) as fd, mmap.mmap(fd, 4096) as m:
        other = python(code, f)
        m[0] = 7
        assert other.wait() == 0
        assert m[1] == 8


def test_private_mapping(mnt):
    f = mnt.path / "f"
    f.write_bytes(b"a" * 10000)
    with Fd(f, os.O_RDONLY) as fd:
        with mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as m:
            m[0:3] = b"own"
            assert m[0:5] == b"ownaa"
    assert f.read_bytes() == b"a" * 10000


def test_sendfile_splice_and_copy_file_range(mnt, tmp_path):
    data = os.urandom(3 * MIB + 17)
    source = tmp_path / "source"
    source.write_bytes(data)
    with Fd(source, os.O_RDONLY) as a, Fd(mnt.path / "f", os.O_RDWR | os.O_CREAT) as b:
        sent = 0
        while sent < len(data):
            sent += os.sendfile(b, a, None, len(data) - sent)
        assert os.pread(b, len(data) + 1, 0) == data
    with Fd(mnt.path / "f", os.O_RDONLY) as a, Fd(mnt.path / "g", os.O_RDWR | os.O_CREAT) as b:
        done = 0
        while done < len(data):
            done += os.copy_file_range(a, b, len(data) - done)
        assert os.copy_file_range(a, b, 100) == 0
    assert (mnt.path / "g").read_bytes() == data
    r, w = os.pipe()
    try:
        with Fd(mnt.path / "g", os.O_RDONLY) as a, Fd(mnt.path / "h", os.O_WRONLY | os.O_CREAT) as b:
            for _ in range(16):
                n = os.splice(a, w, 65536) if hasattr(os, "splice") else 0
                if n:
                    assert os.splice(r, b, n) == n
    finally:
        os.close(r)
        os.close(w)
    if hasattr(os, "splice"):
        assert (mnt.path / "h").read_bytes() == data[:MIB]
    # Out of an epoch into the live tree.
    number = mnt.seal()
    with Fd(mnt.epoch(number) / "f", os.O_RDONLY) as a, Fd(mnt.path / "f2", os.O_WRONLY | os.O_CREAT) as b:
        done = 0
        while done < len(data):
            done += os.copy_file_range(a, b, len(data) - done)
    assert (mnt.path / "f2").read_bytes() == data


def test_fsync_of_files_and_directories(mnt):
    (mnt.path / "d").mkdir()
    with Fd(mnt.path / "d" / "f", os.O_WRONLY | os.O_CREAT) as fd:
        os.write(fd, b"x" * 100)
        os.fsync(fd)
        os.fdatasync(fd)
    for folder in (mnt.path, mnt.path / "d"):
        with Fd(folder, os.O_RDONLY) as fd:
            os.fsync(fd)
    run("sync", mnt.path / "d" / "f")


def test_flock_between_processes(mnt):
    f = mnt.path / "lock"
    f.touch()
    code = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_TRUNC)
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("got")
except BlockingIOError:
    print("busy")
"""

    def other():
        return python(code, f).communicate()[0].strip()

    with Fd(f, os.O_RDWR | os.O_TRUNC) as fd:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert other() == "busy"
        fcntl.flock(fd, fcntl.LOCK_UN)
        assert other() == "got"


def test_fcntl_locks_between_processes(mnt):
    f = mnt.path / "lock"
    f.write_bytes(bytes(100))
    code = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, int(sys.argv[2]))
    print("got")
except OSError:
    print("busy")
"""

    def other(start):
        return python(code, f, str(start)).communicate()[0].strip()

    with Fd(f, os.O_RDWR) as fd:
        fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)
        assert other(0) == "busy" and other(5) == "busy" and other(10) == "got"


def test_two_processes_open_a_lock_file_with_o_trunc(mnt):
    """The lock file is empty, so that O_TRUNC makes no new version, and both lock one node."""
    f = mnt.path / "LOCK"
    f.touch()
    mnt.seal()
    code = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_TRUNC | os.O_CREAT)
fcntl.lockf(fd, fcntl.LOCK_EX)
print("got", flush=True)
sys.stdin.read()
"""
    first = python(code, f)
    assert first.stdout.readline() == "got\n"
    second = python(code.replace("LOCK_EX)", "LOCK_EX | fcntl.LOCK_NB)"), f)
    assert second.wait() != 0
    first.stdin.close()
    assert first.wait() == 0
    third = python(code, f)
    assert third.communicate("")[0] == "got\n" and third.returncode == 0


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY])
def test_access_mode_is_kept(mnt, flags):
    f = mnt.path / "f"
    f.write_bytes(b"x")
    with Fd(f, flags) as fd, pytest.raises(OSError) as error:
        if flags == os.O_RDONLY:
            os.write(fd, b"y")
        else:
            os.read(fd, 1)
    assert error.value.errno == errno.EBADF


def test_statfs_is_true(mnt):
    ours, below = os.statvfs(mnt.path), os.statvfs(mnt.cache)
    assert ours.f_blocks * ours.f_frsize <= below.f_blocks * below.f_frsize
    assert 0 < ours.f_bavail * ours.f_frsize <= below.f_bavail * below.f_frsize + 64 * MIB
    assert ours.f_namemax == 255


def test_special_files(mnt):
    import socket
    import stat
    import threading

    os.mkfifo(mnt.path / "fifo", 0o640)
    got = []
    reader = threading.Thread(target=lambda: got.append((mnt.path / "fifo").read_text()))
    reader.start()
    (mnt.path / "fifo").write_text("through")
    reader.join()
    assert got == ["through"]
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(os.fspath(mnt.path / "sock"))
    mnt.remount()
    assert stat.S_ISFIFO(os.lstat(mnt.path / "fifo").st_mode)
    assert stat.S_ISSOCK(os.lstat(mnt.path / "sock").st_mode)


def test_execute_a_program_from_the_mount(mnt):
    run("cp", "/bin/true", mnt.path / "program")
    run(mnt.path / "program")
    number = mnt.seal()
    run(mnt.epoch(number) / "program")


def test_file_size_limit(mnt):
    code = """
import os, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print(os.write(fd, b"x" * 2000))
try:
    os.write(fd, b"x")
except OSError as e:
    print(e.errno)
"""
    out = python(code, mnt.path / "f").communicate()[0].split()
    assert out == ["1000", str(errno.EFBIG)]
    assert (mnt.path / "f").stat().st_size == 1000


SIGNALLED = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ftruncate.argtypes = [ctypes.c_int, ctypes.c_long]
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
for path in sys.argv[2:]:
    fd = os.open(path, os.O_RDWR)
    if libc.ftruncate(fd, int(sys.argv[1])):
        print(os.strerror(ctypes.get_errno()))
    os.close(fd)
"""


@pytest.mark.options(settle="1h")
def test_a_call_that_takes_a_moment_is_not_interrupted(mnt):
    """No local disk answers EINTR: programs in C do not call again."""
    paths = [mnt.path / ("f%d" % i) for i in range(4)]
    for path in paths:
        path.write_bytes(bytes(range(256)) * (24 * MIB // 256))
    assert python(SIGNALLED, str(24 * MIB - 1), *paths).communicate(timeout=60)[0] == ""
    assert {path.stat().st_size for path in paths} == {24 * MIB - 1}
