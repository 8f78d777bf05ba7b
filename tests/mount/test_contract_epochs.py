# SPDX-License-Identifier: Apache-2.0
"""What epochfs-semantics(7) says of epochs: .epochs as ordinary tools use it."""

import datetime
import errno
import json
import mmap
import os
import stat

import pytest

from conftest import BIN, python, run, wait_until
from garbage import in_log
from test_contract_writing import Writer


def epochfs(*arguments, **keywords):
    return run(BIN, *arguments, **keywords)


def log_of(mnt):
    return {e["epoch"]: e for e in mnt.request("log")["epochs"]}


def fails(number, call, *arguments):
    with pytest.raises(OSError) as error:
        call(*arguments)
    return errno.errorcode[error.value.errno] == errno.errorcode[number]


def own(path):
    return {n[len("user.epochfs."):]: os.getxattr(path, n).decode()
            for n in os.listxattr(path) if n.startswith("user.epochfs.")}


def save(mnt, text):
    """A whole one: its epoch."""
    (mnt.path / "f").write_text(text)
    (mnt.path / ("only-" + text)).write_text(text)
    return mnt.seal()


@pytest.fixture
def three(mnt):
    """Epochs 1 to 3 with the file `f` of that text; the live tree is as epoch 3."""
    for text in "123":
        save(mnt, text)
    return mnt


# ---- what the user sees


def test_epochs_is_hidden_and_always_reachable(three):
    names = ["f", "only-1", "only-2", "only-3"]
    assert sorted(os.listdir(three.path)) == names
    assert run("ls", "-A", three.path).stdout.split() == names
    assert run("find", three.path, "-mindepth", "1").stdout.count("\n") == len(names)
    assert [p.name for p in three.path.rglob("f")] == ["f"]
    assert os.stat(three.epochs_dir).st_mode & stat.S_IFDIR
    assert run("ls", three.epochs_dir).stdout.split() == ["000001", "000002", "000003", "current", "latest", "torn"]
    assert fails(errno.EEXIST, os.mkdir, three.epochs_dir)
    run("rm", "-r", *(three.path / n for n in names))
    assert (three.epoch(1) / "f").read_text() == "1"


def test_an_epoch_is_read_only_and_has_the_time_of_its_seal(three):
    d = three.epoch(2)
    assert sorted(os.listdir(d)) == ["f", "only-1", "only-2"] and (d / "f").read_text() == "2"
    assert fails(errno.EROFS, (d / "f").write_text, "x")
    assert fails(errno.EROFS, os.unlink, d / "f")
    assert fails(errno.EROFS, os.mkdir, d / "x")
    for number, record in log_of(three).items():
        when = datetime.datetime.strptime(record["sealed"][:19] + "+0000", "%Y-%m-%dT%H:%M:%S%z")
        ns = int(when.timestamp()) * 10**9 + int(record["sealed"][20:29])
        assert os.stat(three.epoch(number)).st_mtime_ns == ns


def test_a_number_is_a_link_that_is_not_listed(three):
    assert os.readlink(three.epochs_dir / "2") == "000002"
    assert (three.epochs_dir / "2" / "f").read_text() == "2"
    assert "2" not in os.listdir(three.epochs_dir)
    assert fails(errno.ENOENT, os.readlink, three.epochs_dir / "4")


def test_latest_is_the_newest_complete_epoch_and_current_the_one_the_live_tree_stands_on(three):
    (three.path / "g").write_text("g")
    Writer(three.path / "f").end("kill")
    assert three.seal() == 4
    assert os.readlink(three.epochs_dir / "latest") == "000003"
    assert os.readlink(three.epochs_dir / "current") == "000004"
    assert log_of(three)[4]["complete"] is False
    (three.path / "g").write_text("gg")
    assert three.seal() == 5
    assert os.readlink(three.epochs_dir / "latest") == "000005"


# ---- each row of the table, by ordinary tools and by the command


