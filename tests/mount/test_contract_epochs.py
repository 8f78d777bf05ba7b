# SPDX-License-Identifier: Apache-2.0
"""What the README says of epochs: .epochs as ordinary tools use it, and when an epoch is sealed."""

import contextlib
import datetime
import errno
import json
import os
import stat
import struct
import zipfile

import pytest

from conftest import BIN, python, run, wait_until
from test_contract_writing import Writer


def epochfs(*arguments, **keywords):
    return run(BIN, *arguments, **keywords)


def log_of(mnt):
    return {e["epoch"]: e for e in mnt.request("log")["epochs"]}


def sealed(mnt, number):
    """Waits until this epoch is there: its record, and it is the newest."""
    wait_until(lambda: number in mnt.epochs(), "epoch %d" % number)
    records = log_of(mnt)
    assert max(records) == number
    return records[number]


def seal(mnt):
    """Seals an epoch now: its record."""
    number = mnt.seal()
    return log_of(mnt)[number]


def not_sealed(mnt):
    """What was done since the last epoch sealed none: the next number is that of this explicit seal."""
    last = max(mnt.epochs(), default=0)
    number = mnt.seal()
    assert number == last + 1
    assert log_of(mnt)[number]["trigger"] == "commit"
    return number


def pending(mnt):
    return mnt.status()["pending"]


def held_up_by(mnt, what):
    """Waits until this is what the sealer waits for."""
    return wait_until(lambda: pending(mnt).get("held_up", {}).get("by", "").startswith(what) and pending(mnt), what)


@contextlib.contextmanager
def one_save(mnt):
    """What is done inside is one epoch by quiet, however slow the machine: an open new file holds the seal up."""
    with open(mnt.path / ".hold", "xb"):
        yield
    os.unlink(mnt.path / ".hold")


def fails(number, call, *arguments):
    with pytest.raises(OSError) as error:
        call(*arguments)
    return errno.errorcode[error.value.errno] == errno.errorcode[number]


def own(path):
    return {n[len("user.epochfs."):]: os.getxattr(path, n).decode()
            for n in os.listxattr(path) if n.startswith("user.epochfs.")}


@pytest.fixture
def three(mnt):
    """Epochs 1 to 3 with the file `f` of that text; the live tree is as epoch 3."""
    for text in "123":
        (mnt.path / "f").write_text(text)
        (mnt.path / ("only-" + text)).write_text(text)
        mnt.seal()
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
    Writer(three.path / "f").end("kill")
    (three.path / "g").write_text("g")
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


@pytest.mark.parametrize("how", ["tools", "command"])
def test_drop(three, how):
    three.wait_durable()
    if how == "tools":
        run("rmdir", three.epochs_dir / "000001")
    else:
        epochfs("rm", three.path, "1")
    assert three.epochs() == [2, 3]
    assert fails(errno.ENOENT, os.stat, three.epoch(1))
    remotely = three.remote / "epochs" / ("%020d.json" % 1)
    wait_until(lambda: not remotely.exists() or "dropped" in remotely.read_text(), "the epoch to go from the remote")
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
    Writer(three.path / "f").end("kill")
    (three.path / "g").touch()
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
    (three.path / "f").write_text("4")
    assert three.seal() == 4
    os.rmdir(three.epoch(3))
    three.remount(empty_cache=True)
    assert three.epochs() == [4]
    for number in (1, 2, 3):
        assert fails(errno.ENOENT, os.stat, three.epoch(number))
    (three.path / "f").write_text("5")
    assert three.seal() == 5
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
    assert epoch.pop("bytes_new") == "50000"
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
    mnt.seal()
    mnt.wait_durable()
    (mnt.path / "more").write_text("123")
    mnt.seal()
    mnt.wait_durable()
    assert [(own(mnt.epoch(n))["bytes"], own(mnt.epoch(n))["bytes_new"]) for n in (1, 2)] == [("5", "5"), ("8", "3")]


# ---- sealed at once


