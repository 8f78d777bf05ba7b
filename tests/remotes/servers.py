# SPDX-License-Identifier: Apache-2.0
"""The servers that the tests of remotes run on, by their kind's name."""

from server_apache import Apache
from server_exec import Exec
from server_lighttpd import Lighttpd, LighttpdTls
from server_nginx import Nginx
from server_rgw import Rgw
from server_sshd import Sshd
from server_xrootd import Xrootd, XrootdTls

SERVERS = {kind.name: kind
           for kind in (Exec, Rgw, Lighttpd, LighttpdTls, Nginx, Apache, Xrootd, XrootdTls, Sshd)}