@pytest.mark.parametrize("how", ["tools", "command"])
def test_seal_and_name(mnt, how):
    (mnt.path / "f").write_text("1")
    if how == "tools":
        run("mkdir", mnt.epochs_dir / "best")
    else:
        epochfs("commit", mnt.path, "--tag", "best", "--step", "7", "-m", "a text")
        assert log_of(mnt)[1]["message"] == "a text" and log_of(mnt)[1]["step"] == 7
    assert mnt.epochs() == [1] and mnt.tags() == {"best": 1}
    assert (mnt.epochs_dir / "best" / "f").read_text() == "1"


@pytest.mark.parametrize("how", ["tools", "command", "command with an epoch"])
def test_wait_for_the_remote(mnt, how):
    (mnt.path / "f").write_bytes(os.urandom(100000))
    if how == "tools":
        run("sync", mnt.epochs_dir)
    elif how == "command":
        epochfs("wait", mnt.path, "--timeout", "60s")
    else:
        epochfs("wait", mnt.path, str(mnt.seal()))
    assert own(mnt.epoch(1))["state"] == "durable"
    assert (mnt.remote / "epochs" / ("%020d.json" % 1)).exists()


@pytest.mark.parametrize("how", ["tools", "command"])
def test_tag_and_untag(three, how):
    if how == "tools":
        run("ln", "-s", "2", three.epochs_dir / "best")
        assert run("ln", "-s", "1", three.epochs_dir / "best", check=False).returncode
    else:
        epochfs("tag", three.path, "2", "best")
        assert epochfs("tag", three.path, "1", "best", check=False).returncode == 8
    assert os.readlink(three.epochs_dir / "best") == "000002" and three.tags() == {"best": 2}
    three.wait_durable()
    wait_until(lambda: (three.remote / "tags" / "best").exists(), "the tag in the remote")
    if how == "tools":
        run("rm", three.epochs_dir / "best")
    else:
        epochfs("tag", "-d", three.path, "best")
    assert three.tags() == {}
    wait_until(lambda: not (three.remote / "tags" / "best").exists(), "the tag to go from the remote")


@pytest.mark.parametrize("how", ["tools", "command"])
def test_roll_back(three, how):
    if how == "tools":
        run("ln", "-sfn", "1", three.epochs_dir / "current")
    else:
        epochfs("rollback", three.path, "1")
    assert (three.path / "f").read_text() == "1"
    assert sorted(os.listdir(three.path)) == ["f", "only-1"]
    assert os.readlink(three.epochs_dir / "current") == "000004"
    assert log_of(three)[4]["restores"] == 1


def dropped_remotely(mnt, number):
    """What is left is a tombstone, which keeps the number from being used again."""
    return number not in in_log(mnt.url) and (mnt.remote / "epochs" / ("%020d.json" % number)).exists()


@pytest.mark.parametrize("how", ["tools", "command"])
def test_drop(three, how):
    three.wait_durable()
    if how == "tools":
        run("rmdir", three.epochs_dir / "000001")
    else:
        epochfs("rm", three.path, "1")
    assert three.epochs() == [2, 3]
    assert fails(errno.ENOENT, os.stat, three.epoch(1))
    wait_until(lambda: dropped_remotely(three, 1), "the epoch to go from the remote")
    assert (three.epoch(2) / "only-1").read_text() == "1"


def test_a_mount_of_one_epoch_by_a_machine_that_has_nothing(three):
    three.wait_durable()
    three.unmount()
    three.empty_cache()
    three.mount(ro=True, epoch=2)
    assert (three.path / "f").read_text() == "2"
    assert sorted(os.listdir(three.path)) == ["f", "only-1", "only-2"]
    assert fails(errno.EROFS, (three.path / "f").write_text, "x")


# ---- what .epochs refuses


