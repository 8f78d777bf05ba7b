# SPDX-License-Identifier: Apache-2.0
"""Plays protocols, disturbs them, and says where `latest` is not what the program meant.

A play is one run of a protocol: as it is, with a pause before one of its operations, or killed before one and started again.
"""

import collections
import hashlib
import os
import re

import intent as intents
import protocol as protocols
from place import PATIENCE, SETTLE

FOREVER = float("inf")
EPSILON = 1.0  # beyond settle and patience, in the place's own time

# what: "half": latest named a tree in which a save was half; "first": that was the first of its kind, disturbed, and "long": the program paused longer
# than patience in it, both limits of the manual; "late": a whole save was not latest after settle + patience; "lost": after a kill latest names
# an older save than before; "taken": a kill took bytes from an output; "live": with resume the live tree holds no whole save; "called": an epoch that
# holds the whole of a save, and nothing of another, is not called whole; "failed": an operation failed; where: what was done last; why: for people.
Fault = collections.namedtuple("Fault", "what where why")

# Parts of names that a program draws by chance: a UUID, long hexadecimal, what mkstemp(3) and Rust's tempfile put behind "tmp".
RANDOM = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-z])[0-9a-f]{16,64}(?![0-9a-z])|"
                    r"(?<=tmp)[a-z0-9_]{8}(?![a-z0-9_])|(?<=\.tmp)[A-Za-z0-9]{6}(?![A-Za-z0-9])")

# What fails for who is started again, and does no harm: a directory is there, or is not.
OFTEN_THERE = re.compile(r"\S+ (mkdir|rmdir) ")

# disturbance: None, "pause", "delay" (the pause that settle and patience need) or "kill"; at: before which operation of the body; seconds: of the
# pause.
Play = collections.namedtuple("Play", "disturbance at seconds resume cold", defaults=(None, None, 0, False, False))


def draw_again(text):
    return hashlib.sha256(text.encode()).hexdigest()[:len(text)]


def kind_of(play):
    """All of a play but where: "kill, resume"."""
    first = "pause of %g s" % play.seconds if play.disturbance == "pause" else play.disturbance or "as it is"
    return ", ".join([first] + ["resume"] * play.resume + ["cold"] * play.cold)


def text_of(play):
    return kind_of(play) + (" at %d" % play.at if play.at is not None else "")


class Player:
    """One protocol on one place, any number of plays."""

    def __init__(self, protocol, place, arena):
        self.protocol, self.place, self.arena = protocol, place, arena
        operations = protocol.start + protocol.body
        self.plan = intents.plan_of(operations)
        for op in protocol.again or []:
            if op.what == "open":
                self.plan.setdefault(op.key, (4096, op.args[1]))
        self.course = intents.course_of(protocol, self.plan, arena, operations)

    def play(self, play):
        """Returns the faults of a play, and figures of it."""
        run = Run(self, play)
        run.all()
        return run


