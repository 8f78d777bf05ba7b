# SPDX-License-Identifier: Apache-2.0
"""A few thousand random operations on the mount and on an ordinary directory give the same, and so do the epochs,
rollbacks, remounts and cold restores in between.

--seed chooses the walk (a number, or "fresh" for a new one each time), --steps how long it is:
make check-mount ARGS="-k random --seed 7"
"""

import os
import random

from random_ops import Pair, Walk, copy_tree, describe, difference

ROUNDS = 10


def seed_of(seed, passthrough):
    return random.randrange(10**9) if seed == "fresh" else int(seed) + (passthrough == "on")


def check_epoch(mnt, number, copy):
    epoch, plain = describe(mnt.epoch(number)), describe(copy)
    # The directories of all epochs look alike: `ls -l .epochs` reads no trees.
    del epoch["."], plain["."]
    assert epoch == plain, "epoch %d: %s" % (number, difference(epoch, plain))


def test_random_operations(mnt, tmp_path, passthrough, pytestconfig):
    seed, steps = seed_of(pytestconfig.getoption("seed"), passthrough), pytestconfig.getoption("steps")
    print("--seed %d --steps %d" % (seed, steps))
    plain = tmp_path / "plain"
    plain.mkdir(mode=0o755)
    os.chmod(plain, 0o755)
    walk = Walk(Pair(mnt.path, plain), seed)
    chooser = random.Random(seed + 1)
    copies = {}
    for part in range(ROUNDS):
        walk.run(steps // ROUNDS)
        walk.compare()
        walk.close_all()
        walk.compare()
        number = mnt.seal()
        copies[number] = tmp_path / ("epoch%d" % number)
        copy_tree(plain, copies[number])
        check_epoch(mnt, number, copies[number])
        what = chooser.choice(["rollback", "remount", "cold", "kill", "nothing"])
        print("part %d: %d paths, then %s" % (part, len(walk.paths), what))
        if what == "rollback":
            back = chooser.choice(sorted(copies))
            number = mnt.rollback(back)
            copy_tree(copies[back], plain)
            copies[number] = copies[back]
        elif what == "remount":
            mnt.remount()
        elif what == "cold":
            mnt.remount(empty_cache=True)
        elif what == "kill":
            mnt.kill()
            mnt.mount()
        walk.compare()
        for epoch in chooser.sample(sorted(copies), min(3, len(copies))):
            check_epoch(mnt, epoch, copies[epoch])
