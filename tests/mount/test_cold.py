# SPDX-License-Identifier: Apache-2.0
"""A mount with an empty cache: all is there at once, bytes come as they are read, and changes are those of a disk."""

import contextlib
import errno
import hashlib
import os
import shutil
import stat

import pytest

from conftest import python, run
from stored_data import MIB, away, bytes_read, cached, digest


def describe(top):
    """Everything that is to come back, by path: type and mode, owner, size, time, links, target, xattrs, content."""
    entries, first = {}, {}
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name != ".epochs"]
        for path in [folder] + [os.path.join(folder, n) for n in names + folders]:
            st = os.lstat(path)
            kind = stat.S_IFMT(st.st_mode)
            relative = os.path.relpath(path, top)
            same = first.setdefault(st.st_ino, relative)
            entries[relative] = (
                oct(st.st_mode), st.st_uid, st.st_gid, None if kind == stat.S_IFDIR else st.st_size, st.st_mtime_ns,
                st.st_nlink, same, os.readlink(path) if kind == stat.S_IFLNK else None,
                {} if kind == stat.S_IFLNK else {
                    n: os.getxattr(path, n) for n in os.listxattr(path) if not n.startswith("user.epochfs")},
                digest(path) if kind == stat.S_IFREG else None)
    return entries


def make_all_kinds(top):
    """A tree with everything that a tree keeps."""
    (top / "empty-dir").mkdir(mode=0o700)
    (top / "a" / "deep" / "er").mkdir(parents=True)
    (top / "a" / "weights.bin").write_bytes(os.urandom(3 * MIB))
    (top / "a" / "deep" / "er" / "config.json").write_text("{}" * 100)
    (top / "a" / "nothing").touch()
    with open(top / "sparse", "wb") as f:
        f.truncate(8 * MIB)
        f.seek(5 * MIB)
        f.write(os.urandom(MIB))
    os.link(top / "a" / "weights.bin", top / "a" / "deep" / "hard link")
    os.symlink("a/weights.bin", top / "soft link")
    os.symlink("nowhere", top / "dangling")
    os.mkfifo(top / "fifo", 0o622)
    os.setxattr(top / "a" / "weights.bin", "user.comment", b"\0binary\xff")
    os.setxattr(top / "a", "user.of-a-directory", b"x" * 1000)
    os.chmod(top / "a" / "nothing", 0o4755)
    os.chmod(top / "a" / "deep" / "er" / "config.json", 0o400)
    if os.geteuid() == 0:
        os.chown(top / "sparse", 1234, 4321)
        os.lchown(top / "dangling", 99, 98)
    for i, (folder, folders, names) in enumerate(os.walk(top, topdown=False)):
        for k, name in enumerate(names + folders):
            ns = (1_000_000_000 + 1000 * i + k) * 10**9 + 123456789 + k
            if name != ".epochs":
                os.utime(os.path.join(folder, name), ns=(ns, ns), follow_symlinks=False)
    os.utime(top, ns=(7 * 10**9 + 7, 7 * 10**9 + 7))


# ---- what is there before anything is read


def test_everything_comes_back_with_its_attributes(mnt):
    make_all_kinds(mnt.path)
    first = mnt.seal()
    before = describe(mnt.path)
    shutil.rmtree(mnt.path / "a")
    (mnt.path / "later").write_bytes(b"later" * 10000)
    os.utime(mnt.path, ns=(8 * 10**9, 8 * 10**9 + 5))
    second = mnt.seal()
    after = describe(mnt.path)
    mnt.remount(empty_cache=True)
    assert mnt.epochs() == [first, second]
    assert describe(mnt.path) == after
    # What lies in an epoch is the same, but for the directory of the epoch itself.
    old = describe(mnt.epoch(first))
    assert {n: old[n] for n in old if n != "."} == {n: before[n] for n in before if n != "."}
    assert os.readlink(mnt.epochs_dir / "current") == "%06d" % second


def test_a_cold_mount_reads_records_and_trees_only(mnt):
    """40 MiB lie in the remote; all names, sizes and times of all epochs cost a few of them."""
    for i in range(8):
        (mnt.path / ("step-%d" % i)).mkdir()
        (mnt.path / ("step-%d" % i) / "model.bin").write_bytes(os.urandom(5 * MIB))
        mnt.seal()
    mnt.remount(empty_cache=True)
    for number in mnt.epochs():
        run("ls", "-lR", mnt.epoch(number))
        assert len(os.listdir(mnt.epoch(number))) == number
    listing = run("ls", "-lR", mnt.path).stdout
    assert listing.count("model.bin") == 8 and listing.count(str(5 * MIB)) == 8
    assert bytes_read(mnt) < 16 * MIB
    assert cached(mnt) == 0


def test_what_was_listed_is_listed_without_the_remote(mnt):
    (mnt.path / "dir").mkdir()
    (mnt.path / "dir" / "file").write_bytes(os.urandom(100000))
    number = mnt.seal()
    mnt.remount(empty_cache=True)
    before = run("ls", "-lR", mnt.path, mnt.epoch(number)).stdout
    with away(mnt.remote / "packs"):
        mnt.remount()
        assert run("ls", "-lR", mnt.path, mnt.epoch(number)).stdout == before


# ---- fetching


