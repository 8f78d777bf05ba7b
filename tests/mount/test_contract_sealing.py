# SPDX-License-Identifier: Apache-2.0
"""What epochfs-semantics(7) says of an epoch that is sealed: when it counts as complete, what rides in it, how it is named, and what a commit
says of it."""

import json
import os
import struct
import subprocess
import time
import zipfile

import pytest

from conftest import wait_until
from test_contract_epochs import epochfs, log_of, own
from test_contract_triggers import one_save, pending, sealed
from test_contract_writing import Writer


def seal(mnt):
    """Seals an epoch now: its record."""
    number = mnt.seal()
    return log_of(mnt)[number]


# ---- an epoch that came too early


@pytest.mark.rules("2")
@pytest.mark.options(settle="200ms")
def test_an_epoch_that_came_too_early_is_part_of_the_next(mnt):
    """It has not what the save before had: it is not the latest before the rest comes, and does not count after that."""
    with one_save(mnt):
        (mnt.path / "run" / "checkpoint-4").mkdir(parents=True)
        for name in ("model", "optimizer"):
            (mnt.path / "run" / "checkpoint-4" / name).write_text(name)
    sealed(mnt, 1)
    with one_save(mnt):
        (mnt.path / "run" / "checkpoint-5").mkdir()
        (mnt.path / "run" / "checkpoint-5" / "model").write_text("m")
    record = sealed(mnt, 2)
    assert record["rule"] == "J6" and "optimizer" in record["reason"]
    assert record["complete"] is False and own(mnt.epoch(2))["complete"] == "false"
    assert os.readlink(mnt.epochs_dir / "latest") == "000001"
    with one_save(mnt):
        (mnt.path / "run" / "checkpoint-5" / "optimizer").write_text("o")
    assert sealed(mnt, 3)["complete"] is True
    assert log_of(mnt)[2]["complete"] is False and own(mnt.epoch(2))["complete"] == "false"
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


def begin_in(mnt, temporary):
    """What is in epoch 1: a model, and the beginning of what is in that directory."""
    (mnt.path / "model").write_text("m")
    (mnt.path / temporary).mkdir()
    (mnt.path / temporary / "first").write_text("1")
    assert seal(mnt)["complete"] is True


@pytest.mark.rules("2")
def test_what_is_made_in_a_scratch_directory_takes_nothing_from_the_epoch_before(mnt):
    begin_in(mnt, "tmp-eval")
    (mnt.path / "tmp-eval" / "second").write_text("2")
    (mnt.path / "tmp-eval" / "more").mkdir()
    (mnt.path / "tmp-eval" / "more" / "third").write_text("3")
    assert seal(mnt)["rule"] == "J7"
    assert [e["complete"] for e in log_of(mnt).values()] == [True, True]


def test_a_temporary_directory_that_an_epoch_has_seals_when_it_is_final(mnt):
    begin_in(mnt, "tmp-checkpoint-5")
    (mnt.path / "tmp-checkpoint-5" / "second").write_text("2")
    (mnt.path / "tmp-checkpoint-5").rename(mnt.path / "checkpoint-5")
    record = sealed(mnt, 2)
    assert record["trigger"] == "rename" and record["complete"] is True
    assert sorted(os.listdir(mnt.epoch(2) / "checkpoint-5")) == ["first", "second"]


def test_a_directory_that_is_saved_in_again_and_moved_aside_is_whole(mnt):
    (mnt.path / "being-made").mkdir()
    (mnt.path / "being-made" / "model").write_text("1")
    assert seal(mnt)["complete"] is True
    (mnt.path / "being-made" / "model").write_text("2")
    (mnt.path / "being-made").rename(mnt.path / "old")
    assert seal(mnt)["complete"] is True and [e["complete"] for e in log_of(mnt).values()] == [True, True]


def test_what_was_sealed_by_request_did_not_come_too_early(mnt):
    (mnt.path / "d").mkdir()
    (mnt.path / "d" / "a").touch()
    mnt.seal()
    (mnt.path / "d" / "b").touch()
    mnt.seal()
    assert all(e["complete"] and "continues" not in e for e in log_of(mnt).values())


