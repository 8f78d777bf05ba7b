# SPDX-License-Identifier: Apache-2.0
"""Names in the live tree: every call is made on an ordinary directory too, and must end alike."""

import ctypes
import errno
import os
import stat
import time

import pytest

from conftest import OTHER_OWNER, wait_until

LONG = "n" * 255
TOO_LONG = "n" * 256


def outcome(call, *arguments):
    """"ok", or the name of the errno."""
    try:
        call(*arguments)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def prepare(d):
    """What the calls below find: a file, directories with and without content, links."""
    (d / "file").write_text("content")
    (d / "other").write_text("other")
    (d / "empty").mkdir()
    (d / "empty2").mkdir()
    (d / "full").mkdir()
    (d / "full" / "inner").write_text("inner")
    (d / "full2").mkdir()
    (d / "full2" / "inner").write_text("inner")
    (d / "link").symlink_to("file")
    (d / "dangling").symlink_to("nowhere")
    (d / "loop").symlink_to("loop")
    (d / "to_dir").symlink_to("full")
    os.mkfifo(d / "fifo")


def opened(path, flags, mode=0o666):
    os.close(os.open(path, flags, mode))


# What is asked of a directory, and how it ends.
CALLS = {
    "open missing": ("ENOENT", lambda d: opened(d / "no", os.O_RDONLY)),
    "open below missing": ("ENOENT", lambda d: opened(d / "no" / "no", os.O_RDONLY)),
    "open below a file": ("ENOTDIR", lambda d: opened(d / "file" / "x", os.O_RDONLY)),
    "open a directory for writing": ("EISDIR", lambda d: opened(d / "full", os.O_WRONLY)),
    "create over a directory": ("EISDIR", lambda d: opened(d / "full", os.O_WRONLY | os.O_CREAT)),
    "create exclusively over a file": ("EEXIST", lambda d: opened(d / "file", os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
    "create exclusively over a link": ("EEXIST", lambda d: opened(d / "dangling", os.O_WRONLY | os.O_CREAT | os.O_EXCL)),
    "create through a dangling link": ("ok", lambda d: opened(d / "dangling", os.O_WRONLY | os.O_CREAT)),
    "create in a missing directory": ("ENOENT", lambda d: opened(d / "no" / "x", os.O_WRONLY | os.O_CREAT)),
    "create a name of 255 bytes": ("ok", lambda d: opened(d / LONG, os.O_WRONLY | os.O_CREAT)),
    "create a name of 256 bytes": ("ENAMETOOLONG", lambda d: opened(d / TOO_LONG, os.O_WRONLY | os.O_CREAT)),
    "create a name that is not UTF-8": ("ok", lambda d: opened(os.fsencode(d) + b"/\xff\xfe \n\x01", os.O_WRONLY | os.O_CREAT)),
    "open with O_DIRECTORY a file": ("ENOTDIR", lambda d: opened(d / "file", os.O_DIRECTORY)),
    "open with O_NOFOLLOW a link": ("ELOOP", lambda d: opened(d / "link", os.O_NOFOLLOW)),
    "open a loop of links": ("ELOOP", lambda d: opened(d / "loop", os.O_RDONLY)),
    "mkdir": ("ok", lambda d: os.mkdir(d / "new")),
    "mkdir over a file": ("EEXIST", lambda d: os.mkdir(d / "file")),
    "mkdir over a directory": ("EEXIST", lambda d: os.mkdir(d / "full")),
    "mkdir over a link": ("EEXIST", lambda d: os.mkdir(d / "dangling")),
    "mkdir below a file": ("ENOTDIR", lambda d: os.mkdir(d / "file" / "x")),
    "mkdir a name of 256 bytes": ("ENAMETOOLONG", lambda d: os.mkdir(d / TOO_LONG)),
    "rmdir": ("ok", lambda d: os.rmdir(d / "empty")),
    "rmdir with content": ("ENOTEMPTY", lambda d: os.rmdir(d / "full")),
    "rmdir a file": ("ENOTDIR", lambda d: os.rmdir(d / "file")),
    "rmdir a link to a directory": ("ENOTDIR", lambda d: os.rmdir(d / "to_dir")),
    "rmdir missing": ("ENOENT", lambda d: os.rmdir(d / "no")),
    "rmdir .": ("EINVAL", lambda d: os.rmdir(os.fspath(d / "empty") + "/.")),
    "unlink": ("ok", lambda d: os.unlink(d / "file")),
    "unlink a directory": ("EISDIR", lambda d: os.unlink(d / "empty")),
    "unlink missing": ("ENOENT", lambda d: os.unlink(d / "no")),
    "unlink below a file": ("ENOTDIR", lambda d: os.unlink(d / "file" / "x")),
    "symlink over a file": ("EEXIST", lambda d: os.symlink("x", d / "file")),
    "symlink of a long target": ("ok", lambda d: os.symlink("t" * 4095, d / "new")),
    "symlink of too long a target": ("ENAMETOOLONG", lambda d: os.symlink("t" * 4096, d / "new")),
    "symlink of no target": ("ENOENT", lambda d: os.symlink("", d / "new")),
    "readlink of a file": ("EINVAL", lambda d: os.readlink(d / "file")),
    "link": ("ok", lambda d: os.link(d / "file", d / "new")),
    "link over a file": ("EEXIST", lambda d: os.link(d / "file", d / "other")),
    "link a directory": ("EPERM", lambda d: os.link(d / "full", d / "new")),
    "link missing": ("ENOENT", lambda d: os.link(d / "no", d / "new")),
    "link a symlink": ("ok", lambda d: os.link(d / "link", d / "new", follow_symlinks=False)),
    "rename": ("ok", lambda d: os.rename(d / "file", d / "new")),
    "rename to itself": ("ok", lambda d: os.rename(d / "file", d / "file")),
    "rename over a file": ("ok", lambda d: os.rename(d / "file", d / "other")),
    "rename missing": ("ENOENT", lambda d: os.rename(d / "no", d / "new")),
    "rename into missing": ("ENOENT", lambda d: os.rename(d / "file", d / "no" / "x")),
    "rename a file over a directory": ("EISDIR", lambda d: os.rename(d / "file", d / "empty")),
    "rename a directory over a file": ("ENOTDIR", lambda d: os.rename(d / "empty", d / "file")),
    "rename a directory over an empty one": ("ok", lambda d: os.rename(d / "full", d / "empty")),
    "rename a directory over a full one": ("ENOTEMPTY", lambda d: os.rename(d / "full2", d / "full")),
    "rename a directory into itself": ("EINVAL", lambda d: os.rename(d / "full", d / "full" / "x")),
    "rename over the directory above": ("ENOTEMPTY", lambda d: os.rename(d / "full" / "inner", d / "full")),
    "rename to a name of 256 bytes": ("ENAMETOOLONG", lambda d: os.rename(d / "file", d / TOO_LONG)),
    "rename below a file": ("ENOTDIR", lambda d: os.rename(d / "other", d / "file" / "x")),
    "listdir of a file": ("ENOTDIR", lambda d: os.listdir(d / "file")),
    "truncate a directory": ("EISDIR", lambda d: os.truncate(d / "full", 0)),
    "truncate to less than nothing": ("EINVAL", lambda d: os.truncate(d / "file", -1)),
    "mkfifo over a file": ("EEXIST", lambda d: os.mkfifo(d / "file")),
    "mknod of a file": ("ok", lambda d: os.mknod(d / "new", stat.S_IFREG | 0o640)),
    "mknod of a socket": ("ok", lambda d: os.mknod(d / "new", stat.S_IFSOCK | 0o640)),
    "getxattr missing": ("ENODATA", lambda d: os.getxattr(d / "file", "user.no")),
    "removexattr missing": ("ENODATA", lambda d: os.removexattr(d / "file", "user.no")),
    "replace an xattr that is not there": ("ENODATA", lambda d: os.setxattr(d / "file", "user.a", b"1", os.XATTR_REPLACE)),
    "set a user xattr on a fifo": ("EPERM", lambda d: os.setxattr(d / "fifo", "user.a", b"1")),
    "set an xattr without a namespace": ("ENOTSUP", lambda d: os.setxattr(d / "file", "a", b"1")),
}


def listing(d):
    """Every path with type and, of files, content; as far as the calls can change it."""
    found = {}
    for folder, names, files in os.walk(os.fsencode(d)):
        for name in names + files:
            path = os.path.join(folder, name)
            st = os.lstat(path)
            what = [stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode), st.st_nlink]
            if stat.S_ISLNK(st.st_mode):
                what.append(os.readlink(path))
            elif stat.S_ISREG(st.st_mode):
                with open(path, "rb") as f:
                    what.append(f.read())
            found[os.path.relpath(path, os.fsencode(d))] = what
    return found


def test_every_call_ends_as_on_a_local_disk(mnt, tmp_path):
    wrong = []
    for number, (name, (expected, call)) in enumerate(CALLS.items()):
        here, there = mnt.path / str(number), tmp_path / str(number)
        for d in (here, there):
            d.mkdir()
            prepare(d)
        ours, theirs = outcome(call, here), outcome(call, there)
        if not ours == theirs == expected:
            wrong.append("%s: %s, local disk %s, expected %s" % (name, ours, theirs, expected))
        elif listing(here) != listing(there):
            wrong.append("%s: the trees differ after it" % name)
    assert not wrong, "\n".join(wrong)


def test_names_are_bytes(mnt):
    names = [LONG.encode(), b"\xff\xfe", b"a b", b"new\nline", "grün".encode(), b"-", b"...", b"\x01"]
    top = os.fsencode(mnt.path)
    for name in names:
        with open(top + b"/" + name, "wb") as f:
            f.write(name)
    assert sorted(os.listdir(top)) == sorted(names)
    mnt.remount()
    assert sorted(os.listdir(top)) == sorted(names)
    for name in names:
        with open(top + b"/" + name, "rb") as f:
            assert f.read() == name


RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4


def renameat2(libc, old, new, flags):
    import ctypes

    if libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags) < 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def test_renameat2_flags(mnt):
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    a, b, d = mnt.path / "a", mnt.path / "b", mnt.path / "d"
    a.write_text("a")
    b.write_text("b")
    d.mkdir()
    (d / "inner").write_text("inner")
    with pytest.raises(FileExistsError):
        renameat2(libc, a, b, RENAME_NOREPLACE)
    renameat2(libc, a, mnt.path / "c", RENAME_NOREPLACE)
    assert sorted(os.listdir(mnt.path)) == ["b", "c", "d"]
    renameat2(libc, b, mnt.path / "c", RENAME_EXCHANGE)
    assert b.read_text() == "a" and (mnt.path / "c").read_text() == "b"
    renameat2(libc, b, d, RENAME_EXCHANGE)
    assert d.read_text() == "a" and (b / "inner").read_text() == "inner"
    with pytest.raises(FileNotFoundError):
        renameat2(libc, b, mnt.path / "no", RENAME_EXCHANGE)
    with pytest.raises(OSError) as error:
        renameat2(libc, b, mnt.path / "w", RENAME_WHITEOUT)
    assert error.value.errno == errno.EINVAL


