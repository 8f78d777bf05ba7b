#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs histories against a real mount and the model of it; shrinks what fails to a short script.

    run.py [--seed N] [--histories 2000] [--first I] [--jobs 2] [--passthrough on|off|both] [--crashes some|all|none]   EPOCHFS_BIN names the program
    run.py --replay FILE [--times N]

A history is made from the seed and its number, so one that failed is run again by --seed N --first I --histories 1. Of
ten, two have crashes of the daemon, remounts, a cold cache and a remote that fails, each on a mount of its own; the
others share one, in directories of their own. Everything lies under TMPDIR. Exit code 1 where something was wrong.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time
import traceback

from generate import generate
from session import Failure, Session
from shrink import shrink

ON_A_MOUNT = 40  # histories that share one
SHRINKING = 90  # seconds
LOG_LINES = 12  # of the daemon's are told with what failed
CACHES = [None, None, "8M"]  # small: what is durable is evicted


def has_crashes(number, which):
    return which == "all" or which == "some" and number % 10 in (3, 7)


class Runner:
    """Histories one after the other, with a mount that is rebuilt when it is worn out."""

    def __init__(self, base, options, say=print):
        self.base = pathlib.Path(base)
        self.options = options
        self.say = say
        self.session = None
        self.shrinking = SHRINKING
        self.likes = ()
        self.mounts = 0
        self.operations = 0
        self.slowest = 0  # seconds of the longest operation in the history that failed

    def fresh(self, **more):
        self.close()
        self.mounts += 1
        folder = self.base / ("mount%d" % self.mounts)
        folder.mkdir()
        self.session = Session(folder, {**self.options, **more})
        self.session.start()

    def close(self):
        """None, or what was wrong at the end."""
        session, self.session = self.session, None
        if session:
            left = session.close()
            if not left:
                shutil.rmtree(session.mount.base, ignore_errors=True)
            return "\n".join(left) or None
        return None

    def attempt(self, ops, alone, **more):
        """What failed, or None."""
        if alone or not self.session or self.session.count >= ON_A_MOUNT:
            left = self.close()
            self.fresh(**more)
            if left:
                return "at the end of the mount: " + left
        try:
            self.session.run(ops, self.count)
            self.session.clean()
            return None
        except Exception as error:
            text = str(error) if isinstance(error, Failure) else traceback.format_exc()
            self.slowest = self.session.slowest
            log = self.session.mount.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
            left = self.close()
            return text + ("\nat the end: " + left if left else "") + "\nits log ended so:\n  " + "\n  ".join(log)

    def count(self, _op, _result):
        self.operations += 1

    def history(self, seed, number, crashes="some"):
        """Runs one; True where it was right."""
        alone = has_crashes(number, crashes) and not self.options.get("restarts")
        ops = generate("%s/%d" % (seed, number), alone, alone, self.likes)
        more = {"cache_size": CACHES[number // ON_A_MOUNT % len(CACHES)]}
        text = self.attempt(ops, alone, **more)
        if not text:
            return True
        self.say("history %d of seed %s, passthrough=%s, failed: %s" % (number, seed, self.options["passthrough"], text))
        slowest = self.slowest
        short, again = shrink(ops, lambda o: self.attempt(o, alone, **more), self.shrinking)
        if not again:
            self.say("it did not fail again (its longest operation took %.1f s that time); the whole history:" % slowest)
        self.say(script({**self.options, **more}, short, again or text))
        return False


def script(options, ops, text):
    """What --replay reads: comments, the mount's options, one operation a line."""
    lines = ["# " + line for line in text.split("\n")] + [json.dumps(options)] + [json.dumps(op) for op in ops]
    return "---- a script for --replay\n" + "\n".join(lines) + "\n----"


def read_script(path):
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line[:1] in "{["]
    return lines[0], lines[1:]


def run_some(args, job, passthrough):
    """The share of one process: the count of failures."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="epochfs-model-", ignore_cleanup_errors=True) as base:
        runner = Runner(base, {"passthrough": passthrough, "restarts": args.restarts}, lambda text: print(text, flush=True))
        runner.shrinking = args.shrink
        runner.likes = args.like.split(",")
        for number in range(args.first + job, args.first + args.histories, args.jobs):
            if args.seconds and time.monotonic() > args.end:
                break
            failed += not runner.history(args.seed, number, args.crashes)
            args.done = number
            if failed >= args.failures:
                break
        left = runner.close()
        if left:
            print("at the end of the last mount: " + left, flush=True)
        print("passthrough=%s: %d operations in histories %d to %d by %d" % (
            passthrough, runner.operations, args.first + job, args.done, args.jobs), flush=True)
    return failed + bool(left)


def replay(args):
    options, ops = read_script(args.replay)
    for _ in range(args.times):
        with tempfile.TemporaryDirectory(prefix="epochfs-model-", ignore_cleanup_errors=True) as base:
            runner = Runner(base, options)
            runner.fresh()
            trace = []
            runner.count = lambda op, result: trace.append("%s -> %s" % (json.dumps(op), result))
            text = runner.attempt(ops, False)
            if args.verbose or text:
                print("\n".join(line if len(line) < 300 else line[:300] + "..." for line in trace))
            if text:
                print(text)
                return 1
            if runner.close():
                return 1
    print("replayed %d times: nothing wrong" % args.times)
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", default="fresh", help="anything; fresh (the default): another each time")
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first history")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0, help="stop after these; 0: when all are done")
    parser.add_argument("--failures", type=int, default=3, help="stop after so many")
    parser.add_argument("--crashes", choices=["some", "all", "none"], default="some", help="in which histories the daemon is killed")
    parser.add_argument("--shrink", type=float, default=SHRINKING, metavar="SECONDS", help="how long to shrink a history that failed")
    parser.add_argument("--passthrough", choices=["on", "off", "both"], default="both")
    parser.add_argument("--restarts", type=float, default=0, metavar="SHARE",
                        help="a supervised mount, whose worker dies before so many of the steps (0.1: a tenth)")
    parser.add_argument("--like", default="", metavar="NAME,...", help="what is to come more often: rollback, seal, wait, crash, ...")
    parser.add_argument("--replay", metavar="FILE", help="the script that an earlier run printed")
    parser.add_argument("--times", type=int, default=1, help="replay it so often")
    parser.add_argument("--verbose", action="store_true", help="of a replay: print what each operation gave")
    args = parser.parse_args()
    if args.seed == "fresh":
        args.seed = random.randrange(10**9)
    return args


def main():
    args = parse()
    # OpenSSL is not instrumented: what its own locks order looks like a race to TSan.
    os.environ.setdefault("TSAN_OPTIONS", "second_deadlock_stack=1:ignore_noninstrumented_modules=1")
    if args.replay:
        return replay(args)
    print("--seed %s --histories %d" % (args.seed, args.histories), flush=True)
    args.end, args.done = time.monotonic() + args.seconds, -1
    modes = ["on", "off"] if args.passthrough == "both" else [args.passthrough]
    children = []
    for job in range(args.jobs):
        pid = os.fork()
        if pid == 0:
            os._exit(min(run_some(args, job, modes[job % len(modes)]), 100))
        children.append(pid)
    failed = sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in children)
    print("%d of %d processes found something wrong" % (failed, args.jobs))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
