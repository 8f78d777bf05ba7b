# SPDX-License-Identifier: Apache-2.0
"""Real servers on loopback, started for a test module and stopped by their pid.

Each kind has a file of its own, server_KIND.py, with a class derived from Server; SERVERS in
servers.py lists them. A server is told its folder, makes its configuration and data there, and
listens on free ports of 127.0.0.1 that free_port() gives. A server that is not installed, and is
of the second tier (`optional`), is skipped with its reason; one of the first tier fails.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time


class ServerMissing(Exception):
    """The server's program is not installed here."""


def free_port():
    """A port of loopback that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def find_program(name):
    """The path of a server's program, which may lie where only root's PATH looks."""
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin")
    if not path:
        raise ServerMissing("%s is not installed" % name)
    return path


class Server:
    """One server in its own folder."""

    name = "?"  # of the kind
    optional = False  # may be missing
    fails = False  # may answer a get with an error while the object is replaced

    def __init__(self, folder, memory=2 << 30):
        """`memory` bounds what a server that keeps its data in memory takes, in bytes."""
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes = []

    # What a kind adds.

    def start(self):
        """Starts it and returns once it answers; raises ServerMissing where it is not installed."""
        raise NotImplementedError

    def url(self, prefix):
        """The remote's URL for a prefix of its own on this server ("" or "a/b")."""
        raise NotImplementedError

    def env(self):
        """Environment variables that epochfs needs for it: credentials."""
        return {}

    def curl(self, payload_hash=None):
        """For benchmarks: the URL that objects' names are put behind, and lines of a curl configuration.
        payload_hash: the body's SHA-256, for servers that check one."""
        raise NotImplementedError

    # What all share.

    def spawn(self, *command, **keywords):
        """Starts a process that stop() ends; its output goes to NAME.out in the folder."""
        with open(self.folder / (pathlib.Path(command[0]).name + ".out"), "ab") as out:
            keywords.setdefault("stdout", out)
            keywords.setdefault("stderr", out)
            process = subprocess.Popen([os.fspath(c) for c in command], stdin=subprocess.DEVNULL, **keywords)
        self.processes.append(process)
        return process

    def wait_port(self, port, limit=60):
        """Until something listens there, or a process of ours has ended."""
        deadline = time.monotonic() + limit
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                pass
            for process in self.processes:
                if process.poll() is not None:
                    raise RuntimeError("%s ended with %d:\n%s" % (process.args[0], process.returncode, self.output()))
            if time.monotonic() > deadline:
                raise RuntimeError("%s does not listen on %d:\n%s" % (self.name, port, self.output()))
            time.sleep(0.01)

    def output(self):
        """The last lines of what its processes and logs said."""
        texts = []
        for path in sorted(self.folder.glob("*.out")) + sorted(self.folder.glob("*.log")):
            texts.append("%s:\n%s" % (path.name, path.read_text(errors="replace")[-2000:]))
        return "\n".join(texts)

    def stop(self):
        """Ends all processes, last started first; for what does not end by SIGTERM, SIGKILL."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = []

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