@pytest.mark.options(settle="1h", patience="2h")
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("name", ["model.new", "model.tmp"])
def test_an_exchange_seals_the_save_that_it_replaces(mnt, name, back):
    libc = ctypes.CDLL(None, use_errno=True)
    model, new = mnt.path / "model", mnt.path / name
    texts = ["one", "two", "three"]
    model.write_text(texts[0])
    for number in (1, 2):
        new.write_text(texts[number])
        renameat2(libc, *((model, new) if back else (new, model)), RENAME_EXCHANGE)
        new.unlink()
        wait_until(lambda number=number: number in mnt.epochs(), "the epoch of the save before")
        assert (mnt.epoch(number) / "model").read_text() == texts[number - 1] and model.read_text() == texts[number]
        time.sleep(1.1)  # at most one such seal a second
    assert mnt.epochs() == [1, 2]


def test_links_share_one_file(mnt):
    a, b = mnt.path / "a", mnt.path / "b"
    a.write_text("one")
    os.link(a, b)
    assert a.stat().st_ino == b.stat().st_ino and a.stat().st_nlink == 2
    b.write_text("two words")
    assert a.read_text() == "two words" and a.stat().st_size == 9
    os.chmod(a, 0o600)
    assert stat.S_IMODE(b.stat().st_mode) == 0o600
    a.unlink()
    assert b.stat().st_nlink == 1 and b.read_text() == "two words"


