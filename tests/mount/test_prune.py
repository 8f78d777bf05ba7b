# SPDX-License-Identifier: Apache-2.0
"""Epochs are dropped by hand, of a mount and of a remote: epochfs prune and epochfs rm."""

import json
import os
import signal

import pytest

from conftest import MountError, wait_until
from retention import epochfs, holds, records, save


@pytest.fixture
def passthrough():
    """Who reads and writes the files' bytes plays no part here."""
    return "auto"


# ---- prune


def prune(*arguments):
    return json.loads(epochfs("prune", "--json", *arguments).stdout)


def numbers(epochs):
    return [e["epoch"] for e in epochs]


@pytest.fixture
def six(mnt):
    """Steps 500 to 3000, the second tagged, all durable."""
    for n in range(1, 7):
        save(mnt, n, step=500 * n)
    epochfs("tag", mnt.path, "2", "best")
    mnt.wait_durable()
    return mnt


def test_prune_of_a_mount(six):
    wish = ("--keep", "last:2,every:2000", six.path)
    plan = prune("--dry-run", *wish)
    assert plan["dry_run"] and six.epochs() == [1, 2, 3, 4, 5, 6]
    done = prune(*wish)
    assert {k: v for k, v in done.items() if k != "dry_run"} == {k: v for k, v in plan.items() if k != "dry_run"}
    assert [(e["epoch"], e["reasons"]) for e in done["kept"]] == [
        (2, ["tagged"]), (4, ["every"]), (5, ["last"]), (6, ["last", "newest", "current"])]
    assert numbers(done["dropped"]) == [1, 3] and done["not_dropped"] == []
    assert six.epochs() == [2, 4, 5, 6]
    # When it returns the remote knows.
    assert records(six) == ([2, 4, 5, 6], [1, 3])
    assert numbers(prune(*wish)["dropped"]) == []


def test_prune_prints_a_table(six):
    lines = epochfs("prune", "-n", "--keep", "last:1,hourly:1", six.path).stdout.splitlines()
    assert lines[0].split() == ["EPOCH", "AGE", "STEP", "SIZE", "STATE", "KEPT", "TAGS"]
    assert "last, hourly, newest, current" in lines[1] and lines[1].startswith("000006")
    assert "tagged" in lines[5] and lines[5].endswith("best")
    assert lines[6].endswith("- would be dropped")
    assert lines[7] == "2 epochs would stay, 4 would be dropped; nothing was changed"
    assert epochfs("prune", "--keep", "last:1", six.path).stdout.splitlines()[-1] == "2 epochs stay, 4 dropped"


def test_prune_of_a_remote(six, make_volume):
    wish = ("--keep", "last:1", six.remote)
    # Not beside a mount that writes: it says who, and where to go.
    busy = epochfs("prune", *wish, check=False)
    assert busy.returncode == 8 and str(six.path) in busy.stderr and len(busy.stderr.splitlines()) == 1
    assert epochfs("rm", six.remote, "1", check=False).returncode == 8
    # A look is free.
    assert numbers(prune("--dry-run", *wish)["dropped"]) == [1, 3, 4, 5]
    reader = make_volume(ro=True, refresh="200ms")
    reader.url = six.url
    reader.mount()
    six.unmount()
    done = prune(*wish)
    assert numbers(done["dropped"]) == [1, 3, 4, 5]
    assert [(e["epoch"], e["reasons"]) for e in done["kept"]] == [(2, ["tagged"]), (6, ["last", "newest", "current"])]
    assert records(six) == ([2, 6], [1, 3, 4, 5])
    wait_until(lambda: reader.epochs() == [2, 6], "the reader to see it")
    assert holds(reader.epoch(2), 2)
    # The mount that made them, with its cache, and one with none.
    six.mount()
    assert six.epochs() == [2, 6] and holds(six.path, 6)
    save(six, 7)
    six.remount(empty_cache=True)
    assert six.epochs() == [2, 6, 7] and holds(six.epoch(2), 2)
    assert json.loads(epochfs("status", "--json", six.remote).stdout)["lease"]["state"] == "held"


