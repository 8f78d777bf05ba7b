# SPDX-License-Identifier: Apache-2.0
"""Programs that nobody wrote: ways of saving, drawn by a seed, as protocols. Each knows what it means."""

import random

import protocol

NAMES = ("model.pt", "optim.pt", "scheduler.pt", "rng.pt", "weights.safetensors", "state.json", "ema.npz", "meta.json", "data.bin")
LAST = ("trainer_state.json", "done", "index.json")


class Program:
    def __init__(self, seed):
        draw = self.draw = random.Random(seed)
        self.seed, self.lines = seed, []
        self.style = draw.choice(("in place", "in place", "temporary", "temporary", "directory", "directory", "directory at once"))
        self.files = draw.sample(NAMES, draw.randint(1, 4))
        self.sizes = {name: draw.choice((60, 300, 2000, 9000, 40000, 90000)) for name in self.files}
        self.ranks = draw.choice((1, 1, 1, 2, 3))
        self.last = draw.choice(LAST) if draw.random() < 0.4 else None
        self.keep = draw.choice((0, 0, 1, 2, 3)) if self.style.startswith("directory") else 0
        self.removes_first = draw.random() < 0.3
        self.between = draw.choice((0.5, 2, 4, 10, 30))
        self.inside = draw.choice((0, 0, 0, 0.5, 2))
        self.log = draw.choice(("", "", "train.log", "metrics.jsonl"))
        self.note = "status.txt" if draw.random() < 0.25 else ""
        self.copy = draw.choice(("", "", "", "best.pt", "last.pt")) if self.files[0].endswith(".pt") else ""
        self.fails = draw.random() < 0.2
        self.syncs = draw.random() < 0.3
        self.saves = draw.randint(3, 5)
        self.sharded = {name for name in self.files if self.ranks > 1 and draw.random() < 0.7}

    def say(self, text):
        self.lines.append(text)

    def text(self):
        self.head()
        for n in range(1, self.saves + 1):
            self.work(n)
            self.save(n)
            self.after(n)
        self.say("A exit 0")
        return "\n".join(self.lines)

    def head(self):
        self.say("program random %s: %s, %d files, %d ranks" % (self.seed, self.style, len(self.files), self.ranks))
        self.say("source written by random_program.py")
        self.say("restart " + ("newest checkpoint-#" if self.style.startswith("directory") else "file " + self.files[0]))
        if self.log:
            self.say("output " + self.log)
        notes = [name for name in (self.note, self.copy) if name]
        if notes:
            self.say("note " + " ".join(notes))
        if self.log:
            self.say("A open 9 %s w,creat,append" % self.log)
            self.say("A write 9 100")

    def work(self, n):
        if n > 1:
            self.say("pause %g" % self.between)
        if self.log:
            self.say("A write 9 80")
        if self.note:
            self.write("A", self.note, 50)

    def write(self, who, path, size):
        self.say("%s open 3 %s w,creat,trunc" % (who, path))
        first = max(1, size // 3)
        self.say("%s write 3 %d" % (who, first))
        if size > first:
            self.say("%s write 3 %d" % (who, size - first))
        if self.syncs:
            self.say("%s fsync 3" % who)
        self.say("%s close 3" % who)

    def target(self, n):
        return "checkpoint-%d/" % (n * 100) if self.style.startswith("directory") else ""

    def save(self, n):
        self.say("save %d" % n)
        if self.removes_first:
            self.rotate(n - 1, n)
        folder = self.target(n)
        if self.style == "directory":
            self.say("A mkdir " + folder[:-1])
        elif self.style == "directory at once":
            folder = "tmp-" + folder
            self.say("A mkdir " + folder[:-1])
        for who, path, size in self.shards():
            self.one_file(who, folder + path, size, n)
        if self.last:
            self.write("A", folder + self.last, 120)
        if self.style == "directory at once":
            self.say("A rename %s %s" % (folder[:-1], folder[4:-1]))
        self.say("over %d" % n)

    def shards(self):
        out = []
        for name in self.files:
            if name not in self.sharded:
                out.append(("A", name, self.sizes[name]))
                continue
            stem, _, ending = name.partition(".")
            out += [("ABC"[rank], "%s-rank%d.%s" % (stem, rank, ending), self.sizes[name]) for rank in range(self.ranks)]
        return out

    def one_file(self, who, path, size, n):
        if self.inside:
            self.say("pause %g" % self.inside)
        if self.fails and n == 2 and self.draw.random() < 0.5:
            self.say("%s open 3 %s w,creat,trunc" % (who, path + ".tmp"))
            self.say("%s write 3 %d" % (who, max(1, size // 2)))
            self.say("%s close 3" % who)
            self.say("%s unlink %s" % (who, path + ".tmp"))
        if self.style == "temporary":
            self.write(who, path + ".tmp", size)
            self.say("%s rename %s.tmp %s" % (who, path, path))
        else:
            self.write(who, path, size)

    def after(self, n):
        if not self.removes_first:
            self.rotate(n, n)
        if self.copy and n % 2:
            self.write("A", self.copy, self.sizes[self.files[0]])

    def rotate(self, last, _n):
        """Keeps the newest of those up to `last`."""
        if not self.keep or last - self.keep < 1:
            return
        gone = self.target(last - self.keep)
        for line in [line for line in self.lines if " open 3 " in line]:
            path = line.split()[3].removeprefix("tmp-")
            if path.startswith(gone) and not path.endswith(".tmp") and "A unlink " + path not in self.lines:
                self.say("A unlink " + path)
        if "A rmdir " + gone[:-1] not in self.lines:
            self.say("A rmdir " + gone[:-1])


def program(seed):
    text = Program(seed).text()
    return protocol.parse("random-%s" % seed, text), text
