# SPDX-License-Identifier: Apache-2.0
"""lighttpd with mod_webdav: http and https, with a password, a bearer token or a client certificate."""

import subprocess

from certificates import Authority
from server import Server, find_program, free_port

USER, PASSWORD, TOKEN = "trainer", "se:cr%et pass", "tok-0123456789abcdef"

CONFIG = """
mimetype.assign = ("" => "application/octet-stream")
server.modules = ("mod_access", "mod_auth", "mod_authn_file", "mod_webdav", "mod_openssl")
server.document-root = "{folder}/data"
server.bind = "127.0.0.1"
server.port = {port}
server.errorlog = "{folder}/error.log"
server.upload-dirs = ("{folder}/upload")
server.stream-request-body = 0
server.max-keep-alive-requests = 65535
webdav.activate = "enable"
webdav.sqlite-db-name = "{folder}/dav.db"
{access}
$SERVER["socket"] == "127.0.0.1:{tls_port}" {{
  ssl.engine = "enable"
  ssl.pemfile = "{certificate}"
  ssl.privkey = "{key}"
}}
$SERVER["socket"] == "127.0.0.1:{mutual_port}" {{
  ssl.engine = "enable"
  ssl.pemfile = "{certificate}"
  ssl.privkey = "{key}"
  ssl.ca-file = "{ca}"
  ssl.verifyclient.activate = "enable"
  ssl.verifyclient.enforce = "enable"
  ssl.verifyclient.depth = 3
}}
"""

ACCESS = {
    "none": """
$REQUEST_HEADER["Authorization"] =~ "." {{ url.access-deny = ("") }}
""",
    "basic": """
auth.backend = "htpasswd"
auth.backend.htpasswd.userfile = "{folder}/htpasswd"
auth.require = ( "" => ("method" => "basic", "realm" => "dav", "require" => "valid-user") )
""",
    "bearer": """
$REQUEST_HEADER["Authorization"] != "Bearer {token}" {{ url.access-deny = ("") }}
""",
}


class Lighttpd(Server):
    """Plain http with a password."""

    name = "lighttpd"
    access = "basic"  # "bearer"; "none": who says who he is is refused
    scheme = "http"  # "https"

    def start(self):
        program, openssl = find_program("lighttpd"), find_program("openssl")
        self.ca = Authority(self.folder / "ca")
        certificate, key = self.ca.server()
        for name in ("data", "upload"):
            (self.folder / name).mkdir(exist_ok=True)
        digest = subprocess.run([openssl, "passwd", "-apr1", PASSWORD], capture_output=True, text=True, check=True)
        (self.folder / "htpasswd").write_text("%s:%s" % (USER, digest.stdout))
        self.port, self.tls_port, self.mutual_port = free_port(), free_port(), free_port()
        values = {"folder": self.folder, "port": self.port, "tls_port": self.tls_port,
                  "mutual_port": self.mutual_port, "certificate": certificate, "key": key,
                  "ca": self.ca.certificate, "token": TOKEN}
        values["access"] = ACCESS[self.access].format(**values)
        config = self.folder / "lighttpd.conf"
        config.write_text(CONFIG.format(**values))
        self.spawn(program, "-D", "-f", config)
        self.wait_port(self.port)

    def url(self, prefix):
        if self.scheme == "http":
            return "http://127.0.0.1:%d/%s" % (self.port, prefix)
        return "https://localhost:%d/%s?ca=%s" % (self.tls_port, prefix, self.ca.certificate)

    def curl(self, payload_hash=None):
        return "http://127.0.0.1:%d" % self.port, ['user = "%s:%s"' % (USER, PASSWORD)]

    def mutual_url(self, prefix):
        """Where a client certificate is asked for."""
        return "https://localhost:%d/%s?ca=%s" % (self.mutual_port, prefix, self.ca.certificate)

    def env(self):
        return {"basic": {"EPOCHFS_DAV_USER": USER, "EPOCHFS_DAV_PASSWORD": PASSWORD},
                "bearer": {"BEARER_TOKEN": TOKEN}, "none": {}}[self.access]


class LighttpdTls(Lighttpd):
    """https by a private authority, with a bearer token."""

    name = "lighttpd-tls"
    access = "bearer"
    scheme = "https"
