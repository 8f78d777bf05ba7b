# SPDX-License-Identifier: Apache-2.0
"""Saves of which one part is renamed into place, and another is written in place or renamed later: no half of one is the latest for good."""

import io
import itertools
import os
import time
import zipfile

import pytest

from conftest import python, wait_until
from test_contract_epochs import log_of
from test_doubts import kill, latest, latest_or_none, put, record, retained

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")

# A kind of save: how each of its files gets into place, in their order. in: written in place; over: by a temporary name.
KINDS = {
    "renamed, in place": [("over", "A"), ("in", "B")],
    "in place, renamed": [("in", "A"), ("over", "B")],
    "renamed twice, in place": [("over", "A"), ("over", "B"), ("in", "C")],
    "renamed, in place twice": [("over", "A"), ("in", "B"), ("in", "C")],
    "both renamed": [("over", "A"), ("over", "B")],
    "in subdirectories": [("over", "w/A"), ("in", "o/B")],
    # tf.train.CheckpointManager, then what it does not know of.
    "last file renamed": [("over", "checkpoint"), ("in", "replay.pkl")],
}


@pytest.fixture
def passthrough():
    """Sealing is the same either way."""
    return "auto"


def put_over(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".tmp")
    part.write_text(text)
    os.replace(part, path)


def save(mnt, files, text, pause=0.0):
    for number, (how, name) in enumerate(files):
        if number and pause:
            time.sleep(pause)
        (put_over if how == "over" else put)(mnt.path / name, name + text)


def kill_in(mnt, how, name):
    kill(mnt.path / (name + ".tmp" if how == "over" else name))


def whole(mnt, files, number):
    """Whether an epoch has one save of them, all of it."""
    there = [mnt.epoch(number) / name for _, name in files]
    return all(p.exists() for p in there) and len({p.read_text()[-1] for p in there}) == 1


def sealed_whole(mnt, files, text):
    """All is sealed that was saved."""
    wait_until(lambda: log_of(mnt) and all((mnt.epoch(max(log_of(mnt))) / n).exists() and (mnt.epoch(max(log_of(mnt))) / n).read_text() == n + text
                                           for _, n in files), "the epoch of the save " + text)
    wait_until(lambda: latest(mnt) == max(log_of(mnt)), "it to be the latest")


def saved_twice(mnt, files, pause=0.0):
    """Whole each time: the epoch of the second."""
    for text in (" 1", " 2"):
        save(mnt, files, text, pause)
        sealed_whole(mnt, files, text)
        time.sleep(0.3)
    return latest(mnt)


def note(mnt, text):
    """Another file is written, and sealed by quiet."""
    before = max(log_of(mnt))
    put(mnt.path / "note.txt", text)
    wait_until(lambda: max(log_of(mnt)) > before, "the epoch of the note")


def half_is_never_latest(mnt, files, pause=0.0):
    """Two whole saves, and one that is killed in the last file: all files before it are new."""
    good = saved_twice(mnt, files, pause)
    save(mnt, files[:-1], " 3", pause)
    if pause:
        time.sleep(pause)
    kill_in(mnt, *files[-1])
    wait_until(lambda: latest(mnt) == good, "the good epoch to be the latest again")
    for text in ("a note", "another"):
        note(mnt, text)
        assert latest(mnt) == good and whole(mnt, files, good)
    assert all(whole(mnt, files, n) for n, e in log_of(mnt).items() if e["complete"] is True and n >= good)
    return good


@pytest.mark.options(settle="150ms", keep="last:1")
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_in_the_last_file(mnt, kind):
    good = half_is_never_latest(mnt, KINDS[kind])
    mnt.wait_durable()
    assert good in mnt.epochs()
    mnt.remount(empty_cache=True)
    assert latest(mnt) == good
    save(mnt, KINDS[kind], " 4")
    sealed_whole(mnt, KINDS[kind], " 4")


