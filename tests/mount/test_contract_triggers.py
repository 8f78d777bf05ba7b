# SPDX-License-Identifier: Apache-2.0
"""What epochfs-semantics(7) says of when an epoch is sealed: at once, by quiet, or not at all."""

import contextlib
import os
import subprocess
import sys
import time

import pytest

from conftest import run, wait_until
from test_contract_epochs import epochfs, log_of
from test_contract_writing import Writer


def sealed(mnt, number):
    """Waits until this epoch is there: its record, and it is the newest."""
    wait_until(lambda: number in mnt.epochs(), "epoch %d" % number)
    records = log_of(mnt)
    assert max(records) == number
    return records[number]


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


@pytest.mark.options(temporary="*.draft", settle="1h")
def test_more_names_can_be_temporary(mnt):
    (mnt.path / "model").write_text("0")
    mnt.seal()
    (mnt.path / "model.draft").write_text("1")
    os.rename(mnt.path / "model.draft", mnt.path / "model")
    assert sealed(mnt, 2)["trigger"] == "rename"


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
    # And again, rewritten.
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


@pytest.mark.options(marker="DONE", settle="1h")
def test_an_empty_marker_that_is_emptied_again_seals(mnt):
    """`: > DONE` after each save: there is nothing to write in it."""
    for number in (1, 2, 3):
        (mnt.path / "model").write_text("save %d" % number)
        (mnt.path / "DONE").write_bytes(b"")
        wait_until(lambda: number in mnt.epochs(), "the marker to seal")  # pylint: disable=W0640
        assert (mnt.epoch(number) / "model").read_text() == "save %d" % number
        assert (mnt.epoch(number) / "DONE").stat().st_mtime_ns == (mnt.path / "DONE").stat().st_mtime_ns


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


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("what", ["create", "close", "rename", "remove"])
def test_what_happens_starts_the_quiet_again(mnt, what):
    (mnt.path / "f").write_text("1")
    (mnt.path / "g").write_text("1")

    def left():
        return pending(mnt)["held_up"]["for_ns"]

    def happen():
        if what == "create":
            (mnt.path / "dir").mkdir()
            os.rmdir(mnt.path / "dir")
        elif what == "close":
            (mnt.path / "f").write_text("2")
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


@pytest.mark.options(settle="100ms", patience="1h")
def test_a_version_that_is_being_written_holds_quiet_up(mnt):
    writer = Writer(mnt.path / "model")
    (mnt.path / "closed").write_text("1")
    held = held_up_by(mnt, "open: model by ")
    assert "(pid %d)" % writer.process.pid in held["held_up"]["by"]
    assert held["held_up"]["for_ns"] > 10**9 and mnt.epochs() == []
    writer.leave()
    assert sorted(os.listdir(mnt.epoch(sealed(mnt, 1)["epoch"]))) == ["closed", "model"]


@pytest.mark.rules("2")
@pytest.mark.options(settle="100ms", patience="600ms")
def test_a_log_that_is_not_named_as_one_costs_one_epoch(volume):
    mnt = volume.mount()
    with open(mnt.path / "train.txt", "w", encoding="utf-8") as log:
        print("a line", file=log, flush=True)
        (mnt.path / "model").write_text("1")
        record = sealed(mnt, 1)
        assert (record["rule"], record["complete"]) == ("J3", False) and "train.txt" in record["reason"]
        # From then on it is older than the last epoch, and holds nothing up.
        print("a line", file=log, flush=True)
        (mnt.path / "model").write_text("2")
        record = sealed(mnt, 2)
        assert record["trigger"] == "quiet" and record["complete"] is True
    mnt.remount(log="train.txt", patience="1h")
    before = max(mnt.epochs())
    with open(mnt.path / "train.txt", "w", encoding="utf-8") as log:
        print("a line", file=log, flush=True)
        (mnt.path / "model").write_text("3")
        record = sealed(mnt, before + 1)
        assert record["trigger"] == "quiet" and record["complete"] is True
        assert (mnt.epoch(before + 1) / "train.txt").read_text() == "a line\n"


# A trainer that writes lines all the time, and saves six times.
TRAINER = """
import os, signal, sys, threading, time
folder, how = sys.argv[1:]
lines = open(os.path.join(folder, "train.txt"), "w")
def write():
    while True:
        print("a line", file=lines, flush=True)
        time.sleep(0.05)
threading.Thread(target=write, daemon=True).start()
for step in range(1, 7):
    path = os.path.join(folder, "model.pt" if how != "steps" else "checkpoint-%d/model.pt" % step)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + (".tmp" if how == "rename" else ""), "wb") as f:
        f.write(b"%d" % step * 300000)
    if how == "rename":
        os.rename(path + ".tmp", path)
    time.sleep(0.5)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.options(settle="150ms", patience="800ms", keep="last:1")
@pytest.mark.parametrize("how", ["in place", "rename", "steps"])
def test_a_log_beside_several_saves_counts_as_one(mnt, how):
    for turn in (1, 2) if how != "steps" else (1,):
        subprocess.run([sys.executable, "-c", TRAINER, mnt.path, how], timeout=60, check=False)
        mnt.seal()
        latest = mnt.epochs_dir / "latest"
        model = latest / ("model.pt" if how != "steps" else "checkpoint-6/model.pt")
        assert model.read_bytes() == b"6" * 300000, turn
        assert (mnt.path / "train.txt").read_text().count("a line") > 20
        assert "train.txt: open for" in mnt.log.read_text() and "doubts" not in log_of(mnt)[max(log_of(mnt))]


# FOLDER NAME LINE: a slow writer, that is killed once it is told to go on.
SLOW = """
import os, signal, sys
with open(os.path.join(sys.argv[1], sys.argv[2]), "wb", buffering=0) as f:
    f.write(eval(sys.argv[3]))
    print("ready", flush=True)
    sys.stdin.readline()
    f.write(eval(sys.argv[3]) * 100)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.options(settle="1h", patience="500ms")
@pytest.mark.parametrize("name, line", [("optim.bin", b"text\n"), ("optim", b"\x80\x00 binary\n"), ("state.json", b"{\n"), ("train.txt", b"x\n" * 20000)], ids=["weights", "binary", "settings", "large"])
def test_a_file_of_a_save_that_is_written_slowly_is_no_log(mnt, name, line):
    (mnt.path / name).write_bytes(b"1" * 1000)
    (mnt.path / "model").write_bytes(b"1" * 300000)
    whole = mnt.seal()
    with subprocess.Popen([sys.executable, "-c", SLOW, mnt.path, name, repr(line)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as slow:
        slow.stdout.readline()
        for turn in range(3):
            (mnt.path / "model").write_bytes(b"%d" % (turn + 2) * 300000)
            time.sleep(0.4)
        print(file=slow.stdin, flush=True)
        slow.wait(20)
    assert (mnt.path / name).read_bytes() == b"1" * 1000 and "counts as a log" not in mnt.log.read_text()
    number = mnt.seal()
    assert log_of(mnt)[number]["complete"] is False and int(os.readlink(mnt.epochs_dir / "latest")) == whole


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


@pytest.mark.options(settle="100ms", patience="1h", temporary="*.draft")
def test_a_temporary_name_of_the_options_holds_quiet_up(mnt):
    (mnt.path / "a.draft").write_text("1")
    held_up_by(mnt, "temporary name: a.draft")
    os.unlink(mnt.path / "a.draft")
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
        (mnt.path / "other").write_text("1")  # else there may be nothing to seal
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
