# SPDX-License-Identifier: Apache-2.0
"""How many requests the first read of a file costs that only the remote has. Requests are counted, not time."""

import os
import pathlib

import pytest

from conftest import wait_until

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "packaging/examples/exec-directory"


@pytest.fixture
def passthrough():
    """Nothing is whole, so the daemon serves all of it."""
    return "auto"


@pytest.fixture
def counted(make_volume, tmp_path):
    """A volume whose remote notes each request in counted.requests, one a line: `get packs/...`."""
    volume = make_volume(settle="1h")
    volume.requests = tmp_path / "requests"
    noting = tmp_path / "noting"
    noting.write_text('#!/bin/sh\necho "$@" >>%s\nexec %s %s "$@"\n' % (volume.requests, PROGRAM, volume.remote))
    noting.chmod(0o755)
    volume.url = "exec:%s" % noting
    return volume.mount()


def requests(mnt, of=""):
    lines = mnt.requests.read_text().splitlines()
    return [line for line in lines if line.startswith(of)]


def test_the_first_read_is_two_requests(counted):
    mnt = counted
    for name in "abc":
        (mnt.path / name).write_bytes(os.urandom(50000))  # one chunk each
    mnt.seal()
    mnt.remount(empty_cache=True)
    # The index is read by itself; who reads a file before that has ended waits for it.
    wait_until(lambda: requests(mnt, "get index/"), "the index")
    before = len(requests(mnt))
    first = (mnt.path / "b").read_bytes()
    assert len(first) == 50000
    made = requests(mnt)[before:]
    packs = [line for line in made if line.startswith("get packs/")]
    assert len(packs) == 2, made
    assert not [line for line in made if line.startswith(("list index", "get index"))], made
