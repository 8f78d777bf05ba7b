# SPDX-License-Identifier: Apache-2.0
"""Ray's DurableTrainable (tests/origins/durable.py) over the templates that the manual gives for it: a volume in S3 or in Google's dialect without
a mount, and a directory in a mount. Any number of saves of one logdir, a restore on another machine, and deletions."""

import itertools
import json
import os
import re

import pytest

from conftest import BIN, run, wait_until
from fake_s3 import FakeS3
from origins_run import Job, content
from papers import block_of
from proxy import Proxy
from server import ServerMissing
from server_rgw import Rgw


BLOB = 120000  # a checkpoint has two


@pytest.fixture(autouse=True)
def jobs():
    yield
    Job.end_all()


def templates(first):
    """The three lines of the block of the manual that begins so."""
    block = block_of(first)
    found = {name: re.search(r"^%s +(.*)$" % name, block, re.MULTILINE).group(1) for name in ("sync_up", "sync_down", "delete")}
    assert "{source}" in found["sync_up"] and "{target}" in found["delete"]
    return found


class Trial:
    """One trial: its place in the storage, and the machines that it runs on, each with a logdir and a cache of its own."""

    def __init__(self, folder, remote, env, how, proxy=None):
        self.folder, self.remote, self.how, self.proxy = folder, remote, how, proxy
        self.env = {**env, "PATH": "%s:%s" % (os.path.dirname(os.path.realpath(BIN)), os.environ["PATH"])}

    def logdir(self, machine):
        path = self.folder / machine / "trial7"
        path.mkdir(parents=True, exist_ok=True)
        return path

    def on(self, machine):
        return {**self.env, "EPOCHFS_CACHE_DIR": str(self.folder / machine / "cache")}

    def start(self, machine, iterations, *more, stop=(), **how):
        how = {**self.how, **how}
        return Job("durable.py", "--logdir", self.logdir(machine), "--remote", self.remote, "--sync-up", how["sync_up"],
                   "--sync-down", how["sync_down"], "--delete", how["delete"], *more, iterations, stop=stop, **self.on(machine))

    def kept(self, machine):
        return sorted(path.name for path in self.logdir(machine).glob("checkpoint_*"))

    def tell(self, machine, *words):
        return run(BIN, *words, env={**os.environ, **self.on(machine)}, timeout=120).stdout