@pytest.mark.options(settle="150ms")
@pytest.mark.parametrize("kind", KINDS)
def test_a_pause_before_each_file(mnt, kind):
    half_is_never_latest(mnt, KINDS[kind], pause=0.5)


@pytest.mark.options(settle="150ms", patience="1s")
def test_a_temporary_file_that_is_written_for_long(mnt):
    """Longer than `patience`: it was opened soon after the rename of the other."""
    files = KINDS["both renamed"]
    good = saved_twice(mnt, files)
    save(mnt, files[:1], " 3")
    writer = python("import os, signal, sys, time\nf = open(sys.argv[1], 'w')\n"
                    "for i in range(25):\n    f.write('half'); f.flush(); time.sleep(0.1)\nos.kill(os.getpid(), signal.SIGKILL)",
                    mnt.path / "B.tmp")
    writer.communicate(timeout=60)
    note(mnt, "a note")
    assert latest(mnt) == good


@pytest.mark.options(settle="150ms")
def test_whole_saves_leave_no_half_once_one_went_on(mnt):
    """What was learned from the second save: the first rename seals nothing by itself any more."""
    files = KINDS["renamed, in place"]
    for text in " 1", " 2", " 3", " 4", " 5":
        save(mnt, files, text)
        sealed_whole(mnt, files, text)
        time.sleep(0.3)
    halves = [n for n, e in log_of(mnt).items() if not whole(mnt, files, n)]
    assert len(halves) <= 2 and all(record(mnt, n)["complete"] is not True for n in halves if n > 1)


@pytest.mark.options(settle="150ms", keep="last:1")
def test_a_crash_of_the_daemon_in_the_last_file(mnt):
    files = KINDS["renamed, in place"]
    good = saved_twice(mnt, files)
    save(mnt, files[:-1], " 3")
    half = python("import sys\nf = open(sys.argv[1], 'w'); f.write('half'); f.flush(); print('half', flush=True); sys.stdin.read()", mnt.path / "B")
    assert half.stdout.readline() == "half\n"
    mnt.kill()
    half.kill()
    half.communicate(timeout=60)
    mnt.mount()
    wait_until(lambda: latest(mnt) == good, "the good epoch to be the latest again")
    put(mnt.path / "note.txt", "more")
    mnt.seal()
    assert latest(mnt) == good


@pytest.mark.options(settle="150ms")
def test_a_file_that_alone_is_renamed_more_often_takes_nothing_with_it(mnt):
    """A status beside the model is not of its save."""
    for number in range(1, 4):
        put_over(mnt.path / "A", "A %d" % number)
        wait_until(lambda n=number: log_of(mnt) and (mnt.epoch(max(log_of(mnt))) / "A").read_text() == "A %d" % n, "its epoch")
        if number == 1:
            put(mnt.path / "B", "B 1")
            wait_until(lambda: (mnt.epoch(max(log_of(mnt))) / "B").exists(), "the other's epoch")
        time.sleep(0.3)
    kill(mnt.path / "B")
    time.sleep(0.6)
    retained(mnt, sorted(log_of(mnt)))
    assert latest(mnt) == max(log_of(mnt)) and (mnt.epoch(latest(mnt)) / "A").read_text() == "A 3"


# ---- the last file is closed torn under its temporary name, as Ctrl-C leaves it


def zip_over(path, text, torn=False):
    part = path.with_name(path.name + ".tmp")
    zip_in_place(part, text, torn)
    if not torn:
        os.replace(part, path)


def zip_in_place(path, text, torn=False):
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as z:
        z.writestr("data", text * 1000)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(whole.getvalue()[:-60] if torn else whole.getvalue())


def is_half(mnt, number):
    doubts = log_of(mnt)[number].get("doubts", [])
    return not record(mnt, number)["complete"] and any(d["kind"] == "undone" and d["path"].endswith("optim.pt.tmp") for d in doubts)


