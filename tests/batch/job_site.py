# SPDX-License-Identifier: Apache-2.0
"""The machine on which the jobs of these tests run, and its user: where his training, his remote and his recipes are, and what came of them.

Nothing here knows how epochfs decides: a check restores by `epochfs export REMOTE@latest`, and loads what that gave.
"""

import os
import pathlib
import pwd
import re
import shutil
import subprocess
import tempfile
import time

import pytest

from training import load_archive

HERE = pathlib.Path(__file__).resolve().parent
EXAMPLES = HERE.parents[1] / "packaging" / "examples"
USER = "trainer"
LIMIT = 300  # seconds for anything; a batch system looks around every half a minute


def wait_until(condition, what, limit=LIMIT):
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail("waited %d s in vain: %s" % (limit, what() if callable(what) else what))
        time.sleep(0.2)


def run(*command, check=True, **keywords):
    done = subprocess.run([os.fspath(c) for c in command], capture_output=True, text=True, check=False, timeout=LIMIT, **keywords)
    if check and done.returncode:
        pytest.fail("%s: exit %d\n%s%s" % (" ".join(map(str, command)), done.returncode, done.stdout, done.stderr))
    return done


def as_user(*command, **keywords):
    return run("setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "env", "HOME=%s" % pwd.getpwnam(USER).pw_dir, "USER=" + USER, *command, **keywords)


class Site:
    """A user's home, with a remote that nobody has used."""

    def __init__(self):
        self.home = pathlib.Path(pwd.getpwnam(USER).pw_dir)
        for path in self.home.glob("[!.]*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(self.home / ".cache", ignore_errors=True)
        self.remote = pathlib.Path(tempfile.mkdtemp(prefix="remote-", dir="/srv"))
        self.give(self.remote)
        self.put("train.py", (HERE / "train.py").read_text())

    def give(self, path):
        shutil.chown(path, USER, USER)

    def put(self, name, text=""):
        path = self.home / name
        path.write_text(text)
        self.give(path)
        return path

    def take(self, name):
        (self.home / name).unlink()

    def recipe(self, name, *changes):
        """An example of packaging/examples with this site's remote, and (pattern, text) of what else a site must change: each must be there."""
        text = (EXAMPLES / name).read_text()
        for pattern, new in ((r"s3://my-bucket/run7", self.remote), *changes):
            text, count = re.subn(pattern, lambda _, n=new: str(n), text, flags=re.M)
            assert count, pattern
        return self.put(name, text)

    # What the training said.

    def said(self):
        path = self.home / "said"
        return path.read_text().splitlines() if path.exists() else []

    def steps(self, word, part=None):
        """The steps that it said with this word, in order."""
        pattern = r"%s%s (\d+)" % ("" if part is None else part + " ", word)
        return [int(m[1]) for m in (re.fullmatch(pattern, line) for line in self.said()) if m]

    def wait_steps(self, word, count, part=None, why=lambda: ""):
        """So many of them, at least."""
        wait_until(lambda: len(self.steps(word, part)) >= count, lambda: "%d times %s, of\n%s\n%s" % (count, word, "\n".join(self.said()), why()))
        return self.steps(word, part)

    def wait_said(self, line, count=1):
        wait_until(lambda: self.said().count(line) >= count, lambda: "%d times %s, of\n%s" % (count, line, "\n".join(self.said())))

    # What is in the remote.

    def latest(self):
        """The step of the newest whole checkpoint that any machine would restore from the remote; its two files are of one save. None where there is none."""
        with tempfile.TemporaryDirectory() as folder:
            done = run("epochfs", "export", "%s@latest" % self.remote, folder + "/out", check=False)
            if done.returncode == 5:
                return None
            assert done.returncode == 0, done.stderr
            steps = [load_archive("%s/out/%s.zip" % (folder, name), (name,)).steps for name in ("model", "optimizer")]
        assert steps[0] == steps[1], "model of step %d, optimizer of step %d" % tuple(steps)
        return steps[0]

    def latest_of(self, parts):
        """The same of a save of several nodes: the newest step of which every part is there."""
        with tempfile.TemporaryDirectory() as folder:
            run("epochfs", "export", "%s@latest" % self.remote, folder + "/out")
            step = max(int(path.name[5:]) for path in pathlib.Path(folder, "out").glob("step-*"))
            for part in parts:
                for name in ("model", "optimizer"):
                    assert load_archive("%s/out/step-%d/%s-%s.zip" % (folder, step, name, part), (name,)).steps == step
        return step

    def check_remote(self):
        run("epochfs", "fsck", "--read-data", self.remote)

    def another_machine(self):
        """Nothing but the remote is left of what this one had."""
        shutil.rmtree(self.home / ".cache", ignore_errors=True)
