# SPDX-License-Identifier: Apache-2.0
"""Short histories of two processes beside a model (tests/enumerate): all of the shortest, all of five steps with few kinds of
steps, and some of up to six by a fresh seed; about 2,700 each way. A hundred and more share a mount, which is then mounted again,
also with an empty cache.

`make check-enumerate` runs as many as one likes. --seed N and --enumerate-histories N choose here.
"""

import os
import pathlib
import sys
import time

import pytest

sys.path.append(str(pathlib.Path(__file__).parent.parent / "enumerate"))

from on_mount import EVICTS, enumerate_on

PROGRAM = os.path.join(os.environ["EPOCHFS_UNITS"], "enumerate", "enumerate")
# A commit and a rollback cost more the more histories share the volume, a remount the fewer there are.
BATCH = ["--batch", "120"]
# Two handles that end in some order, and what is written while they do.
HANDLES = ["--all", "5", "--names", "1", "--only", "open-read,open-append,close,write"]
# A mapping of the file that the kernel has, as a reader was first. All of five steps run in process: here a request may wait
# half a second for the release of a file that is mapped.
MAPPINGS = [
    "p0 open-read a; p0 open-write a; map-keep h1; close h1; store",
    "p0 open-read a; p1 open-write a; map-keep h1; close h1; close h0; commit; store; commit",
    "p0 open-read a; p0 open-write a; map-keep h1; close h1; p1 open-trunc a; write h1; store; close h1; store",
    "p0 open-read a; p0 open-direct a; map-keep h1; close h1; store; kill p0; commit",
]


@pytest.fixture
def holds(mnt, pytestconfig):
    def holds(*arguments):
        code, said = enumerate_on(mnt, PROGRAM, *arguments, *BATCH, "--seconds", pytestconfig.getoption("enumerate_seconds"))
        assert code == 0, said

    return holds


def some_of_six(pytestconfig, share):
    seed = pytestconfig.getoption("seed")
    seed = time.time_ns() % 10**9 if seed == "fresh" else seed
    return ["--all", "2", "--length", "6", "--slow", "--seed", seed,
            "--draw", int(pytestconfig.getoption("enumerate_histories") * share)]


@pytest.mark.options(settle="24h", **EVICTS)
def test_histories(holds, pytestconfig):
    holds(*some_of_six(pytestconfig, 1))


@pytest.mark.options(settle="24h", **EVICTS)
def test_rarer_ways_to_write(holds, pytestconfig):
    """O_DIRECT, asynchronous I/O, preallocation, holes, copy_file_range, and mappings that outlive their descriptor."""
    holds("--extended", *some_of_six(pytestconfig, 0.5))


@pytest.mark.options(settle="24h")
def test_handles_that_end_in_any_order(holds):
    holds(*HANDLES)


@pytest.mark.options(settle="24h")
@pytest.mark.parametrize("script", MAPPINGS)
def test_a_mapping_outlives_its_descriptor(holds, script):
    holds("--replay", script, "--times", "3")
