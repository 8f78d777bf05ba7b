# SPDX-License-Identifier: Apache-2.0
"""Apache httpd with mod_dav_fs, over https with a password."""

import os
import subprocess

from certificates import Authority
from server import find_program, free_port
from unprivileged import UnprivilegedServer

USER, PASSWORD = "trainer", "se:cr%et pass"

MODULES = ("mpm_event", "authn_core", "authn_file", "authz_core", "authz_user", "auth_basic", "dav", "dav_fs",
           "dav_lock", "dir", "autoindex", "ssl", "mime")

CONFIG = """
{modules}
{user}
ServerRoot "{folder}"
ServerName localhost
PidFile "{folder}/pid"
ErrorLog "{folder}/error.log"
DefaultRuntimeDir "{folder}"
Listen 127.0.0.1:{port} https
DocumentRoot "{folder}/data"
TypesConfig /dev/null
StartServers 2
ThreadsPerChild 16
MaxRequestWorkers 64
KeepAlive On
MaxKeepAliveRequests 0
DavLockDB "{folder}/lock/db"
SSLEngine on
SSLCertificateFile "{certificate}"
SSLCertificateKeyFile "{key}"
<Directory "{folder}/data">
  Dav On
  Options Indexes
  AllowOverride None
  AuthType Basic
  AuthName dav
  AuthUserFile "{folder}/htpasswd"
  Require valid-user
</Directory>
"""

class Apache(UnprivilegedServer):
    name = "apache"
    optional = True
    user = "www-data"

    def start(self):
        program, openssl = find_program("apache2"), find_program("openssl")
        ca = Authority(self.folder / "ca")
        certificate, key = ca.server()
        self.certificate = ca.certificate
        user = self.make_home()
        for name in ("data", "lock"):
            (self.home / name).mkdir()
        digest = subprocess.run([openssl, "passwd", "-apr1", PASSWORD], capture_output=True, text=True, check=True)
        (self.home / "htpasswd").write_text("%s:%s" % (USER, digest.stdout))
        self.port = free_port()
        modules = "\n".join("LoadModule %s_module /usr/lib/apache2/modules/mod_%s.so" % (m, m) for m in MODULES)
        config = self.home / "apache.conf"
        config.write_text(CONFIG.format(modules=modules, folder=self.home, port=self.port,
                                        certificate=certificate, key=key,
                                        user="User %s\nGroup #%d" % (user.pw_name, user.pw_gid) if user else ""))
        self.give_home(user)
        self.spawn(program, "-D", "FOREGROUND", "-f", config, env={**os.environ, "LC_ALL": "C"})
        self.wait_port(self.port)

    def url(self, prefix):
        return "https://localhost:%d/%s?ca=%s" % (self.port, prefix, self.certificate)

    def env(self):
        return {"EPOCHFS_DAV_USER": USER, "EPOCHFS_DAV_PASSWORD": PASSWORD}
