# SPDX-License-Identifier: Apache-2.0
"""mount -o supervise: what ends the mount and what does not: deaths one after the other, signals, upgrades, a supervisor that is killed."""

import errno
import os
import shutil
import signal
import subprocess

import pytest

from conftest import BIN, LIMIT, in_the_kernel, is_mounted, python, run, wait_until
from stored_data import MIB
from supervised import kill, restart, worker
from test_notices import Cold

pytestmark = pytest.mark.options(supervise=True)


def mount_over(mnt):
    """Mounts once where a dead mount is."""
    with open(mnt.log, "ab") as log:
        mnt.process = subprocess.Popen(mnt.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def answers():
        assert mnt.process.poll() is None, mnt.log.read_text()
        try:
            return os.listdir(mnt.epochs_dir)
        except OSError:
            return False

    wait_until(answers, "the mount to answer")


def test_many_restarts_leave_nothing_behind(mnt):
    """Node ids, open files and space of the table are given back."""
    with open(mnt.path / "f", "w+b", 0) as f:
        for i in range(6):
            f.write(b"%d" % i)
            restart(mnt)
            for n in range(20):
                (mnt.path / ("n%d" % n)).write_bytes(b"x" * n)
            for n in range(20):
                (mnt.path / ("n%d" % n)).unlink()
        assert os.pread(f.fileno(), 9, 0) == b"012345"
    assert mnt.status()["restarts"] == 6
    assert os.listdir(mnt.path) == ["f"] and (mnt.path / "f").read_bytes() == b"012345"
    mnt.unmount()


def test_three_deaths_in_a_minute_end_it(mnt):
    (mnt.path / "f").write_text("text")
    for _ in range(2):
        kill(mnt)
    fd = os.open(mnt.path / "f", os.O_RDONLY)
    os.kill(worker(mnt), signal.SIGKILL)
    assert mnt.process.wait(timeout=LIMIT) == 1
    mnt.process = None
    for call, argument in ((os.listdir, mnt.path), (os.close, fd)):
        with pytest.raises(OSError) as failure:
            call(argument)
        assert failure.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    assert is_mounted(mnt.path)
    assert mnt.log.read_text().count("the third in a minute") == 1
    mount_over(mnt)
    assert (mnt.path / "f").read_text() == "text" and mnt.status()["restarts"] == 0


def test_without_its_supervisor_it_serves_on(mnt):
    (mnt.path / "f").write_text("text")
    pid = worker(mnt)
    mnt.process.kill()
    mnt.process.wait(timeout=LIMIT)
    mnt.process = None
    (mnt.path / "g").write_text("more")
    status = mnt.status()
    assert status["pid"] == pid and not status["supervised"]
    assert "supervise" in run(BIN, "restart", mnt.path, check=False).stderr
    os.kill(pid, signal.SIGKILL)

    def dead():
        try:
            return not os.listdir(mnt.path)
        except OSError as error:
            return error.errno in (errno.ENOTCONN, errno.ECONNABORTED)

    wait_until(dead, "the mount to be dead")
    mount_over(mnt)
    assert (mnt.path / "f").read_text() == "text" and (mnt.path / "g").read_text() == "more"


@pytest.mark.options(supervise=True, settle="1h", grace="0")
def test_signals_end_it_in_order(mnt):
    (mnt.path / "f").write_text("text")
    restart(mnt)
    mnt.terminate()
    assert not is_mounted(mnt.path)
    mnt.mount()
    assert (mnt.epochs_dir / "latest" / "f").read_text() == "text"


def test_a_worker_that_cannot_end_holds_nobody_up(volume, tmp_path):
    """A thread of it waits in the kernel for a reader, who waits for an answer: he gets EIO."""
    cold = Cold(volume, tmp_path / "faults")
    try:
        pid, seen = worker(volume), [0]
        cold.write("truncate")

        def stays():
            seen[0] = seen[0] + 1 if in_the_kernel(pid) else 0
            return seen[0] == 30

        wait_until(stays, "the worker to wait for a reader")
        (tmp_path / "faults").write_text("")
        os.kill(pid, signal.SIGKILL)
        # Where the worker got away after all, they are answered by the next one.
        for p in cold.processes:
            p.wait(timeout=LIMIT)
    finally:
        cold.close()
    assert len(cold.path.read_bytes()) in (0, 2 * MIB)
    assert worker(volume) != pid


def test_an_upgrade_is_a_restart(volume, tmp_path, monkeypatch):
    """The program's file is replaced under the mount, as a package manager does it."""
    program = tmp_path / "epochfs"
    shutil.copy(BIN, program)
    monkeypatch.setattr("conftest.BIN", os.fspath(program))
    mnt = volume.mount(settle="1h")
    with open(mnt.path / "f", "wb", 0) as f:
        f.write(b"old")
        shutil.copy(BIN, tmp_path / "new")
        os.rename(tmp_path / "new", program)
        assert os.readlink("/proc/%d/exe" % worker(mnt)).endswith("(deleted)")
        run(program, "restart", mnt.path)
        assert os.readlink("/proc/%d/exe" % worker(mnt)) == os.fspath(program)
        f.write(b"new")
    assert (mnt.path / "f").read_bytes() == b"oldnew"
    mnt.unmount()


def test_an_upgrade_that_cannot_go_on_leaves_the_old_release(volume, tmp_path, monkeypatch):
    program = tmp_path / "epochfs"
    shutil.copy(BIN, program)
    monkeypatch.setattr("conftest.BIN", os.fspath(program))
    mnt = volume.mount(settle="1h")
    with open(mnt.path / "f", "wb", 0) as f:
        f.write(b"old")
        (tmp_path / "new").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "new").chmod(0o755)
        os.rename(tmp_path / "new", program)
        restart(mnt)
        f.write(b"new")
    assert (mnt.path / "f").read_bytes() == b"oldnew"
    assert mnt.log.read_text().count("of the release that mounted this") == 1
    mnt.unmount()


