# SPDX-License-Identifier: Apache-2.0
"""A proxy that changes one byte in the bodies of the next large uploads, and counts what the server
says to that."""

import re
import socket
import threading

LARGE = 1 << 20


class DamagingProxy:
    """`with DamagingProxy(server's port) as proxy:`; proxy.damage uploads are damaged, counting down."""

    def __init__(self, target):
        self.target = target
        self.damage = 0
        self.refusals = 0  # answers of 400
        self.lock = threading.Lock()

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target))
            threading.Thread(target=self._up, args=(client, server), daemon=True).start()
            threading.Thread(target=self._down, args=(server, client), daemon=True).start()

    def _up(self, client, server):
        """Requests, head by head and body by body."""
        reader = client.makefile("rb")
        try:
            while True:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = reader.readline()
                    if not line:
                        return
                    head += line
                server.sendall(head)
                length = re.search(rb"(?im)^content-length: *(\d+)", head)
                self._body(reader, server, int(length[1]) if length else 0)
        except OSError:
            pass
        finally:
            for s in (client, server):
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def _body(self, reader, server, left):
        with self.lock:
            damage = left >= LARGE and self.damage > 0
            self.damage -= damage
        while left:
            piece = reader.read1(min(left, 1 << 16))
            if not piece:
                raise OSError("cut off")
            if damage:
                piece = bytes([piece[0] ^ 1]) + piece[1:]
                damage = False
            server.sendall(piece)
            left -= len(piece)

    def _down(self, server, client):
        try:
            while True:
                piece = server.recv(1 << 16)
                if not piece:
                    break
                with self.lock:
                    self.refusals += piece.startswith(b"HTTP/1.1 400 ")
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass
