# SPDX-License-Identifier: Apache-2.0
"""Who has a file open keeps what he opened, and what is closed stays, in whatever order handles begin and end."""

import mmap
import os
import signal
import sqlite3
import subprocess
import time

import pytest

from conftest import BIN, Mapping, run, wait_until


def epoch_text(mnt, number, name):
    return (mnt.epoch(number) / name).read_text()


# ---- handles that end in any order


def test_an_append_beside_two_readers_of_which_the_first_ends(mnt):
    path = mnt.path / "notes.txt"
    path.write_text("one\n")
    mnt.seal()
    first, second = os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY)
    os.close(first)
    with open(path, "a", encoding="ascii") as f:
        f.write("two\n")
    assert path.read_text() == "one\ntwo\n"
    assert os.pread(second, 100, 0) == b"one\ntwo\n"
    os.close(second)
    assert path.read_text() == "one\ntwo\n"
    mnt.seal()
    assert epoch_text(mnt, 1, "notes.txt") == "one\n"
    assert epoch_text(mnt, 2, "notes.txt") == "one\ntwo\n"
    mnt.remount()
    assert path.read_text() == "one\ntwo\n"


@pytest.mark.parametrize("closes_first", [0, 1, 2])
def test_edits_beside_three_readers(mnt, closes_first):
    path = mnt.path / "data.bin"
    path.write_bytes(b"a" * 5000)
    mnt.seal()
    readers = [os.open(path, os.O_RDONLY) for _ in range(3)]
    os.close(readers.pop(closes_first))
    for i, byte in enumerate((b"b", b"c", b"d")):
        with open(path, "r+b") as f:
            f.seek(1000 * i)
            f.write(byte * 1000)
        expected = b"".join(bytes([e]) * 1000 for e in (b"bcd"[: i + 1] + b"aaaa")[:5])
        for fd in readers:
            assert os.pread(fd, 5000, 0) == expected
        if readers:
            os.close(readers.pop())
        assert path.read_bytes() == expected
        mnt.seal()
    assert (mnt.epoch(1) / "data.bin").read_bytes() == b"a" * 5000
    assert path.read_bytes() == expected


def test_a_tail_that_is_restarted_loses_no_row(mnt):
    path = mnt.path / "metrics.csv"
    path.write_text("step,loss\n")
    mnt.seal()
    rows = "step,loss\n"
    tail = os.open(path, os.O_RDONLY)
    for i in range(20):
        again = os.open(path, os.O_RDONLY)
        os.close(tail)
        tail = again
        row = "%d,%d\n" % (i, i * i)
        with open(path, "a", encoding="ascii") as f:
            f.write(row)
        rows += row
        assert path.read_text() == rows
        assert os.pread(tail, 1 << 16, 0).decode() == rows
    os.close(tail)
    assert path.read_text() == rows


def test_a_committed_insert_stays_when_a_reader_ends(mnt):
    path = mnt.path / "runs.db"
    db = sqlite3.connect(path)
    db.execute("create table runs (n)")
    db.commit()
    db.close()
    mnt.seal()
    first, second = os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY)
    os.close(first)
    db = sqlite3.connect(path)
    db.execute("insert into runs values (1)")
    db.commit()
    db.close()
    os.close(second)
    db = sqlite3.connect(path)
    assert db.execute("select n from runs").fetchall() == [(1,)]
    assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    db.close()


@pytest.mark.options(settle="0")
def test_a_sealed_epoch_that_is_not_uploaded_keeps_its_bytes(volume):
    volume.url = "fault+file://%s?put.delay=2s" % volume.remote
    volume.mount()
    path = volume.path / "f"
    path.write_bytes(b"A" * 8192)
    number = volume.seal()
    first, second = os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY)
    os.close(first)
    with open(path, "r+b") as f:
        f.write(b"B" * 8192)
    assert (volume.epoch(number) / "f").read_bytes() == b"A" * 8192
    os.close(second)
    assert path.read_bytes() == b"B" * 8192
    volume.wait_durable()
    volume.unmount()
    again = volume.base / "export"
    run(BIN, "export", "file://%s@%d:" % (volume.remote, number), again)
    assert (again / "f").read_bytes() == b"A" * 8192


