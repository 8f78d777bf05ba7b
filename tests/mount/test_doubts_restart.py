# SPDX-License-Identifier: Apache-2.0
"""After a killed save: what a restarted job writes is no half of it, what others go on with is, and what was left is saved again."""

import os
import sys
import time

import pytest

import test_resume_others
from conftest import run, wait_until
from test_contract_writing import log_of
from test_doubts import doubts, latest, record
from test_resume_others import Process, sealed, texts

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")

resuming = test_resume_others.resuming  # a fixture
OTHERS = ["save args.json lr=2", "save mlruns/1/metric loss=3"]


def do(mnt, *lines, dies=""):
    """A process that is started now."""
    process = Process(mnt)
    process.do(*lines)
    if dies:
        process.dies(dies)
    else:
        process.end()


def edit(path, write):
    run(sys.executable, "-c", "import sys; f = open(sys.argv[1], 'r+'); f.seek(2); f.write(sys.argv[2])", path, write)


@pytest.mark.parametrize("first", ["model", "new model"])
def test_a_restarted_job_that_writes_other_files(mnt, first):
    do(mnt, "save args.json lr=1", "save other x", *["save model 1"] * (first == "model"))
    assert sealed(mnt) == 1
    if first == "model":
        do(mnt, "save model 2")
        assert sealed(mnt) == 2
    do(mnt, dies="model")
    do(mnt, *OTHERS)
    number = sealed(mnt)
    assert record(mnt, number)["complete"] and doubts(mnt, number) == {} and latest(mnt) == number


@pytest.mark.options(settle="1s")
def test_nothing_of_a_restarted_job_is_taken_back(resuming):
    do(resuming, "save model 1")
    assert sealed(resuming) == 1
    do(resuming, "save model 2")
    assert sealed(resuming) == 2
    do(resuming, dies="model")
    job = Process(resuming)
    job.do(*OTHERS)
    wait_until(lambda: "mlruns" in os.listdir(resuming.epochs_dir / "latest"), "an epoch with what it wrote")
    time.sleep(2)
    assert texts(resuming.path) == {"model": "2", "args.json": "lr=2", "mlruns/1/metric": "loss=3"}
    assert "resumed" not in resuming.status() and all(e["complete"] for e in log_of(resuming))
    job.end()


def test_a_process_that_lived_and_writes_to_a_step(mnt):
    """That says nothing of what the restarted job has written before."""
    evaluation = Process(mnt)
    do(mnt, "save model 1", "save optimizer 1")
    sealed(mnt)
    time.sleep(0.1)
    do(mnt, dies="model")
    do(mnt, *OTHERS)
    evaluation.do("save eval/step-1/result 5")
    evaluation.end()
    number = sealed(mnt)
    assert record(mnt, number)["complete"] and doubts(mnt, number) == {} and latest(mnt) == number


@pytest.mark.options(settle="1s")
def test_the_first_half_of_a_save_with_a_pause_that_is_changed_in_part(mnt):
    """The first half was a whole epoch until then."""
    for text in "12":
        do(mnt, "save optimizer " + text, "save model " + text)
        good = sealed(mnt)
    job = Process(mnt)
    job.do("save optimizer 3")
    wait_until(lambda: latest(mnt) > good, "an epoch by quiet")
    job.dies("model")
    edit(mnt.path / "optimizer", "")
    assert not record(mnt, sealed(mnt))["complete"] and latest(mnt) == good


@pytest.mark.parametrize("where", ["", "job/"])
def test_a_process_that_lived_goes_on_with_the_save(mnt, where):
    rank = Process(mnt)
    do(mnt, "save %smodel 1" % where, "save %soptimizer 1" % where)
    good = sealed(mnt)
    time.sleep(0.1)
    do(mnt, dies=where + "model")
    do(mnt, *OTHERS)
    rank.do("save %soptimizer 2" % where)
    number = sealed(mnt)
    assert not record(mnt, number)["complete"] and doubts(mnt, number) == {where + "model": ("undone", True)} and latest(mnt) == good
    rank.end()


def test_another_program_that_saves_what_is_saved_together(mnt):
    """As a shell script does, whose first command was killed."""
    for text in "12":
        do(mnt, "save model " + text), do(mnt, "save optimizer " + text)
        good = sealed(mnt)
    do(mnt, dies="model")
    do(mnt, "save optimizer 3")
    number = sealed(mnt)
    assert not record(mnt, number)["complete"] and latest(mnt) == good
    do(mnt, "save model 3")
    assert sealed(mnt) == latest(mnt) == number + 1


def test_in_the_directory_of_a_step_all_is_of_one_save(mnt):
    do(mnt, "save checkpoint-1/model 1", "save checkpoint-1/optimizer 1")
    good = sealed(mnt)
    do(mnt, dies="checkpoint-2/model")
    do(mnt, "save checkpoint-2/optimizer 2")
    assert not record(mnt, sealed(mnt))["complete"] and latest(mnt) == good


@pytest.mark.parametrize("write", ["", "x"], ids=["opened", "changed"])
def test_what_another_program_changes_in_part(mnt, write):
    """A companion stays one; what had not changed before the kill is none."""
    do(mnt, "save model 1", "save optimizer 1000", "save index 1000")
    good = sealed(mnt)
    do(mnt, "save optimizer 2000", dies="model")
    edit(mnt.path / "optimizer", write)
    assert not record(mnt, sealed(mnt))["complete"] and latest(mnt) == good
    do(mnt, "save model 2")
    good = sealed(mnt)
    assert latest(mnt) == good
    do(mnt, dies="model")
    edit(mnt.path / "index", "x")
    assert sealed(mnt) == latest(mnt) > good


@pytest.mark.parametrize("left", ["whole", "killed"])
def test_temporary_names_that_an_epoch_has_are_saved_again(mnt, left):
    """The first of two renames seals nothing, as where the names are new."""
    both = ["rename model.tmp model", "rename optimizer.tmp optimizer"]
    for text in "12":
        do(mnt, "save model.tmp " + text, "save optimizer.tmp " + text, *both)
    good = sealed(mnt)
    do(mnt, "save model.tmp 3", *["save optimizer.tmp 3"] * (left == "whole"), dies="other")
    if left == "killed":
        do(mnt, "save optimizer.tmp 3", dies="optimizer.tmp")
    sealed(mnt)
    job = Process(mnt)
    job.do("save model.tmp 4", "save optimizer.tmp 4", both[0])
    trees = [texts(mnt.epochs_dir / "latest")]
    job.do(both[1])
    job.end()
    trees.append(texts(mnt.epoch(sealed(mnt))))
    assert [(t["model"], t["optimizer"]) for t in trees] == [("2", "2"), ("4", "4")] and latest(mnt) > good


@pytest.mark.parametrize("before", ["optimizer", "note"])
def test_a_killed_directory_of_whoever_had_saved_something_else(resuming, before):
    """The optimizer is always in one place. A mere note stays, and the empty directory is removed."""
    mnt = resuming
    do(mnt, "fill optimizer 1 9000", "fill checkpoint-1/model 1 9000")
    sealed(mnt)
    do(mnt, "fill optimizer 2 9000" if before == "optimizer" else "save note 2", dies="checkpoint-2/model")
    wait_until(lambda: "checkpoint-2" not in os.listdir(mnt.path), "the live tree to go back")
    assert mnt.status().get("resumed", {}).get("why") == ("checkpoint-2/model: its writer was killed" if before == "optimizer" else None)
    assert ("note" in os.listdir(mnt.path)) == (before == "note") and texts(mnt.path)["optimizer"] == "1" * 9000
