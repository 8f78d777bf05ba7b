# SPDX-License-Identifier: Apache-2.0
"""What epochfs-semantics(7) says of sealing: when an epoch is sealed, what is in it, when it counts as complete."""

import contextlib
import json
import os
import struct
import time
import zipfile

import pytest

from conftest import run, wait_until
from test_contract_epochs import epochfs, log_of, own
from test_contract_writing import Writer


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
        os.unlink(mnt.path / ".hold")  # from here on it holds nothing up, and is in no epoch


# ---- sealed at once


@pytest.mark.options(settle="1h", grace="0")
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


def test_nothing_changed_is_no_new_epoch(mnt):
    (mnt.path / "f").write_text("1")
    assert mnt.seal() == mnt.seal() == 1
    mnt.wait_durable()
    mnt.remount()
    os.mkdir(mnt.epochs_dir / "name")
    assert mnt.epochs() == [1] and mnt.tags() == {"name": 1}


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
        wait_until(lambda: time.time_ns() > last + 100 * 10**6, "a little time")
    middle = sum(os.stat(mnt.epoch(n)).st_mtime_ns for n in (1, 2)) // 2

    def at_middle():
        return mnt.request("resolve", epoch="@%dms" % ((time.time_ns() - middle) // 10**6))["epoch"]

    wait_until(lambda: at_middle() == 1, "the first epoch by its age")
    assert mnt.request("resolve", epoch="@1ms")["epoch"] == 2


# ---- what an epoch has already is no change


@pytest.mark.options(settle="1h", patience="100ms")
@pytest.mark.parametrize("name", ["train.log", "appended for long"])
def test_a_log_closed_as_the_last_epoch_took_it_seals_none(mnt, name):
    (mnt.path / "model").write_text("1")
    with open(mnt.path / name, "ab", buffering=0) as log:
        log.write(b"one line\n")
        wait_until(lambda: (mnt.epoch(mnt.seal()) / name).exists(), "the log in an epoch")
        last = mnt.epochs()[-1]
    mnt.remount()
    assert mnt.epochs()[-1] == last and (mnt.path / name).read_bytes() == b"one line\n"
    with open(mnt.path / name, "ab", buffering=0) as log:
        pass
    mnt.remount()
    assert mnt.epochs()[-1] == last
    with open(mnt.path / name, "ab", buffering=0) as log:
        log.write(b"another\n")
    mnt.remount(empty_cache=True)
    assert (mnt.path / name).read_bytes() == b"one line\nanother\n"


def test_a_file_opened_for_change_and_not_changed_seals_no_epoch(mnt):
    (mnt.path / "f").write_bytes(b"x" * 100000)
    mnt.seal()
    with open(mnt.path / "f", "rb") as reader, open(mnt.path / "f", "r+b"):
        assert len(reader.read()) == 100000
    mnt.remount()
    assert mnt.epochs() == [1]


def test_the_kill_of_a_logs_writer_is_no_reason_for_an_incomplete_epoch(mnt):
    (mnt.path / "model").write_text("1")
    mnt.seal()
    writer = Writer(mnt.path / "train.log", mode="ab")
    writer.end("kill")
    mnt.remount()
    assert mnt.torn() == [] and mnt.epochs() == [1, 2]
    assert log_of(mnt)[2]["complete"] is True and (mnt.epoch(2) / "train.log").read_bytes() == b"NEW" * 1000
    assert os.readlink(mnt.epochs_dir / "latest") == "000002"


# ---- what a commit says of an epoch that is there already


def told(mnt):
    return [(n, r["trigger"], r.get("step"), r.get("message"), r["complete"]) for n, r in sorted(log_of(mnt).items())]


@pytest.mark.options(settle="200ms")
def test_a_commit_just_after_the_quiet_seal_amends_it(volume):
    """The remote is slow, so the epoch is not uploaded yet."""
    control = volume.base / "faults"
    volume.url = "fault+file://%s?control=%s" % (volume.remote, control)
    volume.mount()
    control.write_text("put.error=1")
    (volume.path / "step-3").write_text("1")
    wait_until(lambda: volume.epochs() == [1], "the quiet seal")
    # Of one that was tried, a part may be there; the next epoch waits behind it.
    (volume.path / "step-4").write_text("2")
    wait_until(lambda: volume.epochs() == [1, 2], "the next one")
    epochfs("commit", volume.path, "--step", "500", "-m", "the good one", "--tag", "g")
    assert told(volume)[1:] == [(2, "quiet", 500, "the good one", True)] and volume.tags() == {"g": 2}
    # What a metadata writer says, too.
    epochfs("commit", volume.path, "--db-prefix", "/run7", "--node-names", "a,b")
    # Said already.
    epochfs("commit", volume.path, "--step", "500")
    epochfs("commit", volume.path, "--db-prefix", "/run7")
    assert volume.epochs() == [1, 2]
    control.write_text("")
    volume.wait_durable()
    record = json.loads((volume.remote / "epochs" / ("%020d.json" % 2)).read_text())
    assert (record["message"], record["db_prefix"], record["node_names"]) == ("the good one", "/run7", ["a", "b"])


def test_a_commit_of_an_epoch_that_is_uploaded_makes_another(mnt):
    (mnt.path / "step-3").write_text("1")
    mnt.wait_durable()
    epochfs("commit", mnt.path, "--step", "500", "-m", "the good one", "--tag", "g")
    assert told(mnt) == [(1, "wait", 3, None, True), (2, "commit", 500, "the good one", True)]
    assert mnt.tags() == {"g": 2} and (mnt.epoch(2) / "step-3").read_text() == "1"
    epochfs("commit", mnt.path, "-m", "the good one")
    assert mnt.epochs() == [1, 2]
    epochfs("commit", mnt.path, "-m", "no, this")
    assert told(mnt)[2] == (3, "commit", 500, "no, this", True)
    assert os.readlink(mnt.epochs_dir / "latest") == "000003"


@pytest.mark.options(marker="DONE", settle="1h")
def test_an_empty_marker_that_is_emptied_again_seals(mnt):
    """`: > DONE` after each save: there is nothing to write in it."""
    for number in (1, 2, 3):
        (mnt.path / "model").write_text("save %d" % number)
        (mnt.path / "DONE").write_bytes(b"")
        wait_until(lambda: number in mnt.epochs(), "the marker to seal")  # pylint: disable=W0640
        assert (mnt.epoch(number) / "model").read_text() == "save %d" % number
        assert (mnt.epoch(number) / "DONE").stat().st_mtime_ns == (mnt.path / "DONE").stat().st_mtime_ns


def test_an_empty_file_that_is_emptied_rides_in_the_next_epoch(mnt):
    (mnt.path / "f").write_bytes(b"")
    before = mnt.seal()
    old = (mnt.path / "f").stat().st_mtime_ns
    wait_until(lambda: (mnt.path / "f").write_bytes(b"") == 0 and (mnt.path / "f").stat().st_mtime_ns > old, "the clock")
    assert mnt.status()["pending"]["changes"] == "changes that ride in the next epoch"
    number = mnt.seal()
    assert number == before + 1
    assert (mnt.epoch(number) / "f").stat().st_mtime_ns == (mnt.path / "f").stat().st_mtime_ns > old