def test_a_mapping_whose_descriptor_is_closed_sees_an_append_and_an_edit(mnt):
    path = mnt.path / "array.npy"
    path.write_bytes(b"a" * 8192)
    mnt.seal()
    with open(path, "rb") as f:
        mapped = mmap.mmap(f.fileno(), 8192, prot=mmap.PROT_READ)
    with open(path, "r+b") as f:
        f.write(b"b" * 4096)
    wait_until(lambda: mapped[:4096] == b"b" * 4096, "the mapping to show the edit")
    assert mapped[4096:] == b"a" * 4096
    assert (mnt.epoch(1) / "array.npy").read_bytes() == b"a" * 8192
    mapped.close()
    assert path.read_bytes() == b"b" * 4096 + b"a" * 4096


def test_a_mapping_of_an_epoch_does_not_change_after_a_rollback_to_it(mnt):
    path = mnt.path / "w"
    path.write_bytes(b"1" * 8192)
    mnt.seal()
    path.write_bytes(b"2" * 8192)
    mnt.seal()
    with open(mnt.epoch(1) / "w", "rb") as f:
        mapped = mmap.mmap(f.fileno(), 8192, prot=mmap.PROT_READ)
        assert mapped[:1] == b"1"
    mnt.rollback(1)
    reader = os.open(path, os.O_RDONLY)
    with open(path, "r+b") as f:
        f.write(b"3" * 8192)
    assert mapped[:] == b"1" * 8192
    assert os.pread(reader, 8192, 0) == b"3" * 8192
    os.close(reader)
    mapped.close()


def test_appends_beside_a_reader_that_comes_and_goes(mnt):
    path = mnt.path / "list.txt"
    path.write_bytes(b"")
    reader = subprocess.Popen(
        ["sh", "-c", 'while :; do cat "$1" >/dev/null; done', "sh", path],
        stdin=subprocess.DEVNULL, start_new_session=True,
    )
    try:
        for i in range(2000):
            with open(path, "ab") as f:
                f.write(b"%06d\n" % i)
    finally:
        os.killpg(reader.pid, signal.SIGKILL)
        reader.wait()
    assert path.read_bytes() == b"".join(b"%06d\n" % i for i in range(2000))


# ---- nodes of what was replaced


def by_truncating(path, data):
    with open(path, "wb") as f:
        f.write(data)


def by_renaming(path, data):
    with open("%s.new" % path, "wb") as f:
        f.write(data)
    os.rename("%s.new" % path, path)


@pytest.mark.parametrize("replace", [by_truncating, by_renaming])
def test_what_is_opened_by_a_node_that_was_replaced_stays_what_it_was(mnt, replace):
    path = mnt.path / "f"
    path.write_bytes(b"1" * 100000)
    node = os.open(path, os.O_PATH)
    replace(path, b"2" * 50000)
    fd = os.open("/proc/self/fd/%d" % node, os.O_RDONLY)
    size = os.fstat(fd).st_size
    # By O_TRUNC it is the same file, which shows what was saved last; by a rename another.
    assert size == (50000 if replace is by_truncating else 100000)
    for data in (b"3" * 200000, b"4" * 3000):
        replace(path, data)
        assert os.fstat(fd).st_size == size
    assert os.pread(fd, 1 << 20, 0) == (b"2" * 50000 if replace is by_truncating else b"1" * 100000)
    assert path.read_bytes() == b"4" * 3000
    os.close(fd)
    os.close(node)


def test_what_is_changed_by_one_node_of_a_file_shows_by_the_others(mnt):
    """At once, though the kernel has just asked for the attributes by them."""
    path = mnt.path / "f"
    path.write_bytes(b"1" * 5000)
    held = os.open(path, os.O_RDONLY)
    path.write_bytes(b"2" * 200)

    def change(what, *arguments):
        os.stat(path)
        os.fstat(held)
        what(*arguments)
        return os.stat(path), os.fstat(held)

    for node, mode in ((held, 0o600), (path, 0o640)):
        assert [s.st_mode & 0o777 for s in change(os.chmod, node, mode)] == [mode, mode]
    for what, arguments in ((os.setxattr, [b"1"]), (os.removexattr, [])):
        before = os.stat(path).st_ctime_ns
        wait_until(lambda before=before: time.time_ns() - before > 10**8, "the clock's next tick")
        assert change(what, held, "user.a", *arguments)[0].st_ctime_ns > before
    assert [s.st_nlink for s in change(os.link, path, mnt.path / "g")] == [2, 2]
    os.close(held)


