# SPDX-License-Identifier: Apache-2.0
"""Epochs are dropped by hand, of a mount and of a remote: epochfs prune and epochfs rm; what epochs take."""

import json
import os
import re
import signal

import pytest

from conftest import MountError, run, wait_until
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
    said = epochfs("prune", "--keep", "last:1", six.path).stdout.splitlines()
    assert said[-2] == "2 epochs stay, 4 dropped"
    assert re.fullmatch("nothing is freed yet: .* in the remote go 24 h after the first `epochfs gc %s`; until then `epochfs undrop` brings epochs back" % six.path, said[-1])


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


def test_the_daemon_is_killed_under_a_prune(six, monkeypatch):
    with monkeypatch.context() as m:
        m.setenv("EPOCHFS_FAULT", "drop.rows:2")
        six.remount()
    cut = epochfs("prune", "--keep", "last:1", six.path, check=False)
    assert cut.returncode == 1 and cut.stderr
    assert six.process.wait(timeout=60) == -signal.SIGKILL
    six.process = None
    run("umount", "-l", six.path, check=False)
    six.mount()
    assert six.epochs() == [2, 4, 5, 6]
    assert numbers(prune("--keep", "last:1", six.path)["dropped"]) == [4, 5]
    assert records(six) == ([2, 6], [1, 3, 4, 5])
    assert holds(six.epoch(2), 2) and holds(six.path, 6)


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
    assert epochfs("rm", six.remote, "3", "4").stdout.splitlines() == [
        "epoch 000003 is dropped", "epoch 000004 is dropped",
        "nothing is freed yet: what only they held goes 24 h after the first `epochfs gc %s`; until then `epochfs undrop` brings epochs back" % six.remote]
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


# ---- what epochs take


def usage(target, *options):
    status = json.loads(epochfs("status", "--json", *options, target).stdout)
    return {k: {n: v for n, v in status.get(k, {}).items() if n != "counted_ns"} for k in ("live", "retained", "packs")}


def in_packs(mnt):
    sizes = [p.stat().st_size for p in (mnt.remote / "packs").rglob("*") if p.is_file()]
    return len(sizes), sum(sizes)


def test_what_epochs_take(mnt):
    """Bytes that nothing compresses: a file that stays, and one that each epoch has again."""
    (mnt.path / "stays").write_bytes(os.urandom(1000000))
    for n in range(4):
        (mnt.path / "changes").write_bytes(os.urandom(200000))
        (mnt.path / "twice").write_bytes((mnt.path / "changes").read_bytes())
        mnt.seal()
    mnt.wait_durable()
    count, all_bytes = in_packs(mnt)
    here = usage(mnt.path)
    assert here["live"]["epoch"] == 4 and here["live"]["bytes"] == 1400000
    assert 1200000 < here["live"]["bytes_stored"] < 1210000
    assert here["retained"]["epochs"] == 4 and here["retained"]["bytes"] == 4 * 1400000
    assert 1800000 < here["retained"]["bytes_stored"] < 1820000
    assert here["packs"] == {}
    everything = usage(mnt.path, "--usage")
    assert {**everything, "packs": {}} == here
    assert everything["packs"] == {"count": count, "bytes": all_bytes, "bytes_unused": 0}
    said = epochfs("log", mnt.path).stdout.splitlines()[-1]
    assert said == "live: 1.3 MiB (1.1 MiB stored); retained: 4 epochs, 5.3 MiB (1.7 MiB stored)"
    # What two dropped epochs alone needed is of no epoch; without a mount the same is found.
    epochfs("rm", mnt.path, "1", "3")
    after = usage(mnt.path, "--usage")
    assert after["live"] == here["live"] and after["retained"]["epochs"] == 2
    assert 400000 < after["packs"]["bytes_unused"] < 410000
    gone = here["retained"]["bytes_stored"] - after["retained"]["bytes_stored"]
    assert gone == after["packs"]["bytes_unused"] and after["packs"]["bytes"] == all_bytes
    assert usage(mnt.remote, "--usage") == after
    assert usage(mnt.remote)["retained"] == {"epochs": 2, "bytes": 2 * 1400000}
    # A machine that has none of it reads it only where it is told to, and knows it then.
    mnt.remount(empty_cache=True)
    assert "bytes_stored" not in usage(mnt.path)["retained"]
    assert usage(mnt.path, "--usage") == after
    assert {**usage(mnt.path), "packs": after["packs"]} == after


def test_usage_without_a_remote(volume):
    volume.url = "none"
    volume.mount(settle="1h")
    save(volume, 1, 2)
    assert usage(volume.path, "--usage") == {
        "live": {"epoch": 2, "bytes": 10000}, "retained": {"epochs": 2, "bytes": 20000}, "packs": {}}


# ---- several nodes


def test_a_volume_of_several_nodes_is_pruned_while_none_is_mounted(make_volume):
    nodes = []
    for name in ("a", "b"):
        v = make_volume(settle="1h", refresh="200ms", lease="3s", nodes=2, run="job-7", node=name)
        if nodes:
            v.remote, v.url = nodes[0].remote, nodes[0].url
        nodes.append(v)
    for v in nodes:
        v.mount()
    for step in (1, 2, 3):
        for v in nodes:
            (v.path / v.options["node"]).write_text("%d" % step * 5000)
            v.request("commit", step=step)
            v.wait_durable()
        for v in nodes:
            wait_until(lambda v=v: v.epochs() == list(range(1, step + 1)), "epoch %d on %s" % (step, v.options["node"]))
    busy = epochfs("prune", "--keep", "last:1", nodes[0].remote, check=False)
    assert busy.returncode == 8 and len(busy.stderr.splitlines()) == 1, busy.stderr
    assert records(nodes[0]) == ([1, 2, 3], [])
    for v in nodes:
        v.unmount()
    assert [e["epoch"] for e in prune("--keep", "last:1", nodes[0].remote)["dropped"]] == [1, 2]
    assert records(nodes[0]) == ([3], [1, 2])
    for v in nodes:
        v.mount()
        assert v.epochs() == [3]
        assert (v.epoch(3) / "b").read_text() == "3" * 5000
