# SPDX-License-Identifier: Apache-2.0
"""Saves whose files have their step in their names, in one directory, and that are sealed in the middle, by quiet or by a rename."""

import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import wait_until
from test_doubts import doubts, kill, latest, latest_or_none, put, record
from test_doubts_pause import complete, sealed

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")

# FOLDER STEP KILLED PAUSE HOW: a save of three files in a process of its own, which is killed in one of them.
SAVE = """
import os, signal, sys, time
folder, step, killed, pause, how = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
for name in ("model", "optim", "sched"):
    path = os.path.join(folder, "%s-step%s.pt" % (name, step))
    with open(path + how, "wb") as f:
        f.write(b"x" * 20000)
        f.flush()
        if name == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        f.write(b"x" * 20000)
    if how:
        os.rename(path + how, path)
    time.sleep(float(pause))
"""


# FOLDER STEP: a model in one file, as Lightning saves it.
ONE_FILE = """
import os, sys
path = os.path.join(sys.argv[1], "model-step%s.ckpt" % sys.argv[2])
with open(path + ".tmp", "wb") as f:
    f.write(b"x" * 40000)
os.rename(path + ".tmp", path)
"""


def save(mnt, step, killed="", pause=0.45, how="", folder=""):
    done = subprocess.run([sys.executable, "-c", SAVE, mnt.path / folder, str(step), killed, str(pause), how], timeout=60, check=False)
    assert done.returncode == (-signal.SIGKILL if killed else 0)
    time.sleep(0.5)


def steps(mnt, folder=""):
    """Of the newest complete epoch: how many files of each step."""
    names = os.listdir(mnt.epochs_dir / "latest" / folder)
    return {step: sum("step%d." % step in name for name in names) for step in (100, 200, 300)}


HOW = pytest.mark.parametrize("how, folder", [("", ""), (".tmp", "out")])
KEPT = pytest.mark.options(settle="150ms", keep="last:1")


@HOW
@pytest.mark.parametrize("killed", ["optim", "sched"])
@KEPT
def test_a_kill_after_a_pause_makes_what_was_sealed_in_it_half(mnt, killed, how, folder):
    save(mnt, 100, pause=0, how=how, folder=folder)
    whole = latest(mnt)
    save(mnt, 200, killed, how=how, folder=folder)
    wait_until(lambda: latest(mnt) == whole, "the good epoch to be the latest again")
    assert steps(mnt, folder) == {100: 3, 200: 0, 300: 0} and complete(mnt) == [whole]
    mnt.remount(empty_cache=True)
    assert latest(mnt) == whole and complete(mnt) == [whole]
    save(mnt, 200, how=how, folder=folder)
    assert steps(mnt, folder) == {100: 3, 200: 3, 300: 0}


@HOW
@pytest.mark.parametrize("resume", [False, True])
@KEPT
def test_a_save_that_is_killed_again_after_a_pause_is_half(volume, how, folder, resume):
    if resume:
        volume.options["resume"] = True
    mnt = volume.mount()
    save(mnt, 100, pause=0, how=how, folder=folder)
    for _ in range(2):
        save(mnt, 200, "optim", how=how, folder=folder)
        wait_until(lambda: steps(mnt, folder) == {100: 3, 200: 0, 300: 0}, "the whole save to be the latest again")
        assert (mnt.path / folder / "model-step200.pt").exists() != resume
    save(mnt, 200, how=how, folder=folder)
    assert steps(mnt, folder) == {100: 3, 200: 3, 300: 0}
    save(mnt, 300, "sched", how=how, folder=folder)
    wait_until(lambda: steps(mnt, folder) == {100: 3, 200: 3, 300: 0}, "the whole save to be the latest again")


@pytest.mark.options(settle="150ms")
def test_a_save_that_goes_on_after_a_pause_completes_what_was_sealed_in_it(mnt):
    for step in (100, 200, 300):
        save(mnt, step)
    assert steps(mnt) == {100: 3, 200: 3, 300: 3}
    assert [[sum("step%d." % s in n for n in os.listdir(mnt.epochs_dir / ("%06d" % e))) for s in (100, 200, 300)] for e in complete(mnt)] == [
        [3, 0, 0], [3, 3, 0], [3, 3, 3]]


