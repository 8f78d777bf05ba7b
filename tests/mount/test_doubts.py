# SPDX-License-Identifier: Apache-2.0
"""Which files are in doubt, what that means for epochs, and what settles it."""

import io
import json
import os
import pathlib
import shutil
import sys

import pytest

from conftest import BIN, run, wait_until
from test_contract_sealing import FORMATS, write_zip
from test_contract_writing import Writer, log_of


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


def test_an_import_knows_an_empty_checkpoint(mnt, exported):
    put(mnt.path / "checkpoint-100" / "a", "1")
    mnt.seal()
    kill(mnt.path / "checkpoint-200" / "a")
    out, imported = exported()
    put(out / "notes", "x")
    assert imported() == {"checkpoint-200/a": ("undone", True)}
    (out / "checkpoint-200").rmdir()
    assert imported() == {}


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


def test_doubts_with_a_companion_in_common_are_settled_one_by_one_by_imports(mnt, tmp_path, passthrough):
    if passthrough == "off":
        pytest.skip("the import does not mount")
    for name in "abc":
        put(mnt.path / name, name + " 1")
    mnt.seal()
    put(mnt.path / "c", "c 2")
    kill(mnt.path / "a")
    kill(mnt.path / "b")
    assert mnt.seal() == 2 and sorted(doubts(mnt, 2)) == ["a", "b"]
    mnt.wait_durable()
    mnt.unmount()

    def imported():
        done = run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), "--json", tmp_path / "out", mnt.url)
        return sorted(d["path"] for d in json.loads(done.stdout).get("doubts", []))

    run(BIN, "export", mnt.url + "@2", tmp_path / "out")
    put(tmp_path / "out" / "d", "another file")
    assert imported() == ["a", "b"]
    put(tmp_path / "out" / "a", "a 2")
    assert imported() == ["b"]
    put(tmp_path / "out" / "c", "c 3")
    assert imported() == []


def test_an_import_misses_what_was_removed_before_a_killed_save(mnt, tmp_path, passthrough):
    if passthrough == "off":
        pytest.skip("the import does not mount")
    put(mnt.path / "out" / "a", "a 1"), put(mnt.path / "out" / "b", "b 1")
    mnt.seal()
    shutil.rmtree(mnt.path / "out")
    kill(mnt.path / "out" / "a")
    assert mnt.seal() == 2 and doubts(mnt, 2) == {"out/a": ("undone", True)}
    mnt.wait_durable()
    mnt.unmount()

    def imported():
        done = run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), "--json", tmp_path / "out", mnt.url)
        epoch = json.loads(done.stdout)
        return [(d["path"], d["since"]) for d in epoch.get("doubts", [])], epoch["complete"]

    run(BIN, "export", mnt.url + "@2", tmp_path / "out")
    put(tmp_path / "out" / "d", "another file")
    assert imported() == ([("out/a", 2)], False)
    put(tmp_path / "out" / "e", "another file")
    assert imported() == ([("out/a", 2)], False)
    put(tmp_path / "out" / "out" / "a", "a 1"), put(tmp_path / "out" / "out" / "b", "b 1")
    assert imported() == ([], True)


@pytest.fixture
def exported(mnt, tmp_path, passthrough):
    """Seals what is in the mount and exports it: the directory, and a function that imports that and gives what is in doubt."""
    if passthrough == "off":
        pytest.skip("the import does not mount")
    out = tmp_path / "out"

    def imported():
        done = run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), "--json", out, mnt.url)
        epoch = json.loads(done.stdout)
        assert epoch["complete"] is not any(d.get("counts") for d in epoch.get("doubts", []))
        return {d["path"]: (d["kind"], d.get("counts", False)) for d in epoch.get("doubts", [])}

    def export():
        number = mnt.seal()
        mnt.wait_durable()
        mnt.unmount()
        run(BIN, "export", "%s@%d" % (mnt.url, number), out)
        return out, imported

    return export


def test_an_import_follows_a_companion_that_was_renamed(mnt, exported):
    put(mnt.path / "a", "a 1" * 10000), put(mnt.path / "b", "b 1")
    mnt.seal()
    put(mnt.path / "a", "a 2" * 10000), kill(mnt.path / "b")
    out, imported = exported()
    (out / "a").rename(out / "model")
    assert imported() == {"b": ("undone", True)}
    (out / "models").mkdir()
    (out / "model").rename(out / "models" / "m")
    put(out / "notes", "x")
    assert imported() == {"b": ("undone", True)}
    put(out / "models" / "m", "a 3" * 10000)
    assert imported() == {}


