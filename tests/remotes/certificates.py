# SPDX-License-Identifier: Apache-2.0
"""A private certification authority, and what it signs: for servers and clients of tests.

    ca = Authority(folder)          # ca.certificate is what a client must trust
    certificate, key = ca.server()  # for 127.0.0.1 and localhost
    certificate, key = ca.client("alice")
    proxy = ca.proxy("alice")       # an RFC 3820 proxy: certificate, key and alice's own in one file
"""

import pathlib
import subprocess

from server import find_program


class Authority:
    def __init__(self, folder, name="T"):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.openssl = find_program("openssl")
        self.certificate = self.folder / "ca.pem"
        self.key = self.folder / "ca.key"
        self._run("req", "-x509", *self._new_key(self.key), "-days", "2", "-subj", "/O=%s/CN=%s CA" % (name, name),
                  "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                  "-out", self.certificate)

    def _run(self, *arguments):
        done = subprocess.run([self.openssl, *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    @staticmethod
    def _new_key(path):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", path]

    def _sign(self, name, subject, extensions, issuer=None):
        certificate, key = self.folder / (name + ".pem"), self.folder / (name + ".key")
        issuer_certificate, issuer_key = issuer or (self.certificate, self.key)
        if certificate.exists():
            return certificate, key
        request, config = self.folder / (name + ".csr"), self.folder / (name + ".ext")
        config.write_text(extensions)
        self._run("req", "-new", *self._new_key(key), "-subj", subject, "-out", request)
        self._run("x509", "-req", "-in", request, "-CA", issuer_certificate, "-CAkey", issuer_key, "-days", "2",
                  "-CAcreateserial", "-extfile", config, "-out", certificate)
        return certificate, key

    def server(self):
        return self._sign("server", "/O=%s/CN=localhost" % self.name,
                          "basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n"
                          "extendedKeyUsage=serverAuth,clientAuth\n")

    def client(self, user):
        return self._sign(user, "/O=%s/CN=%s" % (self.name, user),
                          "basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=clientAuth\n")

    def proxy(self, user):
        issuer = self.client(user)
        certificate, key = self._sign("%s-proxy" % user, "/O=%s/CN=%s/CN=4711" % (self.name, user),
                                      "keyUsage=critical,digitalSignature\n"
                                      "proxyCertInfo=critical,language:id-ppl-inheritAll\n", issuer)
        proxy = self.folder / ("%s-proxy-all.pem" % user)
        proxy.write_text(certificate.read_text() + key.read_text() + issuer[0].read_text())
        proxy.chmod(0o600)
        return proxy

    def hashed_folder(self):
        """A folder as X509_CERT_DIR names one: the authority under its hash, with a signing policy."""
        folder = self.folder / "hashed"
        folder.mkdir(exist_ok=True)
        (folder / "ca.pem").write_text(self.certificate.read_text())
        self._run("rehash", folder)
        return folder
