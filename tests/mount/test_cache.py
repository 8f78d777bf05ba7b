# SPDX-License-Identifier: Apache-2.0
"""The cache: its limits while it is written and read, what goes first, other caches, damage in it."""

import errno
import json
import mmap
import os
import shutil
import threading

import pytest

from conftest import BIN, LIMIT, run, wait_until
from remote_weather import Weather
from stored_data import MIB, away, cached, digest, flip, packs, read_pages, told
from test_contract_full import fill_the_disk
from test_contract_writing import Writer

PART = 4 * MIB


def part(i):
    """The same bytes each time, different for each i, which nothing compresses."""
    block = bytes((i * 37 + k * 11) % 256 for k in range(256))
    return b"".join(hash_block(block, i, k) for k in range(PART // 4096))


def hash_block(block, i, k):
    head = b"%08d%08d" % (i, k)
    return head + (block * 16)[:4096 - len(head)]


class Peak:
    """The most that something came to while the body of `with` ran."""

    def __init__(self, measure):
        self.measure, self.most, self.over = measure, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.over.is_set():
            self.most = max(self.most, self.measure())
            self.over.wait(0.002)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def used(folder):
    st = os.statvfs(folder)
    return (st.f_blocks - st.f_bfree) * st.f_frsize


@pytest.fixture
def small_disk(volume):
    """The cache lies on a file system of 80 MiB."""
    if os.geteuid():
        pytest.skip("mounting a tmpfs needs root")
    run("mount", "-t", "tmpfs", "-o", "size=80m", "cache", volume.cache)
    yield volume.cache
    volume.clean_up()
    run("umount", "-l", volume.cache)


def is_local(volume, path):
    """Whether all of it can be read without the remote, and is then right."""
    with away(volume.remote / "packs"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            while os.read(fd, MIB):
                pass
            return True
        except OSError as error:
            assert error.errno == errno.EIO
            return False
        finally:
            os.close(fd)


# ---- the limits


@pytest.mark.options(settle="100ms", cache_size="24M")
def test_cache_size_holds_while_writing(mnt):
    with Peak(lambda: cached(mnt)) as peak:
        for i in range(16):
            (mnt.path / ("part%d" % i)).write_bytes(part(i))
        mnt.wait_durable()
    # What is just being written is not counted before it is closed.
    assert PART < peak.most <= 24 * MIB + PART, peak.most / MIB
    wait_until(lambda: cached(mnt) <= 24 * MIB, "the cache to shrink")
    assert mnt.status()["cache"]["bytes"] <= 24 * MIB
    assert all((mnt.path / ("part%d" % i)).read_bytes() == part(i) for i in range(16))


def test_cache_size_holds_while_reading(mnt):
    for i in range(10):
        (mnt.path / ("part%d" % i)).write_bytes(part(i))
    mnt.seal()
    mnt.remount(empty_cache=True, cache_size="12M")
    with Peak(lambda: cached(mnt)) as peak:
        for _ in range(2):
            for i in range(10):
                assert (mnt.path / ("part%d" % i)).read_bytes() == part(i)
    assert PART < peak.most <= 12 * MIB + PART, peak.most / MIB
    assert mnt.status()["cache"]["bytes"] <= 12 * MIB + PART


def test_a_file_larger_than_the_cache_is_read_through_it(mnt):
    data = b"".join(part(i) for i in range(12))
    (mnt.path / "large").write_bytes(data)
    number = mnt.seal()
    mnt.remount(empty_cache=True, cache_size="16M")
    for path in (mnt.path / "large", mnt.epoch(number) / "large"):
        with Peak(lambda: cached(mnt)) as peak:
            with open(path, "rb", buffering=0) as f:
                for offset in range(0, len(data), MIB):
                    assert f.read(MIB) == data[offset:offset + MIB]
        assert 4 * MIB < peak.most <= 32 * MIB, peak.most / MIB
    (mnt.path / "new").write_bytes(b"goes on")
    wait_until(lambda: cached(mnt) <= 16 * MIB, "the cache to shrink")


@pytest.mark.options(settle="100ms", min_free=50)
def test_min_free_holds_while_writing_and_reading(volume, small_disk, request):
    mnt = request.getfixturevalue("mnt")
    with Peak(lambda: used(small_disk)) as peak:
        for i in range(16):
            (mnt.path / ("part%d" % i)).write_bytes(part(i))
        mnt.wait_durable()
        for i in range(16):
            assert (mnt.path / ("part%d" % i)).read_bytes() == part(i)
    assert 20 * MIB < peak.most <= 40 * MIB + 2 * PART, peak.most / MIB
    wait_until(lambda: used(small_disk) <= 40 * MIB, "half of the disk to be free")
    assert mnt.status()["cache"]["free_bytes"] >= 40 * MIB


def test_a_smaller_limit_holds_from_the_next_mount_on(mnt):
    for i in range(6):
        (mnt.path / ("part%d" % i)).write_bytes(part(i))
    mnt.wait_durable()
    assert cached(mnt) >= 6 * PART
    mnt.remount(cache_size="9M")
    wait_until(lambda: cached(mnt) <= 9 * MIB, "the cache to shrink")
    assert all((mnt.path / ("part%d" % i)).read_bytes() == part(i) for i in range(6))


# ---- what goes first


@pytest.mark.options(cache_size="23M")
def test_the_least_recently_used_goes_first(mnt):
    for i in range(4):
        (mnt.path / ("part%d" % i)).write_bytes(part(i))
        mnt.wait_durable()
    for i in (1, 0, 3):
        assert digest(mnt.path / ("part%d" % i))
    (mnt.path / "more").write_bytes(part(7) + part(8))
    mnt.wait_durable()
    wait_until(lambda: cached(mnt) <= 23 * MIB, "room")
    local = [i for i in range(4) if is_local(mnt, mnt.path / ("part%d" % i))]
    assert 2 not in local and 3 in local and local in ([0, 1, 3], [0, 3], [3]), local


def refused(mnt, size):
    """An fallocate that is refused, and evicts nothing for it."""
    before = cached(mnt)
    with open(mnt.path / "new", "wb") as f, pytest.raises(OSError) as failed:
        os.posix_fallocate(f.fileno(), 0, size)
    assert failed.value.errno == errno.ENOSPC
    assert cached(mnt) >= before


@pytest.mark.timeout(60)
@pytest.mark.options(patience="1h")
def test_what_can_never_fit_is_refused_at_once_and_evicts_nothing(small_disk, mnt):
    for i in range(5):
        (mnt.path / ("part%d" % i)).write_bytes(part(i))
    mnt.wait_durable()
    for size in (100 << 40, 81 * MIB, 79 * MIB):  # the last would leave too little free
        refused(mnt, size)
    assert all(is_local(mnt, mnt.path / ("part%d" % i)) for i in range(5))
    with open(mnt.path / "new", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 64 * MIB)
    assert cached(mnt) < 5 * PART + 64 * MIB


@pytest.mark.timeout(60)
@pytest.mark.options(patience="1h", cache_size="24M")
def test_what_can_never_fit_fetches_nothing(mnt):
    """Of a file that only the remote has, where a change begins with what it keeps."""
    for i in range(5):
        (mnt.path / ("part%d" % i)).write_bytes(part(i))
    mnt.remount(empty_cache=True)
    for i in range(1, 5):
        assert digest(mnt.path / ("part%d" % i))
    before = cached(mnt)
    with open(mnt.path / "part0", "r+b") as f, pytest.raises(OSError) as failed:
        os.posix_fallocate(f.fileno(), 0, 100 << 40)
    assert failed.value.errno == errno.ENOSPC
    assert cached(mnt) == before
    assert all(is_local(mnt, mnt.path / ("part%d" % i)) == (i > 0) for i in range(5))


@pytest.mark.timeout(60)
@pytest.mark.options(patience="1h", cache_size="24M")
def test_what_is_larger_than_the_cache_is_refused_at_once_and_evicts_nothing(mnt):
    for i in range(4):
        (mnt.path / ("part%d" % i)).write_bytes(part(i))
    mnt.wait_durable()
    refused(mnt, 25 * MIB)


@pytest.mark.options(full="error")
def test_where_others_fill_the_disk_nothing_is_evicted_in_vain(small_disk, mnt):
    for i in range(5):
        (mnt.path / ("part%d" % i)).write_bytes(part(i))
    mnt.wait_durable()
    with open(small_disk / "of-others", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, 24 * MIB)
    refused(mnt, 64 * MIB)


@pytest.mark.options(cache_size="16M", full="error")
def test_what_only_this_machine_has_stays_while_others_are_read(volume, request):
    """Reading cold files evicts what the remote has, and nothing else."""
    weather = Weather(volume)
    mnt = request.getfixturevalue("mnt")
    for i in range(3):
        (mnt.path / ("durable%d" % i)).write_bytes(part(i))
    mnt.wait_durable()
    weather.turn("put.down=1&only=packs/")
    for i in range(2):
        (mnt.path / ("dirty%d" % i)).write_bytes(part(10 + i))
        mnt.seal()
    with open(mnt.path / "staged", "wb") as f:
        f.write(b"open" * 1000)
        f.flush()
        for _ in range(2):
            for i in range(3):
                assert (mnt.path / ("durable%d" % i)).read_bytes() == part(i)
        assert mnt.status()["cache"]["dirty_bytes"] >= 2 * PART
        with away(mnt.remote):
            for i in range(2):
                assert (mnt.path / ("dirty%d" % i)).read_bytes() == part(10 + i)
    mnt.kill()
    mnt.mount()
    assert (mnt.path / "staged").read_bytes() == b"open" * 1000
    assert all((mnt.path / ("dirty%d" % i)).read_bytes() == part(10 + i) for i in range(2))
    weather.clear()
    mnt.remount(empty_cache=True)
    assert all((mnt.path / ("dirty%d" % i)).read_bytes() == part(10 + i) for i in range(2))


@pytest.mark.options(full="error", min_free=0, settle="1h")
def test_what_a_refused_save_left_gives_way_to_who_reads(small_disk, mnt):
    """The disk is full; the good version is in the remote only."""
    (mnt.path / "model.bin").write_bytes(part(1))
    mnt.seal()
    mnt.wait_durable()
    mnt.unmount()
    for folder in small_disk.iterdir():
        shutil.rmtree(folder)
    mnt.mount()
    writer = Writer(mnt.path / "model.bin", times=3 * MIB)
    writer.end("kill")
    wait_until(mnt.torn, "the torn bytes")
    fill_the_disk(small_disk)
    assert (mnt.path / "model.bin").read_bytes() == part(1)
    assert mnt.torn() == []


@pytest.mark.options(cache_size="9M")
def test_what_is_open_is_read_to_its_end_whatever_comes(mnt):
    for i in range(6):
        (mnt.path / ("part%d" % i)).write_bytes(part(i))
        mnt.wait_durable()
    with open(mnt.path / "part0", "rb", buffering=0) as f:
        right = part(0)
        assert f.read(MIB) == right[:MIB]
        for i in range(1, 6):
            assert (mnt.path / ("part%d" % i)).read_bytes() == part(i)
        assert f.read(MIB) + f.read(MIB) + f.read(MIB) == right[MIB:]
        f.seek(0)
        assert f.read(4096) == right[:4096]


# ---- other caches


def test_two_caches_one_after_the_other(mnt):
    """As a job that comes back to a machine where it ran before."""
    first, second = mnt.cache, mnt.base / "cache2"
    second.mkdir()
    (mnt.path / "a").write_bytes(part(0))
    (mnt.path / "b").write_bytes(part(1))
    (mnt.path / "dir").mkdir()
    assert mnt.seal() == 1
    mnt.wait_durable()
    mnt.unmount()

    mnt.cache = second
    mnt.mount()
    assert cached(mnt) == 0 and (mnt.path / "a").read_bytes() == part(0)
    (mnt.path / "b").write_bytes(part(2))
    os.rename(mnt.path / "a", mnt.path / "dir" / "a")
    (mnt.path / "c").write_text("new")
    assert mnt.seal() == 2
    mnt.wait_durable()
    mnt.unmount()

    mnt.cache = first
    mnt.mount()
    assert mnt.epochs() == [1, 2] and os.readlink(mnt.epochs_dir / "current") == "000002"
    assert sorted(os.listdir(mnt.path)) == ["b", "c", "dir"]
    assert (mnt.path / "b").read_bytes() == part(2) and (mnt.path / "c").read_text() == "new"
    assert (mnt.path / "dir" / "a").read_bytes() == part(0)
    with away(mnt.remote / "packs"):  # what it had it still has
        assert (mnt.epoch(1) / "b").read_bytes() == part(1)
    (mnt.path / "c").write_text("newer")
    assert mnt.seal() == 3
    mnt.wait_durable()
    mnt.unmount()

    mnt.cache = second
    mnt.mount()
    assert (mnt.path / "c").read_text() == "newer" and (mnt.epoch(2) / "c").read_text() == "new"
    assert mnt.epochs() == [1, 2, 3]


# ---- what is damaged in the cache


def objects(volume):
    """The backing files, the largest first."""
    return sorted((p for p in volume.cache.glob("*/objects/*") if p.is_file()), key=lambda p: -p.stat().st_size)


def flip_all(path):
    """A bit in each 64 KiB of what a sparse file holds."""
    size = os.path.getsize(path)
    with open(path, "r+b") as f:
        at = os.lseek(f.fileno(), 0, os.SEEK_DATA)
        end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
        assert 0 < end - at < size
        for offset in range(at, end, 65536):
            f.seek(offset)
            byte = f.read(1)[0]
            f.seek(offset)
            f.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("kind", ["missing", "cut-off", "empty"])
def test_a_cached_file_that_is_not_what_it_was_is_fetched_again(mnt, kind):
    (mnt.path / "f").write_bytes(part(0))
    mnt.wait_durable()
    mnt.unmount()
    path = objects(mnt)[0]
    if kind == "missing":
        path.unlink()
    else:
        os.truncate(path, 0 if kind == "empty" else PART // 2)
    mnt.mount()
    assert (mnt.path / "f").read_bytes() == part(0)


def test_bytes_of_a_partly_fetched_file_are_checked_again(mnt):
    """A bit that flipped in the cache while nobody had it mounted is not given to anybody."""
    data = os.urandom(32 * MIB)
    (mnt.path / "f").write_bytes(data)
    mnt.seal()
    mnt.remount(empty_cache=True)
    with open(mnt.path / "f", "rb", buffering=0) as f:
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        assert os.pread(f.fileno(), 4096, 16 * MIB) == data[16 * MIB:16 * MIB + 4096]
    mnt.unmount()
    flip_all(objects(mnt)[0])
    mnt.mount()
    assert digest(mnt.path / "f") and (mnt.path / "f").read_bytes() == data


def test_damage_in_the_cache_and_in_the_remote_is_eio_and_never_wrong_bytes(mnt):
    data = os.urandom(24 * MIB)
    (mnt.path / "dir").mkdir()
    (mnt.path / "dir" / "f").write_bytes(data)
    (mnt.path / "other").write_bytes(os.urandom(MIB))
    number = mnt.seal()
    mnt.remount(empty_cache=True)
    good = (mnt.path / "other").read_bytes()
    read_pages(mnt.path / "dir" / "f", 4096)
    mnt.unmount()
    flip_all(objects(mnt)[0])
    hit = sorted(packs(mnt), key=os.path.getsize)[-1]
    whole = hit.read_bytes()
    flip(hit, None)
    mnt.mount()
    pages = read_pages(mnt.path / "dir" / "f", len(data))
    assert all(page in (None, data[i * 4096:(i + 1) * 4096]) for i, page in enumerate(pages))
    assert None in pages and any(page is not None for page in pages)
    assert told(mnt, "epoch %d: dir/f: " % number, hit.name)
    assert (mnt.path / "other").read_bytes() == good
    hit.write_bytes(whole)
    assert (mnt.path / "dir" / "f").read_bytes() == data


def test_a_cache_directory_that_is_removed_under_the_mount(mnt):
    """What the remote has comes back; the rest is lost, and that is said."""
    (mnt.path / "durable").write_bytes(b"1" * 5000)
    mnt.wait_durable()
    (mnt.path / "lost").write_bytes(b"2" * 5000)
    mnt.empty_cache()
    for name in ("new", "durable"):
        with pytest.raises(OSError) as error:
            (mnt.path / name).write_bytes(b"3")
        assert error.value.errno == errno.EIO
    done = run(BIN, "commit", mnt.path, check=False)
    assert done.returncode == 1 and "the log of the mount says where" in done.stderr
    assert mnt.log.read_text().count("was removed under the mount") == 1
    run("umount", mnt.path)
    assert mnt.process.wait(timeout=LIMIT) == 1
    mnt.process = None
    mnt.mount()
    assert os.listdir(mnt.path) == ["durable"]
    assert (mnt.path / "durable").read_bytes() == b"1" * 5000


@pytest.mark.rules("2")
def test_a_store_of_a_mapping_that_finds_no_room_is_told(volume):
    """The copy for an edit in place has no room: the store of a mapping has nobody to say so but the close."""
    volume.url = "fault+file://%s?put.delay=60s&only=packs/" % volume.remote
    volume.mount(settle="1h", cache_size="10M", patience="1s")
    path = volume.path / "large"
    path.write_bytes(b"A" * (6 * MIB))
    (volume.path / "other").write_text("1")
    volume.seal()
    (volume.path / "other").write_text("2")
    before = len(volume.log.read_text())
    fd = os.open(path, os.O_RDWR)
    with mmap.mmap(fd, 0) as m:
        m[:4] = b"DATA"
    with pytest.raises(OSError) as refused:
        os.close(fd)
    assert refused.value.errno == errno.ENOSPC
    wait_until(lambda: "large: a write to it was refused" in volume.log.read_text()[before:], "the log to say so")
    number = volume.seal()
    record = json.loads(run(BIN, "show", "--json", volume.path, str(number)).stdout)["epoch"]
    assert not record["complete"] and record["rule"] == "J2" and record["reason"].startswith("a write of ") and "large" in record["reason"]
    with open(volume.epoch(number) / "large", "rb") as f:
        assert f.read(4) == b"AAAA"
    run(BIN, "umount", "--no-drain", volume.path)
    volume.wait_end()


@pytest.mark.options(settle="1h", cache_size="64M", patience="1s")
def test_a_sparse_file_is_edited_whatever_its_size(mnt):
    path = mnt.path / "sparse"
    with open(path, "wb") as f:
        f.write(b"begin")
        f.truncate(1 << 40)
    mnt.seal()
    reader = os.open(path, os.O_RDONLY)  # so that a copy is needed
    with open(path, "r+b") as f:
        f.seek(1 << 39)
        f.write(b"x")
        fd = os.open(path, os.O_RDWR)
        with mmap.mmap(fd, 1 << 20) as m:
            m[:5] = b"BEGIN"
        os.close(fd)
    os.truncate(path, 1 << 39)
    os.close(reader)
    with open(path, "rb") as f:
        assert f.read(5) == b"BEGIN" and os.fstat(f.fileno()).st_size == 1 << 39