@pytest.mark.parametrize("trigger", ["commit", "mkdir", "sync", "wait", "umount", "rollback", "the signal"])
def test_what_seals_at_once(mnt, trigger):
    (mnt.path / "f").write_text("1")
    mnt.seal()
    (mnt.path / "f").write_text("2")
    if trigger == "commit":
        epochfs("commit", mnt.path)
    elif trigger == "mkdir":
        os.mkdir(mnt.epochs_dir / "now")
    elif trigger == "sync":
        run("sync", mnt.epochs_dir)
    elif trigger == "wait":
        epochfs("wait", mnt.path)
    elif trigger == "umount":
        mnt.remount()
    elif trigger == "the signal":
        mnt.terminate()
        mnt.mount()
    else:
        mnt.rollback(1)
    assert (mnt.epoch(2) / "f").read_text() == "2"
    record = log_of(mnt)[2]
    # `sync` and `wait` are one request to the volume.
    names = {"sync": ("sync", "wait"), "the signal": ("umount",)}.get(trigger, (trigger,))
    assert record["trigger"] in names and record["complete"] is True
    assert mnt.epochs() == ([1, 2, 3] if trigger == "rollback" else [1, 2])


def test_the_commands_umount_seals_and_drains(mnt):
    (mnt.path / "f").write_text("1")
    epochfs("umount", mnt.path)
    mnt.wait_end()
    assert (mnt.remote / "epochs" / ("%020d.json" % 1)).exists()
    mnt.mount()
    assert log_of(mnt)[1]["trigger"] == "umount"


def test_nothing_changed_is_no_new_epoch(three):
    assert three.seal() == 3
    three.wait_durable()
    three.remount()
    os.mkdir(three.epochs_dir / "name")
    assert three.epochs() == [1, 2, 3] and three.tags() == {"name": 3}


@pytest.mark.parametrize("old, new", [
    ("_checkpoint", "checkpoint-3"), ("tmp-checkpoint-3", "checkpoint-3"), ("x.tmp-dir", "x"),
    ("checkpoint_temp", "checkpoint"), ("3.orbax-checkpoint-tmp-17", "3")])
def test_a_directory_with_a_temporary_name_made_final_seals(mnt, old, new):
    (mnt.path / old).mkdir()
    (mnt.path / old / "state").write_text("1")
    os.rename(mnt.path / old, mnt.path / new)
    (mnt.path / "after").write_text("not in it")
    record = sealed(mnt, 1)
    assert record["trigger"] == "rename" and record["complete"] is True
    assert os.listdir(mnt.epoch(1)) == [new] and os.listdir(mnt.epoch(1) / new) == ["state"]


@pytest.mark.parametrize("old", ["model.tmp", "model.tmp1234", ".model.tmp.x", "model_temp"])
def test_a_file_with_a_temporary_name_made_final_seals(mnt, old):
    (mnt.path / "model").write_text("0")
    mnt.seal()
    (mnt.path / old).write_text("1")
    os.rename(mnt.path / old, mnt.path / "model")
    assert sealed(mnt, 2)["trigger"] == "rename"
    assert (mnt.epoch(2) / "model").read_text() == "1" and os.listdir(mnt.epoch(2)) == ["model"]


@pytest.mark.options(temporary="*.part", settle="1h")
def test_more_names_can_be_temporary(mnt):
    (mnt.path / "model.part").write_text("1")
    os.rename(mnt.path / "model.part", mnt.path / "model")
    assert sealed(mnt, 1)["trigger"] == "rename"


@pytest.mark.parametrize("old, new", [("a", "b"), ("a", "a.tmp"), ("a.tmp", "b.tmp")])
def test_another_rename_seals_nothing(mnt, old, new):
    (mnt.path / old).write_text("1")
    os.rename(mnt.path / old, mnt.path / new)
    not_sealed(mnt)


def test_a_rename_does_not_seal_while_another_new_file_is_open_for_writing(mnt):
    with open(mnt.path / "optimizer", "wb") as other:
        other.write(b"half")
        (mnt.path / "model.tmp").write_text("1")
        os.rename(mnt.path / "model.tmp", mnt.path / "model")
        assert not_sealed(mnt) == 1
        assert os.listdir(mnt.epoch(1)) == ["model"]
        # Now it is older than the last epoch, and holds up no more.
        (mnt.path / "model.tmp").write_text("2")
        os.rename(mnt.path / "model.tmp", mnt.path / "model")
        assert sealed(mnt, 2)["trigger"] == "rename"


