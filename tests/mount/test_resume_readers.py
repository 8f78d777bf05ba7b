# SPDX-License-Identifier: Apache-2.0
"""-o resume: who closed a torn file and lives may save it again, and is waited for; but nobody who resumes meets that file.

A notebook whose cell was interrupted lives on; its user runs the cell again, or the training in a shell."""

import time

import pytest

import test_resume_others
from conftest import wait_until
from test_contract_writing import log_of
from test_resume import latest, record
from test_resume_others import Process, sealed

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")

resuming, small = test_resume_others.resuming, test_resume_others.small  # fixtures
WHERE = pytest.mark.parametrize("where", ["", "checkpoint-2/"])


def ask(mnt, *lines):
    """A process that is started now."""
    process = Process(mnt)
    answers = [process.tell(*line.split()) for line in lines]
    process.end()
    return answers


def interrupted(mnt, where=""):
    """A whole save, and one that was interrupted in its second file, by somebody who lives."""
    ask(mnt, "zip opt.pt o1", "zip model.pt m1")
    good = mnt.seal()
    job = Process(mnt)
    job.do("zip %sopt.pt o2" % where, "torn %smodel.pt m2" % where)
    return good, job


def goes_back(mnt, good):
    assert mnt.status()["resumed"]["to"] == good and "resume_waits" not in mnt.status()
    assert ask(mnt, "has opt.pt o1", "has model.pt m1") == ["yes", "yes"]


@pytest.mark.parametrize("first", ["has opt.pt o1", "has model.pt m1", "list ."])
@WHERE
def test_whoever_has_closed_a_file_torn_and_reads(resuming, where, first):
    """The first thing that he reads is of the save before, as all that comes then."""
    mnt = resuming
    good, job = interrupted(mnt, where)
    assert "resumed" not in mnt.status()
    assert job.tell(first) == ("model.pt opt.pt" if first == "list ." else "yes")
    if where:
        assert job.tell("list", where[:-1]) == "No such file or directory"
    goes_back(mnt, good)
    job.do("zip %sopt.pt o3" % where, "zip %smodel.pt m3" % where)
    job.end()
    number = sealed(mnt)
    assert record(mnt, number)["complete"] is True and latest(mnt) == number
    assert ask(mnt, "has %sopt.pt o3" % where, "has %smodel.pt m3" % where) == ["yes", "yes"]


@pytest.mark.options(settle="1s")
def test_what_he_saves_then_is_a_new_save(resuming):
    """With a pause, in which an epoch is sealed."""
    _, job = interrupted(resuming)
    assert job.tell("has", "model.pt", "m1") == "yes"
    done = resuming.status()["resumed"]
    job.do("zip opt.pt o3")
    wait_until(lambda: latest(resuming) > done["epoch"], "an epoch by quiet")
    job.do("zip model.pt m3")
    job.end()
    assert ask(resuming, "has opt.pt o3", "has model.pt m3") == ["yes", "yes"] and resuming.status()["resumed"] == done


@pytest.mark.options(settle="1s")
@pytest.mark.parametrize("quiet", [0, 2], ids=["at-once", "after-quiet"])
@pytest.mark.parametrize("what", ["list .", "has opt.pt o3", "has config.json c"])
@WHERE
def test_what_he_reads_while_he_saves_again(resuming, where, what, quiet):
    """Then it is not the time to go back: what he has saved would be gone."""
    ask(resuming, "zip config.json c")
    good, job = interrupted(resuming, where)
    time.sleep(quiet)
    job.do("zip %sopt.pt o3" % where)
    job.tell(what.replace("opt.pt", where + "opt.pt"))
    assert "resumed" not in resuming.status()
    job.do("zip %smodel.pt m3" % where)
    job.end()
    number = sealed(resuming)
    assert record(resuming, number)["complete"] is True and latest(resuming) == number
    assert not any(e["complete"] for e in log_of(resuming) if good < e["epoch"] < number)
    assert ask(resuming, "has %sopt.pt o3" % where, "has %smodel.pt m3" % where) == ["yes", "yes"]


