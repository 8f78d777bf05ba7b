# SPDX-License-Identifier: Apache-2.0
"""The servers that the tests of remotes run on, by their kind's name."""

from server_exec import Exec
from server_rgw import Rgw
from server_sshd import Sshd

SERVERS = {kind.name: kind for kind in (Exec, Rgw, Sshd)}
