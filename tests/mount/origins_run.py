# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of tests/origins on a mount, and on an ordinary directory, where what they do is tested itself."""

import contextlib
import hashlib
import os
import pathlib
import signal
import subprocess
import sys

from conftest import BIN, LIMIT, run, wait_until
from test_contract_epochs import log_of

PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "origins"


# In a mount namespace of its own, which has no other FUSE mounts: they would stay as long as it does.
SEEN_AT = """mount --bind "$1" "$2" || exit 1
awk -v at="$2" '/ - fuse/ && $5 != at { print $5 }' /proc/self/mountinfo | while read -r point; do umount -l "$(printf %b "$point")" 2>/dev/null; done
shift 2; exec "$@"
"""


def seen_at(place, path):
    """Begins a command for which `place` lies at `path`, as on the machine that the program is for."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", SEEN_AT, "sh", os.fspath(place), os.fspath(path)]


class Job:
    """A program under way, in a process group of its own. Whatever is left at the end of a test is killed by end_all()."""

    started = []

    def __init__(self, program, *words, stop=(), at=None, **env):
        """`at`: a pair of paths; the first one lies at the second one, as the program sees it."""
        # The programs themselves may lie where something else lies then.
        folder = "/proc/self/cwd" if at else PROGRAMS
        self.process = subprocess.Popen(
            [*(seen_at(*at) if at else ()), sys.executable, os.path.join(folder, program), *map(str, words)], cwd=PROGRAMS if at else None, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, bufsize=1, start_new_session=True, env={**os.environ, "STOP_AT": ",".join(stop), **{k: str(v) for k, v in env.items()}})
        self.said = []
        self.started.append(self.process)

    @classmethod
    def end_all(cls):
        while cls.started:
            process = cls.started.pop()
            with contextlib.suppress(ProcessLookupError):
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=LIMIT)

    def until(self, line):
        """Reads what it says until it says this."""
        for said in self.process.stdout:
            self.said.append(said.rstrip("\n"))
            if self.said[-1] == line:
                return self
        self.process.wait(timeout=LIMIT)
        raise AssertionError("%s was never said:\n%s" % (line, "\n".join(self.said)))

    def stopped(self, moment):
        return self.until("stopped " + moment)

    def go_on(self):
        self.process.stdin.write("\n")
        return self

    def ends(self, code=0):
        """All that it said, once it has ended by itself."""
        self.said += self.process.communicate(timeout=LIMIT)[0].splitlines()
        assert self.process.returncode == code, "\n".join(self.said)
        return self.said

    def asked_to_end(self, number=signal.SIGTERM, code=0):
        """The signal comes while it is stopped; then it goes on."""
        self.process.send_signal(number)
        return self.go_on().ends(code)

    def killed(self, number=signal.SIGKILL):
        """It and all that it started."""
        os.killpg(self.process.pid, number)
        return self.ends(-number)


def content(path):
    """What is in a directory: names and hashes of the files."""
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            file = pathlib.Path(folder, name)
            found[str(file.relative_to(path))] = hashlib.sha256(file.read_bytes()).hexdigest()
    return found


class Directory:
    """An ordinary one: nothing is sealed, and who is killed leaves what it has written."""

    mnt = None

    def __init__(self, path):
        self.path = path
        self.path.mkdir()

    def sealed(self, epochs, **wanted):
        pass

    def whole(self, **wanted):
        pass

    def interrupted(self, latest):
        pass

    def another_machine(self):
        pass


class Mounted:
    """On epochfs: what is sealed, when, and whether it counts as complete."""

    def __init__(self, mnt):
        self.mnt, self.path = mnt, mnt.path

    def sealed(self, epochs, **wanted):
        """So many epochs there are; the newest is complete and `latest`, shows what the live tree does, and its record says this."""
        wait_until(lambda: self.mnt.epochs() == list(range(1, epochs + 1)), "epoch %d, not %s" % (epochs, self.mnt.epochs()))
        record = log_of(self.mnt)[epochs]
        assert {**record, **wanted, "complete": True} == record, record
        assert os.readlink(self.mnt.epochs_dir / "latest") == "%06d" % epochs
        live = wait_until(lambda: content(self.path), "the live tree")
        sealed = content(self.mnt.epoch(epochs))
        assert {name: live[name] for name in sealed if name in live} == {name: sealed[name] for name in sealed if name in live}
        assert set(live) <= set(sealed)  # rotation may have removed some since

    def seals_by_itself(self):
        """(number, record) of the newest epoch, once it is what the live tree is. No command is given. A slow machine may pause within a save, and quiet seal
        what it has so far: there may be more epochs than saves."""
        live = content(self.path)
        number = wait_until(lambda: self.mnt.epochs() and content(self.mnt.epoch(self.mnt.epochs()[-1])) == live and self.mnt.epochs()[-1], "an epoch of what is there")
        return number, log_of(self.mnt)[number]

    def interrupted(self, latest):
        """A writer was killed: what it left, if anything, is sealed as incomplete, unless it lies under the temporary name alone. Then
        back to the newest epoch from before."""
        wait_until(lambda: not self.mnt.status()["pending"]["open"], "the end of those who were killed")
        number = self.mnt.seal()
        if log_of(self.mnt)[number]["complete"] is True:
            final = {n: c for n, c in content(self.mnt.epoch(number)).items() if not n.startswith("_checkpoint")}
            assert final == content(self.mnt.epoch(latest)), log_of(self.mnt)
            assert run(BIN, "latest", "--complete", self.mnt.path).stdout.strip() == str(number)
        else:
            assert run(BIN, "latest", "--complete", self.mnt.path).stdout.strip() == str(latest)
        run(BIN, "rollback", self.mnt.path, str(latest))
        assert content(self.path) == content(self.mnt.epoch(latest))

    def another_machine(self):
        """What this one has on its disks is gone: all comes from the remote, bit for bit."""
        before = content(self.path)
        self.mnt.remount(empty_cache=True)
        assert content(self.path) == before

    def whole(self, **wanted):
        """The newest epoch, which nobody asked for, is what the live tree is, complete and `latest`, and its record says this."""
        number, record = self.seals_by_itself()
        assert {**record, **wanted, "complete": True} == record, record
        assert os.readlink(self.mnt.epochs_dir / "latest") == "%06d" % number
        return number


def place_of(request, passthrough, tmp_path):
    """A mount, or, where that is what `passthrough` says, an ordinary directory."""
    if passthrough == "ordinary directory":
        return Directory(tmp_path / "directory")
    return Mounted(request.getfixturevalue("mnt"))
