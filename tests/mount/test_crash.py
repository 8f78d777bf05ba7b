# SPDX-License-Identifier: Apache-2.0
"""The daemon dies right after a system call that changed the disk, any of them, and so does `epochfs gc`: tests/crash/calls.c
counts the calls.

The script of kill_session.py runs once to its end, which tells how many there are; then again and again, killed after one
of them. --crashes N takes N of them at random, spread over all (--crashes 0: every one), by --seed. A failure names its
number: make check-crash ARGS="--crash-after 812 -k 'crash and daemon'" (or 800-820) kills there again, as far as threads run alike.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import traceback

import pytest

from conftest import BIN, LIMIT, MountError, is_mounted, run
from crash_script import Calls, Script, age_temporaries, check_after, check_no_orphans, chosen
from garbage import make_garbage
from kill_session import take_away


class Killed(Script):
    def run_until_killed(self):
        """Or to the end; the daemon has ended then."""
        try:
            self.work()
        except (OSError, AssertionError, subprocess.SubprocessError, pytest.fail.Exception):
            try:
                self.process.wait(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                pytest.fail("the daemon lives, but this failed:\n" + traceback.format_exc())
        self.process.wait(timeout=LIMIT)


def run_script(mnt, monkeypatch, calls, session_of=Killed, **options):
    """The session, and whether it came to its end."""
    session = session_of(mnt)
    with monkeypatch.context() as patch:
        calls.environment(patch)
        try:
            mnt.mount(settle="1h", **options)
        except MountError as error:
            assert error.code == -signal.SIGKILL, error
            return session, False
        except OSError:
            assert mnt.process.wait(timeout=LIMIT) == -signal.SIGKILL, mnt.log.read_text()
    # From here on other programs are started, which are not counted.
    session.process = mnt.process
    session.run_until_killed()
    if mnt.process:
        take_away(mnt)
    elif is_mounted(mnt.path):
        run("umount", "-l", mnt.path)
    assert session.process.returncode in (0, -signal.SIGKILL), mnt.log.read_text()
    return session, session.process.returncode == 0


def until_killed(number, attempt):
    """ATTEMPT(number) runs once: what it counted, and whether it came to its end. Threads do not run alike, so one run may make fewer
    calls than that number: the next takes its last ones. A run that nothing killed shows nothing, and does not count."""
    for _ in range(5):
        calls, ended = attempt(number)
        if not ended:
            return
        assert calls.count < number, "call %d of %d killed nothing" % (number, calls.count)
        number = max(1, calls.count - 2)
    pytest.fail("not killed in five runs, by call %d at last" % number)


def kill_daemon(volume, tmp_path, monkeypatch, number):
    print("killed after call %d" % number)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="%d-" % number, dir=tmp_path))
    calls = Calls(folder / "calls", number)
    session, ended = run_script(volume, monkeypatch, calls)
    if not ended:
        edited = {name for name in session.doing if name == "model" or name.startswith("mapped")}
        check_after(session, folder, edited | {"train.log"})
        volume.empty_cache()
    return calls, ended


@pytest.mark.skipif(bool(os.environ.get("EPOCHFS_TEST_SAN")), reason="a sanitizer wants to be the first library")
@pytest.mark.timeout(100000)
def test_the_daemon_killed_after_a_call(make_volume, tmp_path, monkeypatch, pytestconfig, passthrough):
    calls = Calls(tmp_path / "calls")
    session, ended = run_script(make_volume(resume="off"), monkeypatch, calls)
    assert ended, session.mnt.log.read_text()
    total = calls.count
    print("%d calls" % total)
    assert total > 300
    for number in chosen(total, pytestconfig, "crashes", "crash_after", passthrough):
        until_killed(number, lambda n: kill_daemon(make_volume(resume="off"), tmp_path, monkeypatch, n))


def collect(volume, calls, monkeypatch):
    """Whether it came to its end."""
    with monkeypatch.context() as patch:
        calls.environment(patch)
        done = run(BIN, "gc", "--grace", "0", volume.url, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done
    return done.returncode == 0


def check_collected(volume, files):
    """The newest epoch is whole, at once and when another collection has come to its end, which leaves nothing; who mounts it
    elsewhere goes on."""
    def check(root):
        for name, data in files.items():
            assert (root / name).read_bytes() == data, name

    run(BIN, "fsck", "--read-data", volume.url)
    run(BIN, "export", volume.url, volume.base / "restored")
    check(volume.base / "restored")
    shutil.rmtree(volume.base / "restored")
    age_temporaries(volume)
    check_no_orphans(volume)
    volume.empty_cache()
    volume.mount(settle="1h")
    check(volume.path)
    (volume.path / "more").write_bytes(b"more")
    volume.seal()
    volume.unmount()
    assert not list(volume.remote.glob(".tmp-*"))
    check_no_orphans(volume)


@pytest.mark.skipif(bool(os.environ.get("EPOCHFS_TEST_SAN")), reason="a sanitizer wants to be the first library")
@pytest.mark.timeout(100000)
@pytest.mark.parametrize("passthrough", ["auto"])
def test_a_collection_killed_after_a_call(volume, tmp_path, monkeypatch, pytestconfig, passthrough):
    files = make_garbage(volume.mount(settle="1h"))
    kept = shutil.move(volume.remote, tmp_path / "kept")
    shutil.copytree(kept, volume.remote)
    calls = Calls(tmp_path / "calls")
    assert collect(volume, calls, monkeypatch)
    total = calls.count
    print("%d calls" % total)
    assert total > 50

    def attempt(number):
        print("killed after call %d" % number)
        shutil.rmtree(volume.remote)
        shutil.copytree(kept, volume.remote)
        some = Calls(tmp_path / "calls", number)
        ended = collect(volume, some, monkeypatch)
        if not ended:
            check_collected(volume, files)
        return some, ended

    for number in chosen(total, pytestconfig, "crashes", "crash_after", "collection"):
        until_killed(number, attempt)
