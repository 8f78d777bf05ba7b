# SPDX-License-Identifier: Apache-2.0
"""A proxy on loopback in front of an HTTP server, which breaks on the wire what tests ask it to.

    with Proxy(server_port) as proxy:       # clients use 127.0.0.1:proxy.port
        proxy.answer(503, {"Retry-After": "1"}, only="PUT ")
        ...
        proxy.heal()

A fault holds for requests that come after it was set and whose "METHOD PATH" contains `only`, a
regular expression. proxy.log has each request that the server answered, or that the proxy answered
itself, in the order of the answers; proxy.seen counts requests as they come.
"""

import re
import socket
import struct
import threading
import time

PIECE = 16 << 10


class Gone(Exception):
    """The other side closed, or the proxy closes."""


class Stream:
    """A socket with a buffer, for heads and bodies of a known length."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""

    def fill(self):
        try:
            more = self.sock.recv(PIECE)
        except OSError as error:
            raise Gone from error
        if not more:
            raise Gone
        self.buffer += more

    def until(self, end):
        while end not in self.buffer:
            self.fill()
            if len(self.buffer) > 1 << 20 and end not in self.buffer:
                raise Gone
        at = self.buffer.index(end) + len(end)
        taken, self.buffer = self.buffer[:at], self.buffer[at:]
        return taken

    def head(self):
        return Head(self.until(b"\r\n\r\n"))

    def some(self, most):
        if not self.buffer:
            self.fill()
        taken, self.buffer = self.buffer[:most], self.buffer[most:]
        return taken

    def send(self, data):
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise Gone from error

    def close(self, cut=False):
        try:
            if cut:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


class Head:
    """The head of a request or an answer, as it came."""

    def __init__(self, raw):
        self.raw = raw
        lines = raw.decode("latin-1").split("\r\n")
        self.first = lines[0]
        self.headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if colon:
                self.headers[name.strip().lower()] = value.strip()

    @property
    def length(self):
        return int(self.headers.get("content-length", 0))

    @property
    def chunked(self):
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def status(self):
        return int(self.first.split(" ")[1])

    def with_length(self, length):
        return re.sub(rb"(?i)\r\ncontent-length:[^\r]*", b"\r\nContent-Length: %d" % length, self.raw)


class Fault:
    """What is done to requests: one of the proxy's verbs."""

    def __init__(self, kind, only="", **how):
        self.kind = kind
        self.only = re.compile(only)
        self.how = how

    def hits(self, request):
        return self.only.search(request)


