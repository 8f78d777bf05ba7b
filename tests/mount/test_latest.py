# SPDX-License-Identifier: Apache-2.0
"""epochfs latest: what a script that resumes gets."""

import json
import os

import pytest

from conftest import BIN, run


@pytest.fixture
def three(mnt):
    """Epochs of step 5, of step 6, and one that a killed writer left incomplete."""
    for step in (5, 6):
        (mnt.path / "model").write_text("step %d" % step)
        run(BIN, "commit", "--step", str(step), mnt.path)
    (mnt.path / "closed").write_text("x")
    run("sh", "-c", 'exec 3> "$1"; echo torn >&3; kill -KILL $$', "sh", mnt.path / "torn", check=False)
    mnt.seal()
    mnt.wait_durable()
    return mnt


def latest(*words, code=0):
    done = run(BIN, "latest", *words, check=False)
    assert done.returncode == code, done
    return done.stdout.strip()


def test_the_newest_epoch_of_a_mount_and_of_its_remote(three):
    for target in (three.path, three.url):
        assert latest(target) == "3"
        assert latest("--complete", target) == "2"
        assert latest("--step", "5", target) == "1"
        assert json.loads(latest("--json", "--step=6", target))["epoch"] == 2
        assert latest("--step", "7", target, code=5) == ""
        assert latest("--complete", "--step", "7", target, code=5) == ""
    path = latest("--complete", "--path", three.path)
    assert path == os.path.join(three.path, ".epochs", "000002")
    with open(os.path.join(path, "model"), encoding="utf-8") as f:
        assert f.read() == "step 6"
    run(BIN, "export", latest("--path", "--step", "5", three.url), three.base / "out")
    assert (three.base / "out" / "model").read_text() == "step 5"


def test_where_there_is_no_epoch(mnt):
    assert latest(mnt.path, code=5) == ""
    assert "there is no epoch yet" in run(BIN, "latest", mnt.path, check=False).stderr


def test_what_it_does_not_take(tmp_path):
    for words in ([], ["--step", "x", tmp_path], ["a", "b"]):
        assert run(BIN, "latest", *words, check=False).returncode == 2
