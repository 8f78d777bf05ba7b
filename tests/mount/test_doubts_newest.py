# SPDX-License-Identifier: Apache-2.0
"""Which checkpoint was changed last, so that what is in doubt in it counts; and what many companions say."""

import os

import pytest

from conftest import BIN, run, wait_until
from test_contract_sealing import write_zip
from test_contract_writing import log_of
from test_doubts import doubts, kill, latest, latest_or_none, put, record, write_torn

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")


def step_link(mnt, step):
    try:
        return int(os.readlink(mnt.epochs_dir / ("step=%d" % step)))
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("spoilt", ["torn", "killed"])
def test_a_checkpoint_that_gets_its_name_last_is_the_newest(mnt, spoilt):
    """Beside it somebody writes into an older one."""
    (mnt.path / "checkpoint-10").mkdir()
    write_zip(mnt.path / "checkpoint-10" / "model.pt")
    good = mnt.seal()
    (mnt.path / "tmp-checkpoint-20").mkdir()
    if spoilt == "torn":
        write_torn(mnt.path / "tmp-checkpoint-20" / "model.pt")
    else:
        write_zip(mnt.path / "tmp-checkpoint-20" / "opt.pt")
        kill(mnt.path / "tmp-checkpoint-20" / "model.pt")
    put(mnt.path / "checkpoint-10" / "eval.json", "{}")
    os.rename(mnt.path / "tmp-checkpoint-20", mnt.path / "checkpoint-20")
    half = mnt.seal()
    assert record(mnt, half)["complete"] is False and latest(mnt) == good and step_link(mnt, 20) == 0
    put(mnt.path / "notes", "another file")
    mnt.remount(empty_cache=True)
    put(mnt.path / "notes", "on another machine")
    assert record(mnt, mnt.seal())["complete"] is False and latest(mnt) == good
    # And the other way round: what is torn in the older one costs nothing.
    (mnt.path / "tmp-checkpoint-30").mkdir()
    write_zip(mnt.path / "tmp-checkpoint-30" / "model.pt")
    write_torn(mnt.path / "checkpoint-10" / "extra.pt")
    os.rename(mnt.path / "tmp-checkpoint-30", mnt.path / "checkpoint-30")
    assert mnt.seal() == latest(mnt) == step_link(mnt, 30)


@pytest.mark.options(keep="last:1")
def test_the_time_of_an_older_checkpoint_makes_no_torn_one_complete(mnt):
    for step, write in ((10, write_zip), (20, write_torn)):
        (mnt.path / ("checkpoint-%d" % step)).mkdir()
        write(mnt.path / ("checkpoint-%d" % step) / "model.pt")
        mnt.seal()
    os.utime(mnt.path / "checkpoint-10" / "model.pt")
    for number in range(3):
        put(mnt.path / "notes", "note %d" % number)
        assert record(mnt, mnt.seal())["complete"] is False and latest(mnt) == 1
    run(BIN, "commit", "--whole", mnt.path)
    assert latest(mnt) == 6


@pytest.mark.options(settle="200ms")
def test_a_directory_made_early_leaves_the_checkpoint_before_complete(mnt):
    """The epoch that has it empty is continued, not the one before that."""
    for step in (5, 10):
        (mnt.path / ("checkpoint-%d" % step)).mkdir()
        before = len(log_of(mnt))
        wait_until(lambda n=before: len(log_of(mnt)) > n, "an epoch by quiet")
        write_zip(mnt.path / ("checkpoint-%d" % step) / "model.pt")
        before = len(log_of(mnt))
        wait_until(lambda n=before: (latest_or_none(mnt) or 0) > n, "the save")
    write_torn(mnt.path / "checkpoint-10" / "extra.pt")
    wait_until(lambda: len(log_of(mnt)) == 5, "another epoch")
    assert latest(mnt) == 2 and record(mnt, 2)["step"] == 5


def test_who_says_that_a_save_is_whole_means_its_step(mnt):
    (mnt.path / "checkpoint-7").mkdir()
    write_torn(mnt.path / "checkpoint-7" / "model.pt")
    mnt.seal()
    assert step_link(mnt, 7) == 0
    run(BIN, "commit", "--whole", mnt.path)
    assert latest(mnt) == step_link(mnt, 7) == 2


def test_all_of_many_companions_settle_a_kill(mnt):
    names = [mnt.path / ("f%03d" % i) for i in range(300)]
    for name in names + [mnt.path / "x"]:
        put(name, "1")
    good = mnt.seal()
    for name in names:
        put(name, "2")
    kill(mnt.path / "x")
    mnt.seal()
    mnt.remount(empty_cache=True)
    for name in names[:-1]:
        put(name, "3")
    assert record(mnt, mnt.seal())["complete"] is False and latest(mnt) == good
    put(names[-1], "3")
    assert mnt.seal() == latest(mnt)


@pytest.mark.options(keep="last:1")
def test_an_older_checkpoint_that_is_touched_while_the_torn_one_is_written(mnt):
    """As by who evaluates it. What is in doubt is the checkpoint that whoever looks for the highest step finds."""
    (mnt.path / "checkpoint-10").mkdir()
    write_zip(mnt.path / "checkpoint-10" / "model.pt")
    good = mnt.seal()
    (mnt.path / "checkpoint-20").mkdir()
    write_torn(mnt.base / "torn.pt")
    with open(mnt.path / "checkpoint-20" / "model.pt", "wb") as model:
        model.write((mnt.base / "torn.pt").read_bytes())
        model.flush()
        put(mnt.path / "checkpoint-10" / "eval.json", "{}")
    for note in ("a note", "another"):
        assert record(mnt, mnt.seal())["complete"] is False and latest(mnt) == good
        put(mnt.path / "notes", note)
    (mnt.path / "checkpoint-30").mkdir()
    write_zip(mnt.path / "checkpoint-30" / "model.pt")
    assert mnt.seal() == latest(mnt) == step_link(mnt, 30)


@pytest.mark.parametrize("spoilt", ["torn", "killed"])
def test_the_step_of_an_epoch_is_of_what_is_whole_in_it(mnt, spoilt):
    """Two steps in one epoch; the first has more files, and one of them is in doubt."""
    places = {step: mnt.path / ("checkpoint-%d" % step) for step in (500, 510)}
    for place in places.values():
        place.mkdir()  # both at the beginning: the second one would seal the first
    for step, place in places.items():
        for name in ("model.pt", "optim.pt", "rng.pt")[: 3 if step == 500 else 1]:
            write_zip(place / name)
        if step == 500:
            write_torn(place / "more.pt") if spoilt == "torn" else kill(place / "more.pt")
    number = mnt.seal()
    assert record(mnt, number)["complete"] and list(doubts(mnt, number)) == ["checkpoint-500/more.pt"]
    assert (record(mnt, number)["step"], step_link(mnt, 500), step_link(mnt, 510)) == (510, 0, number)