def test_an_import_follows_a_killed_file_that_was_renamed(mnt, exported):
    put(mnt.path / "a", "a 1"), put(mnt.path / "b", "b 1")
    mnt.seal()
    put(mnt.path / "a", "a 2"), kill(mnt.path / "b")
    out, imported = exported()
    (out / "b").rename(out / "b.old")
    assert imported() == {"b": ("undone", True)}
    put(out / "notes", "x")
    assert imported() == {"b": ("undone", True)}
    put(out / "b", "b 2")
    assert imported() == {}


@pytest.mark.parametrize("settled", ["saved", "companion saved", "removed"])
def test_an_import_follows_half_a_save_that_gets_its_final_name(mnt, exported, settled):
    put(mnt.path / "checkpoint-1" / "model", "1")
    mnt.seal()
    work = mnt.path / "checkpoint.tmp"
    put(work / "model", "2"), kill(work / "optimizer")
    out, imported = exported()
    put(out / "notes", "x")
    assert imported() == {"checkpoint.tmp/optimizer": ("undone", False)}
    (out / "checkpoint.tmp").rename(out / "checkpoint-2")
    assert imported() == {"checkpoint-2/optimizer": ("undone", True)}
    put(out / "notes", "y")
    assert imported() == {"checkpoint-2/optimizer": ("undone", True)}
    if settled == "removed":
        shutil.rmtree(out / "checkpoint-2")
    else:
        put(out / "checkpoint-2" / ("optimizer" if settled == "saved" else "model"), "once more")
    assert imported() == {}


def test_an_import_knows_torn_files_whose_end_says_nothing(mnt, exported):
    (mnt.path / "weights").write_bytes(b"old" * 10000)
    mnt.seal()
    Writer(mnt.path / "weights", mode="r+b").end("kill")
    out, imported = exported()
    put(out / "notes", "x")
    assert imported() == {"weights": ("torn", True)}
    (out / "weights").rename(out / "last")
    assert imported() == {"last": ("torn", True)}
    # Somebody writes the same bytes: then they are what was meant.
    (out / "last").write_bytes((out / "last").read_bytes())
    assert imported() == {}


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


def test_a_torn_file_that_an_epoch_has_under_a_temporary_name_is_torn_when_it_is_renamed(mnt):
    put(mnt.path / "notes.txt", "1")
    mnt.seal()
    header = json.dumps({"a": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}).encode()
    (mnt.path / "model.safetensors.tmp").write_bytes(len(header).to_bytes(8, "little") + header + bytes(2000))
    under = mnt.seal()
    assert record(mnt, under)["complete"] and doubts(mnt, under) == {"model.safetensors.tmp": ("torn", False)}
    (mnt.path / "model.safetensors.tmp").rename(mnt.path / "model.safetensors")
    final = mnt.seal()
    assert not record(mnt, final)["complete"] and doubts(mnt, final) == {"model.safetensors": ("torn", True)}
    assert latest(mnt) == under and verify(mnt, "latest") == 0


@pytest.mark.parametrize("name, content", [("model.pt", b""), ("model.safetensors", (5000).to_bytes(8, "little") + b'{"a":{"dty')])
def test_what_an_epoch_has_under_a_name_that_says_nothing_is_torn_when_it_is_renamed(mnt, name, content):
    put(mnt.path / name, ""), put(mnt.path / "whole.bin", "")
    run(BIN, "commit", "--whole", mnt.path)
    assert doubts(mnt, 1) == {}
    (mnt.path / "part").write_bytes(content)
    put(mnt.path / "notes", "2")
    mnt.seal()
    # By the word of somebody who knows it may be empty.
    assert "empty" not in str(record(mnt, 2).get("reason", "")) and name not in doubts(mnt, 2)
    (mnt.path / "part").rename(mnt.path / ("new-" + name))
    assert mnt.seal() == 3
    assert doubts(mnt, 3) == {"new-" + name: ("torn", True)} and latest(mnt) < 3
    put(mnt.path / "notes", "4")
    assert mnt.seal() == 4 and doubts(mnt, 4) == {"new-" + name: ("torn", True)}
    mnt.rollback(1)
    assert latest(mnt) == 5