@pytest.mark.options(settle="1s")
@pytest.mark.parametrize("end", ["killed", "saved"])
def test_he_reads_the_torn_file_itself_while_he_saves_again(resuming, end):
    """That is there no more: what he has saved again is half, until he saves all of it."""
    good, job = interrupted(resuming)
    job.do("zip opt.pt o3")
    assert job.tell("has", "model.pt", "m1") == "yes" and job.tell("has", "opt.pt", "o1") == "yes"
    again = resuming.status()["resumed"]["epoch"]
    if end == "saved":
        job.do("zip model.pt m3")
        wait_until(lambda: resuming.status()["resumed"]["to"] == again, "the live tree to go back once more")
        job.end()
    else:
        job.dies("model.pt")
    assert ask(resuming, "has opt.pt o1", "has model.pt m1") == ["yes", "yes"]


@pytest.mark.options(settle="1s")
def test_another_rank_goes_on_where_he_has_read(resuming):
    """That one knows nothing of it: what it saves is the rest."""
    rank = Process(resuming)
    rank.do("zip b.pt b1")
    _, job = interrupted(resuming)
    assert job.tell("has", "model.pt", "m1") == "yes"
    again = resuming.status()["resumed"]["epoch"]
    rank.do("zip b.pt b2")
    wait_until(lambda: resuming.status()["resumed"]["to"] == again, "the live tree to go back once more")
    assert ask(resuming, "has b.pt b1") == ["yes"]
    job.end(), rank.end()


@pytest.mark.options(settle="1s")
def test_he_does_not_go_on_where_another_has_read(resuming):
    _, job = interrupted(resuming)
    time.sleep(2)
    assert ask(resuming, "has model.pt m1") == ["yes"]
    again = resuming.status()["resumed"]["epoch"]
    job.do("zip opt.pt o3")
    wait_until(lambda: resuming.status()["resumed"]["to"] == again, "the live tree to go back once more")
    job.end()
    goes_back(resuming, again)


@pytest.mark.options(settle="1s")
@WHERE
def test_he_saves_the_torn_file_alone_where_another_has_read(resuming, where):
    """What he had saved with it is not there any more."""
    _, job = interrupted(resuming, where)
    time.sleep(2)
    assert ask(resuming, "has model.pt m1") == ["yes"]
    again = resuming.status()["resumed"]["epoch"]
    job.do("zip %smodel.pt m3" % where)
    wait_until(lambda: resuming.status()["resumed"]["to"] == again, "the live tree to go back once more")
    job.end()
    goes_back(resuming, again)
    assert all(not e["complete"] for e in log_of(resuming) if e["epoch"] == again + 1)


@pytest.mark.options(settle="1s")
@pytest.mark.parametrize("order", [("model.pt m3", "opt.pt o3"), ("opt.pt o3", "model.pt m3")])
def test_the_tree_goes_back_between_what_he_saves_again(resuming, order):
    """Each of the two is half by itself."""
    _, job = interrupted(resuming)
    time.sleep(2)
    assert ask(resuming, "has model.pt m1") == ["yes"]
    again = resuming.status()["resumed"]["epoch"]
    for one in order:
        job.do("zip " + one)
        wait_until(lambda: resuming.status()["resumed"]["to"] == again, "the live tree to go back once more")
        goes_back(resuming, again)
        again = resuming.status()["resumed"]["epoch"]
    job.do(*("zip " + one for one in order))
    job.end()
    number = sealed(resuming)
    assert record(resuming, number)["complete"] is True and latest(resuming) == number
    assert ask(resuming, "has opt.pt o3", "has model.pt m3") == ["yes", "yes"]


@pytest.mark.options(settle="1s")
@pytest.mark.parametrize("order", [("model.pt m3", "opt.pt o3"), ("opt.pt o3", "model.pt m3")])
def test_he_saves_all_again_where_another_has_read(resuming, order):
    _, job = interrupted(resuming)
    time.sleep(2)
    assert ask(resuming, "has model.pt m1") == ["yes"]
    done = resuming.status()["resumed"]
    job.do(*("zip " + one for one in order))
    wait_until(lambda: latest(resuming) > done["epoch"], "an epoch by quiet")
    job.end()
    assert ask(resuming, "has opt.pt o3", "has model.pt m3") == ["yes", "yes"] and resuming.status()["resumed"] == done


