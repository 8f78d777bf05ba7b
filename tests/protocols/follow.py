# SPDX-License-Identifier: Apache-2.0
"""Follows the calls of a run, and keeps what is done below one directory, as statements whose names and sizes are not final yet."""

import os
import re

import strace_log

FLAGS = {"O_CREAT": "creat", "O_EXCL": "excl", "O_TRUNC": "trunc", "O_APPEND": "append", "O_DIRECT": "direct", "O_SYNC": "sync", "O_DSYNC": "sync"}


class File:
    """An open file description."""

    def __init__(self, path, flags, directory):
        self.path, self.flags, self.directory = path, flags, directory
        self.position = self.played = 0  # played: where the player's descriptor stands
        self.append, self.written = "append" in flags, False


class Process:
    def __init__(self, pid, cwd, files=None, cloexec=None):
        self.pid, self.cwd = pid, cwd
        self.files, self.cloexec = dict(files or {}), set(cloexec or ())
        self.inherited = {f for f in self.files.values() if not f.directory and f.flags[0] != "r"}
        self.mappings = {}  # address: [file, length, offset, whether msync told what changed]


class Event:
    """One statement before names, sizes and letters are final. who: Process; words: File, str, ("offset", n) or ("range", from, to)."""

    def __init__(self, time, who, what, *words):
        self.time, self.who, self.what, self.words = time, who, what, list(words)


