# SPDX-License-Identifier: Apache-2.0
"""Epochs that are sealed while a file of the save is open for writing: they have it as it was before."""

import os
import signal
import time

import pytest

from conftest import BIN, run
from place import PATIENCE, SETTLE  # of tests/protocols
from test_contract_writing import Writer
from test_doubts import doubts, kill, latest, put, record, retained

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")

UNDER_WAY = {"B": ("undone", True)}


def half_of_a_save(mnt):
    """A and B are saved; of the next save, A; B is under way."""
    put(mnt.path / "A", "a 1"), put(mnt.path / "B", "b 1")
    assert mnt.seal() == 1
    put(mnt.path / "A", "a 2")
    return Writer(mnt.path / "B")


def close(writer):
    writer.tell("close")
    writer.leave()


def by_sync(mnt):
    mnt.wait_durable()


def by_wait(mnt):
    run(BIN, "wait", mnt.path)


SEALS = {"commit": lambda mnt: mnt.seal(), "mkdir": lambda mnt: mnt.seal("name"), "sync": by_sync, "wait": by_wait}


@pytest.mark.parametrize("how", SEALS)
@pytest.mark.options(keep="last:1", grace="0")
def test_a_command_in_the_middle_of_a_save(mnt, how):
    writer = half_of_a_save(mnt)
    SEALS[how](mnt)
    assert not record(mnt, 2)["complete"] and doubts(mnt, 2) == UNDER_WAY and latest(mnt) == 1
    assert record(mnt, 2)["reason"] == "B: it was open for writing" and record(mnt, 2)["doubts"][0]["companions"] == ["A"]
    writer.end("kill")
    put(mnt.path / "notes", "a line")
    assert mnt.seal() == 3 and doubts(mnt, 3) == UNDER_WAY and latest(mnt) == 1
    retained(mnt, [1, 2, 3])
    put(mnt.path / "B", "b 2")
    assert mnt.seal() == 4 and latest(mnt) == 4


def test_who_closes_in_order_leaves_no_doubt(mnt):
    writer = half_of_a_save(mnt)
    mnt.seal()
    assert "doubts" not in mnt.status() and doubts(mnt, 2) == UNDER_WAY
    close(writer)
    assert mnt.seal() == 3 and latest(mnt) == 3 and not doubts(mnt, 3)


def test_quiet_that_has_lost_its_patience(slow):
    mnt = slow.mount
    writer = half_of_a_save(mnt)
    slow.pause(SETTLE + 1)
    assert mnt.epochs() == [1]
    slow.pause(PATIENCE)
    assert mnt.epochs() == [1, 2]
    assert doubts(mnt, 2) == UNDER_WAY and latest(mnt) == 1
    writer.end("kill")


@pytest.mark.options(grace="3s")  # the daemon waits so long for this process, which has written, too
def test_a_preempted_job(mnt):
    """Its node ends: SIGTERM to the mount, and SIGKILL to all a while later."""
    writer = half_of_a_save(mnt)
    mnt.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    writer.end("kill")
    mnt.process.wait(timeout=60)
    mnt.process = None
    run("umount", "-l", mnt.path, check=False)
    mnt.empty_cache()
    mnt.mount()
    put(mnt.path / "notes", "a line")
    number = mnt.seal()
    assert latest(mnt) == 1 and doubts(mnt, number) == UNDER_WAY
    put(mnt.path / "B", "b 2")
    number = mnt.seal()
    assert latest(mnt) == number


@pytest.mark.options(keep="last:1", grace="0")
def test_another_machine_takes_over(mnt):
    writer = half_of_a_save(mnt)
    assert mnt.seal() == 2
    mnt.wait_durable()
    writer.end("kill")
    mnt.kill()
    mnt.empty_cache()
    mnt.mount()
    assert latest(mnt) == 1
    put(mnt.path / "notes", "a line")
    assert mnt.seal() == 3 and latest(mnt) == 1 and doubts(mnt, 3) == UNDER_WAY
    put(mnt.path / "A", "a 3")
    assert mnt.seal() == 4 and latest(mnt) == 4  # the program does not save B each time


# ---- what is no half


def test_a_log_an_edit_in_place_and_what_nothing_was_saved_with(mnt):
    put(mnt.path / "A", "a 1"), put(mnt.path / "B", "b 1"), put(mnt.path / "C", "c 1")
    assert mnt.seal() == 1
    writers = [Writer(mnt.path / "train.log"), Writer(mnt.path / "C", "r+b"), Writer(mnt.path / "rows.csv", "ab")]
    put(mnt.path / "A", "a 2")
    assert mnt.seal() == 2 and latest(mnt) == 2
    writer = Writer(mnt.path / "B")
    os.mkdir(mnt.path / "directory")
    assert mnt.seal() == 3 and latest(mnt) == 3 and not doubts(mnt, 3)
    for w in [*writers, writer]:
        close(w)


def test_what_is_open_for_the_whole_run(mnt):
    """It was open before the last epoch: that one was told, and the next are whole."""
    writer = half_of_a_save(mnt)
    mnt.seal()
    put(mnt.path / "A", "a 3")
    assert mnt.seal() == 3 and latest(mnt) == 3
    close(writer)


def test_by_the_word_of_somebody_who_knows(mnt):
    writer = half_of_a_save(mnt)
    run(BIN, "commit", "--whole", mnt.path)
    assert latest(mnt) == 2
    close(writer)


def test_one_that_was_killed_there_before_stays(mnt):
    put(mnt.path / "A", "a 1"), put(mnt.path / "B", "b 1")
    assert mnt.seal() == 1
    put(mnt.path / "A", "a 2")
    kill(mnt.path / "B")
    writer = Writer(mnt.path / "B")
    assert mnt.seal() == 2 and "killed" in record(mnt, 2)["reason"]
    put(mnt.path / "notes", "a line")
    assert mnt.seal() == 3 and latest(mnt) == 1 and "killed" in record(mnt, 3)["reason"]
    close(writer)
    assert mnt.seal() == 4 and latest(mnt) == 4


def test_one_that_was_killed_there_and_done_again_is_half_once_more(mnt):
    """The kill is settled by then; what is open is a save of its own. B is the smaller part of a save, and so none ends with it."""
    put(mnt.path / "A", "a 1" * 9999), put(mnt.path / "B", "b 1")
    assert mnt.seal() == 1
    put(mnt.path / "A", "a 2" * 9999)
    kill(mnt.path / "B")
    put(mnt.path / "B", "b 2")
    writer = Writer(mnt.path / "B")
    assert mnt.seal() == 2 and doubts(mnt, 2) == UNDER_WAY and latest(mnt) == 1
    assert record(mnt, 2)["reason"] == "B: it was open for writing" and record(mnt, 2)["doubts"][0]["companions"] == ["A"]
    close(writer)
    assert "doubts" not in mnt.status()
    assert mnt.seal() == 3 and latest(mnt) == 3
