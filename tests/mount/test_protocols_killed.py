# SPDX-License-Identifier: Apache-2.0
"""Real programs (tests/protocols) on a real mount are killed before one of their operations, by a fresh seed that is printed, and started again: one in
two with resume, one in three on another machine. What is a failure, test_protocols.py says.
"""

import random

import pytest

import player  # of tests/protocols
import protocol
from test_protocols import played

pytestmark = pytest.mark.rules("2")


def kill_in(one, draw):
    points = [i for i, op in enumerate(one.body) if op.who] + [len(one.body)]
    return player.Play("kill", draw.choice(points), 0, resume=draw.random() < 1 / 2, cold=draw.random() < 1 / 3)


@pytest.mark.parametrize("name", protocol.names())
def test_a_program_that_is_killed(make_volume, pytestconfig, passthrough, name):
    seed = pytestconfig.getoption("seed")
    print("--seed %d" % seed)
    with played(make_volume, name) as play:
        play(kill_in(protocol.load(name), random.Random("%d %s %s" % (seed, name, passthrough))))