@pytest.mark.options(settle="1h", keep="last:1")
@pytest.mark.parametrize("place", ["", "checkpoint-%d/"])
def test_a_save_that_is_interrupted_in_its_second_temporary_file(mnt, place):
    top = lambda n: mnt.path / (place % n if place else "")  # noqa: E731
    for number in (1, 2):
        zip_over(top(number) / "model.pt", "m%d" % number)
        zip_over(top(number) / "optim.pt", "o%d" % number)
        mnt.seal()
    good = latest(mnt)
    zip_over(top(3) / "model.pt", "m3")
    zip_over(top(3) / "optim.pt", "o3", torn=True)
    assert is_half(mnt, mnt.seal())
    put(mnt.path / "note.txt", "1")
    assert is_half(mnt, mnt.seal()) and latest(mnt) == good
    mnt.remount(settle="1h", keep="last:1")
    # Who tidies up saves nothing.
    os.unlink(top(3) / "optim.pt.tmp")
    assert is_half(mnt, mnt.seal())
    mnt.wait_durable()
    assert latest(mnt) == good and (mnt.epoch(good) / "optim.pt" if not place else mnt.epoch(good) / (place % 2) / "optim.pt").exists()
    zip_over(top(3) / "optim.pt", "o3")
    number = mnt.seal()
    assert record(mnt, number)["complete"] is True and latest(mnt) == number


@pytest.mark.options(settle="1h")
def test_what_is_torn_under_a_temporary_name_alone_is_no_half_save(mnt):
    zip_over(mnt.path / "optim.pt", "o1")
    mnt.seal()
    zip_over(mnt.path / "optim.pt", "o2", torn=True)
    number = mnt.seal()
    assert record(mnt, number)["complete"] is True and latest(mnt) == number


@pytest.mark.options(settle="150ms", patience="2s", keep="last:1")
@pytest.mark.parametrize(
    "place, pause, first",
    # In the root no name says that they are of one save, where none was before.
    [c for c in itertools.product(["", "out/", "checkpoint-%d/"], [False, True], [True, False]) if c != ("", True, True)],
)
def test_an_interrupted_save_of_which_an_epoch_has_the_beginning(mnt, place, pause, first):
    """Sealed in a pause, or by the first rename; what is left under the temporary name holds the next seal up for `patience`."""
    top = lambda n: mnt.path / (place % n if "%" in place else place)  # noqa: E731
    if not first:
        zip_over(top(1) / "model.pt", "m1"), zip_over(top(1) / "optim.pt", "o1")
        wait_until(lambda: latest_or_none(mnt) and (mnt.epoch(latest(mnt)) / top(1).relative_to(mnt.path) / "optim.pt").exists(), "the first save")
        time.sleep(0.5)
        good = latest(mnt)
    zip_over(top(2) / "model.pt", "m2")
    if pause:
        time.sleep(0.6)
    zip_over(top(2) / "optim.pt", "o2", torn=True)
    wait_until(lambda: log_of(mnt) and is_half(mnt, max(log_of(mnt))), "the half save")
    assert latest_or_none(mnt) == (None if first else good)
    retained(mnt, sorted(log_of(mnt)))
    if not first and place != "checkpoint-%d/":  # once more, over what is left
        before = max(log_of(mnt))
        zip_over(top(2) / "model.pt", "m3")
        time.sleep(0.6 if pause else 0)
        zip_over(top(2) / "optim.pt", "o3", torn=True)
        wait_until(lambda: max(log_of(mnt)) > before and is_half(mnt, max(log_of(mnt))), "the half save")
        assert latest(mnt) == good
    zip_over(top(2) / "optim.pt", "o2")
    wait_until(lambda: record(mnt, max(log_of(mnt)))["complete"] is True, "the whole save")
    assert latest(mnt) == max(log_of(mnt))


