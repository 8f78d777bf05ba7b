# SPDX-License-Identifier: Apache-2.0
"""Protocols as README.md has them: read, checked, and spread out into operations."""

import collections
import fnmatch
import os
import re

FOLDER = os.path.dirname(os.path.abspath(__file__))

FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR, "creat": os.O_CREAT, "excl": os.O_EXCL, "trunc": os.O_TRUNC,
         "append": os.O_APPEND, "direct": os.O_DIRECT, "sync": os.O_SYNC}

# Arguments of an operation of a process: d descriptor, p path, n number, f flags, w process, t text.
OPERATIONS = {
    "open": "dpf", "write": "dn@", "store": "dn@", "truncate": "dn", "fsync": "d", "fsyncdir": "p", "close": "d", "fork": "w",
    "mkdir": "p", "rmdir": "p", "unlink": "p", "rename": "pp", "exchange": "pp", "link": "pp", "symlink": "tp", "chmod": "p",
    "utimens": "p", "exit": "n",
}

# who: a process, or None of pause, save and over; args: as OPERATIONS has them, an absent offset is None; line: in the file; key: no two of a protocol
# have the same.
Operation = collections.namedtuple("Operation", "who what args line key")

EXPANSION = re.compile(r"\{n(?:([*+])(\d+))?(?::0(\d+))?\}")


class ProtocolError(Exception):
    pass


class Protocol:
    """program, source, restart ([kind, paths]), output, note, journals ([journal, file]), limits; `start`, `again`, `body`: lists of Operation."""

    def __init__(self, name):
        self.name = name
        self.program = self.source = self.restart = None
        self.output, self.note, self.journals, self.limits = [], [], [], []
        self.start, self.again, self.body = [], None, []

    def is_output(self, path):
        return any(fnmatch.fnmatch(path, glob) for glob in self.output)

    def is_note(self, path):
        return any(fnmatch.fnmatch(path, glob) for glob in self.note)

    def saves(self):
        return [op.args[0] for op in self.body if op.what == "save"]

    def first_of_restart(self):
        """What a program that is started again does first."""
        if self.again is not None:
            return self.again
        return [without_trunc(op) if op.what == "open" and self.is_output(op.args[1]) else op for op in self.start]


def without_trunc(op):
    descriptor, path, flags = op.args
    return op._replace(args=(descriptor, path, flags & ~os.O_TRUNC))


def spread(text, n):
    def value(match):
        sign, operand, width = match.groups()
        number = n if not sign else n * int(operand) if sign == "*" else n + int(operand)
        return str(number).zfill(int(width or 0))
    return EXPANSION.sub(value, text)


def lines_of(text):
    for number, line in enumerate(text.split("\n"), 1):
        line = line.split("#")[0].strip() if not line.startswith(("restart ", "program ", "source ")) else line.strip()
        if line:
            yield number, line


def parse_flags(text):
    flags = 0
    for word in text.split(","):
        flags |= FLAGS[word]
    return flags


def parse_arguments(form, words):
    arguments = []
    for letter in form:
        if letter == "@":
            arguments.append(int(words.pop(0)[1:]) if words and words[0].startswith("@") else None)
        elif letter in "dn":
            arguments.append(int(words.pop(0)))
        elif letter == "f":
            arguments.append(parse_flags(words.pop(0)))
        else:
            arguments.append(words.pop(0))
    if words:
        raise ValueError("too many words")
    return tuple(arguments)


def parse_operation(line, number, key):
    words = line.split()
    if words[0] == "pause":
        return Operation(None, "pause", (float(words[1]),), number, key)
    if words[0] in ("save", "over"):
        return Operation(None, words[0], (int(words[1]),), number, key)
    who, what = words[0], words[1]
    if not re.fullmatch("[A-Z][0-9]*", who):
        raise ValueError("not a process: " + who)
    return Operation(who, what, parse_arguments(OPERATIONS[what], words[2:]), number, key)


def parse_head(protocol, line):
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if word == "program":
        protocol.program = rest
    elif word == "source":
        protocol.source = rest
    elif word == "restart":
        kind, *paths = rest.split()
        protocol.restart = (kind, paths)
    elif word == "output":
        protocol.output += rest.split()
    elif word == "note":
        protocol.note += rest.split()
    elif word == "journal":
        journal, path = rest.split()
        protocol.journals.append((journal, path))
    elif word == "limit":
        protocol.limits.append(rest)
    else:
        return False
    return True


def blocks(lines, at=0, inside=False):
    """Lines with `repeat` spread out; `again` and its `end` stay."""
    out = []
    while at < len(lines):
        number, line = lines[at]
        at += 1
        if line == "end" and inside:
            return out, at
        if line.startswith("repeat "):
            first, last = map(int, line.split()[1:])
            body, at = blocks(lines, at, True)
            out += [(k, spread(text, n)) for n in range(first, last + 1) for k, text in body]
        else:
            out.append((number, line))
            if line == "again":
                body, at = blocks(lines, at, True)
                out += body + [(number, "end")]
    return out, at


def parse(name, text):
    protocol = Protocol(name)
    where = protocol.start
    for key, (number, line) in enumerate(blocks(list(lines_of(text)))[0]):
        try:
            if line == "again":
                where = protocol.again = []
            elif line == "end":
                where = protocol.start
            elif not protocol.body and parse_head(protocol, line):
                pass
            else:
                op = parse_operation(line, number, key)
                if op.what == "save":
                    where = protocol.body
                where.append(op)
        except (ValueError, KeyError, IndexError) as error:
            raise ProtocolError("%s.txt, line %d: %s: %s" % (name, number, line, error)) from error
    check(protocol)
    return protocol


def check(protocol):
    """Whether marks nest, descriptors are open, and the head is whole."""
    if not (protocol.program and protocol.source and protocol.restart):
        raise ProtocolError("%s.txt: it lacks program, source or restart" % protocol.name)
    inside, opened = 0, set()
    for op in protocol.start + protocol.body:
        if op.what == "save":
            if inside:
                raise ProtocolError("%s.txt, line %d: save %d is not over" % (protocol.name, op.line, inside))
            inside = op.args[0]
        elif op.what == "over":
            if op.args[0] != inside:
                raise ProtocolError("%s.txt, line %d: save %d has not begun" % (protocol.name, op.line, op.args[0]))
            inside = 0
        elif op.what == "open":
            opened.add((op.who, op.args[0]))
        elif op.what == "fork":
            opened |= {(op.args[0], fd) for who, fd in opened if who == op.who}
        elif op.what == "exit":
            opened = {(who, fd) for who, fd in opened if who != op.who}
        elif OPERATIONS.get(op.what, "").startswith("d"):
            if (op.who, op.args[0]) not in opened:
                raise ProtocolError("%s.txt, line %d: %s has no descriptor %d" % (protocol.name, op.line, op.who, op.args[0]))
            if op.what == "close":
                opened.remove((op.who, op.args[0]))
    if inside or not protocol.saves():
        raise ProtocolError("%s.txt: %s" % (protocol.name, "save %d is not over" % inside if inside else "it saves nothing"))


def load(name):
    with open(os.path.join(FOLDER, name + ".txt"), encoding="utf-8") as file:
        return parse(name, file.read())


def names():
    return sorted(entry[:-4] for entry in os.listdir(FOLDER) if entry.endswith(".txt"))