def test_files_of_one_step_are_one_unit(mnt):
    put(mnt.path / "model.ckpt-20.data-00000-of-00001", "20")
    assert mnt.seal() == 1
    put(mnt.path / "model.ckpt-30.data-00000-of-00001", "30")
    kill(mnt.path / "model.ckpt-30.index")
    assert mnt.seal() == 2 and doubts(mnt, 2) == {"model.ckpt-30.index": ("undone", True)}


@pytest.mark.parametrize("name", FORMATS)
def test_a_torn_copy_is_in_doubt_for_itself(mnt, tmp_path, name):
    FORMATS[name](mnt.path / name)
    shutil.copy(mnt.path / name, mnt.path / ("best-" + name))
    mnt.seal()
    (mnt.path / name).write_bytes((mnt.path / name).read_bytes()[:-3000])
    shutil.copy(mnt.path / name, mnt.path / ("best-" + name))
    number = mnt.seal()
    assert sorted(doubts(mnt, number)) == ["best-" + name, name] and latest(mnt) == 1


# ---- what a killed writer left


def test_what_is_changed_in_place_by_a_killed_writer_is_torn_until_it_is_saved_again(mnt):
    path = mnt.path / "weights"
    path.write_bytes(b"old" * 10000)
    assert mnt.seal() == 1
    Writer(path, mode="r+b").end("kill")
    put(mnt.path / "notes", "x")
    assert mnt.seal() == 2
    put(mnt.path / "notes", "y")
    assert mnt.seal() == 3 and doubts(mnt, 3) == {"weights": ("torn", True)} and latest(mnt) == 1
    path.write_bytes(b"new" * 10000)
    assert mnt.seal() == 4 and latest(mnt) == 4


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


# ---- writes that epochfs refuses


RAW_WRITER = """
import errno, os, sys
refused = 0
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
try:
    for i in range(int(sys.argv[2])):
        os.write(fd, b"new!" * (1 << 18))
except OSError as e:
    refused = e.errno
    if "again" in sys.argv:
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"small and whole", 0)
os.close(fd)
sys.exit(0 if refused == errno.ENOSPC else 1)
"""


@pytest.fixture
def small(volume):
    """The cache is on a disk of 48 MiB."""
    run("mount", "-t", "tmpfs", "-o", "size=48m,mode=755", "tmpfs", volume.cache)
    yield volume.mount(full="error")
    volume.clean_up()
    run("umount", "-l", volume.cache)


def test_a_replacement_after_a_refused_write_is_undone_at_its_close(small, passthrough):
    """Where the kernel writes by itself it alone sees that: a disk without room at the close stands for it."""
    path = small.path / "model.bin"
    path.write_bytes(b"good" * 1000)
    assert small.seal() == 1
    put(small.path / "config.json", "of the new save")
    done = run(sys.executable, "-c", RAW_WRITER, path, "64", check=False)
    if passthrough == "on":
        assert done.returncode == 1 and "OSError: [Errno 28]" in done.stderr.splitlines()[-1]
    else:
        assert done.returncode == 0
    assert path.read_bytes() == b"good" * 1000
    wait_until(small.torn, "the torn bytes")
    assert small.seal() == 2
    assert doubts(small, 2) == {"model.bin": ("undone", True)} and latest(small) == 1
    why = record(small, 2)["doubts"][0]["why"]
    assert why == ("the cache's disk was full as it was written" if passthrough == "on" else "a write to it was refused")


def test_a_refused_write_that_a_later_one_covers_is_none(small):
    path = small.path / "model.bin"
    path.write_bytes(b"good" * 1000)
    assert small.seal() == 1
    run(sys.executable, "-c", RAW_WRITER, path, "64", "again")
    assert path.read_bytes() == b"small and whole"
    assert small.seal() == 2 and doubts(small, 2) == {} and latest(small) == 2


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


# ---- what is empty, and cannot be


