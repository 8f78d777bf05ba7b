# SPDX-License-Identifier: Apache-2.0
"""What a program means (intent.py), and what player.py does to it, beside places that are an ordinary directory."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import intent  # noqa: E402
import player  # noqa: E402
import protocol  # noqa: E402

HEAD = "program p\nsource written here\n"
ONE = "save {n}\nA open 3 model w,creat,trunc\nA write 3 100\nA close 3\nover {n}\n"


def parsed(text, restart="file model"):
    return protocol.parse("p", HEAD + "restart %s\n" % restart + text)


class Followed:
    """A protocol as its program sees it; `trees`: what stands behind each of its lines."""

    def __init__(self, text, restart="file model"):
        self.protocol = parsed(text, restart)
        one = player.Player(self.protocol, None, intent.Arena())
        self.course, self.intent = one.course, intent.Intent(self.protocol, one.plan, one.arena, one.course)
        self.lines = text.split("\n")
        self.trees = {}
        for op in self.protocol.start + self.protocol.body:
            self.intent.apply(op)
            self.trees[op.line] = self.intent.files.tree()

    def verdict(self, text, n=1):
        """Of what stood behind the nth line with this text."""
        numbers = [number + 4 for number, found in enumerate(self.lines) if found == text]
        return self.intent.verdict(self.trees[numbers[n - 1]])


def saves(count, text=ONE):
    return "".join(text.replace("{n}", str(n)) for n in range(1, count + 1))


def test_a_file_that_is_only_renamed_belongs_to_no_save():
    second = ONE.replace("save {n}\n", "save 2\nA rename model old\n").replace("{n}", "2")
    assert Followed(saves(1) + second).course[2][0] == {"model"}


def test_what_stood_before_a_save_is_no_half_of_it():
    found = Followed("A open 3 model w,creat,trunc\nA write 3 50\nA close 3\n" + saves(2))
    assert found.verdict("A write 3 50") == ("none", None)
    assert found.verdict("A write 3 100", 2) == ("whole", 1)


def test_what_a_program_changes_before_its_next_save_leaves_that_whole():
    log = "A open 4 log rw,creat\nsave 1\nA write 4 100\nover 1\n"
    move = "A open 5 data rw,creat\nA write 5 90\nA unlink log\nA write 5 80\nsave 2\nA write 5 70\nA write 5 60\nover 2"
    found = Followed(log + move, "file data")
    for line in ("A write 5 90", "A unlink log", "A write 5 80"):
        assert found.verdict(line) == ("whole", 0)
    assert found.verdict("A write 5 70")[0] == "half"


def test_a_restart_takes_back_what_a_journal_has():
    change = "A open 4 model-journal w,creat\nA write 4 10\nA write 3 50 @0\nA write 3 50 @50\nA unlink model-journal\nover {n}\n"
    text = "journal model-journal model\nA open 3 model rw,creat\n" + saves(2, "save {n}\n" + change)
    found = Followed(text)
    assert found.verdict("A write 3 50 @0", 2) == ("whole", 0)
    assert found.verdict("A unlink model-journal", 2) == ("whole", 1)
    tree = dict(found.trees[text.split("\n").index("save 2") + 4 + 3])
    del tree["model-journal"]
    assert found.intent.verdict(tree)[0] == "half"


def test_a_file_that_stays_open_has_other_bytes_in_each_save():
    found = Followed("A open 3 model rw,creat\n" + saves(3, "save {n}\nA store 3 100 @0\nover {n}\n"))
    assert len({tree["model"] for tree in found.trees.values()}) == 4
    assert set(found.course) == {1, 2, 3}


def test_an_output_ends_no_save():
    text = "output log\nA open 4 log w,creat\nsave 1\nA open 3 model w,creat\nA write 3 100\nA write 4 10\nover 1"
    found = Followed(text)
    assert found.course == {1: ({"model"}, next(op.key for op in found.protocol.body if op.args[1:] == (100, None)))}


def test_a_pointer_says_what_is_restarted():
    save = "save {n}\nA mkdir {n}00\nA open 3 {n}00/a w,creat\nA write 3 100\nA close 3\nA unlink last\nA symlink {n}00 last\nover {n}\n"
    found = Followed(save.replace("{n}", "1").replace("A unlink last\n", "") + save.replace("{n}", "2"), "by last")
    assert found.verdict("A close 3", 2) == ("whole", 0)
    assert found.verdict("A unlink last")[0] == "half"
    assert found.verdict("A symlink 200 last") == ("whole", 1)


# ---- plays


class Directory:
    """An ordinary directory, where each look finds another epoch; `sees`: what `latest` has of a tree, before and after a kill."""

    def __init__(self, arena, sees=lambda tree, _killed: tree):
        self.arena, self.sees = arena, sees

    def begin(self, _resume):
        self.files, self.done, self.failed, self.epochs, self.killed = intent.Files(), [], [], [{}], False

    def act(self, op, at=None):
        self.done.append("%s %s" % (op.what, " ".join(map(str, op.args))))
        if op.what in ("link", "symlink") and op.args[1] in self.files.names or op.what == "mkdir" and op.args[0] in self.files.directories:
            self.failed.append("%s %s %s: 17" % (op.who, op.what, op.args[0]))
        elif op.what in ("write", "store"):
            fd, size, offset = op.args
            self.files.put(op.who, fd, self.files.where(op.who, fd, size, offset), self.arena.bytes(at, size))
        else:
            getattr(self.files, "do_" + op.what)(op.who, *op.args)

    def pause(self, _seconds):
        pass

    def kill_all(self):
        self.files.open, self.killed = {}, True

    def latest(self):
        tree = self.sees(self.files.tree(), self.killed)
        if tree != self.epochs[-1]:
            self.epochs.append(tree)
        return tree, len(self.epochs) - 1

    def look(self, _what):
        numbers = range(1, len(self.epochs))
        return {"live": self.files.tree(), "epochs": [(n, "whole", "") for n in numbers], "stored": 0, "trees": dict(enumerate(self.epochs))}

    def failures(self):
        return self.failed

    def end(self):
        pass


def played(text, disturbance=None, before=None, seconds=0, sees=lambda tree, _killed: tree, restart="file model"):
    """The faults of a play that is disturbed before the operation that this line has, and what was done."""
    found, arena = parsed(text, restart), intent.Arena()
    place = Directory(arena, sees)
    lines = text.split("\n")
    at = None
    if disturbance:
        at = len(found.body) if before is None else next(i for i, op in enumerate(found.body) if lines[op.line - 4] == before)
    faults = player.Player(found, place, arena).play(player.Play(disturbance, at, seconds)).faults
    return faults, place.done


TWO = "save {n}\nA open 3 a{n} w,creat\nA write 3 100\nA close 3\nA open 3 b{n} w,creat\nA write 3 {n}00\nA close 3\nover {n}\n"


def test_a_half_that_nobody_disturbed_is_no_limit():
    assert set(played(saves(2, TWO), restart="newest a#")[0]) == {"half"}
    assert set(played(saves(2, TWO), "kill", "A open 3 b2 w,creat", restart="newest a#")[0]) == {"half"}


def test_a_first_save_that_is_killed_is_a_limit():
    def after_the_kill(tree, killed):
        return tree if killed else {}
    assert "first" in played(saves(1, TWO), "kill", "A open 3 b1 w,creat", sees=after_the_kill, restart="newest a#")[0]


def test_what_was_never_whole_is_not_lost():
    def before_the_kill(tree, killed):
        return {} if killed else tree
    text = "A open 4 notes w,creat\nA write 4 10\n" + saves(2)
    assert "lost" not in played(text, "kill", "save 1", sees=before_the_kill)[0]
    assert "lost" in played(text, "kill", "save 2", sees=before_the_kill)[0]


def test_behind_its_last_file_a_program_that_is_killed_goes_on_with_the_next_save():
    text = saves(2, "save {n}\nA mkdir t{n}\nA open 3 t{n}/model w,creat\nA write 3 {n}00\nA close 3\nA rename t{n} s{n}\nA fsyncdir s{n}\nover {n}\n")
    done = played(text, "kill", "A fsyncdir s1", restart="newest s#")[1]
    assert done.count("rename t1 s1") == 1 and done.count("rename t2 s2") == 1
    done = played(text, "kill", "A rename t1 s1", restart="newest s#")[1]
    assert done.count("mkdir t1") == 2 and done.count("rename t1 s1") == 1


def test_names_by_chance_are_drawn_again():
    text = saves(1, "save 1\nA open 3 tmpabcd1234 w,creat,excl\nA write 3 100\nA close 3\nA rename tmpabcd1234 model\nover 1\n")
    done = played(text, "kill", "A close 3")[1]
    names = {line.split()[2] for line in done if line.startswith("open")}
    assert len(names) == 2 and all(name.startswith("tmp") and len(name) == 11 for name in names)
    assert [line.split()[1] in names - {"tmpabcd1234"} for line in done if line.startswith("rename")] == [True]


def test_a_link_is_made_in_the_place_of_one_that_is_there():
    text = "save 1\nA open 3 model w,creat,trunc\nA write 3 100\nA close 3\nA link model best\nA open 4 more w,creat\nA write 4 50\nA close 4\nover 1\n"
    faults, done = played(text, "kill", "A open 4 more w,creat")
    assert "failed" not in faults and done.count("link model best") == 2 and done.count("unlink best") == 1


def test_after_a_kill_at_the_end_the_last_save_is_asked_for():
    assert "late" in played(saves(2) + "A exit 0", "kill", "A exit 0", sees=lambda _tree, _killed: {})[0]


def test_a_kill_that_takes_bytes_from_an_output_is_a_fault():
    class Takes(Directory):
        def kill_all(self):
            super().kill_all()
            self.files.names.pop("log")
    found, arena = parsed("output log\nA open 4 log w,creat\nA write 4 10\n" + saves(2)), intent.Arena()
    one = player.Player(found, Takes(arena), arena)
    assert "taken" in one.play(player.Play("kill", 3)).faults
    assert "taken" not in one.play(player.Play("kill", 3, resume=True)).faults
