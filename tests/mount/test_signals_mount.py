# SPDX-License-Identifier: Apache-2.0
"""A mount that is told to end stays while it is in use: signals to the daemon, umount, a dead mount, and what lies below."""

import json
import os
import signal
import subprocess
import time

import pytest

from conftest import BIN, LIMIT, MountError, is_mounted, python, run, wait_until
from training_job import TRAINING, children_of, name_of


# ---- a plain mount ----


@pytest.fixture
def training(mnt):
    """Has saved once in the mount, with nothing open since."""
    p = python(TRAINING, mnt.path, "0.5")
    assert p.stdout.readline() == "saved\n"
    yield p
    p.kill()
    p.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("order", ["daemon first", "training first"])
def test_training_saves_once_more_after_the_signal(mnt, training, order, number):
    groups = [mnt.pid, training.pid]
    for pid in groups if order == "daemon first" else groups[::-1]:
        os.kill(pid, number)
        time.sleep(0.1)
    assert training.stdout.read() == "saved again\n"
    mnt.wait_end()
    assert not is_mounted(mnt.path) and os.listdir(mnt.path) == []
    newest = json.loads(run(BIN, "log", "--json", mnt.remote).stdout)[0]
    assert newest["complete"] is True
    run(BIN, "export", mnt.remote, mnt.base / "out")  # it is uploaded
    assert (mnt.base / "out" / "step").read_text() == "2222"


@pytest.mark.options(settle="1h", grace="300ms")
@pytest.mark.parametrize("how", ["writes", "reads", "stands", "maps"])
def test_a_mount_in_use_is_never_uncovered(mnt, how):
    """However often it is told, and whatever the grace."""
    (mnt.path / "d").mkdir()
    (mnt.path / "d" / "old").write_text("old")
    p = python("""
import mmap, os, sys
how, d = sys.argv[1:]
if how == "writes":
    f = open(d + "/new", "w")
elif how == "reads":
    f = open(d + "/old")
elif how == "stands":
    os.chdir(d)
else:
    with open(d + "/old") as f:
        m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print("there", flush=True)
sys.stdin.readline()
with open(d + "/late", "w") as late:
    late.write("late")
if how == "writes":
    f.write("new")
    f.close()
""", how, mnt.path / "d")
    assert p.stdout.readline() == "there\n"
    mnt.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "once it is not in use any more" in mnt.log.read_text(), "the word in the log")
    assert "(process %d, " % p.pid in mnt.log.read_text()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGINT):
        mnt.process.send_signal(number)
        time.sleep(0.1)
    assert is_mounted(mnt.path) and mnt.process.poll() is None
    p.communicate("go\n", timeout=LIMIT)
    assert p.returncode == 0
    mnt.wait_end()
    assert os.listdir(mnt.path) == []
    mnt.mount()
    assert (mnt.epochs_dir / "latest" / "d" / "late").read_text() == "late"


@pytest.mark.options(settle="1h", grace="1h")
def test_a_drain_ends_with_the_second_interrupt(volume):
    """A remote that is away: Ctrl-C asks for the upload, another one for the end."""
    volume.url = "fault+file://%s?put.delay=1h&only=packs/" % volume.remote
    volume.mount()
    (volume.path / "f").write_bytes(os.urandom(100000))
    volume.process.send_signal(signal.SIGINT)
    wait_until(lambda: volume.request("log")["epochs"], "the seal")
    assert is_mounted(volume.path)
    time.sleep(1)  # before, it is the same one, sent twice
    volume.terminate(signal.SIGINT)
    volume.url = "file://%s" % volume.remote
    volume.mount()
    volume.wait_durable()


@pytest.mark.options(settle="1h", grace="500ms")
def test_a_drain_ends_with_the_grace(volume):
    volume.url = "fault+file://%s?put.delay=1h&only=packs/" % volume.remote
    volume.mount()
    (volume.path / "f").write_bytes(os.urandom(100000))
    volume.terminate()
    assert "the grace is over" in volume.log.read_text()


def test_a_mount_whose_command_was_interrupted_ends(tmp_path):
    """`epochfs mount` in the background: nobody knows of a mount that comes up after the Ctrl-C."""
    for name in ("mnt", "remote", "cache"):
        (tmp_path / name).mkdir()
    url = "fault+file://%s?put.delay=200ms" % (tmp_path / "remote")
    process = subprocess.Popen([BIN, "mount", "-o", "cache-dir=%s" % (tmp_path / "cache"), url, tmp_path / "mnt"], stderr=subprocess.PIPE)
    (daemon,) = wait_until(lambda: children_of(process.pid), "the daemon")
    process.send_signal(signal.SIGINT)
    process.wait(timeout=LIMIT)
    wait_until(lambda: not os.path.exists("/proc/%d" % daemon) or name_of(daemon) != "epochfs", "the end of the daemon")
    wait_until(lambda: not is_mounted(tmp_path / "mnt"), "the unmount")


