# SPDX-License-Identifier: Apache-2.0
"""The suite of remote.h over each real server."""

import pytest

from conformance import conform


@pytest.mark.timeout(300)
def test_a_server_keeps_what_remote_h_promises(server, tmp_path):
    may = {"EPOCHFS_TEST_REMOTE_FAILS": "1"} if server.fails else {}
    conform(server.url("conformance"), {**server.env(), **may, "TMPDIR": str(tmp_path)}, output=server.output)