@pytest.mark.options(marker="DONE", settle="1h")
@pytest.mark.parametrize("how", ["closed", "renamed"])
def test_a_marker_seals_when_it_is_closed_or_renamed_into_place(mnt, how):
    (mnt.path / "model").write_text("1")
    if how == "closed":
        (mnt.path / "DONE").write_text("")
    else:
        (mnt.path / "whatever").write_text("")
        os.rename(mnt.path / "whatever", mnt.path / "DONE")
    record = sealed(mnt, 1)
    assert record["trigger"] == "marker"
    assert sorted(os.listdir(mnt.epoch(1))) == ["DONE", "model"]
    # And again, written anew.
    (mnt.path / "model").write_text("2")
    (mnt.path / "DONE").write_text("again")
    assert sealed(mnt, 2)["trigger"] == "marker"


def test_several_markers(volume):
    command = volume.command
    volume.command = lambda **options: [w for word in command(**options) for w in (
        [word, "-o", "marker=trainer_state.json,marker=latest*.txt"] if word == "-f" else [word])]
    mnt = volume.mount(settle="1h")
    (mnt.path / "trainer_state.json").write_text("{}")
    assert sealed(mnt, 1)["trigger"] == "marker"
    (mnt.path / "latest_iteration.txt").write_text("7")
    assert sealed(mnt, 2)["trigger"] == "marker"
    (mnt.path / "other.txt").write_text("7")
    not_sealed(mnt)


@pytest.mark.options(marker="DONE", settle="1h")
def test_a_marker_does_not_seal_while_another_new_file_is_open_for_writing(mnt):
    with open(mnt.path / "model", "wb"):
        (mnt.path / "DONE").write_text("")
        assert not_sealed(mnt) == 1


# ---- sealed by quiet


@pytest.mark.options(settle="300ms")
def test_quiet_seals(mnt):
    with one_save(mnt):
        for name in "abc":
            (mnt.path / name).write_text(name)
    record = sealed(mnt, 1)
    assert record["trigger"] == "quiet" and record["complete"] is True
    assert sorted(os.listdir(mnt.epoch(1))) == ["a", "b", "c"]


def test_five_seconds_of_quiet_are_the_default(volume):
    mnt = volume.mount()
    (mnt.path / "f").touch()
    held = held_up_by(mnt, "waiting for quiet")["held_up"]
    assert held["for_ns"] <= 5 * 10**9
    assert sealed(mnt, 1)["trigger"] == "quiet"


@pytest.mark.options(settle="1h", patience="1ms")
@pytest.mark.parametrize("what", ["create", "close", "write", "rename", "remove"])
def test_what_happens_starts_the_quiet_again(mnt, what):
    (mnt.path / "f").write_text("1")
    (mnt.path / "g").write_text("1")
    new = open(mnt.path / "new", "wb", buffering=0)

    def left():
        return pending(mnt)["held_up"]["for_ns"]

    def happen():
        if what == "create":
            (mnt.path / "dir").mkdir()
            os.rmdir(mnt.path / "dir")
        elif what == "close":
            (mnt.path / "f").write_text("1")
        elif what == "write":
            new.write(b"x")
        elif what == "rename":
            os.rename(mnt.path / "f", mnt.path / "h")
            os.rename(mnt.path / "h", mnt.path / "f")
        else:
            (mnt.path / "gone").touch()
            os.unlink(mnt.path / "gone")

    def grew():
        happen()
        return left() > least

    held_up_by(mnt, "waiting for quiet")
    first = left()
    least = wait_until(lambda: left() < first - 50 * 10**6 and left(), "time to pass")
    wait_until(grew, "the quiet to start again")
    # Attributes do not disturb it.
    least = left()
    os.chmod(mnt.path / "g", 0o600)
    os.utime(mnt.path / "g")
    os.setxattr(mnt.path / "g", "user.x", b"y")
    assert left() < least
    new.close()


@pytest.mark.options(settle="100ms", patience="1h")
def test_a_version_that_is_being_written_holds_quiet_up(mnt):
    writer = Writer(mnt.path / "model")
    (mnt.path / "closed").write_text("1")
    held = held_up_by(mnt, "open: model by ")
    assert "(pid %d)" % writer.process.pid in held["held_up"]["by"]
    assert held["held_up"]["for_ns"] > 10**9 and mnt.epochs() == []
    writer.leave()
    assert sorted(os.listdir(mnt.epoch(sealed(mnt, 1)["epoch"]))) == ["closed", "model"]