def test_a_signal_to_all_processes_is_one(mnt):
    """As a service manager stops them: the supervisor's word alone counts."""
    p = python("import sys\nf=open(sys.argv[1],'wb',0);f.write(b'half')\nprint('x',flush=True)\nsys.stdin.read()\nf.write(b'whole')", mnt.path / "f")
    assert p.stdout.readline() == "x\n"
    for pid in (worker(mnt), mnt.pid):
        os.kill(pid, signal.SIGTERM)
    wait_until(lambda: mnt.request("log")["epochs"] or (mnt.path / "f").exists(), "the mount to answer")
    p.stdin.close()
    assert p.wait(timeout=LIMIT) == 0
    mnt.wait_end()
    mnt.mount()
    assert (mnt.path / "f").read_bytes() == b"halfwhole"


@pytest.mark.parametrize("end", [kill, restart])
def test_what_was_torn_in_a_process_before_is_named_by_umount(mnt, end):
    writer = python("import sys; f = open(sys.argv[1], 'wb', 0); f.write(b'half'); print('written', flush=True); sys.stdin.read()", mnt.path / "model")
    assert writer.stdout.readline() == "written\n"
    writer.kill()
    writer.communicate()
    assert wait_until(mnt.torn, "the torn bytes") == ["1-model"]
    end(mnt)
    assert "1 file of killed writers, 4 B, is in .epochs/torn (the newest: 1-model)" in run(BIN, "umount", mnt.path).stderr
    mnt.wait_end()
    mnt.mount()
    end(mnt)
    assert "killed writers" not in run(BIN, "umount", mnt.path).stderr
    mnt.wait_end()
    mnt.mount()


def test_from_the_command_line(volume):
    """In the background, unmounted by the command: no process is left."""
    options = "supervise,cache-dir=%s,passthrough=%s" % (volume.cache, volume.options["passthrough"])
    run(BIN, "mount", "-o", options, volume.url, volume.path)
    try:
        status = volume.status()
        kill_pid = status["pid"]
        os.kill(kill_pid, signal.SIGKILL)
        (volume.path / "f").write_text("text")
        after = volume.status()
        assert after["pid"] != kill_pid and after["restarts"] == 1
        done = run(BIN, "status", volume.path).stdout
        assert "supervised" in done and "restarts" in done
    finally:
        run(BIN, "umount", volume.path)
    for pid in (status["supervisor"], after["pid"]):
        assert not os.path.exists("/proc/%d/exe" % pid) or not os.access("/proc/%d/exe" % pid, os.R_OK)
    (log,) = volume.cache.glob("*/log")
    assert log.read_text().count("another one goes on") == 1


def test_a_dead_mount_without_a_supervisor_comes_back_by_one_mount(make_volume):
    mnt = make_volume(settle="1h")
    options = "cache-dir=%s,settle=1h,passthrough=%s" % (mnt.cache, mnt.options["passthrough"])
    run(BIN, "mount", "-o", options, mnt.url, mnt.path)
    (mnt.path / "f").write_text("text")
    os.kill(worker(mnt), signal.SIGKILL)
    run(BIN, "mount", "-o", options, mnt.url, mnt.path)
    assert (mnt.path / "f").read_text() == "text"
    assert "supervise" in run(BIN, "restart", mnt.path, check=False).stderr
    run(BIN, "umount", mnt.path)
    assert not is_mounted(mnt.path)
