# SPDX-License-Identifier: Apache-2.0
"""The daemon dies at a step of its own (lib/util/faultpoint.h): what a close promised is there after the next mount, nothing
torn is in the live tree or in an epoch, and no epoch in the remote names data that is not there."""

import os
import signal
import subprocess

import conftest
import pytest

from conftest import BIN, MountError, python, run, wait_until
from kill_session import Session, check_remote, check_tree, content, take_away

# Where the daemon is killed, and at which time the point is reached: the first, and one in the thick of it.
POINTS = [
    "create.rows", "open.object", "open.pending", "open.chosen", "write.ready", "write.done", "flush.begin",
    "flush.journaled", "release.begin", "release.end", "commit.begin", "commit.rows", "commit.copied", "edit.cloned",
    "edit.linked", "edit.renamed", "edit.rows", "fsync.data", "undo.torn", "undo.rows", "undo.names", "seal.begun",
    "seal.frozen", "seal.tree", "seal.rows", "rollback.applied", "drop.rows", "store.pack_put", "store.index_put",
    "upload.contents", "upload.index", "upload.record", "upload.versions",
]
# Only without passthrough does the daemon see writes; only with it can a mapping outlive a close unseen, and does a
# reader have the backing file itself, which then changes hands.
ONLY = {"write.ready": "off", "write.done": "off", "commit.copied": "on", "edit.linked": "on", "edit.renamed": "on"}


def kill_and_check(mnt, tmp_path, monkeypatch, point):
    passthrough = mnt.options["passthrough"]
    if ONLY.get(point.split(":")[0], passthrough) != passthrough:
        pytest.skip("%s is not reached with passthrough=%s" % (point, passthrough))
    monkeypatch.setenv("EPOCHFS_FAULT", point)
    session = Session(mnt)
    mnt.mount(settle="1h")
    assert session.run_until_killed(), "the point %s was never reached" % point
    assert mnt.process.returncode == -signal.SIGKILL, mnt.log.read_text()
    take_away(mnt)
    monkeypatch.delenv("EPOCHFS_FAULT")
    mnt.mount(settle="1h")
    # What is edited in place may have been cut off, and then every later epoch has it so: "model", and
    # a mapping that was not synced yet.
    edited = {name for name in session.doing if name == "model" or name.startswith("mapped")}
    session.check_promises()
    check_tree(mnt.path, edited)
    mnt.seal()
    mnt.wait_durable()
    for number in mnt.epochs():
        check_tree(mnt.epoch(number), edited)
    check_remote(mnt, tmp_path, edited)
    mnt.remount(empty_cache=True)
    check_tree(mnt.path, edited)


def test_what_is_installed_obeys_no_variable(volume, monkeypatch):
    """Who starts the daemon may have any environment: a variable of the tests must not end it."""
    monkeypatch.setattr(conftest, "BIN", os.environ["EPOCHFS_INSTALLED"])
    monkeypatch.setenv("EPOCHFS_FAULT", "seal.begun")
    volume.mount(settle="1h")
    (volume.path / "a").write_text("x")
    volume.seal()
    volume.wait_durable()
    assert volume.epochs() == [1]
    with open(os.environ["EPOCHFS_INSTALLED"], "rb") as f:
        assert b"EPOCHFS_FAULT" not in f.read()


@pytest.mark.parametrize("point", POINTS)
def test_killed_the_first_time(volume, tmp_path, monkeypatch, point):
    kill_and_check(volume, tmp_path, monkeypatch, point)


@pytest.mark.parametrize("point", [p + ":5" for p in POINTS if p.split(".")[0] in ("create", "commit", "release", "flush", "seal")
                                   and p != "commit.copied"] + ["upload.record:3", "upload.versions:3", "edit.linked:2", "store.pack_put:3"])
def test_killed_in_the_thick_of_it(volume, tmp_path, monkeypatch, point):
    kill_and_check(volume, tmp_path, monkeypatch, point)


@pytest.mark.parametrize("point", ["recover.begin", "recover.end"])
def test_killed_while_it_recovers(volume, monkeypatch, point):
    mnt = volume.mount(settle="1h")
    path = mnt.path / "model"
    path.write_bytes(content("model", 1))
    writer = python("import sys\nf=open(sys.argv[1],'wb');f.write(b'torn');f.flush()\nprint('x',flush=True)\nsys.stdin.read()", path,
                    stderr=subprocess.DEVNULL)
    writer.stdout.readline()
    mnt.kill()
    writer.kill()
    writer.communicate()
    monkeypatch.setenv("EPOCHFS_FAULT", point)
    with pytest.raises(MountError) as failure:
        mnt.mount(settle="1h")
    assert failure.value.code == -signal.SIGKILL
    monkeypatch.delenv("EPOCHFS_FAULT")
    mnt.mount(settle="1h")
    assert path.read_bytes() == content("model", 1)
    wait_until(lambda: len(mnt.torn()) == 1, "the torn bytes")


def test_killed_between_a_seal_and_the_copy_of_an_open_log(volume, monkeypatch):
    """The epoch begins once more, and is as complete as without the kill."""
    mnt = volume.mount(settle="1h")
    (mnt.path / "model").write_bytes(content("model", 1))
    mnt.seal()
    mnt.unmount()
    monkeypatch.setenv("EPOCHFS_FAULT", "seal.begun")
    mnt.mount(settle="1h")
    monkeypatch.delenv("EPOCHFS_FAULT")
    log = python("import os,sys\nf=open(sys.argv[1],'w');f.write('line\\n');f.flush()\nprint('x',flush=True)\nsys.stdin.read()",
                 mnt.path / "train.log", stderr=subprocess.DEVNULL)
    log.stdout.readline()
    with pytest.raises(OSError):
        mnt.seal()
    log.kill()
    log.communicate()
    take_away(mnt)
    mnt.mount(settle="1h")
    number = mnt.seal()
    assert (mnt.epoch(number) / "train.log").read_text() == "line\n"
    assert [e["complete"] for e in mnt.request("log")["epochs"]] == [True] * number
    assert "bytes are gone" not in mnt.log.read_text()


@pytest.mark.parametrize("point", ["store.index_put", "upload.index", "upload.record", "upload.versions"])
def test_a_record_says_what_its_epoch_has_added_though_the_upload_was_cut_off(volume, monkeypatch, point):
    """As the same upload without an interruption says it."""
    def add(mnt, name):
        (mnt.path / name).write_bytes(os.urandom(3 << 20))
        (mnt.path / (name + " small")).write_bytes(os.urandom(1000))

    def counts(mnt):
        mnt.wait_durable()
        return [(e["bytes_new"], e["bytes_stored"]) for e in mnt.request("log")["epochs"]]

    mnt = volume.mount(settle="1h")
    add(mnt, "a")
    mnt.seal()
    (whole,) = counts(mnt)
    assert whole[0] >= (3 << 20) + 1000 and whole[1] > 3 << 20
    mnt.unmount()
    monkeypatch.setenv("EPOCHFS_FAULT", point)
    mnt.mount(settle="1h")
    monkeypatch.delenv("EPOCHFS_FAULT")
    add(mnt, "b")
    try:
        mnt.seal()
    except OSError:
        pass
    wait_until(lambda: mnt.process.poll() is not None, "the daemon to die at %s" % point)
    mnt.kill()
    mnt.mount(settle="1h")
    first, second = counts(mnt)
    assert first == whole and second[0] == whole[0] and abs(second[1] - whole[1]) < 10000
    mnt.unmount()
    assert run(BIN, "fsck", mnt.url).returncode == 0
