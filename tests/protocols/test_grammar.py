# SPDX-License-Identifier: Apache-2.0
"""Each protocol can be played on an empty tree; and record.py makes of a log of strace what was done."""

import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import follow  # noqa: E402
import intent  # noqa: E402
import player  # noqa: E402
import protocol  # noqa: E402
import record  # noqa: E402
import strace_log  # noqa: E402


class Tree:
    """Names alone: what exists, and what is a directory, a file or a link."""

    def __init__(self):
        self.names = {".": "directory"}

    def need(self, path, *kinds):
        assert self.names.get(path) in (kinds or ("directory", "file", "link")), "%s is %s" % (path, self.names.get(path))

    def new(self, path, kind):
        assert path not in self.names, path + " is there"
        self.need(os.path.dirname(path) or ".", "directory")
        self.names[path] = kind

    def open(self, _, path, flags):
        if path in self.names:
            self.need(path, "file")
            assert not flags & os.O_EXCL, path + " is there"
        else:
            assert flags & os.O_CREAT, path + " is not there"
            self.new(path, "file")

    def mkdir(self, path):
        self.new(path, "directory")

    def rmdir(self, path):
        self.need(path, "directory")
        assert not any(name.startswith(path + "/") for name in self.names), path + " is not empty"
        del self.names[path]

    def unlink(self, path):
        self.need(path, "file", "link")
        del self.names[path]

    def rename(self, source, target):
        self.need(source)
        self.need(os.path.dirname(target) or ".", "directory")
        if self.names[source] != "directory":
            self.names[target] = self.names.pop(source)
            return
        assert target not in self.names, target + " is there"
        for name in [n for n in self.names if n == source or n.startswith(source + "/")]:
            self.names[target + name[len(source):]] = self.names.pop(name)

    def link(self, source, target):
        self.need(source, "file")
        self.new(target, "file")

    def symlink(self, _, path):
        self.new(path, "link")

    def chmod(self, path):
        self.need(path)

    utimens = chmod

    def fsyncdir(self, path):
        self.need(path, "directory")

    def has(self, operation):
        return operation.args[0] in self.names


def play(tree, operations):
    for operation in operations:
        method = getattr(tree, operation.what, None)
        if method:
            try:
                method(*operation.args)
            except AssertionError as error:
                raise AssertionError("line %d: %s" % (operation.line, error)) from error


@pytest.mark.parametrize("name", protocol.names())
def test_a_protocol_can_be_played(name):
    found = protocol.load(name)
    tree = Tree()
    play(tree, found.start + found.body)
    if found.again is not None:
        play(tree, [operation for operation in found.again if operation.what not in ("unlink", "rmdir") or tree.has(operation)])


@pytest.mark.parametrize("name", protocol.names())
def test_each_save_has_bytes_of_its_own(name):
    found = protocol.load(name)
    assert set(player.Player(found, None, intent.Arena()).course) == set(found.saves())


def test_a_save_without_bytes_of_its_own_is_refused():
    head = "program p\nsource written here\nrestart file a\nnote n\n"
    empty = "save 1\nA open 1 n w,creat\nA write 1 100\nA close 1\nover 1"
    with pytest.raises(protocol.ProtocolError):
        player.Player(protocol.parse("empty", head + empty), None, intent.Arena())


def test_its_restart_finds_something_after_the_first_save():
    for name in protocol.names():
        found = protocol.load(name)
        tree = Tree()
        operations = found.start + found.body
        over = next(n for n, operation in enumerate(operations) if operation.what == "over")
        play(tree, operations[:over])
        kind, paths = found.restart
        if kind in ("file", "by"):
            assert any(path in tree.names for path in paths), name
        elif kind == "newest":
            before, after = paths[0].split("#")
            assert any(n.startswith(before) and n.endswith(after) and n[len(before):len(n) - len(after)].isdigit() for n in tree.names), name


LOG = """\
10 1.0 openat(AT_FDCWD</d>, "a", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0666) = 3</d/a>
10 1.0 write(3</d/a>, ""..., 100) = 100
10 1.0 write(3</d/a>, ""..., 200 <unfinished ...>
11 1.0 newfstatat(AT_FDCWD</d>, "/d/.mark-save-1", 0x7ffe, 0) = -1 ENOENT (No such file or directory)
10 1.0 <... write resumed>) = 200
10 1.0 write(3</d/a>, ""..., 300) = 300
10 1.0 write(3</d/a>, ""..., 400) = 400
10 1.0 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD <unfinished ...>
12 1.1 close(3</d/a>) = 0
10 1.1 <... clone resumed>, child_tidptr=0x7f) = 12
12 1.2 openat(AT_FDCWD</d>, "/d/b", O_RDWR|O_CREAT, 0666) = 3</d/b>
12 1.2 lseek(3</d/b>, 8192, SEEK_SET) = 8192
12 1.2 write(3</d/b>, ""..., 200000) = 200000
12 1.7 fsync(3</d/b>) = 0
10 1.7 rename("a", "tmpk3jf92ab") = 0
10 1.7 openat(AT_FDCWD</d>, "tmpk3jf92ab", O_RDONLY) = 4</d/tmpk3jf92ab>
10 1.7 close(4</d/tmpk3jf92ab>) = 0
12 1.8 unlink("/elsewhere/x") = 0
12 1.8 +++ killed by SIGKILL +++
10 1.8 newfstatat(AT_FDCWD</d>, "/d/.mark-over-1", 0x7ffe, 0) = -1 ENOENT (No such file or directory)
10 1.8 newfstatat(AT_FDCWD</d>, "/d/.mark-pause-30", 0x7ffe, 0) = -1 ENOENT (No such file or directory)
10 9.8 mkdir("/d/c", 0777) = 0
10 9.8 mkdir("/d/c", 0777) = -1 EEXIST (File exists)
10 9.9 +++ exited with 0 +++
"""

EXPECTED = """\
A open 3 a w,creat,trunc
A write 3 100
save 1
A write 3 200
A write 3 300
A write 3 400
pause 0.1
A fork B
B close 3
B open 4 b rw,creat
B write 4 96332 @6068
pause 0.5
B fsync 4
A rename a tmpm6bi87mz
B exit 137
over 1
pause 30
A mkdir c
A exit 0
"""


def test_a_log_becomes_statements(tmp_path):
    log = tmp_path / "log"
    log.write_text(LOG)
    recorder = follow.Recorder("/d", "/d")
    for call in strace_log.read(log):
        recorder.handle(call)
    events = record.without_bystanders(record.without_reads(recorder.events))
    events = list(record.merged(record.paused(record.early(events), None)))
    assert "\n".join(record.statements(events, record.Names([], {10, 11, 12}))) + "\n" == EXPECTED


def test_a_save_is_over_before_old_names_go_but_not_before_its_journal_does():
    words = ["save 1", "open - journal", "unlink journal", "over 1", "save 2", "open - new", "unlink old", "rmdir older", "over 2"]
    events = [follow.Event(0, None, *line.split()) for line in words]
    found = [" ".join([event.what] + event.words) for event in record.early(events)]
    assert found == words[:6] + ["over 2", "unlink old", "rmdir older"]
