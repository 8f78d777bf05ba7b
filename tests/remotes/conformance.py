# SPDX-License-Identifier: Apache-2.0
"""The suite of remote.h (unit/test_remote_conformance*.c) over the remote of a URL."""

import os
import subprocess

ALONE = "test_remote_conformance"
RACES = "test_remote_conformance_races"


def conform(url, env, programs=(ALONE, RACES), output=lambda: ""):
    """Runs them with `env` beside the environment, and gives what they wrote to stderr. `output` is called where one fails: what else to show."""
    told = ""
    for program in programs:
        done = subprocess.run([os.path.join(os.environ["EPOCHFS_UNITS"], program)], capture_output=True, text=True, errors="replace", check=False,
                              env={**os.environ, **env, "EPOCHFS_TEST_REMOTE": url, "CK_TIMEOUT_MULTIPLIER": "4"})
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:] + output()
        told += done.stderr
    return told