class Recorder:
    """Follows the calls, and keeps what is done below `directory`."""

    def __init__(self, directory, cwd):
        self.directory, self.cwd = directory, cwd
        self.processes, self.events, self.notes, self.sizes = {}, [], set(), {}

    def process(self, pid):
        if pid not in self.processes:
            self.processes[pid] = Process(pid, self.cwd)
        return self.processes[pid]

    def add(self, call, what, *words):
        self.events.append(Event(call.time, self.process(call.pid), what, *words))

    def path_of(self, call, folder, name):
        """Relative to the directory, or None outside of it."""
        if name.startswith("/"):
            path = name
        elif folder is None or folder.startswith("AT_FDCWD"):
            path = os.path.join(self.process(call.pid).cwd, name)
        else:
            path = os.path.join(folder[folder.index("<") + 1:-1], name)
        path = os.path.normpath(path)
        if path == self.directory:
            return "."
        return path[len(self.directory) + 1:] if path.startswith(self.directory + "/") else None

    def file_of(self, call, argument):
        return self.process(call.pid).files.get(int(re.match(r"-?\d+", argument).group()))

    def handle(self, call):
        name = "ended" if call.name is None else call.name
        if name in strace_log.BIRTHS:
            return self.born(call)
        if call.result < 0 and name not in ("stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2"):
            return None
        handler = getattr(self, "on_" + ALIASES.get(name, name), None)
        return handler(call) if handler else None

    # Processes.

    def born(self, call):
        if call.result <= 0:
            return
        parent, flags = self.process(call.pid), " ".join(call.args)
        if "CLONE_THREAD" in flags:
            self.processes[call.result] = parent
            return
        child = Process(call.result, parent.cwd, parent.files, parent.cloexec)
        self.processes[call.result] = child
        self.add(call, "fork", child)

    def on_execve(self, call):
        who = self.process(call.pid)
        for number in sorted(who.cloexec & set(who.files)):
            self.closes(call, number)
        who.cloexec.clear()

    def on_ended(self, call):
        who = self.process(call.pid)
        if who.pid != call.pid:
            return
        for address in list(who.mappings):
            self.unmaps(call, address)
        self.add(call, "exit", str(call.result))
        who.files.clear()

    def on_chdir(self, call):
        who = self.process(call.pid)
        who.cwd = os.path.normpath(os.path.join(who.cwd, call.args[0]))

    def on_fchdir(self, call):
        self.process(call.pid).cwd = call.args[0][call.args[0].index("<") + 1:-1]

    # Descriptors.

    def on_open(self, call):
        self.opens(call, None, call.args[0], call.args[1])

    def on_openat(self, call):
        self.opens(call, call.args[0], call.args[1], call.args[2])

    def on_creat(self, call):
        self.opens(call, None, call.args[0], "O_WRONLY|O_CREAT|O_TRUNC")

    def opens(self, call, folder, name, text):
        path = self.path_of(call, folder, name)
        if path is None:
            return
        words = text.split("|")
        flags = ["w" if "O_WRONLY" in words else "rw" if "O_RDWR" in words else "r"]
        flags += [FLAGS[word] for word in words if word in FLAGS]
        file = File(path, flags, "O_DIRECTORY" in words or os.path.isdir(os.path.join(self.directory, path)))
        if "trunc" in flags or "excl" in flags:
            self.sizes[path] = 0
        who = self.process(call.pid)
        who.files[call.result] = file
        if "O_CLOEXEC" in words:
            who.cloexec.add(call.result)
        if not file.directory:
            self.add(call, "open", file, path, ",".join(flags))

    def on_close(self, call):
        self.closes(call, int(re.match(r"\d+", call.args[0]).group()))

    def on_close_range(self, call):
        first, last = int(call.args[0]), int(call.args[1], 0)
        for number in sorted(n for n in self.process(call.pid).files if first <= n <= last):
            self.closes(call, number)

    def closes(self, call, number):
        who = self.process(call.pid)
        file = who.files.pop(number, None)
        who.cloexec.discard(number)
        if file and not self.held(who, file) and not file.directory:
            self.add(call, "close", file)

    @staticmethod
    def held(who, file):
        """A mapping holds a file as a descriptor does: a store needs one."""
        return file in who.files.values() or any(m[0] is file for m in who.mappings.values())

    def on_dup(self, call):
        who, file = self.process(call.pid), self.file_of(call, call.args[0])
        if call.name in ("dup2", "dup3"):
            if call.result in who.files and who.files[call.result] is not file:
                self.closes(call, call.result)
        if file:
            who.files[call.result] = file
            if "O_CLOEXEC" in call.args[-1]:
                who.cloexec.add(call.result)
            else:
                who.cloexec.discard(call.result)

    def on_fcntl(self, call):
        who, file = self.process(call.pid), self.file_of(call, call.args[0])
        if file and call.args[1].startswith("F_DUPFD"):
            who.files[call.result] = file
            if call.args[1] == "F_DUPFD_CLOEXEC":
                who.cloexec.add(call.result)
        elif file and call.args[1] == "F_SETFD":
            (who.cloexec.add if "FD_CLOEXEC" in call.args[2] else who.cloexec.discard)(int(re.match(r"\d+", call.args[0]).group()))

    # Bytes.

    def wrote(self, call, file, size, offset=None):
        if not size:
            return
        file.written = True
        if file.append and offset is None:
            start = self.sizes.get(file.path, 0)
            self.add(call, "write", file, ("range", start, start + size), None)
        elif offset is None:
            start = file.position
            plain = start == file.played
            self.add(call, "write", file, ("range", start, start + size), None if plain else ("offset", start))
            file.position += size
            if plain:
                file.played += size
        else:
            start = offset
            self.add(call, "write", file, ("range", start, start + size), ("offset", start))
        self.sizes[file.path] = max(self.sizes.get(file.path, 0), start + size)

    def on_write(self, call):
        file = self.file_of(call, call.args[0])
        if file:
            self.wrote(call, file, call.result)

    def on_pwrite(self, call):
        file = self.file_of(call, call.args[0])
        if file:
            self.wrote(call, file, call.result, int(call.args[3]))

    def on_read(self, call):
        file = self.file_of(call, call.args[0])
        if file:
            file.position += call.result

    def on_lseek(self, call):
        file = self.file_of(call, call.args[0])
        if file:
            file.position = call.result

    def on_sendfile(self, call):
        out, source = self.file_of(call, call.args[0]), self.file_of(call, call.args[1])
        if out:
            self.wrote(call, out, call.result)
        if source and call.args[2] == "NULL":
            source.position += call.result

    def on_copy_file_range(self, call):
        out = self.file_of(call, call.args[2])
        if out:
            self.wrote(call, out, call.result, None if call.args[3] == "NULL" else int(call.args[3].strip("[]")))

    def on_ftruncate(self, call):
        file = self.file_of(call, call.args[0])
        if file:
            self.sizes[file.path] = int(call.args[1])
            file.written = True
            self.add(call, "truncate", file, ("offset", int(call.args[1])))

    def on_truncate(self, call):
        path = self.path_of(call, None, call.args[0])
        if path:
            file = File(path, ["w"], False)
            file.written = True
            self.sizes[path] = int(call.args[1])
            self.add(call, "open", file, path, "w")
            self.add(call, "truncate", file, ("offset", int(call.args[1])))
            self.add(call, "close", file)

    def on_fallocate(self, call):
        file = self.file_of(call, call.args[0])
        if file and "KEEP_SIZE" not in call.args[1] and "PUNCH" not in call.args[1]:
            end = int(call.args[2]) + int(call.args[3])
            if end > self.sizes.get(file.path, 0):
                self.notes.add("fallocate stands as truncate")
                self.sizes[file.path], file.written = end, True
                self.add(call, "truncate", file, ("offset", end))

    def on_fsync(self, call):
        file = self.file_of(call, call.args[0])
        if file and file.directory:
            self.add(call, "fsyncdir", file.path)
        elif file:
            file.written = True  # worth its line
            self.add(call, "fsync", file)

    # Mappings.

    def on_mmap(self, call):
        if "MAP_SHARED" not in call.args[3] or "PROT_WRITE" not in call.args[2] or call.args[4].startswith("-1"):
            return
        file = self.file_of(call, call.args[4])
        if file:
            self.process(call.pid).mappings[call.result] = [file, int(call.args[1]), int(call.args[5], 0), False]

    def on_msync(self, call):
        start, size = int(call.args[0], 0), int(call.args[1])
        for address, mapping in self.process(call.pid).mappings.items():
            if address <= start < address + mapping[1]:
                self.stores(call, mapping, mapping[2] + start - address, size)
                mapping[3] = True

    def stores(self, call, mapping, offset, size):
        self.notes.add("stores into a mapping stand where msync, munmap or the exit told of them, as whole ranges")
        end = min(offset + size, self.sizes.get(mapping[0].path, offset + size))
        mapping[0].written = True
        if end > offset:
            self.add(call, "store", mapping[0], ("range", offset, end), ("offset", offset))

    def on_munmap(self, call):
        address = int(call.args[0], 0)
        if address in self.process(call.pid).mappings:
            self.unmaps(call, address)

    def unmaps(self, call, address):
        who = self.process(call.pid)
        mapping = who.mappings.pop(address)
        if not mapping[3]:
            self.stores(call, mapping, mapping[2], mapping[1])
        if not self.held(who, mapping[0]):
            self.add(call, "close", mapping[0])

    # Names.

    def names(self, call, what, *found):
        if None in found:
            if any(found):
                self.notes.add("%s over the border of the directory is left out" % what)
            return
        self.add(call, what, *found)

    def two(self, call):
        args = call.args
        return (self.path_of(call, None, args[0]), self.path_of(call, None, args[1])) if call.name in ("rename", "link") else \
            (self.path_of(call, args[0], args[1]), self.path_of(call, args[2], args[3]))

    def on_rename(self, call):
        source, target = self.two(call)
        self.names(call, "exchange" if "RENAME_EXCHANGE" in call.args[-1] else "rename", source, target)
        if source and target:
            self.sizes[target] = self.sizes.pop(source, 0)

    def on_link(self, call):
        source, target = self.two(call)
        self.names(call, "link", source, target)

    def on_symlink(self, call):
        folder, name = (None, call.args[1]) if call.name == "symlink" else call.args[1:3]
        self.names(call, "symlink", call.args[0].replace(self.directory + "/", ""), self.path_of(call, folder, name))

    def one(self, call):
        return self.path_of(call, call.args[0], call.args[1]) if call.name.endswith("at") else self.path_of(call, None, call.args[0])

    def on_unlink(self, call):
        path = self.one(call)
        self.names(call, "rmdir" if "AT_REMOVEDIR" in call.args[-1] else "unlink", path)
        self.sizes.pop(path, None)

    def on_mkdir(self, call):
        self.names(call, "mkdir", self.one(call))

    def on_rmdir(self, call):
        self.names(call, "rmdir", self.one(call))

    def on_chmod(self, call):
        self.names(call, "chmod", self.one(call))

    def on_fchmod(self, call):
        file = self.file_of(call, call.args[0])
        if file:
            self.add(call, "chmod", file.path)

    def on_utimensat(self, call):
        if re.match(r"\d", call.args[0]) and call.args[1] == "NULL":
            file = self.file_of(call, call.args[0])
            self.names(call, "utimens", file.path if file else None)
        else:
            self.names(call, "utimens", self.one(call))

    def on_io_uring_setup(self, call):
        self.notes.add("io_uring is in use: its writes are missing")

    # Marks.

    def on_stat(self, call):
        if call.result >= 0:
            return
        at = call.name in ("newfstatat", "statx", "faccessat", "faccessat2")
        path = self.path_of(call, call.args[0] if at else None, call.args[1 if at else 0])
        match = re.fullmatch(r"\.mark-(save|over|pause)-([\d.]+)", path or "")
        if match:
            self.events.append(Event(call.time, None, match.group(1), match.group(2)))


ALIASES = {"openat2": "openat", "dup2": "dup", "dup3": "dup", "readv": "read", "writev": "write", "pwrite64": "pwrite", "pwritev": "pwrite",
           "pwritev2": "pwrite", "fdatasync": "fsync", "renameat": "rename", "renameat2": "rename", "linkat": "link",
           "unlinkat": "unlink", "symlinkat": "symlink", "mkdirat": "mkdir", "fchmodat": "chmod", "chown": "chmod", "fchown": "fchmod",
           "fchownat": "chmod", "utimes": "utimensat", "utime": "utimensat", "futimesat": "utimensat", "lstat": "stat", "newfstatat": "stat",
           "statx": "stat", "access": "stat", "faccessat": "stat", "faccessat2": "stat"}
