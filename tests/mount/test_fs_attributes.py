# SPDX-License-Identifier: Apache-2.0
"""Attributes in the live tree: modes, owners, times, extended attributes, permissions."""

import errno
import os
import stat
import time

import pytest

from conftest import need_root, python, wait_until

NS = 1234567890_123456789


CLOCK_REALTIME_COARSE = 5  # the clock of file times: it moves by ticks


def next_tick():
    now = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)
    wait_until(lambda: time.clock_gettime_ns(CLOCK_REALTIME_COARSE) > now, "a tick of the clock")


def times(path):
    st = os.lstat(path)
    return st.st_atime_ns, st.st_mtime_ns


def test_times_are_kept_to_the_nanosecond(mnt):
    (mnt.path / "f").write_text("x")
    (mnt.path / "d").mkdir()
    (mnt.path / "l").symlink_to("f")
    for i, name in enumerate(("f", "d", "l")):
        os.utime(mnt.path / name, ns=(NS + 1, NS + i), follow_symlinks=False)
    os.utime(mnt.path, ns=(NS, NS + 9))
    for _ in range(2):
        for i, name in enumerate(("f", "d", "l")):
            assert times(mnt.path / name)[1] == NS + i
        assert times(mnt.path)[1] == NS + 9
        mnt.remount()


def test_times_before_1970(mnt):
    f = mnt.path / "f"
    f.touch()
    os.utime(f, ns=(-5_000_000_001, -1_000_000_001))
    assert f.stat().st_mtime_ns == -1_000_000_001
    mnt.remount()
    assert f.stat().st_mtime_ns == -1_000_000_001


def test_changes_move_mtime_and_ctime(mnt):
    f, d = mnt.path / "f", mnt.path / "d"
    d.mkdir()
    f.write_text("x")

    def moved(path, change):
        os.utime(path, ns=(NS, NS))
        before = os.stat(path)
        next_tick()
        change()
        after = os.stat(path)
        return after.st_mtime_ns != before.st_mtime_ns, after.st_ctime_ns != before.st_ctime_ns

    assert moved(f, lambda: f.write_text("yy")) == (True, True)
    with open(f, "r+b") as stream:
        assert moved(f, lambda: os.pwrite(stream.fileno(), b"zz", 0)) == (True, True)
    assert moved(f, lambda: os.chmod(f, 0o600)) == (False, True)
    assert moved(f, lambda: os.link(f, mnt.path / "g")) == (False, True)
    assert moved(f, lambda: os.truncate(f, 1)) == (True, True)
    assert moved(d, lambda: (d / "x").touch())[0]
    assert moved(d, lambda: os.rename(d / "x", d / "y"))[0]
    assert moved(d, lambda: os.unlink(d / "y"))[0]
    assert moved(d, lambda: (d / "sub").mkdir())[0]
    assert not moved(d, lambda: (d / "sub" / "z").touch())[0]


def test_utime_now_is_now(mnt):
    f = mnt.path / "f"
    f.touch()
    os.utime(f, ns=(NS, NS))
    before = time.time_ns()
    os.utime(f)
    assert before <= f.stat().st_mtime_ns + 10_000_000 and f.stat().st_mtime_ns <= time.time_ns()


def test_attributes_after_close_stay(mnt):
    """shutil.move across file systems: write, close, then utimens and chmod."""
    need_root("give a file away")
    f = mnt.path / "f"
    f.write_bytes(b"x" * 100)
    os.utime(f, ns=(NS, NS))
    os.chmod(f, 0o640)
    os.chown(f, 1234, 5678)
    os.setxattr(f, "user.note", b"kept")

    def seen(path):
        st = path.stat()
        return st.st_mtime_ns, stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid, os.getxattr(path, "user.note")

    expected = (NS, 0o640, 1234, 5678, b"kept")
    assert seen(f) == expected
    number = mnt.seal()
    assert seen(f) == expected and seen(mnt.epoch(number) / "f") == expected
    mnt.remount()
    assert seen(f) == expected and seen(mnt.epoch(number) / "f") == expected


