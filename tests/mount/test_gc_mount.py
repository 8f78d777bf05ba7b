# SPDX-License-Identifier: Apache-2.0
"""Space comes back by itself: a mount with keep= collects the garbage of its remote, too."""

import os
import signal
import time

import pytest

from conftest import run, wait_until
from garbage import MIB, drop, make_garbage, noise, save
from retention import epochfs, records, wait_settled
from test_nodes import NAMES, make_nodes, save as save_part, sees
from test_prune import prune
from test_undrop import gc, holds, sound, undrop

# A grace of less than 2 s is one of 2 s where a mount writes.
FAST = {"settle": "1h", "keep": "last:1", "gc_grace": "2s"}


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter here."""
    return "auto"


def packs(mnt):
    return {p.name for p in (mnt.remote / "packs").glob("*/*")}


def collections(mnt):
    return mnt.status()["gc"]["collections"]


def clean(mnt):
    """Whether all packs that are there are of epochs that are there, and nothing waits to be deleted."""
    now = gc("file://%s" % mnt.remote, "--dry-run")
    return not (now["condemned"]["packs"] or now["waiting"]["packs"] or now["waiting"]["index_objects"])


def lists(mnt):
    return len(list((mnt.remote / "gc").glob("*"))) if (mnt.remote / "gc").exists() else 0


def test_what_keep_drops_is_deleted_by_itself(make_volume):
    mnt = make_volume(**FAST).mount()
    save(mnt, a=noise(2 * MIB, 1), b=noise(MIB, 5))
    old = packs(mnt)
    save(mnt, a=noise(2 * MIB, 2))
    wait_settled(mnt)
    assert records(mnt) == ([2], [1])
    wait_until(lambda: not packs(mnt) & old or clean(mnt), "the old packs to go")
    wait_until(lambda: mnt.status()["gc"]["bytes_freed"] > 2 * MIB, "the status to say so")
    wait_until(lambda: clean(mnt), "all of it to go")
    status = mnt.status()["gc"]
    assert status["grace_ns"] == 2 * 10**9 and "error" not in status
    assert "freed" in mnt.log.read_text()
    text = epochfs("status", mnt.path).stdout
    assert "gc" in text and "bytes_freed" in text.replace(" ", "_")
    mnt.remount(empty_cache=True)
    assert (mnt.path / "a").read_bytes() == noise(2 * MIB, 2) and (mnt.path / "b").read_bytes() == noise(MIB, 5)
    sound(mnt.url)


def test_at_its_start_it_takes_what_others_left(make_volume):
    mnt = make_volume(settle="1h").mount()
    files = make_garbage(mnt)
    mnt.mount(keep="last:99", gc_grace="2s")
    wait_until(lambda: clean(mnt), "the garbage to go")
    assert {n: (mnt.path / n).read_bytes() for n in files} == files
    mnt.unmount()
    sound(mnt.url)


@pytest.mark.parametrize("options", [{"gc": "off"}, {"keep": None}, {"ro": True}], ids=["off", "without keep", "ro"])
def test_who_does_not_collect(make_volume, options):
    mnt = make_volume(settle="1h").mount()
    make_garbage(mnt)
    mnt.mount(**{**FAST, **options})
    assert "gc" not in mnt.status()
    mnt.unmount()
    assert not lists(mnt)


def test_the_grace_holds_what_was_dropped(make_volume):
    """With a long one nothing goes; what is condemned is said, and when."""
    mnt = make_volume(settle="1h", keep="last:1", gc_grace="24s").mount()
    reader = make_volume(settle="1h")
    reader.remote, reader.url = mnt.remote, mnt.url
    old = noise(2 * MIB, 1)
    save(mnt, a=old)
    reader.mount(ro=True, refresh="100ms", cache_size="1M")
    with open(reader.epoch(1) / "a", "rb") as f:
        assert f.read(100) == old[:100]
        began = time.monotonic()
        save(mnt, a=noise(2 * MIB, 2))
        wait_settled(mnt)
        wait_until(lambda: mnt.status()["gc"].get("last", {}).get("bytes_waiting"), "a collection to condemn")
        status = mnt.status()["gc"]
        assert status["next_in_ns"] <= 24 * 10**9
        wait_until(lambda: reader.epochs() == [2], "the reader to see the drop")
        rest = f.read()
        if time.monotonic() - began < 24:
            assert rest == old[100:] and not mnt.status()["gc"]["bytes_freed"]
    undrop(mnt.path, 1)
    wait_until(lambda: reader.epochs() == [1, 2], "the reader to see the epoch")
    assert holds(reader, 1, {"a": old})


def test_what_was_brought_back_stays(make_volume):
    mnt = make_volume(**{**FAST, "gc_grace": "10s"}).mount()
    made = {n: {"a": noise(MIB, n)} for n in (1, 2, 3)}
    for n in (1, 2):
        save(mnt, **made[n])
    wait_settled(mnt)
    wait_until(lambda: mnt.status()["gc"].get("last", {}).get("bytes_waiting"), "a collection to condemn")
    undrop(mnt.path, 1)
    save(mnt, **made[3])
    wait_settled(mnt)
    wait_until(lambda: mnt.status()["gc"]["bytes_freed"] > MIB, "a collection to delete")
    mnt.remount(empty_cache=True)
    assert mnt.epochs() == [1, 3] and holds(mnt, 1, made[1]) and holds(mnt, 3, made[3])
    sound(mnt.url)


@pytest.mark.parametrize("point", ["gc.rewritten:1", "gc.written:1", "gc.index_put:1", "gc.deleted:1", "gc.published:1", "gc.published:2", "gc.tidied:1"])
def test_the_daemon_is_killed_while_it_collects(make_volume, point, monkeypatch):
    mnt = make_volume(settle="1h").mount()
    files = make_garbage(mnt)
    with monkeypatch.context() as m:
        m.setenv("EPOCHFS_FAULT", point)
        mnt.mount(keep="last:99", gc_grace="2s")
        m.delenv("EPOCHFS_FAULT")
        # What says that the garbage is gone may come before the point.
        wait_until(lambda: mnt.process.poll() is not None, point)
        assert mnt.process.wait() == -signal.SIGKILL
        mnt.process = None
        run("umount", "-l", mnt.path, check=False)
    mnt.mount(keep="last:99", gc_grace="2s")
    assert {n: (mnt.path / n).read_bytes() for n in files} == files
    wait_until(lambda: clean(mnt), "the garbage to go")
    mnt.remount(empty_cache=True)
    assert {n: (mnt.path / n).read_bytes() for n in files} == files
    sound(mnt.url)


def test_who_has_lost_the_lease_collects_no_more(make_volume):
    mnt = make_volume(**FAST, lease="1s").mount()
    save(mnt, a=noise(MIB, 1))
    other = make_volume(settle="1h")
    other.remote, other.url = mnt.remote, mnt.url
    other.mount(**{"take-over": True})
    wait_until(lambda: mnt.status()["lease"].get("state") == "lost" or mnt.status()["lease"].get("lost"), "the loss to be seen")
    save(other, a=noise(MIB, 2))
    drop(other, 1)
    before = lists(mnt)
    wait_until(lambda: "next_in_ns" not in mnt.status()["gc"] and not mnt.status()["gc"]["busy"], "the collector to rest")
    assert lists(mnt) == before
    mnt.process.kill()
    mnt.process.wait()
    mnt.process = None
    run("umount", "-l", mnt.path, check=False)


def test_a_remote_that_hangs_does_not_hold_up_an_unmount(make_volume, tmp_path):
    mnt = make_volume(**FAST)
    faults = tmp_path / "faults"
    faults.touch()
    mnt.url = "fault+file://%s?control=%s" % (mnt.remote, faults)
    mnt.mount()
    save(mnt, a=noise(MIB, 1))
    mnt.wait_durable()
    faults.write_text("get.delay=1h&only=index/")
    save(mnt, a=noise(MIB, 2))
    wait_until(lambda: mnt.status()["gc"].get("phase") or mnt.status()["gc"]["busy"], "a collection to begin")
    faults.write_text("get.delay=1h&only=index/")
    mnt.unmount()


def test_what_fails_is_said_and_tried_again(make_volume, tmp_path):
    mnt = make_volume(**{**FAST, "keep": "last:1,tagged"})
    save(mnt.mount(), a=noise(MIB, 1))
    os.symlink("1", mnt.epochs_dir / "good")
    record = mnt.remote / "epochs" / ("%020d.json" % 1)
    text = record.read_text()
    record.write_text("{")
    # The second of these drops the first, and a collection follows a drop.
    save(mnt, a=noise(MIB, 2))
    save(mnt, a=noise(MIB, 3))
    wait_until(lambda: "record is damaged" in mnt.status()["gc"].get("error", ""), "the failure to be said")
    assert mnt.log.read_text().count("garbage collection failed") == 1
    record.write_text(text)
    wait_until(lambda: "error" not in mnt.status()["gc"], "the next one")
    wait_until(lambda: mnt.status()["gc"]["bytes_freed"], "the garbage to go")


# ---- several nodes


def test_of_several_nodes_the_one_that_completes_an_epoch_drops(make_volume):
    nodes = make_nodes(make_volume, NAMES, keep="last:2,tagged", gc_grace="2s")
    for v in nodes:
        v.mount()
    for step in range(1, 7):
        for v in nodes:
            save_part(v, step)
        for v in nodes:
            sees(v, step)
        if step == 2:
            os.symlink("000002", nodes[1].epochs_dir / "best")
            for v in nodes:
                wait_until(lambda v=v: v.tags() == {"best": 2}, "the tag")
    for v in nodes:
        wait_until(lambda v=v: v.epochs() == [2, 5, 6], "the drops to be seen")
    wait_until(lambda: records(nodes[0]) == ([2, 5, 6], [1, 3, 4]), "the drops to be in the remote")
    assert sum(v.status()["retention"]["dropped"] for v in nodes) == 3
    wait_until(lambda: sum(v.status()["gc"]["collections"] for v in nodes) > 2, "collections")
    for v in nodes:
        assert (v.epoch(2) / "step-2" / "shard_c").read_text() == "c 2"
        v.unmount()
    sound(nodes[0].url)
    for v in nodes:
        v.mount()
        assert v.epochs() == [2, 5, 6]


def test_what_a_node_began_from_stays(make_volume):
    """An epoch of the attempt before, without which the parts of this one would not tell what they inherited."""
    nodes = make_nodes(make_volume, NAMES)
    for v in nodes:
        v.mount()
    for v in nodes:
        save_part(v, 1)
    for v in nodes:
        sees(v, 1)
        v.unmount()
    for v in nodes:
        v.mount(keep="last:1", run="job-8")
    for step in (2, 3, 4):
        for v in nodes:
            save_part(v, step)
        for v in nodes:
            sees(v, step)
    for v in nodes:
        wait_until(lambda v=v: v.epochs() == [1, 4], "the drops to be seen")
    done = epochfs("rm", nodes[0].path, "1", check=False)
    assert done.returncode == 8 and "began from" in done.stderr
    assert (nodes[0].epoch(4) / "step-1" / "shard_a").read_text() == "a 1"


# ---- prune --gc


@pytest.mark.parametrize("mounted", [True, False], ids=["mount", "remote"])
def test_prune_with_gc_does_both(make_volume, mounted):
    mnt = make_volume(settle="1h").mount()
    for n in (1, 2, 3):
        save(mnt, a=noise(MIB, n))
    if not mounted:
        mnt.unmount()
    target = mnt.path if mounted else mnt.url
    plan = prune("--dry-run", "--gc", "--keep", "last:1", target)
    assert len(plan["dropped"]) == 2 and plan["gc"]["dry_run"] and not lists(mnt)
    done = prune("--gc", "--grace", "0", "--keep", "last:1", target)
    assert [e["epoch"] for e in done["dropped"]] == [1, 2] and done["gc"]["deleted"]["bytes"] > 2 * MIB
    assert records(mnt) == ([3], [1, 2]) and clean(mnt)
    text = epochfs("prune", "--gc", "--keep", "last:1", target).stdout
    assert "1 epoch stays, 0 dropped" in text and "1 epoch needs" in text
    assert epochfs("prune", "--grace", "0", "--keep", "last:1", target, check=False).returncode == 2
    assert epochfs("prune", "--gc", "--grace", "soon", "--keep", "last:1", target, check=False).returncode == 2
    sound(mnt.url)
    if not mounted:
        mnt.mount()
    assert (mnt.path / "a").read_bytes() == noise(MIB, 3)
