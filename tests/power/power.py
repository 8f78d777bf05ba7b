#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Power losses: a session is recorded on a disk that is written down, then the power goes at many points of it.

    tests/power/power.py BUILD/epochfs BUILD/tests/recorder [--points N] [--seed S] [--fs ext4] [--passthrough on]

record.py records, replay.py mounts what each power loss leaves and checks what was promised by then. Points are barriers
(everything before is on the disk) and moments between two (of what was written since the last flush, a random part is).
--points 0 takes every barrier, and as many moments. --replay DIR --at POINT looks at points of a recording that failed once more.
Prints what is wrong; exit code 1 where something is, 77 where this machine cannot do it.
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import disk

HERE = pathlib.Path(__file__).resolve().parent
ALONE = HERE.parent / "tools" / "alone.sh"
CANNOT = 77  # of automake: skipped


def why_not(kind):
    """Why this machine cannot do it, or None."""
    if os.geteuid() != 0:
        return "only root may use loop devices"
    if not os.path.exists("/dev/loop-control") or not os.path.exists("/dev/fuse"):
        return "there is no /dev/loop-control or no /dev/fuse"
    if not shutil.which(disk.MAKE[kind][0]):
        return "%s is not installed" % disk.MAKE[kind][0]
    with open("/proc/filesystems", encoding="ascii") as f:
        if kind not in f.read().split():
            return "the kernel has no %s" % kind
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        return "no mount namespace may be made"
    return None


def in_namespace(script, *words, env):
    return subprocess.run(["unshare", "-m", ALONE, sys.executable, HERE / script, *map(str, words)], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def choose(log, count, seed):
    """Points, in order: half of them barriers. 0: every barrier, and as many between."""
    chance = random.Random("points %s" % seed)
    begin = next(i for i in range(len(log)) if (log.mark(i) or {}).get("mounted"))
    barriers = [i + 1 for i in log.flushes() if i > begin]
    between = sorted(set(range(begin + 1, len(log) + 1)) - set(barriers))
    wanted = (len(barriers), len(barriers)) if not count else (count // 2, count - count // 2)
    chosen = chance.sample(barriers, min(wanted[0], len(barriers))) + chance.sample(between, min(wanted[1], len(between)))
    return sorted(chosen)


def deal(points, jobs):
    """Neighbours stay together: a disk is built forward."""
    share = -(-len(points) // jobs)
    return [points[i:i + share] for i in range(0, len(points), share)]


def power(args, folder, env):
    """Records and replays: the number of points that were taken and the lines of those that failed."""
    options = ["--fs", args.fs, "--passthrough", args.passthrough, "--seed", args.seed]
    if not args.replay:
        done = in_namespace("record.py", folder, "--recorder", args.recorder, "--rounds", args.rounds, *options, env=env)
        if done.returncode:
            return 0, ["the recording failed:\n" + done.stdout]
    log = disk.Log(folder / "log")
    points = [int(p) for p in args.at.split(",")] if args.at else choose(log, args.points, args.seed)
    hands = deal(points, args.jobs)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        runs = [pool.submit(in_namespace, "replay.py", folder, "--points", ",".join(map(str, h)), *options, env=env) for h in hands]
        outputs = [r.result() for r in runs]
    return len(points), [re.sub(r"^point \d+: ok\n", "", o.stdout, flags=re.M) for o in outputs if o.returncode]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("recorder", type=os.path.abspath)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(1 << 32)))
    parser.add_argument("--fs", choices=disk.MAKE, default="ext4")
    parser.add_argument("--passthrough", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--rounds", type=int, default=3, help="how long the session is")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--replay", type=pathlib.Path, help="a folder that a failed run left, instead of a new recording")
    parser.add_argument("--at", help="the points to take: POINT,...")
    args = parser.parse_args()
    reason = why_not(args.fs)
    if reason:
        print("power losses are not tested: " + reason)
        return CANNOT
    folder = args.replay or pathlib.Path(tempfile.mkdtemp(prefix="power-"))
    env = {**os.environ, "EPOCHFS_BIN": args.program, "PYTHONDONTWRITEBYTECODE": "1"}
    print("power: %s, passthrough %s, seed %s" % (args.fs, args.passthrough, args.seed), flush=True)
    count, wrong = power(args, folder, env)
    if not wrong:
        print("power: %d points, all kept what was promised" % count)
        if not args.replay:
            shutil.rmtree(folder)
        return 0
    print("\n".join(wrong))
    print("power: %d points, and the above is wrong. Again: --replay %s --seed %s --fs %s --passthrough %s --at POINT"
          % (count, folder, args.seed, args.fs, args.passthrough))
    return 1


if __name__ == "__main__":
    sys.exit(main())
