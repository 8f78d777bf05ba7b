# SPDX-License-Identifier: Apache-2.0
"""Processes of a protocol on a mount: each does the system calls that it is told, one line a command, one line an answer.

    protocol_worker.py SOCKET MOUNT ARENA

The first process is nobody's: it makes the others, so that a process that is started again has no other parent than before, and collects those that
ended. A process connects to SOCKET and says its name and pid. Commands are those of main.c; the answer is "0", or an errno.
"""

import ctypes
import errno
import hashlib
import json
import os
import signal
import socket
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PR_SET_CHILD_SUBREAPER, PROT_READ_WRITE, MAP_SHARED, RENAME_EXCHANGE, AT_FDCWD = 36, 3, 1, 2, -100


def checked(result):
    if result in (-1, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "a call of libc")
    return result


class Process:
    def __init__(self, name, address, mount, arena):
        self.name, self.address, self.mount, self.descriptors = name, address, mount, {}
        self.arena = os.open(arena, os.O_RDONLY)
        self.connect()

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(self.address)
        self.lines = self.socket.makefile("r", encoding="utf-8", newline="\n")
        self.say("%s %d" % (self.name, os.getpid()))

    def say(self, text):
        self.socket.sendall(text.encode() + b"\n")

    def live(self):
        for line in self.lines:
            what, *words = line.split()
            try:
                answer = getattr(self, "do_" + what)(*words) or 0
            except OSError as error:
                answer = error.errno
            self.say(str(answer))
        # Nobody tells it anything any more: the test is over.
        os._exit(0)

    def at(self, path):
        return os.path.join(self.mount, path)

    def fd(self, number):
        if number not in self.descriptors:
            raise OSError(errno.EBADF, number)
        return self.descriptors[number]

    # ---- descriptors

    def do_open(self, number, path, flags):
        self.descriptors[number] = os.open(self.at(path), int(flags), 0o644)

    def do_write(self, number, size, at, offset):
        fd, size, offset = self.fd(number), int(size), int(offset)
        data = os.pread(self.arena, size, int(at))
        if offset < 0:
            done = os.write(fd, data)
        else:
            done = os.pwrite(fd, data, offset)
        if done != size:
            raise OSError(errno.EIO, "a short write")

    def do_store(self, number, size, at, offset):
        fd, size, offset = self.fd(number), int(size), int(offset)
        data = os.pread(self.arena, size, int(at))
        address = checked(LIBC.mmap(None, offset + size, PROT_READ_WRITE, MAP_SHARED, fd, 0))
        ctypes.memmove(address + offset, data, size)
        checked(LIBC.munmap(address, offset + size))

    def do_truncate(self, number, size):
        os.ftruncate(self.fd(number), int(size))

    def do_fsync(self, number):
        os.fsync(self.fd(number))

    def do_close(self, number):
        os.close(self.fd(number))
        del self.descriptors[number]

    # ---- names

    def do_fsyncdir(self, path):
        fd = os.open(self.at(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def do_mkdir(self, path):
        os.mkdir(self.at(path))

    def do_rmdir(self, path):
        os.rmdir(self.at(path))

    def do_unlink(self, path):
        os.unlink(self.at(path))

    def do_rename(self, old, new):
        os.rename(self.at(old), self.at(new))

    def do_exchange(self, one, other):
        checked(LIBC.renameat2(AT_FDCWD, os.fsencode(self.at(one)), AT_FDCWD, os.fsencode(self.at(other)), RENAME_EXCHANGE))

    def do_link(self, old, new):
        os.link(self.at(old), self.at(new))

    def do_symlink(self, target, path):
        os.symlink(target, self.at(path))

    def do_chmod(self, path):
        os.chmod(self.at(path), 0o644)

    def do_utimens(self, path):
        os.utime(self.at(path))

    # ---- processes

    def do_fork(self, name):
        """The child says for itself that it is there."""
        if os.fork():
            return
        self.lines.close()
        self.socket.close()
        self.name = name
        self.connect()
        self.live()

    def do_reap(self, pid):
        """Of a child that is known to have ended."""
        os.waitpid(int(pid), 0)

    def do_exit(self, status):
        os._exit(int(status))

    def do_look(self):
        return json.dumps(dict(files_below(self.mount)))


def files_below(top):
    """A symbolic link is a file that has its target in it."""
    for folder, directories, names in os.walk(top):
        for path in (os.path.join(folder, name) for name in names + directories):
            if os.path.islink(path):
                data = os.fsencode(os.readlink(path))
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    data = file.read()
            else:
                continue
            yield os.path.relpath(path, top), [len(data), hashlib.sha1(data).hexdigest()]


def main():
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Who has ended is gone at once, also those whose parents ended before.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork():
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        Process(line.strip(), *sys.argv[1:]).live()


if __name__ == "__main__":
    main()