def test_a_small_read_fetches_little_and_right(mnt):
    data = os.urandom(48 * MIB)
    (mnt.path / "model").write_bytes(data)
    mnt.seal()
    mnt.remount(empty_cache=True)
    with open(mnt.path / "model", "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for offset in (0, 30 * MIB + 12345, len(data) - 4096):
            assert os.pread(f.fileno(), 4096, offset) == data[offset:offset + 4096]
        assert os.pread(f.fileno(), 4096, len(data) - 100) == data[-100:]
        assert os.pread(f.fileno(), 4096, len(data)) == b""
    assert 0 < cached(mnt) < 16 * MIB
    assert (mnt.path / "model").read_bytes() == data


def test_what_was_read_stays_and_needs_no_remote(mnt):
    """Whole files and parts of files: in this mount, in the next one, and after a kill of the daemon."""
    whole, part = os.urandom(5 * MIB), os.urandom(32 * MIB)
    (mnt.path / "whole").write_bytes(whole)
    (mnt.path / "part").write_bytes(part)
    (mnt.path / "small").write_bytes(b"in the tree")
    number = mnt.seal()

    def read(offset):
        with open(mnt.path / "part", "rb", buffering=0) as f:
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            return os.pread(f.fileno(), 65536, offset)

    def all_is_there():
        assert (mnt.path / "whole").read_bytes() == whole
        assert (mnt.epoch(number) / "whole").read_bytes() == whole
        assert (mnt.path / "small").read_bytes() == b"in the tree"
        assert read(9 * MIB) == part[9 * MIB:9 * MIB + 65536]
        with pytest.raises(OSError) as failure:
            read(25 * MIB)
        assert failure.value.errno == errno.EIO

    mnt.remount(empty_cache=True)
    assert (mnt.path / "whole").read_bytes() == whole
    assert read(9 * MIB) == part[9 * MIB:9 * MIB + 65536]
    with away(mnt.remote / "packs"):
        all_is_there()
        mnt.remount()
        all_is_there()
        fd = os.open(mnt.path / "part", os.O_RDONLY)
        read(9 * MIB)
        mnt.kill()
        with contextlib.suppress(OSError):
            os.close(fd)
        mnt.mount()
        all_is_there()
    assert (mnt.path / "part").read_bytes() == part


def test_many_readers_fetch_once(volume, tmp_path):
    """Sixteen threads in four processes read one cold file in their own order."""
    data = os.urandom(24 * MIB)
    volume.url = "fault+file://%s?get.delay=20ms&only=packs/" % volume.remote
    volume.mount(settle="1h")
    (volume.path / "model").write_bytes(data)
    volume.seal()
    volume.remount(empty_cache=True)
    before = bytes_read(volume)
    code = """
import hashlib, os, random, sys, threading
path, size = sys.argv[1], int(sys.argv[2])
result = [None] * 4
def read(n):
    fd = os.open(path, os.O_RDONLY)
    parts = {}
    offsets = list(range(0, size, 1 << 20))
    random.Random(n).shuffle(offsets)
    for offset in offsets:
        parts[offset] = os.pread(fd, 1 << 20, offset)
    result[n] = hashlib.sha256(b"".join(parts[o] for o in sorted(parts))).hexdigest()
threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(" ".join(map(str, result)))
"""
    readers = [python(code, volume.path / "model", str(len(data))) for _ in range(4)]
    found = {word for reader in readers for word in reader.communicate(timeout=60)[0].split()}
    assert found == {hashlib.sha256(data).hexdigest()}
    # Once from the remote; and what the kernel asks for, from the cache, perhaps once more for each reader.
    assert cached(volume) < 25 * MIB
    assert bytes_read(volume) - before < 3 * len(data)


# ---- changing what is not here


EDITS = {
    "append": lambda path: open(path, "ab").write(b"more"),
    "in-place": lambda path: os.pwrite(os.open(path, os.O_RDWR), b"CHANGED", 5 * MIB + 17),
    "shorter": lambda path: os.truncate(path, 2 * MIB + 3),
    "longer": lambda path: os.truncate(path, 9 * MIB),
    "to-nothing": lambda path: os.truncate(path, 0),
    "replace": lambda path: open(path, "wb").write(b"all new"),
    "rename-over": lambda path: (path.with_name("new").write_bytes(b"other"), os.rename(path.with_name("new"), path)),
    "punch": lambda path: run("fallocate", "-p", "-o", str(MIB), "-l", str(MIB), path),
    "attributes": lambda path: (os.chmod(path, 0o600), os.setxattr(path, "user.x", b"y")),
}


@pytest.mark.parametrize("name", EDITS)
def test_changes_of_cold_files_are_those_of_a_disk(mnt, tmp_path, name):
    data = os.urandom(8 * MIB)
    reference = tmp_path / "model"
    reference.write_bytes(data)
    (mnt.path / "model").write_bytes(data)
    old = mnt.seal()
    mnt.remount(empty_cache=True)
    # Each in a process of its own: what it opened is closed when it has ended.
    for path in (reference, mnt.path / "model"):
        child = os.fork()
        if not child:
            code = 1
            try:
                EDITS[name](path)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
    assert digest(mnt.path / "model") == digest(reference)
    assert os.stat(mnt.path / "model").st_mode == os.stat(reference).st_mode
    new = mnt.seal()
    assert digest(mnt.epoch(old) / "model") == hashlib.sha256(data).hexdigest()
    mnt.remount(empty_cache=True)
    assert digest(mnt.path / "model") == digest(mnt.epoch(new) / "model") == digest(reference)
    assert digest(mnt.epoch(old) / "model") == hashlib.sha256(data).hexdigest()
