# SPDX-License-Identifier: Apache-2.0
"""What compare_kills.py compares: the ways in which a checkpoint directory gets to a server, each with what its own manual recommends for a program that saves files, and
nothing else. `why` is said below the table.

All go to their server through a link (kills_link.py). restore(folder) gives what another machine would get of the remote.
"""

import contextlib
import os
import shutil
import subprocess

import competitors
from competitors import Competitor, InBucket, RcloneMount, S3fs, Sshfs, family, program, rclone_environment


class FromBucket:
    """Another machine gets the objects, by their names."""

    def restore(self, folder):
        client, bucket = self.place.server.client(), self.place.server.bucket
        for key in client.keys(bucket, self.key + "/"):
            name = key[len(self.key) + 1:]
            if name and "/" not in name:
                (folder / name).write_bytes(client.get(bucket, key))


class FromFolder:
    """Another machine gets the files of the server's folder."""

    def folder(self):
        folder = self.place.sshd.folder / "data" / self.key
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def restore(self, folder):
        for path in self.folder().iterdir():
            if path.is_file():
                shutil.copy(path, folder)


class KilledMount:
    def kill(self):
        """As with the machine: all of its processes at once. What it keeps on its disk stays."""
        pids = [pid for pid in family(self.process.pid)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        self.process.wait()
        subprocess.run(["umount", "-l", os.fspath(self.path)], check=False, capture_output=True)
        self.process = None

    def again(self):
        """The next mount, orderly unmounted before where it still stands."""
        self.unmount()
        self.mount()


class Loop(Competitor):
    """Saves to the disk, and a script copies the directory again and again."""

    process = None

    def command(self):
        raise NotImplementedError

    def start(self, key):
        super().start(key)
        self.mount()

    def mount(self):
        words, environment = self.command()
        with open(self.base / "log", "ab") as out:
            self.process = subprocess.Popen(["sh", "-c", 'while :; do "$@"; sleep 1; done', "sh", *map(os.fspath, words)], stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=out, env={**os.environ, **environment}, start_new_session=True)

    def kill(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)
            self.process.wait()
            self.process = None

    def again(self):
        self.kill()
        self.mount()

    def stop(self):
        self.kill()
        super().stop()


class RcloneCopy(FromBucket, InBucket, Loop):
    name, label = "rclone-copy", "ext4, `rclone copy` in a loop"
    why = "`while :; do rclone copy DIR REMOTE; sleep 1; done`"

    def check(self):
        super().check()
        program("rclone")

    def command(self):
        rgw = self.place.rgw
        return [program("rclone"), "copy", self.path, "rgw:%s/%s" % (rgw.bucket, self.key)], rclone_environment(rgw)


class RsyncLoop(FromFolder, Loop):
    name, label = "rsync", "ext4, `rsync -a` in a loop"
    why = "`while :; do rsync -a DIR/ HOST:DIR; sleep 1; done`, over ssh"

    def check(self):
        program("rsync")

    def command(self):
        sshd = self.place.sshd
        user, _, rest = sshd.authority().partition("@")
        host, _, port = rest.partition(":")
        ssh = "ssh -p %s -i %s -o UserKnownHostsFile=%s -o HostKeyAlias=%s -o BatchMode=yes" % (port, sshd.key, sshd.known_hosts, sshd.alias)
        return [program("rsync"), "-a", "-e", ssh, "%s/" % self.path, "%s@%s:%s" % (user, host, self.folder())], {}


class Rclone(FromBucket, KilledMount, RcloneMount):
    def command(self):
        words = super().command()
        at = words.index("--vfs-write-back")
        return words[:at] + words[at + 4:]  # the defaults: 5 s until an upload begins


class RcloneWrites(Rclone):
    name, label, mode = "rclone-writes", "`rclone mount`, writes", "writes"
    why = "`--vfs-cache-mode writes`, which its manual asks for where files are opened for reading and writing"


class RcloneFull(Rclone):
    name, label, mode = "rclone-full", "`rclone mount`, full", "full"
    why = "`--vfs-cache-mode full`, the mode with which it says that all works"


class S3Mount(FromBucket, KilledMount, S3fs):
    label, why = "s3fs", "`use_path_request_style` for a server that is not Amazon's; else its defaults"


class SshMount(FromFolder, KilledMount, Sshfs):
    label, why = "sshfs", "its defaults"

    def command(self):
        words = super().command()
        words[words.index("-o") + 1] += ",HostKeyAlias=%s" % self.place.sshd.alias
        return words


class Epochfs(KilledMount, competitors.Epochfs):
    label, why = "epochfs", "`-o resume`, as the README's quick start; the remote is what `epochfs export REMOTE@latest` gives"

    def command(self):
        self.environment = self.place.rgw.env()
        return [self.place.program, "mount", "-f", "-o", "cache-dir=%s,resume" % (self.base / "cache"), self.url(), self.path]

    def restore(self, folder):
        done = subprocess.run([os.fspath(self.place.program), "export", "--force", self.place.server.url(self.key) + "@latest", os.fspath(folder)],
                              env={**os.environ, **self.place.server.env()}, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 5):
            raise competitors.Unusable("export: %s" % done.stderr)


TOOLS = {kind.name: kind for kind in (RcloneCopy, RsyncLoop, RcloneWrites, RcloneFull, S3Mount, SshMount, Epochfs)}
