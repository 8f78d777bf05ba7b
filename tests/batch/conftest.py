# SPDX-License-Identifier: Apache-2.0
"""Fixtures: the batch systems of this root, each started once, and a user's home for each test."""

import os
import pathlib
import subprocess
import sys

import pytest

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "origins"))

from job_site import USER, Site, run  # noqa: E402


@pytest.fixture(scope="session")
def user():
    if run("id", USER, check=False).returncode:
        run("useradd", "-m", "-s", "/bin/bash", USER)
    return USER


@pytest.fixture
def site(user):
    made = Site()
    yield made
    # Whatever a test left waiting goes on and ends.
    for word in ("halt", "stuck", "deaf"):
        (made.home / word).unlink(missing_ok=True)


@pytest.fixture(scope="module")
def slurm(user):
    from slurm import Slurm
    with Slurm(pathlib.Path("/srv/slurm")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def condor(user):
    from condor import Condor
    try:
        subprocess.run(["condor_version"], check=True, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("this release has no HTCondor")
    with Condor("/srv/condor") as pool:
        yield pool
