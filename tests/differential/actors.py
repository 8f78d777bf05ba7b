# SPDX-License-Identifier: Apache-2.0
"""Processes that do one system call after the other below a directory, and say what came of each.

Of every actor there are two: one works on an ordinary directory, its twin on the mount. Neither knows which it is. A
result is ("ok", value), ("error", name of the errno), or ("broken", text) where the actor itself is at fault.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import pickle
import platform
import random
import signal
import socket
import struct
import sys
import traceback
from concurrent.futures.thread import ThreadPoolExecutor

import storms
import trees

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400
BLOCK = 4096  # of O_DIRECT
SETGROUPS = {"x86_64": 116, "aarch64": 159}.get(platform.machine())
FLAGS = {"rdonly": os.O_RDONLY, "wronly": os.O_WRONLY, "rdwr": os.O_RDWR, "creat": os.O_CREAT, "excl": os.O_EXCL,
         "trunc": os.O_TRUNC, "append": os.O_APPEND, "direct": os.O_DIRECT, "nofollow": os.O_NOFOLLOW, "sync": os.O_SYNC,
         "directory": os.O_DIRECTORY, "tmpfile": os.O_TMPFILE, "nonblock": os.O_NONBLOCK, "path": os.O_PATH}


class Died(Exception):
    """An actor ended, or gave no answer."""


def checked(result):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def content(seed, length):
    """Half of all content is random, half compresses."""
    draw = random.Random(seed)
    if seed % 2:
        return draw.randbytes(length)
    word = draw.randbytes(37)
    return (word * (length // 37 + 1))[:length]


def send(sock, message):
    data = pickle.dumps(message)
    sock.sendall(struct.pack("=Q", len(data)) + data)


def receive(sock):
    head = sock.recv(8, socket.MSG_WAITALL)
    if len(head) < 8:
        raise Died("it ended")
    data = bytearray()
    left = struct.unpack("=Q", head)[0]
    while left:
        part = sock.recv(min(left, 1 << 20))
        if not part:
            raise Died("it ended")
        data += part
        left -= len(part)
    return pickle.loads(data)


def identify(uid, gid, groups):
    """Makes the whole process another user's."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def impersonate(uid, gid, groups):
    """Makes this thread another user's, for files alone (setfsuid(2)); it has its own list of groups, too."""
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if uid == 0:
        LIBC.setfsuid(uid)
    LIBC.setfsgid(gid)
    checked(LIBC.syscall(SETGROUPS, len(groups), array))
    LIBC.setfsuid(uid)
    if LIBC.setfsuid(-1) != uid:
        raise RuntimeError("setfsuid is not permitted")