def test_a_prune_that_is_killed(six, monkeypatch):
    six.unmount()
    with monkeypatch.context() as m:
        m.setenv("EPOCHFS_FAULT", "catalog.dropped:2")
        killed = epochfs("prune", "--keep", "last:1", six.remote, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert records(six) == ([2, 4, 5, 6], [1, 3])
    assert numbers(prune("--keep", "last:1", six.remote)["dropped"]) == [4, 5]
    assert records(six) == ([2, 6], [1, 3, 4, 5])
    epochfs("fsck", six.remote)
    six.mount()
    assert six.epochs() == [2, 6]


def test_prune_without_a_remote(volume):
    volume.url = "none"
    volume.mount(settle="1h")
    save(volume, 1, 2, 3)
    assert numbers(prune("--keep", "last:2", volume.path)["dropped"]) == [1]
    assert volume.epochs() == [2, 3]


def test_prune_keeps_the_last_whole_one_and_what_came_after(mnt):
    save(mnt, 1, 2)
    mnt.wait_durable()
    os.rename(mnt.path / "f", mnt.path / "g")
    (mnt.path / "torn.safetensors").write_bytes(b"\xff\0\0\0\0\0\0\0{")  # its head ends beyond its end
    assert mnt.seal() == 3
    mnt.wait_durable()
    assert mnt.request("log")["epochs"][-1]["complete"] is False
    for target in (mnt.path, mnt.remote):
        plan = prune("-n", "--keep", "every:1000", target)
        assert [(e["epoch"], e["reasons"]) for e in plan["kept"]] == [(2, ["newest"]), (3, ["current", "unfinished"])]


@pytest.mark.parametrize("arguments,word", [
    ((), "--keep"), (("--keep", "last:x"), "needs a number from 1"), (("--keep", ""), "--keep"), (("--keep", "last:1", "a"), "too many")])
def test_wrong_usage_of_prune(arguments, word, tmp_path, monkeypatch):
    monkeypatch.delenv("EPOCHFS_KEEP", raising=False)
    done = epochfs("prune", tmp_path, *arguments, check=False)
    assert done.returncode == 2 and word in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("policy,why", [
    ("last:0", "needs a number from 1"), ("hurly:3", "'hurly:3' is none"), ("last:1,hurly:3", "'hurly:3' is none"),
    ("", "is empty"), ("last:1,last:2", "comes twice")])
def test_a_wrong_policy_is_refused(volume, policy, why, monkeypatch):
    with pytest.raises(MountError) as e:
        volume.mount(keep=policy)
    assert e.value.code == 2 and why in e.value.output and "last:10" in e.value.output
    if policy:
        monkeypatch.setenv("EPOCHFS_KEEP", policy)
        with pytest.raises(MountError) as e:
            volume.mount()
        assert e.value.code == 2 and "EPOCHFS_KEEP" in e.value.output


# ---- rm


def test_rm_of_several_from_a_mount(six):
    done = epochfs("rm", "--json", six.path, "1", "step=2000", "000004", "5")
    assert json.loads(done.stdout) == {"epochs": [1, 4, 5]}
    assert records(six) == ([2, 3, 6], [1, 4, 5])
    assert json.loads(epochfs("rm", "--json", six.path, "3").stdout) == {"epoch": 3}
    refused = epochfs("rm", six.path, "best", "6", check=False)
    assert refused.returncode == 8
    assert "tagged 'best'" in refused.stderr and "current" in refused.stderr and len(refused.stderr.splitlines()) == 2
    assert epochfs("rm", six.path, "1", check=False).returncode == 5
    assert six.epochs() == [2, 6]
    # One that cannot go keeps none of the others.
    epochfs("tag", "-d", six.path, "best")
    assert epochfs("rm", six.path, "6", "2", check=False).returncode == 8
    assert six.epochs() == [6]


def test_rm_from_a_remote(six, make_volume):
    six.unmount()
    assert json.loads(epochfs("rm", "--json", six.remote, "step=500").stdout) == {"epoch": 1}
    assert epochfs("rm", six.remote, "3", "4").stdout.splitlines() == ["epoch 000003 is dropped", "epoch 000004 is dropped"]
    refused = epochfs("rm", six.remote, "2", "6", "latest", check=False)
    assert refused.returncode == 8 and "tagged 'best'" in refused.stderr and "newest" in refused.stderr
    assert epochfs("rm", six.remote, "3", check=False).returncode == 5
    assert records(six) == ([2, 5, 6], [1, 3, 4])
    assert epochfs("log", "--json", six.remote).stdout.count('"epoch"') == 3
    other = make_volume()
    other.url = six.url
    other.mount()
    assert other.epochs() == [2, 5, 6] and holds(other.epoch(5), 5)
    assert save(other, 7) == 7


def test_a_drop_and_a_tag_reach_the_remote_before_the_unmount_ends(six):
    six.options["keep"] = "last:1"
    epochfs("umount", six.path)
    six.wait_end()
    six.mount()
    save(six, 7)
    epochfs("tag", six.path, "7", "last")
    epochfs("umount", six.path)
    six.wait_end()
    assert records(six) == ([2, 7], [1, 3, 4, 5, 6])
    assert (six.remote / "tags" / "last").read_text().strip() == "7"
