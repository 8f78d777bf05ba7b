# SPDX-License-Identifier: Apache-2.0
"""XRootD's HTTP: plain, or https with X.509 client certificates and proxies."""

import os
import shutil

from certificates import Authority
from server import find_program, free_port
from unprivileged import UnprivilegedServer

CONFIG = """
all.role server
all.export /
oss.localroot {folder}/root
all.adminpath {folder}/admin
all.pidpath {folder}/run
xrd.port {xrd_port}
xrd.allow host localhost
xrd.allow host 127.0.0.1
xrd.protocol http:{port} libXrdHttp.so
http.listingdeny no
xrootd.chksum max 4 adler32
ofs.persist auto hold 0
"""
X509 = """
xrd.tls {certificate} {key}
xrd.tlsca certdir {certificates}
http.cadir {certificates}
http.cert {certificate}
http.key {key}
http.gridmap required {folder}/gridmap
ofs.authorize 1
acc.authdb {folder}/authdb
"""


class Xrootd(UnprivilegedServer):
    name = "xrootd"
    optional = True
    fails = True  # it hangs up in streaks, for longer than net/dav.c tries
    user = "xrootd"  # it refuses to run as root
    tls = False

    def start(self):
        program = find_program("xrootd")
        user = self.make_home()
        self.ca = Authority(self.folder / "ca")
        for name in ("root", "admin", "run"):
            (self.home / name).mkdir()
        self.port, self.xrd_port, values = free_port(), free_port(), self._credentials()
        config = self.home / "xrootd.cfg"
        config.write_text((CONFIG + (X509 if self.tls else "")).format(
            folder=self.home, port=self.port, xrd_port=self.xrd_port, **values))
        command = [program, "-I", "v4", "-n", "t", "-l", self.home / "log", "-c", config]
        self.give_home(user)
        if user:
            command += ["-R", "xrootd"]
        self.spawn(*command, cwd=self.home)
        self.wait_port(self.port)

    def _credentials(self):
        if not self.tls:
            return {}
        certificate, key = (shutil.copy(path, self.home) for path in self.ca.server())
        os.chmod(key, 0o400)
        certificates = self.home / "certificates"
        shutil.copytree(self.ca.hashed_folder(), certificates, symlinks=True)
        (self.home / "gridmap").write_text('"/O=T/CN=alice" alice\n')
        (self.home / "authdb").write_text("u alice / a\n")
        return {"certificate": certificate, "key": key, "certificates": certificates}

    def url(self, prefix):
        return "http://127.0.0.1:%d/%s" % (self.port, prefix)


class XrootdTls(Xrootd):
    """https; only alice, by her certificate or a proxy of hers, may do anything."""

    name = "xrootd-tls"
    tls = True

    def url(self, prefix):
        return "https://localhost:%d/%s" % (self.port, prefix)

    def env(self):
        return {"X509_USER_PROXY": str(self.ca.proxy("alice")), "X509_CERT_DIR": str(self.ca.hashed_folder())}
