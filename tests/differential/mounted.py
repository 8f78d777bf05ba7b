# SPDX-License-Identifier: Apache-2.0
"""The mount of a history: a volume, its daemon, remote and cache."""

import os
import pathlib
import subprocess
import time


class Wrong(Exception):
    """The two places differ: WHAT (one word or two, the same for the same fault), and lines."""

    def __init__(self, what, lines):
        super().__init__("\n".join(lines))
        self.what = what


class Mount:
    def __init__(self, base, program, options):
        self.base, self.program, self.options = pathlib.Path(base), program, dict(options)
        self.path, self.remote, self.cache = self.base / "mnt", self.base / "remote", self.base / "cache"
        self.log = self.base / "log"
        self.daemon = None
        for folder in (self.path, self.remote, self.cache):
            folder.mkdir()

    def mount(self):
        words = [k if v is True else "%s=%s" % (k, v) for k, v in {**self.options, "cache-dir": self.cache}.items()]
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen([self.program, "mount", "-f", "-o", ",".join(words), "file://%s" % self.remote, self.path],
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not os.path.ismount(self.path):
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                raise Wrong("mount", ["it does not mount:", self.log.read_text(errors="replace")[-2000:]])
            time.sleep(0.005)

    def unmount(self):
        deadline = time.monotonic() + 60
        command = ["umount"] if os.getuid() == 0 else ["fusermount3", "-u"]
        while True:
            done = subprocess.run(command + [self.path], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            if time.monotonic() > deadline:
                raise Wrong("unmount", [done.stderr])
            time.sleep(0.02)
        deadline = time.monotonic() + 60
        while self.daemon.poll() is None:
            # A mount namespace that somebody made beside us has a copy of each mount, and keeps its daemon.
            if time.monotonic() > deadline and not self.is_elsewhere():
                raise Wrong("unmount", ["the daemon does not end:"] + self.waits() + [self.log.read_text(errors="replace")[-2000:]])
            time.sleep(0.005)
        if self.daemon.returncode:
            raise Wrong("unmount", ["the daemon ended with %d:" % self.daemon.returncode, self.log.read_text(errors="replace")[-2000:]])
        self.daemon = None

    def waits(self):
        """Where each thread of the daemon waits in the kernel: in fuse_dev_do_read, somebody has the mount still."""
        lines = []
        for task in pathlib.Path("/proc/%d/task" % self.daemon.pid).iterdir():
            lines.append("%s: %s" % ((task / "comm").read_text().strip(), (task / "wchan").read_text()))
        return lines

    def is_elsewhere(self):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if " %s " % self.path in pathlib.Path("/proc/%s/mountinfo" % pid).read_text(errors="replace"):
                    return True
            except OSError:
                continue
        return False

    def clean_up(self):
        if self.daemon and self.daemon.poll() is None:
            command = ["umount", "-l"] if os.getuid() == 0 else ["fusermount3", "-uz"]
            subprocess.run(command + [self.path], capture_output=True, check=False)
            try:
                self.daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        if os.path.ismount(self.path):
            subprocess.run(["umount", "-l", self.path], capture_output=True, check=False)
