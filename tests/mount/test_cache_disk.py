# SPDX-License-Identifier: Apache-2.0
"""The file system below the cache: out of inodes, read-only, moved away with another directory put in its place."""

import errno
import os
import shutil

import pytest

from conftest import LIMIT, MountError, python, run, wait_until
from kill_session import content
from remote_weather import Weather


class Image:
    """A small ext4 with few inodes in a file, mounted over the cache directory."""

    def __init__(self, volume):
        self.path = volume.cache
        image = volume.base / "image"
        with open(image, "wb") as f:
            f.truncate(48 << 20)
        if shutil.which("mkfs.ext4") is None or run("mkfs.ext4", "-q", "-m", "0", "-N", "400", image, check=False).returncode:
            pytest.skip("mkfs.ext4 is not there")
        if run("mount", "-o", "loop,errors=remount-ro", image, volume.cache, check=False).returncode:
            pytest.skip("no loop devices here")
        self.device = run("findmnt", "-n", "-o", "SOURCE", volume.cache).stdout.strip()

    def break_it(self):
        """As the kernel does when it finds the file system damaged: it is read-only from then on."""
        trigger = "/sys/fs/ext4/%s/trigger_fs_error" % os.path.basename(self.device)
        with open(trigger, "w") as f:
            f.write("test")

    def mend(self, volume):
        """Unmounted, checked, mounted again, as an administrator does it."""
        run("umount", self.path)
        run("fsck.ext4", "-p", "-f", volume.base / "image", check=False)
        run("mount", "-o", "loop", volume.base / "image", self.path)


@pytest.fixture
def image(volume):
    disk = Image(volume)
    yield disk
    volume.clean_up()
    run("umount", "-l", volume.cache)


def fill_with_files(folder, keep=0):
    """Another user of the disk takes its last inodes, but `keep`."""
    made = []
    with pytest.raises(OSError) as error:
        while True:
            made.append(folder / ("ballast%d" % len(made)))
            made[-1].touch()
    assert error.value.errno == errno.ENOSPC
    made.pop()
    for _ in range(keep):
        made.pop().unlink()
    return made