# ---- torn inside although closed, and whole although killed


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


@pytest.mark.rules("2")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("how", ["in place", "renamed"])
def test_a_file_torn_inside_makes_the_epoch_incomplete_with_its_name(mnt, tmp_path, name, how):
    def save(number, data):
        (mnt.path / "fine").write_text(number)
        if how == "in place":
            (mnt.path / name).write_bytes(data)
        else:
            (mnt.path / ("tmp-" + name)).write_bytes(data)
            (mnt.path / ("tmp-" + name)).rename(mnt.path / name)
        return seal(mnt)

    FORMATS[name](tmp_path / name)
    whole, half = (tmp_path / name).read_bytes(), (tmp_path / name).read_bytes()[:-3000]
    first = save("1", whole)
    assert first["complete"] is True
    # As Ctrl-C in the middle of a save leaves it: closed in order.
    record = save("2", half)
    assert record["complete"] is False and name in record["reason"]
    assert record["rule"] == ("J2" if how == "in place" else "J1")
    # What would be replaced stays, and the torso is kept beside it.
    assert (mnt.path / name).read_bytes() == (whole if how == "in place" else half)
    assert [(mnt.epochs_dir / "torn" / n).read_bytes() for n in mnt.torn()] == ([half] if how == "in place" else [])
    assert int(os.readlink(mnt.epochs_dir / "latest")) == first["epoch"]
    # The next whole save is complete again.
    record = save("3", whole)
    assert record["complete"] is True and int(os.readlink(mnt.epochs_dir / "latest")) == record["epoch"]
    assert (mnt.epoch(record["epoch"]) / name).read_bytes() == whole


def test_the_kill_of_a_logs_writer_is_no_reason_for_an_incomplete_epoch(mnt):
    (mnt.path / "model").write_text("1")
    mnt.seal()
    writer = Writer(mnt.path / "train.log", mode="ab")
    writer.end("kill")
    mnt.remount()
    assert mnt.torn() == [] and mnt.epochs() == [1, 2]
    assert log_of(mnt)[2]["complete"] is True and (mnt.epoch(2) / "train.log").read_bytes() == b"NEW" * 1000
    assert os.readlink(mnt.epochs_dir / "latest") == "000002"


# ---- what rides


def change_attributes(path):
    os.chmod(path / "model-2", 0o600)


def change_times(path):
    os.utime(path / "model-2", ns=(1, 2))


def change_xattrs(path):
    os.setxattr(path / "model-2", "user.x", b"y")


def delete(path):
    """A save that a later one came after, as rotation does."""
    os.unlink(path / "model-1")
    os.rmdir(path / "d")


RIDERS = [delete, change_attributes, change_times, change_xattrs]


@pytest.mark.options(settle="100ms")
@pytest.mark.parametrize("ride", RIDERS)
def test_deletions_and_attributes_alone_open_no_epoch(mnt, ride):
    with one_save(mnt):
        (mnt.path / "model-1").write_text("1")
        (mnt.path / "d").mkdir()
    sealed(mnt, 1)
    with one_save(mnt):
        (mnt.path / "model-2").write_text("1")
    sealed(mnt, 2)
    ride(mnt.path)
    held = pending(mnt)
    assert held["changes"] == "changes that ride in the next epoch" and "held_up" not in held
    with one_save(mnt):
        (mnt.path / "model-3").write_text("1")
    sealed(mnt, 3)
    compare(mnt, 3)


@pytest.mark.rules("2")
@pytest.mark.options(settle="100ms")
def test_the_deletion_of_what_the_last_save_had_begins_another(mnt):
    with one_save(mnt):
        (mnt.path / "f").write_text("1")
        (mnt.path / "g").write_text("1")
    sealed(mnt, 1)
    (mnt.path / "g").unlink()
    record = sealed(mnt, 2)
    assert (record["trigger"], record["rule"], record["complete"]) == ("quiet", "J6", False)
    assert os.readlink(mnt.epochs_dir / "latest") == "000001"
    (mnt.path / "f").write_text("2")
    (mnt.path / "g").write_text("2")
    # As it begins, that was all of the one before.
    assert seal(mnt)["complete"] is True and log_of(mnt)[2]["complete"] is True


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