class Proxy:
    """Listens while it is entered; every connection has a thread."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.port = None
        self.log = []  # (status, "METHOD PATH")
        self.seen = 0
        self.connections = 0
        self.lock = threading.Lock()  # guards all but the constants
        self.fault = None
        self.listener = None
        self.open = set()
        self.paid_at = 0.0

    # ---- what tests ask for

    def heal(self):
        """All is well again, also where nobody listened."""
        with self.lock:
            self.fault = None
        if not self.listener:
            self.listen()

    def refuse(self):
        """Away: connections are cut, new ones refused."""
        self.set_fault(Fault("swallow"))
        listener, self.listener = self.listener, None
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        self.acceptor.join()
        self.cut_all()

    def swallow(self, only=""):
        """Away: what comes is taken, and nothing is answered."""
        self.set_fault(Fault("swallow", only))

    def slow(self, rate):
        """So many bytes a second, all connections and both ways together."""
        self.set_fault(Fault("slow", rate=rate))

    def answer(self, status, headers=None, only="", text=b""):
        """This answer, from the proxy itself."""
        self.set_fault(Fault("answer", only, status=status, headers=headers or {}, text=text))

    def lose(self, only=""):
        """The server does what it is asked, and the answer is lost with the connection."""
        self.set_fault(Fault("lose", only))

    def stop_after(self, count, only):
        """The server does so many more of these. The last is not answered, and neither is anything that comes after it."""
        self.set_fault(Fault("count", only, left=count))

    def shorten(self, only="GET "):
        """Half of an answer's body comes, then the connection is cut."""
        self.set_fault(Fault("shorten", only))

    def lie(self, only="GET "):
        """The length is that of half the body, which comes whole."""
        self.set_fault(Fault("lie", only))

    def damage(self, only="GET "):
        """One bit of each answer's body is flipped."""
        self.set_fault(Fault("damage", only))

    def damage_uploads(self, only="PUT "):
        """One bit of each request's body is flipped."""
        self.set_fault(Fault("damage uploads", only))

    def answered(self, pattern, status=None):
        """The requests that were answered, of this pattern and status, in order."""
        with self.lock:
            return [what for got, what in self.log if re.search(pattern, what) and status in (None, got)]

    # ---- listening

    def set_fault(self, fault):
        with self.lock:
            self.fault = fault

    def listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port or 0))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        self.listener = listener
        self.acceptor = threading.Thread(target=self.accept, args=(listener,), daemon=True)
        self.acceptor.start()

    def accept(self, listener):
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def cut_all(self):
        with self.lock:
            streams, self.open = self.open, set()
        for stream in streams:
            try:
                stream.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self):
        self.listen()
        return self

    def __exit__(self, *_):
        if self.listener:
            self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
        self.cut_all()

    # ---- one connection

    def serve(self, sock):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client, server = Stream(sock), None
        with self.lock:
            self.connections += 1
            self.open.add(client)
        try:
            server = Stream(socket.create_connection(("127.0.0.1", self.server_port)))
            server.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.open.add(server)
            while True:
                self.one_request(client, server)
        except (Gone, OSError, ValueError, IndexError):
            pass
        finally:
            with self.lock:
                self.open -= {client, server}
            client.close(cut=True)
            if server:
                server.close()

    def fault_of(self, what):
        with self.lock:
            self.seen += 1
            if not self.fault or not self.fault.hits(what):
                return Fault("none")
            if self.fault.kind == "count":
                self.fault.how["left"] -= 1
                if self.fault.how["left"]:
                    return Fault("none")
                self.fault = Fault("swallow")
                return Fault("withhold")
            return self.fault

    def note(self, status, what):
        with self.lock:
            self.log.append((status, what))

    def one_request(self, client, server):
        head = client.head()
        method, path, _ = head.first.split(" ")
        what = "%s %s" % (method, path)
        fault = self.fault_of(what)
        if fault.kind == "swallow":
            self.answer_nothing(client)
        if fault.kind == "answer":
            self.note(fault.how["status"], what)
            self.answer_alone(client, head, **fault.how)
            return
        server.send(head.raw)
        answer = self.send_body(client, server, head, fault)
        self.give_answer(client, server, method, what, answer or server.head(), fault)

    def answer_alone(self, client, head, status, headers, text):
        waits = "expect" in head.headers
        if not waits:
            self.drop(client, head.length)
        lines = ["HTTP/1.1 %d Fault" % status, "Content-Length: %d" % len(text)]
        lines += ["%s: %s" % pair for pair in headers.items()]
        lines += ["Connection: close"] if waits else []
        client.send("\r\n".join(lines).encode() + b"\r\n\r\n" + text)
        if waits:
            self.end(client)

    @staticmethod
    def answer_nothing(client):
        """Until the client has enough of it."""
        while True:
            client.some(PIECE)

    @staticmethod
    def end(client):
        """Closes in order: what was sent is read, whatever the client still sends."""
        client.sock.shutdown(socket.SHUT_WR)
        Proxy.answer_nothing(client)

    @staticmethod
    def drop(client, length):
        while length:
            length -= len(client.some(min(length, PIECE)))

    def send_body(self, client, server, head, fault):
        """The request's body; gives the head of an answer that came instead of "100 Continue"."""
        if "expect" in head.headers:
            answer = server.head()
            if answer.status != 100:
                return answer
            client.send(answer.raw)
        self.copy(client, server, head.length, fault, fault.kind == "damage uploads")
        return None

    def give_answer(self, client, server, method, what, answer, fault):
        while answer.status < 200:
            answer = server.head()
        # Before it is passed on: whoever has the answer finds it noted.
        self.note(answer.status, what)
        bodyless = method == "HEAD" or answer.status in (204, 304)
        if fault.kind == "lose":
            raise Gone
        if fault.kind == "withhold":
            self.answer_nothing(client)
        length = 0 if bodyless else answer.length
        if fault.kind == "lie" and length > 1:
            client.send(answer.with_length(length // 2))
        else:
            client.send(answer.raw)
        if answer.chunked and not bodyless:
            self.copy_chunks(client, server, fault)
        elif fault.kind == "shorten" and length:
            self.copy(server, client, length // 2, fault)
            raise Gone
        else:
            self.copy(server, client, length, fault, fault.kind == "damage")
        if answer.headers.get("connection", "").lower() == "close":
            raise Gone

    def copy(self, source, target, length, fault, damaged=False):
        while length:
            piece = source.some(min(length, PIECE))
            length -= len(piece)
            if damaged:
                piece = bytes([piece[0] ^ 1]) + piece[1:]
                damaged = False
            self.pace(len(piece), fault)
            target.send(piece)

    def copy_chunks(self, client, server, fault):
        while True:
            line = server.until(b"\r\n")
            length = int(line.split(b";")[0], 16)
            client.send(line)
            self.copy(server, client, length + 2, fault)
            if not length:
                return

    def pace(self, count, fault):
        if fault.kind != "slow":
            return
        with self.lock:
            now = time.monotonic()
            wait = max(0.0, self.paid_at - now)
            self.paid_at = max(self.paid_at, now) + count / fault.how["rate"]
        time.sleep(wait)
