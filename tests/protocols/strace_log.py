# SPDX-License-Identifier: Apache-2.0
"""What strace -f -y -ttt wrote, as calls in the order in which they ended."""

import collections
import re

# pid: of the thread; name None: the thread ended, with `result` as its status; began, ended: lines; paths and strings of args are unquoted.
Call = collections.namedtuple("Call", "pid name args result began ended time")

LINE = re.compile(r"(\d+) +([\d.]+) (.*)")
RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)")
WHOLE = re.compile(r"(\w+)\((.*)\)\s+= (0x[0-9a-f]+|-?\d+|\?)")
ENDED = re.compile(r"\+\+\+ (?:exited with (\d+)|killed by (\w+))")
BIRTHS = ("clone", "clone3", "fork", "vfork")
SIGNALS = {"SIGKILL": 9, "SIGTERM": 15, "SIGINT": 2, "SIGABRT": 6, "SIGSEGV": 11, "SIGPIPE": 13}


def arguments(text):
    """Splits at the commas that stand in no quotes and no brackets."""
    found, depth, quoted, start, at = [], 0, False, 0, 0
    while at < len(text):
        letter = text[at]
        if letter == "\\" and quoted:
            at += 1
        elif letter == '"':
            quoted = not quoted
        elif not quoted and letter in "[{(<":
            depth += 1
        elif not quoted and letter in "]})>" and depth:
            depth -= 1
        elif not quoted and letter == "," and not depth:
            found.append(text[start:at].strip())
            start = at + 1
        at += 1
    return found + [text[start:].strip()]


def unquoted(text):
    match = re.match(r'"((?:[^"\\]|\\.)*)"', text)
    return match.group(1).encode().decode("unicode_escape").encode("latin1").decode() if match else text


def call_of(pid, text, began, ended, time):
    match = WHOLE.match(text)
    if not match or match.group(3) == "?":
        return None
    return Call(pid, match.group(1), [unquoted(a) for a in arguments(match.group(2))], int(match.group(3), 0), began, ended, time)


def read(path):
    """The calls, with each birth put before the first line of the child."""
    calls, pending, first_line = [], {}, {}
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file):
            match = LINE.match(line)
            if not match:
                continue
            pid, time, text = int(match.group(1)), float(match.group(2)), match.group(3)
            first_line.setdefault(pid, number)
            resumed, ended = RESUMED.match(text), ENDED.match(text)
            began = number
            if ended:
                status = int(ended.group(1)) if ended.group(1) else 128 + SIGNALS.get(ended.group(2), 0)
                calls.append(Call(pid, None, [], status, number, number, time))
                continue
            if text.endswith("<unfinished ...>"):
                pending[pid] = (number, text[:-len("<unfinished ...>")])
                continue
            if resumed and pid in pending:
                began, start = pending.pop(pid)
                text = start + resumed.group(2)
            call = call_of(pid, text, began, number, time)
            if call:
                calls.append(call)

    def order(call):
        return min(call.ended, first_line.get(call.result, call.ended) - 0.5) if call.name in BIRTHS and call.result > 0 else call.ended
    return sorted(calls, key=order)
