# SPDX-License-Identifier: Apache-2.0
"""nginx with its dav module and the dav-ext module, which adds PROPFIND and LOCK."""

import os
import pathlib
import pwd
import subprocess

from server import Server, ServerMissing, find_program, free_port

USER, PASSWORD = "trainer", "se:cr%et pass"
MODULE = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so"

CONFIG = """
load_module {module};
{user}
daemon off;
worker_processes 2;
pid {folder}/pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  default_type application/octet-stream;
  client_max_body_size 0;
  client_body_temp_path {folder}/temp/body;
  proxy_temp_path {folder}/temp/proxy;
  fastcgi_temp_path {folder}/temp/fastcgi;
  uwsgi_temp_path {folder}/temp/uwsgi;
  scgi_temp_path {folder}/temp/scgi;
  keepalive_requests 100000;
  dav_ext_lock_zone zone=locks:1m;
  server {{
    listen 127.0.0.1:{port};
    root {folder}/data;
    auth_basic dav;
    auth_basic_user_file {folder}/htpasswd;
    location / {{
      dav_methods PUT DELETE MKCOL COPY MOVE;
      dav_ext_methods PROPFIND OPTIONS LOCK UNLOCK;
      dav_ext_lock zone=locks;
      create_full_put_path {full_path};
      min_delete_depth 0;
    }}
  }}
}}
"""


class Nginx(Server):
    name = "nginx"
    optional = True
    full_path = "off"  # whether PUT makes parents

    def start(self):
        program, openssl = find_program("nginx"), find_program("openssl")
        if not os.path.exists(MODULE):
            raise ServerMissing("libnginx-mod-http-dav-ext is not installed")
        for name in ("data", "temp"):
            (pathlib.Path(self.folder) / name).mkdir(exist_ok=True)
        digest = subprocess.run([openssl, "passwd", "-apr1", PASSWORD], capture_output=True, text=True, check=True)
        (self.folder / "htpasswd").write_text("%s:%s" % (USER, digest.stdout))
        self.port = free_port()
        user = "user %s;" % pwd.getpwuid(0).pw_name if os.getuid() == 0 else ""
        config = self.folder / "nginx.conf"
        config.write_text(CONFIG.format(module=MODULE, user=user, folder=self.folder, port=self.port,
                                        full_path=self.full_path))
        self.spawn(program, "-p", self.folder, "-c", config, "-e", self.folder / "error.log")
        self.wait_port(self.port)

    def url(self, prefix):
        return "http://127.0.0.1:%d/%s" % (self.port, prefix)

    def env(self):
        return {"EPOCHFS_DAV_USER": USER, "EPOCHFS_DAV_PASSWORD": PASSWORD}