def test_a_link_that_an_open_file_takes_the_place_of_counts_no_more(mnt):
    """Its rename can still be undone, but nobody sees that name of the old file."""
    (mnt.path / "a").write_bytes(b"old")
    os.link(mnt.path / "a", mnt.path / "b")
    before = os.stat(mnt.path / "a")
    with open(mnt.path / "new", "wb") as f:
        f.write(b"new")
        f.flush()
        time.sleep(0.05)  # the kernel's clock goes in steps
        os.rename(mnt.path / "new", mnt.path / "b")
        after = os.stat(mnt.path / "a")
        assert after.st_nlink == 1 and after.st_ctime_ns > before.st_ctime_ns


def test_directories_count_links(mnt):
    d = mnt.path / "d"
    d.mkdir()
    assert d.stat().st_nlink == 2
    (d / "x").mkdir()
    (d / "y").mkdir()
    (d / "file").touch()
    assert d.stat().st_nlink == 4
    (d / "x").rename(mnt.path / "x")
    assert d.stat().st_nlink == 3


def test_inode_numbers_are_stable(mnt):
    for name in ("a", "b"):
        (mnt.path / name).write_text(name)
    (mnt.path / "d").mkdir()
    before = {n: os.stat(mnt.path / n).st_ino for n in ("a", "b", "d", ".")}
    (mnt.path / "a").write_text("replaced")
    (mnt.path / "b").rename(mnt.path / "d" / "b2")
    assert os.stat(mnt.path / "a").st_ino == before["a"]
    assert os.stat(mnt.path / "d" / "b2").st_ino == before["b"]
    mnt.remount()
    assert os.stat(mnt.path / "a").st_ino == before["a"]
    assert os.stat(mnt.path / "d" / "b2").st_ino == before["b"]
    assert os.stat(mnt.path / "d").st_ino == before["d"]
    (mnt.path / "new").touch()
    assert os.stat(mnt.path / "new").st_ino not in before.values()


