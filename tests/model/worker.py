# SPDX-License-Identifier: Apache-2.0
"""Processes that use the mount: each does one operation at a time and tells what came of it.

A worker is forked from the runner, which itself never touches the mount, so a request that hangs hangs a worker only.
Operations and their arguments are those of generate.py; results are ("ok", value) or ("error", name of the errno).
"""

import ctypes
import errno
import marshal
import mmap
import os
import platform
import select
import shutil
import signal
import socket
import stat
import struct
import time

LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH_HOLE = 1, 2  # of fallocate(2)
BLOCK = 4096  # of O_DIRECT

# Linux AIO: system calls, and struct iocb.
IO_SETUP, IO_SUBMIT, IO_GETEVENTS, IO_DESTROY = (0, 2, 4, 1) if platform.machine() == "aarch64" else (206, 209, 208, 207)
IOCB, IO_EVENT = struct.Struct("=QIIHhIQQqQII"), struct.Struct("=QQqq")
IOCB_CMD_PWRITE = 1

CHUNK = 1 << 16  # what a writer that is killed in the middle writes at a time


def pattern(seed, length):
    """Bytes that tell by whom they were written and, nearly, where they belong."""
    word = b"%d." % seed
    return (word * (length // len(word) + 1))[:length]


def open_flags(letters):
    """r, w, or + for both; a appends, c creates, x only if there is none, t truncates."""
    access = {"r": os.O_RDONLY, "w": os.O_WRONLY, "+": os.O_RDWR}[letters[0]]
    more = {"a": os.O_APPEND, "c": os.O_CREAT, "x": os.O_EXCL | os.O_CREAT, "t": os.O_TRUNC}
    for letter in letters[1:]:
        access |= more[letter]
    return access


def send(sock, message):
    data = marshal.dumps(message)
    sock.sendall(struct.pack("=I", len(data)) + data)


def receive_exactly(sock, size):
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def receive(sock):
    return marshal.loads(receive_exactly(sock, struct.unpack("=I", receive_exactly(sock, 4))[0]))


def fallocate(fd, mode, offset, length):
    if LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def syscall(number, *arguments):
    result = LIBC.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "syscall %d" % number)
    return result


def async_pwrite(fd, data, offset):
    """Submits the write, and waits until it is done."""
    memory = ctypes.create_string_buffer(data, len(data))
    request = ctypes.create_string_buffer(IOCB.pack(0, 0, 0, IOCB_CMD_PWRITE, 0, fd, ctypes.addressof(memory), len(data), offset, 0, 0, 0))
    context, event = ctypes.c_ulong(0), ctypes.create_string_buffer(IO_EVENT.size)
    one = ctypes.c_long(1)
    syscall(IO_SETUP, one, ctypes.byref(context))
    try:
        syscall(IO_SUBMIT, context, one, ctypes.byref(ctypes.c_void_p(ctypes.addressof(request))))
        syscall(IO_GETEVENTS, context, one, one, event, None)
    finally:
        syscall(IO_DESTROY, context)
    written = IO_EVENT.unpack(event.raw)[2]
    if written < 0:
        raise OSError(-written, "io_getevents")
    return written


# ---- what a worker does


def describe(path, st):
    """What is compared of one file: [type, mode, nlink, inode, mtime, content or target, xattrs]."""
    kind = {stat.S_IFDIR: "dir", stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFIFO: "fifo"}[stat.S_IFMT(st.st_mode)]
    xattrs, content = {}, None
    if kind == "link":
        content = os.readlink(path)
    else:
        xattrs = {n: os.getxattr(path, n) for n in os.listxattr(path)
                  if kind != "fifo" and not n.startswith("user.epochfs.")}
    if kind == "file":
        fd = os.open(path, os.O_RDONLY)
        try:
            content = read_all(fd, 0)
        finally:
            os.close(fd)
        if len(content) != st.st_size:
            content = "stat says %d bytes, read gives %d" % (st.st_size, len(content))
    return [kind, stat.S_IMODE(st.st_mode), st.st_nlink, st.st_ino, st.st_mtime_ns, content, xattrs]


def read_all(fd, offset):
    parts = []
    while True:
        part = os.pread(fd, 1 << 20, offset)
        if not part:
            return b"".join(parts)
        parts.append(part)
        offset += len(part)


def walk(top):
    tree = {".": describe(top, os.lstat(top))}
    pending = [""]
    while pending:
        folder = pending.pop()
        for name in os.listdir(os.path.join(top, folder)):
            path = os.path.join(folder, name)
            tree[path] = describe(os.path.join(top, path), os.lstat(os.path.join(top, path)))
            if tree[path][0] == "dir":
                pending.append(path)
    return tree


class Worker:
    def __init__(self, sock, mount, folder, first):
        self.sock = sock
        self.first = first  # epochs before this one are of nobody's interest
        self.epochs = os.path.join(mount, ".epochs")
        self.top = os.path.join(mount, folder)
        self.folder = folder
        self.slots = {}

    def at(self, path):
        return os.path.join(self.top, path)

    def serve(self):
        while True:
            try:
                name, *arguments = receive(self.sock)
            except EOFError:
                os._exit(0)
            try:
                result = ("ok", getattr(self, "do_" + name)(*arguments))
            except OSError as error:
                result = ("error", errno.errorcode.get(error.errno, str(error)))
            send(self.sock, result)

    # ---- descriptors

    def do_open(self, slot, path, letters, mode):
        fd = os.open(self.at(path), open_flags(letters) | os.O_NONBLOCK, mode)
        kind = os.fstat(fd).st_mode
        if not stat.S_ISREG(kind):
            os.close(fd)
            return "dir" if stat.S_ISDIR(kind) else "fifo"
        self.slots[slot] = fd
        return "file"

    def do_write(self, slot, seed, length):
        return os.write(self.slots[slot], pattern(seed, length))

    def do_pwrite(self, slot, seed, length, offset):
        return os.pwrite(self.slots[slot], pattern(seed, length), offset)

    def do_async(self, slot, seed, length, offset):
        return async_pwrite(self.slots[slot], pattern(seed, length), offset)

    def do_read(self, slot):
        return read_all(self.slots[slot], 0)

    def do_ftruncate(self, slot, size):
        os.ftruncate(self.slots[slot], size)

    def do_fallocate(self, slot, offset, length):
        os.posix_fallocate(self.slots[slot], offset, length)

    def do_reserve(self, slot, offset, length):
        """Preallocated, the size stays."""
        fallocate(self.slots[slot], KEEP_SIZE, offset, length)

    def do_punch(self, slot, offset, length):
        fallocate(self.slots[slot], KEEP_SIZE | PUNCH_HOLE, offset, length)

    def do_copy(self, source, target, length, offset_in, offset_out):
        done = 0
        while done < length:
            n = os.copy_file_range(self.slots[source], self.slots[target], length - done, offset_in + done, offset_out + done)
            if n == 0:
                break
            done += n
        return done

    def do_direct(self, path, seed, blocks, at):
        """Opened, written past the page cache, closed."""
        fd = os.open(self.at(path), os.O_RDWR | os.O_DIRECT | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            with mmap.mmap(-1, blocks * BLOCK) as memory:  # aligned as O_DIRECT wants it
                memory[:] = pattern(seed, blocks * BLOCK)
                return os.pwrite(fd, memory, at * BLOCK)
        finally:
            os.close(fd)

    def do_mapwrite(self, slot, seed, length, offset, sync):
        """Through a shared mapping that is gone before the descriptor is."""
        fd = self.slots[slot]
        with mmap.mmap(fd, os.fstat(fd).st_size) as memory:
            memory[offset:offset + length] = pattern(seed, length)
            if sync:
                memory.flush()

    def do_fsync(self, slot):
        os.fsync(self.slots[slot])

    def do_fstat(self, slot):
        return os.fstat(self.slots[slot]).st_size

    def do_close(self, slot):
        os.close(self.slots.pop(slot))

    def do_dup(self, slot, other):
        self.slots[other] = os.dup(self.slots[slot])

    def do_fork(self, _):
        """A child with the same descriptors; the runner gets its end of the child's socket."""
        mine, childs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            mine.close()
            self.sock.close()
            self.sock = childs
            self.serve()
        childs.close()
        socket.send_fds(self.sock, [b"f"], [mine.fileno()])
        mine.close()
        return pid

    def do_end(self, how):
        if how == "exit":
            os._exit(0)
        if how == "fail":
            os._exit(3)
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "term": signal.SIGTERM}[how])
        time.sleep(60)

    def do_torn(self, slot, seed, chunks, _):
        """Writes and writes, until the runner kills it."""
        for i in range(chunks):
            os.write(self.slots[slot], pattern(seed + i, CHUNK))
        time.sleep(600)

    # ---- names

    def do_mkdir(self, path, mode):
        os.mkdir(self.at(path), mode)

    def do_rmdir(self, path):
        os.rmdir(self.at(path))

    def do_unlink(self, path):
        os.unlink(self.at(path))

    def do_rename(self, old, new):
        os.rename(self.at(old), self.at(new))

    def do_link(self, old, new):
        os.link(self.at(old), self.at(new), follow_symlinks=False)

    def do_symlink(self, target, path):
        os.symlink(target, self.at(path))

    def do_mkfifo(self, path):
        os.mkfifo(self.at(path), 0o644)

    def do_truncate(self, path, size):
        os.truncate(self.at(path), size)

    def do_chmod(self, path, mode):
        os.chmod(self.at(path), mode)

    def do_utime(self, path, when):
        os.utime(self.at(path), ns=(when, when), follow_symlinks=False)

    def do_setxattr(self, path, name, seed, length):
        os.setxattr(self.at(path), name, pattern(seed, length))

    def do_removexattr(self, path, name):
        os.removexattr(self.at(path), name)

    def do_look(self, path):
        """What this process sees under the name: the size that stat says, and the bytes."""
        size = os.stat(self.at(path)).st_size
        fd = os.open(self.at(path), os.O_RDONLY | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return None
            return size, read_all(fd, 0)
        finally:
            os.close(fd)

    # ---- the whole, and .epochs

    def do_begin(self):
        """A directory for this history, sealed: the number of that epoch, and what is torn already."""
        os.mkdir(self.top, 0o755)
        name = "begin-" + self.folder
        self.first = self.do_seal(name)
        self.do_untag(name)
        return self.first, self.do_torn_bytes()

    def do_clean(self):
        shutil.rmtree(self.top)
        for name in os.listdir(self.epochs):
            if not name.isdigit() and name not in ("latest", "current", "torn"):
                self.do_untag(name)

    def do_check(self):
        return walk(self.top)

    def do_numbers(self):
        return sorted(int(n) for n in os.listdir(self.epochs) if n.isdigit() and int(n) >= self.first)

    def do_epochs(self):
        """[numbers with what the epoch says of being complete], tags, latest, current."""
        while True:
            names = os.listdir(self.epochs)
            numbers, tags = [], {}
            for name in names:
                path = os.path.join(self.epochs, name)
                if name.isdigit() and int(name) >= self.first:
                    numbers.append((int(name), os.getxattr(path, "user.epochfs.complete").decode()))
                elif name != "torn" and not name.isdigit():
                    tags[name] = int(os.readlink(path))
            # One that was sealed by itself may be listed meanwhile.
            if os.listdir(self.epochs) == names:
                return sorted(numbers), tags, tags.pop("latest", 0), tags.pop("current", 0)

    def do_epoch(self, number):
        top = os.path.join(self.epochs, "%06d" % number, self.folder)
        os.stat(os.path.dirname(top))
        return walk(top) if os.path.isdir(top) else None

    def do_torn_bytes(self):
        found = []
        for name in sorted(os.listdir(os.path.join(self.epochs, "torn")), key=lambda n: int(n.split("-")[0])):
            with open(os.path.join(self.epochs, "torn", name), "rb") as f:
                found.append((name.split("-", 1)[1], f.read()))
        return found

    def do_seal(self, name):
        os.mkdir(os.path.join(self.epochs, name))
        return int(os.readlink(os.path.join(self.epochs, name)))

    def do_wait(self):
        fd = os.open(self.epochs, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        return self.do_numbers()

    def do_rollback(self, number):
        temporary = os.path.join(self.epochs, ".current.new")
        os.symlink(str(number), temporary)
        os.rename(temporary, os.path.join(self.epochs, "current"))
        return self.do_numbers()

    def do_tag(self, number, name):
        os.symlink(str(number), os.path.join(self.epochs, name))

    def do_untag(self, name):
        os.unlink(os.path.join(self.epochs, name))

    def do_drop(self, number):
        os.rmdir(os.path.join(self.epochs, "%06d" % number))


# ---- the runner's side


class Hang(Exception):
    """A worker does not answer."""


class Process:
    """A worker as the runner has it."""

    def __init__(self, pid, sock, child):
        self.pid = pid
        self.sock = sock
        self.child = child  # of the runner: to be waited for
        self.pidfd = os.pidfd_open(pid)

    def ask(self, name, arguments):
        send(self.sock, (name, *arguments))

    def answer(self, limit):
        """What came of it; None where the process ended instead."""
        ready, _, _ = select.select([self.sock], [], [], limit)
        if not ready:
            raise Hang("worker %d does not answer" % self.pid)
        try:
            return tuple(receive(self.sock))
        except (EOFError, ConnectionError):
            return None

    def take_fork(self, limit):
        """The child that this process is told to make."""
        ready, _, _ = select.select([self.sock], [], [], limit)
        if not ready:
            raise Hang("worker %d does not fork" % self.pid)
        _, (fd,), _, _ = socket.recv_fds(self.sock, 1, 1)
        _, pid = self.answer(limit)
        return Process(pid, socket.socket(fileno=fd), False)

    def kill(self):
        try:
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def wait(self, limit):
        """Until it has ended: all its descriptors are closed then."""
        if not select.select([self.pidfd], [], [], limit)[0]:
            raise Hang("worker %d does not end" % self.pid)
        if self.child:
            os.waitpid(self.pid, 0)
        os.close(self.pidfd)
        self.sock.close()


def start(mount, folder, first, others):
    """Forks a worker. `others`: the workers there are, whose sockets are not for this one."""
    mine, childs = socket.socketpair()
    pid = os.fork()
    if pid:
        childs.close()
        return Process(pid, mine, True)
    try:
        for other in others:
            other.sock.close()
        mine.close()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.umask(0o022)
        Worker(childs, mount, folder, first).serve()
    finally:
        os._exit(70)
