# SPDX-License-Identifier: Apache-2.0
"""-o resume where a process that took part in the save, or beside it, lives on: nothing mixed is called complete."""

import os
import pathlib
import subprocess
import sys

import pytest

from conftest import python, run, wait_until
from retention import wait_settled
from test_contract_writing import log_of
from test_resume import latest, record

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")

PROCESS = """
import io, os, signal, sys, zipfile

def archive(text):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("data", text * 1000)
    return out.getvalue()

def do(what, name, *words):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    if what == "rename":
        os.rename(name, *words)
    elif what == "read":
        return open(name).read()
    elif what == "has":
        return "yes" if words[0].encode() in open(name, "rb").read() else "no"
    elif what == "list":
        return " ".join(sorted(os.listdir(name)))
    else:
        with open(name, "wb") as f:
            if what == "zip":
                f.write(archive(words[0]))
            elif what == "torn":
                f.write(archive(words[0])[:-50])
            elif what == "fill":
                f.write(words[0].encode() * int(words[1]))
            else:
                f.write(words[0].encode())
            f.flush()
            if what == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
    return "done"

os.chdir(sys.argv[1])
for line in sys.stdin:
    try:
        print(do(*line.split()), flush=True)
    except OSError as e:
        print(e.strerror, flush=True)
"""


class Process:
    """A rank, or a trainer, that does as it is told."""

    def __init__(self, mnt):
        self.process = python(PROCESS, mnt.path)

    def tell(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def do(self, *lines):
        for line in lines:
            assert self.tell(line) == "done", line

    def dies(self, name):
        assert self.tell("dies", name, "half") == ""
        assert self.process.wait(timeout=60) == -9
        self.process.stdout.close()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0
        self.process.stdout.close()


def texts(directory):
    top = pathlib.Path(directory)
    return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file() and ".epochs" not in path.relative_to(top).parts}


def whole_saves(mnt):
    """What the complete epochs have, one after the other."""
    found = [texts(mnt.epoch(e["epoch"])) for e in sorted(log_of(mnt), key=lambda e: e["epoch"]) if e["complete"]]
    return [tree for i, tree in enumerate(found) if not i or tree != found[i - 1]]


def has(mnt, files):
    """What is being taken back may go while it is listed."""
    try:
        return texts(mnt.path) == files
    except FileNotFoundError:
        return False


def goes_back(mnt, first):
    wait_until(lambda: has(mnt, first), "the live tree to go back")


def ends(process, how):
    """It waits for the end of who lives, or for quiet."""
    if how == "ends":
        process.end()


def sealed(mnt):
    return mnt.request("commit")["epoch"]


BOTH = pytest.mark.parametrize("how, settle", [("ends", "1h"), ("lives", "3s")])


@pytest.fixture
def resuming(volume):
    volume.options.setdefault("settle", "1h")
    return volume.mount(resume=True)


@BOTH
def test_a_rank_that_saves_after_another_was_killed(resuming, how, settle):
    mnt = resuming
    mnt.remount(resume=True, settle=settle, keep="last:1")
    rank0, rank1 = Process(mnt), Process(mnt)
    rank0.do("save checkpoint-1/rank0.bin 1", "save checkpoint-1/optim.bin 1")
    rank1.do("save checkpoint-1/rank1.bin 1")
    first = texts(mnt.path)
    mnt.seal()
    good = wait_until(lambda: os.path.lexists(mnt.epochs_dir / "latest") and latest(mnt), "an epoch")
    rank0.do("save checkpoint-2/rank0.bin 2")
    rank0.dies("checkpoint-2/optim.bin")
    # It has changed nothing since the last epoch: whoever is restarted finds the whole save.
    assert texts(mnt.path) == first
    rank1.do("save checkpoint-2/rank1.bin 2")
    ends(rank1, how)
    goes_back(mnt, first)
    wait_settled(mnt)
    assert whole_saves(mnt) == [first] and latest(mnt) > good
    # Who saves all of it is believed.
    again = Process(mnt)
    again.do("save checkpoint-2/rank0.bin 3", "save checkpoint-2/optim.bin 3", "save checkpoint-2/rank1.bin 3")
    again.end()
    assert record(mnt, sealed(mnt))["complete"] is True and (mnt.path / "checkpoint-2" / "rank1.bin").exists()
    if how == "lives":
        rank1.end()