def test_everything_else_in_epochs_is_read_only(three):
    e = three.epochs_dir
    os.symlink("1", e / "best")
    before = run("ls", "-l", e).stdout
    for number, call, *arguments in [
            (errno.EROFS, os.open, e / "file", os.O_CREAT | os.O_WRONLY),
            (errno.EROFS, os.mkfifo, e / "fifo"),
            (errno.EROFS, os.symlink, "../f", e / "elsewhere"),
            (errno.EROFS, os.link, three.path / "f", e / "hard"),
            (errno.EROFS, os.rename, three.path / "f", e / "moved"),
            (errno.EROFS, os.rename, e / "000001", e / "moved"),
            (errno.EROFS, os.unlink, e / "latest"),
            (errno.EROFS, os.unlink, e / "current"),
            (errno.EROFS, os.unlink, e / "1"),
            (errno.EROFS, os.rmdir, e / "torn"),
            (errno.EROFS, os.chmod, e, 0o700),
            (errno.EROFS, os.utime, e / "000001"),
            (errno.EROFS, os.setxattr, e / "000001", "user.x", b"y"),
            (errno.EROFS, os.truncate, e / "000001" / "f", 0),
            (errno.EROFS, os.rename, e / "000001" / "f", three.path / "g")]:
        assert fails(number, call, *arguments), (call, arguments)
    assert run("ls", "-l", e).stdout == before


def test_an_epoch_that_is_needed_is_not_dropped(three):
    e = three.epochs_dir
    os.symlink("1", e / "best")
    assert fails(errno.EBUSY, os.rmdir, three.epoch(1))  # tagged
    assert epochfs("rm", three.path, "1", check=False).returncode == 8
    (three.path / "g").write_text("1")
    Writer(three.path / "f").end("kill")
    assert three.seal() == 4
    assert fails(errno.EBUSY, os.rmdir, three.epoch(3))  # the newest complete one
    assert fails(errno.EBUSY, os.rmdir, three.epoch(4))  # current
    (three.path / "g").write_text("g")
    assert three.seal() == 5
    os.rmdir(three.epoch(3))
    os.rmdir(three.epoch(4))
    assert three.epochs() == [1, 2, 5]


@pytest.mark.parametrize("name", ["42", "000042", "1", "latest", "current", "torn"])
def test_mkdir_of_a_number_or_a_reserved_name(three, name):
    (three.path / "new").touch()
    assert fails(errno.EEXIST, os.mkdir, three.epochs_dir / name)
    assert fails(errno.EEXIST, os.symlink, "1", three.epochs_dir / name)
    assert three.epochs() == [1, 2, 3]


def test_a_link_may_be_made_under_a_temporary_name_and_renamed(three):
    e = three.epochs_dir
    run("ln", "-sfn", "1", e / "best")
    run("ln", "-sfn", "2", e / "best")
    assert os.readlink(e / "best") == "000002"
    os.symlink("3", e / ".new")
    os.rename(e / ".new", e / "best")
    assert three.tags() == {"best": 3}
    os.symlink("1", e / ".new")
    os.rename(e / ".new", e / "current")
    assert (three.path / "f").read_text() == "1"
    assert sorted(os.listdir(e)) == ["000001", "000002", "000003", "000004", "best", "current", "latest", "torn"]


def test_numbers_are_never_used_again(three):
    """Also where a machine that never saw the dropped epoch goes on."""
    three.wait_durable()
    os.rmdir(three.epoch(1))
    os.rmdir(three.epoch(2))
    assert save(three, "4") == 4
    os.rmdir(three.epoch(3))
    three.wait_durable()
    wait_until(lambda: all(dropped_remotely(three, n) for n in (1, 2, 3)), "the epochs to go from the remote")
    three.remount(empty_cache=True)
    assert three.epochs() == [4]
    for number in (1, 2, 3):
        assert fails(errno.ENOENT, os.stat, three.epoch(number))
    assert save(three, "5") == 5
    assert (three.epoch(4) / "f").read_text() == "4"


# ---- rollback


