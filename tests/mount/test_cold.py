# SPDX-License-Identifier: Apache-2.0
"""A mount with an empty cache: all is there at once, bytes come as they are read, damage is told."""

import contextlib
import errno
import hashlib
import mmap
import os
import pathlib
import re
import shutil
import signal
import stat
import time

import pytest

from conftest import MountError, python, run, wait_until

MIB = 1 << 20
DAMAGED = 6


def folder_bytes(path):
    """What the files below really take."""
    return sum(os.lstat(os.path.join(top, name)).st_blocks * 512 for top, _, names in os.walk(path) for name in names)


def cached(volume):
    return sum(folder_bytes(path) for path in volume.cache.glob("*/objects"))


def bytes_read(volume):
    """All that the daemon has read so far, from wherever."""
    with open("/proc/%d/io" % volume.pid, encoding="ascii") as f:
        return int(re.search(r"^rchar: (\d+)", f.read(), re.M).group(1))


def packs(volume):
    return sorted(p for p in (volume.remote / "packs").rglob("*") if p.is_file())


def digest(path):
    done = hashlib.sha256()
    with open(path, "rb", buffering=0) as f:
        while True:
            part = f.read(MIB)
            if not part:
                return done.hexdigest()
            done.update(part)


@contextlib.contextmanager
def away(path):
    """What lies there is somewhere else for a while."""
    aside = path.with_name(path.name + ".away")
    os.rename(path, aside)
    try:
        yield
    finally:
        os.rename(aside, path)


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


READER = """
import mmap, os, signal, sys
class Stop(Exception): pass
def stop(*_): raise Stop
signal.signal(signal.SIGUSR1, stop)
signal.signal(signal.SIGCHLD, lambda *_: None)
signal.signal(signal.SIGPROF, lambda *_: None)
fd = os.open(sys.argv[1], os.O_RDONLY | int(sys.argv[2]))
page = mmap.mmap(-1, 4096)
print(fd, flush=True)
try:
    os.preadv(fd, [page], 0)
    print("read")
except Stop:
    print("interrupted")
"""


@pytest.mark.parametrize("flags,number,code,said", [
    (0, signal.SIGTERM, -signal.SIGTERM, ""),
    (0, signal.SIGKILL, -signal.SIGKILL, ""),
    (os.O_DIRECT, signal.SIGUSR1, 0, "interrupted\n"),
])
def test_a_signal_ends_a_read_that_waits_for_the_remote(volume, tmp_path, flags, number, code, said):
    """A read through the page cache is left, as on any file system, for a signal that ends the process only."""
    faults = tmp_path / "faults"
    volume.url = "fault+file://%s?control=%s" % (volume.remote, faults)
    volume.mount(settle="1h")
    (volume.path / "model").write_bytes(os.urandom(2 * MIB))
    volume.seal()
    volume.remount(empty_cache=True)
    faults.write_text("get.delay=1h&only=packs/")
    reader = python(READER, volume.path / "model", str(int(flags)))
    fd = int(reader.stdout.readline())

    def waits():
        """In a system call on that descriptor."""
        with open("/proc/%d/syscall" % reader.pid, encoding="ascii") as f:
            words = f.read().split()
        return len(words) > 2 and int(words[1], 16) == fd

    wait_until(waits, "the reader to read")
    if flags:
        # What happens beside it ends no wait.
        for other in (signal.SIGCHLD, signal.SIGPROF):
            reader.send_signal(other)
        time.sleep(1.5)
        assert waits()
    reader.send_signal(number)
    assert reader.communicate(timeout=60)[0] == said
    assert reader.returncode == code
    # The mount serves others, and ends although a fetch is under way.
    assert os.listdir(volume.path) == ["model"]
    volume.unmount()


STOPPED = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.pread.restype = ctypes.c_long
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
print(fd, flush=True)
print(libc.pread(fd, (ctypes.c_char * 4096).from_buffer(page), ctypes.c_size_t(4096), ctypes.c_long(0)), ctypes.get_errno())
"""


def test_a_stop_does_not_interrupt_a_read_that_waits_for_the_remote(volume, tmp_path):
    """The kernel says that the request was interrupted, but nothing that the process has to know of came."""
    faults = tmp_path / "faults"
    volume.url = "fault+file://%s?control=%s" % (volume.remote, faults)
    volume.mount(settle="1h")
    (volume.path / "model").write_bytes(os.urandom(2 * MIB))
    volume.seal()
    volume.remount(empty_cache=True)
    faults.write_text("get.delay=3s&only=packs/")
    reader = python(STOPPED, volume.path / "model")
    fd = int(reader.stdout.readline())

    def field(name, at):
        with open("/proc/%d/%s" % (reader.pid, name), encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[at:]

    wait_until(lambda: [int(word, 16) for word in field("syscall", 1)[:1]] == [fd], "the reader to read")
    reader.send_signal(signal.SIGSTOP)
    wait_until(lambda: field("stat", 0)[0] == "T", "the reader to stop")
    reader.send_signal(signal.SIGCONT)
    assert reader.communicate(timeout=60)[0] == "4096 0\n"


CHANGER = """
import os, sys
how, path = sys.argv[1:]
fd = os.open(path, os.O_RDWR) if how in ("ftruncate", "write", "fallocate") else -1
print("ready", flush=True)
if how == "truncate":
    os.truncate(path, 1 << 20)
