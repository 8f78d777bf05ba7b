# SPDX-License-Identifier: Apache-2.0
"""The daemon dies right after any system call that changes the disk, while saves are killed, torn, done again and rolled back.

A save is two files, in place or in a directory of its own, and the second is open from before the first one changes until its own end: at no call between do both
look closed while they differ. So whatever was lost, an epoch that calls itself complete has both files of one save, here, in the
remote and for the next machine, and a save that is done again whole is complete. `make check-crash` takes every call.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import pytest

from conftest import BIN, python, run, wait_until
from crash_script import Calls, chosen
from kill_session import content, is_whole
from test_contract_writing import log_of
from test_crash import Killed, run_script, until_killed
from test_doubts import write_torn

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")

WRITER = """
import os, sys
try:
    file = open(sys.argv[1], "wb")
    data = sys.stdin.buffer.read(int(sys.argv[2]))
    file.write(data[:100]), file.flush()
    print("open", flush=True)
    sys.stdin.buffer.read(1)
    file.write(data[100:]), file.close()
except OSError:
    os._exit(1)  # closes, and says nothing more
"""


def version_of(root, name):
    """That of a file, which is whole; 0 where there is none."""
    try:
        data = (root / name).read_bytes()
    except FileNotFoundError:
        return 0
    assert data and is_whole(data), "%s in %s is torn: %r" % (name, root, data[:40])
    return int(data.split(b"\n", 1)[0].split(b":")[1])


def versions(root):
    """Those of the two files, in the newest directory of a step where there are such."""
    steps = [int(n.removeprefix("step-")) for n in os.listdir(root) if n.startswith("step-")]
    top = root / ("step-%d" % max(steps)) if steps else root
    return version_of(top, "model"), version_of(top, "optimizer")


class Saves(Killed):
    """Saves, some of which are killed or torn."""

    def __init__(self, mnt):
        super().__init__(mnt)
        self.whole = {}  # number of an epoch that was called complete -> the save that it has

    def place(self, _):
        return self.mnt.path

    def save_model(self, path, data):
        path.write_bytes(data)

    def save(self, version, dies=False):
        data = content("optimizer", version)
        top = self.place(version)
        writer = python(WRITER, top / "optimizer", str(len(data)))
        try:
            writer.stdin.write(data.decode()), writer.stdin.flush()
            assert writer.stdout.readline() == "open\n", "the daemon is dead"
            self.save_model(top / "model", content("model", version))
            if dies:
                writer.kill()
                writer.wait()
                return
            writer.stdin.write("."), writer.stdin.flush()
            assert writer.wait() == 0, "the daemon is dead"
        finally:
            writer.kill()
            writer.wait()
            writer.stdin.close()
            writer.stdout.close()

    def record(self, number):
        return next(e for e in log_of(self.mnt) if e["epoch"] == number)

    def sealed_whole(self, version):
        number = self.mnt.seal()
        assert self.record(number)["complete"], self.record(number)
        assert versions(self.mnt.epoch(number)) == (version, version)
        self.whole[number] = version

    def sealed_in_doubt(self):
        number = self.mnt.seal()
        assert not self.record(number)["complete"], self.record(number)
        return number

    def work(self):
        self.save(1)
        self.sealed_whole(1)
        self.save(2, dies=True)
        in_doubt = self.sealed_in_doubt()
        (self.mnt.path / "notes.txt").write_text("another file")
        self.sealed_in_doubt()
        self.mnt.wait_durable()
        self.save(3)
        self.sealed_whole(3)
        write_torn(self.mnt.path / "best.pt")
        self.sealed_in_doubt()
        os.unlink(self.mnt.path / "best.pt")
        self.sealed_whole(3)
        self.mnt.rollback(in_doubt)
        (self.mnt.path / "notes.txt").write_text("after the rollback")
        self.sealed_in_doubt()
        self.mnt.rollback(max(self.whole))
        self.save(4)
        self.save(5)  # seals the one before it
        self.sealed_whole(5)
        self.save(6, dies=True)
        self.mnt.unmount()


class ResumedSaves(Saves):
    """The same, where the mount takes back what was killed. Each file is saved by a process that ends, which is not waited for."""

    def save_model(self, path, data):
        subprocess.run(["dd", "of=%s" % path, "status=none"], input=data, check=True)
        path.exists()  # its close is taken in before the one that follows: which file ends the save is told by their order

    def save_torn(self, path):
        with tempfile.NamedTemporaryFile() as torn:
            write_torn(pathlib.Path(torn.name))
            self.save_model(path, torn.read())
        wait_until(lambda: not path.exists(), "the live tree to go back")

    def took_back(self, version):
        assert versions(self.mnt.path) == (version, version), versions(self.mnt.path)

    def work(self):
        self.save(1)
        self.sealed_whole(1)
        self.save(2, dies=True)
        self.took_back(1)
        self.mnt.wait_durable()
        self.save(3)
        self.sealed_whole(3)
        self.save_torn(self.mnt.path / "best.pt")
        self.took_back(3)
        self.save(4, dies=True)
        self.took_back(3)
        self.save(5)
        time.sleep(1.1)  # what seems to be a try of the save before keeps the next one from sealing for a second
        self.save(6, dies=True)
        self.took_back(5)
        self.mnt.unmount()


class Renamed(Saves):
    """One of the two is written under a temporary name, which becomes the final one."""

    def save_model(self, path, data):
        temporary = path.with_suffix(".tmp")
        temporary.write_bytes(data)
        temporary.rename(path)


class Rotated(Saves):
    """A directory for each save; two of them are kept."""

    def place(self, version):
        shutil.rmtree(self.mnt.path / ("step-%d" % (version - 2)), ignore_errors=True)
        (self.mnt.path / ("step-%d" % version)).mkdir(exist_ok=True)
        return self.mnt.path / ("step-%d" % version)

    def work(self):
        self.save(1)
        self.sealed_whole(1)
        self.save(2, dies=True)
        in_doubt = self.sealed_in_doubt()
        self.mnt.wait_durable()
        self.save(2)
        self.sealed_whole(2)
        self.save(3)
        self.save(4)  # seals the one before it
        self.sealed_whole(4)
        self.mnt.rollback(in_doubt)
        self.save(3)
        self.sealed_whole(3)
        self.save(4, dies=True)
        self.mnt.unmount()


def check_epochs(session):
    """What calls itself complete is so, and what was called so is still."""
    mnt, records = session.mnt, {e["epoch"]: e for e in log_of(session.mnt)}
    for number, record in records.items():
        if record["complete"]:
            model, optimizer = versions(mnt.epoch(number))
            assert model == optimizer, "epoch %d calls itself complete: %d %d" % (number, model, optimizer)
            done = run(BIN, "verify", mnt.path, str(number), check=False)
            assert done.returncode == 0, done
    for number, version in session.whole.items():
        assert records[number]["complete"] and versions(mnt.epoch(number)) == (version, version), records[number]


def check_after(session, options):
    """The machine goes on, and then another one does."""
    mnt = session.mnt
    for elsewhere in (False, True):
        if elsewhere:
            mnt.empty_cache()
        mnt.mount(settle="1h", **options)
        # Without a complete epoch there is none to go back to.
        if options and any(e["complete"] for e in log_of(mnt)):
            model, optimizer = versions(mnt.path)
            assert model == optimizer, "resumed from %d and %d" % (model, optimizer)
        mnt.seal()
        check_epochs(session)
        (mnt.path / "notes.txt").write_text("after the crash %s" % elsewhere)
        mnt.seal()
        mnt.wait_durable()
        check_epochs(session)
        if elsewhere:
            (mnt.path / "best.pt").unlink(missing_ok=True)
            session.save(9)
            session.sealed_whole(9)
            check_epochs(session)
        mnt.unmount()


@pytest.mark.skipif(bool(os.environ.get("EPOCHFS_TEST_SAN")), reason="a sanitizer wants to be the first library")
@pytest.mark.timeout(100000)
@pytest.mark.parametrize("script, options", [(Saves, {}), (ResumedSaves, {"resume": True}), (Renamed, {}), (Rotated, {})],
                         ids=["saves", "resumed", "renamed", "rotated"])
def test_the_daemon_killed_after_a_call_beside_killed_saves(make_volume, tmp_path, monkeypatch, pytestconfig, passthrough, script, options):
    calls = Calls(tmp_path / "calls")
    session, ended = run_script(make_volume(), monkeypatch, calls, script, **options)
    assert ended, session.mnt.log.read_text()
    total = calls.count
    print("%d calls" % total)
    assert total > 200

    def attempt(number):
        print("killed after call %d" % number)
        volume = make_volume()
        folder = pathlib.Path(tempfile.mkdtemp(prefix="%d-" % number, dir=tmp_path))
        some = Calls(folder / "calls", number)
        after, at_end = run_script(volume, monkeypatch, some, script, **options)
        if not at_end:
            check_after(after, options)
            volume.empty_cache()
        return some, at_end

    for number in chosen(total, pytestconfig, "crashes", "crash_after", passthrough + script.__name__):
        until_killed(number, attempt)