class Run:
    def __init__(self, player, play):
        self.player, self.play, self.place = player, play, player.place
        self.protocol = player.protocol
        self.intent = intents.Intent(self.protocol, player.plan, player.arena, player.course)
        self.faults, self.delay, self.epochs = {}, None, 0
        self.where = "the start"
        self.halves = set()  # epochs that were found half
        self.limit, self.until = None, 0  # which limit of the manual meets epochs up to this number: those sealed after the pause or the kill do not
        self.again = False
        self.drawn = {}  # random parts of names, and what the program drew instead when it was started again

    def fault(self, what, why):
        """The first of each kind: what follows from it says no more."""
        self.faults.setdefault(what, Fault(what, self.where, why))

    # ---- the course of a play

    def all(self):
        self.place.begin(self.play.resume)
        for op in self.protocol.start:
            self.step(op)
        body = self.protocol.body
        for index, op in enumerate(body):
            if index == self.play.at:
                if self.disturb(op, index):
                    break
            self.step(op)
            self.check_latest()
        else:
            if self.play.disturbance == "delay":
                self.delay = self.measure_delay()
            self.finish()
        if self.play.disturbance == "kill" and self.play.at == len(body):
            self.kill(body, len(body))
        self.figures()
        self.place.end()

    def step(self, op):
        if op.who or op.what == "pause":
            self.where = "line %d: %s %s" % (op.line, op.what, " ".join(map(str, op.args)))
        at = self.intent.apply(op)
        if op.what == "pause":
            self.place.pause(op.args[0])
        elif op.who:
            self.place.act(op, at)
        elif op.what == "over" and self.until == FOREVER:
            self.end_disturbance()

    def disturb(self, op, index):
        self.where = "%s before line %d" % (self.play.disturbance, op.line)
        if self.play.disturbance == "kill":
            self.kill(self.protocol.body, index)
            return True
        if self.play.disturbance == "delay":
            self.delay = self.measure_delay()
            return True
        self.begin_disturbance()
        self.place.pause(self.play.seconds)
        self.check_latest()
        if self.play.seconds < PATIENCE:
            self.end_disturbance()
        return False

    def finish(self):
        self.where = "the end"
        self.place.pause(SETTLE + EPSILON)
        self.check_latest()
        self.place.pause(PATIENCE)
        self.check_latest()
        self.check_newest()
        if self.play.disturbance in (None, "delay"):
            self.check_called()

    def check_called(self):
        """A tree that holds a whole save is called whole, unless a newer epoch holds the same save."""
        seen = self.place.look("trees")
        said = {number: verdict for number, verdict, _ in seen["epochs"]}
        held = {number: self.intent.verdict(tree) for number, tree in seen["trees"].items()}
        whole = {newest for number, (verdict, newest) in held.items() if verdict == "whole" and said[number] == "whole"}
        for number, (verdict, newest) in sorted(held.items()):
            if verdict == "whole" and newest not in whole:
                self.fault("called", "epoch %d holds save %d, and is called %s" % (number, self.intent.attempts[newest].number, said[number]))

    # ---- what is asked

    def check_latest(self):
        tree, number = self.place.latest()
        verdict, why = self.intent.verdict(tree)
        if verdict == "half" and number not in self.halves:
            self.halves.add(number)
            self.fault(self.limit if self.limit and number <= self.until else "half", "latest is epoch %d with %s" % (number, why))
        return verdict, why

    def begin_disturbance(self):
        self.until = FOREVER
        if not any(attempt.over for attempt in self.intent.attempts):
            self.limit = "first"
        elif self.play.seconds >= PATIENCE:
            self.limit = "long"

    def end_disturbance(self):
        self.until = max([number for number, _, _ in self.place.look("none")["epochs"]], default=0)

    def newest_whole(self):
        done = [i for i, attempt in enumerate(self.intent.attempts) if attempt.over]
        return done[-1] if done else None

    def is_newest(self):
        tree, _ = self.place.latest()
        verdict, newest = self.intent.verdict(tree)
        return verdict == "whole" and newest >= self.newest_whole()

    def check_newest(self):
        """After settle + patience without a change the last whole save is latest."""
        if self.newest_whole() is not None and not self.is_newest():
            self.fault("late", "save %d is whole, and latest is not it" % self.intent.attempts[self.newest_whole()].number)

    def measure_delay(self):
        """How long until the save that has just ended is latest, where the program lets it."""
        for delay, seconds in (("at once", SETTLE + EPSILON), ("settle", PATIENCE), ("patience", 0)):
            if self.is_newest():
                return delay
            self.place.pause(seconds)
        self.check_newest()
        return "never"

    # ---- a kill

    def kill(self, body, index):
        self.where = "kill before line %d" % body[index].line if index < len(body) else "kill at the end"
        before = self.intent.verdict(self.place.latest()[0])
        self.begin_disturbance()
        self.place.kill_all()
        self.check_latest()
        self.place.pause(SETTLE + EPSILON)
        self.check_latest()
        self.place.pause(PATIENCE)
        self.check_latest()
        if self.play.cold:
            self.place.lose_machine()
            self.check_latest()
        self.check_survives(before)
        self.end_disturbance()
        self.start_again(body, index)

    def check_survives(self, before):
        """A whole save that was latest before stays so, or a newer one is; with resume the live tree has one."""
        if before[0] != "whole":
            return
        verdict, newest = self.check_latest()
        if verdict == "none" or (verdict == "whole" and newest < before[1]):
            self.fault("lost", "save %d is not in latest any more" % self.intent.attempts[before[1]].number)
        if self.play.resume:
            verdict, why = self.intent.verdict(self.place.look("live")["live"])
            if verdict != "whole":
                self.fault("live", "the live tree: %s" % (why or verdict))

    def check_outputs(self, live):
        """Where nothing goes back, an output has all that was written to it."""
        for path, seen in self.intent.files.tree().items():
            if self.protocol.is_output(path) and live.get(path) != seen:
                self.fault("taken", "%s had %s, and has %s" % (path, seen, live.get(path)))

    def start_again(self, body, index):
        """The program as it is started again: it loads, and goes on with the save that was killed, or with the next where it finds that one whole."""
        live = self.place.look("live")["live"]
        if not self.play.resume and not self.play.cold:
            self.check_outputs(live)
        found = self.intent.verdict(live) == ("whole", len(self.intent.attempts) - 1)
        same = self.intent.inside and not found
        self.intent.become(live, self.player.arena.whole)
        saves = [i for i, op in enumerate(body) if op.what == "save"]
        following = next((i for i in (reversed(saves) if same else saves) if (i < index) == same), None)
        if following is None:
            self.check_newest()
            return
        self.again = True
        for op in map(self.as_restarted, self.protocol.first_of_restart() + body[following:]):
            if self.can_be_done(op):
                self.make_way(op)
                self.step(op)
                self.check_latest()
        self.finish()

    def can_be_done(self, op):
        """What it had opened before it was killed it does not have, and a file that is not there it neither reads, moves nor removes."""
        there = self.intent.files.names
        if op.what == "open":
            return op.args[2] & os.O_CREAT or op.args[1] in there
        if op.what in ("unlink", "rename", "link"):
            return any(path == op.args[0] or path.startswith(op.args[0] + "/") for path in there)
        if protocols.OPERATIONS.get(op.what, "").startswith("d"):
            return op.args[0] in self.intent.files.open.get(op.who, {})
        return True

    def make_way(self, op):
        """Who makes a link removes what has its name, and who makes a file the directories above it that went with a killed save."""
        if op.what == "open" and op.args[2] & os.O_CREAT:
            parts = op.args[1].split("/")[:-1]
            for above in ("/".join(parts[:n]) for n in range(1, len(parts) + 1)):
                if not any(path.startswith(above + "/") for path in self.intent.files.names):
                    self.step(op._replace(what="mkdir", args=(above,)))
        if op.what in ("link", "symlink") and op.args[1] in self.intent.files.names:
            self.step(op._replace(what="unlink", args=(op.args[1],)))

    def as_restarted(self, op):
        """Names of processes are others, and so are those that a process draws by chance; another name that is left is no obstacle."""
        if op.what == "open":
            if op.args[2] & os.O_CREAT:
                self.drawn.update((text, draw_again(text)) for text in RANDOM.findall(op.args[1]))
            op = op._replace(args=(op.args[0], op.args[1], op.args[2] & ~os.O_EXCL))
        if op.what == "fork":
            op = op._replace(args=(op.args[0] + "9",))
        args = tuple(RANDOM.sub(lambda found: self.drawn.get(found[0], found[0]), word) if isinstance(word, str) else word for word in op.args)
        return op._replace(who=op.who + "9", args=args) if op.who else op

    def figures(self):
        seen = self.place.look("none")
        self.epochs, self.stored = len(seen["epochs"]), seen["stored"]
        self.verdicts = [verdict for _, verdict, _ in seen["epochs"]]
        self.failures = [text for text in self.place.failures() if not self.again or not OFTEN_THERE.match(text)]
        if self.failures:
            self.fault("failed", "; ".join(self.failures))


def plays_of(protocol, pauses=(2, 10, 90)):
    """All disturbances of a protocol."""
    points = [i for i, op in enumerate(protocol.body) if op.who] + [len(protocol.body)]
    yield Play()
    yield Play(resume=True)
    for at in [i + 1 for i, op in enumerate(protocol.body) if op.what == "over"]:
        yield Play("delay", at)
    for seconds in pauses:
        for at in points[:-1]:
            yield Play("pause", at, seconds)
    for resume, cold in ((False, False), (True, False), (False, True)):
        for at in points:
            yield Play("kill", at, 0, resume, cold)