@pytest.mark.options(settle="1s", patience="1h")
@pytest.mark.parametrize("first", ["has model.pt m1", "has opt.pt o1", "list ."])
@WHERE
def test_who_is_started_after_a_quiet_time(resuming, where, first):
    good, job = interrupted(resuming, where)
    time.sleep(2)
    assert "resumed" not in resuming.status() and resuming.status()["resume_waits"] == {"for_pid": job.process.pid}
    assert ask(resuming, first) == (["model.pt opt.pt"] if first == "list ." else ["yes"])
    goes_back(resuming, good)
    job.end()


@pytest.mark.options(settle="1s", patience="1h")
def test_all_who_are_started_at_one_time(resuming):
    good, job = interrupted(resuming)
    time.sleep(2)
    ranks = [Process(resuming) for _ in range(12)]
    for rank in ranks:
        rank.process.stdin.write("has model.pt m1\nhas opt.pt o1\n")
        rank.process.stdin.flush()
    for rank in ranks:
        assert [rank.process.stdout.readline() for _ in range(2)] == ["yes\n", "yes\n"]
        rank.end()
    goes_back(resuming, good)
    job.end()


@pytest.mark.options(settle="1s", patience="1h")
def test_who_was_there_before_and_looks_at_other_files(resuming):
    mnt = resuming
    watcher = Process(mnt)
    watcher.do("save log.txt x")
    _, job = interrupted(mnt)
    time.sleep(2)
    assert [watcher.tell(*line.split()) for line in ("list .", "has opt.pt o2", "save log.txt y")] == ["log.txt model.pt opt.pt", "yes", "done"]
    assert ask(mnt, "read log.txt") == ["y"]  # now there was no quiet
    assert "resumed" not in mnt.status()
    time.sleep(2)
    assert watcher.tell("has", "model.pt", "m1") == "yes"
    assert mnt.status()["resumed"]
    job.end(), watcher.end()


@pytest.mark.parametrize("first", ["has opt.pt o1", "has model.pt m1", "list ."])
@WHERE
def test_who_is_started_at_once(resuming, where, first):
    """Whoever caught Ctrl-C starts another program that loads what he saved."""
    good, job = interrupted(resuming, where)
    assert ask(resuming, first) == (["model.pt opt.pt"] if first == "list ." else ["yes"])
    goes_back(resuming, good)
    job.end()


@WHERE
def test_who_saves_the_torn_file_again(resuming, where):
    """Nobody has read anything meanwhile but who was there before."""
    watcher = Process(resuming)
    watcher.do("save log.txt x")
    time.sleep(0.1)
    _, job = interrupted(resuming, where)
    assert watcher.tell("has", where + "opt.pt", "o2") == "yes"
    job.do("zip %smodel.pt m2" % where)
    job.end(), watcher.end()
    number = sealed(resuming)
    assert record(resuming, number)["complete"] is True and "resumed" not in resuming.status()


@pytest.mark.parametrize("passthrough", ["off"])
@pytest.mark.parametrize("how", ["reads", "reads another", "ends", "saves"])
def test_whoever_was_refused(small, how, passthrough):  # pylint: disable=unused-argument
    """What he was refused is as it was before, which is no new save of it."""
    ask(small, "fill opt o1 1000", "fill model m1 1000")
    small.seal()
    small.wait_durable()
    job = Process(small)
    job.do("fill opt o2 1000")
    assert job.tell("fill", "model", "m2", str(32 << 20)) == "No space left on device"
    assert ask(small, "read opt") == ["o2" * 1000]
    assert small.status()["resume_waits"] == {"for_pid": job.process.pid}
    assert job.tell("list", ".").split() == ["model", "opt"] and "resumed" not in small.status()  # he makes room
    if how.startswith("reads"):
        assert job.tell("read", "model" if how == "reads" else "opt") == ("m1" if how == "reads" else "o1") * 1000
    if how == "saves":
        wait_until(lambda: job.tell("fill model m2 1000") == "done", "room again")
    if how != "ends":
        texts = [job.tell("read", name) for name in ("model", "opt")]
    job.end()
    if how == "ends":
        texts = ask(small, "read model", "read opt")
    save = "2" if how == "saves" else "1"
    assert texts == [("m" + save) * 1000, ("o" + save) * 1000]


