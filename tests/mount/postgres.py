# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL cluster of its own: in a folder for temporary files, as a user without privileges, on a socket there alone."""

import os
import pathlib
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "remotes"))

from server import ServerMissing, find_program  # noqa: E402
from unprivileged import UnprivilegedServer  # noqa: E402


class PostgresServer(UnprivilegedServer):
    name = "postgres"
    user = "postgres"
    optional = True

    def programs(self):
        """Debian keeps them where no PATH looks, a folder a version."""
        find_program("psql")
        found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        if not found:
            raise ServerMissing("postgresql is not installed")
        return found[-1].parent

    def start(self):
        programs = self.programs()
        entry = self.make_home()
        self.give_home(entry)
        who = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if entry else {}
        done = subprocess.run([programs / "initdb", "-D", self.home / "data", "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8",
                               "--locale=C.UTF-8"], capture_output=True, text=True, check=False, cwd="/", timeout=120, **who)
        if done.returncode:
            raise RuntimeError("initdb: %s%s" % (done.stdout, done.stderr))
        self.spawn(programs / "postgres", "-D", self.home / "data", "-k", self.home, "-F", "-c", "listen_addresses=", cwd="/", **who)
        self.wait_ready()

    def env(self):
        return {"PGHOST": str(self.home), "PGUSER": "postgres"}

    def wait_ready(self, limit=60):
        deadline = time.monotonic() + limit
        while subprocess.run(["psql", "-d", "postgres", "-c", "SELECT 1"], env={**os.environ, **self.env()}, capture_output=True,
                             check=False).returncode:
            if self.processes[0].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("postgres does not answer: %s" % self.output())
            time.sleep(0.05)
