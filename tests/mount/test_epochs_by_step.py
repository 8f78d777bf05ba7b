# SPDX-License-Identifier: Apache-2.0
"""Epochs by their step, with ordinary tools: .epochs/step=500."""

import errno
import os

import pytest

from conftest import BIN, run, wait_until
from test_contract_epochs import fails
import test_nodes
from test_nodes import save as save_part, sees

nodes = test_nodes.nodes  # a fixture


def epochfs(*arguments, **keywords):
    return run(BIN, *arguments, **keywords)


def save(mnt, step, text, **commit):
    (mnt.path / "model").write_text(text)
    return mnt.request("commit", step=step, **commit)["epoch"]


def leads_to(mnt, name):
    return int(os.readlink(mnt.epochs_dir / name))


def tear(mnt, step):
    """An epoch of this step that is not complete: a zip archive without its end."""
    (mnt.path / "torn.zip").write_bytes(b"PK\x03\x04" + bytes(5000))
    number = mnt.request("commit", step=step)["epoch"]
    assert not [e for e in mnt.request("log")["epochs"] if e["epoch"] == number][0]["complete"]
    return number


def test_a_step_is_a_link_to_its_newest_complete_epoch(mnt):
    assert (save(mnt, 500, "one"), save(mnt, 1000, "two"), save(mnt, 500, "again")) == (1, 2, 3)
    assert (leads_to(mnt, "step=500"), leads_to(mnt, "step=1000")) == (3, 2)
    assert run("cat", mnt.epochs_dir / "step=500" / "model").stdout == "again"
    assert run("stat", "-c", "%F", mnt.epochs_dir / "step=500").stdout == "symbolic link\n"
    assert os.lstat(mnt.epochs_dir / "step=500").st_size == len("000003")
    assert len({os.lstat(mnt.epochs_dir / n).st_ino for n in ("step=500", "step=1000", "3", "latest")}) == 4
    assert tear(mnt, 500) == 4
    assert leads_to(mnt, "step=500") == 3
    assert tear(mnt, 7) == 5
    assert fails(errno.ENOENT, os.readlink, mnt.epochs_dir / "step=7")


def test_it_is_looked_up_and_not_listed(mnt):
    save(mnt, 500, "one")
    assert leads_to(mnt, "step=500") == 1
    assert sorted(os.listdir(mnt.epochs_dir)) == ["000001", "current", "latest", "torn"]
    for name in ("step=501", "step=", "step=x", "step=0500", "step=+500", "step=-1", "step= 500", "step=99999999999999999999", "Step=500"):
        assert fails(errno.ENOENT, os.lstat, mnt.epochs_dir / name), name


def test_steps_from_names_and_the_largest(mnt):
    (mnt.path / "checkpoint-70").mkdir()
    (mnt.path / "checkpoint-70" / "model").write_text("70")
    assert mnt.seal() == 1 and leads_to(mnt, "step=70") == 1
    assert save(mnt, 2**63 - 1, "last") == 2 and leads_to(mnt, "step=%d" % (2**63 - 1)) == 2
    assert save(mnt, 0, "first") == 3 and leads_to(mnt, "step=0") == 3


def test_rolling_back_to_a_step(mnt):
    for step in (1, 2, 3):
        save(mnt, step, str(step))
    run("ln", "-sfn", "step=2", mnt.epochs_dir / "current")
    assert (mnt.path / "model").read_text() == "2" and leads_to(mnt, "current") == 4
    run("ln", "-s", "step=1", mnt.epochs_dir / "first")
    assert leads_to(mnt, "first") == 1
    run("ln", "-sfn", mnt.epochs_dir / "step=3", mnt.epochs_dir / "current")
    assert (mnt.path / "model").read_text() == "3"
    tear(mnt, 9)
    for name in ("step=8", "step=9"):
        done = run("ln", "-sfn", name, mnt.epochs_dir / "current", check=False)
        assert done.returncode and "No such file or directory" in done.stderr
    assert (mnt.path / "model").read_text() == "3"


def test_a_step_moves_with_its_epochs(mnt):
    save(mnt, 5, "one"), save(mnt, 5, "two"), save(mnt, 6, "three")
    assert leads_to(mnt, "step=5") == 2
    os.rmdir(mnt.epochs_dir / "000002")
    assert leads_to(mnt, "step=5") == 1
    os.rmdir(mnt.epochs_dir / "000001")
    assert fails(errno.ENOENT, os.readlink, mnt.epochs_dir / "step=5")
    save(mnt, 5, "four")
    mnt.remount(empty_cache=True)
    assert leads_to(mnt, "step=5") == 4
    reader = mnt.epochs_dir / "step=5" / "model"
    with open(reader, encoding="utf-8") as f:
        save(mnt, 5, "five")
        assert f.read() == "four" and reader.read_text() == "five"


def test_no_tag_looks_like_a_step(mnt):
    save(mnt, 500, "one"), save(mnt, 6, "two")
    os.symlink("1", mnt.epochs_dir / "best")
    mnt.wait_durable()
    for name in ("step=500", "step=7", "step=", "step=best"):
        path = mnt.epochs_dir / name
        assert fails(errno.EEXIST, os.mkdir, path)
        assert fails(errno.EEXIST, os.symlink, "1", path)
        assert fails(errno.EROFS, os.rename, mnt.epochs_dir / "best", path)
        for done in (epochfs("tag", mnt.path, "1", name, check=False), epochfs("tag", mnt.url, "1", name, check=False),
                     epochfs("commit", mnt.path, "--tag", name, check=False)):
            assert done.returncode in (1, 2) and "step=" in done.stderr.replace(name, "", 1) and done.stderr.count("\n") == 1, done.stderr
    assert fails(errno.EROFS, os.unlink, mnt.epochs_dir / "step=500")
    assert fails(errno.EROFS, os.rename, mnt.epochs_dir / "step=500", mnt.epochs_dir / "other")
    assert mnt.tags() == {"best": 1} and mnt.epochs() == [1, 2]


def test_a_reader_and_one_epoch_alone(mnt, make_volume):
    save(mnt, 5, "one"), save(mnt, 5, "two")
    mnt.wait_durable()
    reader = make_volume()
    reader.remote, reader.url = mnt.remote, mnt.url
    reader.mount(ro=True, refresh="100ms")
    assert leads_to(reader, "step=5") == 2
    save(mnt, 5, "three")
    mnt.wait_durable()
    wait_until(lambda: leads_to(reader, "step=5") == 3, "the reader to see the epoch")
    assert fails(errno.EROFS, os.symlink, "step=5", reader.epochs_dir / "best")


def test_of_several_nodes(nodes):
    a, b, c = [v.mount() for v in nodes]
    for v in nodes:
        assert fails(errno.ENOENT, os.readlink, v.epochs_dir / "step=1")
        save_part(v, 1)
    for v in nodes:
        sees(v, 1)
        assert leads_to(v, "step=1") == 1
    with pytest.raises(OSError):
        os.symlink("1", b.epochs_dir / "step=2")
    os.symlink("step=1", c.epochs_dir / "best")
    wait_until(lambda: a.tags() == {"best": 1}, "a to see the tag")
