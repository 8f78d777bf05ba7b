# SPDX-License-Identifier: Apache-2.0
"""epochfs undrop: a dropped epoch comes back under its number, for as long as garbage collection has left what it needs."""

import contextlib
import json
import os
import signal
import sqlite3
import threading

import pytest

import remote_weather
from conftest import BIN, run, wait_until
from garbage import MIB, drop, noise, save
from retention import epochfs, records, wait_settled
from test_nodes import NAMES, make_nodes, save as save_part, sees

weather = remote_weather.weather

DONE, FAILED, USAGE, NOT_FOUND, DAMAGED, CONFLICT = 0, 1, 2, 5, 6, 8


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of the command."""
    return "auto"


@pytest.fixture
def mnt(make_volume):
    return make_volume(settle="1h").mount()


@pytest.fixture(params=["mount", "remote"])
def target(request, mnt):
    """Gives a function that makes the volume one that is mounted, or not, and what the command names then."""
    def make():
        if request.param == "mount":
            return mnt.path
        mnt.wait_durable()
        if mnt.process:
            mnt.unmount()
        return mnt.url
    return make


def undrop(target, number, *words, code=DONE):
    done = epochfs("undrop", "--json", *words, target, str(number), check=False)
    assert done.returncode == code, done
    return json.loads(done.stdout) if code == DONE else done.stderr


def gc(url, *words):
    return json.loads(epochfs("gc", "--json", *words, url).stdout)


def sound(url):
    report = json.loads(epochfs("fsck", "--json", "--read-data", url).stdout)
    assert not report["problems"] and report["foreign"] == 0
    return report


def three(mnt):
    """Epochs 1 to 3 of 1 MiB each, and what each holds; 2 shares half of its bytes with 1."""
    made = {}
    for n in (1, 2, 3):
        made[n] = {"a": noise(MIB, n), "b": noise(MIB, 1 if n < 3 else 9), "small": b"%d" % n}
        assert save(mnt, **made[n]) == n
    return made


def holds(mnt, number, files):
    return {p.name: p.read_bytes() for p in mnt.epoch(number).iterdir()} == files


def check(mnt, made, dropped=()):
    """Every epoch but those is there and whole: here, and from an empty cache."""
    if not mnt.process:
        mnt.mount()
    for empty in (False, True):
        if empty:
            mnt.remount(empty_cache=True)
        assert mnt.epochs() == [n for n in made if n not in dropped]
        for n, files in made.items():
            assert n in dropped or holds(mnt, n, files)
    sound(mnt.url)


def test_it_is_as_it_was(mnt, target):
    made = three(mnt)
    before = [e for e in mnt.request("log")["epochs"] if e["epoch"] == 2][0]
    drop(mnt, 2)
    assert records(mnt) == ([1, 3], [2]) and not mnt.epoch(2).exists()
    assert undrop(target(), 2) == {"epoch": 2, "tag": "undropped-2"}
    assert records(mnt) == ([1, 2, 3], [])
    check(mnt, made)
    after = [e for e in mnt.request("log")["epochs"] if e["epoch"] == 2][0]
    assert after.pop("tags") == ["undropped-2"] and before.pop("tags") == []
    assert after == before
    assert mnt.tags() == {"undropped-2": 2} and os.readlink(mnt.epochs_dir / "latest") == "000003"
    assert save(mnt, a=b"x") == 4


def test_once_more_changes_nothing_and_the_tag_may_be_named(mnt, target):
    made = three(mnt)
    drop(mnt, 1)
    name = target()
    assert undrop(name, 1, "--tag", "first") == {"epoch": 1, "tag": "first"}
    assert undrop(name, 1, "--tag", "first") == {"epoch": 1, "tag": "first"}
    assert epochfs("undrop", name, "000001", "--tag", "first").stdout == "epoch 000001 is back already; the tag first keeps it\n"
    check(mnt, made)


def test_what_it_says(mnt, target):
    """What is not dropped is refused, and gets no tag."""
    three(mnt)
    drop(mnt, 1)
    name = target()
    assert epochfs("undrop", name, "1").stdout == "epoch 000001 is back; the tag undropped-1 keeps it\n"
    for words in ("3",), ("3", "--tag", "x"), ("1", "--tag", "x"):
        assert "is there, it is not dropped" in undrop(name, *words, code=CONFLICT)
    assert set(json.loads(epochfs("tag", "--json", name).stdout)) == {"undropped-1"}


def test_it_can_be_dropped_and_brought_back_again(mnt, target):
    made = three(mnt)
    for _ in range(3):
        if not mnt.process:
            mnt.mount()
        drop(mnt, 2)
        name = target()
        undrop(name, 2)
        epochfs("tag", "-d", name, "undropped-2")
    check(mnt, made)


def test_what_it_refuses(mnt, target, make_volume):
    made = three(mnt)
    os.symlink("3", mnt.epochs_dir / "best")
    drop(mnt, 1)
    name = target()
    assert "there never was an epoch 9" in undrop(name, 9, code=NOT_FOUND)
    assert "number alone" in undrop(name, "step=1", code=USAGE)
    assert "best" in undrop(name, 1, "--tag", "best", code=CONFLICT)
    assert "step=1" in undrop(name, 1, "--tag", "step=1", code=USAGE if name == mnt.url else FAILED + 1)
    assert "needs a TARGET" in epochfs("undrop", name, check=False).stderr
    check(mnt, made, dropped=[1])
    local = make_volume(settle="1h")
    local.url = "none"
    local.mount()
    for n in (1, 2):
        save(local, a=noise(5000, n))
    os.rmdir(local.epoch(1))
    assert "without a remote" in undrop(local.path, 1, code=FAILED)


def test_another_machine_that_writes_is_asked_for(mnt):
    three(mnt)
    drop(mnt, 1)
    assert "in use" in undrop(mnt.url, 1, code=CONFLICT)
    assert records(mnt) == ([2, 3], [1])


# ---- beside garbage collection


def test_after_a_collection_that_has_condemned(mnt, target):
    """Its packs are on the list: what it needs is stored again, and no later collection takes it."""
    made = three(mnt)
    drop(mnt, 1)
    drop(mnt, 2)
    assert gc(mnt.url)["condemned"]["packs"] > 0
    name = target()
    undrop(name, 2)
    gc(mnt.url, "--grace", "0")
    gc(mnt.url, "--grace", "0")
    check(mnt, made, dropped=[1])
    assert "garbage collection has deleted" in undrop(mnt.path, 1, code=NOT_FOUND)


def test_after_a_collection_that_has_deleted(mnt, target):
    made = three(mnt)
    drop(mnt, 2)
    gc(mnt.url, "--grace", "0")
    before = (mnt.remote / "epochs" / ("%020d.json" % 2)).read_bytes()
    line = undrop(target(), 2, code=NOT_FOUND)
    assert "garbage collection has deleted what it needs" in line and line.count("\n") == 1
    assert (mnt.remote / "epochs" / ("%020d.json" % 2)).read_bytes() == before
    check(mnt, made, dropped=[2])
    assert mnt.tags() == {}


def test_dropped_by_a_version_that_kept_no_record(mnt, target):
    made = three(mnt)
    drop(mnt, 1)
    path = mnt.remote / "epochs" / ("%020d.json" % 1)
    tombstone = json.loads(path.read_text())
    del tombstone["record"]
    path.write_text(json.dumps(tombstone))
    assert "cannot be brought back" in undrop(target(), 1, code=NOT_FOUND)
    check(mnt, made, dropped=[1])


@pytest.mark.parametrize("point", ["gc.written", "gc.deleted", "gc.published"])
def test_while_a_collection_is_killed(mnt, target, point, monkeypatch):
    """Wherever one stops: the epoch is whole, or cannot be brought back and stays dropped."""
    made = three(mnt)
    drop(mnt, 2)
    with monkeypatch.context() as m:
        m.setenv("EPOCHFS_FAULT", point)
        run(BIN, "gc", "--grace", "0", mnt.url, check=False)
    done = epochfs("undrop", target(), "2", check=False)
    assert done.returncode in (DONE, NOT_FOUND), done
    gc(mnt.url, "--grace", "0")
    check(mnt, made, dropped=[] if done.returncode == DONE else [2])


def test_collections_without_a_grace_run_beside_it(mnt, target):
    made = three(mnt)
    stop, problems, dropped = threading.Event(), [], set()

    def collect():
        while not stop.is_set():
            done = run(BIN, "gc", "--grace", "0", "--json", mnt.url, check=False)
            if done.returncode not in (DONE, CONFLICT):
                problems.append(done.stderr)

    collector = threading.Thread(target=collect)
    drop(mnt, 1)
    collector.start()
    try:
        for number in (1, 2):
            if not mnt.process:
                mnt.mount()
            if number == 2:
                drop(mnt, 2)
            done = epochfs("undrop", target(), str(number), check=False)
            assert done.returncode in (DONE, NOT_FOUND), done
            if done.returncode == NOT_FOUND:
                dropped.add(number)
    finally:
        stop.set()
        collector.join()
    assert not problems
    check(mnt, made, dropped=dropped)


# ---- other machines


def test_who_reads_beside_it(mnt, target, make_volume):
    """A reader has a file of the epoch open while that is dropped; it sees it come back, and so does one whose cache saw it go."""
    made = three(mnt)
    reader, later = make_volume(), make_volume()
    for v in (reader, later):
        v.remote, v.url = mnt.remote, mnt.url
        v.mount(ro=True, refresh="100ms")
    with open(reader.epoch(2) / "a", "rb") as f:
        assert f.read(1000) == made[2]["a"][:1000]
        drop(mnt, 2)
        for v in (reader, later):
            wait_until(lambda v=v: v.epochs() == [1, 3], "the reader to see the drop")
        later.unmount()
        assert f.read() == made[2]["a"][1000:]
        undrop(target(), 2)
        wait_until(lambda: reader.epochs() == [1, 2, 3], "the reader to see the epoch")
        assert holds(reader, 2, made[2])
        f.seek(0)
        assert f.read() == made[2]["a"]
    later.mount(ro=True)
    assert later.epochs() == [1, 2, 3] and holds(later, 2, made[2])
    wait_until(lambda: reader.tags() == {"undropped-2": 2}, "the reader to see the tag")


def test_a_summary_that_has_a_dropped_epoch_brings_none_back(mnt, make_volume):
    """Summaries are copies: what one still has of an epoch that a cache knows as dropped is not believed."""
    three(mnt)
    mnt.wait_durable()
    texts = [json.loads(p.read_text()) for p in sorted((mnt.remote / "epochs").iterdir())]
    drop(mnt, 2)
    mnt.unmount()
    (mnt.remote / "summaries").mkdir(exist_ok=True)
    (mnt.remote / "summaries" / ("%020d.json" % 100)).write_text(json.dumps({"format": 1, "records": texts}))
    mnt.mount()
    assert mnt.epochs() == [1, 3]


@pytest.mark.parametrize("refresh", ["200ms", "5s"])
def test_through_one_of_several_nodes(make_volume, refresh):
    """Also where the one that dropped it never sees its own tombstone: it looks too seldom."""
    nodes = make_nodes(make_volume, NAMES)
    nodes[0].options["refresh"] = refresh
    for v in nodes:
        v.mount()
    for step in (1, 2, 3):
        for v in nodes:
            save_part(v, step)
        for v in nodes:
            sees(v, step)
    os.rmdir(nodes[0].epoch(2))
    for v in nodes:
        wait_until(lambda v=v: v.epochs() == [1, 3], "the drop to be seen")
    wait_until(lambda: records(nodes[0]) == ([1, 3], [2]), "the drop to be in the remote")
    undrop(nodes[1].path, 2)
    for v in nodes:
        wait_until(lambda v=v: v.epochs() == [1, 2, 3], "the epoch to be seen")
        assert (v.epoch(2) / "step-2" / "shard_c").read_text() == "c 2"
    sound(nodes[0].url)


def test_the_table_of_epochs(make_volume, tmp_path):
    database = tmp_path / "c.db"
    mnt = make_volume(settle="1h", catalog=database).mount()
    three(mnt)

    def dropped():
        with contextlib.closing(sqlite3.connect(database, timeout=60)) as db:
            return db.execute("SELECT epoch, dropped_at IS NULL FROM checkpoints WHERE dropped").fetchall()

    drop(mnt, 2)
    wait_until(lambda: dropped() == [(2, 0)], "the drop in the table")
    undrop(mnt.path, 2)
    wait_until(lambda: dropped() == [], "the epoch in the table")


# ---- policies, outages, kills


def test_a_policy_leaves_it(make_volume):
    mnt = make_volume(settle="1h", keep="last:1").mount()
    made = {n: {"a": noise(MIB, n)} for n in (1, 2, 3, 4)}
    for n in (1, 2, 3):
        save(mnt, **made[n])
    wait_settled(mnt)
    assert mnt.epochs() == [3]
    undrop(mnt.path, 1)
    save(mnt, **made[4])
    wait_settled(mnt)
    check(mnt, {n: made[n] for n in (1, 4)})
    os.unlink(mnt.epochs_dir / "undropped-1")
    epochfs("prune", "--keep", "last:1", mnt.path)
    assert mnt.epochs() == [4]


def test_a_drop_that_the_remote_has_not_seen(weather, mnt):
    """It is taken back: the record is there still."""
    made = three(mnt)
    mnt.wait_durable()
    weather.turn("down=1")
    os.rmdir(mnt.epoch(2))
    command = python_undrop(mnt, 2)
    assert mnt.epochs() == [1, 3]
    weather.clear()
    out, err = command.communicate(timeout=60)
    assert command.returncode == DONE, out + err
    check(mnt, made)


def python_undrop(mnt, number):
    import subprocess
    return subprocess.Popen([BIN, "undrop", os.fspath(mnt.path), str(number)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_can_be_interrupted_while_the_remote_is_away(make_volume, tmp_path):
    mnt = make_volume(settle="1h")
    faults = tmp_path / "faults"
    faults.touch()
    mnt.url = "fault+file://%s?control=%s" % (mnt.remote, faults)
    mnt.mount()
    made = three(mnt)
    drop(mnt, 2)
    faults.write_text("down=1")
    command = python_undrop(mnt, 2)
    wait_until(lambda: mnt.status()["upload"].get("error"), "the outage to be seen")
    command.send_signal(signal.SIGINT)
    command.wait(timeout=60)
    assert command.returncode != DONE
    assert mnt.epochs() == [1, 3] and (mnt.path / "small").read_bytes() == b"3"
    faults.write_text("")
    undrop(mnt.path, 2)
    mnt.url = "file://%s" % mnt.remote
    check(mnt, made)


@pytest.mark.parametrize("condemned", [False, True], ids=["", "condemned"])
@pytest.mark.parametrize("point", ["undrop.kept:1", "undrop.record:1", "undrop.rows:1"])
def test_killed_it_is_dropped_or_there(mnt, target, point, condemned, monkeypatch):
    made = three(mnt)
    drop(mnt, 2)
    if condemned:
        gc(mnt.url)
    mounted = target() == mnt.path
    if mounted:
        mnt.unmount()
    with monkeypatch.context() as m:
        m.setenv("EPOCHFS_FAULT", point)
        if mounted:
            mnt.mount()
            m.delenv("EPOCHFS_FAULT")
            epochfs("undrop", mnt.path, "2", check=False)
            assert mnt.process.wait(timeout=60) == -signal.SIGKILL
            mnt.process = None
            run("umount", "-l", mnt.path, check=False)
        else:
            assert epochfs("undrop", mnt.url, "2", check=False).returncode == -signal.SIGKILL
    there = point != "undrop.kept:1"
    mnt.mount()
    assert mnt.epochs() == ([1, 2, 3] if there else [1, 3])
    # Killed before the tag: it is there, and has none.
    if there and not mnt.tags():
        assert "it is not dropped" in undrop(mnt.path, 2, code=CONFLICT)
        epochfs("tag", mnt.path, "2", "undropped-2")
    assert undrop(mnt.path, 2) == {"epoch": 2, "tag": "undropped-2"}
    gc(mnt.url, "--grace", "0")
    check(mnt, made)
    assert mnt.tags() == {"undropped-2": 2}
