# SPDX-License-Identifier: Apache-2.0
"""A system call on the cache's disk fails, any of them, with ENOSPC or EIO, once or from there on (tests/crash/calls.c).

The script runs once to its end, which tells how many calls there are; then again and again, with one of them failing. What
fails is said to whoever asked for it; what was not refused is there after the next mount, on a disk that works again, and in
the remote. --faults N takes N calls of each kind, spread over all (0: every one), by --seed. A failure names its number:
make check-fault ARGS="--fault-at 812 -k 'eio and once'" (or 800-820) lets it fail there again, as far as threads run alike.
"""

import errno
import os
import pathlib
import subprocess
import tempfile
import traceback

import pytest

from conftest import LIMIT, Control, MountError, is_mounted, run, wait_until
from crash_script import Calls, Script, check_after, chosen
from kill_session import take_away

REFUSED = (OSError, subprocess.SubprocessError, AssertionError, pytest.fail.Exception)
FOREVER = 2**63
LOG_MAX = 200  # lines: what fails for ever is not told for ever
WAIT_MS = 300


class Anything:
    """In a list of what a file may hold."""


class Refused(Script):
    """Goes on after a step that failed; what it was about may be there or not."""

    def __init__(self, mnt, lasts):
        super().__init__(mnt)
        self.lasts = lasts
        self.maybe = {}  # path -> what it may hold besides what was promised
        self.refused = []  # the steps that failed
        self.edited = {"train.log"}

    def refuse(self, step, error):
        # What is not an error that the mount gave is a failure of the test.
        refused = isinstance(error, (OSError, AssertionError)) or "exit code" in str(error)
        assert refused or self.process.poll() is not None, repr(error)
        self.refused.append("%s: %s" % (step, error))
        for path, data in self.doing.items():
            self.maybe.setdefault(path, []).append(data)
            # It was told, and closes what it has: as on any disk.
            self.edited.add(os.path.basename(path))
        self.doing = {}

    def wait(self):
        if self.lasts:
            with Control(self.mnt.path) as control:
                answer = control.request("wait", timeout_ms=WAIT_MS)
            if "error" in answer:
                raise OSError(answer["errno"], answer["error"])
        else:
            super().wait()

    def mapping(self, path, version):
        self.maybe.setdefault(path, []).append(Anything)
        super().mapping(path, version)
        del self.maybe[path]

    def edit(self, path, version):
        self.maybe.setdefault(path, []).append(Anything)
        super().edit(path, version)
        del self.maybe[path]

    def rename_best(self):
        if "checkpoint-2/w" in self.promised:
            self.maybe["best/w"] = [self.promised["checkpoint-2/w"], None]
            super().rename_best()
            del self.maybe["best/w"]

    def seal(self):
        super().seal()
        number = max(self.sealed)
        self.sealed[number] = (self.sealed[number], {path: list(held) for path, held in self.maybe.items()})

    def rollback(self):
        before, self.promised = self.promised, {}
        super().rollback()
        promised, maybe = self.sealed.get(2, (before, {}))
        # Copies: what is written from here on is not what was sealed.
        self.promised, self.maybe = dict(promised), {path: list(held) for path, held in maybe.items()}

    def untag(self):
        if self.tag_paths():
            super().untag()

    def unmount(self):
        """Which may find that it cannot seal, and says so."""
        wait_until(lambda: run("umount", self.mnt.path, check=False).returncode == 0 or not is_mounted(self.mnt.path), "umount")

    def check_promises(self, promised=None, root=None):
        promised, maybe = promised or (self.promised, self.maybe)
        for path, data in (promised or {}).items():
            try:
                found = ((root or self.mnt.path) / path).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                found = None
            allowed = [data, *maybe.get(path, [])]
            if Anything in allowed or (found is not None and any(d and d.startswith(found) for d in allowed[1:])):
                continue
            assert found in allowed, "%s of %s: %r, promised %r" % (
                path, root or "the live tree", found and found[:30], data and data[:30])


