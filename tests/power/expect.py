# SPDX-License-Identifier: Apache-2.0
"""What a recorded session was promised, by its marks, and whether a tree keeps it.

A mark is a JSON object; each of its keys is one statement:

    may     {PATH: TOKEN}  from now on PATH may hold this, too; null: may be absent. "torn": true, it may be torn
    must    {PATH: TOKEN}  from now on PATH holds this and nothing else: it was fsynced
    move    [OLD, NEW]     a rename begins: whatever is under OLD may be under NEW
    names   {PATH: BOOL}   a directory was fsynced: PATH is there, or is not
    lines   [PATH, N, SYNCED]  a file is appended to: N lines of it; SYNCED: these are there for ever
    blocks  [PATH, {I: V}, SYNCED]  a file is changed in place: its block I is of version V
    rows    [PATH, N]      a database has committed N rows, for ever
    durable [N, {PATH: TOKEN}]  `wait` returned: epoch N is this, here and in the remote
    dropped N              epoch N was dropped
    forget                 files that are appended to or changed in place may be anything from now on

TOKEN is "NAME:VERSION": content(NAME, VERSION), which tells by itself whether it is whole.
"""

import os
import shutil
import sqlite3
import tempfile

from kill_session import content, is_whole

BLOCK = 4096


def whole(token):
    name, _, version = token.rpartition(":")
    return content(name, int(version))


def lines(path, count):
    return b"".join(b"%s line %d\n" % (path.encode(), i) for i in range(count))


def block(path, i, version):
    return (b"%s block %d version %d\n" % (path.encode(), i, version) * BLOCK)[:BLOCK]


