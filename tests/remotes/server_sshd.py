# SPDX-License-Identifier: Apache-2.0
"""OpenSSH's server with its SFTP, for one user: who runs the tests, by key."""

import os
import pathlib
import pwd
import subprocess

from server import Server, find_program, free_port

CONFIGURATION = """ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
PidFile {folder}/pid
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
Subsystem sftp {subsystem}
MaxStartups 200
"""


class Sshd(Server):
    name = "sshd"
    subsystem = "internal-sftp"

    def start(self):
        self.program = find_program("sshd")
        self.port = free_port()
        self.key = self.make_key("user_key")
        self.known_hosts = self.folder / "known_hosts"
        host = self.make_key("host_key")
        words = host.with_suffix(".pub").read_text().split()
        self.known_hosts.write_text("[127.0.0.1]:%d %s %s\n" % (self.port, words[0], words[1]))
        (self.folder / "authorized_keys").write_text(self.key.with_suffix(".pub").read_text())
        (self.folder / "config").write_text(CONFIGURATION.format(
            port=self.port, folder=self.folder, subsystem=self.subsystem))
        (self.folder / "data").mkdir(exist_ok=True)
        if os.geteuid() == 0:
            # Where it confines what has not logged in yet; Debian's service makes it.
            pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        self.run_daemon()

    def make_key(self, name, kind="ed25519"):
        path = self.folder / name
        if not path.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path], check=True)
        return path

    def run_daemon(self):
        self.spawn(self.program, "-D", "-f", self.folder / "config", "-E", self.folder / "sshd.log")
        self.wait_port(self.port)

    def kill_all(self):
        """The daemon and all of its sessions end at once, as with the machine."""
        daemon = self.processes.pop()
        # Each session is a child that leads a session, and a grandchild in it.
        family = [daemon.pid]
        for pid in family:
            listing = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
            family += [int(word) for word in listing.stdout.split()]
        for pid in family:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        daemon.wait()

    def stop(self):
        while self.processes:
            self.kill_all()

    def authority(self):
        return "%s@127.0.0.1:%d" % (pwd.getpwuid(os.geteuid()).pw_name, self.port)

    def url(self, prefix):
        # The directory above a new remote must be there.
        (self.folder / "data" / prefix).mkdir(parents=True, exist_ok=True)
        return "sftp://%s%s/data/%s?known-hosts=%s&key=%s" % (self.authority(), self.folder, prefix,
                                                             self.known_hosts, self.key)


class PlainSshd(Sshd):
    """Without OpenSSH's extensions, as servers of others. It replaces in two steps, so the suite of remote.h is not for it."""

    name = "sshd-plain"
    subsystem = "internal-sftp -P posix-rename,hardlink,fsync,statvfs,limits"
