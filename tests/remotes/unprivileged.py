# SPDX-License-Identifier: Apache-2.0
"""A folder for a server that does not run as root.

Where the tests run as root, pytest's folders are closed to everybody else: such a server's own
folder lies in the directory for temporary files, and belongs to the server's user.
"""

import os
import pathlib
import pwd
import shutil
import tempfile

from server import Server, ServerMissing


class UnprivilegedServer(Server):
    user = "?"  # whose the folder is where the tests run as root

    def make_home(self):
        """Makes self.home, and says as which user to run: a passwd entry, or None for our own."""
        entry = None
        if os.getuid() == 0:
            try:
                entry = pwd.getpwnam(self.user)
            except KeyError:
                raise ServerMissing("there is no user %s, and %s does not run as root" % (self.user, self.name)) from None
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="%s-" % self.name))
        return entry

    def give_home(self, entry):
        """Once all is in it."""
        if entry:
            for path in [self.home, *self.home.rglob("*")]:
                os.chown(path, entry.pw_uid, entry.pw_gid)

    def stop(self):
        super().stop()
        if hasattr(self, "home"):
            shutil.rmtree(self.home, ignore_errors=True)

    def output(self):
        if not hasattr(self, "home"):
            return super().output()
        logs = [path for path in self.home.rglob("*log") if path.is_file()]
        return super().output() + "".join(path.read_text(errors="replace")[-3000:] for path in logs)
