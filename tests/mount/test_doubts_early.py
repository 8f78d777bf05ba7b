# SPDX-License-Identifier: Apache-2.0
"""Epochs that were sealed in the middle of a save: the rest of it is killed, or somebody rolls back to the half."""

import json
import os
import shutil

import pytest

from conftest import BIN, run, wait_until
from test_contract_writing import Writer
from test_doubts import doubts, kill, latest, latest_or_none, put, record

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")


def save(path, text):
    """Under a temporary name, which is renamed."""
    temporary = path.with_name(path.name + ".tmp")
    put(temporary, text)
    os.rename(temporary, path)


# ---- sealed too early: the save that is killed then began before that


@pytest.mark.options(settle="200ms", patience="1h")
def test_a_save_that_pauses_longer_than_settle_and_is_killed(mnt):
    put(mnt.path / "checkpoint-100" / "a", "1"), put(mnt.path / "checkpoint-100" / "b", "1")
    wait_until(lambda: latest_or_none(mnt) == 1, "the first save")
    put(mnt.path / "checkpoint-200" / "a", "2")
    wait_until(lambda: latest_or_none(mnt) == 2, "the beginning of the second")
    put(mnt.path / "checkpoint-200" / "b", "2")
    wait_until(lambda: latest_or_none(mnt) == 3, "more of it")
    kill(mnt.path / "checkpoint-200" / "c")
    wait_until(lambda: latest_or_none(mnt) == 1, "going back to the first")
    assert record(mnt, 4)["continues"] == 3 and doubts(mnt, 4) == {"checkpoint-200/c": ("undone", True)}
    put(mnt.path / "checkpoint-200" / "c", "2")
    wait_until(lambda: latest_or_none(mnt) == 5, "the whole second save")


@pytest.mark.parametrize("empty_cache", [False, True])
@pytest.mark.options(settle="200ms", keep="last:1", grace="0")
def test_a_save_that_another_mount_goes_on_with_and_is_killed(mnt, empty_cache):
    put(mnt.path / "checkpoint-100" / "a", "1"), put(mnt.path / "checkpoint-100" / "b", "1")
    assert mnt.seal() == 1
    put(mnt.path / "checkpoint-200" / "sub" / "a", "2")
    wait_until(lambda: latest_or_none(mnt) == 2, "the beginning of the second")
    mnt.remount(empty_cache=empty_cache)
    assert latest(mnt) == 2
    kill(mnt.path / "checkpoint-200" / "sub" / "b")
    wait_until(lambda: latest_or_none(mnt) == 1, "going back to the first")
    mnt.remount(empty_cache=empty_cache)
    put(mnt.path / "checkpoint-200" / "c", "2")
    mnt.seal()
    assert latest(mnt) == 1
    put(mnt.path / "checkpoint-200" / "sub" / "b", "2")
    mnt.seal()
    assert latest(mnt) == 5


@pytest.mark.parametrize("empty_cache", [False, True])
@pytest.mark.options(settle="200ms")
def test_what_another_mount_saves_beside_it_is_the_next_save(mnt, empty_cache):
    put(mnt.path / "checkpoint-100" / "a", "1")
    assert mnt.seal() == 1
    put(mnt.path / "checkpoint-200" / "a", "2")
    wait_until(lambda: latest_or_none(mnt) == 2, "the second")
    mnt.remount(empty_cache=empty_cache)
    put(mnt.path / "checkpoint-100" / "b", "2"), put(mnt.path / "checkpoint-300" / "a", "2")
    assert mnt.seal() == 3
    assert "continues" not in record(mnt, 3) and record(mnt, 2)["complete"] is True