@BOTH
def test_a_process_that_saves_in_place_after_another_was_killed(resuming, how, settle):
    mnt = resuming
    mnt.remount(resume=True, settle=settle)
    one, other = Process(mnt), Process(mnt)
    one.do("save A 1", "save B 1")
    other.do("save C 1")
    mnt.seal()
    first = texts(mnt.path)
    one.do("save A 2")
    one.dies("B")
    assert texts(mnt.path) == first
    other.do("save C 2")
    number = sealed(mnt)
    assert record(mnt, number)["complete"] is False and latest(mnt) != number
    ends(other, how)
    goes_back(mnt, first)
    assert whole_saves(mnt) == [first]
    if how == "lives":
        other.end()


def test_the_rest_that_comes_when_patience_is_over_is_a_save_of_its_own(resuming):
    mnt = resuming
    mnt.remount(resume=True, patience="1s")
    one, other = Process(mnt), Process(mnt)
    one.do("save A 1", "save B 1")
    other.do("save C 1")
    mnt.seal()
    one.do("save A 2")
    one.dies("B")
    other.do("save C 2")
    # For `patience`, and the tree goes back once more.
    wait_until(lambda: mnt.path.joinpath("C").read_text() == "1", "the live tree to go back")
    other.do("save C 3")
    number = sealed(mnt)
    assert record(mnt, number)["complete"] is True and texts(mnt.path) == {"A": "1", "B": "1", "C": "3"}
    other.end()


@pytest.mark.parametrize("where", ["", "checkpoint-2/"])
def test_a_process_that_writes_a_torn_file_again(resuming, where):
    mnt = resuming
    before = Process(mnt)
    before.do("zip %sopt.pt o1" % where, "zip %smodel.pt m1" % where)
    before.end()
    mnt.seal()
    job = Process(mnt)
    job.do("zip %sopt.pt o2" % where, "torn %smodel.pt m2" % where)
    assert record(mnt, sealed(mnt))["complete"] is False
    job.do("zip %smodel.pt m3" % where)
    job.end()
    number = sealed(mnt)
    assert record(mnt, number)["complete"] is True and latest(mnt) == number and "resumed" not in mnt.status()
    assert [b"o2" in (mnt.epoch(number) / where / "opt.pt").read_bytes(), b"m3" in (mnt.epoch(number) / where / "model.pt").read_bytes()] \
        == [True, True]


def test_the_end_of_who_wrote_a_torn_file_is_waited_for(resuming):
    """For longer than `patience`."""
    mnt = resuming
    mnt.remount(resume=True, patience="100ms", settle="100ms")
    before = Process(mnt)
    before.do("zip opt.pt o1", "zip model.pt m1")
    before.end()
    mnt.seal()
    good = [(mnt.path / n).read_bytes() for n in ("opt.pt", "model.pt")]
    job = Process(mnt)
    job.do("zip opt.pt o2", "torn model.pt m2")
    wait_until(lambda: not log_of(mnt)[0]["complete"] or not log_of(mnt)[-1]["complete"], "the half to be sealed")
    assert b"o2" in (mnt.path / "opt.pt").read_bytes()
    assert mnt.status()["resume_waits"] == {"for_pid": job.process.pid}
    job.end()
    wait_until(lambda: [(mnt.path / n).read_bytes() for n in ("opt.pt", "model.pt")] == good, "the live tree to go back")


@pytest.fixture
def small(volume):
    run("mount", "-t", "tmpfs", "-o", "size=16m,mode=755", "tmpfs", volume.cache)
    yield volume.mount(resume=True, full="error", settle="1h", min_free=0)
    volume.clean_up()
    run("umount", "-l", volume.cache)