@pytest.mark.parametrize("opened", [False, True])
def test_truncate_by_a_node_that_was_replaced_shows_by_the_name(mnt, opened):
    """It is the file's size, as the file is now."""
    path = mnt.path / "f"
    path.write_bytes(b"1" * 5000)
    node = os.open(path, os.O_PATH)
    link = "/proc/self/fd/%d" % node
    path.write_bytes(b"2" * 200)
    if opened:  # the node stands for what the file shows now
        with open(link, "rb") as f:
            assert f.read() == b"2" * 200
    for size in (7, 100):
        assert len(path.read_bytes()) == os.stat(path).st_size
        os.truncate(link, size)
        assert os.stat(path).st_size == size
        assert path.read_bytes() == b"2" * 7 + bytes(size - 7)
    os.chmod(path, 0o600)
    if opened:
        assert os.stat(link).st_mode & 0o777 == 0o600
        os.stat(link)
        os.chmod(path, 0o640)
        assert os.stat(link).st_mode & 0o777 == 0o640
    os.close(node)


def test_a_file_is_replaced_by_a_node_that_nobody_has_open(mnt):
    path = mnt.path / "f"
    path.write_bytes(b"old")
    node = os.open(path, os.O_PATH)
    fd = os.open("/proc/self/fd/%d" % node, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, b"half")
    assert run("cat", path).stdout == "old"
    os.close(fd)
    assert run("cat", path).stdout == "half"
    os.close(node)


def both_show(fds, data):
    """By whichever node, and twice, so that the second is out of the kernel's cache if anything is."""
    for fd in [*fds, *fds]:
        assert os.pread(fd, 1 << 20, 0) == data
        assert os.fstat(fd).st_size == len(data)


def test_two_nodes_of_what_is_written_show_the_same(mnt):
    """One by its name, the other by a node of what was there before."""
    path = mnt.path / "f"
    path.write_bytes(b"old" * 10000)
    before = os.open(path, os.O_PATH)
    named = os.open(path, os.O_RDWR | os.O_TRUNC)
    os.pwrite(named, b"1" * 20000, 0)
    both_show([named], b"1" * 20000)
    moved = os.open("/proc/self/fd/%d" % before, os.O_RDWR | os.O_TRUNC)
    both_show([named, moved], b"")
    os.pwrite(named, b"2" * 20000, 0)
    both_show([named, moved], b"2" * 20000)
    mapped = Mapping(named, 20000)
    assert mapped.read() == b"2" * 20000
    os.pwrite(moved, b"3" * 30000, 0)
    both_show([named, moved], b"3" * 30000)
    assert mapped.read() == b"3" * 20000
    os.ftruncate(moved, 100)
    os.ftruncate(moved, 20000)
    both_show([named, moved], b"3" * 100 + bytes(19900))
    assert mapped.read() == b"3" * 100 + bytes(19900)
    os.posix_fallocate(moved, 20000, 5000)
    both_show([named, moved], b"3" * 100 + bytes(24900))
    os.copy_file_range(moved, moved, 100, 0, 1000)
    both_show([named, moved], b"3" * 100 + bytes(900) + b"3" * 100 + bytes(23900))
    os.pwrite(named, b"4" * 25000, 0)
    both_show([named, moved], b"4" * 25000)
    # A mapping of the second is one of the same file, too.
    second = Mapping(moved, 20000)
    second.write(b"5" * 100)
    second.close()
    mapped.close()
    for fd in (moved, named, before):
        os.close(fd)
    assert run("cat", path).stdout == "5" * 100 + "4" * 24900


def test_a_file_without_a_name_is_truncated_in_place(mnt):
    """A rename took its name: nobody can walk to a replacement of it."""
    path = mnt.path / "f"
    path.write_bytes(b"old content")
    node = os.open(path, os.O_PATH)
    by_renaming(path, b"another file")
    link = "/proc/self/fd/%d" % node
    fd = os.open(link, os.O_WRONLY | os.O_TRUNC)
    assert os.write(fd, b"zz") == 2
    os.close(fd)
    for _ in range(2):
        with open(link, "rb") as f:
            assert os.fstat(f.fileno()).st_size == 2
            assert f.read() == b"zz"
    assert path.read_bytes() == b"another file"
    os.close(node)


