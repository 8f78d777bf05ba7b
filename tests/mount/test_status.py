# SPDX-License-Identifier: Apache-2.0
"""epochfs status at a glance: what latest is and where, what is wrong and what to do, what is pending; and all mounts."""

import json
import os
import re
import signal
import subprocess

import pytest

from conftest import BIN, run, wait_until

DONE = 0


@pytest.fixture
def passthrough():
    """It makes no difference here."""
    return "auto"


def glance(*words, **keywords):
    """The lines up to the empty one."""
    done = run(BIN, "status", *words, **keywords)
    assert not done.stderr
    return done.stdout.split("\n\n")[0].splitlines()


def of_all(tmp_path):
    """The lines that `status` outside of any mount has of each, by the mount."""
    found = {}
    for line in run(BIN, "status", cwd=tmp_path).stdout.splitlines():
        if line.startswith("/"):
            lines = found[line.split("  ")[0]] = []
        else:
            lines.append(line.strip())
    return found


def test_the_life_of_a_save(make_volume, tmp_path):
    faults = tmp_path / "faults"
    faults.touch()
    mnt = make_volume(settle="1h")
    mnt.url = "fault+file://%s?control=%s" % (mnt.remote, faults)
    mnt.mount()
    assert glance(mnt.path) == ["there is no latest: no epoch was sealed yet", "nothing is wrong", "nothing is pending"]
    (mnt.path / "checkpoint-300").mkdir()
    (mnt.path / "checkpoint-300" / "model.pt").write_bytes(b"weights")
    assert re.fullmatch(r"pending: changes since \d+ s, in no epoch yet \(waiting for quiet\)", glance(mnt.path)[2])
    faults.write_text("put.down=1")
    mnt.seal()
    wait_until(lambda: mnt.status()["upload"].get("error"), "the outage to be seen")
    latest, wrong, pending = glance(mnt.path)
    assert latest == "latest is epoch 1 (step 300), whole, not in the remote yet"
    assert wrong.startswith("wrong: uploads have failed for ") and "see that the remote can be reached" in wrong
    assert pending.startswith("pending: 1 epoch to upload")
    faults.write_text("")
    mnt.wait_durable()
    wait_until(lambda: glance(mnt.path)[1:] == ["nothing is wrong", "nothing is pending"], "all to be well")
    assert re.fullmatch(r"latest is epoch 1 \(step 300\), whole, in the remote since \d+ s", glance(mnt.path)[0])
    assert {k: mnt.status()["latest"][k] for k in ("epoch", "step", "state", "bytes")} == {"epoch": 1, "step": 300, "state": "durable", "bytes": 7}
    # Of the remote, while it is mounted and after.
    assert glance("file://%s" % mnt.remote)[1].endswith(" writes to it, mounted at %s" % mnt.path)
    mnt.unmount()
    lines = glance("file://%s" % mnt.remote)
    assert lines[0].startswith("latest is epoch 1 (step 300), whole, in the remote since ") and lines[1] == "nobody writes to it"


@pytest.mark.rules("2")
@pytest.mark.options(resume="off")
def test_a_save_in_doubt(mnt):
    (mnt.path / "model.pt").write_bytes(b"1" * 4096)
    mnt.seal()
    writer = subprocess.Popen(["sh", "-c", "echo new > other; exec 3>model.pt; echo half >&3; exec sleep 60"], cwd=mnt.path)
    wait_until(lambda: mnt.status()["pending"]["open"], "the writer")
    writer.kill()
    writer.wait()
    wait_until(mnt.torn, "the end of the writer")
    mnt.seal()
    latest, wrong, _ = glance(mnt.path)
    assert latest.startswith("latest is epoch 1, whole, ") and latest.endswith("; the live tree stands on epoch 2, which is not whole")
    assert wrong == ("wrong: the live tree is not whole: process %d was killed while it wrote model.pt; that clears with the next whole save,"
                     " or go back: epochfs rollback %s latest" % (writer.pid, mnt.path))


def test_without_a_remote(volume):
    volume.url = "none"
    volume.mount()
    (volume.path / "model.pt").write_bytes(b"weights")
    volume.seal()
    assert glance(volume.path) == ["latest is epoch 1, whole, on this machine alone", "nothing is wrong", "nothing is pending"]


def test_all_mounts(make_volume, tmp_path):
    one, two = make_volume(settle="1h").mount(), make_volume(settle="1h").mount()
    (two.path / "model.pt").write_bytes(b"weights")
    two.wait_durable()
    found = of_all(tmp_path)
    assert found[str(one.path)] == ["there is no latest: no epoch was sealed yet", "nothing is wrong", "nothing is pending"]
    assert found[str(two.path)][0].startswith("latest is epoch 1, whole, in the remote since ")
    listed = {s["mountpoint"]: s for s in json.loads(run(BIN, "status", "--json", cwd=tmp_path).stdout)}
    assert listed[str(two.path)]["latest"]["epoch"] == 1
    # In a mount it is that one.
    assert "uuid" in run(BIN, "status", cwd=two.path).stdout
    # One that is dead does not keep the others from being shown.
    os.kill(one.pid, signal.SIGKILL)
    one.process.wait()
    one.process = None
    found = of_all(tmp_path)
    assert found[str(one.path)] == ["wrong: its process is gone: mount it again"] and len(found[str(two.path)]) == 3
    run("umount", "-l", one.path)


def test_all_mounts_are_watched(mnt, tmp_path):
    with subprocess.Popen([BIN, "status", "--watch"], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as watching:
        seen = 0
        while seen < 2:
            seen += watching.stdout.readline().startswith(str(mnt.path))
        watching.terminate()