@pytest.mark.parametrize("passthrough", ["off"])
def test_a_process_that_was_refused_and_saves_again(small, passthrough):  # pylint: disable=unused-argument
    mnt, mib = small, 1 << 20
    before = Process(mnt)
    before.do("fill opt o1 1000", "fill model m1 1000")
    before.end()
    mnt.seal()
    mnt.wait_durable()
    job = Process(mnt)
    job.do("fill opt o2 1000")
    assert job.tell("fill model m2 %d" % (32 * mib)) == "No space left on device"
    assert (mnt.path / "opt").read_text() == "o2" * 1000
    wait_until(lambda: job.tell("fill model m2 1000") == "done", "room again")
    job.end()
    number = sealed(mnt)
    assert record(mnt, number)["complete"] is True and "resumed" not in mnt.status()
    assert texts(mnt.epoch(number)) == {"opt": "o2" * 1000, "model": "m2" * 1000}


def test_what_somebody_writes_who_saved_nothing_before_stays(resuming):
    """A shell that was there before the kill is not of the save."""
    mnt = resuming
    one, shell = Process(mnt), Process(mnt)
    one.do("save A 1", "save B 1")
    mnt.seal()
    one.do("save A 2")
    one.dies("B")
    shell.do("save config.json mended", "save config.json again")
    number = sealed(mnt)
    assert record(mnt, number)["complete"] is True
    assert texts(mnt.path) == texts(mnt.epoch(number)) == {"A": "1", "B": "1", "config.json": "again"}
    shell.end()


def test_a_rename_into_place_after_another_was_killed(resuming):
    """It seals at once."""
    mnt = resuming
    one, other = Process(mnt), Process(mnt)
    one.do("save A 1", "save B 1")
    other.do("save C 1")
    mnt.seal()
    first = texts(mnt.path)
    one.do("save A.tmp 2", "rename A.tmp A")
    one.dies("B.tmp")
    goes_back(mnt, first)
    other.do("save C.tmp 2", "rename C.tmp C")
    goes_back(mnt, first)
    assert whole_saves(mnt) == [first]
    other.end()


def test_a_save_of_somebody_who_lives_stays_where_the_other_saves_again(resuming):
    mnt = resuming
    mnt.remount(resume=True, keep="last:1")
    before = Process(mnt)
    before.do("save runs/a/m.bin 1", "save runs/b/m.bin 1", "save runs/b/o.bin 1")
    before.end()
    mnt.seal()
    a, b = Process(mnt), Process(mnt)
    a.do("save runs/a/m.bin 2")
    b.do("save runs/b/m.bin 2")
    b.dies("runs/b/o.bin")
    # It may be in the middle of its save: meanwhile the half is there, as without the option.
    assert texts(mnt.path) == {"runs/a/m.bin": "2", "runs/b/m.bin": "2", "runs/b/o.bin": "1"}
    waits = mnt.status()["resume_waits"]
    assert waits["for_pid"] == a.process.pid and 0 < waits["at_most_ns"] <= 60e9
    again = Process(mnt)
    again.do("save runs/b/m.bin 3", "save runs/b/o.bin 3")
    again.end()
    a.end()
    number = sealed(mnt)
    status = mnt.status()
    assert record(mnt, number)["complete"] is True and "resumed" not in status and "resume_waits" not in status
    assert texts(mnt.path) == {"runs/a/m.bin": "2", "runs/b/m.bin": "3", "runs/b/o.bin": "3"}


def test_who_is_restarted_while_nobody_else_lives_finds_the_whole_save(resuming):
    mnt = resuming
    job = Process(mnt)
    job.do("save A 1", "save B 1")
    mnt.seal()
    job.do("save A 2")
    job.dies("B")
    again = Process(mnt)
    assert again.tell("read", "A") == again.tell("read", "B") == "1"
    again.do("save A 3")
    assert record(mnt, sealed(mnt))["complete"] is True, "one file that was saved is no half"
    again.do("save B 3")
    again.end()


# ---- what only the seal finds