def test_attributes_of_an_open_file_stay(mnt):
    f = mnt.path / "f"
    with open(f, "wb") as stream:
        stream.write(b"x" * 100)
        stream.flush()
        os.fchmod(stream.fileno(), 0o604)
        os.utime(f, ns=(NS, NS))
        assert os.fstat(stream.fileno()).st_mtime_ns == NS
    st = f.stat()
    assert stat.S_IMODE(st.st_mode) == 0o604 and st.st_mtime_ns == NS


def test_umask_and_modes(mnt):
    before = os.umask(0o027)
    try:
        (mnt.path / "d").mkdir()
        os.close(os.open(mnt.path / "f", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mknod(mnt.path / "n", 0o666 | stat.S_IFREG)
    finally:
        os.umask(before)
    assert stat.S_IMODE((mnt.path / "d").stat().st_mode) == 0o750
    assert stat.S_IMODE((mnt.path / "f").stat().st_mode) == 0o640
    assert stat.S_IMODE((mnt.path / "n").stat().st_mode) == 0o640
    os.chmod(mnt.path / "f", 0o7777)
    assert stat.S_IMODE((mnt.path / "f").stat().st_mode) == 0o7777


def test_setgid_directory_gives_its_group(mnt):
    need_root("give a file away")
    d = mnt.path / "d"
    d.mkdir()
    os.chown(d, 0, 4321)
    os.chmod(d, 0o2775)
    (d / "f").touch()
    (d / "sub").mkdir()
    (d / "l").symlink_to("f")
    assert (d / "f").stat().st_gid == 4321 and os.lstat(d / "l").st_gid == 4321
    assert (d / "sub").stat().st_gid == 4321 and (d / "sub").stat().st_mode & stat.S_ISGID
    assert not (d / "f").stat().st_mode & stat.S_ISGID


def test_xattrs(mnt):
    need_root("set a trusted attribute")
    f = mnt.path / "f"
    f.touch()
    big = os.urandom(60000)
    os.setxattr(f, "user.a", b"")
    os.setxattr(f, "user.big", big)
    os.setxattr(f, "trusted.t", b"root")
    os.setxattr(mnt.path, "user.root", b"1")
    with pytest.raises(FileExistsError):
        os.setxattr(f, "user.a", b"2", os.XATTR_CREATE)
    os.setxattr(f, "user.a", b"2", os.XATTR_REPLACE)
    own = {n for n in os.listxattr(f) if not n.startswith("user.epochfs.")}
    assert own == {"user.a", "user.big", "trusted.t"}
    for _ in range(2):
        assert os.getxattr(f, "user.big") == big and os.getxattr(f, "user.a") == b"2"
        assert os.getxattr(mnt.path, "user.root") == b"1"
        mnt.remount()
    os.removexattr(f, "user.big")
    with pytest.raises(OSError) as error:
        os.getxattr(f, "user.big")
    assert error.value.errno == errno.ENODATA


def test_xattrs_of_an_earlier_version_that_has_no_name_any_more(mnt):
    """Its last version was in no epoch, and is reclaimed."""
    f = mnt.path / "f"
    f.write_bytes(b"earlier")
    os.setxattr(f, "user.a", b"1")
    mnt.seal()
    fd = os.open(f, os.O_RDWR)
    try:
        f.write_bytes(b"later")
        f.unlink()
        assert set(os.listxattr(fd)) == {"user.a", "user.epochfs.state"}
        assert os.getxattr(fd, "user.a") == b"1" and os.getxattr(fd, "user.epochfs.state") == b"staged"
        assert os.pread(fd, 100, 0) == b"earlier"
    finally:
        os.close(fd)


def test_acls_are_not_supported(mnt):
    (mnt.path / "f").touch()
    for call in (lambda: os.getxattr(mnt.path / "f", "system.posix_acl_access"),
                 lambda: os.setxattr(mnt.path / "f", "system.posix_acl_access", b"\2\0\0\0")):
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == errno.EOPNOTSUPP


AS_USER = """
import os, sys, errno
os.chdir(sys.argv[3])  # the way there is root's
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
def outcome(call, *a):
    try:
        call(*a)
        return "ok"
    except OSError as e:
        return errno.errorcode[e.errno]
def opened(p, flags, mode=0o644):
    os.close(os.open(p, flags, mode))
"""


def as_user(mnt, code, uid=4242, gid=4343):
    done = python(AS_USER + code, str(uid), str(gid), mnt.path)
    out, _ = done.communicate()
    assert done.returncode == 0
    return out.split()


@pytest.mark.options(allow_other=True)
def test_permissions_are_checked_by_the_kernel(mnt):
    (mnt.path / "mine").write_text("x")
    os.chmod(mnt.path / "mine", 0o600)
    (mnt.path / "readable").write_text("x")
    os.chmod(mnt.path / "readable", 0o644)
    (mnt.path / "closed").mkdir(0o700)
    (mnt.path / "closed" / "f").touch()
    (mnt.path / "sticky").mkdir()
    os.chmod(mnt.path / "sticky", 0o1777)
    (mnt.path / "sticky" / "f").touch()
    code = """
print(outcome(opened, "mine", os.O_RDONLY), outcome(opened, "readable", os.O_RDONLY),
      outcome(opened, "readable", os.O_WRONLY), outcome(os.listdir, "closed"), outcome(os.stat, "closed/f"),
      outcome(os.unlink, "mine"), outcome(os.mkdir, "new"), outcome(os.chmod, "readable", 0o777),
      outcome(os.utime, "readable"), outcome(os.unlink, "sticky/f"), outcome(os.rename, "sticky/f", "sticky/g"),
      outcome(os.setxattr, "readable", "user.a", b"1"), outcome(os.truncate, "readable", 0))
"""
    assert as_user(mnt, code) == ["EACCES", "ok", "EACCES", "EACCES", "EACCES", "EACCES", "EACCES", "EPERM",
                                  "EACCES", "EPERM", "EPERM", "EACCES", "EACCES"]


@pytest.mark.options(allow_other=True)
def test_a_writer_of_another_user(mnt):
    os.chmod(mnt.path, 0o777)
    code = """
for i in range(3):
    with open("f", "wb") as f:
        f.write(b"%d" % i * 1000)
with open("f", "ab") as f:
    f.write(b"end")
os.mkdir("d", 0o700)
os.symlink("f", "l")
print(len(open("f", "rb").read()))
"""
    assert as_user(mnt, code) == ["1003"]
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in mnt.path.iterdir()} == {(4242, 4343)}
    number = mnt.seal()
    assert (mnt.epoch(number) / "f").stat().st_uid == 4242
    assert as_user(mnt, 'print(len(open(".epochs/latest/f", "rb").read()))') == ["1003"]


@pytest.mark.options(allow_other=True)
def test_setuid_bits_go_where_posix_says(mnt):
    os.chmod(mnt.path, 0o777)
    code = """
def bits(change):
    opened("f", os.O_CREAT | os.O_WRONLY)
    os.chmod("f", 0o6755)
    change()
    print(oct(os.stat("f").st_mode & 0o7777))
def write():
    with open("f", "r+b") as f:
        f.write(b"x")
bits(write)
bits(lambda: os.truncate("f", 10))
bits(lambda: os.chown("f", -1, os.getgid()))
bits(lambda: os.utime("f"))
"""
    assert as_user(mnt, code) == ["0o755", "0o755", "0o755", "0o6755"]


def test_chown_by_root_takes_setuid_away(mnt):
    need_root("give a file away")
    f = mnt.path / "f"
    f.touch()
    os.chmod(f, 0o6755)
    os.chown(f, 7, 8)
    st = f.stat()
    assert (stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid) == (0o755, 7, 8)


MAKE = {"file": lambda p: p.touch(), "fifo": os.mkfifo, "socket": lambda p: os.mknod(p, 0o644 | stat.S_IFSOCK),
        "device": lambda p: os.mknod(p, 0o644 | stat.S_IFCHR, os.makedev(1, 3)), "directory": os.mkdir}


@pytest.mark.parametrize("kind", list(MAKE))
def test_chown_takes_set_id_bits_as_on_an_ordinary_directory(mnt, tmp_path, kind):
    """Whatever the type, but of a directory."""
    need_root("give a file away")

    def modes(base):
        for mode in (0o6755, 0o6745, 0o4755):
            path = base / ("%s-%o" % (kind, mode))
            MAKE[kind](path)
            os.chmod(path, mode)
            os.chown(path, 1234, 5678)
            yield stat.S_IMODE(path.stat().st_mode)

    assert [oct(m) for m in modes(mnt.path)] == [oct(m) for m in modes(tmp_path)]


GIVES = """
import os, stat, sys
os.chdir(sys.argv[1])
os.setgid(1234)
os.setgroups([1234, 5678])
os.setuid(1234)
for path in sorted(os.listdir(".")):
    os.chown(path, -1, 5678)
    st = os.lstat(path)
    print(path, oct(st.st_mode), st.st_gid)
"""


@pytest.mark.parametrize("kind", list(MAKE))
def test_an_owner_who_gives_it_to_another_of_his_groups_loses_set_id_bits_as_on_an_ordinary_directory(make_volume, tmp_path, kind):
    need_root("become another user")
    mnt = make_volume(allow_other=True, settle="1h").mount()
    below = tmp_path / "below"
    below.mkdir()
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)

    def given(base):
        base.chmod(0o777)
        for mode in (0o6777, 0o6755, 0o6745, 0o4755, 0o2755, 0o2744):
            path = base / ("%s-%o" % (kind, mode))
            MAKE[kind](path)
            os.chown(path, 1234, 1234)
            os.chmod(path, mode)
        child = python(GIVES, base)
        said = child.communicate()[0]
        assert child.returncode == 0 and said.count(" 5678\n") == 6
        return said

    assert given(mnt.path) == given(below)