def test_readdir_of_many_while_they_are_removed(mnt):
    d = mnt.path / "d"
    d.mkdir()
    names = {"file-%04d" % i for i in range(2000)}
    for n in names:
        (d / n).touch()
    assert set(os.listdir(d)) == names
    types = {e.name: e.is_file() for e in os.scandir(d)}
    assert types == dict.fromkeys(names, True)
    # Each name that stays is listed once, though others go while the listing is under way.
    seen = []
    with os.scandir(d) as entries:
        for i, entry in enumerate(entries):
            seen.append(entry.name)
            if i % 2:
                os.unlink(entry.path)
    assert len(seen) == len(set(seen)) and set(seen) == names
    assert len(os.listdir(d)) == 1000


def directory(path, limit):
    """Each entry of a directory as scandir gives it. More than `limit` of them is an endless listing."""
    with os.scandir(path) as entries:
        for count, entry in enumerate(entries):
            assert count < limit, "the listing does not end"
            yield entry


def test_a_listing_ends_though_each_entry_is_renamed(mnt):
    d = mnt.path / "d"
    d.mkdir()
    for i in range(2000):
        (d / ("f%04d" % i)).touch()
    there = {e.inode() for e in directory(d, 2000)}
    seen = []
    for entry in directory(d, 2000):
        seen.append(entry.inode())
        os.rename(entry.path, d / ("renamed-%d" % len(seen)))
    assert len(seen) == 2000 and set(seen) == there
    assert {e.inode() for e in directory(d, 2000)} == there