class Actor:
    """What one process has open, and the operations that it knows: op_NAME."""

    def __init__(self, root):
        self.root = root
        self.fds = {}
        self.maps = {}
        self.direct = set()

    def do(self, name, arguments):
        try:
            return ("ok", getattr(self, "op_" + name)(*arguments))
        except OSError as error:
            return ("error", errno.errorcode.get(error.errno, str(error.errno)))

    # ---- descriptors

    def op_open(self, slot, path, flags, mode):
        value = 0
        for flag in flags:
            value |= FLAGS[flag]
        self.fds[slot] = os.open(path, value, mode)
        if "direct" in flags:
            self.direct.add(slot)

    def op_close(self, slot):
        self.direct.discard(slot)
        os.close(self.fds.pop(slot))

    def op_pread(self, slot, length, offset):
        if slot not in self.direct:
            return os.pread(self.fds[slot], length, offset)
        buffer = mmap.mmap(-1, self.aligned(length))
        return buffer[:os.preadv(self.fds[slot], [buffer], offset // BLOCK * BLOCK)]

    def op_read(self, slot, length):
        if slot not in self.direct:
            return os.read(self.fds[slot], length)
        self.align(slot)
        buffer = mmap.mmap(-1, self.aligned(length))
        return buffer[:os.readv(self.fds[slot], [buffer])]

    def op_pwrite(self, slot, seed, length, offset):
        if slot not in self.direct:
            return os.pwrite(self.fds[slot], content(seed, length), offset)
        buffer = mmap.mmap(-1, self.aligned(length))
        buffer[:] = content(seed, len(buffer))
        return os.pwritev(self.fds[slot], [buffer], offset // BLOCK * BLOCK)

    def op_write(self, slot, seed, length):
        if slot not in self.direct:
            return os.write(self.fds[slot], content(seed, length))
        self.align(slot)
        buffer = mmap.mmap(-1, self.aligned(length))
        buffer[:] = content(seed, len(buffer))
        return os.writev(self.fds[slot], [buffer])

    def align(self, slot):
        """What was read up to the end of the file leaves off somewhere."""
        os.lseek(self.fds[slot], os.lseek(self.fds[slot], 0, os.SEEK_CUR) // BLOCK * BLOCK, os.SEEK_SET)

    @staticmethod
    def aligned(length):
        return max(length // BLOCK, 1) * BLOCK

    def op_seek(self, slot, offset, whence):
        return os.lseek(self.fds[slot], offset // BLOCK * BLOCK if slot in self.direct else offset, whence)

    def op_holes(self, slot):
        """SEEK_DATA and SEEK_HOLE may find less holes than there are, but no data in one. Whoever only writes sees no data, nor who
        may read blocks alone."""
        fd = self.fds[slot]
        reads = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY and slot not in self.direct
        end = os.lseek(fd, 0, os.SEEK_END)
        place = 0
        while place < end:
            try:
                data = os.lseek(fd, place, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                data = end
            at = place
            while reads and at < data:
                part = os.pread(fd, min(1 << 20, data - at), at)
                if not part or part.strip(b"\0"):
                    return "a hole from %d to %d holds data" % (place, data)
                at += len(part)
            place = end if data == end else os.lseek(fd, data, os.SEEK_HOLE)
        os.lseek(fd, 0, os.SEEK_SET)
        return end

    def op_ftruncate(self, slot, length):
        os.ftruncate(self.fds[slot], length)

    def op_fallocate(self, slot, mode, offset, length):
        checked(LIBC.fallocate(self.fds[slot], mode, ctypes.c_long(offset), ctypes.c_long(length)))

    def op_copy(self, source, from_, target, to, length):
        return os.copy_file_range(self.fds[source], self.fds[target], length, from_, to)

    def op_sendfile(self, target, source, from_, length):
        return os.sendfile(self.fds[target], self.fds[source], from_, length)

    def op_fsync(self, slot):
        os.fsync(self.fds[slot])

    def op_fdatasync(self, slot):
        os.fdatasync(self.fds[slot])

    def op_fstat(self, slot):
        return trees.facts(os.fstat(self.fds[slot]))

    def op_fchmod(self, slot, mode):
        os.fchmod(self.fds[slot], mode)

    def op_fchown(self, slot, uid, gid):
        os.fchown(self.fds[slot], uid, gid)

    def op_futimens(self, slot, times):
        self.utimens(self.fds[slot], None, times, 0)

    def op_fsetxattr(self, slot, name, seed, length, flags):
        os.setxattr(self.fds[slot], name, content(seed, length), flags)

    def op_fgetxattr(self, slot, name):
        return os.getxattr(self.fds[slot], name)

    def op_fremovexattr(self, slot, name):
        os.removexattr(self.fds[slot], name)

    def op_same(self, slot, path):
        return os.path.samestat(os.fstat(self.fds[slot]), os.stat(path))

    def op_flock(self, slot, how):
        fcntl.flock(self.fds[slot], how | fcntl.LOCK_NB)

    def op_lock(self, slot, how, start, length):
        fcntl.lockf(self.fds[slot], how if how == fcntl.LOCK_UN else how | fcntl.LOCK_NB, length, start)

    def op_linkfd(self, slot, path):
        """Gives a file without a name (O_TMPFILE) one."""
        checked(LIBC.linkat(AT_FDCWD, b"/proc/self/fd/%d" % self.fds[slot], AT_FDCWD, os.fsencode(path), AT_SYMLINK_FOLLOW))

    def op_fileno(self, slot):
        return self.fds[slot]

    # ---- mappings. Not of the module mmap: that keeps a descriptor of its own.

    def op_mmap(self, number, slot, length, how):
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if "w" in how else 0)
        flags = mmap.MAP_PRIVATE if "p" in how else mmap.MAP_SHARED
        address = LIBC.mmap(None, length, prot, flags, self.fds[slot], 0)
        if address == ctypes.c_void_p(-1).value:
            checked(-1)
        self.maps[number] = (address, length)

    def op_mget(self, number, offset, length):
        return ctypes.string_at(self.maps[number][0] + offset, length)

    def op_mput(self, number, seed, offset, length):
        ctypes.memmove(self.maps[number][0] + offset, content(seed, length), length)

    def op_msync(self, number):
        checked(LIBC.msync(ctypes.c_void_p(self.maps[number][0]), ctypes.c_size_t(self.maps[number][1]), 4))

    def op_munmap(self, number):
        address, length = self.maps.pop(number)
        checked(LIBC.munmap(ctypes.c_void_p(address), ctypes.c_size_t(length)))

    # ---- names

    def op_stat(self, path):
        return trees.facts(os.stat(path))

    def op_lstat(self, path):
        return trees.facts(os.lstat(path))

    def op_access(self, path, mode):
        checked(LIBC.access(os.fsencode(path), mode))

    def op_mkdir(self, path, mode):
        os.mkdir(path, mode)

    def op_mkdirs(self, path):
        os.makedirs(path)

    def op_rmdir(self, path):
        os.rmdir(path)

    def op_unlink(self, path):
        os.unlink(path)

    def op_rename(self, old, new, flags):
        checked(LIBC.renameat2(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags))

    def op_link(self, old, new, follow):
        checked(LIBC.linkat(AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), AT_SYMLINK_FOLLOW if follow else 0))

    def op_symlink(self, target, path):
        os.symlink(target, path)

    def op_readlink(self, path):
        return os.readlink(path)

    def op_mknod(self, path, mode, device):
        os.mknod(path, mode, os.makedev(*device))

    def op_readdir(self, path):
        with os.scandir(path) as entries:
            return sorted((e.name, "dir" if e.is_dir(follow_symlinks=False) else "link" if e.is_symlink() else
                           "file" if e.is_file(follow_symlinks=False) else "other") for e in entries)

    def op_many(self, path, count):
        for number in range(count):
            os.close(os.open("%s/m%03d" % (path, number), os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644))

    def op_few(self, path, step):
        for name in sorted(n for n in os.listdir(path) if n.startswith("m"))[::step]:
            os.unlink("%s/%s" % (path, name))

    # ---- attributes

    def op_truncate(self, path, length):
        os.truncate(path, length)

    def op_chmod(self, path, mode):
        os.chmod(path, mode)

    def op_chown(self, path, uid, gid):
        os.lchown(path, uid, gid)

    def op_utimens(self, path, times):
        self.utimens(AT_FDCWD, os.fsencode(path), times, 0x100)

    @staticmethod
    def utimens(fd, path, times, flags):
        """Each of TIMES is nanoseconds, "now" or "omit"."""
        values = []
        for time in times:
            values += [0, {"now": (1 << 30) - 1, "omit": (1 << 30) - 2}[time]] if isinstance(time, str) else divmod(time, 10**9)
        array = (ctypes.c_long * 4)(*values)
        checked(LIBC.syscall({"x86_64": 280, "aarch64": 88}[platform.machine()], fd, path, array, flags))

    def op_setxattr(self, path, name, seed, length, flags):
        os.setxattr(path, name, content(seed, length), flags, follow_symlinks=False)

    def op_getxattr(self, path, name):
        return os.getxattr(path, name, follow_symlinks=False)

    def op_listxattr(self, path):
        # By setfsuid root becomes another for files, and keeps the right to see trusted.*: of that a daemon is told nothing.
        hidden = ("user.epochfs.", "trusted.") if LIBC.setfsuid(-1) else "user.epochfs."
        return sorted(n for n in os.listxattr(path, follow_symlinks=False) if not n.startswith(hidden))

    def op_removexattr(self, path, name):
        os.removexattr(path, name, follow_symlinks=False)

    def op_umask(self, mask):
        return os.umask(mask)

    # ---- more than one system call

    def op_storm(self, kind, number, seed):
        return storms.take_part(kind, number, seed)

    def op_walk(self, path):
        return trees.walk(path)

    def op_end(self):
        """Closes everything in order."""
        for number in sorted(self.maps):
            self.op_munmap(number)
        for slot in sorted(self.fds):
            self.op_close(slot)


def serve(sock, root, person):
    os.umask(0o022)
    os.chdir(root)
    if person:
        identify(*person)
    actor, threads = Actor(root), ThreadPoolExecutor(1)
    own = (os.getuid(), os.getgid(), os.getgroups())
    while True:
        name, arguments, person, other_thread = receive(sock)

        def perform():
            if not person:
                return actor.do(name, arguments)
            impersonate(*person)
            try:
                return actor.do(name, arguments)
            finally:
                impersonate(*own)

        try:
            result = threads.submit(perform).result() if other_thread else perform()
        except Exception:  # pylint: disable=broad-except
            result = ("broken", traceback.format_exc())
        send(sock, result)
        if name == "end":
            os._exit(0)


class Twin:
    """One actor: its process on one of the two places."""

    def __init__(self, root, person, limit):
        self.sock, other = socket.socketpair()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            try:
                signal.signal(signal.SIGINT, signal.SIG_IGN)
                self.sock.close()
                serve(other, root, person)
            except (Died, OSError):
                os._exit(0)
            except BaseException:  # pylint: disable=broad-except
                traceback.print_exc()
            os._exit(1)
        other.close()
        self.sock.settimeout(limit)

    def ask(self, name, arguments, person=None, other_thread=False):
        try:
            send(self.sock, (name, arguments, person, other_thread))
        except OSError as error:
            raise Died(self.fate()) from error

    def answer(self):
        try:
            return receive(self.sock)
        except TimeoutError as error:
            raise Died("it gave no answer in %d s" % self.sock.gettimeout()) from error
        except (Died, OSError) as error:
            raise Died(self.fate()) from error

    def fate(self):
        status = os.waitpid(self.pid, 0)[1] if self.pid else 0
        self.pid = None
        return "it was killed by signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "it ended"

    def kill(self):
        self.sock.close()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = None

    def leave(self):
        """It closes what it has, and ends with 0."""
        self.ask("end", ())
        self.answer()
        self.sock.close()
        os.waitpid(self.pid, 0)
        self.pid = None
