#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A mount at work for long: writers, readers, rollbacks, drops, collections, remounts, faults, all together.

    tests/soak/soak.py BUILD/epochfs [--minutes 30] [--seed S] [--san address]

For half of the time the daemon is killed now and then, and mounted again. The other half one daemon lives through, and now and
then all stands still: what it holds then (memory, descriptors, threads, the cache, the local state, the remote) must not
grow. At the end all epochs are compared with what they were when they were first read. Prints a summary; exit code 1 where
something was wrong.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import judge
from parts import Shared, picture
from workers import KINDS

HERE = pathlib.Path(__file__).resolve().parent
STORMS = ["put.error=0.4", "get.error=0.3&list.error=0.3", "all.delay=100ms", "put.lost=0.2&create.lost=0.2", "down=1"]
FAULTS = "put.error=0.03&put.lost=0.01&get.error=0.02&list.error=0.01&delete.error=0.02&put.delay=5ms"
OPTIONS = {"settle": "1s", "patience": "20s", "lease": "5s", "cache-size": "40M", "min-free": "1", "keep": "last:6,tagged"}
LIMIT = 300


class Mount:
    def __init__(self, soak, name, url, **options):
        self.soak, self.path, self.url = soak, soak.shared.base / name, url
        self.options = {"cache-dir": soak.shared.base / ("cache-" + name), **options}
        self.log = soak.shared.base / ("log-" + name)
        self.process = None
        self.path.mkdir()

    def mount(self):
        words = ",".join("%s=%s" % o if o[1] is not True else o[0] for o in self.options.items())
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([self.soak.program, "mount", "-f", "-o", words, self.url, self.path],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + LIMIT
        while not os.path.ismount(self.path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("%s does not mount:\n%s" % (self.path, self.log.read_text()[-2000:]))
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()
        while subprocess.run(["umount", "-l", self.path], capture_output=True, check=False).returncode == 0:
            pass

    def unmount(self):
        while subprocess.run(["umount", self.path], capture_output=True, check=False).returncode:
            time.sleep(0.1)
        code = self.process.wait(timeout=LIMIT)
        if code:
            self.soak.shared.problem("the daemon of %s ended with %d" % (self.path, code))


class Soak:
    def __init__(self, program, base, minutes, seed):
        self.program, self.random = program, random.Random(seed)
        self.shared = Shared(base)
        self.seconds, self.seed = minutes * 60, seed
        self.begin = time.monotonic()
        self.remote = self.shared.base / "remote"
        self.weather = self.shared.base / "weather"
        self.counts, self.quiet = {}, []
        for name in ("remote", "epochs"):
            (self.shared.base / name).mkdir()
        url = "fault+file://%s?%s&seed=%d&control=%s" % (self.remote, FAULTS, self.random.randrange(1000), self.weather)
        self.main = Mount(self, "mnt", url, **OPTIONS)
        self.follower = Mount(self, "follower", "file://%s" % self.remote, ro=True, refresh="1s", **{"cache-size": "20M"})

    def say(self, text):
        print("%6.1f s  %s" % (time.monotonic() - self.begin, text), flush=True)

    def passed(self):
        return (time.monotonic() - self.begin) / self.seconds

    def epochfs(self, *words, allowed=(0,)):
        done = subprocess.run([self.program, *map(str, words)], capture_output=True, text=True, errors="replace",
                              timeout=LIMIT, check=False)
        if done.returncode not in allowed:
            self.shared.problem("epochfs %s: exit code %d\n%s%s" % (words, done.returncode, done.stdout, done.stderr))
        return done

    # ---- what happens

    def epochs(self):
        return sorted(int(n) for n in os.listdir(self.shared.mnt / ".epochs") if n.isdigit())

    def commit(self):
        self.epochfs("commit", self.shared.mnt)

    def tag(self):
        name = self.random.choice(["best", "keep"])
        self.epochfs("tag", self.shared.mnt, self.random.choice(self.epochs()[-3:]), name, allowed=(0, 5, 8))

    def untag(self):
        self.epochfs("tag", "-d", self.shared.mnt, self.random.choice(["best", "keep"]), allowed=(0, 5))

    def drop(self):
        self.epochfs("rm", self.shared.mnt, self.random.choice(self.epochs()), allowed=(0, 5, 8))

    def prune(self):
        self.epochfs("prune", self.shared.mnt, "--keep", "last:3,tagged")

    def gc(self):
        self.epochfs("gc", "--grace", "0", "file://%s" % self.remote, allowed=(0, 8))

    def wait(self):
        self.epochfs("wait", "--timeout", "10s", self.shared.mnt, allowed=(0, 7))

    def rollback(self):
        with self.shared.stillness():
            self.shared.set_number("generation", self.shared.number("generation") + 1)
            self.epochfs("rollback", self.shared.mnt, self.random.choice(self.epochs()), allowed=(0, 5))

    def storm(self):
        part = self.weather.with_suffix(".new")
        part.write_text(self.random.choice(STORMS))
        part.rename(self.weather)
        time.sleep(self.random.uniform(0.5, 3))
        self.weather.unlink()

    def kill(self):
        (self.shared.base / "down").touch()
        self.shared.set_number("kills", self.shared.number("kills") + 1)
        self.main.kill()
        self.main.mount()
        (self.shared.base / "down").unlink()

    def remount(self):
        with self.shared.stillness():
            self.main.unmount()
            self.main.mount()

    def remount_follower(self):
        with self.shared.stillness():
            self.follower.kill()
            self.follower.mount()

    def act(self, rough):
        acts = [self.commit, self.tag, self.untag, self.drop, self.prune, self.gc, self.gc, self.wait, self.rollback,
                self.storm, self.storm] + rough * [self.kill, self.kill, self.remount, self.remount_follower]
        act = self.random.choice(acts)
        self.counts[act.__name__] = self.counts.get(act.__name__, 0) + 1
        act()

    def stand_still(self):
        """All is uploaded, collected and at rest: what the daemons hold."""
        with self.shared.stillness():
            self.epochfs("prune", self.shared.mnt, "--keep", "last:3,tagged")
            self.epochfs("wait", "--timeout", "240s", self.shared.mnt)
            self.gc()
            self.gc()
            time.sleep(3)  # threads end, freed memory goes back, the reader follows
            self.quiet.append(judge.sample(self))
        self.say("at rest: " + judge.tell(self.quiet[-1]))

    def run(self):
        self.main.mount()
        os.mkdir(self.shared.work)
        self.epochfs("wait", "--timeout", "60s", self.shared.mnt)
        self.follower.mount()
        workers = {k: subprocess.Popen([sys.executable, HERE / "workers.py", k, self.shared.base, str(self.seed)]) for k in KINDS}
        next_rest = 0.5
        while self.passed() < 1 and not self.shared.problems():
            self.act(self.passed() < 0.45)
            time.sleep(self.random.uniform(0, 1.5))
            if self.passed() >= next_rest:
                next_rest += 0.1
                self.stand_still()
            for kind, worker in workers.items():
                if worker.poll() is not None:
                    self.shared.problem("%s ended with %s" % (kind, worker.returncode))
        self.stand_still()
        (self.shared.base / "stop").touch()
        for kind, worker in workers.items():
            if worker.wait(timeout=LIMIT):
                self.shared.problem("%s ended with %d" % (kind, worker.returncode))

    # ---- the end

    def verify(self):
        """From an empty cache: what is in the remote is what everybody has read."""
        live = picture(self.shared.work)
        self.epochfs("wait", "--timeout", "240s", self.shared.mnt)
        latest = os.readlink(self.shared.mnt / ".epochs" / "latest")
        self.follower.unmount()
        self.main.unmount()
        self.epochfs("fsck", "--read-data", "file://%s" % self.remote)
        fresh = Mount(self, "fresh", "file://%s" % self.remote, **{k: v for k, v in OPTIONS.items() if k != "keep"})
        fresh.mount()
        if picture(fresh.path / "work") != live:
            self.shared.problem("the live tree from an empty cache is not what it was")
        epochs = sorted(n for n in os.listdir(fresh.path / ".epochs") if n.isdigit())
        complete = [n for n in epochs if os.getxattr(fresh.path / ".epochs" / n, "user.epochfs.complete") == b"true"]
        if os.readlink(fresh.path / ".epochs" / "latest") != latest or latest != complete[-1]:
            self.shared.problem("latest is %s here and %s elsewhere, of %s" % (
                latest, os.readlink(fresh.path / ".epochs" / "latest"), complete))
        for number in epochs:
            known = self.shared.base / "epochs" / number
            if known.exists():
                compare(self.shared, fresh.path / ".epochs" / number, known)
        fresh.unmount()
        self.say("%d epochs from an empty cache, latest %s" % (len(epochs), latest))

    def clean_up(self):
        (self.shared.base / "stop").touch()
        for point in ("mnt", "follower", "fresh"):
            subprocess.run(["umount", "-l", self.shared.base / point], capture_output=True, check=False)
        for mount in (self.main, self.follower):
            if mount.process and mount.process.poll() is None:
                mount.process.kill()
                mount.process.wait()


def compare(shared, folder, known):
    if picture(folder) != json.loads(known.read_text()):
        shared.problem("%s is not what it was when it was first read" % folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--san", default="", help="the sanitizer that it was built with: then memory is not judged")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and it cleans up
    base = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    (base / "reports").mkdir()
    for name in ("ASAN", "UBSAN", "TSAN"):
        os.environ[name + "_OPTIONS"] = "%s:log_path=%s/reports/%s" % (
            os.environ.get(name + "_OPTIONS", "ignore_noninstrumented_modules=1" if name == "TSAN" else "abort_on_error=0"), base, name)
    soak = Soak(args.program, base, args.minutes, args.seed)
    soak.say("soak: %s minutes, seed %d, in %s" % (args.minutes, args.seed, base))
    try:
        soak.run()
        if not soak.shared.problems():
            soak.verify()
    except Exception as error:  # whatever it is, nothing stays mounted
        soak.shared.problem("%s: %s" % (type(error).__name__, error))
    finally:
        soak.clean_up()
    wrong = soak.shared.problems() + judge.growth(soak.quiet, args.san) + judge.reports(base)
    soak.say("%s; kills %d" % (", ".join("%s %d" % c for c in sorted(soak.counts.items())), soak.shared.number("kills")))
    print("\n".join(wrong[:60]))
    print("soak: %s" % ("WRONG, see above; all of it is in %s" % base if wrong else "ok, nothing was lost and nothing grew"))
    if not wrong:
        shutil.rmtree(base)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