def test_content_stays_for_each_node_of_it(mnt):
    """One is the name's, and ends with it; the other one was looked up before, and went over to the same content."""
    path = mnt.path / "f"
    path.write_bytes(b"old")
    node = os.open(path, os.O_PATH)
    link = "/proc/self/fd/%d" % node
    path.write_bytes(b"second")
    assert run("cat", path, link, pass_fds=[node]).stdout == "second" * 2
    by_renaming(path, b"another file")
    assert path.read_bytes() == b"another file"
    for _ in range(2):
        assert os.stat(link).st_size == 6
        assert run("cat", link, pass_fds=[node]).stdout == "second"
    os.close(node)


@pytest.mark.parametrize("flags", [os.O_APPEND, 0, os.O_TRUNC])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("replace", ["truncate", "rename"])
def test_a_writer_by_a_node_that_was_replaced_changes_no_name(mnt, flags, held, replace):
    """As a file without a name on a local disk; but where nobody has it open, O_TRUNC is of the file that the node was of."""
    path = mnt.path / "f"
    path.write_bytes(b"old")
    mnt.seal()
    node = os.open(path, os.O_PATH)
    reader = os.open(path, os.O_RDONLY) if held else None
    if replace == "rename":
        by_renaming(path, b"new content")
    else:
        path.write_bytes(b"new content")
    link = "/proc/self/fd/%d" % node
    fd = os.open(link, os.O_WRONLY | flags)
    os.write(fd, b"X")
    os.write(fd, b"Y")
    os.close(fd)
    written = {os.O_APPEND: b"oldXY", 0: b"XYd", os.O_TRUNC: b"XY"}[flags]
    if held:
        assert os.pread(reader, 100, 0) == written and os.fstat(reader).st_size == len(written)
        os.close(reader)
    os.close(node)
    wanted = b"new content"
    # Nobody has the node open: it may stand for the file's content of now.
    if not held and replace == "truncate":
        wanted = {os.O_APPEND: b"new contentXY", 0: b"XYw content", os.O_TRUNC: b"XY"}[flags]
    assert path.read_bytes() == wanted and run("cat", path).stdout.encode() == wanted
    assert path.stat().st_size == len(wanted)
    mnt.seal()
    assert (mnt.epochs_dir / "latest" / "f").read_bytes() == wanted
    assert (mnt.epoch(1) / "f").read_bytes() == b"old"
    mnt.remount()
    assert path.read_bytes() == wanted


@pytest.mark.parametrize("how", ["read", "append", "r+"])
def test_an_open_without_a_name_leaves_nothing_to_find(mnt, how):
    """The content was replaced: by its name the process finds what all find."""
    path = mnt.path / "f"
    path.write_bytes(b"1" * 10)
    mnt.seal()
    with open(path, "rb") as held:
        path.write_bytes(b"3" * 30)
        os.close(os.open("/proc/self/fd/%d" % held.fileno(), os.O_WRONLY | os.O_TRUNC))
        wanted = b"3" * 30
        if how == "append":
            with open(path, "ab") as f:
                f.write(b"X")
            wanted += b"X"
        if how == "r+":
            with open(path, "r+b") as f:
                f.write(b"X")
            wanted = b"X" + wanted[1:]
        assert path.read_bytes() == wanted and path.stat().st_size == len(wanted)
        assert run("cat", path).stdout.encode() == wanted
    assert path.read_bytes() == wanted
    mnt.seal()
    assert (mnt.epochs_dir / "latest" / "f").read_bytes() == wanted


def test_a_write_by_a_second_node_stays_beside_a_mapping_of_the_first(mnt):
    path = mnt.path / "f"
    path.write_bytes(b"0" * 8192)
    mnt.seal()
    node = os.open(path, os.O_PATH)
    path.write_bytes(b"1" * 8192)
    with open(path, "r+b") as named:
        first = os.open("/proc/self/fd/%d" % node, os.O_RDONLY)  # the node goes over to what the name leads to
        second = os.open("/proc/self/fd/%d" % node, os.O_RDWR)
        with mmap.mmap(named.fileno(), 8192) as mapping:
            mapping[0:2] = b"AA"
            os.pwrite(second, b"WW", 100)
            assert mapping[0:2] == b"AA" and mapping[100:102] == b"WW"
        for fd in (node, first, second):
            os.close(fd)
    data = path.read_bytes()
    assert data[0:2] == b"AA" and data[100:102] == b"WW"