def test_a_rollback_seals_what_is_pending_makes_a_new_epoch_and_can_be_undone(three):
    (three.path / "f").write_text("pending")
    (three.path / "d").mkdir()
    os.unlink(three.path / "only-1")
    assert three.rollback(2) == 5
    assert three.epochs() == [1, 2, 3, 4, 5]
    assert sorted(os.listdir(three.path)) == sorted(os.listdir(three.epoch(5))) == sorted(os.listdir(three.epoch(2)))
    assert (three.path / "f").read_text() == (three.epoch(5) / "f").read_text() == "2"
    assert (three.epoch(4) / "f").read_text() == "pending"
    records = log_of(three)
    assert records[4]["trigger"] == "rollback" and records[5]["restores"] == 2
    assert three.rollback(4) == 6
    assert (three.path / "f").read_text() == "pending"
    assert sorted(os.listdir(three.path)) == ["d", "f", "only-2", "only-3"]
    for number, text in ((1, "1"), (2, "2"), (3, "3"), (4, "pending")):
        assert (three.epoch(number) / "f").read_text() == text


def test_a_rollback_brings_everything_back_as_it_was(mnt):
    top = mnt.path
    (top / "d").mkdir()
    (top / "d" / "f").write_bytes(b"x" * 100000)
    os.link(top / "d" / "f", top / "hard")
    os.symlink("d/f", top / "soft")
    os.setxattr(top / "d" / "f", "user.note", b"kept")
    os.chmod(top / "d" / "f", 0o640)
    os.utime(top / "d" / "f", ns=(1, 1234567890123456789))
    os.utime(top / "d", ns=(1, 1234567890987654321))
    number = mnt.seal()
    run("rm", "-r", *top.iterdir())
    (top / "d").write_text("a file now")
    mnt.rollback(number)
    st = os.stat(top / "d" / "f")
    assert (top / "d" / "f").read_bytes() == b"x" * 100000
    assert (st.st_mtime_ns, stat.S_IMODE(st.st_mode), st.st_nlink) == (1234567890123456789, 0o640, 2)
    assert os.stat(top / "hard").st_ino == st.st_ino
    assert os.readlink(top / "soft") == "d/f"
    assert os.getxattr(top / "d" / "f", "user.note") == b"kept"
    assert os.stat(top / "d").st_mtime_ns == 1234567890987654321


def test_open_files_keep_what_they_have_open_over_a_rollback(three):
    with open(three.path / "f") as changed, open(three.path / "only-3") as gone:
        three.rollback(1)
        assert changed.read() == "3" and gone.read() == "3"
        assert (three.path / "f").read_text() == "1"


@pytest.mark.parametrize("size", [10, 100000])
def test_the_last_close_of_a_removed_file_takes_nothing_from_the_one_that_is_back(mnt, size):
    """A rollback removed it while it was open, another brought it back: both have the same content."""
    (mnt.path / "f").write_bytes(b"x" * size)
    number = mnt.seal()
    (mnt.path / "f").unlink()
    empty = mnt.seal()
    mnt.rollback(number)
    with open(mnt.path / "f") as kept:
        mnt.rollback(empty)
        mnt.rollback(number)
        mnt.wait_durable()
        assert len(kept.read()) == size
    for name in ("one", "two"):
        (mnt.path / name).touch()
        mnt.seal()  # sees the close
        mnt.wait_durable()
    assert (mnt.path / "f").read_bytes() == b"x" * size and own(mnt.path / "f")["state"] == "durable"


