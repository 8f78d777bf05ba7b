# SPDX-License-Identifier: Apache-2.0
"""A save is killed, and the next ones come faster than quiet takes: each is an epoch of its own (epochfs-saves(7), S2 and S3)."""

import signal
import subprocess
import sys
import time

import pytest

from test_contract_writing import log_of
from test_fast_saves import FIRST, FIRST_IS_SEALED, HOW, by, content, each_is_an_epoch, has, replaced, then_in_place, told

# FILE: a save that is killed in its first file. DIRECTORY/: in one with a temporary name there.
KILLED = """
import os, signal, sys, tempfile
directory, name = os.path.split(sys.argv[1])
os.makedirs(directory, exist_ok=True)
with open(sys.argv[1], "wb") if name else tempfile.NamedTemporaryFile(dir=directory, delete=False) as f:
    f.write(b"half")
    f.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_in(mnt, name):
    killed = subprocess.run([sys.executable, "-c", KILLED, "%s/%s" % (mnt.path, name)], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL


@pytest.mark.options(settle="1h", patience="1s")
@pytest.mark.parametrize("how", HOW)
def test_beside_what_a_killed_save_left(mnt, how):
    """Its temporary name counts as unfinished for `patience`."""
    first = HOW[how](mnt.path, 10)
    mnt.seal()
    kill_in(mnt, "tmp-checkpoint-20/model.bin")
    assert (mnt.path / "tmp-checkpoint-20").exists()
    time.sleep(1.2)
    each_is_an_epoch(mnt, HOW[how], [first])


# The first file of the save FIRST.
KILLED_IN = {
    "in-place": "model.bin",
    "in-place-two": "opt.bin",
    "in-place-step": "model_step%d.bin" % FIRST,
    "in-place-step-two": "opt_step%d.bin" % FIRST,
    "tempfile": "",
    "tempfile-two": "",
    "tempfile-step": "",
    "tmp": "model.bin.tmp",
    "tmp-two": "opt.bin.tmp",
    "tmp-then-in-place": "opt.bin.tmp",
    "tempfile-then-in-place": "",
    "tmp-then-larger-in-place": "model.bin.tmp",
    "tmp-of-any-name": "x.tmp",
    "tmp-in-the-name": "model.tmp.bin",
    "tmp-in-the-name-two": "opt.tmp.bin",
    "two-phases": "opt.bin.tmp",
    "directory": "checkpoint-%d/opt.bin" % FIRST,
    "directory-tmp": "tmp-checkpoint-%d/opt.bin" % FIRST,
}


@pytest.fixture(params=["on", "off"], ids=["resume", "no-resume"])
def killed(request, volume):
    return volume.mount(resume=request.param)


def begin(mnt, how):
    """Two saves, and one that is killed."""
    saves = []
    for step in (FIRST - 20, FIRST - 10):
        saves.append(HOW[how](mnt.path, step))
        if how in FIRST_IS_SEALED and len(saves) == 1:
            mnt.seal()
        time.sleep(1.1)
    kill_in(mnt, KILLED_IN[how])
    time.sleep(1.2)  # a name of tempfile stays, and counts for `patience`
    # What it has left is not there when it is saved again.
    for path in [p for p in mnt.path.iterdir() if p.is_dir() and p.name == KILLED_IN[how].split("/")[0]]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    return saves


@pytest.mark.rules("2")
@pytest.mark.options(settle="1h", patience="1s")
@pytest.mark.parametrize("how", KILLED_IN)
def test_after_a_kill_in_the_first_file(killed, how):
    each_is_an_epoch(killed, HOW[how], begin(killed, how))


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("how", [told, replaced, by("%(stem)s.new")], ids=["tmp", "tempfile", "new"])
@pytest.mark.parametrize("count", [2, 4])
def test_after_a_kill_in_what_comes_without_a_sign(killed, count, how):
    """What was renamed before is half then, also where an epoch has it under its temporary name."""
    saves = []
    for step in range(count):
        saves.append(then_in_place(how)(killed.path, step))
        time.sleep(1.1)
    how(killed.path / "opt.bin", content(count, "opt.bin"))
    kill_in(killed, "model.bin")
    time.sleep(0.3)
    killed.seal()
    complete = [killed.epoch(e["epoch"]) for e in log_of(killed) if e["complete"]]
    assert all(any(has(epoch, one) for one in saves) for epoch in complete) and has(complete[-1], saves[-1]), log_of(killed)


FSYNCED = """
import os, signal, sys
with open(sys.argv[1], "wb") as f:
    f.write(b"half")
    f.flush()
    os.fsync(f.fileno())
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.options(settle="1h")
def test_what_a_killed_writer_has_left_is_saved_again(killed):
    """Then it is that of a save once more: no rename of another file ends that."""
    first = HOW["two-phases"](killed.path, 10)
    killed.seal()
    done = subprocess.run([sys.executable, "-c", FSYNCED, killed.path / "opt.bin.tmp"], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL and (killed.path / "opt.bin.tmp").exists()
    time.sleep(0.3)
    each_is_an_epoch(killed, HOW["two-phases-other-order"], [first])


# DIRECTORY FIRST LAST: these saves, and the beginning of the next one; a note is written all the time.
TRAINER = """
import os, signal, sys, time
model, note = sys.argv[1] + "/model.bin", sys.argv[1] + "/status.json"
for step in range(int(sys.argv[2]), int(sys.argv[3]) + 2):
    with open(model + ".tmp", "wb") as f:
        f.write(b"%d" % step * 50000)
        if step > int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)
    os.rename(model + ".tmp", model)
    for _ in range(5):
        with open(note, "w") as f:
            f.write("%f" % time.time())
        time.sleep(0.25)
"""


@pytest.mark.options(settle="100ms")
def test_after_a_kill_beside_a_file_that_is_written_all_the_time(killed):
    """That goes back with the tree, and takes nothing of what was saved."""
    for first, last in ((1, 2), (3, 6)):
        done = subprocess.run([sys.executable, "-c", TRAINER, killed.path, str(first), str(last)], timeout=60, check=False)
        assert done.returncode == -signal.SIGKILL
        time.sleep(0.3)
    models = [(killed.epoch(e["epoch"]) / "model.bin").read_bytes() for e in log_of(killed) if e["complete"]]
    assert {b"%d" % step * 50000 for step in range(1, 7)} == set(models), log_of(killed)
    assert (killed.path / "model.bin").read_bytes() == b"6" * 50000
