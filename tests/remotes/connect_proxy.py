# SPDX-License-Identifier: Apache-2.0
"""An HTTP proxy on loopback that makes tunnels (CONNECT), and nothing else, for who knows its password.

    with ConnectProxy() as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        ...
        proxy.asked     # "CONNECT host:port" or any other first line, as they came
        proxy.carried   # what clients sent: the heads, and the beginning of what went through the tunnels
"""

import base64
import socket
import threading

PIECE = 64 << 10
CARRIED_MAX = 1 << 20

USER, PASSWORD = "squid", "pr:oxy@pass"


class ConnectProxy:
    def __init__(self, refuse=None):
        self.refuse = refuse  # this status for every tunnel
        self.asked = []
        self.carried = b""
        self.lock = threading.Lock()  # guards the two above
        self.open = []

    @property
    def url(self):
        return "http://%s:pr%%3Aoxy%%40pass@127.0.0.1:%d" % (USER, self.port)

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for sock in self.open:
            self._shut(sock)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    @staticmethod
    def _shut(sock):
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _keep(self, data):
        with self.lock:
            self.carried = (self.carried + data)[:CARRIED_MAX]

    def _status(self, head):
        known = b"Proxy-Authorization: Basic " + base64.b64encode(("%s:%s" % (USER, PASSWORD)).encode())
        if known not in head.split(b"\r\n"):
            return 407
        return self.refuse or (200 if head.startswith(b"CONNECT ") else 405)

    def _serve(self, client):
        with client:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                byte = client.recv(1)
                if not byte:
                    return
                head += byte
            first = head.split(b"\r\n")[0].decode()
            with self.lock:
                self.asked.append(first.rsplit(" ", 1)[0])
            self._keep(head)
            status = self._status(head)
            # A head as proxies send it: nothing of it may be taken for the server's.
            client.sendall(b"HTTP/1.1 %d Said by the proxy\r\nRetry-After: 300\r\nETag: \"proxy\"\r\n" % status +
                           (b"\r\n" if status == 200 else b"Content-Length: 0\r\nConnection: close\r\n\r\n"))
            if status == 200:
                self._tunnel(client, *first.split(" ")[1].rsplit(":", 1))

    def _tunnel(self, client, host, port):
        with socket.create_connection((host, int(port))) as server:
            self.open.append(server)
            back = threading.Thread(target=self._copy, args=(server, client, False), daemon=True)
            back.start()
            self._copy(client, server, True)
            back.join()

    def _copy(self, source, target, keep):
        try:
            while True:
                piece = source.recv(PIECE)
                if not piece:
                    break
                if keep:
                    self._keep(piece)
                target.sendall(piece)
        except OSError:
            pass
        self._shut(source)
        self._shut(target)