def left_empty(mnt, where="", *more):
    """A save that failed in its second file before the first byte: what was to be pickled cannot be, say."""
    ask(mnt, "zip opt.pt o1", "zip model.pt m1")
    good = mnt.seal()
    job = Process(mnt)
    job.do("zip %sopt.pt o2" % where, "fill %smodel.pt x 0" % where, *more)
    return good, job


@pytest.mark.options(patience="1h")
@pytest.mark.parametrize("first", ["has model.pt m1", "has opt.pt o1", "list ."])
@WHERE
def test_an_empty_file_whose_writer_has_ended(resuming, where, first):
    """There was no quiet time: who is started at once meets the save before."""
    good, job = left_empty(resuming, where)
    job.end()
    assert "resumed" not in resuming.status()
    assert ask(resuming, first) == (["model.pt opt.pt"] if first == "list ." else ["yes"])
    goes_back(resuming, good)


@pytest.mark.options(patience="1h")
def test_an_empty_file_whose_writer_reads_it(resuming):
    good, job = left_empty(resuming)
    assert job.tell("has", "model.pt", "m1") == "yes"
    goes_back(resuming, good)
    job.end()


@pytest.mark.options(patience="1h")
def test_an_empty_file_that_somebody_writes_by_another_open(resuming):
    """A shell that makes it first, and adds the parts: nothing goes back, and nobody is waited for."""
    _, job = left_empty(resuming)
    assert ask(resuming, "has opt.pt o2") == ["yes"]
    job.end()
    ask(resuming, "zip model.pt m2")
    assert ask(resuming, "has opt.pt o2", "has model.pt m2") == ["yes", "yes"] and "resumed" not in resuming.status()
    number = sealed(resuming)
    assert record(resuming, number)["complete"] is True and latest(resuming) == number


@pytest.mark.options(patience="1h")
def test_a_new_empty_file_that_another_program_is_to_write(resuming):
    """As `mktemp` or `touch` makes it: the program that is started then reads before it writes."""
    ask(resuming, "zip opt.pt o1")
    resuming.seal()
    ask(resuming, "zip opt.pt o2", "fill model.pt x 0")
    assert ask(resuming, "list .", "has opt.pt o2", "zip model.pt m2") == ["model.pt opt.pt", "yes", "done"]
    assert ask(resuming, "has opt.pt o2", "has model.pt m2") == ["yes", "yes"] and "resumed" not in resuming.status()


@pytest.mark.options(patience="1h")
def test_another_save_beside_an_empty_file(resuming):
    """Another rank that lives is waited for, and a torn file counts by itself."""
    rank = Process(resuming)
    rank.do("zip b.pt b1")
    good, job = left_empty(resuming)
    rank.do("zip b.pt b2")
    job.end()
    assert ask(resuming, "has opt.pt o2") == ["yes"]
    rank.do("torn b.pt b3")
    rank.end()
    wait_until(lambda: resuming.status().get("resumed"), "the live tree to go back")
    goes_back(resuming, good)
    assert ask(resuming, "has b.pt b1") == ["yes"]


@pytest.mark.options(patience="1h")
def test_a_directory_made_anew_beside_an_empty_file_that_is_gone(resuming):
    good, job = left_empty(resuming, "checkpoint-2/")
    for name in ("opt.pt", "model.pt"):
        (resuming.path / "checkpoint-2" / name).unlink()
    job.end()
    assert ask(resuming, "list .", "list checkpoint-2") == ["checkpoint-2 model.pt opt.pt", ""]
    assert "resumed" not in resuming.status()