def read_by_hdf5(path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "a") as f:
        assert f["w"][5] == 5


def write_the_same(path):
    with open(path, "r+b") as f:
        f.write(bytes(range(100)))


@pytest.mark.parametrize("read", [read_by_hdf5, write_the_same])
def test_a_close_that_leaves_the_bytes_is_sealed_where_somebody_asks_for_an_epoch(mnt, read):
    path = mnt.path / "model.h5"
    write_hdf5(path) if read is read_by_hdf5 else path.write_bytes(bytes(range(200)))
    mnt.seal()
    before = path.stat().st_mtime_ns

    def changed():
        wait_until(lambda: read(path) is None and path.stat().st_mtime_ns > before, "the clock")
        assert pending(mnt)["changes"] == "none"

    changed()
    epochfs("wait", mnt.path)
    mnt.wait_durable()
    mnt.remount()
    assert mnt.epochs() == [1] and path.stat().st_mtime_ns > before
    changed()
    mnt.remount(empty_cache=True)
    assert mnt.epochs() == [1] and path.stat().st_mtime_ns == before
    # What else changes is sealed with it, and so is it by itself where a person says so.
    changed()
    os.chmod(path, 0o600)
    mnt.remount()
    assert mnt.epochs() == [1, 2]
    compare(mnt, 2)
    changed()
    assert mnt.seal() == 3
    compare(mnt, 3)
    changed()
    assert mnt.seal("name") == 4
    compare(mnt, 4)


@pytest.mark.parametrize("ride", RIDERS)
@pytest.mark.parametrize("how", ["commit", "umount"])
def test_commit_and_unmount_seal_what_rides(mnt, ride, how):
    (mnt.path / "model-1").write_text("1")
    (mnt.path / "model-2").write_text("1")
    (mnt.path / "d").mkdir()
    mnt.seal()
    ride(mnt.path)
    if how == "commit":
        assert mnt.seal() == 2
    else:
        mnt.remount()
    assert mnt.epochs() == [1, 2]
    compare(mnt, 2)


def test_an_empty_file_that_is_emptied_rides_in_the_next_epoch(mnt):
    (mnt.path / "f").write_bytes(b"")
    before = mnt.seal()
    old = (mnt.path / "f").stat().st_mtime_ns
    wait_until(lambda: (mnt.path / "f").write_bytes(b"") == 0 and (mnt.path / "f").stat().st_mtime_ns > old, "the clock")
    assert mnt.status()["pending"]["changes"] == "changes that ride in the next epoch"
    number = mnt.seal()
    assert number == before + 1
    assert (mnt.epoch(number) / "f").stat().st_mtime_ns == (mnt.path / "f").stat().st_mtime_ns > old


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


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("names", [["opt.pt", "model.pt"], ["model.pt"], ["model_step%d.pt"], ["checkpoint-%d/opt.pt", "checkpoint-%d/model.pt"]])
def test_a_close_that_is_on_its_way_as_the_next_save_begins(mnt, names):
    """Its release comes later: another process has the descriptor, too, for a moment."""
    holders = []
    for step in range(1, 5):
        for name in names:
            path = mnt.path / name.replace("%d", str(step))
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as f:
                if name == names[-1]:
                    time.sleep(1.1)  # one such seal a second
                f.write(b"%d" % step * 100000)
                f.flush()
                if name == names[-1]:
                    holders.append(subprocess.Popen(["sleep", "0.2"], pass_fds=[f.fileno()]))
        if step == 1 and names == ["model_step%d.pt"]:
            assert mnt.seal() == 1  # with the first save nobody knows what saves have
    for holder in holders:
        assert holder.wait(timeout=10) == 0
    number = mnt.seal()
    assert number == 4
    for step in range(1, 5):
        for name in names:
            assert (mnt.epoch(step) / name.replace("%d", str(step))).read_bytes() == b"%d" % step * 100000
