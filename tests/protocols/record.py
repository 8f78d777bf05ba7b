#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a protocol from a run of the original, watched by strace.

    tests/protocols/record.py NAME --dir DIR --program TEXT --restart TEXT [options] -- COMMAND...

What COMMAND does below DIR goes to tests/protocols/NAME.txt (--to FILE: there). DIR is made empty first; it has to be on a plain file system, and
the program's temporary folder on another one, as with a mount. Reads are not recorded, nor are files that are opened and only read.

Marks: a driver that we write says them by a stat() of a name that is not there:
    DIR/.mark-save-3, DIR/.mark-over-3      save 3 begins, is over
    DIR/.mark-pause-30                      here the program would compute for 30 s; the time that passed does not count
A compiled program is marked by patterns, which are searched in the statement as it will stand, with a path instead of a descriptor ("close md.cpt"):
    --save-before PATTERN, --over-after PATTERN      saves are counted from 1; --count N: over after the Nth time (of each save)
    --between SECONDS                                a pause of that length before each save but the first, as a real run has
    --saves N                                        stop after save N

What stands before save 1 is done at a restart as well, which is wrong of a program that makes its file anew: --again says what it does instead.

Names: users, hosts, pids, UUIDs, long hexadecimal and tempfile's random parts are replaced by others of the same form; --random PATTERN does so with
group 1 of it. Sizes: offsets up to 4 KiB stay; those above are scaled so that the largest file has 100 KiB; order stays.
"""

import argparse
import os
import random
import re
import shlex
import shutil
import socket
import string
import subprocess
import sys
import tempfile

import follow
import protocol
import strace_log

HERE = os.path.dirname(os.path.abspath(__file__))
TRACED = ("open,openat,openat2,creat,close,close_range,dup,dup2,dup3,fcntl,read,readv,write,pwrite64,writev,pwritev,pwritev2,lseek,"
          "ftruncate,truncate,fallocate,fsync,fdatasync,msync,mmap,munmap,rename,renameat,renameat2,link,linkat,unlink,unlinkat,symlink,symlinkat,"
          "mkdir,mkdirat,rmdir,chmod,fchmod,fchmodat,chown,fchown,fchownat,utimensat,utimes,utime,futimesat,stat,lstat,newfstatat,statx,access,"
          "faccessat,faccessat2,clone,clone3,fork,vfork,execve,chdir,fchdir,sendfile,copy_file_range,io_uring_setup")
LARGEST, KEPT, SHORTEST_PAUSE = 100 * 1024, 4096, 0.1


def without_reads(events):
    """Leaves out files that were only read."""
    return [e for e in events if not (e.words and isinstance(e.words[0], follow.File) and e.words[0].flags[0] == "r" and not e.words[0].written
                                      and e.what in ("open", "close"))]


def without_bystanders(events):
    """Leaves out processes that do nothing below the directory: their birth, their copies of descriptors, their exit."""
    active = {e.who for e in events if e.who and e.what not in ("close", "exit", "fork")}
    kept = set(active)
    for birth, child in [(n, e.words[0]) for n, e in enumerate(events) if e.what == "fork"]:
        # One that holds a file which its parent writes may matter: it keeps its copy for as long as it lives.
        end = next((n for n in range(birth, len(events)) if events[n].who is child and events[n].what in ("close", "exit")), len(events))
        if child.inherited and any(e.who in active and e.what != "fork" for e in events[birth:end]):
            kept.add(child)
    return [e for e in events if e.who is None or (e.who in kept and (e.what != "fork" or e.words[0] in kept))]


def plain(event):
    """As a pattern sees it."""
    words = [w.path if isinstance(w, follow.File) else str(w) for w in event.words if isinstance(w, (follow.File, str))]
    if event.what == "open":
        words.pop(0)
    return " ".join([event.what] + words)


def marked(events, before, after, count):
    """Puts save and over where the patterns say."""
    if not before:
        return events
    out, number, inside, times = [], 0, False, 0
    for event in events:
        if not inside and re.search(before, plain(event)):
            number, inside, times = number + 1, True, 0
            out.append(follow.Event(event.time, None, "save", str(number)))
        out.append(event)
        if inside and re.search(after, plain(event)):
            times += 1
            if times == count:
                out.append(follow.Event(event.time, None, "over", str(number)))
                inside = False
    return out


def early(events):
    """A save is over before the removals right after its last file, if these are of names that it has not made: those are of older saves. A journal that a
    save makes and takes away is part of it: without it the save is rolled back."""
    out, made = [], set()
    for event in events:
        if event.what == "save":
            made = set()
        elif event.what in ("open", "mkdir", "rename", "link", "symlink"):
            made.add(event.words[1] if event.what != "mkdir" else event.words[0])
        at = len(out)
        while event.what == "over" and out[at - 1].what in ("unlink", "rmdir") and out[at - 1].words[0] not in made:
            at -= 1
        out.insert(at, event)
    return out


def cut(events, saves):
    """What comes after `over N` is left out."""
    for number, event in enumerate(events):
        if event.what == "over" and event.words[0] == str(saves):
            return events[:number + 1]
    return events


def paused(events, between):
    """Time that passed becomes a statement; where the driver said it, that counts instead. Nothing waits for the first statement and for the exit."""
    out, last, told = [], None, False
    for event in events:
        if event.what == "pause":
            told = True
            if out:
                out.append(event)
        elif event.what == "save" and between and event.words[0] != "1":
            out.append(follow.Event(event.time, None, "pause", "%g" % between))
            told = True
        elif last is not None and event.time - last >= SHORTEST_PAUSE and not told and event.what != "exit":
            out.append(follow.Event(event.time, None, "pause", "%.1f" % (event.time - last)))
        if event.what != "pause":
            out.append(event)
            told = told and event.who is None
        last = event.time
    return out


def merged(events):
    """A stretch of writes, one behind the other, becomes at most three: its first, its last, and what is between."""
    out = []
    for event in events:
        stretch = out[-1] if out and isinstance(out[-1], list) else None
        if event.what != "write":
            out.append(event)
        elif stretch and stretch[-1].who is event.who and stretch[-1].words[0] is event.words[0] and \
                stretch[-1].words[1][2] == event.words[1][1] and (stretch[-1].words[2] is None) == (event.words[2] is None):
            stretch.append(event)
        else:
            out.append([event])
    for entry in out:
        if not isinstance(entry, list):
            yield entry
            continue
        yield entry[0]
        if len(entry) > 2:
            middle = entry[1]
            middle.words[1] = ("range", middle.words[1][1], entry[-1].words[1][1])
            yield middle
        if len(entry) > 1:
            yield entry[-1]


def scale(events):
    """Gives what maps each offset to a smaller one, in the same order."""
    offsets = set()
    for event in events:
        for word in event.words:
            if isinstance(word, tuple):
                offsets |= set(word[1:])
    largest = max(offsets, default=0)
    factor = min(1.0, (LARGEST - KEPT) / max(1, largest - KEPT))
    found, last = {0: 0}, 0
    for offset in sorted(offsets - {0}):
        last = max(offset if offset <= KEPT else KEPT + int((offset - KEPT) * factor), last + 1)
        found[offset] = last
    return found


class Names:
    """Replaces what belongs to this machine and this run."""

    PATTERNS = [r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})", r"(?<![0-9a-z])([0-9a-f]{16,64})(?![0-9a-z])", r"tmp([a-z0-9_]{8})(?![a-z0-9_])"]

    def __init__(self, extra, pids):
        self.patterns, self.pids = [re.compile(p) for p in extra + self.PATTERNS], [str(p) for p in sorted(pids)]
        self.known = {}
        self.words = {socket.gethostname(): "host"}
        if os.environ.get("USER", "root") != "root":
            self.words[os.environ["USER"]] = "user"

    def other(self, text):
        if text not in self.known:
            source = random.Random(len(self.known))
            hexadecimal = not re.search("[g-zG-Z]", text)
            kinds = [(string.digits, string.digits), (string.ascii_lowercase, "abcdef" if hexadecimal else string.ascii_lowercase),
                     (string.ascii_uppercase, "ABCDEF" if hexadecimal else string.ascii_uppercase)]
            self.known[text] = "".join(next((source.choice(to) for kind, to in kinds if letter in kind), letter) for letter in text)
        return self.known[text]

    def of(self, path):
        for word, other in self.words.items():
            path = re.sub(r"(?<![A-Za-z0-9])%s(?![A-Za-z0-9])" % re.escape(word), other, path)
        for pattern in self.patterns:
            path = pattern.sub(lambda m: m.group(0).replace(m.group(1), self.other(m.group(1))), path)
        for number, pid in enumerate(self.pids):
            path = re.sub(r"(?<!\d)%s(?!\d)" % pid, str(1001 + number), path)
        return path.replace(" ", "_")


class Letters:
    """Gives processes letters, and open files the lowest number that none has."""

    def __init__(self):
        self.letters, self.numbers, self.holders = {}, {}, {}

    def letter(self, process):
        count = len(self.letters)
        name = string.ascii_uppercase[count % 26] + (str(count // 26) if count > 25 else "")
        return self.letters.setdefault(process, name)

    def number(self, file):
        if file not in self.numbers:
            taken = {self.numbers[f] for f, holders in self.holders.items() if holders}
            self.numbers[file] = next(n for n in range(3, 10000) if n not in taken)
        return str(self.numbers[file])

    def after(self, event):
        """Who holds which file after it."""
        if event.what == "open":
            self.holders[event.words[0]] = {event.who}
        elif event.what == "close":
            self.holders[event.words[0]].discard(event.who)
        for holders in self.holders.values():
            if event.what == "fork" and event.who in holders:
                holders.add(event.words[0])
            elif event.what == "exit":
                holders.discard(event.who)


def statements(events, names):
    """Lines of text."""
    letters, offsets = Letters(), scale(events)

    def word(event, value):
        if isinstance(value, follow.File):
            return letters.number(value)
        if isinstance(value, follow.Process):
            return letters.letter(value)
        if isinstance(value, str):
            return names.of(value)
        if value[0] == "range":
            return str(offsets[value[2]] - offsets[value[1]])
        return ("" if event.what == "truncate" else "@") + str(offsets[value[1]])

    for event in events:
        if event.who is None:
            yield "%s %s" % (event.what, event.words[0])
            continue
        yield " ".join([letters.letter(event.who), event.what] + [word(event, w) for w in event.words if w is not None])
        letters.after(event)


def record(options, directory):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        log = os.path.join(folder, "strace")
        os.environ["TMPDIR"] = os.path.join(folder, "tmp")
        os.mkdir(os.environ["TMPDIR"])
        subprocess.run(["strace", "-f", "-y", "-ttt", "-s", "0", "--seccomp-bpf", "-e", "trace=" + TRACED, "-e", "signal=none", "-o", log] +
                       options.command, cwd=options.cwd or directory, check=False)
        if options.keep:
            shutil.copy(log, options.keep)
        return strace_log.read(log)


def how(options):
    """The command again, for who records it again."""
    words = ["record.py"]
    for name in ("save_before", "over_after", "count", "saves", "between", "random"):
        value = getattr(options, name)
        for one in value if isinstance(value, list) else [value] if value not in (None, 1) else []:
            words += ["--" + name.replace("_", "-"), str(one)]
    return shlex.join(words + ["--"] + options.command).replace(HERE + "/", "")


def head(options, notes):
    yield "# %s, %s" % (options.program, options.release)
    for line in [how(options)] + options.comment + ["Recorded: %s" % note for note in sorted(notes)]:
        yield "# " + line
    yield "program " + options.program
    yield "source recorded"
    yield "restart " + options.restart
    for what in ("output", "note", "journal", "limit"):
        for line in getattr(options, what):
            yield "%s %s" % (what, line)
    if options.again is not None:
        yield from ["again", *[line for line in options.again if line], "end"]


def release_of():
    with open("/etc/os-release", encoding="utf-8") as file:
        found = dict(line.rstrip().split("=", 1) for line in file if "=" in line)
    return "Debian " + found["VERSION_ID"].strip('"')


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name")
    parser.add_argument("--dir", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--restart", required=True)
    parser.add_argument("--release", default=release_of())
    parser.add_argument("--to")
    parser.add_argument("--cwd")
    parser.add_argument("--keep", metavar="FILE", help="the log of strace")
    for name in ("--comment", "--output", "--note", "--journal", "--limit", "--random"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--again", action="append", metavar="STATEMENT", help="what it does when it is started again; '' for nothing")
    parser.add_argument("--save-before")
    parser.add_argument("--over-after")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--saves", type=int)
    parser.add_argument("--between", type=float)
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def main():
    options = parsed()
    directory = os.path.realpath(options.dir)
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    recorder = follow.Recorder(directory, options.cwd or directory)
    for call in record(options, directory):
        recorder.handle(call)
    events = without_bystanders(without_reads(recorder.events))
    events = cut(early(marked(events, options.save_before, options.over_after, options.count)), options.saves)
    events = list(merged(paused(events, options.between)))
    names = Names(options.random, {p.pid for p in recorder.processes.values()})
    lines = [*head(options, recorder.notes), *statements(events, names)]
    to = options.to or os.path.join(HERE, options.name + ".txt")
    text = "\n".join(lines) + "\n"
    saves = protocol.parse(options.name, text).saves()
    with open(to, "w", encoding="utf-8") as file:
        file.write(text)
    print("%s: %d lines, %d saves" % (to, len(lines), len(saves)))


if __name__ == "__main__":
    sys.exit(main())
