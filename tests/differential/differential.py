#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Random histories on a mount and on an ordinary directory, side by side: README.md beside this file.

    make check-differential ARGS="--seconds 3600"
    make check-differential ARGS="--seed 7 --first 12 --histories 1 --passthrough off"
    make check-differential ARGS="--replay FILE --times 20"
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

from beside import run
from drawing import Drawing
from minimal import shrink

PEOPLE = {"alice": (71001, 71001, [71001, 72000]), "bob": (71002, 71002, [71002, 72000]), "root": (0, 0, [0])}
SETTLE = ("24h", "24h", "0", "100ms")
CACHE = (None, None, "8M")


def people():
    """Who acts: as root several users, else only who runs this."""
    return PEOPLE if os.getuid() == 0 else {"me": (os.getuid(), os.getgid(), os.getgroups())}


def draw(seed, number, passthrough):
    """History NUMBER of a seed: its mount options and its steps."""
    name = "%s/%d" % (seed, number)
    choice = random.Random("options of " + name)
    options = {"passthrough": passthrough, "settle": choice.choice(SETTLE)}
    if os.getuid() == 0:
        options["allow_other"] = True
    size = choice.choice(CACHE)
    if size:
        options["cache-size"] = size
    whole = {"seal": 0.012, "look": 0.02, "storm": choice.choice((0, 0, 0.01)), "kill": 0.004, "remount": 0.002, "cold": 0.001}
    if choice.random() < 0.3:
        options["supervise"] = True
        whole["restart"] = 0.03
    return options, Drawing(name, people()).steps(choice.choice((60, 200, 200, 500)), whole) + [["*", "finish"]]


class Differential:
    def __init__(self, program, base, say=print, trials=200, keep=False):
        self.program, self.base, self.say, self.trials, self.keep = program, pathlib.Path(base), say, trials, keep
        self.histories = self.steps = 0

    def once(self, options, steps):
        place = pathlib.Path(tempfile.mkdtemp(prefix="history-", dir=self.base))
        os.chmod(place, 0o755)
        try:
            wrong, done = run(place, self.program, options, {} if os.getuid() else people(), steps)
            self.steps += done
            return wrong
        finally:
            if not self.keep:
                if os.getuid():  # directories that nobody may enter
                    subprocess.run(["chmod", "-R", "u+rwx", place], check=False)
                shutil.rmtree(place, ignore_errors=True)

    def history(self, seed, number, passthrough):
        """Runs one, and shrinks it where it fails: whether it holds."""
        options, steps = draw(seed, number, passthrough)
        self.histories += 1
        wrong = self.once(options, steps)
        if not wrong:
            return True
        self.say("history %d of seed %s, %s, step %d:\n%s" % (number, seed, options, wrong[0], wrong[1]))
        self.report(options, steps[:wrong[0] + 1], wrong[1])
        return False

    def report(self, options, steps, wrong):
        left = [self.trials]

        def fails(fewer):
            if not left[0]:
                return None
            left[0] -= 1
            again = self.once(options, fewer)
            return again[0] if again and again[1].what == wrong.what else None

        if fails(steps) is None:
            self.say("It did not fail again with the same steps.")
        else:
            steps = shrink(steps, fails)
        again = self.once(options, steps)
        with tempfile.NamedTemporaryFile("w", prefix="differential-", suffix=".txt", delete=False) as f:
            f.write("".join(json.dumps(line) + "\n" for line in [options] + steps))
        self.say("\n".join(["%d steps are left:" % len(steps)] + [json.dumps(step) for step in steps] +
                           [str(again[1]) if again else "(which hold now)", "make check-differential ARGS='--replay %s'" % f.name]))

    def replay(self, path, times):
        with open(path, encoding="utf-8") as f:
            options, *steps = [json.loads(line) for line in f if line.strip()]
        failed = 0
        for _ in range(times):
            wrong = self.once(options, steps)
            if wrong:
                failed += 1
                self.say("step %d, %s:\n%s" % (wrong[0], json.dumps(steps[wrong[0]]), wrong[1]))
        self.say("%d of %d times" % (failed, times))
        return not failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="a fresh one, which is printed")
    parser.add_argument("--first", type=int, default=0, help="the number of the first history")
    parser.add_argument("--histories", type=int, default=10**9)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--passthrough", choices=("on", "off", "both"), default="both" if os.getuid() == 0 else "off")
    parser.add_argument("--trials", type=int, default=200, help="how many histories are run to shrink one that fails")
    parser.add_argument("--keep-going", action="store_true", help="also after a history that failed")
    parser.add_argument("--keep", action="store_true", help="what histories leave stays")
    parser.add_argument("--in", dest="base", help="the directory that all is made in: its file system is compared with")
    parser.add_argument("--replay", metavar="FILE", help="one history, as it was printed")
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    base = tempfile.mkdtemp(prefix="differential-", dir=options.base)
    os.chmod(base, 0o755)
    say = lambda text: print(text, flush=True)
    differential = Differential(os.environ["EPOCHFS_BIN"], base, say, options.trials, options.keep)
    try:
        if options.replay:
            return 0 if differential.replay(options.replay, options.times) else 1
        say("seed %d" % options.seed)
        ways = ("on", "off") if options.passthrough == "both" else (options.passthrough,)
        end, number, wrong = time.monotonic() + options.seconds, options.first, 0
        while time.monotonic() < end and number < options.first + options.histories and (options.keep_going or not wrong):
            wrong += not differential.history(options.seed, number, ways[number % len(ways)])
            number += 1
        say("%d histories, %d steps were compared, %d histories failed" % (differential.histories, differential.steps, wrong))
        return 1 if wrong else 0
    finally:
        if not options.keep:
            shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