@pytest.fixture(params=["s3", "gs"])
def trial(request, tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "GS_", "GCS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    how = templates("sync_up    epochfs import")
    if request.param == "gs":
        with FakeS3("goog") as fake, Proxy(fake.server.server_port) as proxy:
            yield Trial(tmp_path, "gs://%s/experiment/trial7" % fake.bucket,
                        {"GS_ACCESS_KEY_ID": fake.key, "GS_SECRET_ACCESS_KEY": fake.secret, "GCS_ENDPOINT_URL": "http://localhost:%d" % proxy.port}, how, proxy)
        return
    try:
        with Rgw(tmp_path / "rgw") as rgw, Proxy(rgw.port) as proxy:
            yield Trial(tmp_path, "s3://%s/experiment/trial7" % rgw.bucket, {**rgw.env(), "AWS_ENDPOINT_URL": "http://127.0.0.1:%d" % proxy.port}, how, proxy)
    except ServerMissing as missing:
        pytest.skip(str(missing))


def numbers(said, word):
    return [int(line.split()[1]) for line in said if line.startswith(word + " ")]


@pytest.mark.timeout(300)
def test_any_number_of_saves_a_restore_elsewhere_and_deletions(trial):
    said = trial.start("one", 5, "--keep", 2).ends()
    assert numbers(said, "committed") == [1, 2, 3, 4, 5]
    assert [line for line in said if line.startswith("deleted")] == ["deleted checkpoint_%06d" % n for n in (2, 3, 4)]
    assert trial.kept("one") == ["checkpoint_000001", "checkpoint_000005"]

    # What was deleted is not brought back, and what is kept is the same, bit for bit.
    said = trial.start("two", 8, "--restore", "checkpoint_000005", "--keep", 2, stop=["saved 6"])
    said.stopped("saved 6")
    assert "starts 5" in said.said
    kept = trial.logdir("two")
    assert trial.kept("two") == ["checkpoint_000001", "checkpoint_000005", "checkpoint_000006"]
    for name in trial.kept("one"):
        assert content(kept / name) == content(trial.logdir("one") / name)
    said = said.go_on().ends()
    assert numbers(said, "committed") == [6, 7, 8] and "deleted checkpoint_000006" in said
    assert trial.kept("two") == ["checkpoint_00000%d" % n for n in (1, 5, 7, 8)]

    # The templates have dropped what held the bytes of what was deleted: once the garbage is collected they are gone from the bucket, too.
    epochs = json.loads(trial.tell("one", "log", "--json", trial.remote))
    assert len(epochs) == 1 and epochs[0]["complete"] is True and epochs[0]["state"] == "durable"
    after = json.loads(trial.tell("one", "gc", "--grace", "0", "--json", trial.remote))["after"]["bytes"]
    assert after < sum(f.stat().st_size for f in kept.rglob("*") if f.is_file()) + BLOB
    assert "no damage" in trial.tell("one", "fsck", "--read-data", trial.remote)


WRITES = r"^(PUT|POST|DELETE) "


@pytest.mark.timeout(300)
def test_killed_after_each_write_of_a_save_and_the_next_one_is_whole(trial):
    """The remote takes so many writes of the save's import, and nobody is told of the last: there the machine dies. The next save, on the same machine or
    on another one, has all that the logdir has then. (One that cannot see that the process is gone waits for the lease to run out first: test_lease.py.)"""
    trial.start("m0", 1).ends()
    written = []
    # Checkpoint n is committed, and the save of the next one is killed after its n-th write. Restoring writes nothing.
    for n in itertools.count(1):
        before = len(trial.proxy.answered(WRITES))
        trial.proxy.stop_after(n, WRITES)
        job = trial.start("m%d" % n, n + 1, "--restore", "checkpoint_%06d" % n)
        wait_until(lambda: len(trial.proxy.answered(WRITES)) - before == n or job.process.poll() is not None, "write %d" % n)
        if job.process.poll() is not None:
            break
        assert not numbers(job.until("syncs %d" % (n + 1)).killed(), "committed")
        trial.proxy.heal()
        written.append(trial.proxy.answered(WRITES)[-1])

        again = "m%d" % n if n % 2 else "n%d" % n
        said = trial.start(again, n + 1, "--restore", "checkpoint_%06d" % n).ends()
        assert "starts %d" % n in said and numbers(said, "committed") == [n + 1]
        assert trial.start("c%d" % n, n + 1, "--restore", "checkpoint_%06d" % (n + 1)).ends()[-1] == said[-1]
        assert content(trial.logdir("c%d" % n)) == content(trial.logdir(again))
    # A whole save makes fewer.
    assert numbers(job.ends(), "committed") == [n + 1]
    assert all(any(kind in what for what in written) for kind in ("/lease/", "/packs/", "/index/", "/epochs/")), written
    trial.proxy.heal()
    epochs = json.loads(trial.tell("m0", "log", "--json", trial.remote))
    assert all(e["complete"] is True and e["state"] == "durable" for e in epochs)
    assert "no damage" in trial.tell("m0", "fsck", "--read-data", trial.remote)


@pytest.mark.timeout(300)
def test_a_save_during_a_deletion_goes_with_the_next_one(trial):
    """The client's own rule: one command at a time, and whoever comes meanwhile is not synced."""
    gate = trial.folder / "gate"
    os.mkfifo(gate)
    job = trial.start("one", 4, "--keep", 1, "--at-once", delete="cat %s >/dev/null; %s" % (gate, trial.how["delete"]))
    # 1 is the best and stays; 2 is deleted when 3 is there, and 3 when 4 is.
    job.until("skipped 4")
    gate.write_text("")
    job.until("kept 4")
    gate.write_text("")
    assert numbers(job.ends(), "committed") == [1, 2, 3]
    # 4 was never synced; 2 and 3 were, and are no longer there.
    assert "starts 1" in trial.start("two", 1, "--restore", "checkpoint_000001").ends()
    assert trial.kept("two") == ["checkpoint_000001"]


def test_nothing_to_delete_is_no_failure(trial):
    """What was never synced is deleted like the rest: the next wait() must not fail for it."""
    trial.start("one", 1).ends()
    how = trial.how["delete"].format(target=trial.remote + "/checkpoint_000009")
    assert run("sh", "-c", how, env={**os.environ, **trial.on("one")}, timeout=120, check=False).returncode == 0
    gone = trial.remote.replace("trial7", "no-such-trial") + "/checkpoint_000009"
    assert run("sh", "-c", trial.how["delete"].format(target=gone), env={**os.environ, **trial.on("one")}, timeout=120, check=False).returncode == 0
    # A real failure is one.
    broken = {**os.environ, **trial.on("one"), "AWS_SECRET_ACCESS_KEY": "wrong", "GS_SECRET_ACCESS_KEY": "wrong"}
    assert run("sh", "-c", how, env=broken, timeout=120, check=False).returncode not in (0, 5)


@pytest.mark.parametrize("passthrough", ["on"])
def test_into_a_mount(mnt, tmp_path):
    how = {name: text.replace("/mnt/ckpt", str(mnt.path)) for name, text in templates("sync_up    rsync").items()}
    trial = Trial(tmp_path, str(mnt.path / "trial7"), {}, how)
    said = trial.start("one", 4, "--keep", 2).ends()
    assert numbers(said, "committed") == [1, 2, 3, 4]
    assert content(mnt.path / "trial7") == content(trial.logdir("one"))
    # The machine is gone, with its disks: what was committed is there, what was deleted is not.
    mnt.kill()
    mnt.empty_cache()
    mnt.mount()
    assert content(mnt.path / "trial7") == content(trial.logdir("one"))
    said = trial.start("two", 5, "--restore", "checkpoint_000004", "--keep", 2).ends()
    assert "starts 4" in said and numbers(said, "committed") == [5]
