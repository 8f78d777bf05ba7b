# SPDX-License-Identifier: Apache-2.0
"""The suite of remote.h, test_remote_conformance, over each real server."""

import os
import subprocess

import pytest


@pytest.mark.timeout(300)
def test_a_server_keeps_what_remote_h_promises(server, tmp_path):
    program = os.path.join(os.environ["EPOCHFS_UNITS"], "test_remote_conformance")
    env = {**os.environ, **server.env(), "EPOCHFS_TEST_REMOTE": server.url("conformance"), "TMPDIR": str(tmp_path),
           "CK_TIMEOUT_MULTIPLIER": "4", **{"EPOCHFS_TEST_REMOTE_" + word: "1" for word, may in (("CUTS", server.cuts), ("FAILS", server.fails)) if may}}
    done = subprocess.run([program], env=env, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:] + server.output()