def test_a_listing_shows_once_what_others_rename_ahead_of_it(mnt):
    d = mnt.path / "d"
    d.mkdir()
    for i in range(2000):
        (d / ("f%04d" % i)).touch()
    there = {e.inode() for e in directory(d, 2000)}
    seen = []
    for entry in directory(d, 2000):
        if not seen:
            for i in range(2000):
                os.rename(d / ("f%04d" % i), d / ("g%04d" % i))
        seen.append(entry.inode())
    assert len(seen) == 2000 and set(seen) == there


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("x", path)], ids=["mkdir", "mkfifo", "symlink"])
def test_a_listing_ends_though_each_entry_makes_another(mnt, make):
    d = mnt.path / "d"
    d.mkdir()
    for i in range(500):
        (d / ("f%d" % i)).touch()
    seen = []
    for entry in directory(d, 500):
        seen.append(entry.name)
        make(d / ("made-%d" % len(seen)))
    assert set(seen) == {"f%d" % i for i in range(500)}
    assert len(os.listdir(d)) == 1000


def test_a_listing_ends_though_each_entry_is_replaced_or_moved_away_and_back(mnt):
    d, other = mnt.path / "d", mnt.path / "other"
    d.mkdir()
    other.mkdir()
    for i in range(1000):
        (d / ("f%d" % i)).write_text("one")
    seen = []
    for entry in directory(d, 1000):
        seen.append(entry.name)
        if len(seen) % 2:
            os.rename(entry.path, other / entry.name)
            os.rename(other / entry.name, entry.path)
        else:
            (other / "temporary").write_text("two")
            os.rename(other / "temporary", entry.path)
    assert len(seen) == 1000 and set(seen) == {"f%d" % i for i in range(1000)}


def test_tags_that_are_renamed_while_they_are_listed(mnt):
    (mnt.path / "file").write_text("x")
    epoch = mnt.seal()
    for i in range(400):
        os.symlink(str(epoch), mnt.epochs_dir / ("tag%d" % i))
    seen = [e.name for e in directory(mnt.epochs_dir, 500)]
    count = 0
    for entry in directory(mnt.epochs_dir, 500):
        if entry.name.startswith("tag"):
            count += 1
            os.rename(entry.path, mnt.epochs_dir / ("other%d" % count))
    assert count == 400 and len(seen) == len(set(seen))
    assert sorted(mnt.tags()) == sorted("other%d" % (i + 1) for i in range(400))


class Stream:
    """A directory by the calls of libc."""

    libc = ctypes.CDLL(None, use_errno=True)
    libc.opendir.restype = ctypes.c_void_p
    libc.readdir.restype = ctypes.POINTER(ctypes.c_ubyte)
    libc.telldir.restype = ctypes.c_long
    for call in (libc.telldir, libc.readdir, libc.closedir, libc.rewinddir):
        call.argtypes = [ctypes.c_void_p]
    libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]

    def __init__(self, path):
        self.stream = self.libc.opendir(os.fsencode(path))
        assert self.stream

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.libc.closedir(self.stream)

    def read(self, most=1 << 30):
        """The next names, in order."""
        names = []
        while len(names) < most:
            entry = self.libc.readdir(self.stream)
            if not entry:
                break
            # struct dirent of Linux, 64 bits: the name begins at byte 19.
            names.append(ctypes.string_at(ctypes.addressof(entry.contents) + 19).decode())
        return names

    def tell(self):
        return self.libc.telldir(self.stream)

    def seek(self, place):
        self.libc.seekdir(self.stream, place)

    def rewind(self):
        self.libc.rewinddir(self.stream)