def test_an_empty_model_is_torn(mnt):
    """Ctrl-C between open() and the first write."""
    path = mnt.path / "model.pt"
    write_zip(path)
    assert mnt.seal() == 1
    with open(path, "wb"):
        pass
    assert mnt.seal() == 2 and record(mnt, 2)["complete"] is False and doubts(mnt, 2) == {"model.pt": ("torn", True)}
    assert "model.pt: it is empty" in record(mnt, 2)["reason"]
    put(mnt.path / "notes", "another file")
    assert mnt.seal() == 3 and doubts(mnt, 3) == {"model.pt": ("torn", True)} and "model.pt: it is empty" in record(mnt, 3)["reason"]
    assert latest(mnt) == 1
    mnt.wait_durable()
    assert [verify(mnt, n) for n in ("latest", "2", "3")] == [0, 6, 6]
    mnt.remount(empty_cache=True)
    put(mnt.path / "notes", "after a remount")
    assert mnt.seal() == 4 and latest(mnt) == 1
    write_zip(path)
    assert mnt.seal() == 5 and latest(mnt) == 5 and "doubts" not in record(mnt, 5)


def fill_in_place(path):
    whole = io.BytesIO()
    write_zip(whole)
    with open(path, "r+b") as f:
        f.write(whole.getvalue())


FILL = {
    "in place": fill_in_place,
    "truncated": write_zip,
    "by a rename": lambda path: (write_zip(path.with_name("new")), os.rename(path.with_name("new"), path)),
}


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("how", FILL)
def test_a_file_that_is_made_empty_first(mnt, how, sealed):
    """touch, or a temporary file that is filled by its name."""
    put(mnt.path / "x", "1")
    mnt.seal()
    (mnt.path / "model.pt").touch()
    if sealed:
        assert record(mnt, mnt.seal())["complete"] is False and latest(mnt) == 1
    FILL[how](mnt.path / "model.pt")
    number = mnt.seal()
    assert latest(mnt) == number and "doubts" not in record(mnt, number) and "doubts" not in mnt.status()
    mnt.wait_durable()
    assert verify(mnt, "latest") == 0


@pytest.mark.parametrize("name", ["done", "model.ckpt", "model.bin", "__1_0.distcp", "model.pt.tmp", "train.log"])
def test_other_files_may_be_empty(mnt, name):
    (mnt.path / name).touch()
    assert mnt.seal() == 1 and record(mnt, 1)["complete"] is True and latest(mnt) == 1


@pytest.mark.parametrize("new", [False, True])
def test_an_empty_file_by_word(mnt, new):
    (mnt.path / "model.pt").touch()
    if not new:
        mnt.seal()
    run(BIN, "commit", "--whole", mnt.path)
    put(mnt.path / "notes", "another file")
    number = mnt.seal()
    assert latest(mnt) == number and "doubts" not in record(mnt, number)
    mnt.wait_durable()
    assert verify(mnt, "latest") == 0


def test_an_empty_file_gets_such_a_name_later(mnt):
    """An epoch has its content, so nothing is found; and so says verify."""
    (mnt.path / "placeholder").touch()
    mnt.seal()
    os.rename(mnt.path / "placeholder", mnt.path / "model.pt")
    assert mnt.seal() == 2 and latest(mnt) == 2
    mnt.wait_durable()
    assert verify(mnt, "latest") == 0


def test_an_empty_file_that_is_removed(mnt):
    put(mnt.path / "x", "1"), (mnt.path / "model.pt").touch()
    assert record(mnt, mnt.seal())["complete"] is False
    (mnt.path / "model.pt").unlink()
    assert mnt.seal() == 2 and latest(mnt) == 2


def test_an_empty_file_is_imported(volume, tmp_path, passthrough):
    if passthrough == "off":
        pytest.skip("the import does not mount")
    put(tmp_path / "out" / "x", "1"), (tmp_path / "out" / "model.pt").touch(), (tmp_path / "out" / "done").touch()

    def imported():
        done = run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), "--json", tmp_path / "out", volume.url)
        epoch = json.loads(done.stdout)
        return epoch["complete"], [(d["path"], d["why"]) for d in epoch.get("doubts", [])]

    assert imported() == (False, [("model.pt", "it is empty")])
    put(tmp_path / "out" / "x", "2")
    assert imported() == (False, [("model.pt", "it is empty")])
    write_zip(tmp_path / "out" / "model.pt")
    assert imported() == (True, [])
