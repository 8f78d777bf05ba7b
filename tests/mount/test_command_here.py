# SPDX-License-Identifier: Apache-2.0
"""Commands without their TARGET, in a mount, and with a path in it."""

import json
import os

import pytest

from conftest import BIN, run

DONE, USAGE, NOT_FOUND = 0, 2, 5


@pytest.fixture
def passthrough():
    """It makes no difference here."""
    return "auto"


@pytest.fixture
def run7(mnt):
    """Two epochs, the first tagged; a directory and a file to stand in and to name."""
    (mnt.path / "step-1").mkdir()
    for text in ("1", "2"):
        (mnt.path / "step-1" / "model.pt").write_text(text)
        mnt.seal()
    mnt.request("tag", epoch="1", name="best")
    mnt.wait_durable()
    return mnt


def epochfs(*words, code=DONE, cwd=None):
    done = run(BIN, *words, check=False, cwd=cwd)
    assert done.returncode == code, done
    return done.stdout if code == DONE else done.stderr


EVERYWHERE = [
    (["status"], "latest"), (["log"], "000002"), (["latest"], "2"), (["show"], "epoch         2"), (["explain"], ""),
    (["commit"], "is sealed"), (["wait"], "is durable"), (["tag"], "best"), (["prune", "--keep", "last:9"], "stay"),
    (["verify"], "model.pt"), (["gc", "--dry-run"], "nothing was changed"), (["cache", "status"], "not durable"), (["cache", "warm"], "local"),
    (["fsck", "--repair", "--dry-run"], "nothing was written"),
]
WITH_AN_EPOCH = [
    (["show"], ["1"], "epoch         1"), (["diff"], ["1", "2"], "1 changed"), (["diff"], ["2"], "1 changed"), (["wait"], ["best"], "is durable"),
    (["verify"], ["best"], "epoch 000001"), (["cache", "warm"], ["best"], "epoch 000001"), (["tag"], ["2", "new"], ""), (["tag", "-d"], ["new"], ""),
    (["rollback"], ["1"], "live is epoch 000001"), (["rm"], ["2"], "epoch 000002 is dropped"),
]


def test_where_one_stands(run7):
    for place in (run7.path, run7.path / "step-1", run7.epochs_dir, run7.epoch(1) / "step-1"):
        for words, text in EVERYWHERE:
            assert text in epochfs(*words, cwd=place) or words == ["verify"], words


def test_a_path_in_a_mount(run7):
    for path in (run7.path, run7.path / "step-1", run7.path / "step-1" / "model.pt", run7.epoch(1) / "step-1"):
        for words, text in EVERYWHERE:
            assert text in epochfs(*words, path) or words == ["verify"], words


@pytest.mark.parametrize("here", [True, False])
def test_with_an_epoch(run7, here):
    inside = run7.path / "step-1"
    target, cwd = ([], inside) if here else ([inside], None)
    for words, epochs, text in WITH_AN_EPOCH:
        assert text in epochfs(*words, *target, *epochs, cwd=cwd), words
    assert "000002 is back" in epochfs("undrop", *target, "2", cwd=cwd)


def test_a_number_is_an_epoch(run7):
    (run7.path / "2").mkdir()
    assert json.loads(epochfs("show", "--json", "2", cwd=run7.path))["epoch"]["epoch"] == 2
    assert "no epoch 7" in epochfs("rm", "7", "8", code=NOT_FOUND, cwd=run7.path)


def test_another_target_goes_before(run7, tmp_path):
    other = tmp_path / "other"
    os.mkdir(other)
    assert "holds no volume" in epochfs("log", other, code=NOT_FOUND, cwd=run7.path)
    assert epochfs("latest", run7.url, cwd=run7.path) == "2\n"


def test_an_export_of_a_path(run7, tmp_path):
    epochfs("export", "%s@1" % (run7.path / "step-1"), tmp_path / "out")
    assert (tmp_path / "out" / "step-1" / "model.pt").read_text() == "1"


def test_a_restart(mnt):
    """It finds the mount, which then says that it is not supervised."""
    (mnt.path / "step-1").mkdir()
    for words, cwd in (([], mnt.path), ([mnt.path / "step-1"], None)):
        done = run(BIN, "restart", *words, check=False, cwd=cwd)
        assert done.returncode not in (DONE, USAGE) and "supervise" in done.stderr


def test_outside_it_is_said(tmp_path):
    for words in (["rm"], ["rm", "1"], ["diff"], ["undrop", "1"], ["rollback", "1"], ["prune", "--keep", "last:1"], ["verify"], ["gc"], ["key", "list"],
                  ["cache", "status"], ["tag"], ["show"], ["restart"]):
        line = epochfs(*words, code=USAGE, cwd=tmp_path)
        assert "or to be called in a mount" in line and line.count("\n") == 1, line