def fill_with_bytes(path):
    """Another user of the disk takes its last bytes: what is not allocated before it is written back makes less of it seem free."""
    with open(path, "wb", buffering=0) as f:
        for step in (1 << 16, 1 << 9):
            try:
                while f.write(bytes(step)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC
            os.fsync(f)


@pytest.mark.options(settle="1h", min_free=0)
@pytest.mark.parametrize("full", ["wait", "error"])
def test_no_inode_is_left(volume, image, full):
    """The bytes would do. Files of which the remote has all give way; else it is ENOSPC, at the open."""
    weather = Weather(volume)
    mnt = volume.mount(full=full, patience="2s")
    (mnt.path / "model").write_bytes(content("model", 1))
    for i in range(20):
        (mnt.path / ("small%d" % i)).write_bytes(content("small", i))
    mnt.wait_durable()
    weather.turn("put.down=1")
    fill_with_files(image.path)
    assert os.statvfs(image.path).f_favail == 0
    # One inode for each that gives way.
    for i in range(10):
        (mnt.path / ("new%d" % i)).write_bytes(content("new", i))
    (mnt.path / "model").write_bytes(content("model", 2))
    done = 10
    with pytest.raises(OSError) as error:
        while True:
            (mnt.path / ("new%d" % done)).write_bytes(content("new", done))
            done += 1
    assert error.value.errno == errno.ENOSPC and done < 100
    # What is there is whole, and what needs no inode goes on.
    assert (mnt.path / "model").read_bytes() == content("model", 2)
    os.rename(mnt.path / "new1", mnt.path / "moved")
    os.unlink(mnt.path / "new2")
    weather.clear()
    # Sealing takes an inode for the tree: the removed file's.
    mnt.wait_durable()
    (mnt.path / "again").write_bytes(content("again", 1))
    files = {"model": content("model", 2), "new0": content("new", 0), "moved": content("new", 1),
             "again": content("again", 1), **{"new%d" % i: content("new", i) for i in range(3, done)},
             **{"small%d" % i: content("small", i) for i in range(20)}}
    mnt.wait_durable()
    assert {p: (mnt.path / p).read_bytes() for p in files} == files
    mnt.remount()
    assert {p: (mnt.path / p).read_bytes() for p in files} == files
    mnt.unmount()
    run("umount", "-l", volume.cache)
    mnt.mount()
    assert {p: (mnt.path / p).read_bytes() for p in files} == files
    mnt.unmount()
    run("mount", "-o", "loop", volume.base / "image", volume.cache)


@pytest.mark.options(settle="1h", min_free=0, patience="1h")
def test_a_writer_waits_for_an_inode(volume, image):
    """full=wait: what was sealed and is uploaded meanwhile gives its inodes. (The upload itself takes one, of those that are kept.)"""
    weather = Weather(volume)
    mnt = volume.mount()
    weather.turn("put.down=1")
    for i in range(5):
        (mnt.path / ("f%d" % i)).write_bytes(content("f", i))
    mnt.seal()
    fill_with_files(image.path, keep=6)
    writer = python("import sys\nopen(sys.argv[1],'wb').write(b'late')", mnt.path / "late")
    where = "/proc/%d/wchan" % writer.pid
    wait_until(lambda: "fuse" in open(where).read() or "request_wait" in open(where).read(), "a writer that waits")
    assert writer.poll() is None
    weather.clear()
    assert writer.wait(timeout=LIMIT) == 0
    writer.stdin.close()
    writer.stdout.close()
    assert (mnt.path / "late").read_bytes() == b"late"
    assert all((mnt.path / ("f%d" % i)).read_bytes() == content("f", i) for i in range(5))


@pytest.mark.options(settle="1h")
def test_the_disk_becomes_read_only(volume, image):
    """Reading goes on; each write, seal and wait is refused; after the repair all that was promised is there."""
    mnt = volume.mount()
    (mnt.path / "durable").write_bytes(content("durable", 1))
    mnt.wait_durable()
    (mnt.path / "closed").write_bytes(content("closed", 1))
    with open(mnt.path / "synced", "wb") as f:
        f.write(content("synced", 1))
        f.flush()
        os.fsync(f.fileno())
    os.sync()
    image.break_it()
    for act in (lambda: (mnt.path / "new").write_bytes(b"1"), lambda: (mnt.path / "durable").write_bytes(b"1"),
                lambda: os.mkdir(mnt.path / "d"), lambda: os.unlink(mnt.path / "closed"), lambda: mnt.seal("s"), mnt.wait_durable):
        with pytest.raises(OSError) as error:
            act()
        assert error.value.errno in (errno.EROFS, errno.EIO), error.value
    assert (mnt.path / "durable").read_bytes() == content("durable", 1)
    assert (mnt.path / "closed").read_bytes() == content("closed", 1)
    log = mnt.log.read_text()
    assert log.count("see to that disk, then unmount and mount again") == 1 and len(log.splitlines()) < 60, log
    run("umount", mnt.path)
    mnt.process.wait(timeout=LIMIT)
    mnt.process = None
    with pytest.raises(MountError) as error:
        mnt.mount()
    assert "Read-only file system" in error.value.output and "cache-dir" in error.value.output
    image.mend(mnt)
    mnt.mount()
    assert sorted(os.listdir(mnt.path)) == ["closed", "durable", "synced"]
    for name in ("closed", "durable", "synced"):
        assert (mnt.path / name).read_bytes() == content(name, 1)
    mnt.wait_durable()
    mnt.unmount()


def test_the_cache_is_moved_away_and_another_put_in_its_place(mnt, make_volume):
    """The mount goes on where its files are now, touches nothing of the other, and says where they belong."""
    (mnt.path / "durable").write_bytes(content("durable", 1))
    mnt.wait_durable()
    (mnt.path / "closed").write_bytes(content("closed", 1))
    mnt.wait_durable()
    mnt.unmount()
    shutil.copytree(mnt.cache, mnt.base / "copy")
    mnt.mount()
    (mnt.path / "closed").write_bytes(content("closed", 2))
    mnt.cache.rename(mnt.base / "moved")
    (mnt.base / "copy").rename(mnt.cache)
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in mnt.cache.rglob("*") if p.is_file()}
    (mnt.path / "after").write_bytes(content("after", 1))
    assert (mnt.path / "closed").read_bytes() == content("closed", 2)
    mnt.seal()
    wait_until(lambda: "is another directory now" in mnt.log.read_text(), "the line in the log")
    mnt.wait_durable()
    mnt.unmount()
    assert mnt.log.read_text().count("is another directory now") == 1
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in mnt.cache.rglob("*") if p.is_file()} == before
    # With either of them all is there, since it was uploaded.
    for cache in (mnt.cache, mnt.base / "moved"):
        mnt.cache = cache
        mnt.mount()
        assert (mnt.path / "after").read_bytes() == content("after", 1)
        assert (mnt.path / "closed").read_bytes() == content("closed", 2)
        mnt.unmount()


