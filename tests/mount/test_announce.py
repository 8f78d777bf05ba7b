# SPDX-License-Identifier: Apache-2.0
"""Epochs are announced: to a program (on-epoch) and to a table in SQLite (catalog), in order, whatever fails between."""

import contextlib
import json
import os
import pathlib
import signal
import sqlite3

import pytest

from conftest import BIN, Control, MountError, run, wait_until
from postgres import PostgresServer, ServerMissing

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "examples" / "on-epoch-psql"
RESUME = ("SELECT remote, epoch, path_prefix FROM checkpoints WHERE run_id = 'run7' AND complete AND durable"
          " AND NOT dropped ORDER BY epoch DESC LIMIT 1")


@pytest.fixture
def passthrough():
    """Who reads and writes the files' bytes plays no part here."""
    return "auto"


class Hook:
    """A program for on-epoch that keeps what it is told, and fails, hangs or is slow while a file says so."""

    TEXT = """#!/bin/sh
here=%s
[ ! -e $here/hang ] || { echo x >>$here/hung; exec sleep 600; }
[ ! -e $here/fail ] || { echo x >>$here/failed; echo "the secret of life" >&2; exit 3; }
[ ! -e $here/slow ] || sleep 0.5
yes noise | head -c 300000
cat >>$here/told && echo "$#:$*" >>$here/arguments
"""

    def __init__(self, folder):
        self.folder = folder
        self.program = folder / "hook"
        self.program.write_text(self.TEXT % folder)
        self.program.chmod(0o755)

    def set(self, name, on=True):
        if on:
            (self.folder / name).touch()
        else:
            (self.folder / name).unlink()

    def count(self, name):
        try:
            return len((self.folder / name).read_text().splitlines())
        except FileNotFoundError:
            return 0

    def told(self):
        try:
            return [json.loads(line) for line in (self.folder / "told").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def events(self):
        return [(t["event"], t["epoch"]) for t in self.told()]

    def wait(self, *events):
        wait_until(lambda: len(self.told()) >= len(events), "%s, not %s" % (events, self.events()))
        assert self.events() == list(events)


@pytest.fixture
def hook(tmp_path):
    return Hook(tmp_path)


def rows(database, query="SELECT * FROM checkpoints ORDER BY epoch"):
    with contextlib.closing(sqlite3.connect(database, timeout=60)) as db:
        db.row_factory = sqlite3.Row
        try:
            return [dict(r) for r in db.execute(query)]
        except sqlite3.OperationalError as error:
            assert "no such table" in str(error)
            return []


def wait_rows(database, count, **values):
    """Until so many rows have these values."""
    def there():
        if not os.path.exists(database):
            return None
        found = [r for r in rows(database) if all(r[k] == v for k, v in values.items())]
        return found if len(found) == count else None
    return wait_until(there, "%d rows with %s in %s" % (count, values, database))


def save(mnt, name, text, **commit):
    (mnt.path / name).write_text(text)
    return mnt.request("commit", **commit)["epoch"]


def save_until_killed(mnt):
    """Saves an epoch; the daemon dies of it, before it answers or after."""
    try:
        save(mnt, "model", "one")
    except (OSError, ValueError):
        pass
    wait_until(lambda: mnt.process.poll() is not None, "the kill")
    assert mnt.process.returncode == -signal.SIGKILL


def test_a_program_is_told_of_each_epoch_that_is_sealed_and_durable(volume, hook):
    mnt = volume.mount(settle="1h", on_epoch="%s a\\,b 'c d'" % hook.program, run_id="run7")
    assert save(mnt, "model", "one", step=5) == 1
    mnt.wait_durable()
    hook.wait(("sealed", 1), ("durable", 1))
    assert (hook.folder / "arguments").read_text().splitlines()[0] == "2:a,b c d"
    sealed, durable = hook.told()
    shown = json.loads(run(BIN, "show", "--json", mnt.path, "1").stdout)["epoch"]
    assert {**durable, **shown, "tags": None} == {**durable, "tags": None}
    assert durable["mountpoint"] == str(mnt.path) and durable["remote"] == mnt.status()["remote"]
    assert durable["step"] == 5 and durable["run_id"] == "run7" and len(durable["tree_hash"]) == 64
    assert "durable" not in sealed and "tree_hash" not in sealed and sealed["complete"] is True
    # The program has told all before it ends.
    wait_until(lambda: not mnt.status()["announce"]["on-epoch"]["waiting"], "the end of the program")


def test_what_fails_is_told_again_in_order_and_nobody_waits_for_it(volume, hook):
    hook.set("fail")
    mnt = volume.mount(settle="1h", on_epoch=hook.program)
    for turn in range(3):
        save(mnt, "model", "turn %d" % turn)
    mnt.wait_durable()
    wait_until(lambda: hook.count("failed") >= 2, "two failures")
    status = wait_until(lambda: mnt.status()["announce"]["on-epoch"].get("error") and mnt.status(), "the failure")
    assert status["announce"]["on-epoch"]["waiting"] == 6 and not status["upload"]["pending_epochs"]
    assert "hook ended with exit code 3: the secret of life" in status["announce"]["on-epoch"]["error"]
    hook.set("fail", False)
    wait_until(lambda: len(hook.told()) == 6, "all six")
    events = hook.events()
    for event in ("sealed", "durable"):
        assert [n for e, n in events if e == event] == [1, 2, 3]
    assert all(events.index(("sealed", n)) < events.index(("durable", n)) for n in (1, 2, 3))
    wait_until(lambda: "error" not in mnt.status()["announce"]["on-epoch"], "the end of the failure")
    warnings = [line for line in mnt.log.read_text().splitlines() if "WARN" in line.upper() and "on-epoch" in line]
    assert len(warnings) == 1, "one line for a row of failures"


def test_a_program_that_hangs_is_ended_and_tried_again(volume, hook):
    hook.set("hang")
    mnt = volume.mount(settle="1h", on_epoch=hook.program, on_epoch_timeout="300ms")
    save(mnt, "model", "one")
    wait_until(lambda: hook.count("hung") >= 2, "a second try")
    wait_until(lambda: "was ended after 300 ms" in mnt.status()["announce"]["on-epoch"].get("error", ""), "the reason")
    hook.set("hang", False)
    hook.wait(("sealed", 1), ("durable", 1))


def test_the_mount_ends_while_its_program_hangs(volume, hook):
    hook.set("hang")
    mnt = volume.mount(settle="1h", grace="1s", on_epoch=hook.program)
    save(mnt, "model", "one")
    wait_until(lambda: hook.count("hung") == 1, "the program")
    mnt.terminate()
    hook.set("hang", False)
    mnt.mount(settle="1h", on_epoch=hook.program)
    mnt.wait_durable()
    hook.wait(("sealed", 1), ("durable", 1))


@pytest.mark.parametrize("point", ["announce.begin", "seal.rows"])
def test_the_daemon_is_killed_between_seal_and_announcement(volume, hook, monkeypatch, point):
    hook.set("fail")  # else it may be told in the moment before the kill
    monkeypatch.setenv("EPOCHFS_FAULT", point)
    mnt = volume.mount(settle="1h", on_epoch=hook.program)
    monkeypatch.delenv("EPOCHFS_FAULT")
    save_until_killed(mnt)
    assert not hook.told()
    mnt.kill()
    hook.set("fail", False)
    mnt.mount(settle="1h", on_epoch=hook.program)
    mnt.wait_durable()
    hook.wait(("sealed", 1), ("durable", 1))


def test_what_was_told_when_the_daemon_was_killed_is_told_again(volume, hook, monkeypatch):
    monkeypatch.setenv("EPOCHFS_FAULT", "announce.told:2")
    mnt = volume.mount(settle="1h", on_epoch=hook.program)
    monkeypatch.delenv("EPOCHFS_FAULT")
    save_until_killed(mnt)
    assert hook.events() == [("sealed", 1), ("durable", 1)]
    mnt.kill()
    mnt.mount(settle="1h", on_epoch=hook.program)
    hook.wait(("sealed", 1), ("durable", 1), ("durable", 1))


def test_the_last_epoch_is_announced_before_umount_ends(volume, hook, tmp_path):
    hook.set("slow")
    mnt = volume.mount(settle="1h", on_epoch=hook.program, catalog=tmp_path / "db")
    (mnt.path / "model").write_text("one")
    run(BIN, "umount", mnt.path)
    mnt.wait_end()
    assert hook.events() == [("sealed", 1), ("durable", 1)]
    assert [(r["epoch"], r["durable"]) for r in rows(tmp_path / "db")] == [(1, 1)]


def test_the_catalog_says_with_one_query_where_a_run_resumes(volume, tmp_path):
    database = tmp_path / "run's catalog"
    mnt = volume.mount(settle="1h", catalog=database, run_id="run7", node="n1", db_type="lmdb")
    for step in (5, 6):
        save(mnt, "model", "step %d" % step, step=step)
    mnt.wait_durable()
    (mnt.path / "closed").write_text("x")
    run("sh", "-c", 'exec 3> "$1"; echo torn >&3; kill -KILL $$', "sh", mnt.path / "torn", check=False)
    mnt.seal()
    mnt.wait_durable()
    first, second, third = wait_rows(database, 3, durable=1)
    remote = mnt.status()["remote"]
    assert rows(database, RESUME) == [{"remote": remote, "epoch": 2, "path_prefix": str(mnt.epoch(2))}]
    assert (first["step"], second["step"], first["complete"], third["complete"]) == (5, 6, 1, 0) and third["reason"]
    uuid = mnt.status()["uuid"]
    for row in (first, second, third):
        assert row["volume"] == uuid and row["path_type"] == "epochfs" and row["db_type"] == "lmdb" and row["db_prefix"] == str(mnt.path) and json.loads(row["node_names"]) == ["n1"]
        assert row["opened_at"] <= row["sealed_at"] <= row["durable_at"] and len(row["tree_hash"]) == 64
        assert not row["dropped"] and row["files"] and row["bytes_stored"] is not None
    os.rmdir(mnt.epoch(1))
    gone, = wait_rows(database, 1, dropped=1)
    assert gone["epoch"] == 1 and gone["dropped_at"] > gone["sealed_at"]


def test_what_a_metadata_writer_says_is_kept_with_the_epoch(volume, tmp_path):
    """As caffe2's handler is given it. What it does not say is as without it; what it says of an epoch that is uploaded already is in a new one."""
    mnt = volume.mount(settle="1h", catalog=tmp_path / "db", node="n1", db_type="leveldb")
    said = {"db_type": "minidb", "db_prefix": "/run7", "path_type": "blobstore", "path_prefix": "store://7/", "node_names": ["trainer:0", "trainer:1"]}

    def commit(*words):
        return int(json.loads(run(BIN, "commit", "--json", *words, mnt.path).stdout)["epoch"])

    def columns(number):
        row, = wait_rows(tmp_path / "db", 1, durable=1, epoch=number)
        return {**{name: row[name] for name in said}, "node_names": json.loads(row["node_names"])}

    (mnt.path / "trainer:0.1").write_text("1")
    assert commit("--step", "1", "--db-type", "minidb", "--db-prefix", "/run7", "--path-type", "blobstore", "--path-prefix", "store://7/",
                  "--node-names", "trainer:0,trainer:1") == 1
    mnt.wait_durable()
    assert columns(1) == said
    (entry,) = mnt.request("log")["epochs"]
    assert {name: entry[name] for name in said} == said and entry["step"] == 1

    # The same again is the same epoch; another word of one that is uploaded is a new one.
    assert commit("--db-type", "minidb", "--node-names", "trainer:0,trainer:1") == 1
    assert commit("--db-type", "lmdb") == 2
    mnt.wait_durable()
    assert columns(2) == {"db_type": "lmdb", "db_prefix": str(mnt.path), "path_type": "epochfs", "path_prefix": str(mnt.epoch(2)), "node_names": ["n1"]}

    # It comes back from the remote.
    mnt.remount(empty_cache=True)
    assert {name: mnt.request("log")["epochs"][0][name] for name in said} == said
    for wrong in ("", "x" * 20000):
        done = run(BIN, "commit", "--db-type", wrong, mnt.path, check=False)
        assert done.returncode == 2 and "metadata" in done.stderr, done
    with Control(mnt.path) as control:
        for wrong in ("text", {"db": "x"}, {"node_names": "a"}, {"node_names": [1]}, {"node_names": ["a"] * 2000}):
            assert "metadata" in control.request("commit", metadata=wrong)["error"]
    assert mnt.epochs() == [1, 2]


@pytest.mark.rules("1")
def test_an_epoch_that_another_continues_is_no_longer_complete_in_the_catalog(volume, tmp_path):
    mnt = volume.mount(settle="50ms", catalog=tmp_path / "db")
    os.mkdir(mnt.path / "checkpoint")
    (mnt.path / "checkpoint" / "a").write_text("a")
    wait_until(lambda: mnt.epochs() == [1], "the first epoch")
    (mnt.path / "checkpoint" / "b").write_text("b")
    wait_until(lambda: mnt.epochs() == [1, 2], "the second epoch")
    wait_rows(tmp_path / "db", 2, durable=1)
    assert [(r["epoch"], r["complete"], r["continues"]) for r in rows(tmp_path / "db")] == [(1, 0, None), (2, 1, 1)]


@pytest.mark.rules("1")
def test_what_has_the_half_that_is_continued_is_no_longer_complete_in_the_catalog(volume, tmp_path):
    mnt = volume.mount(settle="50ms", catalog=tmp_path / "db")
    os.mkdir(mnt.path / "checkpoint-7")
    for number, name in enumerate(("checkpoint-7/a", "note", "checkpoint-7/b", "note"), 1):
        (mnt.path / name).write_text(str(number) * (99 if name != "note" else 1))
        wait_until(lambda n=number: n in mnt.epochs(), "epoch %d" % number)
    wait_rows(tmp_path / "db", 4, durable=1)
    assert [(r["epoch"], r["complete"], r["continues"]) for r in rows(tmp_path / "db")] == \
        [(1, 0, None), (2, 0, None), (3, 1, 1), (4, 1, None)]


def test_several_runs_share_a_database_that_another_has_locked(make_volume, tmp_path):
    database = tmp_path / "db"
    mounts = [make_volume().mount(settle="1h", catalog=database, run_id="run%d" % i) for i in range(2)]
    for mnt in mounts:
        save(mnt, "model", "one")
    wait_rows(database, 2, durable=1)
    with sqlite3.connect(database, isolation_level=None, timeout=60) as other:
        other.execute("BEGIN EXCLUSIVE")
        for mnt in mounts:
            assert save(mnt, "model", "two") == 2
            mnt.wait_durable()
        for mnt in mounts:
            wait_until(lambda m=mnt: "locked" in m.status()["announce"]["catalog"].get("error", ""), "the locked database")
        other.execute("ROLLBACK")
    other.close()
    found = wait_rows(database, 4, durable=1)
    assert {(r["run_id"], r["epoch"]) for r in found} == {("run0", 1), ("run0", 2), ("run1", 1), ("run1", 2)}
    assert len({r["volume"] for r in found}) == 2


def test_a_database_that_comes_later_gets_all_epochs(volume, tmp_path):
    mnt = volume.mount(settle="1h")
    for turn in range(3):
        save(mnt, "model", "turn %d" % turn)
    mnt.wait_durable()
    os.rmdir(mnt.epoch(2))
    mnt.remount(catalog=tmp_path / "db")
    save(mnt, "model", "more")
    mnt.wait_durable()
    assert [r["epoch"] for r in wait_rows(tmp_path / "db", 3, durable=1)] == [1, 3, 4]
    assert "announce" in mnt.status()
    mnt.remount()
    assert "announce" not in mnt.status()
    save(mnt, "model", "unseen")
    mnt.wait_durable()
    mnt.remount(catalog=tmp_path / "db")
    assert [r["epoch"] for r in wait_rows(tmp_path / "db", 4, durable=1)] == [1, 3, 4, 5]


def test_a_reader_announces_nothing(volume, make_volume, hook, tmp_path):
    mnt = volume.mount(settle="1h")
    save(mnt, "model", "one")
    mnt.wait_durable()
    cache = tmp_path / "reader"
    cache.mkdir()
    mnt.unmount()
    mnt.mount(ro=True, cache_dir=cache, on_epoch=hook.program, catalog=tmp_path / "db")
    assert mnt.epochs() == [1] and "announce" not in mnt.status()
    mnt.unmount()
    assert not hook.told() and not os.path.exists(tmp_path / "db")


@pytest.mark.parametrize("option, value, words", [
    ("on_epoch", "/nowhere/hook", "no such program"), ("on_epoch", "./hook", "path from /"), ("on_epoch", "sh 'open", "quotes"),
    ("on_epoch", "/etc/passwd", "may not be run"), ("on_epoch_timeout", "1ms", "from 100ms"), ("catalog", "db", "absolute path"),
    ("catalog", "{}/db", "lies in it, and the mount would wait for itself")])
def test_what_cannot_work_is_said_at_once(volume, option, value, words):
    with pytest.raises(MountError) as failure:
        volume.mount(**{option: value.format(volume.path)})
    assert failure.value.code == 2 and words in failure.value.output


# ---- PostgreSQL


@pytest.fixture
def postgres(tmp_path):
    try:
        with PostgresServer(tmp_path / "postgres") as server:
            yield server
    except ServerMissing as missing:
        pytest.skip(str(missing))


def test_the_example_writes_to_postgresql(volume, postgres, monkeypatch):
    for name, value in postgres.env().items():
        monkeypatch.setenv(name, value)
    run(EXAMPLE, "--create", "-d", "postgres")
    hostile = "'); DROP TABLE checkpoints; -- $$ \\ :told \"x\""
    mnt = volume.mount(settle="1h", on_epoch="%s -d postgres" % EXAMPLE, run_id="run7")
    save(mnt, "model", "one", step=5, message=hostile)
    (mnt.path / "closed").write_text("x")
    run("sh", "-c", 'exec 3> "$1"; echo torn >&3; kill -KILL $$', "sh", mnt.path / "torn", check=False)
    mnt.seal()
    mnt.wait_durable()
    wait_until(lambda: mnt.status()["announce"]["on-epoch"] == {"waiting": 0}, "all to be told")
    query = "SELECT epoch, step, complete, durable, path_prefix, node_names->>0 = host FROM checkpoints ORDER BY epoch"
    assert run("psql", "-Atc", query, "-d", "postgres").stdout.splitlines() == [
        "1|5|t|t|%s|t" % mnt.epoch(1), "2||f|t|%s|t" % mnt.epoch(2)]