CHANGES_OF_CONTENT = """
import os, stat, sys
os.chdir(sys.argv[1])
os.setgid(1234)
os.setgroups([5678])
os.setuid(1234)
def truncating(path): os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))
def writing(path):
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"x")
    os.close(fd)
for path in sorted(os.listdir(".")):
    {"truncating": truncating, "writing": writing, "resizing": lambda p: os.truncate(p, 0)}[path.split("-")[0]](path)
    print(path, oct(os.stat(path).st_mode))
"""


def test_changes_of_content_take_set_id_bits_as_on_an_ordinary_directory(make_volume, tmp_path):
    """Also where there was nothing to cut off, and setgid without a right of the group to execute of a file of another's group."""
    mnt = make_volume(allow_other=True, settle="1h").mount()
    below = tmp_path / "below"
    below.mkdir()
    tmp_path.chmod(0o755)
    for parent in (tmp_path.parent, tmp_path.parent.parent):
        parent.chmod(0o755)

    def modes(base):
        base.chmod(0o777)
        for how in ("truncating", "writing", "resizing"):
            for mode in (0o6777, 0o6766, 0o2766):
                for group in (0, 1234, 5678):
                    for content in ("", "filled"):
                        path = base / ("%s-%o-%d-%s" % (how, mode, group, content))
                        path.write_text(content)
                        os.chown(path, 0, group)
                        os.chmod(path, mode)
        child = python(CHANGES_OF_CONTENT, base)
        said = child.communicate()[0]
        assert child.returncode == 0
        return said

    assert modes(mnt.path) == modes(below)


@pytest.mark.options(allow_other=True)
def test_trusted_attributes_are_roots_to_see(mnt):
    os.chmod(mnt.path, 0o777)
    (mnt.path / "f").touch()
    os.chown(mnt.path / "f", 4242, 4343)
    for name in ("trusted.first", "user.middle", "trusted.last"):
        os.setxattr(mnt.path / "f", name, b"x")
    seen = 'print(sorted(n for n in os.listxattr("f") if not n.startswith("user.epochfs.")))'
    assert as_user(mnt, seen) == ["['user.middle']"]
    assert {"trusted.first", "trusted.last", "user.middle"} <= set(os.listxattr(mnt.path / "f"))