def empty(folder):
    for path in folder.iterdir():
        if path.name != "lost+found":
            shutil.rmtree(path)


@pytest.mark.options(settle="1h", min_free=0)
def test_a_read_of_what_was_evicted_needs_no_room(volume, image):
    """Another user fills the disk: what is in the remote is read through memory, and what is so small that the local state has it, from there."""
    mnt = volume.mount()
    data, small = os.urandom(6 << 20), [os.urandom(4096), b"a few bytes"]
    (mnt.path / "model").write_bytes(data)
    (mnt.path / "sparse").write_bytes(b"begin" + bytes(3 << 20) + b"end")
    for i, few in enumerate(small):
        (mnt.path / ("small%d" % i)).write_bytes(few)
    mnt.wait_durable()
    mnt.unmount()
    empty(image.path)
    mnt.mount(full="error")
    with open(mnt.path / "model", "rb") as f, open(mnt.path / "sparse", "rb") as g:
        fill_with_bytes(image.path / "ballast")
        assert [(mnt.path / ("small%d" % i)).read_bytes() for i in range(2)] == small
        assert f.read() == data and g.read() == b"begin" + bytes(3 << 20) + b"end"
        assert os.pread(f.fileno(), 1000, (6 << 20) - 500) == data[-500:]
        with pytest.raises(OSError) as error, open(mnt.path / "small0", "r+b") as h:
            h.write(b"x")
        assert error.value.errno == errno.ENOSPC
        (image.path / "ballast").unlink()
    assert (mnt.path / "model").read_bytes() == data
    with open(mnt.path / "small0", "r+b") as h:
        h.write(b"x")
    assert (mnt.path / "small0").read_bytes() == b"x" + small[0][1:]


@pytest.mark.options(settle="1h", min_free=0)
def test_a_read_of_what_was_evicted_needs_no_inode(volume, image):
    """As there, of the live tree and of an epoch; and what cannot be made local is not changed."""
    mnt = volume.mount()
    data = os.urandom(6 << 20)
    (mnt.path / "model").write_bytes(data)
    (mnt.path / "hole").write_bytes(bytes(3 << 20))
    mnt.wait_durable()
    mnt.unmount()
    empty(image.path)
    mnt.mount(full="error")
    os.listdir(mnt.epoch(1))
    ballast = fill_with_files(image.path)
    with open(mnt.path / "model", "rb") as f:
        assert f.read() == data and (mnt.epoch(1) / "model").read_bytes() == data
        assert (mnt.path / "hole").read_bytes() == bytes(3 << 20)
        with pytest.raises(OSError) as error, open(mnt.path / "model", "r+b") as g:
            g.write(b"x")
        assert error.value.errno == errno.ENOSPC
        for path in ballast:
            path.unlink()
        with open(mnt.path / "model", "r+b") as g:
            g.write(b"x")
        assert f.seek(0) == 0 and f.read() == b"x" + data[1:]
