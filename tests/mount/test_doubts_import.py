# SPDX-License-Identifier: Apache-2.0
"""Doubts of epochs that are imported from a directory."""

import json
import os
import shutil

import pytest

from conftest import BIN, run
from test_contract_sealing import write_zip
from test_contract_writing import Writer
from test_doubts import doubts, kill, put, write_torn


@pytest.fixture
def exported(mnt, tmp_path, passthrough):
    """Seals what is in the mount and exports it: the directory, and a function that imports that and gives what is in doubt."""
    if passthrough == "off":
        pytest.skip("the import does not mount")
    out = tmp_path / "out"

    def imported():
        done = run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), "--json", out, mnt.url)
        epoch = json.loads(done.stdout)
        assert epoch["complete"] is not any(d.get("counts") for d in epoch.get("doubts", []))
        return {d["path"]: (d["kind"], d.get("counts", False)) for d in epoch.get("doubts", [])}

    def export():
        number = mnt.seal()
        mnt.wait_durable()
        mnt.unmount()
        run(BIN, "export", "%s@%d" % (mnt.url, number), out)
        return out, imported

    return export


def test_an_import_knows_an_empty_checkpoint(mnt, exported):
    put(mnt.path / "checkpoint-100" / "a", "1")
    mnt.seal()
    kill(mnt.path / "checkpoint-200" / "a")
    out, imported = exported()
    put(out / "notes", "x")
    assert imported() == {"checkpoint-200/a": ("undone", True)}
    (out / "checkpoint-200").rmdir()
    assert imported() == {}


def test_doubts_with_a_companion_in_common_are_settled_one_by_one_by_imports(mnt, tmp_path, passthrough):
    if passthrough == "off":
        pytest.skip("the import does not mount")
    for name in "abc":
        put(mnt.path / name, name + " 1")
    mnt.seal()
    put(mnt.path / "c", "c 2")
    kill(mnt.path / "a")
    kill(mnt.path / "b")
    assert mnt.seal() == 2 and sorted(doubts(mnt, 2)) == ["a", "b"]
    mnt.wait_durable()
    mnt.unmount()

    def imported():
        done = run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), "--json", tmp_path / "out", mnt.url)
        return sorted(d["path"] for d in json.loads(done.stdout).get("doubts", []))

    run(BIN, "export", mnt.url + "@2", tmp_path / "out")
    put(tmp_path / "out" / "d", "another file")
    assert imported() == ["a", "b"]
    put(tmp_path / "out" / "a", "a 2")
    assert imported() == ["b"]
    put(tmp_path / "out" / "c", "c 3")
    assert imported() == []


def test_an_import_misses_what_was_removed_before_a_killed_save(mnt, tmp_path, passthrough):
    if passthrough == "off":
        pytest.skip("the import does not mount")
    put(mnt.path / "out" / "a", "a 1"), put(mnt.path / "out" / "b", "b 1")
    mnt.seal()
    shutil.rmtree(mnt.path / "out")
    kill(mnt.path / "out" / "a")
    assert mnt.seal() == 2 and doubts(mnt, 2) == {"out/a": ("undone", True)}
    mnt.wait_durable()
    mnt.unmount()

    def imported():
        done = run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), "--json", tmp_path / "out", mnt.url)
        epoch = json.loads(done.stdout)
        return [(d["path"], d["since"]) for d in epoch.get("doubts", [])], epoch["complete"]

    run(BIN, "export", mnt.url + "@2", tmp_path / "out")
    put(tmp_path / "out" / "d", "another file")
    assert imported() == ([("out/a", 2)], False)
    put(tmp_path / "out" / "e", "another file")
    assert imported() == ([("out/a", 2)], False)
    put(tmp_path / "out" / "out" / "a", "a 1"), put(tmp_path / "out" / "out" / "b", "b 1")
    assert imported() == ([], True)


def test_an_import_follows_a_companion_that_was_renamed(mnt, exported):
    put(mnt.path / "a", "a 1" * 10000), put(mnt.path / "b", "b 1")
    mnt.seal()
    put(mnt.path / "a", "a 2" * 10000), kill(mnt.path / "b")
    out, imported = exported()
    (out / "a").rename(out / "model")
    assert imported() == {"b": ("undone", True)}
    (out / "models").mkdir()
    (out / "model").rename(out / "models" / "m")
    put(out / "notes", "x")
    assert imported() == {"b": ("undone", True)}
    put(out / "models" / "m", "a 3" * 10000)
    assert imported() == {}