@pytest.mark.options(settle="100ms", patience="1h")
def test_a_replacement_holds_quiet_up_too(mnt):
    (mnt.path / "model").write_text("1")
    mnt.seal()
    writer = Writer(mnt.path / "model")
    (mnt.path / "closed").write_text("1")
    held_up_by(mnt, "open: model by ")
    writer.leave()
    assert (mnt.epoch(sealed(mnt, 2)["epoch"]) / "model").read_bytes() == b"NEW" * 1000


@pytest.mark.options(settle="100ms", patience="1h")
@pytest.mark.parametrize("name", ["_checkpoint", "tmp-500", "model.tmp", "x.tmp.12", "run_temp",
                                  "4.orbax-checkpoint-tmp-99"])
def test_a_temporary_name_holds_quiet_up(mnt, name):
    with one_save(mnt):
        (mnt.path / "other").write_text("1")
        (mnt.path / name).mkdir()
    held = held_up_by(mnt, "temporary name: " + name)
    assert held["held_up"]["for_ns"] > 10**9 and mnt.epochs() == []
    os.rmdir(mnt.path / name)
    assert sealed(mnt, 1)["trigger"] == "quiet"


@pytest.mark.options(settle="100ms", patience="1h", temporary="*.part")
def test_a_temporary_name_of_the_options_holds_quiet_up(mnt):
    (mnt.path / "a.part").write_text("1")
    held_up_by(mnt, "temporary name: a.part")
    os.unlink(mnt.path / "a.part")
    (mnt.path / "a").write_text("1")
    assert sealed(mnt, 1)["trigger"] == "quiet"


@pytest.mark.options(settle="100ms", patience="300ms")
def test_unfinished_work_that_does_not_change_is_waited_for_no_longer_than_patience(mnt):
    writer = Writer(mnt.path / "model")
    (mnt.path / "tmp-forgotten").mkdir()
    (mnt.path / "closed").write_text("1")
    wait_until(lambda: any((mnt.epoch(n) / "closed").exists() for n in mnt.epochs()), "an epoch with what is closed")
    assert not (mnt.epoch(max(mnt.epochs())) / "model").exists()
    writer.leave()


@pytest.mark.options(settle="100ms", patience="1h")
@pytest.mark.parametrize("kind", ["a log", "an edit in place", "open since before the last epoch",
                                  "a temporary name of before the last epoch"])
def test_what_holds_nothing_up(mnt, kind):
    (mnt.path / "db").write_bytes(b"0" * 10000)
    writer = None
    if kind == "a log":
        mnt.seal()
        writer = Writer(mnt.path / "train.log", mode="ab")
    elif kind == "an edit in place":
        mnt.seal()
        writer = Writer(mnt.path / "db", mode="r+b")
    elif kind == "open since before the last epoch":
        writer = Writer(mnt.path / "model")
        mnt.seal()
    else:
        (mnt.path / "tmp-old").mkdir()
        mnt.seal()
    before = max(mnt.epochs())
    (mnt.path / "closed").write_text("1")
    wait_until(lambda: max(mnt.epochs()) > before, "an epoch by quiet")
    assert (mnt.epoch(max(mnt.epochs())) / "closed").exists()
    if writer:
        writer.leave()


@pytest.mark.options(settle="0")
def test_without_settle_the_last_close_seals(mnt):
    (mnt.path / "d").mkdir()
    writer = Writer(mnt.path / "d" / "second")
    (mnt.path / "d" / "first").write_text("1")
    assert mnt.epochs() == []
    writer.leave()
    record = sealed(mnt, 1)
    assert record["trigger"] == "close"
    assert sorted(os.listdir(mnt.epoch(1) / "d")) == ["first", "second"]
    for number in (2, 3, 4):
        (mnt.path / "d" / "first").write_text(str(number))
        assert sealed(mnt, number)["trigger"] == "close"
        assert (mnt.epoch(number) / "d" / "first").read_text() == str(number)


# ---- continues


