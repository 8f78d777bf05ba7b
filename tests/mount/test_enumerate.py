# SPDX-License-Identifier: Apache-2.0
"""Short histories of two processes beside a model (tests/enumerate): all of the shortest, all of five steps with handles
alone, and some of up to six by a fresh seed, on one mount that is now and then mounted anew, also with an empty cache.

`make check-enumerate` runs as many as one likes. --seed N and --enumerate-seconds S choose here.
"""

import os
import pathlib
import sys
import time

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent / "enumerate"))

from on_mount import enumerate_on

PROGRAM = os.path.join(os.environ["EPOCHFS_UNITS"], "enumerate", "enumerate")
# Two handles that end in some order, and what is written while they do.
HANDLES = ["--all", "5", "--names", "1", "--only", "open-read,open-append,close,write"]


def holds(mnt, *arguments):
    code, said = enumerate_on(mnt, PROGRAM, *arguments)
    assert code == 0, said


@pytest.mark.options(settle="24h")
def test_histories(mnt, pytestconfig):
    seed = pytestconfig.getoption("seed")
    seed = time.time_ns() % 10**9 if seed == "fresh" else seed
    holds(mnt, "--all", "2", "--length", "6", "--slow", "--batch", "200", "--seed", seed,
          "--seconds", pytestconfig.getoption("enumerate_seconds"))


@pytest.mark.options(settle="24h")
def test_handles_that_end_in_any_order(mnt):
    holds(mnt, *HANDLES, "--batch", "700")
