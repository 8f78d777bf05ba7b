# SPDX-License-Identifier: Apache-2.0
"""Random histories on a mount and on an ordinary directory, side by side: tests/differential.

Each run takes other ones, for some seconds, and prints the seed; what fails is shrunk to a script. `make
check-differential` runs as many as one likes. --seed N and --differential-seconds S choose here.
"""

import os
import pathlib
import sys
import time

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent / "differential"))

import trees
from actors import Actor
from conftest import BIN
from differential import Differential
from minimal import shrink


@pytest.mark.timeout(600)
def test_histories(tmp_path, passthrough, pytestconfig):
    if passthrough == "on" and os.getuid():
        pytest.skip("this kernel has no passthrough for us: it is root's")
    seed, seconds = pytestconfig.getoption("seed"), pytestconfig.getoption("differential_seconds")
    said = ["make check-differential ARGS='--seed %s --passthrough %s'" % (seed, passthrough)]
    print(said[0])
    for folder in (tmp_path, *tmp_path.parents[:2]):
        os.chmod(folder, 0o755)  # other users work below it
    differential = Differential(BIN, tmp_path, said.append, trials=60)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end or not number:
        assert differential.history(seed, number, passthrough), "\n".join(said)
        number += 1
    print("%d histories, %d steps were compared" % (differential.histories, differential.steps))
    assert differential.steps > 20


# ---- the comparison itself


def test_a_difference_is_seen(tmp_path):
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "d").mkdir(parents=True)
        (folder / "f").write_text("content")
        os.link(folder / "f", folder / "d" / "g")
    assert not trees.differences(trees.walk(tmp_path / "one"), trees.walk(tmp_path / "two"))
    for change in (lambda d: (d / "f").write_text("Content"), lambda d: (d / "d").chmod(0o700), lambda d: (d / "d" / "g").unlink(),
                   lambda d: os.utime(d / "f", ns=(0, 5)), lambda d: os.setxattr(d / "f", "user.a", b"1"),
                   lambda d: (d / "new").mkdir()):
        before = trees.walk(tmp_path / "two")
        change(tmp_path / "two")
        assert trees.differences(before, trees.walk(tmp_path / "two"))


def test_what_is_being_written_is_missed_too(tmp_path):
    """Neither its content nor its size is compared, but it is there."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(name * len(name))
    one, two = trees.walk(tmp_path / "one"), trees.walk(tmp_path / "two")
    writing = {one["f"]["ino"]}
    assert trees.differences(one, two) and not trees.differences(one, two, writing)
    del two["f"]
    assert trees.differences(one, two, writing) == ["'f': is missing"]


def test_holes_are_looked_for_by_whoever_only_writes(tmp_path):
    """Not each place finds the same ones, and nobody may read there."""
    actor = Actor(tmp_path)
    assert actor.do("open", (0, tmp_path / "f", ["wronly", "creat"], 0o600)) == ("ok", None)
    assert actor.do("pwrite", (0, 1, 10, 1 << 20)) == ("ok", 10)
    assert actor.do("holes", (0,)) == ("ok", (1 << 20) + 10)
    actor.do("end", ())


def test_what_fails_is_shrunk():
    steps = list(range(100))
    failing = lambda some: some.index(70) if 13 in some and 70 in some[some.index(13):] else None
    assert shrink(steps, failing) == [13, 70]