@pytest.mark.parametrize("where", ["", "checkpoint-2/"])
def test_a_rank_that_saves_only_after_another_was_killed(resuming, where):
    mnt = resuming
    mnt.remount(resume=True, settle="1s")
    for name in ("model.bin", "optim.bin"):
        one = Process(mnt)
        one.do("save %s%s 1" % (where.replace("2", "1"), name))
        one.end()
    mnt.seal()
    first = texts(mnt.path)
    rank0, rank1 = Process(mnt), Process(mnt)
    rank1.dies("%soptim.bin" % where)
    rank0.do("save %smodel.bin 2" % where)
    rank0.end()
    goes_back(mnt, first)
    wait_settled(mnt)
    assert whole_saves(mnt) == [first] and mnt.status()["resumed"]["to"] == 1


def test_a_torn_part_beside_one_that_is_whole(resuming):
    mnt = resuming
    mnt.remount(resume=True, settle="1s")
    parts = ["consolidated.%02d.pth" % n for n in (0, 1)]
    before = Process(mnt)
    before.do(*("zip %s 1" % part for part in parts))
    before.end()
    mnt.seal()
    first = [(mnt.path / part).read_bytes() for part in parts]
    job = Process(mnt)
    job.do("torn %s 2" % parts[1], "zip %s 2" % parts[0])
    job.end()
    wait_until(lambda: [(mnt.path / part).read_bytes() for part in parts] == first, "the live tree to go back")


def test_content_that_its_new_name_says_is_torn(resuming):
    mnt = resuming
    mnt.remount(resume=True, settle="1s")
    whole = b"\x80\x04K\x01."
    (mnt.path / "state.pkl").write_bytes(whole)
    mnt.seal()
    (mnt.path / "state.new").write_bytes(b"\x80\x04\x8c\x05hello")
    os.rename(mnt.path / "state.new", mnt.path / "state.pkl")
    wait_until(lambda: (mnt.path / "state.pkl").read_bytes() == whole, "the live tree to go back")
    assert log_of(mnt)[0]["complete"] is True


def test_the_rest_of_half_a_save_that_got_its_name_by_a_rename(resuming):
    mnt = resuming
    mnt.remount(resume=True, settle="2s", keep="last:1")
    rank0, rank1 = Process(mnt), Process(mnt)
    rank0.do("save last/model.bin 1", "save last/meta.json 1")
    rank1.do("save last/optim.bin 1")
    mnt.seal()
    first = texts(mnt.path)
    rank0.do("save _checkpoint/model.bin 2")
    rank1.dies("_checkpoint/optim.bin")
    rank0.do("rename last old", "rename _checkpoint last")
    goes_back(mnt, first)
    rank0.do("save last/meta.json 2")
    goes_back(mnt, first)
    wait_settled(mnt)
    assert whole_saves(mnt) == [first]
    rank0.end()


SHELL = """
cd "$1" && echo "attempt 1" > attempt.txt
"$2" -c 'import os
for name in ("a", "b"):
    with open(name, "w") as f:
        f.write("new" * 10000)
        f.flush()
        if name == "b":
            os.kill(os.getpid(), 9)'
cat a b
"""


def test_a_shell_that_wrote_a_note_is_not_waited_for(resuming):
    """The next thing that it starts finds the whole save."""
    first = {"a": "a" * 30000, "b": "b" * 30000}
    for name, text in first.items():
        (resuming.path / name).write_text(text)
    sealed(resuming)
    for _ in range(5):
        done = subprocess.run(["bash", "-c", SHELL, "bash", resuming.path, sys.executable], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == first["a"] + first["b"]
        goes_back(resuming, first)


def test_who_saved_a_file_and_started_the_killed_process_is_waited_for(resuming):
    """It may save the rest itself."""
    (resuming.path / "a").write_text("a" * 30000)
    (resuming.path / "b").write_text("b" * 30000)
    sealed(resuming)
    trainer = """
import os, sys
os.chdir(sys.argv[1])
open("a", "w").write("A" * 30000)
if not os.fork():
    with open("b", "w") as f:
        f.write("B" * 10000)
        f.flush()
        os.kill(os.getpid(), 9)
os.wait()
open("b", "w").write("B" * 30000)
"""
    subprocess.run([sys.executable, "-c", trainer, resuming.path], timeout=60, check=True)
    sealed(resuming)
    assert whole_saves(resuming) == [{"a": "a" * 30000, "b": "b" * 30000}, {"a": "A" * 30000, "b": "B" * 30000}]