elif how == "ftruncate":
    os.ftruncate(fd, 1 << 20)
elif how == "write":
    os.pwrite(fd, b"x", 0)
else:
    os.posix_fallocate(fd, 0, 4096)
"""


@pytest.mark.parametrize("passthrough", ["off"])
@pytest.mark.parametrize("how", ["truncate", "ftruncate", "write", "fallocate"])
def test_a_signal_ends_a_change_that_waits_for_the_remote(volume, tmp_path, how):
    """What a change of cold content keeps is fetched first."""
    faults = tmp_path / "faults"
    volume.url = "fault+file://%s?control=%s" % (volume.remote, faults)
    volume.mount(settle="1h")
    data = os.urandom(2 * MIB)
    (volume.path / "model").write_bytes(data)
    volume.seal()
    volume.remount(empty_cache=True)
    faults.write_text("get.delay=1h&only=packs/")
    changer = python(CHANGER, how, volume.path / "model")
    assert changer.stdout.readline() == "ready\n"
    where = pathlib.Path("/proc/%d/wchan" % changer.pid)
    wait_until(lambda: where.read_text().startswith(("fuse_", "request_wait_answer", "__fuse_")), "a change that waits")
    changer.send_signal(signal.SIGTERM)
    changer.communicate(timeout=60)
    assert changer.returncode == -signal.SIGTERM
    faults.unlink()
    assert (volume.path / "model").stat().st_size == len(data)
    volume.unmount()


@pytest.mark.parametrize("passthrough", ["off"])
def test_a_cold_mount_of_an_unreachable_remote_says_so(volume, tmp_path):
    faults = tmp_path / "faults"
    volume.url = "fault+file://%s?control=%s" % (volume.remote, faults)
    volume.mount(settle="1h", patience="100ms")
    data = os.urandom(2 * MIB)
    (volume.path / "model").write_bytes(data)
    volume.seal()
    volume.remount(empty_cache=True, patience="100ms")
    faults.write_text("get.down=1&only=packs/")
    fd = os.open(volume.path / "model", os.O_RDONLY | os.O_DIRECT)  # one try only
    with pytest.raises(OSError) as failure:
        os.preadv(fd, [mmap.mmap(-1, 4096)], 0)
    os.close(fd)
    assert failure.value.errno in (errno.EHOSTUNREACH, errno.ETIMEDOUT)
    os.unlink(faults)
    assert (volume.path / "model").read_bytes() == data


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


# ---- damage


def flip(path, other):
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        byte = f.read(1)[0]
        f.seek(-1, 1)
        f.write(bytes([byte ^ 4]))


DAMAGE = {
    "a-bit": flip,
    "zeros": lambda path, other: path.write_bytes(b"\0" * os.path.getsize(path)),
    "cut-off": lambda path, other: os.truncate(path, os.path.getsize(path) // 2),
    "empty": lambda path, other: os.truncate(path, 0),
    "missing": lambda path, other: os.unlink(path),
    "swapped": lambda path, other: shutil.copyfile(other, path),
}


def read_pages(path, size):
    """What each page gives: its bytes, or None for EIO; anything else fails."""
    pages = []
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for offset in range(0, size, 4096):
            try:
                pages.append(os.pread(fd, 4096, offset))
            except OSError as error:
                assert error.errno == errno.EIO
                pages.append(None)
    finally:
        os.close(fd)
    return pages


def told(volume, *words):
    """Whether a line of the log has all these words."""
    lines = volume.log.read_text(errors="replace").splitlines()
    return any(all(word in line for word in words) for line in lines)


# Each way of reading meets some of them: what differs begins where all is right and whole.
@pytest.mark.parametrize("kind,passthrough", [
    ("a-bit", "on"), ("a-bit", "off"), ("zeros", "on"), ("cut-off", "off"), ("empty", "on"), ("missing", "off"), ("swapped", "on"),
])
def test_a_damaged_pack_hits_what_is_in_it_and_says_so(mnt, kind):
    victim, other = os.urandom(3 * MIB), os.urandom(MIB)
    (mnt.path / "dir").mkdir()
    (mnt.path / "dir" / "victim").write_bytes(victim)
    first = mnt.seal()
    mnt.wait_durable()
    old = packs(mnt)
    (mnt.path / "other").write_bytes(other)
    second = mnt.seal()
    mnt.wait_durable()
    new = [p for p in packs(mnt) if p not in old]
    assert len(old) == 1 and len(new) == 1
    good = old[0].read_bytes()
    mnt.remount(empty_cache=True)
    run("ls", "-lR", mnt.epoch(first))
    DAMAGE[kind](old[0], new[0])

    pages = read_pages(mnt.path / "dir" / "victim", len(victim))
    right = [victim[i:i + 4096] for i in range(0, len(victim), 4096)]
    assert None in pages
    assert all(page in (None, whole) for page, whole in zip(pages, right))
    if kind == "a-bit":
        assert sum(page is not None for page in pages) > len(pages) // 4
    assert (mnt.path / "other").read_bytes() == other
    assert told(mnt, "epoch %d: dir/victim: " % second, old[0].name)
    with pytest.raises(OSError) as failure:
        digest(mnt.epoch(first) / "dir" / "victim")
    assert failure.value.errno == errno.EIO
    assert told(mnt, "epoch %d: dir/victim: " % first, old[0].name)
    assert not told(mnt, "other: ")

    old[0].parent.mkdir(exist_ok=True)
    old[0].write_bytes(good)
    assert (mnt.path / "dir" / "victim").read_bytes() == victim
    assert (mnt.epoch(first) / "dir" / "victim").read_bytes() == victim


def test_a_new_epoch_does_not_build_on_a_missing_pack(mnt):
    """What the remote lost is stored again with the next epoch that has it, and old ones are whole again."""
    data = os.urandom(3 * MIB)
    (mnt.path / "model").write_bytes(data)
    first = mnt.seal()
    mnt.wait_durable()
    lost = packs(mnt)
    run("ls", "-lR", mnt.epoch(first))
    mnt.unmount()
    for pack in lost:
        pack.unlink()
    mnt.mount()
    (mnt.path / "again").write_bytes(data)
    mnt.seal()
    mnt.remount(empty_cache=True)
    assert (mnt.path / "again").read_bytes() == data
    assert (mnt.path / "model").read_bytes() == data


def test_missing_index_objects_are_damage_and_can_be_put_back(mnt):
    data = os.urandom(2 * MIB)
    (mnt.path / "model").write_bytes(data)
    mnt.seal()
    mnt.wait_durable()
    mnt.unmount()
    mnt.empty_cache()
    with away(mnt.remote / "index"):
        mnt.mount()
        assert os.listdir(mnt.path) == ["model"]
        with pytest.raises(OSError) as failure:
            (mnt.path / "model").read_bytes()
        assert failure.value.errno == errno.EIO
    assert (mnt.path / "model").read_bytes() == data


def test_the_tree_of_an_old_epoch_is_damaged(mnt):
    (mnt.path / "old").write_bytes(os.urandom(100000))
    first = mnt.seal()
    mnt.wait_durable()
    hit = packs(mnt)
    (mnt.path / "new").write_bytes(os.urandom(100000))
    second = mnt.seal()
    mnt.wait_durable()
    mnt.unmount()
    mnt.empty_cache()
    good = hit[0].read_bytes()
    hit[0].unlink()
    mnt.mount()
    assert mnt.epochs() == [first, second]
    with pytest.raises(OSError) as failure:
        os.listdir(mnt.epoch(first))
    assert failure.value.errno == errno.EIO
    assert sorted(os.listdir(mnt.epoch(second))) == ["new", "old"]
    hit[0].write_bytes(good)
    assert os.listdir(mnt.epoch(first)) == ["old"]


def test_the_newest_tree_is_damaged(mnt):
    """There is no live tree to show: the mount says what is wrong, and nothing is written over it."""
    (mnt.path / "old").write_bytes(os.urandom(100000))
    first = mnt.seal()
    mnt.wait_durable()
    old = packs(mnt)
    (mnt.path / "new").write_bytes(os.urandom(100000))
    second = mnt.seal()
    mnt.wait_durable()
    hit = [p for p in packs(mnt) if p not in old]
    mnt.unmount()
    mnt.empty_cache()
    good = hit[0].read_bytes()
    hit[0].unlink()
    for _ in range(2):
        with pytest.raises(MountError) as failure:
            mnt.mount()
        assert failure.value.code == DAMAGED
        assert "the tree of epoch %d, the newest, is damaged or missing" % second in failure.value.output
    mnt.mount(ro=True, epoch=first)
    assert os.listdir(mnt.path) == ["old"]
    mnt.unmount()
    hit[0].write_bytes(good)
    mnt.mount()
    assert sorted(os.listdir(mnt.path)) == ["new", "old"]
