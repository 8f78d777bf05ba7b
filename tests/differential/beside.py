# SPDX-License-Identifier: Apache-2.0
"""A history on two places at once: an ordinary directory, which is right, and a mount.

What is left out, because the contract means the mount to differ, is decided here, from what is known of the ordinary
directory; README.md beside this file has the list.
"""

import errno
import os
import pathlib
import shutil
import stat
import subprocess
import time

import storms
import trees
from actors import Died, Twin
from mounted import Mount, Wrong

PROCESSES = ("p0", "p1", "p2")
# Of each operation: which of its arguments are slots that must be open, and which path is looked at or changed by content.
SLOTS = {name: (0,) for name in (
    "close", "pread", "read", "pwrite", "write", "seek", "holes", "ftruncate", "fallocate", "fsync", "fdatasync", "fstat", "fchmod",
    "fchown", "futimens", "fsetxattr", "fgetxattr", "fremovexattr", "same", "flock", "lock", "linkfd")}
SLOTS.update({"copy": (0, 2), "sendfile": (0, 1), "mmap": (1,)})
XATTRS = ("fsetxattr", "fgetxattr", "fremovexattr")
MAPS = ("mget", "mput", "msync", "munmap")
LOOKS = {"open": True, "stat": True, "lstat": False, "truncate": True, "utimens": False, "same": True}
TICK = 20_000_000  # ns: a clock of files may be as coarse as this


class Handle:
    def __init__(self, ino, flags, directory, made):
        self.ino, self.flags, self.directory = ino, flags, directory
        self.made = made  # this open created it

    @property
    def writes(self):
        return bool({"wronly", "rdwr", "trunc"}.intersection(self.flags))


class Map:
    def __init__(self, ino, how, length, fd):
        self.ino, self.how, self.length = ino, how, length
        self.fd = fd  # of the file of the ordinary directory, for its size

    @property
    def writes(self):
        return self.how == "sw"


