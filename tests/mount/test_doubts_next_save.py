# SPDX-License-Identifier: Apache-2.0
"""Kills in files that have another name in each save, which no rule reads as a step: the next save settles them."""

import signal
import subprocess
import sys
import time

import pytest

from conftest import wait_until
from test_doubts import doubts, latest, record

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")

# FOLDER NUMBER HOW KILLED NAME...: a save in a process of its own.
SAVE = """
import os, signal, sys, time
folder, number, how, killed, *names = sys.argv[1:]
for name in names:
    path = os.path.join(folder, name % int(number))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + how, "wb") as f:
        f.write(b"x" * 20000)
        f.flush()
        if name == killed:
            os.kill(os.getpid(), signal.SIGKILL)
    if how:
        os.rename(path + how, path)
"""
# FOLDER: saves one file for each line that it reads, under that name.
RANK = """
import os, sys
print("ready", flush=True)
for name in sys.stdin:
    with open(os.path.join(sys.argv[1], name.strip()), "wb") as f:
        f.write(b"x" * 20000)
    print("saved", flush=True)
"""
NAMES = [("model%06d.pt", "ema_0.9999_%06d.pt", "opt%06d.pt"), ("model_loss0.%d.pt",), ("m%dx.bin", "o%dx.bin")]


def save(mnt, number, names, killed="", how=""):
    done = subprocess.run([sys.executable, "-c", SAVE, mnt.path, str(number), how, killed, *names], timeout=60, check=False)
    assert done.returncode == (-signal.SIGKILL if killed else 0)


@pytest.mark.parametrize("how", ["", ".tmp"])
@pytest.mark.parametrize("names", NAMES)
def test_the_next_save_settles_it(mnt, names, how):
    save(mnt, 81, names, how=how)
    assert mnt.seal() == latest(mnt)
    for number in (80, 82):  # one that rises, and one that falls
        save(mnt, number, names, killed=names[-1], how=how)
        mnt.seal()
        save(mnt, number + 10, names, how=how)
        assert mnt.seal() == latest(mnt) and not doubts(mnt, latest(mnt))
    save(mnt, 83, names, killed=names[-1], how=how)
    mnt.remount(empty_cache=True)
    save(mnt, 94, names, how=how)
    assert mnt.seal() == latest(mnt)


@pytest.mark.options(resume=True, settle="300ms")
@pytest.mark.parametrize("names", NAMES)
def test_and_is_not_taken_back(mnt, names):
    save(mnt, 1000, names)
    whole = mnt.seal()
    save(mnt, 2000, names, killed=names[-1])
    save(mnt, 3000, names)
    wait_until(lambda: latest(mnt) > whole and not mnt.status()["pending"].get("held_up"), "the next save to be the latest")
    assert (mnt.path / (names[-1] % 3000)).exists() and (mnt.epochs_dir / "latest" / (names[-1] % 3000)).exists()


def test_who_lived_at_the_kill_goes_on_with_the_same_save(mnt):
    """The names of ranks are the same but for their numbers, too."""
    names = ("ckpt/extra%d.bin", "ckpt/__0_%d.distcp")
    save(mnt, 1, names)
    whole = mnt.seal()
    with subprocess.Popen([sys.executable, "-c", RANK, mnt.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as rank:
        rank.stdout.readline()
        time.sleep(0.3)  # starts of processes are known by ticks
        save(mnt, 2, names, killed=names[-1])
        print("ckpt/__1_2.distcp", file=rank.stdin, flush=True)
        assert rank.stdout.readline() == "saved\n"
        assert record(mnt, mnt.seal())["complete"] is False and latest(mnt) == whole
        rank.stdin.close()


def test_another_run_beside_it_settles_nothing(mnt):
    for run in ("seed0", "seed1"):
        save(mnt, 10000, [run + "/model%06d.pt", run + "/opt%06d.pt"])
    whole = mnt.seal()
    save(mnt, 20000, ["seed0/model%06d.pt", "seed0/opt%06d.pt"], killed="seed0/opt%06d.pt")
    save(mnt, 20000, ["seed1/model%06d.pt", "seed1/opt%06d.pt"])
    assert record(mnt, mnt.seal())["complete"] is False and latest(mnt) == whole
