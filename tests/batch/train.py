#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A training program as people give it to a batch system: saves model and optimizer each second, over the same files, and goes on from what it finds. At
SIGTERM it saves once more and ends.

    train.py --checkpoint-dir DIRECTORY [--part NAME]

--part: one of several nodes; it saves its own files to a directory of each step.

Whoever tests it puts files into the user's home: `enough`: the next save is the last one; `deaf`: SIGTERM changes nothing; `halt`: it stands still before
the next save, also before the first; `stuck`: it stands still in the middle of the next save. What it says is in `said`, a line a fact.
"""

import argparse
import os
import pathlib
import re
import signal
import sys
import time

# tests/origins/training.py: the weights are a function of the step, so that a file that is wrong is known.
from training import Training, load_archive, save_archive

NAMES = ("model", "optimizer")
HOME = pathlib.Path(os.path.expanduser("~%s" % os.environ.get("TRAIN_USER", "")))


def told(word):
    return (HOME / word).exists()


class Checkpoints:
    """Where the files of a save lie."""

    def __init__(self, top, part):
        self.top, self.part = pathlib.Path(top), part

    def paths(self, step):
        if self.part is None:
            return [self.top / (name + ".zip") for name in NAMES]
        return [self.top / ("step-%d" % step) / ("%s-%s.zip" % (name, self.part)) for name in NAMES]

    def newest(self):
        if self.part is None:
            return 0 if self.paths(0)[0].exists() else None
        steps = [int(p.name[5:]) for p in self.top.glob("step-*") if re.fullmatch(r"step-\d+", p.name) and all(q.exists() for q in self.paths(int(p.name[5:])))]
        return max(steps, default=None)

    def load(self):
        """A new training, or that of the newest save; ends where its two files are of two saves."""
        newest = self.newest()
        if newest is None:
            return Training()
        loaded = [load_archive(path, (name,)) for path, name in zip(self.paths(newest), NAMES)]
        if loaded[0].steps != loaded[1].steps:
            sys.exit("model of step %d, optimizer of step %d" % (loaded[0].steps, loaded[1].steps))
        return loaded[0]

    def save(self, training, half):
        for path, name in zip(self.paths(training.steps), NAMES):
            path.parent.mkdir(exist_ok=True)
            save_archive(path, training, (name,), half if name == NAMES[-1] else lambda: None)


class Run:
    def __init__(self, checkpoints, who):
        self.checkpoints, self.who = checkpoints, who
        self.asked = False
        signal.signal(signal.SIGTERM, self.on_term)

    def on_term(self, *_):
        self.asked = self.asked or not told("deaf")

    def say(self, *words):
        line = " ".join(map(str, self.who + words)) + "\n"
        os.write(1, line.encode())
        with open(HOME / "said", "a", encoding="utf-8") as f:
            f.write(line)

    def stand_still(self, word, fact):
        """For as long as the file is there, or until it is told to end."""
        if told(word):
            self.say(fact)
            while told(word) and not self.asked:
                time.sleep(0.05)

    def pause(self):
        end = time.monotonic() + 1
        while time.monotonic() < end and not self.asked:
            time.sleep(0.05)

    def train(self):
        training = self.checkpoints.load()
        self.say("starts", training.steps)
        while True:
            if not self.asked:
                self.stand_still("halt", "halted")
            last = self.asked or told("enough")
            training.step()
            self.checkpoints.save(training, lambda: self.stand_still("stuck", "stuck"))
            self.say("saved", training.steps)
            if last:
                break
            self.pause()
        self.say("done" if not self.asked else "ended", training.steps)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint-dir", required=True)
    parser.add_argument("--part")
    a = parser.parse_args()
    Run(Checkpoints(a.checkpoint_dir, a.part), (a.part,) if a.part else ()).train()


if __name__ == "__main__":
    main()
