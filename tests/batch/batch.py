#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs under real batch systems: Slurm of Debian 12 and 13, HTCondor of Debian 13, each with its nodes on this machine, in a root of its release.

    tests/batch/batch.py --results FOLDER [-k NAME] [--jobs N] [--keep] [RELEASE...]

The roots are those of tests/bare/machine.py. Packages are installed and epochfs is built there, as HEAD has it; the tests then run in namespaces of their own,
with a network in which there is nothing but loopback, and all that they start ends with these. What is printed goes to FOLDER/../RELEASE.log. Exits 1 where
anything failed. Needs root.
"""

import argparse
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path += [str(REPO / "tests" / "tools"), str(REPO / "tests" / "bare")]

import results  # noqa: E402
import totals  # noqa: E402
from machine import Machine, do_steps, on_machines, output_of  # noqa: E402

RELEASES = ["bookworm", "trixie"]
LIMIT_S = 5400  # of a step
# Names are resolved only where there is an address beside 127.0.0.1: this is one of those for documentation.
NETWORK = "ip link set lo up\nip addr add 192.0.2.1/32 dev lo\nhostname batch\necho '192.0.2.1 batch' >>/etc/hosts\n"


def steps(chosen):
    get = "apt-get install -y -q --no-install-recommends "
    return [
        ("packages", "root", "apt-get update -q\n" + get + "git\ngit clone -q /srv/epochfs.git epochfs\nepochfs/tests/tools/packages.sh batch\n"),
        # What a framework is there for whoever trains: on the machine.
        ("epochfs, installed", "root", "cd epochfs\nmake -j$(nproc) all\nmake install\ncp tests/origins/training.py tests/origins/kit.py /usr/lib/python3/dist-packages\n"),
        ("jobs", "root", NETWORK + "cp -r epochfs /srv/epochfs\ncd /srv/epochfs\nexport PYTHONDONTWRITEBYTECODE=1\n"
         "python3 -m pytest -c tests/pytest.ini --rootdir . --confcutdir tests/batch --durations=0 --junit-xml /results/batch.xml %s tests/batch\n"
         % ("-k '%s'" % chosen if chosen else ""), True),
    ]


def one_release(release, into, log, log_path, options):
    machine = Machine(release, into, log, LIMIT_S)
    machine.results.mkdir()
    machine.clone(REPO, machine.root / "srv" / "epochfs.git")
    done = do_steps(machine, steps(options.k), log_path)
    return done + [("%s: %s" % (release, n), o, d) for n, o, d in results.read(machine.results)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", required=True, type=pathlib.Path)
    parser.add_argument("-k", metavar="NAME", help="tests whose name has this, as pytest's")
    parser.add_argument("--jobs", type=int, default=2, help="how many releases at a time")
    parser.add_argument("--keep", action="store_true", help="leave the roots, and say where they are")
    parser.add_argument("releases", nargs="*", default=RELEASES, metavar="RELEASE")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("batch.py: making a root needs root")
    if output_of("git", "-C", str(REPO), "status", "--porcelain"):
        print("batch.py: what is not committed is not tried")
    tests = on_machines("batch.py", one_release, options)
    results.write(options.results, "batch", tests)
    return totals.report(tests)


if __name__ == "__main__":
    sys.exit(main())