@pytest.mark.options(settle="200ms", patience="1h")
def test_a_rank_that_is_killed_after_the_marker(mnt):
    """DeepSpeed: rank 1 begins after rank 0 has written `latest`."""
    for step in (10, 20):
        put(mnt.path / ("global_step%d" % step) / "rank_0", "0"), put(mnt.path / ("global_step%d" % step) / "model", "m")
        if step == 10:
            put(mnt.path / "global_step10" / "rank_1", "1")
        put(mnt.path / "latest", "global_step%d" % step)
        wait_until(lambda n=step // 10: latest_or_none(mnt) == n, "step %d" % step)
    kill(mnt.path / "global_step20" / "rank_1")
    wait_until(lambda: latest_or_none(mnt) == 1, "going back to step 10")
    assert record(mnt, 3)["continues"] == 2 and doubts(mnt, 3) == {"global_step20/rank_1": ("undone", True)}


@pytest.mark.parametrize("remounted", [None, "same cache", "empty cache"])
@pytest.mark.options(settle="200ms", keep="last:1", grace="0", patience="1s")
def test_what_is_sealed_beside_half_a_save_has_the_same_half(mnt, remounted):
    """A note by quiet, then another, says nothing of the save that pauses; that is killed."""
    put(mnt.path / "checkpoint-1" / "a", "1"), put(mnt.path / "checkpoint-1" / "b", "1")
    assert mnt.seal() == 1
    put(mnt.path / "checkpoint-2" / "a", "2" * 99)
    wait_until(lambda: latest_or_none(mnt) == 2, "half of the second")
    for number in (3, 4):
        put(mnt.path / "note", str(number))
        wait_until(lambda n=number: latest_or_none(mnt) == n, "the note beside it")
    if remounted:
        mnt.remount(empty_cache=remounted == "empty cache")
    kill(mnt.path / "checkpoint-2" / "b")
    wait_until(lambda: latest_or_none(mnt) == 1, "going back to the first")
    assert doubts(mnt, 5) == {"checkpoint-2/b": ("undone", True)} and record(mnt, 5)["continues"] == 2
    put(mnt.path / "note", "6")
    wait_until(lambda: 6 in mnt.epochs(), "another note")
    assert latest(mnt) == 1
    mnt.remount(empty_cache=True)
    assert latest(mnt) == 1
    put(mnt.path / "checkpoint-2" / "b", "2")
    wait_until(lambda: latest_or_none(mnt) == 7, "the whole second save")


@pytest.mark.options(settle="200ms", patience="1h")
def test_the_rest_of_a_save_continues_also_what_was_sealed_beside_it(mnt):
    put(mnt.path / "checkpoint-1" / "a", "1")
    assert mnt.seal() == 1
    put(mnt.path / "checkpoint-2" / "a", "2" * 99)
    wait_until(lambda: latest_or_none(mnt) == 2, "half of the second")
    put(mnt.path / "note", "3")
    wait_until(lambda: latest_or_none(mnt) == 3, "the note beside it")
    put(mnt.path / "checkpoint-2" / "b", "2")
    wait_until(lambda: latest_or_none(mnt) == 4, "the rest")
    whole = {n: record(mnt, n)["complete"] for n in (1, 2, 3, 4)}
    assert whole == {1: True, 2: False, 3: False, 4: True} and record(mnt, 4)["continues"] == 2
    assert mnt.rollback(3) == 5 and doubts(mnt, 5) == {"checkpoint-2/b": ("undone", True)}
    assert mnt.rollback(4) == 6 and latest(mnt) == 6
    put(mnt.path / "checkpoint-5" / "a", "5")
    assert mnt.seal() == 7
    mnt.wait_durable()
    run(BIN, "rm", mnt.path, "4")
    mnt.wait_durable(), mnt.unmount()
    # Also where only the tombstone says it.
    catalog = {e["epoch"]: e for e in json.loads(run(BIN, "log", "--json", mnt.url).stdout)}
    assert [catalog[n]["complete"] for n in (1, 2, 3, 7)] == [True, False, False, True]
    mnt.empty_cache()
    mnt.mount(settle="1h")
    assert [record(mnt, n)["complete"] for n in (1, 2, 3, 7)] == [True, False, False, True]


def rename_note(mnt):
    save(mnt.path / "note", "renamed")


def umount_with_note(mnt):
    put(mnt.path / "note", "at the end")
    mnt.remount()


def kill_note(mnt):
    kill(mnt.path / "note.tmp")
    put(mnt.path / "note", "after that")


def save_again(mnt):
    put(mnt.path / "checkpoint-2" / "a", "again" * 99)


def kill_and_save_again(mnt):
    """All that was saved with the killed file is saved again: that settles it. The step is half all the same."""
    kill(mnt.path / "checkpoint-2" / "c")
    wait_until(lambda: latest_or_none(mnt) == 1, "going back to the first")
    put(mnt.path / "checkpoint-2" / "a", "again" * 99)


@pytest.mark.parametrize("beside", [rename_note, umount_with_note, kill_note, save_again, kill_and_save_again])
@pytest.mark.parametrize("empty_cache", [None, False, True])
@pytest.mark.options(settle="200ms", keep="last:1", grace="0", patience="1s")
def test_whatever_seals_beside_half_a_save_says_nothing_of_it(mnt, beside, empty_cache):
    put(mnt.path / "checkpoint-1" / "a", "1"), put(mnt.path / "checkpoint-1" / "b", "1")
    assert mnt.seal() == 1
    put(mnt.path / "checkpoint-2" / "a", "2" * 99)
    wait_until(lambda: latest_or_none(mnt) == 2, "half of the second")
    beside(mnt)
    number = 4 if beside is kill_and_save_again else 3
    wait_until(lambda: latest_or_none(mnt) == number, "what is beside it")
    put(mnt.path / "another note", "4")
    wait_until(lambda: latest_or_none(mnt) == number + 1, "a note")
    if empty_cache is not None:
        mnt.remount(empty_cache=empty_cache)
    kill(mnt.path / "checkpoint-2" / "b")
    wait_until(lambda: latest_or_none(mnt) == 1, "going back to the first")
    put(mnt.path / "checkpoint-2" / "b", "2")
    wait_until(lambda: latest_or_none(mnt) == number + 3, "the whole second save")


@pytest.mark.parametrize("empty_cache", [False, True])
@pytest.mark.options(settle="200ms", keep="last:1", grace="0", patience="1s")
def test_a_save_that_somebody_called_over_is_no_half(mnt, empty_cache):
    """Though the epochs in between were dropped."""
    put(mnt.path / "checkpoint-1" / "a", "1")
    wait_until(lambda: latest_or_none(mnt) == 1, "the first")
    run(BIN, "tag", mnt.path, "1", "best")
    put(mnt.path / "checkpoint-2" / "a", "2" * 99), put(mnt.path / "checkpoint-2" / "b", "2")
    assert mnt.seal() == 2
    for number in (3, 4):
        put(mnt.path / "note", str(number))
        wait_until(lambda n=number: latest_or_none(mnt) == n, "a note")
    mnt.wait_durable()
    # Retention keeps it: notes take no place from it.
    assert 2 in mnt.epochs()
    run(BIN, "rm", mnt.path, "2")
    mnt.remount(empty_cache=empty_cache)
    kill(mnt.path / "checkpoint-2" / "evaluation")
    put(mnt.path / "note", "5")
    wait_until(lambda: latest_or_none(mnt) == 5, "another note")
    assert record(mnt, 1)["complete"] and record(mnt, 4)["complete"]


@pytest.mark.options(settle="200ms", keep="last:1", grace="0")
def test_a_save_as_large_says_that_the_one_before_is_over(mnt):
    put(mnt.path / "checkpoint-1" / "a", "1")
    assert mnt.seal() == 1
    put(mnt.path / "checkpoint-2" / "a", "2" * 99)
    wait_until(lambda: latest_or_none(mnt) == 2, "the second")
    put(mnt.path / "final.bin", "final" * 99)
    wait_until(lambda: latest_or_none(mnt) == 3, "another save")
    kill(mnt.path / "checkpoint-2" / "evaluation")
    put(mnt.path / "note", "4")
    wait_until(lambda: latest_or_none(mnt) == 4, "a note")
    assert doubts(mnt, 4) == {}


@pytest.mark.parametrize("where", [("checkpoint-1", "checkpoint-2"), ("", "")])
@pytest.mark.options(settle="1h", keep="last:1", grace="0")
def test_renamed_files_of_a_save_are_one_chain(mnt, where):
    """Each of them seals; the third is killed, and nothing is known of an earlier save."""
    for name in ("a", "b", "c"):
        put(mnt.path / where[0] / name, "1")
    assert mnt.seal() == 1
    for name in ("a", "b"):
        save(mnt.path / where[1] / name, "2" * 99)
    kill(mnt.path / where[1] / "c.tmp")
    put(mnt.path / "note", "x")
    number = mnt.seal()
    mnt.wait_durable()
    assert latest(mnt) == 1 and list(doubts(mnt, number).values()) == [("undone", True)]


@pytest.mark.options(settle="200ms", patience="1h")
def test_a_new_directory_beside_a_step_continues_itself_alone(mnt):
    put(mnt.path / "checkpoint-1" / "a", "1"), put(mnt.path / "checkpoint-1" / "b", "1")
    assert mnt.seal() == 1
    put(mnt.path / "checkpoint-2" / "a", "2" * 99)
    wait_until(lambda: latest_or_none(mnt) == 2, "the second")
    for number, name in ((3, "x"), (4, "y")):
        put(mnt.path / "notes" / name, "n")
        wait_until(lambda n=number: latest_or_none(mnt) == n, "a note")
    assert record(mnt, 4)["continues"] == 3 and record(mnt, 2)["complete"]
    assert int(os.readlink(mnt.epochs_dir / "step=2")) == 2
    mnt.remount()
    kill(mnt.path / "checkpoint-2" / "b")
    wait_until(lambda: latest_or_none(mnt) == 1, "going back to the first")


@pytest.mark.parametrize("when", ["mounted", "remounted", "empty cache"])
@pytest.mark.options(settle="200ms", patience="1h")
def test_half_a_save_that_somebody_drops_is_known_by_what_has_it(mnt, when):
    put(mnt.path / "checkpoint-1" / "a", "1"), put(mnt.path / "checkpoint-1" / "b", "1")
    wait_until(lambda: latest_or_none(mnt) == 1, "the first")
    put(mnt.path / "checkpoint-2" / "a", "2" * 99)
    wait_until(lambda: latest_or_none(mnt) == 2, "half of the second")
    put(mnt.path / "note", "3")
    wait_until(lambda: latest_or_none(mnt) == 3, "a note")
    mnt.wait_durable()
    run(BIN, "rm", mnt.path, "2")
    mnt.wait_durable()
    if when != "mounted":
        mnt.remount(empty_cache=when == "empty cache")
    kill(mnt.path / "checkpoint-2" / "b")
    put(mnt.path / "note", "4")
    wait_until(lambda: latest_or_none(mnt) == 1, "going back to the first")
    assert record(mnt, 1)["complete"]


@pytest.mark.options(settle="200ms", patience="1h")
def test_what_says_of_another_save_is_no_half_of_the_one_before(mnt):
    put(mnt.path / "checkpoint-1" / "a", "1"), put(mnt.path / "checkpoint-1" / "b", "1")
    wait_until(lambda: latest_or_none(mnt) == 1, "the first")
    put(mnt.path / "checkpoint-2" / "a", "2" * 99)
    wait_until(lambda: latest_or_none(mnt) == 2, "the second")
    put(mnt.path / "note", "3")
    wait_until(lambda: latest_or_none(mnt) == 3, "the note beside it")
    kill(mnt.path / "checkpoint-1" / "c")
    put(mnt.path / "note", "4")
    wait_until(lambda: latest_or_none(mnt) == 4, "another note")
    assert all(record(mnt, n)["complete"] for n in (1, 2, 3, 4))


# ---- what continued the half is dropped: it is a half all the same


@pytest.mark.parametrize("dropped_in", ["mount", "remote"])
@pytest.mark.parametrize("collected", [False, True])
def test_half_a_save_whose_rest_was_dropped_is_no_whole_one_elsewhere(halved, dropped_in, collected):
    put(halved.path / "checkpoint-300" / "a", "a 3")
    assert halved.seal() == 4 and latest(halved) == 4
    halved.wait_durable()
    if dropped_in == "remote":
        halved.unmount()
        run(BIN, "rm", halved.url, "3")
        halved.mount(settle="1h")
    else:
        run(BIN, "rm", halved.path, "3")
    halved.wait_durable()
    halved.unmount()
    if collected:
        run(BIN, "gc", "--grace", "0s", halved.url)
    catalog = {e["epoch"]: e for e in json.loads(run(BIN, "log", "--json", halved.url).stdout)}
    assert catalog[2]["continued"] is True and 3 not in catalog
    halved.empty_cache()
    halved.mount(settle="1h")
    assert record(halved, 2)["continued"] is True and latest(halved) == 4
    assert int(os.readlink(halved.epochs_dir / "step=100")) == 1 and not os.path.lexists(halved.epochs_dir / "step=200")
    number = halved.rollback(2)
    assert not record(halved, number)["complete"] and latest(halved) == 4


# ---- files that are renamed into place one by one


@pytest.mark.parametrize("where", [("checkpoint-100", "checkpoint-200"), ("out", "out"), ("", "")])
def test_a_save_of_renamed_files_that_is_killed_after_the_first(mnt, where):
    for name in ("model", "optimizer"):
        put(mnt.path / where[0] / name, name + " 1")
    assert mnt.seal() == 1
    save(mnt.path / where[1] / "model", "model 2")
    wait_until(lambda: latest_or_none(mnt) == 2, "half of the second")
    killed = mnt.path / where[1] / "optimizer.tmp"
    kill(killed)
    assert mnt.seal() == 3 and latest(mnt) == 1 and record(mnt, 3)["continues"] == 2
    assert doubts(mnt, 3) == {str(killed.relative_to(mnt.path)): ("undone", True)}
    for name in ("model", "optimizer"):
        save(mnt.path / where[1] / name, name + " 3")
    number = mnt.seal()
    assert latest(mnt) == number and doubts(mnt, number) == {}


@pytest.mark.parametrize("where", [("checkpoint-100", "checkpoint-200", "checkpoint-300"), ("out", "out", "out"), ("", "", "")])
def test_from_the_second_save_on_the_first_rename_seals_nothing(mnt, where):
    """So that `latest` names no half of it, as long as it takes to write the rest."""
    for name in ("model", "optimizer"):
        save(mnt.path / where[0] / name, name + " 1")
    wait_until(lambda: latest_or_none(mnt) == 2, "the first save")
    assert record(mnt, 2)["continues"] == 1
    save(mnt.path / where[1] / "model", "model 2")
    assert latest(mnt) == 2 and len(mnt.epochs()) == 2
    save(mnt.path / where[1] / "optimizer", "optimizer 2")
    wait_until(lambda: latest_or_none(mnt) == 3, "the second save")
    mnt.remount()
    save(mnt.path / where[2] / "model", "model 3")
    kill(mnt.path / where[2] / "optimizer.tmp")
    assert mnt.seal() == 4 and latest(mnt) == 3 and "continues" not in record(mnt, 4)
    assert doubts(mnt, 4) == {os.path.join(where[2], "optimizer.tmp"): ("undone", True)}


@pytest.mark.options(keep="last:1")
def test_the_second_of_two_saves_into_one_new_directory_is_killed(mnt):
    """torch.distributed.checkpoint, in place: the first save made the directory, but the second adds nothing to it."""
    def shards(text):
        for name in ("__0_0.distcp", "__0_1.distcp"):
            put(mnt.path / "out" / name, text)

    shards("1"), save(mnt.path / "out" / ".metadata", "1")
    wait_until(lambda: latest_or_none(mnt) == 1, "the first save")
    shards("2"), kill(mnt.path / "out" / ".metadata.tmp")
    assert mnt.seal() == 2 and latest(mnt) == 1 and doubts(mnt, 2) == {"out/.metadata.tmp": ("undone", True)}
    shards("3"), save(mnt.path / "out" / ".metadata", "3")
    number = mnt.seal()
    assert latest(mnt) == number and doubts(mnt, number) == {}


# ---- the daemon ends, too


@pytest.mark.options(settle="200ms", patience="1h")
def test_a_crash_while_the_rest_of_a_save_is_open(mnt):
    put(mnt.path / "checkpoint-100" / "a", "1"), put(mnt.path / "checkpoint-100" / "b", "1")
    wait_until(lambda: latest_or_none(mnt) == 1, "the first save")
    put(mnt.path / "checkpoint-200" / "a", "2")
    wait_until(lambda: latest_or_none(mnt) == 2, "the beginning of the second")
    writer = Writer(mnt.path / "checkpoint-200" / "b")
    mnt.kill()
    writer.end("kill")
    mnt.mount()
    assert mnt.seal() == 3 and latest(mnt) == 1
    assert record(mnt, 3)["continues"] == 2 and doubts(mnt, 3) == {"checkpoint-200/b": ("undone", True)}
    put(mnt.path / "checkpoint-200" / "b", "2")
    number = mnt.seal()
    assert latest(mnt) == number and doubts(mnt, number) == {}


@pytest.mark.parametrize("where", ["checkpoint-200", ""])
def test_a_crash_between_two_renamed_files(mnt, where):
    for name in ("model", "optimizer"):
        put(mnt.path / (where and "checkpoint-100") / name, name + " 1")
    assert mnt.seal() == 1
    save(mnt.path / where / "model", "model 2")
    wait_until(lambda: latest_or_none(mnt) == 2, "half of the second")
    writer = Writer(mnt.path / where / "optimizer.tmp")
    mnt.kill()
    writer.end("kill")
    mnt.mount()
    assert mnt.seal() == 3 and latest(mnt) == 1
    assert doubts(mnt, 3) == {os.path.join(where, "optimizer.tmp"): ("undone", True)}


# ---- rolled back to an epoch that was sealed in the middle of a save


@pytest.fixture
def halved(volume):
    """Epoch 1 is whole, epoch 2 the beginning of the next save, and epoch 3 has the rest of it."""
    volume.mount(settle="200ms", patience="1h")
    put(volume.path / "checkpoint-100" / "a", "a 1"), put(volume.path / "checkpoint-100" / "b", "b 1")
    wait_until(lambda: latest_or_none(volume) == 1, "the first save")
    put(volume.path / "checkpoint-200" / "a", "a 2")
    wait_until(lambda: latest_or_none(volume) == 2, "the beginning of the second")
    put(volume.path / "checkpoint-200" / "b", "b 2"), put(volume.path / "checkpoint-200" / "more" / "c", "c 2")
    wait_until(lambda: latest_or_none(volume) == 3, "the rest of it")
    assert record(volume, 3)["continues"] == 2
    volume.remount(settle="1h")
    return volume


REST = {"checkpoint-200/b": ("undone", True), "checkpoint-200/more/c": ("undone", True)}


@pytest.mark.parametrize("how", ["", "remount", "crash", "killed between", "empty cache"])
def test_half_a_save_stays_in_doubt_after_a_rollback(halved, monkeypatch, how):
    if how == "killed between":
        halved.unmount()
        monkeypatch.setenv("EPOCHFS_FAULT", "rollback.applied")
        halved.mount(settle="1h")
        run("ln", "-sfn", "2", halved.epochs_dir / "current", check=False)
        halved.process.wait()
        halved.kill()
        monkeypatch.delenv("EPOCHFS_FAULT")
        halved.mount(settle="1h")
        number = halved.seal()
    else:
        number = halved.rollback(2)
    assert doubts(halved, number) == REST and latest(halved) == 3
    if how == "crash":
        halved.kill()
        halved.mount(settle="1h")
    elif how in ("remount", "empty cache"):
        halved.remount(empty_cache=how == "empty cache", settle="1h")
    put(halved.path / "notes", "x")
    number = halved.seal()
    assert doubts(halved, number) == REST and latest(halved) == 3 and not record(halved, number)["complete"]
    status = run(BIN, "status", halved.path).stdout
    assert "checkpoint-200/b: epoch 2, which was restored, was sealed before it was saved, in doubt since epoch 2; settled by" in status
    put(halved.path / "checkpoint-200" / "b", "b again")
    number = halved.seal()
    assert sorted(doubts(halved, number)) == ["checkpoint-200/more/c"] and latest(halved) == 3
    put(halved.path / "checkpoint-200" / "more" / "c", "c again")
    number = halved.seal()
    assert doubts(halved, number) == {} and latest(halved) == number


HALF_SETTLED = {
    "its beginning saved again": lambda m: put(m.path / "checkpoint-200" / "a", "a again"),
    "removed": lambda m: shutil.rmtree(m.path / "checkpoint-200"),
    "rolled forward": lambda m: m.rollback(3),
    "by word": lambda m: run(BIN, "commit", "--whole", m.path),
}


@pytest.mark.parametrize("how", HALF_SETTLED)
def test_what_settles_half_a_save(halved, how):
    assert halved.rollback(2) == 4
    HALF_SETTLED[how](halved)
    put(halved.path / "notes", "x")
    number = halved.seal()
    assert doubts(halved, number) == {} and latest(halved) == number


def test_half_a_save_of_an_older_step_costs_nothing(halved):
    halved.rollback(2)
    put(halved.path / "checkpoint-300" / "a", "a 3")
    number = halved.seal()
    assert doubts(halved, number) == {path: ("undone", False) for path in REST} and latest(halved) == number


def test_half_a_save_whose_rest_was_dropped(halved):
    """What the rest was nobody knows: what was saved last of the half is in doubt."""
    put(halved.path / "checkpoint-300" / "a", "a 3")
    assert halved.seal() == 4 and latest(halved) == 4
    run(BIN, "rm", halved.path, "3")
    assert halved.rollback(2) == 5
    put(halved.path / "notes", "x")
    assert halved.seal() == 6 and doubts(halved, 6) == {"checkpoint-200/a": ("undone", True)} and latest(halved) == 4
    put(halved.path / "checkpoint-200" / "a", "a again")
    assert halved.seal() == 7 and doubts(halved, 7) == {} and latest(halved) == 7


@pytest.mark.options(keep="last:1")
def test_half_a_save_takes_no_whole_one_away(mnt):
    """The save goes on when its beginning is asked for: the rest is sealed first, and continues it."""
    put(mnt.path / "out" / "a", "a 1")
    assert mnt.seal() == 1
    mnt.remount(settle="200ms", patience="1h")
    put(mnt.path / "checkpoint-200" / "a", "a 2")
    wait_until(lambda: latest(mnt) == 2, "the beginning")
    run(BIN, "tag", mnt.path, "2", "half")
    put(mnt.path / "checkpoint-200" / "b", "b 2")
    mnt.seal()
    mnt.remount(settle="1h")
    assert record(mnt, 3)["continues"] == 2
    assert mnt.rollback(2) == 4
    put(mnt.path / "notes", "x")
    assert mnt.seal() == 5 and latest(mnt) == 3
    mnt.wait_durable()
    assert 3 in [int(n) for n in mnt.epochs()]
    assert mnt.rollback(3) == 6 and (mnt.path / "checkpoint-200" / "b").read_text() == "b 2"


def test_half_a_save_stays_until_something_changes_where_the_mount_goes_back(halved):
    halved.rollback(2)
    halved.remount(resume=True, settle="1h")
    assert not (halved.path / "checkpoint-200" / "b").exists()
    put(halved.path / "notes", "x")
    halved.remount(resume=True, settle="1h")
    assert (halved.path / "checkpoint-200" / "b").read_text() == "b 2" and not (halved.path / "notes").exists()
    assert halved.status()["resumed"]["left"] == 5
