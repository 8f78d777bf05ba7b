# SPDX-License-Identifier: Apache-2.0
"""The proxy that breaks things does so, and no more than it is asked."""

import http.client
import http.server
import threading

import pytest

from proxy import Proxy

BODY = bytes(range(256)) * 40


class Handler(http.server.BaseHTTPRequestHandler):
    """GET gives BODY; PUT gives back what came."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass

    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(BODY)

    def do_PUT(self):
        self.reply(self.rfile.read(int(self.headers["Content-Length"])))


@pytest.fixture
def proxy():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    with Proxy(server.server_address[1]) as running:
        yield running
    server.shutdown()
    server.server_close()


def ask(proxy, method="GET", body=None):
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
    try:
        connection.request(method, "/x", body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_all_passes_unless_it_is_told_otherwise(proxy):
    assert ask(proxy) == (200, BODY)
    assert ask(proxy, "PUT", BODY) == (200, BODY)
    proxy.slow(1 << 20)
    assert ask(proxy) == (200, BODY)
    assert proxy.answered("GET /x", 200) == ["GET /x"] * 2


def test_answers_hit_what_was_named(proxy):
    proxy.answer(503, {"Retry-After": "7"}, only="PUT ")
    assert ask(proxy) == (200, BODY)
    assert ask(proxy, "PUT", BODY) == (503, b"")
    proxy.heal()
    assert ask(proxy, "PUT", BODY) == (200, BODY)


def test_bodies_are_broken(proxy):
    proxy.damage()
    status, body = ask(proxy)
    assert status == 200 and len(body) == len(BODY) and body != BODY
    proxy.damage_uploads()
    status, body = ask(proxy, "PUT", BODY)
    assert len(body) == len(BODY) and body != BODY
    proxy.lie()
    assert ask(proxy) == (200, BODY[:len(BODY) // 2])
    proxy.shorten()
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        ask(proxy)


def test_away_and_back(proxy):
    proxy.refuse()
    with pytest.raises(ConnectionError):
        ask(proxy)
    proxy.heal()
    assert ask(proxy) == (200, BODY)
    proxy.lose("PUT ")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        ask(proxy, "PUT", BODY)
    assert proxy.answered("PUT", 200) == ["PUT /x"]
