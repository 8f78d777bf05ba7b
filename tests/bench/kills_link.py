# SPDX-License-Identifier: Apache-2.0
"""A link to a server on loopback, which stops when so many bytes have gone to the server: the moment in which a machine that uploads is lost."""

import contextlib
import socket
import threading

PIECE = 64 << 10


class Link:
    """Connections to 127.0.0.1:`port` of this go to that port of the server."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.free = threading.Event()
        self.free.set()
        self.reached = threading.Event()
        self.lock = threading.Lock()
        self.left = None  # bytes to the server until it stops; None: it does not
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def stop_after(self, count):
        with self.lock:
            self.reached.clear()
            self.left = count

    def heal(self):
        with self.lock:
            self.left = None
        self.free.set()

    def close(self):
        self.heal()
        self.listener.close()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.server_port))
                for source, target, up in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self.carry, args=(source, target, up), daemon=True).start()

    def carry(self, source, target, up):
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE):
                if up:
                    data = self.pay(target, data)
                self.free.wait()
                target.sendall(data)
        for side in (source, target):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def pay(self, target, data):
        """Sends what may still go when the link stops in this piece; what is left of it."""
        with self.lock:
            if self.left is None or self.left > len(data):
                self.left = None if self.left is None else self.left - len(data)
                return data
            now, self.left = self.left, None
            self.free.clear()
        target.sendall(data[:now])
        self.reached.set()
        return data[now:]