class Beside:
    """One history. PEOPLE: {name: (uid, gid, groups)}; with a single one all processes are who runs this."""

    def __init__(self, base, program, options, people, limit=60):
        self.base = pathlib.Path(base)
        self.plain = self.base / "plain"
        self.plain.mkdir()
        self.people, self.limit = people, limit
        self.mount = Mount(self.base, program, options)
        self.pairs = {}  # name of a process: (on the ordinary directory, on the mount)
        self.handles, self.maps = {}, {}
        self.pending = {}  # inode: the process that is replacing its content
        self.mapped = set()  # inodes that a writable mapping had: nobody says when their times change
        self.seen = {}  # inode: what the last look at it showed
        self.unclosed = set()  # inodes that were made by an open for writing which lasts
        self.covered = set()  # inodes that lost a name to an unclosed file, and have it back where its writer is killed
        self.epochs = []  # (number, the tree that it has to hold, inodes that were being written, and of these the unclosed)
        self.done = self.left_out = 0

    # ---- the two places

    def begin(self):
        for place in (self.plain, self.mount.path):
            os.chmod(place, 0o777)
        self.mount.mount()
        self.start()
        self.on_both("look", "chmod", (".", 0o777))

    def start(self):
        for name in PROCESSES + ("look",):
            self.start_one(name)

    def start_one(self, name):
        person = {"p1": self.people.get("alice"), "p2": self.people.get("bob")}.get(name)
        self.pairs[name] = [Twin(root, person, self.limit) for root in (self.plain, self.mount.path)]

    def leave(self):
        """All processes end in order."""
        for name in PROCESSES + ("look",):
            for twin in self.pairs[name]:
                twin.leave()
        self.forget(PROCESSES)
        self.pairs = {}

    def forget(self, names):
        for key in [k for k in self.handles if k[0] in names]:
            del self.handles[key]
        for key in [k for k in self.maps if k[0] in names]:
            os.close(self.maps.pop(key).fd)
        self.settle_pending()

    def used(self):
        return {u.ino for u in [*self.handles.values(), *self.maps.values()]}

    def settle_pending(self):
        used = self.used()
        self.pending = {ino: who for ino, who in self.pending.items() if ino in used}
        self.unclosed &= self.written()
        if not self.unclosed:
            self.covered = set()

    def close(self):
        for pair in self.pairs.values():
            for twin in pair:
                twin.kill()
        for one in self.maps.values():
            os.close(one.fd)
        self.mount.clean_up()

    def on_both(self, name, what, arguments, person=None, thread=False):
        pair = self.pairs[name]
        for twin in pair:
            twin.ask(what, arguments, person, thread)
        results = []
        for twin, place in zip(pair, ("the directory", "the mount")):
            try:
                results.append(twin.answer())
            except Died as error:
                raise Wrong("%s died" % what, ["%s%s: on %s: %s" % (what, arguments, place, error)]) from error
        for result in results:
            if result[0] == "broken":
                raise RuntimeError(result[1])
        return results

    # ---- what is known of the ordinary directory

    def stat(self, path, follow=True):
        try:
            return (os.stat if follow else os.lstat)(os.path.join(self.plain, path))
        except (OSError, ValueError):
            return None

    def users_of(self, ino):
        return [h for h in self.handles.values() if h.ino == ino] + [m for m in self.maps.values() if m.ino == ino]

    def written(self):
        """Inodes that somebody has open for writing: an epoch has them as they were last closed."""
        return {u.ino for u in [*self.handles.values(), *self.maps.values()] if u.writes}

    # ---- one step

    def step(self, step):
        who, what, arguments = step[0], step[1], step[2:]
        if who == "*":
            getattr(self, "all_" + what)(*arguments)
            self.done += 1
            return
        thread = who.endswith("'")
        process, _, person = who.rstrip("'").partition("~")
        if what == "open" and "tmpfile" in arguments[2]:
            self.open_without_a_name(process, arguments, self.people.get(person), thread)
            return
        arguments = self.comparable(process, what, list(arguments))
        if arguments is None:
            self.left_out += 1
            return
        before = self.stat(arguments[1], "nofollow" not in arguments[2]) if what == "open" else None
        covered = self.covered_by(arguments) if what == "rename" else set()
        plain, found = self.on_both(process, what, arguments, self.people.get(person), thread)
        self.compare(process, what, arguments, plain, found)
        if plain[0] == "ok":
            self.note(process, what, arguments, before)
            self.covered |= covered
        self.done += 1

    def open_without_a_name(self, process, arguments, person, thread):
        """O_TMPFILE: a mount refuses what the ordinary directory does."""
        if (process, arguments[0]) in self.handles:
            self.left_out += 1
            return
        plain, found = self.on_both(process, "open", arguments, person, thread)
        done = plain[0] == "ok"
        if done:
            twin = self.pairs[process][0]
            twin.ask("close", (arguments[0],))
            twin.answer()
        self.compare(process, "open", arguments, ("error", errno.errorcode[errno.EOPNOTSUPP]) if done else plain, found)
        self.done += 1

    def covered_by(self, arguments):
        """What a rename of a file that was never closed takes a name from."""
        old, new = (self.stat(path, False) for path in arguments[:2])
        return {new.st_ino} if old and new and old.st_ino in self.unclosed else set()

    def comparable(self, process, what, arguments):
        """The arguments, perhaps cut to what can be compared; None where nothing can."""
        if any((process, arguments[i]) not in self.handles for i in SLOTS.get(what, ())):
            return None
        if any("direct" in self.handles[process, arguments[i]].flags for i in SLOTS.get(what, ())) and not self.may_be_direct(process, what, arguments):
            return None
        if what in ("chown", "fchown") and arguments[1:] == [-1, -1]:
            return None  # POSIX leaves open whether that is a change
        if what in ("seek", "holes") and self.handles[process, arguments[0]].directory:
            return None  # what the offset of a directory means is each file system's own
        if what in XATTRS and self.is_removed_directory(process, arguments[0]):
            return None  # of which none are kept
        if what in MAPS:
            return self.comparable_map(process, what, arguments)
        if what in ("open", "mmap") and (process, arguments[0]) in (self.handles if what == "open" else self.maps):
            return None
        if what in LOOKS:
            st = self.stat(arguments[-1] if what == "same" else arguments[1 if what == "open" else 0], LOOKS[what])
            if st and self.pending.get(st.st_ino, process) != process:
                return None
        if what == "open":
            return self.comparable_open(arguments)
        if what in ("chmod", "fchmod"):
            return self.comparable_chmod(process, what, arguments)
        if what == "mmap":
            size = self.size_of(process, arguments[1])
            return [arguments[0], arguments[1], min(arguments[2], size), arguments[3]] if size else None
        return arguments

    def may_be_direct(self, process, what, arguments):
        """O_DIRECT where the disk demands alignment, which a mount does not: only what is aligned (actors.py)."""
        if what in ("copy", "sendfile"):
            return False
        return what not in ("pwrite", "write") or "append" not in self.handles[process, arguments[0]].flags

    def comparable_map(self, process, what, arguments):
        one = self.maps.get((process, arguments[0]))
        if not one or (what == "mput" and "w" not in one.how):
            return None
        if what in ("mget", "mput"):
            # Beyond its end is SIGBUS; the rest of the last page is nobody's.
            end = min(one.length, os.fstat(one.fd).st_size)
            if arguments[-2] >= end:
                return None
            arguments[-1] = min(arguments[-1], end - arguments[-2])
        return arguments

    def comparable_open(self, arguments):
        _, path, flags, _ = arguments
        st = self.stat(path)
        if not st:
            return arguments
        if stat.S_ISFIFO(st.st_mode):
            arguments[2] = flags + ["nonblock"]
        elif stat.S_ISCHR(st.st_mode):
            return None  # a mount is nodev
        elif "trunc" in flags and st.st_size and self.users_of(st.st_ino) and not self.is_log(path, st):
            return None  # the others keep the old content: contract 1.2.1
        return arguments

    def comparable_chmod(self, process, what, arguments):
        st = self.stat(arguments[0]) if what == "chmod" else None
        ino = st.st_ino if st else self.handles[process, arguments[0]].ino if what == "fchmod" else None
        if arguments[1] & 0o6000 and self.mount.options["passthrough"] == "on" and ino in self.written():
            return None  # the kernel writes by itself, and takes no bits away
        if os.getuid() and ~arguments[1] & 0o700 and ino == os.stat(self.plain).st_ino:
            return None  # nobody could come in
        return arguments

    def is_log(self, path, st):
        return path.endswith(".log") and st.st_nlink == 1 and not os.path.islink(self.plain / path)

    def is_removed_directory(self, process, slot):
        if not self.handles[process, slot].directory:
            return False
        twin = self.pairs[process][0]
        twin.ask("fileno", (slot,))
        return os.stat("/proc/%d/fd/%d" % (twin.pid, twin.answer()[1])).st_nlink == 0

    def size_of(self, process, slot):
        twin = self.pairs[process][0]
        twin.ask("fstat", (slot,))
        return twin.answer()[1].get("size", 0)

    def note(self, process, what, arguments, before):
        """What a step that succeeded changes of what is known. BEFORE: of a file that was opened."""
        if what == "open":
            twin = self.pairs[process][0]
            twin.ask("fstat", (arguments[0],))
            found = twin.answer()[1]
            ino, (_, path, flags, _) = found["ino"], arguments
            self.handles[process, arguments[0]] = Handle(ino, flags, "nlink" not in found, not before)
            if not before and "rdonly" not in flags:
                self.unclosed.add(ino)
            if "trunc" in flags and before and before.st_size and stat.S_ISREG(before.st_mode) and not self.is_log(path, before):
                self.pending[ino] = process
        elif what == "close":
            del self.handles[process, arguments[0]]
            self.settle_pending()
        elif what == "mmap":
            twin = self.pairs[process][0]
            twin.ask("fileno", (arguments[1],))
            fd = os.open("/proc/%d/fd/%d" % (twin.pid, twin.answer()[1]), os.O_PATH)
            ino = os.fstat(fd).st_ino
            self.maps[process, arguments[0]] = Map(ino, arguments[3], arguments[2], fd)
            if arguments[3] == "sw":
                self.mapped.add(ino)
        elif what == "munmap":
            os.close(self.maps.pop((process, arguments[0])).fd)
            self.settle_pending()

    def compare(self, process, what, arguments, plain, found):
        told = "%s %s(%s)" % (process, what, ", ".join(map(ascii, arguments)))
        if plain[0] != found[0] or plain[0] == "error" and plain != found:
            raise Wrong("%s result" % what, ["%s: %s, expected %s" % (told, short(found), short(plain))])
        if plain[0] == "ok" and what in ("stat", "lstat", "fstat"):
            self.compare_facts(told, what, plain[1], found[1])
        elif plain != found:
            raise Wrong("%s value" % what, ["%s: %s, expected %s" % (told, short(found), short(plain))])

    def compare_facts(self, told, what, plain, found):
        left_out = {"ino", "mtime", "ctime"} | ({"nlink"} if plain["ino"] in self.covered else set())
        lines = ["%s: %s is %s, expected %s" % (told, key, found.get(key), plain.get(key))
                 for key in (plain.keys() | found.keys()) - left_out if plain.get(key) != found.get(key)]
        if lines:
            raise Wrong("%s %s" % (what, lines[0].split(": ")[1].split()[0]), lines)
        self.compare_times(told, what, plain, found)

    def compare_times(self, told, what, plain, found):
        ino, now = plain["ino"], time.time_ns()
        before = self.seen.get(ino)
        self.seen[ino] = (plain, found, now)
        if ino in self.mapped or ino in self.pending or stat.S_ISFIFO(int(plain["mode"], 8)):
            return  # when a mapping writes, and what goes through a FIFO, the file system is not told
        if stat.S_ISDIR(int(plain["mode"], 8)) and not found["mtime"]:
            return  # it was removed, and is open
        for key in ("mtime", "ctime"):
            if key == "mtime" and (plain[key] not in trees.CLOCK or found[key] not in trees.CLOCK):
                if plain[key] != found[key]:
                    raise Wrong("%s mtime" % what, ["%s: mtime is %d, expected %d" % (told, found[key], plain[key])])
            elif before:
                changed, did = plain[key] != before[0][key], found[key] != before[1][key]
                if key == "ctime" and ino in self.covered:
                    continue  # it has not lost that name yet
                if changed and not did and found[key] < before[2] - TICK:
                    raise Wrong("%s %s" % (what, key), ["%s: %s stays, and should change" % (told, key)])
                if did and not changed and key == "mtime":  # ctime moves also when a close is committed
                    raise Wrong("%s %s" % (what, key), ["%s: %s changes (by %d ns), and should stay" % (told, key, found[key] - before[1][key])])

    # ---- steps of the whole

    def look(self, what="look", unlike=()):
        plain, found = self.on_both("look", "walk", (".",))
        self.require(what, trees.differences(plain[1], without_epochs(found[1]), set(self.pending) | set(unlike),
                                             loose=paths_of(plain[1], self.covered)))
        self.mapped &= {f.get("ino") for f in plain[1].values()} | self.used()
        return plain[1], found[1]

    def require(self, what, lines):
        if lines:
            word = lines[0].partition(": ")[2].split()
            raise Wrong("%s %s" % (what, " ".join(word[:2]) if word[0] == "is" else word[0]), [what + ":"] + lines[:20])

    def all_look(self):
        self.look()

    def live(self):
        """The live tree as the mount shows it."""
        return without_epochs(self.on_mount("walk", "."))

    def on_mount(self, what, *arguments):
        twin = self.pairs["look"][1]
        twin.ask(what, arguments)
        kind, value = twin.answer()
        if kind != "ok":
            raise Wrong("%s on the mount" % what, ["%s%s: %s" % (what, arguments, value)])
        return value

    def all_seal(self):
        # Read first on the ordinary directory: a look at the mount is no part of a seal.
        twin = self.pairs["look"][0]
        twin.ask("walk", (".",))
        plain = twin.answer()[1]
        name = ".epochs/t%d" % (len(self.epochs) + 1)
        self.on_mount("mkdir", name, 0o777)
        number = int(self.on_mount("readlink", name))
        self.epochs.append((number, plain, self.written() | set(self.pending), set(self.unclosed), set(self.covered)))
        found = self.compare_epoch("epoch", *self.epochs[-1])
        self.compare_times_of_epoch(plain, found)

    def compare_epoch(self, what, number, plain, unlike, unclosed, covered):
        found = self.on_mount("walk", ".epochs/%06d" % number)
        # Names of what was never closed are not there yet; or what they led to before is. Of a name that who looks may list, but not
        # stat (a directory without x), nobody can say whether it is one of these.
        hidden = {None} if unclosed else set()
        without = {p for p, f in plain.items() if f.get("ino") in unclosed | hidden}
        # The directory of an epoch shows when it was sealed, and is the live root's owner's.
        found["."].update({key: plain["."][key] for key in ("mtime", "mode", "uid", "gid")})
        # A file has a link more where such a name leads to it.
        loose = paths_of(plain, covered) | paths_of(found, {found[p].get("ino") for p in without if p in found})
        if None in {plain[p].get("ino") for p in without}:
            loose |= plain.keys()
        plain, found = ({p: f for p, f in tree.items() if p not in without} for tree in (plain, found))
        self.require(what, trees.differences(plain, found, unlike, loose=loose))
        return found

    def compare_times_of_epoch(self, plain, found):
        """To the nanosecond, as the live tree has them, but for what is being written or may be through a mapping."""
        live = self.live()
        left_out = self.written() | set(self.pending) | self.mapped | {None}  # None: who looks may not see it
        paths = {p for p, f in plain.items() if p in live and p in found and p != "." and f.get("ino") not in left_out}
        lines = ["%s: mtime is %d, expected %d" % (ascii(p), found[p]["mtime"], live[p]["mtime"])
                 for p in sorted(paths) if found[p].get("mtime") != live[p].get("mtime")]
        self.require("times of an epoch", lines)

    def all_storm(self, seed):
        kind = sorted(storms.KINDS)[seed % len(storms.KINDS)]
        if not os.stat(self.plain).st_mode & 1:
            self.left_out += 1
            return  # not everybody may come in
        if self.stat(storms.DIRECTORY):
            self.on_both("look", "rename", (storms.DIRECTORY, "storm-%d" % self.done, 0))
        self.on_both("look", "mkdir", (storms.DIRECTORY, 0o777))
        self.on_both("look", "chmod", (storms.DIRECTORY, 0o777))
        results = [self.on_both("look", "storm", (kind, storms.PREPARE, seed))]
        for number, name in enumerate(PROCESSES):
            for twin in self.pairs[name]:
                twin.ask("storm", (kind, number, seed))
        results += [[twin.answer() for twin in self.pairs[name]] for name in PROCESSES]
        results.append(self.on_both("look", "storm", (kind, storms.FINISH, seed)))
        for pair in results:
            for (how, lines), place in zip(pair, ("the directory", "the mount")):
                if how != "ok" or lines:
                    raise Wrong("storm %s" % kind, ["storm %s, on %s:" % (kind, place)] + (lines if how == "ok" else [str(lines)]))

    def all_kill(self, name):
        """SIGKILL. What a killed writer's files become is the contract's where it replaced one or made one (contract 1.2.4)."""
        mine = [h for (who, _), h in self.handles.items() if who == name]
        if any(h.made and "wronly" in h.flags or self.pending.get(h.ino) == name for h in mine) or name in self.pending.values():
            return
        for twin in self.pairs[name]:
            twin.kill()
        self.forget((name,))
        self.start_one(name)

    def all_restart(self):
        """Another process serves the mount from now on; what is open stays."""
        done = subprocess.run([self.mount.program, "restart", self.mount.path], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode:
            raise Wrong("restart", [done.stderr, self.mount.log.read_text(errors="replace")[-2000:]])
        self.look("restart")

    def change(self):
        """A name that came and went is no change, though its directory's times tell of it: this is one, so that an epoch has them."""
        self.on_both("look", "mkdir", ("turn-%d" % self.done, 0o777))

    def all_remount(self):
        self.again(cold=False)

    def all_cold(self):
        self.change()
        self.again(cold=True)

    def again(self, cold):
        self.leave()
        self.start()
        before = self.look("before the remount")[1]
        if cold:
            fd = os.open(self.mount.path / ".epochs", os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        self.leave()
        self.mount.unmount()
        if cold:
            shutil.rmtree(self.mount.cache)
            self.mount.cache.mkdir()
        self.mount.mount()
        self.start()
        self.seen = {}
        what = "cold mount" if cold else "remount"
        found = self.on_mount("walk", ".")
        self.require(what, trees.differences(before, found, times=True))
        self.look(what)
        for epoch in self.epochs if cold else ():
            self.compare_epoch("epoch on a cold mount", *epoch)

    def all_finish(self):
        """The live tree, an epoch of it, a mount with an empty cache, an export."""
        self.leave()
        self.start()
        self.change()
        self.look("at the end")
        self.all_seal()
        self.again(cold=True)
        plain = self.look("at the end, cold")[0]
        live = self.live()
        self.leave()
        self.mount.unmount()
        target = self.base / "export"
        words = [self.mount.program, "export", "file://%s@%d" % (self.mount.remote, self.epochs[-1][0]), target]
        if os.getuid() == 0:
            words.insert(2, "--privileged")
        else:  # without it set-id bits of files are left out
            for found in plain.values():
                if found["mode"].isdigit() and stat.S_ISREG(int(found["mode"], 8)):
                    found["mode"] = "%o" % (int(found["mode"], 8) & ~0o6000)
            live = {path: {**found, "mode": plain[path]["mode"]} for path, found in live.items()}
        done = subprocess.run(words, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise Wrong("export exit", ["export: exit code %d: %s" % (done.returncode, done.stderr)])
        there = trees.walk(target)
        self.require("export", trees.differences(plain, there) + trees.differences(live, there, times=True))


def paths_of(tree, inodes):
    return {path for path, found in tree.items() if found.get("ino") in inodes}


def without_epochs(tree):
    return {path: found for path, found in tree.items() if path.split("/")[0] != ".epochs"}


def short(result):
    kind, value = result
    if isinstance(value, bytes):
        return "%d bytes (%s...)" % (len(value), value[:40])
    return "%s %s" % (kind, value) if kind != "ok" else repr(value)


def run(base, program, options, people, steps):
    """Runs a history in the fresh directory BASE: None, or (number of the step, Wrong); and how many steps were compared."""
    beside = Beside(base, program, options, people)
    try:
        try:
            beside.begin()
            for number, step in enumerate(steps):
                beside.step(step)
        except Died as error:
            return (number, Wrong("died", [str(error)])), beside.done
        except Wrong as error:
            return (number if beside.pairs or beside.done else 0, error), beside.done
        return None, beside.done
    finally:
        beside.close()