@pytest.mark.parametrize("mode", ["wb", "r+b", "ab"])
def test_what_is_open_for_writing_over_a_rollback_is_torn(three, mode):
    """It lands in .epochs/torn when it is closed, and changes nothing."""
    writers = [Writer(three.path / "f", mode=mode), Writer(three.path / "new", mode="wb")]
    three.rollback(1)
    for writer in writers:
        writer.leave()
    names = wait_until(lambda: len(three.torn()) == 2 and three.torn(), "two torn files")
    assert {n.split("-", 1)[1] for n in names} == {"f", "new"}
    for name in names:
        assert b"NEW" * 1000 in (three.epochs_dir / "torn" / name).read_bytes()
    assert (three.path / "f").read_text() == "1"
    assert sorted(os.listdir(three.path)) == ["f", "only-1"]
    (three.path / "after").touch()
    number = three.seal()
    assert sorted(os.listdir(three.epoch(number))) == ["after", "f", "only-1"]
    assert (three.epoch(number) / "f").read_text() == "1"


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_what_was_no_file_before_a_rollback_is_not_torn_by_it(three, how):
    """The close of a file without a name leaves nothing, with a rollback before it or without."""
    writer = Writer(three.path / "f", mode="wb")
    (three.path / "other").write_text("other")
    if how == "replaced":
        os.rename(three.path / "other", three.path / "f")
    else:
        os.unlink(three.path / "f")
    three.rollback(1)
    named = Writer(three.path / "f", mode="wb")
    three.rollback(1)
    writer.leave()
    named.leave()
    names = wait_until(three.torn, "a torn file")
    assert [name.split("-", 1)[1] for name in names] == ["f"]


def test_a_log_is_truncated_at_once_also_where_a_rollback_gave_it_another_node(mnt):
    """As any log (contract 1.2.5): it is no replacement, which nobody would see before its close."""
    log = mnt.path / "t.log"
    with open(log, "w+b", buffering=0) as before:
        before.write(b"12345")
        number = mnt.seal()
        mnt.rollback(number)
        writer = python(
            "import os,sys\nfd=os.open(sys.argv[1],os.O_WRONLY|os.O_TRUNC)\nprint('x',flush=True)\nsys.stdin.read()", log)
        writer.stdout.readline()
        assert log.read_bytes() == b""
        writer.stdin.close()
        assert writer.wait(timeout=60) == 0
        writer.stdout.close()


def test_an_epoch_made_by_a_rollback_is_as_complete_as_the_one_that_it_restores(three):
    """A killed writer whose file was undone has left nothing in it; one that left something has left it there, too."""
    Writer(three.path / "f").end("kill")
    assert three.rollback(2) == 4
    assert log_of(three)[4]["complete"] is True and os.readlink(three.epochs_dir / "latest") == "000004"
    (three.path / "half a save").write_text("1")
    Writer(three.path / "f").end("kill")
    assert three.rollback(2) == 6
    assert log_of(three)[5]["complete"] is False and log_of(three)[6]["complete"] is True
    assert three.rollback(5) == 7
    assert log_of(three)[7]["complete"] is False and "epoch 5" in log_of(three)[7]["reason"]
    assert os.readlink(three.epochs_dir / "latest") == "000006"


# ---- inode numbers and attributes


def test_inode_numbers_of_epochs_are_their_own(three):
    """Else cp says "are the same file"."""
    numbers = {}
    for root in [three.path, *(three.epoch(n) for n in (1, 2, 3))]:
        for path in [root, *root.iterdir()]:
            assert numbers.setdefault(os.stat(path).st_ino, path) == path
    assert os.stat(three.epoch(1) / "f").st_ino == os.stat(three.epoch(1) / "f").st_ino
    done = run("cp", "-a", three.epoch(1) / "f", three.path / "f")
    assert done.stderr == ""
    assert (three.path / "f").read_text() == "1"
    assert os.stat(three.path / "f").st_mtime_ns == os.stat(three.epoch(1) / "f").st_mtime_ns


def test_attributes_show_the_way_of_a_file_to_the_remote(volume):
    control = volume.base / "control"
    control.write_text("create.delay=1h\nonly=epochs/")
    volume.url = "fault+file://%s?control=%s" % (volume.remote, control)
    mnt = volume.mount(settle="1h", node="node7")
    (mnt.path / "step-12").mkdir()
    f = mnt.path / "step-12" / "f"
    f.write_bytes(os.urandom(50000))
    assert own(f) == {"state": "staged"}
    number = mnt.seal()
    wait_until(lambda: own(mnt.epoch(number))["state"] == "uploading", "the upload")
    assert own(f) == {"state": "uploading", "epoch": "1", "step": "12"}
    (mnt.path / "g").write_text("x")
    assert mnt.seal() == 2
    assert own(mnt.path / "g")["state"] == own(mnt.epoch(2))["state"] == "sealed"
    control.unlink()
    mnt.unmount()  # nothing waits for the hour of delay
    mnt.mount(settle="1h", node="node7")
    mnt.wait_durable()
    assert own(f) == {"state": "durable", "epoch": "1", "step": "12"}
    epoch = own(mnt.epoch(1))
    del epoch["bytes_new"]
    assert epoch == {"state": "durable", "epoch": "1", "step": "12", "complete": "true", "nodes": "node7",
                     "bytes": "50000"}
    shown = run("getfattr", "-d", "-m", "user.epochfs", mnt.epoch(1)).stdout
    assert 'user.epochfs.complete="true"' in shown and 'user.epochfs.bytes="50000"' in shown