@pytest.mark.options(settle="200ms")
def test_an_epoch_that_came_too_early_is_continued(mnt):
    """Names come under a directory that it made: it no longer counts as complete."""
    with one_save(mnt):
        (mnt.path / "old").write_text("1")
    sealed(mnt, 1)
    with one_save(mnt):
        (mnt.path / "run" / "checkpoint-5").mkdir(parents=True)
        (mnt.path / "run" / "checkpoint-5" / "model").write_text("m")
    sealed(mnt, 2)
    assert os.readlink(mnt.epochs_dir / "latest") == "000002"
    with one_save(mnt):
        (mnt.path / "run" / "checkpoint-5" / "optimizer").write_text("o")
    assert sealed(mnt, 3)["continues"] == 2
    assert log_of(mnt)[2]["complete"] is False and own(mnt.epoch(2))["complete"] == "false"
    assert log_of(mnt)[3]["complete"] is True
    assert os.readlink(mnt.epochs_dir / "latest") == "000003"
    # It stays so for a machine that knows it from the remote only.
    mnt.remount(empty_cache=True)
    assert own(mnt.epoch(2))["complete"] == "false" and own(mnt.epoch(3))["complete"] == "true"


@pytest.mark.options(settle="200ms")
@pytest.mark.parametrize("change", ["another directory", "a file of it written again"])
def test_what_comes_elsewhere_continues_nothing(mnt, change):
    with one_save(mnt):
        (mnt.path / "checkpoint-5").mkdir()
        (mnt.path / "checkpoint-5" / "model").write_text("m")
    sealed(mnt, 1)
    with one_save(mnt):
        if change == "another directory":
            (mnt.path / "checkpoint-6").mkdir()
            (mnt.path / "checkpoint-6" / "model").write_text("m")
        else:
            (mnt.path / "checkpoint-5" / "model").write_text("n")
    assert "continues" not in sealed(mnt, 2)
    assert [e["complete"] for e in log_of(mnt).values()] == [True, True]


def test_what_was_sealed_by_request_did_not_come_too_early(mnt):
    (mnt.path / "d").mkdir()
    (mnt.path / "d" / "a").touch()
    mnt.seal()
    (mnt.path / "d" / "b").touch()
    mnt.seal()
    assert all(e["complete"] and "continues" not in e for e in log_of(mnt).values())


# ---- torn inside although closed


def write_zip(path):
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("archive/data.pkl", os.urandom(50000))