def test_an_import_follows_a_killed_file_that_was_renamed(mnt, exported):
    put(mnt.path / "a", "a 1"), put(mnt.path / "b", "b 1")
    mnt.seal()
    put(mnt.path / "a", "a 2"), kill(mnt.path / "b")
    out, imported = exported()
    (out / "b").rename(out / "b.old")
    assert imported() == {"b": ("undone", True)}
    put(out / "notes", "x")
    assert imported() == {"b": ("undone", True)}
    put(out / "b", "b 2")
    assert imported() == {}


@pytest.mark.parametrize("settled", ["saved", "companion saved", "removed"])
def test_an_import_follows_half_a_save_that_gets_its_final_name(mnt, exported, settled):
    put(mnt.path / "checkpoint-1" / "model", "1")
    mnt.seal()
    work = mnt.path / "checkpoint.tmp"
    put(work / "model", "2"), kill(work / "optimizer")
    out, imported = exported()
    put(out / "notes", "x")
    assert imported() == {"checkpoint.tmp/optimizer": ("undone", False)}
    (out / "checkpoint.tmp").rename(out / "checkpoint-2")
    assert imported() == {"checkpoint-2/optimizer": ("undone", True)}
    put(out / "notes", "y")
    assert imported() == {"checkpoint-2/optimizer": ("undone", True)}
    if settled == "removed":
        shutil.rmtree(out / "checkpoint-2")
    else:
        put(out / "checkpoint-2" / ("optimizer" if settled == "saved" else "model"), "once more")
    assert imported() == {}


def test_an_import_knows_torn_files_whose_end_says_nothing(mnt, exported):
    (mnt.path / "weights").write_bytes(b"old" * 10000)
    mnt.seal()
    Writer(mnt.path / "weights", mode="r+b").end("kill")
    out, imported = exported()
    put(out / "notes", "x")
    assert imported() == {"weights": ("torn", True)}
    (out / "weights").rename(out / "last")
    assert imported() == {"last": ("torn", True)}
    # Somebody writes the same bytes: then they are what was meant.
    (out / "last").write_bytes((out / "last").read_bytes())
    assert imported() == {}


def test_an_empty_file_is_imported(volume, tmp_path, passthrough):
    if passthrough == "off":
        pytest.skip("the import does not mount")
    put(tmp_path / "out" / "x", "1"), (tmp_path / "out" / "model.pt").touch(), (tmp_path / "out" / "done").touch()

    def imported():
        done = run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), "--json", tmp_path / "out", volume.url)
        epoch = json.loads(done.stdout)
        return epoch["complete"], [(d["path"], d["why"]) for d in epoch.get("doubts", [])]

    assert imported() == (False, [("model.pt", "it is empty")])
    put(tmp_path / "out" / "x", "2")
    assert imported() == (False, [("model.pt", "it is empty")])
    write_zip(tmp_path / "out" / "model.pt")
    assert imported() == (True, [])


def test_an_imported_epoch_has_the_step_of_what_is_whole_in_it(volume, tmp_path, passthrough):
    """Another step has more files, and one of them is torn."""
    if passthrough == "off":
        pytest.skip("the import does not mount")
    for at, (step, names) in enumerate(((500, ("model.pt", "optim.pt", "rng.pt")), (510, ("model.pt",)))):
        place = tmp_path / "out" / ("checkpoint-%d" % step)
        place.mkdir(parents=True)
        for name in names:
            write_zip(place / name)
        if step == 500:
            write_torn(place / "more.pt")
        for file in place.iterdir():
            os.utime(file, (1e9 + at, 1e9 + at))
    done = run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), "--json", tmp_path / "out", volume.url)
    epoch = json.loads(done.stdout)
    assert (epoch["complete"], epoch["step"], [d["path"] for d in epoch["doubts"]]) == (True, 510, ["checkpoint-500/more.pt"])