def test_attributes_show_what_failed(mnt):
    """Another writer took the number: this one keeps its work and says so."""
    (mnt.path / "f").write_text("1")
    mnt.seal()
    mnt.wait_durable()
    taken = mnt.remote / "epochs" / ("%020d.json" % 2)
    other = json.loads((mnt.remote / "epochs" / ("%020d.json" % 1)).read_text())
    other.update(epoch=2, parent=1, host="elsewhere")
    taken.write_text(json.dumps(other))
    (mnt.path / "f").write_text("2")
    assert mnt.seal() == 2
    epoch = wait_until(lambda: own(mnt.epoch(2))["state"] == "failed" and own(mnt.epoch(2)), "the conflict")
    assert "another writer" in epoch["error"]
    assert own(mnt.path / "f")["state"] == "failed"
    assert "another writer" in mnt.status()["upload"]["error"]
    assert (mnt.epoch(2) / "f").read_text() == "2"
    assert json.loads(taken.read_text())["host"] == "elsewhere"


def test_what_is_new_is_counted(mnt):
    (mnt.path / "small").write_text("12345")
    (mnt.path / "large").write_bytes(os.urandom(100000))
    mnt.seal()
    mnt.wait_durable()
    (mnt.path / "more").write_text("123")
    mnt.seal()
    mnt.wait_durable()
    assert [(own(mnt.epoch(n))["bytes"], own(mnt.epoch(n))["bytes_new"]) for n in (1, 2)] == \
        [("100005", "100005"), ("100008", "3")]


def test_python_finds_nothing_but_its_own_names(three):
    """As AdaptDL, accelerate and Megatron list their directory while epochs are made."""
    code = """
import os, pathlib, sys
top = pathlib.Path(sys.argv[1])
for i in range(20):
    (top / ("checkpoint-%d" % i)).mkdir()
    os.mkdir(top / ".epochs" / ("t%d" % i))
    names = sorted(p.name for p in top.iterdir() if p.is_dir())
    assert [int(n.split("-")[1]) for n in names] == sorted(range(i + 1), key=str), names
    assert len(list(top.rglob("checkpoint-*"))) == i + 1
"""
    lister = python(code, three.path)
    assert lister.wait(timeout=60) == 0
    lister.stdin.close()
    lister.stdout.close()
    assert len(three.epochs()) == 23


def test_a_file_made_by_an_open_that_only_reads_is_in_the_epoch(mnt):
    """It is not open for writing: what others put into it is closed, though its maker, or a mapping of his, is there still."""
    fd = os.open(mnt.path / "lock", os.O_RDONLY | os.O_CREAT, 0o640)
    number = mnt.seal()
    assert (mnt.epoch(number) / "lock").read_bytes() == b""
    assert (mnt.epoch(number) / "lock").stat().st_mode & 0o777 == 0o640
    (mnt.path / "lock").write_bytes(b"by another")
    assert os.read(fd, 100) == b"by another"
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapping:
        os.close(fd)
        number = mnt.seal()
        assert (mnt.epoch(number) / "lock").read_bytes() == mapping[:] == b"by another"
    with pytest.raises(FileExistsError):
        os.open(mnt.path / "lock", os.O_RDONLY | os.O_CREAT | os.O_EXCL)
