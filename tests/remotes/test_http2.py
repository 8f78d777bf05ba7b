# SPDX-License-Identifier: Apache-2.0
"""HTTP/2, where a server offers it: nginx in front of Ceph RGW."""

import os
import pwd

import pytest

from certificates import Authority
from server import Server, ServerMissing, find_program, free_port
from story import check_files, save

CONFIG = """
{user}
daemon off;
pid {folder}/pid;
events {{ worker_connections 128; }}
http {{
  log_format protocol "$server_protocol $request_method";
  access_log {folder}/access.log protocol;
  client_max_body_size 0;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl http2;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    location / {{
      proxy_pass {behind};
      proxy_set_header Host $http_host;
      proxy_http_version 1.1;
      proxy_request_buffering off;
    }}
  }}
}}
"""


class Front(Server):
    """nginx that speaks HTTP/2 and passes all on to `behind`."""

    name = "nginx-http2"

    def __init__(self, folder, behind):
        super().__init__(folder)
        self.behind = behind

    def start(self):
        program = find_program("nginx")
        self.ca = Authority(self.folder / "ca")
        certificate, key = self.ca.server()
        self.port = free_port()
        config = self.folder / "nginx.conf"
        config.write_text(CONFIG.format(
            user="user %s;" % pwd.getpwuid(0).pw_name if os.getuid() == 0 else "", folder=self.folder, port=self.port,
            certificate=certificate, key=key, behind=self.behind))
        self.spawn(program, "-p", self.folder, "-c", config, "-e", self.folder / "error.log")
        self.wait_port(self.port)


@pytest.fixture
def passthrough():
    return "auto"


@pytest.mark.parametrize("server", ["rgw"], indirect=True)
def test_http_2_is_spoken_where_it_is_offered(server, make_volume, tmp_path_factory, monkeypatch):
    for name, value in server.env().items():
        monkeypatch.setenv(name, value)
    try:
        front = Front(tmp_path_factory.mktemp("nginx"), server.endpoint).__enter__()
    except ServerMissing as error:
        pytest.skip(str(error))
    try:
        volume = make_volume()
        volume.url = "s3://%s/http2?endpoint=https://localhost:%d&ca-file=%s" % (
            server.bucket, front.port, front.ca.certificate)
        volume.mount()
        files = {"a": save(volume, "a", 40 << 20)}
        volume.remount(empty_cache=True)
        check_files(volume.path, files)
        volume.unmount()
        spoken = set((front.folder / "access.log").read_text().splitlines())
    finally:
        front.__exit__(None, None, None)
    assert {"HTTP/2.0 PUT", "HTTP/2.0 GET"} <= spoken
    assert not [line for line in spoken if not line.startswith("HTTP/2.0 ")]
