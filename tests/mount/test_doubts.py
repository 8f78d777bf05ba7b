# SPDX-License-Identifier: Apache-2.0
"""Which files are in doubt, what that means for epochs, and what settles it."""

import ctypes
import io
import os
import pathlib
import shutil
import sys

import pytest

from conftest import BIN, run, wait_until
from test_contract_sealing import write_zip
from test_contract_writing import Writer, log_of
from test_fs_names import RENAME_EXCHANGE, renameat2

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")


def record(mnt, number):
    return {e["epoch"]: e for e in log_of(mnt)}[number]


def latest(mnt):
    return int(os.readlink(mnt.epochs_dir / "latest"))


def latest_or_none(mnt):
    try:
        return latest(mnt)
    except FileNotFoundError:
        return None


def doubts(mnt, number):
    """Path to (kind, whether it counts) of what is in doubt in an epoch."""
    return {d["path"]: (d["kind"], d.get("counts", False)) for d in record(mnt, number).get("doubts", [])}


def put(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def kill(path):
    """A save of this file that is killed in the middle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Writer(path).end("kill")


def write_torn(path):
    """The end is missing, though it was closed in order. What Ctrl-C in torch.save leaves: test_programs.py."""
    whole = io.BytesIO()
    write_zip(whole)
    path.write_bytes(whole.getvalue()[:-3000])


def verify(mnt, epoch):
    return run(BIN, "verify", mnt.path, epoch, check=False).returncode


def processor_time(mnt):
    """Seconds that the daemon has computed."""
    with open("/proc/%d/stat" % mnt.pid, encoding="utf-8", errors="replace") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def retained(mnt, epochs):
    """Once retention has come to rest."""
    mnt.wait_durable()
    wait_until(lambda: [int(n) for n in mnt.epochs()] == epochs, "epochs %s" % epochs)


# ---- the histories of the promise: `latest` names a whole checkpoint, and a good one is never dropped


@pytest.mark.options(keep="last:1")
def test_a_torn_file_that_an_epoch_has_already_stays_in_doubt(mnt):
    write_zip(mnt.path / "model.pt")
    assert mnt.seal() == 1
    good = (mnt.path / "model.pt").read_bytes()
    write_torn(mnt.path / "model.pt")
    assert mnt.seal() == 2
    put(mnt.path / "notes.txt", "another file")
    assert mnt.seal() == 3
    assert [record(mnt, n)["complete"] for n in (1, 2, 3)] == [True, False, False]
    assert latest(mnt) == 1 and "model.pt" in record(mnt, 3)["reason"]
    assert record(mnt, 3)["doubts"][0]["since"] == 2
    retained(mnt, [1, 2, 3])
    assert (mnt.epoch(1) / "model.pt").read_bytes() == good
    assert verify(mnt, "latest") == 0 and verify(mnt, "3") == 6
    write_zip(mnt.path / "model.pt")
    assert mnt.seal() == 4
    assert latest(mnt) == 4 and "doubts" not in record(mnt, 4)
    retained(mnt, [4])


@pytest.mark.options(keep="last:1")
def test_a_killed_save_of_two_files_stays_in_doubt(mnt):
    a, b = mnt.path / "a.bin", mnt.path / "b.bin"
    put(a, "a 1"), put(b, "b 1")
    assert mnt.seal() == 1
    put(a, "a 2"), kill(b)
    assert mnt.seal() == 2
    put(mnt.path / "notes.txt", "one line")
    assert mnt.seal() == 3
    assert [record(mnt, n)["complete"] for n in (1, 2, 3)] == [True, False, False]
    assert latest(mnt) == 1 and record(mnt, 3)["doubts"][0]["companions"] == ["a.bin"]
    retained(mnt, [1, 2, 3])
    put(a, "a 3"), put(b, "b 3")
    assert mnt.seal() == 4 and latest(mnt) == 4
    retained(mnt, [4])


def test_a_file_that_is_killed_in_two_saves_is_named_once_in_the_reason(mnt):
    a, b, c = mnt.path / "a", mnt.path / "b", mnt.path / "c"
    put(a, "1"), put(b, "1"), put(c, "1")
    mnt.seal()
    put(a, "2"), put(c, "2"), kill(b)
    mnt.seal()
    put(a, "3"), kill(b)
    mnt.seal()
    assert [d["path"] for d in record(mnt, 3)["doubts"]] == ["b", "b"]
    assert record(mnt, 3)["reason"].count("b: ") == 1 and "more" not in record(mnt, 3)["reason"]


def test_a_killed_save_that_is_done_again_whole_leaves_no_doubt(mnt):
    put(mnt.path / "checkpoint-0" / "model", "0")
    assert mnt.seal() == 1
    work = mnt.path / "_checkpoint"
    put(work / "model", "1")
    kill(work / "optimizer")
    shutil.rmtree(work)
    put(work / "model", "1 again")
    put(work / "optimizer", "1")
    os.rename(work, mnt.path / "checkpoint-1")
    number = mnt.seal()
    assert record(mnt, number)["complete"] is True and latest(mnt) == number


@pytest.mark.parametrize("name", ["model.new", "model.pt.tmp", "ckpt-1.index.tempstate17"])
@pytest.mark.parametrize("beside", [False, True])
def test_one_that_is_done_again_under_another_name_leaves_none_either(mnt, name, beside):
    put(mnt.path / "model", "0")
    assert mnt.seal() == 1
    for save in (kill, lambda path: (put(path, "1"), os.rename(path, mnt.path / "model"))):
        if beside:
            put(mnt.path / "optimizer", "1")
        save(mnt.path / name)
    number = mnt.seal()
    assert record(mnt, number)["complete"] is True and latest(mnt) == number
    assert "doubts" not in mnt.status()


@pytest.mark.options(settle="200ms", keep="last:2")
def test_fourteen_restarts_with_kills_in_mid_save(mnt):
    """As AdaptDL saves: into _checkpoint, renamed over to checkpoint-N, then the old one goes. Whatever `latest` ever names loads."""
    work, named = mnt.path / "_checkpoint", set()
    for restart in range(14):
        for killed in (["model", "optimizer", None][restart % 3], None):
            shutil.rmtree(work, ignore_errors=True)
            for name in ("model", "optimizer"):
                if name == killed:
                    kill(work / name)
                    break
                put(work / name, "%s %d" % (name, restart))
            else:
                break
        os.rename(work, mnt.path / ("checkpoint-%d" % restart))
        shutil.rmtree(mnt.path / ("checkpoint-%d" % (restart - 1)), ignore_errors=True)
        number = mnt.seal()
        assert record(mnt, number)["complete"] is True and latest(mnt) == number
        named.add(number)
        for name in ("model", "optimizer"):
            assert (mnt.epoch(number) / ("checkpoint-%d" % restart) / name).read_text() == "%s %d" % (name, restart)
    assert len(named) == 14 and all(e["complete"] or e.get("continued") for e in log_of(mnt))


# ---- what settles a kill


@pytest.fixture
def killed(mnt):
    """a and b are epoch 1; then a was saved, b was killed, and epoch 2 has that."""
    put(mnt.path / "a", "a 1"), put(mnt.path / "b", "b 1")
    mnt.seal()
    put(mnt.path / "a", "a 2"), kill(mnt.path / "b")
    assert mnt.seal() == 2 and doubts(mnt, 2) == {"b": ("undone", True)}
    return mnt


SETTLE = {
    "saved": lambda top: put(top / "b", "b 2"),
    "removed": lambda top: (top / "b").unlink(),
    "replaced": lambda top: (put(top / "b.new", "b 2"), os.rename(top / "b.new", top / "b")),
    "companion saved": lambda top: put(top / "a", "a 3"),
    "companion removed": lambda top: (put(top / "c", ""), (top / "a").unlink()),
}


@pytest.mark.parametrize("how", SETTLE)
def test_what_settles_a_killed_save(killed, how):
    SETTLE[how](killed.path)
    assert killed.seal() == 3
    assert record(killed, 3)["complete"] is True and doubts(killed, 3) == {}
    assert "doubts" not in killed.status()


def test_a_killed_file_that_is_renamed_stays_in_doubt(killed):
    os.rename(killed.path / "b", killed.path / "b.old")
    number = killed.seal()
    assert doubts(killed, number) == {"b": ("undone", True)} and latest(killed) == 1
    put(killed.path / "b", "b 2")
    number = killed.seal()
    assert doubts(killed, number) == {} and latest(killed) == number


def test_what_does_not_settle_it(killed):
    put(killed.path / "c", "another file")
    os.rename(killed.path / "a", killed.path / "d")
    os.chmod(killed.path / "b", 0o600)
    with open(killed.path / "train.log", "a", encoding="utf-8") as f:
        f.write("step 3")
    assert killed.seal() == 3 and doubts(killed, 3) == {"b": ("undone", True)} and latest(killed) == 1


@pytest.mark.parametrize("how", ["remount", "crash", "empty cache"])
def test_doubts_survive(killed, how):
    if how == "crash":
        killed.kill()
        killed.mount()
    else:
        killed.remount(empty_cache=how == "empty cache")
    put(killed.path / "c", "another file")
    number = killed.seal()
    assert doubts(killed, number) == {"b": ("undone", True)} and latest(killed) == 1
    put(killed.path / "a", "a 3")
    number = killed.seal()
    assert doubts(killed, number) == {} and latest(killed) == number


@pytest.mark.parametrize("how", ["crash", "empty cache"])
def test_doubts_about_names_that_are_no_text_survive(mnt, how):
    folder = os.fsencode(mnt.path) + b"/d\xff"
    os.mkdir(folder)
    a, b = (pathlib.Path(os.fsdecode(folder + b"/" + name)) for name in (b"a\xfe", b"b\xfd"))
    put(a, "a 1"), put(b, "b 1")
    mnt.seal()
    put(a, "a 2"), kill(b)
    assert mnt.seal() == 2 and doubts(mnt, 2) == {"d\ufffd/b\ufffd": ("undone", True)}
    if how == "crash":
        mnt.kill()
        mnt.mount()
    else:
        mnt.remount(empty_cache=True)
    put(mnt.path / "c", "another file")
    number = mnt.seal()
    assert doubts(mnt, number) == {"d\ufffd/b\ufffd": ("undone", True)} and latest(mnt) == 1
    assert run(BIN, "status", mnt.path).returncode == run(BIN, "log", "--json", mnt.path).returncode == 0
    put(a, "a 3")
    number = mnt.seal()
    assert doubts(mnt, number) == {} and latest(mnt) == number


def test_doubts_survive_a_crash_before_the_seal(mnt):
    put(mnt.path / "a", "a 1"), put(mnt.path / "b", "b 1")
    mnt.seal()
    put(mnt.path / "a", "a 2"), kill(mnt.path / "b")
    assert (mnt.path / "b").read_text() == "b 1"
    mnt.kill()
    mnt.mount()
    put(mnt.path / "c", "another file")
    number = mnt.seal()
    assert doubts(mnt, number) == {"b": ("undone", True)} and latest(mnt) == 1


def test_a_rollback_settles_doubts_and_one_forward_brings_them_back(killed):
    assert killed.rollback(1) == 3
    put(killed.path / "c", "c")
    assert killed.seal() == 4 and doubts(killed, 4) == {} and latest(killed) == 4
    assert killed.rollback(2) == 5
    assert doubts(killed, 5) == {"b": ("undone", True)} and latest(killed) == 4
    put(killed.path / "c", "c again")
    assert killed.seal() == 6 and doubts(killed, 6) == {"b": ("undone", True)} and latest(killed) == 4
    put(killed.path / "a", "a 3")
    assert killed.seal() == 7 and doubts(killed, 7) == {} and latest(killed) == 7


@pytest.mark.parametrize("between", [[], [1]], ids=["at once", "over another"])
def test_a_word_holds_for_epochs_that_have_it(mnt, between):
    """A rollback brings back what was believed then, whatever the live tree has meanwhile."""
    write_zip(mnt.path / "model.pt")
    assert mnt.seal() == 1
    write_torn(mnt.path / "model.pt")
    assert mnt.seal() == 2
    run(BIN, "commit", "--whole", mnt.path)
    for to, torn in ((2, True), (3, False), (2, True), (3, False)):
        for number in between:
            mnt.rollback(number)
        restored = mnt.rollback(to)
        put(mnt.path / "c", "after %d" % restored)
        for epoch in (restored, mnt.seal()):
            assert doubts(mnt, epoch) == ({"model.pt": ("torn", True)} if torn else {}), (to, epoch)
            assert record(mnt, epoch)["complete"] is not torn
        assert (latest(mnt) == epoch) is not torn


def test_a_torn_file_that_comes_back_is_named_as_before(mnt):
    write_zip(mnt.path / "model.pt")
    assert mnt.seal() == 1
    write_torn(mnt.path / "model.pt")
    assert mnt.seal() == 2
    said = record(mnt, 2)["doubts"]
    mnt.rollback(1)
    assert record(mnt, mnt.rollback(2))["doubts"] == said
    mnt.remount(empty_cache=True)
    put(mnt.path / "c", "another file")
    last = record(mnt, mnt.seal())
    assert last["doubts"] == said and said[0]["why"] in last["reason"]


def test_who_opened_a_file_and_wrote_nothing_has_not_saved_it(mnt):
    """What is saved after the kill for the first time is a companion."""
    put(mnt.path / "a", "a 1")
    assert mnt.seal() == 1
    kill(mnt.path / "b")
    with open(mnt.path / "a", encoding="utf-8"):
        os.close(os.open(mnt.path / "a", os.O_WRONLY))
        put(mnt.path / "a", "a 2")
    assert mnt.seal() == 2 and doubts(mnt, 2) == {"b": ("undone", True)}


def test_without_companions_nothing_is_in_doubt(mnt):
    put(mnt.path / "a", "a 1"), put(mnt.path / "b", "b 1")
    mnt.seal()
    kill(mnt.path / "b")
    with open(mnt.path / "train.log", "a", encoding="utf-8") as f:
        f.write("restarted")
    os.chmod(mnt.path / "a", 0o600)
    number = mnt.seal()
    assert record(mnt, number)["complete"] is True and doubts(mnt, number) == {}


# ---- removed first, then saved


@pytest.mark.options(keep="last:1")
@pytest.mark.parametrize("old, new", [("out", "out"), ("checkpoint-100", "checkpoint-200"), ("checkpoint-100", "tmp-checkpoint-200")])
def test_what_was_removed_before_a_killed_save_is_missed(mnt, old, new):
    """The first file of the save is killed: no other has changed, but the tree is not as it was."""
    put(mnt.path / old / "a", "a 1"), put(mnt.path / old / "b", "b 1")
    assert mnt.seal() == 1
    shutil.rmtree(mnt.path / old)
    kill(mnt.path / new / "a")
    assert mnt.seal() == 2 and latest(mnt) == 1
    assert doubts(mnt, 2) == {new + "/a": ("undone", True)}
    put(mnt.path / "notes.txt", "another file")
    assert mnt.seal() == 3 and latest(mnt) == 1
    mnt.remount(empty_cache=True)
    put(mnt.path / "more.txt", "another file")
    assert mnt.seal() == 4 and latest(mnt) == 1 and new + "/a" in run(BIN, "status", mnt.path).stdout
    assert "settled by saving it, or what was removed before it" in run(BIN, "log", mnt.path).stdout
    retained(mnt, [1, 2, 3, 4])
    put(mnt.path / new / "a", "a 2"), put(mnt.path / new / "b", "b 2")
    number = mnt.seal()
    assert latest(mnt) == number and doubts(mnt, number) == {}


def test_an_old_checkpoint_that_was_removed_is_not_missed(mnt):
    put(mnt.path / "checkpoint-100" / "a", "1"), put(mnt.path / "checkpoint-200" / "a", "2")
    mnt.seal()
    shutil.rmtree(mnt.path / "checkpoint-100")
    kill(mnt.path / "checkpoint-300" / "a")
    (mnt.path / "checkpoint-300").rmdir()
    number = mnt.seal()
    assert latest(mnt) == number and doubts(mnt, number) == {}


@pytest.mark.options(keep="last:1")
@pytest.mark.parametrize("settled", ["saved", "removed", "rolled back"])
def test_an_empty_checkpoint_that_a_killed_save_leaves_is_in_doubt(mnt, settled):
    """Whoever looks for the newest step finds that one."""
    put(mnt.path / "checkpoint-100" / "a", "1")
    assert mnt.seal() == 1
    kill(mnt.path / "checkpoint-200" / "a")
    assert mnt.seal() == 2 and doubts(mnt, 2) == {"checkpoint-200/a": ("undone", True)}
    put(mnt.path / "notes.txt", "another file")
    assert mnt.seal() == 3 and latest(mnt) == 1
    mnt.remount(empty_cache=True)
    put(mnt.path / "more.txt", "another file")
    assert mnt.seal() == 4 and latest(mnt) == 1
    assert "removing its directory where that is empty" in run(BIN, "log", mnt.path).stdout
    retained(mnt, [1, 2, 3, 4])
    if settled == "saved":
        put(mnt.path / "checkpoint-200" / "a", "2")
    elif settled == "removed":
        (mnt.path / "checkpoint-200").rmdir()
        put(mnt.path / "notes.txt", "removed")
    else:
        number = mnt.rollback(1)
    if settled != "rolled back":
        number = mnt.seal()
    assert latest(mnt) == number and doubts(mnt, number) == {} and "doubts" not in mnt.status()


def test_a_directory_that_was_there_before_is_no_such_one(mnt):
    (mnt.path / "checkpoint-200").mkdir(), put(mnt.path / "checkpoint-100" / "a", "1")
    assert mnt.seal() == 1
    kill(mnt.path / "checkpoint-200" / "a")
    put(mnt.path / "notes.txt", "another file")
    assert mnt.seal() == 2 and latest(mnt) == 2 and doubts(mnt, 2) == {}


@pytest.mark.options(resume=True)
def test_a_mount_that_goes_back_has_what_was_removed(mnt):
    put(mnt.path / "out" / "a", "a 1"), put(mnt.path / "out" / "b", "b 1")
    assert mnt.seal() == 1
    shutil.rmtree(mnt.path / "out")
    kill(mnt.path / "out" / "a")
    assert (mnt.path / "out" / "a").read_text() == "a 1" and (mnt.path / "out" / "b").read_text() == "b 1"


def test_somebody_who_knows_settles_all(killed):
    write_torn(killed.path / "model.pt")
    assert killed.seal() == 3 and sorted(doubts(killed, 3)) == ["b", "model.pt"]
    text = run(BIN, "status", killed.path).stdout
    assert "b: its writer was killed, in doubt since epoch 2" in text and "settled by" in text
    assert "in doubt: b: its writer was killed" in run(BIN, "log", killed.path).stdout
    assert "model.pt" in run(BIN, "show", killed.path, "3").stdout
    run(BIN, "commit", "--whole", killed.path)
    assert record(killed, 4)["complete"] is True and doubts(killed, 4) == {} and latest(killed) == 4
    put(killed.path / "c", "another file")
    assert killed.seal() == 5 and latest(killed) == 5
    # Nothing is in doubt, nothing changed: no epoch is made.
    run(BIN, "commit", "--whole", killed.path)
    assert len(log_of(killed)) == 5


@pytest.mark.parametrize("how", ["mount", "remote", "rollback"])
def test_verify_believes_whoever_has_called_a_torn_file_whole(mnt, how):
    write_torn(mnt.path / "model.pt")
    mnt.seal()
    assert verify(mnt, "1") == 6
    run(BIN, "commit", "--whole", mnt.path)
    write_torn(mnt.path / "new.pt")
    run(BIN, "commit", "--whole", mnt.path)
    put(mnt.path / "c", "another file")
    assert mnt.seal() == 4 and latest(mnt) == 4
    if how == "rollback":
        mnt.remount(empty_cache=True)
        for name in ("model.pt", "new.pt"):
            (mnt.path / name).read_bytes()
            (mnt.path / name).unlink()
        mnt.seal()
        mnt.rollback(4)
        put(mnt.path / "d", "more")
        number = mnt.seal()
        assert latest(mnt) == number == 7
    target = mnt.url if how == "remote" else mnt.path
    mnt.wait_durable()
    for epoch in ("2", "3", "latest"):
        done = run(BIN, "verify", target, epoch, check=False)
        assert done.returncode == 0 and "model.pt: torn" in done.stdout and "called whole" in done.stdout, done
    assert verify(mnt, "1") == 6


# ---- units


def test_of_an_incomplete_epoch_that_is_taken_over_the_files_of_before_are_no_companions(mnt):
    for name in ("a.bin", "config", "sub/b.bin", "c.pt"):
        put(mnt.path / name, name)
    assert mnt.seal() == 1
    write_torn(mnt.path / "c.pt"), put(mnt.path / "a.bin", "new")
    assert mnt.seal() == 2 and latest(mnt) == 1
    mnt.remount(empty_cache=True)
    kill(mnt.path / "sub" / "b.bin"), put(mnt.path / "note", "3")
    assert mnt.seal() == 3
    (killed,) = [d for d in record(mnt, 3)["doubts"] if d["path"] == "sub/b.bin"]
    assert sorted(killed["companions"]) == ["a.bin", "c.pt", "note"]


def test_doubts_of_older_units_cost_nothing(mnt):
    put(mnt.path / "checkpoint-500" / "model", "500")
    kill(mnt.path / "checkpoint-500" / "optimizer")
    assert mnt.seal() == 1 and doubts(mnt, 1) == {"checkpoint-500/optimizer": ("undone", True)}
    write_torn(mnt.path / "checkpoint-500" / "scaler.pt")
    put(mnt.path / "checkpoint-510" / "model", "510")
    assert mnt.seal() == 2
    assert doubts(mnt, 2) == {"checkpoint-500/optimizer": ("undone", False), "checkpoint-500/scaler.pt": ("torn", False)}
    assert latest(mnt) == 2 and verify(mnt, "latest") == 0
    shutil.rmtree(mnt.path / "checkpoint-500")
    put(mnt.path / "checkpoint-520" / "model", "520")
    assert mnt.seal() == 3 and doubts(mnt, 3) == {}


def test_under_a_temporary_name_nothing_counts_until_it_is_renamed(mnt):
    put(mnt.path / "checkpoint-1" / "model", "1")
    mnt.seal()
    work = mnt.path / "tmp-checkpoint-2"
    put(work / "model", "2")
    kill(work / "optimizer")
    put(mnt.path / "notes", "x")
    assert mnt.seal() == 2 and latest(mnt) == 2
    os.rename(work, mnt.path / "checkpoint-2")
    number = mnt.seal()
    assert doubts(mnt, number) == {"checkpoint-2/optimizer": ("undone", True)} and latest(mnt) == 2


def test_files_of_one_step_are_one_unit(mnt):
    put(mnt.path / "model.ckpt-20.data-00000-of-00001", "20")
    assert mnt.seal() == 1
    put(mnt.path / "model.ckpt-30.data-00000-of-00001", "30")
    kill(mnt.path / "model.ckpt-30.index")
    assert mnt.seal() == 2 and doubts(mnt, 2) == {"model.ckpt-30.index": ("undone", True)}


# ---- what a killed writer left


def test_a_database_in_which_a_writer_was_killed_is_in_doubt_for_one_epoch(mnt):
    code = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("CREATE TABLE t (x)")
db.commit()
os.kill(os.getpid(), 9)
"""
    run(sys.executable, "-c", code, mnt.path / "runs.db", check=False)
    put(mnt.path / "a", "1")
    mnt.seal()
    put(mnt.path / "a", "2")
    number = mnt.seal()
    assert doubts(mnt, number) == {} and latest(mnt) == number


# ---- telling


def test_status_looks_at_the_tree_once_for_each_change(mnt, passthrough):
    """Who waits for a drain asks many times a second."""
    if passthrough == "off":
        pytest.skip("it is the same")

    def cost(times):
        before = processor_time(mnt)
        for _ in range(times):
            assert [d["path"] for d in mnt.status()["doubts"]] == ["b"]
        return processor_time(mnt) - before

    (mnt.path / "many").mkdir()
    for i in range(20000):
        os.mknod(mnt.path / "many" / ("file-with-a-long-name-%06d" % i))
    put(mnt.path / "a", "a 1"), put(mnt.path / "b", "b 1")
    mnt.seal()
    put(mnt.path / "a", "a 2"), kill(mnt.path / "b")
    mnt.seal()
    mnt.wait_durable()
    once = cost(1)
    assert cost(50) < 10 * once + 0.3
    put(mnt.path / "a", "a 3")
    wait_until(lambda: "doubts" not in mnt.status(), "the status")


@pytest.mark.parametrize("how", ["rename", "exchange"])
@pytest.mark.parametrize("name", ["A.new", "A.tmp"])
def test_what_is_exchanged_is_saved_as_what_is_renamed(mnt, name, how):
    """All that was saved with the killed file is saved again, before an epoch was sealed."""
    put(mnt.path / "A", "a 1"), put(mnt.path / "B", "b 1")
    assert mnt.seal() == 1
    put(mnt.path / "A", "a 2")
    kill(mnt.path / "B")
    put(mnt.path / name, "a 3")
    if how == "rename":
        os.rename(mnt.path / name, mnt.path / "A")
    else:
        renameat2(ctypes.CDLL(None, use_errno=True), mnt.path / name, mnt.path / "A", RENAME_EXCHANGE)
        os.unlink(mnt.path / name)
    number = mnt.seal()
    assert doubts(mnt, number) == {} and latest(mnt) == number