def test_seekdir_goes_on_where_it_was(mnt):
    for i in range(300):
        (mnt.path / ("f%d" % i)).touch()
    with Stream(mnt.path) as stream:
        first = stream.read(100)
        here = stream.tell()
        rest = stream.read()
        assert len(first) == 100 and len(rest) == 302 - 100 and not set(first) & set(rest)
        # Others come and go meanwhile: what was behind the place still is.
        for name in first[2:]:
            os.unlink(mnt.path / name)
        (mnt.path / "new").touch()
        stream.seek(here)
        assert stream.read() == rest
        stream.seek(0)
        assert len(stream.read()) == 302 - 98 + 1


def test_rewinddir_shows_what_is_new(mnt):
    for i in range(300):
        (mnt.path / ("f%d" % i)).touch()
    with Stream(mnt.path) as stream:
        assert len(stream.read(250)) == 250
        (mnt.path / "new").touch()
        os.unlink(mnt.path / "f7")
        stream.rewind()
        names = stream.read()
        assert len(names) == 302 and "new" in names and "f7" not in names


def test_a_directory_removed_while_open(mnt):
    d = mnt.path / "d"
    d.mkdir()
    os.chown(d, *OTHER_OWNER)
    fd = os.open(d, os.O_RDONLY)
    try:
        os.rmdir(d)
        assert not d.exists()
        found = os.fstat(fd)
        assert stat.S_ISDIR(found.st_mode) and found.st_nlink == 0 and (found.st_uid, found.st_gid) == OTHER_OWNER
        assert os.listdir(fd) == []
        with pytest.raises(FileNotFoundError):
            os.open("x", os.O_CREAT | os.O_WRONLY, dir_fd=fd)
    finally:
        os.close(fd)


def test_attributes_of_a_directory_removed_while_open(mnt):
    """As on a disk, but that no extended attribute can be given to it any more."""
    d = mnt.path / "d"
    d.mkdir()
    os.setxattr(d, "user.a", b"1")
    fd = os.open(d, os.O_RDONLY)
    try:
        os.rmdir(d)
        os.fchmod(fd, 0o2711)
        os.fchown(fd, *OTHER_OWNER)
        os.utime(fd)
        found = os.fstat(fd)
        assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o2711, *OTHER_OWNER)
        assert os.listxattr(fd) == []
        assert outcome(os.getxattr, fd, "user.a") == "ENODATA"
        assert outcome(os.setxattr, fd, "user.a", b"1") == "ENOTSUP"
        assert outcome(os.removexattr, fd, "user.a") == "ENODATA"
    finally:
        os.close(fd)


def test_epochs_is_hidden_and_cannot_be_replaced(mnt):
    assert os.listdir(mnt.path) == []
    assert stat.S_ISDIR(os.lstat(mnt.path / ".epochs").st_mode)
    top, file = mnt.path / ".epochs", mnt.path / "file"
    file.write_text("x")
    (mnt.path / "d").mkdir()
    assert outcome(os.mkdir, top) == "EEXIST"
    assert outcome(os.symlink, "x", top) == "EEXIST"
    assert outcome(os.link, file, top) == "EEXIST"
    assert outcome(os.rename, mnt.path / "d", top) == "EROFS"
    assert outcome(os.rename, top, mnt.path / "e") == "EROFS"
    assert outcome(os.rmdir, top) == "EROFS"
    assert outcome(opened, top, os.O_CREAT | os.O_WRONLY) == "EISDIR"
    # Elsewhere the name is a name as any other.
    (mnt.path / "d" / ".epochs").write_text("mine")
    assert os.listdir(mnt.path / "d") == [".epochs"]
    os.rename(mnt.path / "d" / ".epochs", mnt.path / "x")
    assert sorted(os.listdir(mnt.path)) == ["d", "file", "x"]