class Expect:
    def __init__(self):
        self.allowed = {}  # path -> set of tokens and None
        self.torn = set()  # paths that may be torn
        self.moves = []  # (old, new): under one of them, not both
        self.lines, self.blocks, self.rows = {}, {}, {}
        self.durable = {}

    def apply(self, mark):
        for key, value in mark.items():
            act = getattr(self, "on_" + key, None)
            if act:
                act(value, mark)

    # ---- files that are written as a whole

    def on_may(self, files, mark):
        for path, token in files.items():
            self.allowed.setdefault(path, {None}).add(token)
            self.moves = [m for m in self.moves if path not in m]
            if mark.get("torn"):
                self.torn.add(path)

    def on_must(self, files, _):
        for path, token in files.items():
            self.allowed[path] = {token}
            self.torn.discard(path)

    def on_move(self, pair, _):
        old, new = pair
        for path in [p for p in self.allowed if p == old or p.startswith(old + "/")]:
            target = new + path[len(old):]
            before = self.allowed.get(target, {None})
            self.moves = [m for m in self.moves if path not in m]
            if None not in self.allowed[path] and before == {None}:
                self.moves.append((path, target))
            self.allowed[target] = before | self.allowed[path]
            self.allowed[path] = self.allowed[path] | {None}
            if path in self.torn:
                self.torn.add(target)

    def on_names(self, names, _):
        for path, there in names.items():
            self.moves = [m for m in self.moves if path not in m]
            if there:
                self.allowed[path].discard(None)
            else:
                self.allowed[path] = {None}
                self.torn.discard(path)

    # ---- others

    def on_lines(self, value, _):
        path, count, synced = value
        least, _ = self.lines.get(path, (0, 0))
        self.lines[path] = (count if synced else least, count)

    def on_blocks(self, value, _):
        path, blocks, synced = value
        there = self.blocks.setdefault(path, {})
        for i, version in blocks.items():
            there[i] = {version} if synced else there.get(i, {None}) | {version, "torn"}

    def on_rows(self, value, _):
        self.rows[value[0]] = value[1]

    def on_forget(self, _, __):
        self.lines, self.blocks, self.rows, self.moves = {}, {}, {}, []

    def on_durable(self, value, _):
        self.durable[value[0]] = value[1]

    def on_dropped(self, number, _):
        self.durable.pop(number, None)

    # ---- checking

    def check_epoch(self, root, number, named):
        """What is wrong with an epoch that says that it is complete, and names these files as being in doubt."""
        for base, _, files in os.walk(root):
            for name in files:
                path = os.path.relpath(os.path.join(base, name), root)
                data = read(root, path)
                if not is_sound(path, data) and not (is_unfinished(path) and path in named):
                    yield "epoch %d is complete, but %s is torn: %s" % (number, path, short(data))
        for path, token in self.durable.get(number, {}).items():
            if read(root, path) != whole(token):
                yield "epoch %d was durable: %s: %s, not %s" % (number, path, short(read(root, path)), token)

    def check(self, root):
        """(what is wrong, paths that are torn and may be)"""
        wrong, torn = [], []
        found = {p: read(root, p) for p in self.allowed}
        for path, allowed in self.allowed.items():
            if any(token is None if found[path] is None else token is not None and found[path] == whole(token)
                   for token in allowed) or is_mapped(path, found[path]):
                continue
            if path in self.torn and found[path] is not None:
                torn.append(path)
            else:
                wrong.append("%s: %s, promised one of %s" % (path, short(found[path]), sorted(map(str, allowed))))
        for old, new in self.moves:
            if (found[old] is None) == (found[new] is None):
                wrong.append("%s was renamed to %s: %s there" % (old, new, "neither is" if found[old] is None else "both are"))
        wrong += [w for p in self.lines for w in self.check_lines(root, p)]
        wrong += [w for p in self.blocks for w in self.check_blocks(root, p)]
        wrong += [w for p in self.rows for w in self.check_rows(root, p)]
        return wrong, torn

    def check_lines(self, root, path):
        least, most = self.lines[path]
        data = read(root, path) or b""
        if not data.startswith(lines(path, least)):
            yield "%s: %s, %d lines were fsynced" % (path, short(data), least)
        elif len(data) > len(lines(path, most)):
            yield "%s: %d bytes, more than were ever written" % (path, len(data))

    def check_blocks(self, root, path):
        data = read(root, path)
        for i, allowed in self.blocks[path].items():
            if None in allowed or "torn" in allowed:
                continue
            at = int(i) * BLOCK
            if data is None or data[at:at + BLOCK] not in [block(path, int(i), v) for v in allowed]:
                yield "%s: block %s is not of version %s: %s" % (path, i, allowed, short(data and data[at:at + BLOCK]))

    def check_rows(self, root, path):
        with tempfile.TemporaryDirectory() as folder:
            for tail in ("", "-journal", "-wal"):
                if os.path.exists(os.path.join(root, path + tail)):
                    shutil.copy(os.path.join(root, path + tail), folder)
            db = sqlite3.connect(os.path.join(folder, os.path.basename(path)))
            try:
                if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                    yield "%s: damaged" % path
                rows = [r[0] for r in db.execute("SELECT i FROM rows ORDER BY i")]
                if rows != list(range(len(rows))) or len(rows) < self.rows[path]:
                    yield "%s: %d rows, %d were committed" % (path, len(rows), self.rows[path])
            except sqlite3.Error as error:
                yield "%s: %s" % (path, error)
            finally:
                db.close()


def is_unfinished(path):
    """Its directory waits for its final name, which nobody resumes from before: a doubt is named, and counts from the rename on (contract 1.3.11)."""
    return path.startswith("tmp-")


def final_name(directory):
    """Of one that is unfinished."""
    return directory.removeprefix("tmp-")


def is_sound(path, data):
    """Whether a closed file of this name may hold this, whenever it was closed."""
    if path.startswith("rows") or path.endswith((".log", ".jsonl")):
        return True
    if path.startswith("events"):
        return data == lines(path, data.count(b"\n"))
    if os.path.basename(path).startswith("blocks"):
        blocks = [data[at:at + BLOCK] for at in range(0, len(data), BLOCK)]
        return all(b == block(path, i, int((b"0" + b.split(b"\n", 1)[0]).split()[-1])) for i, b in enumerate(blocks))
    return is_whole(data) or is_mapped(path, data)


def is_mapped(path, data):
    """It was closed as zeros, and then written through a mapping."""
    return path == "m" and data is not None and not any(data)


def read(root, path):
    try:
        with open(os.path.join(root, path), "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None


def short(data):
    return "absent" if data is None else "%d bytes %r..." % (len(data), data[:40])
