# SPDX-License-Identifier: Apache-2.0
"""Histories of operations, kills and crashes on the mount and in a model of the contract: tests/model.

Each run takes other ones, for some seconds, and prints the seed; what fails is shrunk to a script. `make check-model`
runs as many as one likes. --seed N and --model-seconds S choose here.
"""

import pathlib
import sys
import time

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent / "model"))

from conftest import MountError
from generate import generate
from model import Model, outcomes
from run import Runner


def test_histories(tmp_path, passthrough, pytestconfig):
    seed, seconds = pytestconfig.getoption("seed"), pytestconfig.getoption("model_seconds")
    said = ["make check-model ARGS='--seed %s --passthrough %s'" % (seed, passthrough)]
    print(said[0])
    runner = Runner(tmp_path, {"passthrough": passthrough}, said.append)
    end, number, right = time.monotonic() + seconds, 0, True
    try:
        runner.fresh()
    except MountError as error:
        if passthrough == "on" and "passthrough=on" in error.output:
            pytest.skip("this kernel has no passthrough for us: %s" % error.output.strip())
        raise
    # One at least, however long the mount took.
    while right and (not number or time.monotonic() < end) and number < pytestconfig.getoption("model_histories"):
        right = runner.history(seed, number)
        number += 1
    left = runner.close()
    print("%d histories, %d operations" % (number, runner.operations))
    assert right and not left, "\n".join(said + [left or ""])


# ---- the model itself

REPLACED = [(["open", 0, 0, "a", "wct", 0o644], "file"), (["write", 0, 0, 1, 4], 4), (["close", 0, 0], None),
            (["open", 0, 1, "a", "wct", 0o644], "file"), (["write", 0, 1, 2, 2], 2)]
ERRORS = [("error", "EEXIST"), ("error", "ENOENT")]


def after(*more):
    """What the model makes of these operations and results; None where it refutes them."""
    model = Model()
    model.begin(1, [])
    models = [model]
    for op, value in REPLACED + list(more):
        models = [m for model in models for m in outcomes(model, op, value if value in ERRORS else ("ok", value))[0]]
    return models


@pytest.mark.parametrize("op, right, wrong", [
    (["look", 1, "a"], (4, b"1.1."), (2, b"2.")),  # others see the old one, whole
    (["look", 0, "a"], (2, b"2."), (4, b"1.1.")),
    (["open", 0, 2, "a", "wx", 0o644], ("error", "EEXIST"), "file"),
    (["rename", 0, "b", "a"], ("error", "ENOENT"), None)])
def test_the_model_refutes_what_is_wrong(op, right, wrong):
    assert after((op, right)) and not after((op, wrong))


def test_the_model_knows_what_a_killed_writer_leaves():
    killed = (["end", 0, "kill"], None)
    assert after(killed, (["look", 1, "a"], (4, b"1.1.")))
    assert not after(killed, (["look", 1, "a"], (2, b"2.")))
    assert after((["end", 0, "exit"], None), (["look", 1, "a"], (2, b"2.")))


def test_the_model_misses_what_was_removed_before_a_killed_save():
    killed = [(["close", 0, 1], None), (["seal", "one"], 2), (["unlink", 0, "a"], None), (["open", 1, 0, "a", "wct", 0o644], "file"),
              (["write", 1, 0, 3, 2], 2), (["end", 1, "kill"], None), (["seal", "two"], 3)]
    epochs = [(1, "true"), (2, "true")]
    assert after(*killed, (["epochs"], (epochs + [(3, "false")], {"one": 2, "two": 3}, 2, 3)))
    assert not after(*killed, (["epochs"], (epochs + [(3, "true")], {"one": 2, "two": 3}, 3, 3)))


def test_a_seed_is_a_history():
    assert generate("7/3", True, True) == generate("7/3", True, True) != generate("7/4", True, True)