# ---- what lies below ----


def test_what_lies_below_is_named_at_the_next_mount(mnt):
    (mnt.path / "f").write_text("1")
    mnt.unmount()
    (mnt.path / "step-2.pt").write_text("saved in vain")
    with pytest.raises(MountError) as failure:
        mnt.mount()
    assert failure.value.code == 8
    said = failure.value.output
    assert "step-2.pt" in said and "mv %s %s.below" % (mnt.path, mnt.path) in said and "-o nonempty" in said
    os.rename(mnt.path, "%s.below" % mnt.path)
    mnt.path.mkdir()
    mnt.mount()
    assert (mnt.path / "f").read_text() == "1"


def text_of(path):
    try:
        return path.read_text()
    except OSError:
        return None


def test_a_dead_mount_covers_until_the_next_one(mnt):
    """While the next mount waits for its remote, nothing can be written below."""
    (mnt.path / "f").write_text("1")
    mnt.wait_durable()
    mnt.process.kill()
    mnt.process.wait(timeout=LIMIT)
    mnt.process = None
    assert is_mounted(mnt.path)
    url, mnt.url = mnt.url, "fault+file://%s?get.delay=1h" % mnt.remote
    with open(mnt.log, "ab") as log:
        mnt.process = subprocess.Popen(mnt.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    time.sleep(0.5)
    assert mnt.process.poll() is None
    with pytest.raises(OSError):
        (mnt.path / "step").write_text("2")
    mnt.process.kill()
    mnt.process.wait()
    mnt.process = None
    mnt.url = url
    assert is_mounted(mnt.path)
    mnt.process = subprocess.Popen(mnt.command(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: text_of(mnt.path / "f") == "1", "the mount")


# ---- umount of a busy mount ----


def test_a_umount_that_fails_seals_nothing_and_names_who_is_busy(mnt):
    (mnt.path / "f").write_text("1")
    mnt.seal()
    p = python("import sys; f = open(sys.argv[1], 'w'); print('open', flush=True); sys.stdin.read()", mnt.path / "new")
    assert p.stdout.readline() == "open\n"
    for _ in range(3):
        os.utime(mnt.path / "f")
        done = run(BIN, "umount", mnt.path, check=False)
        assert done.returncode == 8 and "in use by python3 (process %d, new)" % p.pid in done.stderr, done.stderr
    assert mnt.epochs() == [1]
    p.communicate(timeout=LIMIT)
    run(BIN, "umount", mnt.path)
    mnt.wait_end()


def test_a_umount_of_what_has_a_mount_in_it_seals_nothing_and_names_it(mnt):
    if os.geteuid():
        pytest.skip("only root may do that: mount something in it")
    (mnt.path / "in it").mkdir()
    (mnt.path / "f").write_text("1")
    mnt.seal()
    run("mount", "-t", "tmpfs", "none", mnt.path / "in it")
    try:
        for number in range(2):
            (mnt.path / "f").write_text("2" * number)
            done = run(BIN, "umount", mnt.path, check=False)
            assert done.returncode == 8 and "something is mounted in it, at %s/in\\040it: unmount that first" % mnt.path in done.stderr, done.stderr
        assert mnt.epochs() == [1]
    finally:
        run("umount", mnt.path / "in it")
    run(BIN, "umount", mnt.path)
    mnt.wait_end()


def test_a_dead_mount_that_is_in_use_stays(mnt):
    (mnt.path / "d").mkdir()
    p = python("import os, sys; os.chdir(sys.argv[1]); print('in', flush=True); sys.stdin.read()", mnt.path / "d")
    assert p.stdout.readline() == "in\n"
    mnt.process.kill()
    mnt.process.wait()
    mnt.process = None
    done = run(BIN, "umount", mnt.path, check=False)
    assert done.returncode == 8 and "python3 (process %d, its working directory)" % p.pid in done.stderr
    assert is_mounted(mnt.path)
    p.communicate(timeout=LIMIT)
    run(BIN, "umount", mnt.path)
    assert not is_mounted(mnt.path)
