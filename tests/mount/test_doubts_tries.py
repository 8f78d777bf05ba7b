# SPDX-License-Identifier: Apache-2.0
"""Jobs that are killed again and again, and what is saved between two tries: the last whole save stays the latest until the next is whole."""

import os
import shutil
import threading
import time

import pytest

from conftest import wait_until
from place import SETTLE  # of tests/protocols
from test_contract_epochs import log_of
from test_contract_sealing import write_zip
from test_doubts import kill, latest, latest_or_none, put, record
from test_doubts_pause import complete

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")


# ---- a job that is killed at the same place each time it is started


TRIES = {
    "in place": ("", ["rank_0.pt", "rank_1.pt"], ""),
    "in place in a directory": ("out/", ["model.bin", "optim.bin"], ""),
    "dcp": ("step-%d/", ["__1_0.distcp", "__0_0.distcp"], ".metadata"),
    "deepspeed": ("global_step%d/", ["mp_rank_01_model_states.pt", "mp_rank_00_model_states.pt"], "../latest"),
    "megatron": ("iter_%07d/", ["mp_rank_01/model_optim_rng.pt", "mp_rank_00/model_optim_rng.pt"], "../latest_checkpointed_iteration.txt"),
    "trainer": ("checkpoint-%d/", ["rng_state_1.pth", "pytorch_model.bin"], "trainer_state.json"),
}


@pytest.mark.parametrize("remount", [False, True])
@pytest.mark.parametrize("how", TRIES)
@pytest.mark.options(settle="300ms", keep="last:1")
def test_a_save_that_is_killed_twice_at_the_same_place_is_half_twice(mnt, how, remount):
    """The first file is killed, the other process goes on, and nobody writes the last file."""
    place, (first, second), last = TRIES[how]

    def top(step):
        return mnt.path / (place % step if "%" in place else place)

    def wait_for_more(before):
        return wait_until(lambda: max(log_of(mnt), default=0) > before and max(log_of(mnt)), "an epoch by itself")

    number = 0
    for step in (10, 20):
        for name in (first, second, last):
            if name:
                put(top(step) / name, "of step %d" % step)
        number = good = wait_for_more(number)
    assert latest(mnt) == good
    for _ in range(3):
        kill(top(30) / first), put(top(30) / second, "of step 30")
        number = wait_for_more(number)
        time.sleep(0.5)
        assert latest(mnt) == good and not record(mnt, max(log_of(mnt)))["complete"]
        number = max(log_of(mnt))
        if remount:
            mnt.remount()
    for name in (first, second, last):
        if name:
            put(top(30) / name, "of step 30, whole")
    wait_until(lambda: latest(mnt) > number, "the whole save")
    assert (mnt.epochs_dir / "latest" / top(30).relative_to(mnt.path) / first).read_text() == "of step 30, whole"


# ---- a note that was in an epoch before


NOTES = {
    "appended": lambda top: (top / "note.txt").open("a", encoding="utf-8").write("a line"),
    "replaced": lambda top: put(top / "note.txt", str(time.time())),
    "renamed": lambda top: (put(top / "note.txt.tmp", str(time.time())), os.rename(top / "note.txt.tmp", top / "note.txt")),
}


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("how", NOTES)
@pytest.mark.options(keep="last:1")
def test_a_note_after_a_half_save_leaves_the_save_before_whole(slow, how, torn):
    """It was saved after the first save, as well: that may have been one save with it, but the half one is not the second."""
    mnt = slow.mount

    def more(before):
        slow.pause(SETTLE + 1)
        assert max(log_of(mnt)) > before
        return max(log_of(mnt))

    def save(text):
        write_zip(mnt.path / "model.pt"), put(mnt.path / "optim.bin", text)

    save("1")
    first = more(0)
    NOTES[how](mnt.path)
    note = more(first)
    save("2")
    good = more(note)
    assert latest(mnt) == good
    if torn:
        whole = (mnt.path / "model.pt").read_bytes()
        (mnt.path / "model.pt").write_bytes(whole[:-60])
    else:
        write_zip(mnt.path / "model.pt"), kill(mnt.path / "optim.bin")
    half = more(good)
    assert latest(mnt) == good and not record(mnt, half)["complete"]
    NOTES[how](mnt.path)
    assert more(half) and latest(mnt) == good and complete(mnt)[-1] == good
    mnt.remount(empty_cache=True)
    assert latest(mnt) == good and (mnt.epochs_dir / "latest" / "optim.bin").read_text() == "2"


# ---- AdaptDL's pattern


@pytest.mark.options(settle="200ms")
def test_fourteen_restarts_that_are_sealed_by_themselves(mnt):
    """A directory is renamed, with a kill in each file and before the rename, and somebody looks all the while at what `latest` names."""
    work, named, over, files = mnt.path / "_checkpoint", set(), threading.Event(), ("model", "optimizer", "loader")

    def watch():
        while not over.wait(0.01):
            named.add(latest_or_none(mnt))

    def save(restart, killed):
        shutil.rmtree(work, ignore_errors=True)
        for name in files:
            if name == killed:
                kill(work / name)
                return
            put(work / name, "%s %d" % (name, restart))
        if killed is None:
            os.rename(work, mnt.path / ("checkpoint-%d" % restart))
            shutil.rmtree(mnt.path / ("checkpoint-%d" % (restart - 1)), ignore_errors=True)

    def steps(number):
        return [d.name for d in mnt.epoch(number).glob("checkpoint-*")]

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for restart in range(14):
            save(restart, [*files, "before the rename"][restart % 4])
            time.sleep([0, 0.5][restart % 2])
            save(restart, None)
            wait_until(lambda restart=restart: latest_or_none(mnt) and "checkpoint-%d" % restart in steps(latest(mnt)), "the save to be the latest")
            named.add(latest(mnt))
    finally:
        over.set()
        watcher.join()
    for number in named - {None}:
        assert steps(number) and all((mnt.epoch(number) / step / name).read_text() == name + step.replace("checkpoint-", " ")
                                     for step in steps(number) for name in files)
    assert {step for number in complete(mnt) for step in steps(number)} == {"checkpoint-%d" % n for n in range(14)}
    assert len(named - {None}) >= 14