def write_safetensors(path):
    header = json.dumps({"w": {"dtype": "F32", "shape": [10000], "data_offsets": [0, 40000]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + os.urandom(40000))


def write_hdf5(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as f:
        f["w"] = list(range(10000))


FORMATS = {"model.pt": write_zip, "model.safetensors": write_safetensors, "model.h5": write_hdf5}


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_torn_inside_makes_the_epoch_incomplete_with_its_name(mnt, tmp_path, name):
    FORMATS[name](mnt.path / name)
    assert seal(mnt)["complete"] is True
    whole = tmp_path / name
    FORMATS[name](whole)
    # As Ctrl-C in the middle of a save leaves it: closed in order.
    (mnt.path / name).write_bytes(whole.read_bytes()[:-3000])
    (mnt.path / "fine").write_text("1")
    record = seal(mnt)
    assert record["complete"] is False and name in record["reason"]
    assert os.readlink(mnt.epochs_dir / "latest") == "000001"
    # The next whole save is complete again.
    (mnt.path / name).write_bytes(whole.read_bytes())
    assert seal(mnt)["complete"] is True
    assert os.readlink(mnt.epochs_dir / "latest") == "000003"


# ---- what rides


def change_attributes(path):
    os.chmod(path / "f", 0o600)


def change_times(path):
    os.utime(path / "f", ns=(1, 2))


def change_xattrs(path):
    os.setxattr(path / "f", "user.x", b"y")


def delete(path):
    os.unlink(path / "g")
    os.rmdir(path / "d")


RIDERS = [delete, change_attributes, change_times, change_xattrs]


@pytest.mark.options(settle="100ms")
@pytest.mark.parametrize("ride", RIDERS)
def test_deletions_and_attributes_alone_open_no_epoch(mnt, ride):
    with one_save(mnt):
        (mnt.path / "f").write_text("1")
        (mnt.path / "g").write_text("1")
        (mnt.path / "d").mkdir()
    sealed(mnt, 1)
    ride(mnt.path)
    held = pending(mnt)
    assert held["changes"] == "changes that ride in the next epoch" and "held_up" not in held
    with one_save(mnt):
        (mnt.path / "f2").write_text("1")
    sealed(mnt, 2)
    compare(mnt, 2)


def compare(mnt, number):
    """The epoch is as the live tree is."""
    names = sorted(os.listdir(mnt.path))
    assert sorted(os.listdir(mnt.epoch(number))) == names
    for name in names:
        live, kept = os.stat(mnt.path / name), os.stat(mnt.epoch(number) / name)
        assert (live.st_mode, live.st_mtime_ns) == (kept.st_mode, kept.st_mtime_ns)
        attributes = [[(n, os.getxattr(p / name, n)) for n in os.listxattr(p / name) if "epochfs" not in n]
                      for p in (mnt.path, mnt.epoch(number))]
        assert attributes[0] == attributes[1]


@pytest.mark.parametrize("ride", RIDERS)
@pytest.mark.parametrize("how", ["commit", "umount"])
def test_commit_and_unmount_seal_what_rides(mnt, ride, how):
    (mnt.path / "f").write_text("1")
    (mnt.path / "g").write_text("1")
    (mnt.path / "d").mkdir()
    mnt.seal()
    ride(mnt.path)
    if how == "commit":
        assert mnt.seal() == 2
    else:
        mnt.remount()
    assert mnt.epochs() == [1, 2]
    compare(mnt, 2)


# ---- numbers, steps, names of epochs


def test_numbers_rise_by_one_from_one(mnt):
    numbers = []
    for i in range(5):
        (mnt.path / "f").write_text(str(i))
        numbers.append(mnt.seal())
        if i == 2:
            mnt.remount()
        if i == 3:
            mnt.kill()
            mnt.mount()
    assert numbers == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("path, step", [
    ("checkpoint-500/model.bin", 500), ("epoch=3-step=400.ckpt", 400), ("global_step12/mp_rank_00_states.pt", 12),
    ("iter_0000100/mp_rank_00/model.pt", 100), ("step-7/__0_0.distcp", 7), ("model.7", 7),
    ("model.ckpt-20.index", 20), ("checkpoint_000031/data", 31), ("000012/state", 12), ("plain/model.bin", None)])
def test_a_step_found_in_the_names_is_the_label(mnt, path, step):
    (mnt.path / "old-checkpoint-99").touch()
    mnt.seal()
    f = mnt.path / path
    f.parent.mkdir(parents=True, exist_ok=True)
    f.write_text("1")
    record = seal(mnt)
    assert record.get("step") == step
    if step is not None:
        assert mnt.request("resolve", epoch="step=%d" % step)["epoch"] == 2
        assert own(mnt.epoch(2))["step"] == str(step)


@pytest.mark.options(step="round([0-9]+)", settle="1h")
def test_a_step_by_a_regular_expression_and_one_that_is_given(mnt):
    (mnt.path / "checkpoint-5-round17").touch()
    assert seal(mnt)["step"] == 17
    (mnt.path / "checkpoint-6-round18").touch()
    epochfs("commit", mnt.path, "--step", "1000")
    assert log_of(mnt)[2]["step"] == 1000


def test_how_commands_name_an_epoch(mnt):
    for step in (10, 20, 30):
        (mnt.path / ("checkpoint-%d" % step)).write_text(str(step))
        mnt.seal()
    os.symlink("1", mnt.epochs_dir / "best")

    def shown(name):
        return json.loads(epochfs("show", "--json", mnt.path, name).stdout)["epoch"]["epoch"]

    assert [shown(n) for n in ("2", "000002", "step=20", "latest", "current", "best", "@0s")] == [2, 2, 2, 3, 3, 1, 3]
    mnt.rollback(2)
    assert shown("current") == 4 and shown("step=20") in (2, 4)
    for name in ("9", "step=99", "nothing", "@2h"):
        assert epochfs("show", mnt.path, name, check=False).returncode == 5
    assert epochfs("show", mnt.path, "@", check=False).returncode in (2, 5)


def test_an_epoch_by_its_age_is_the_newest_at_least_that_old(mnt):
    for text in "12":
        (mnt.path / "f").write_text(text)
        mnt.seal()
        last = os.stat(mnt.epoch(int(text))).st_mtime_ns
        wait_until(lambda: now_ns() > last + 100 * 10**6, "a little time")
    middle = sum(os.stat(mnt.epoch(n)).st_mtime_ns for n in (1, 2)) // 2

    def at_middle():
        return mnt.request("resolve", epoch="@%dms" % ((now_ns() - middle) // 10**6))["epoch"]

    wait_until(lambda: at_middle() == 1, "the first epoch by its age")
    assert mnt.request("resolve", epoch="@1ms")["epoch"] == 2


def now_ns():
    return int(datetime.datetime.now().timestamp() * 10**9)


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
