# SPDX-License-Identifier: Apache-2.0
"""A program as a remote: the example over a plain directory. No process stays."""

import pathlib

from server import Server

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "examples"


class Exec(Server):
    name = "exec"

    def start(self):
        pass

    def url(self, prefix):
        return "exec:%s %s/data/%s" % (EXAMPLES / "exec-directory", self.folder, prefix)