@pytest.mark.options(settle="150ms", patience="1s")
def test_what_is_added_long_after_is_no_part_of_the_save(mnt):
    save(mnt, 100, pause=0)
    whole = latest(mnt)
    time.sleep(1.5)
    assert sealed(mnt, "samples-step100.txt", "text") == latest(mnt) and complete(mnt) == [whole, latest(mnt)]


@pytest.mark.options(settle="150ms")
def test_other_steps_stay_as_they_are(mnt):
    """A copy of an older step is no part of the newest save."""
    save(mnt, 100, pause=0)
    save(mnt, 200, pause=0)
    whole = latest(mnt)
    assert sealed(mnt, "copy-step100.pt", "x") > whole
    assert record(mnt, latest(mnt)).get("continues") != whole and doubts(mnt, latest(mnt)) == {}
    assert whole in complete(mnt)


@KEPT
def test_directories_of_one_step_are_one_save(mnt):
    for node in (0, 1):
        put(mnt.path / ("trainer:%d.100" % node) / "params", "text")
    whole = wait_until(lambda: latest_or_none(mnt), "the first save")
    assert sealed(mnt, "trainer:0.200/params", "text") == latest(mnt) == whole + 1
    kill(mnt.path / "trainer:1.200" / "params")
    wait_until(lambda: latest(mnt) == whole, "the good epoch to be the latest again")
    assert sealed(mnt, "trainer:1.200/params", "text") == latest(mnt)


@pytest.mark.options(settle="150ms", keep="last:1", resume=True)
def test_what_an_evaluator_leaves_beside_a_model_in_one_file(mnt):
    """It was renamed into place, and is whole."""
    for step in (400, 500):
        subprocess.run([sys.executable, "-c", ONE_FILE, mnt.path, str(step)], timeout=60, check=True)
        wait_until(lambda step=step: (mnt.epochs_dir / "latest" / ("model-step%d.ckpt" % step)).exists(), "the save to be the latest")
    kill(mnt.path / "eval-step500.json")
    put(mnt.path / "notes", "text")
    wait_until(lambda: (mnt.epochs_dir / "latest" / "notes").exists(), "an epoch with the notes")
    assert (mnt.path / "model-step500.ckpt").exists() and (mnt.epochs_dir / "latest/model-step500.ckpt").exists()


IN_ONE_EPOCH = ["ep1-ba%d-rank0.pt", "checkpoint_1_%d00.pt", "epoch=1-val_loss=0.52%d.ckpt", "model_epoch1_batch%d.pt"]


@pytest.mark.options(settle="300ms", keep="last:2")
@pytest.mark.parametrize("name", IN_ONE_EPOCH)
@pytest.mark.parametrize("end", ["", ".tmp"], ids=["in-place", "renamed"])
def test_the_step_of_the_names_is_that_of_the_epoch(mnt, name, end):
    """Of several saves in it each is one by itself, and a kill in the next one takes none of them back."""
    for i in range(1, 4):
        path = mnt.path / (name % i + end)
        put(path, "x" * 20000)
        if end:
            path.rename(mnt.path / (name % i))
        wait_until(lambda i=i: (mnt.epochs_dir / "latest" / (name % i)).exists(), "the save to be the latest")
        time.sleep(0.5)
    assert len(complete(mnt)) == 3
    kill(mnt.path / (name % 4 + end))
    time.sleep(1)
    put(mnt.path / "notes", "text")
    wait_until(lambda: (mnt.epochs_dir / "latest" / "notes").exists(), "an epoch with the notes")


@pytest.mark.options(settle="300ms")
@pytest.mark.parametrize("name", ["model-step500_%d.pt", "step500-rank%d.pt"])
def test_other_numbers_count_parts(mnt, name):
    """So the first of them alone was no whole save."""
    for i in range(3):
        sealed(mnt, name % i, "x" * 20000)
    assert complete(mnt) == [latest(mnt)]