def guarded(name):
    act = getattr(Refused, name)

    def attempt(self, *arguments):
        if self.process.poll() is not None:
            return
        try:
            act(self, *arguments)
        except REFUSED as error:
            self.refuse("%s%r" % (name, arguments), error)

    return attempt


for step_name in Script.STEPS:
    setattr(Refused, step_name, guarded(step_name))


def run_script(mnt, monkeypatch, calls):
    """The session; the daemon has ended, in order."""
    session = Refused(mnt, calls.lasts)
    # With a call that fails a refused mount says nothing of this machine.
    mnt.may_skip = not calls.first
    with monkeypatch.context() as patch:
        calls.environment(patch)
        try:
            mnt.mount(settle="1h")
        except MountError as error:
            assert 0 < error.code < 85 and error.output.strip(), error
            return session
        except OSError:
            if not mnt.process:
                raise
    session.process = mnt.process
    session.work()
    if is_mounted(mnt.path):
        mnt.process.terminate()
    assert mnt.process.wait(timeout=LIMIT) in (0, 1), mnt.log.read_text()
    assert mnt.process.returncode == 0 or mnt.log.read_text().strip()
    take_away(mnt)
    return session


def fail_and_check(mnt, monkeypatch, calls, folder):
    """Whether a call failed: threads do not run alike, so there may be fewer this time."""
    session = run_script(mnt, monkeypatch, calls)
    log = mnt.log.read_text()
    print("%s %s: %s; refused: %s\n%s" % (folder.name, "from there on" if calls.lasts else "once", calls.failed, session.refused, log))
    assert len(log.splitlines()) < LOG_MAX
    check_after(session, folder, session.edited)
    assert calls.failed or calls.count < calls.first, "call %d of %d did not fail" % (calls.first, calls.count)
    return bool(calls.failed)


def calls_of(folder, mnt, error, first, last):
    calls = Calls(folder / "calls", fail=(first, last), error=error, below=mnt.cache)
    calls.first, calls.lasts = first, last == FOREVER
    return calls


@pytest.mark.skipif(bool(os.environ.get("EPOCHFS_TEST_SAN")), reason="a sanitizer wants to be the first library")
@pytest.mark.timeout(100000)
@pytest.mark.parametrize("how", ["once", "from-there-on"])
@pytest.mark.parametrize("error", ["eio", "enospc"])
def test_a_call_fails(make_volume, tmp_path, monkeypatch, pytestconfig, passthrough, error, how):
    number_of_error = getattr(errno, error.upper())
    mnt = make_volume()
    calls = calls_of(tmp_path, mnt, number_of_error, 0, 0)
    session = run_script(mnt, monkeypatch, calls)
    assert not session.refused and mnt.process is None, (session.refused, mnt.log.read_text())
    total = calls.count
    print("%d calls" % total)
    assert total > 200
    failures = []

    def attempt(number):
        """None where a call failed; else how many there were."""
        mnt = make_volume()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="%d-" % number, dir=tmp_path))
        calls = calls_of(folder, mnt, number_of_error, number, number if how == "once" else FOREVER)
        failed = True
        try:
            failed = fail_and_check(mnt, monkeypatch, calls, folder)
        except (Exception, pytest.fail.Exception):
            failures.append("call %d: %s\n%s" % (number, calls.failed, traceback.format_exc()))
            print(failures[-1])
            mnt.clean_up()
        mnt.empty_cache()
        return None if failed else calls.count

    for number in chosen(total, pytestconfig, "faults", "fault_at", (passthrough, error, how)):
        count = attempt(number)
        for _ in range(4):
            if count is None:
                break
            count = attempt(max(1, count - 2))
        if count is not None:
            failures.append("call %d: in five runs none failed" % number)
    assert not failures, "%d of them:\n%s" % (len(failures), "\n".join(failures))