@pytest.mark.options(settle="150ms", keep="last:1")
@pytest.mark.parametrize("place", ["", "out/", "checkpoint-%d/"])
def test_a_temporary_file_that_is_written_in_two_goes_is_whole_at_last(mnt, place):
    """Its end was looked at when it was closed half."""
    top = lambda n: mnt.path / (place % n if "%" in place else place)  # noqa: E731
    zip_over(top(1) / "model.pt", "m1"), zip_over(top(1) / "optim.pt", "o1")
    wait_until(lambda: latest_or_none(mnt) and (mnt.epoch(latest(mnt)) / top(1).relative_to(mnt.path) / "optim.pt").exists(), "the first save")
    time.sleep(0.5)
    zip_over(top(2) / "model.pt", "m2")
    zip_over(top(2) / "whole.pt", "o2")
    whole = (top(2) / "whole.pt").read_bytes()
    (top(2) / "optim.pt.tmp").write_bytes(whole[:700])
    time.sleep(0.6)
    with open(top(2) / "optim.pt.tmp", "ab") as f:
        f.write(whole[700:])
    os.replace(top(2) / "optim.pt.tmp", top(2) / "optim.pt")
    number = wait_until(lambda: (mnt.epoch(latest(mnt)) / top(2).relative_to(mnt.path) / "whole.pt").exists() and latest(mnt), "the second save")
    optim = top(2).relative_to(mnt.path) / "optim.pt"
    wait_until(lambda: (mnt.epoch(latest(mnt)) / optim).exists() and (mnt.epoch(latest(mnt)) / optim).read_bytes() == whole, "all of it")
    assert latest(mnt) == max(log_of(mnt)) >= number and "doubts" not in record(mnt, latest(mnt)) and "doubts" not in mnt.status()


# ---- one of two processes is killed under a temporary name, and the other goes on

# Each line: PATH KILLED; a save under a temporary name that is renamed, or its beginning.
RANK = """
import os, signal, sys
for line in sys.stdin:
    path, killed = line.split()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".tmp", "wb") as f:
        f.write(path.encode() * 100)
        f.flush()
        if killed == "1":
            os.kill(os.getpid(), signal.SIGKILL)
    os.rename(path + ".tmp", path)
    print("saved", flush=True)
"""


@pytest.mark.parametrize("place", ["", "step-%d/"])
@pytest.mark.options(settle="300ms", keep="last:1")
def test_a_rank_that_is_killed_before_another_saves(mnt, place):
    """In place that is so for whoever saves; under a temporary name who is started after the kill saves something else."""
    ranks = [python(RANK) for _ in range(2)]

    def save(rank, step, killed=0):
        ranks[rank].stdin.write("%s %d\n" % (mnt.path / (place % step if place else "") / ("rank_%d.pt" % rank), killed))
        ranks[rank].stdin.flush()
        return ranks[rank].stdout.readline().strip()

    for step in (10, 20):
        before = max(log_of(mnt), default=0)
        assert save(0, step) == save(1, step) == "saved"
        wait_until(lambda before=before: max(log_of(mnt), default=0) > before, "the epoch of the save")
        time.sleep(1)
    good = latest(mnt)
    assert save(0, 30, killed=1) == ""
    ranks[0].communicate(timeout=60)
    assert save(1, 30) == "saved"
    wait_until(lambda: max(log_of(mnt)) > good, "an epoch after the kill")
    time.sleep(0.5)
    assert latest(mnt) == good and record(mnt, max(log_of(mnt)))["complete"] is False
    ranks[0] = python(RANK)
    assert save(0, 30) == "saved"
    wait_until(lambda: latest(mnt) > good, "the whole save")
    assert (mnt.epochs_dir / "latest" / (place % 30 if place else "") / "rank_1.pt").exists()
    for rank in ranks:
        rank.communicate(timeout=60)


