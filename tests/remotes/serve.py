#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Starts one of the test servers by hand, prints how to use it, and stops it at Ctrl-C.

    python3 tests/remotes/serve.py rgw
"""

import shlex
import signal
import sys
import tempfile
import threading

from server import ServerMissing
from servers import SERVERS


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in SERVERS:
        sys.exit("usage: serve.py %s" % "|".join(sorted(SERVERS)))
    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: end.set())
    with tempfile.TemporaryDirectory(prefix="epochfs-server-") as folder:
        try:
            with SERVERS[sys.argv[1]](folder) as server:
                for name, value in server.env().items():
                    print("export %s=%s" % (name, shlex.quote(value)))
                print("epochfs mount %s DIR" % shlex.quote(server.url("volume")), flush=True)
                end.wait()
        except ServerMissing as error:
            sys.exit("%s: tests/tools/packages.sh test installs it" % error)


if __name__ == "__main__":
    main()
