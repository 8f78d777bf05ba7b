#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Tries epochfs on machines that have nothing: minimal roots of Debian releases, from the README's first line on.

    tests/bare/bare.py --results FOLDER [--jobs N] [--keep] [RELEASE...]

Each release gets a root by mmdebstrap, with the host's apt configuration (mirror, proxies, keys). The root as it is before
anything is installed, and the packages that are fetched, are kept in ${XDG_CACHE_HOME:-~/.cache}/epochfs-bare for the next run.
steps.py has what is done there, each step in namespaces of its own, with HEAD as it is committed. What a step prints goes to
FOLDER/../RELEASE.log, its end to the terminal where it fails. After a failed step the next ones are tried all the same.
Exits 1 where anything failed. Needs root.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path.append(str(REPO / "tests" / "tools"))

import results  # noqa: E402
import steps  # noqa: E402
import totals  # noqa: E402
from machine import Machine, do_steps, on_machines, output_of  # noqa: E402

RELEASES = ["bookworm", "trixie"]
STEP_LIMIT_S, FETCH_LIMIT_S = 1200, 1800  # of a step; with --whole, what comes before the tests


class Tried(Machine):
    """A release's root with what its steps need: the repository, and a place for results."""

    def __init__(self, release, into, log, limit):
        super().__init__(release, into, log, limit)
        for name in ("epochfs.git", "user.git"):
            self.clone(REPO, self.root / "srv" / name)
        shutil.copy(HERE / "train.py", self.root / "srv")
        for who in ("root", "user"):
            self.results.joinpath(who).mkdir(parents=True)
        self.results.joinpath("user").chmod(0o777)

    def do(self, user, script):
        if user != "root":
            uid = output_of("chroot", self.root, "id", "-u", user).strip()
            subprocess.run(["chown", "-R", uid, self.root / "srv" / "user.git"], check=True)
        return super().do(user, script)


def one_release(release, into, log, log_path, options):
    """All steps on one machine: (name, outcome, detail) of each, and of each test that they ran."""
    machine = Tried(release, into, log, steps.SUITES_LIMIT_S + FETCH_LIMIT_S if options.whole else STEP_LIMIT_S)
    done = do_steps(machine, steps.steps((REPO / "README.md").read_text(), options.whole), log_path)
    for who in ("root", "user"):
        done += [("%s: %s: %s" % (release, who, n), o, d) for n, o, d in results.read(machine.results / who)]
    return done


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", required=True, type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2, help="how many releases at a time")
    parser.add_argument("--whole", action="store_true", help="all mount and remote tests, not a smoke of them: half an hour more, and 4 GiB of packages")
    parser.add_argument("--keep", action="store_true", help="leave the roots, and say where they are")
    parser.add_argument("releases", nargs="*", default=RELEASES, metavar="RELEASE")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bare.py: making a root needs root")
    if output_of("git", "-C", str(REPO), "status", "--porcelain"):
        print("bare.py: what is not committed is not tried")

    tests = on_machines("bare.py", one_release, args)
    results.write(args.results, "bare", tests)
    return totals.report(tests)


if __name__ == "__main__":
    sys.exit(main())