# Lines: KIND PATH; a file written, renamed from a temporary name of its own (mkstemp), or left torn or killed in that.
PROGRAM = """
import os, signal, sys, tempfile
for line in sys.stdin:
    kind, path = line.split()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if kind == "write":
        open(path, "w").write(path)
    else:
        fd, at = tempfile.mkstemp(dir=os.path.dirname(path))
        os.write(fd, b"x" * 20000)
        if kind == "torn":
            os.pwrite(fd, b"PK\\3\\4", 0)
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(fd)
        if kind != "torn":
            os.rename(at, path)
    print("done", flush=True)
"""


class Program:
    def __init__(self, mnt):
        self.mnt, self.process = mnt, python(PROGRAM)

    def do(self, kind, path):
        self.process.stdin.write("%s %s\n" % (kind, self.mnt.path / path))
        self.process.stdin.flush()
        return self.process.stdout.readline().strip() or self.process.wait(timeout=60)

    def end(self):
        self.process.communicate(timeout=60)


@pytest.mark.options(settle="300ms", patience="1s")
def test_who_lives_beside_a_killed_save_holds_up_none_of_the_next(mnt):
    """An evaluator of the same parent saves once, after the trainer was killed under a name that never comes again."""
    trainer, evaluator = Program(mnt), Program(mnt)
    for name in ("model.pt", "optim.pt"):
        trainer.do("over", name)
    evaluator.do("write", "eval_1.json"), time.sleep(1)
    before = max(log_of(mnt))
    trainer.do("kill", "model.pt")
    evaluator.do("write", "eval_2.json")
    wait_until(lambda: max(log_of(mnt)) > before, "an epoch with the note")
    trainer = Program(mnt)
    for _ in range(2):
        for name in ("model.pt", "optim.pt"):
            trainer.do("over", name)
        time.sleep(2)
        assert latest(mnt) == max(log_of(mnt))
    trainer.end(), evaluator.end()


@pytest.mark.options(settle="300ms")
def test_who_has_torn_a_temporary_file_and_saves_it_anew_under_another_one_leaves_none(mnt):
    trainer = Program(mnt)
    for _ in range(2):
        trainer.do("over", "model.pt"), trainer.do("over", "optim.pt"), mnt.seal()
    trainer.do("over", "model.pt"), trainer.do("torn", "optim.pt")
    time.sleep(1.6)  # quiet, so that its end was looked at
    torn, = mnt.path.glob("tmp*")
    torn.unlink()
    trainer.do("over", "optim.pt")
    number = mnt.seal()
    assert latest(mnt) == number and "doubts" not in record(mnt, number)
    trainer.end()


@pytest.mark.parametrize("how", ["torn", "killed"])
@pytest.mark.options(settle="150ms", keep="last:1")
def test_a_half_save_of_another_program_in_the_pause_of_a_save(mnt, how):
    """What is saved in two goes, with a pause, is one save, whoever was interrupted in the pause."""
    for text in ("1", "2"):
        put(mnt.path / "ck" / "a.bin", text), zip_in_place(mnt.path / "ev" / "best.pt", text), put(mnt.path / "ev" / "r.json", text)
        time.sleep(0.7)
        put(mnt.path / "ck" / "b.bin", text)
        time.sleep(0.7)
    good = latest(mnt)
    put(mnt.path / "ck" / "a.bin", "3"), zip_in_place(mnt.path / "ev" / "best.pt", "3")
    time.sleep(0.7)
    put(mnt.path / "ev" / "r.json", "4")
    if how == "torn":
        zip_in_place(mnt.path / "ev" / "best.pt", "4", torn=True)
    else:
        kill(mnt.path / "ev" / "best.pt")
    time.sleep(0.7)
    kill(mnt.path / "ck" / "b.bin")
    wait_until(lambda: latest(mnt) == good, "the whole save to be the latest again")
    time.sleep(1)
    assert latest(mnt) == good
    assert (mnt.epochs_dir / "latest" / "ck" / "a.bin").read_text() == (mnt.epochs_dir / "latest" / "ck" / "b.bin").read_text() == "2"
