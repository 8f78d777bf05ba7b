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
import concurrent.futures
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path.append(str(REPO / "tests" / "tools"))

import results  # noqa: E402
import steps  # noqa: E402
import totals  # noqa: E402

RELEASES = ["bookworm", "trixie"]
STEP_LIMIT_S, FETCH_LIMIT_S = 1200, 1800  # of a step; with --whole, what comes before the tests
# A root is rebuilt after so long: its packages are old by then.
ROOT_AGE_S = 14 * 24 * 3600


stopped = threading.Event()
running = set()


def stop(number, _):
    """What runs ends, nothing more begins; then the roots are removed as after any run."""
    stopped.set()
    for process in list(running):
        process.kill()
    print("bare.py: ended by signal %d" % number, flush=True)


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "epochfs-bare"


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def sources(release):
    """The lines of sources.list for a release, from the mirrors that the host's own lines name."""
    lines = output_of("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages").splitlines()
    host = next((l.split()[1] for l in lines if l.split()[1].endswith("-security")), "").removesuffix("-security")
    found = []
    for line in lines:
        uri, suite, component = line.split()
        if component == "main" and suite in (host, host + "-updates", host + "-security"):
            entry = "deb %s %s main" % (uri, release + suite[len(host):])
            if entry not in found:
                found.append(entry)
    return found or ["deb http://deb.debian.org/debian %s main" % release]


def make_root(release, folder, log):
    """The tar file of a root as a new machine has it."""
    tar = folder / (release + ".tar")
    if tar.exists() and time.time() - tar.stat().st_mtime < ROOT_AGE_S:
        return tar
    options = folder / (release + ".apt.conf")
    options.write_text(output_of("apt-config", "dump", "--no-empty", "Acquire"))
    half = folder / (release + ".half.tar")
    command = ["mmdebstrap", "--variant=minbase", "--aptopt=%s" % options]
    if any(pathlib.Path("/etc/apt/auth.conf.d").glob("*")):
        command.append("--setup-hook=copy-in /etc/apt/auth.conf.d /etc/apt")
    subprocess.run([*command, release, str(half), *sources(release)], check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    half.rename(tar)
    return tar


class Machine:
    """A release's root, unpacked for this run."""

    def __init__(self, release, folder, into, log, limit):
        self.release, self.log, self.limit = release, log, limit
        self.root, self.debs, self.results = into / "root", folder / (release + ".debs"), into / "results"
        self.root.mkdir()
        self.debs.joinpath("partial").mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-C", self.root, "-xf", make_root(release, folder, log)], check=True)
        for name in ("resolv.conf", "hosts"):
            shutil.copyfile("/etc/" + name, self.root / "etc" / name)
        # An installed machine has it by systemd-tmpfiles; fusermount3 of Debian 12 reads it.
        if not (self.root / "etc/mtab").is_symlink():
            (self.root / "etc/mtab").symlink_to("../proc/self/mounts")
        for name in ("epochfs.git", "user.git"):
            subprocess.run(["git", "clone", "-q", "--bare", REPO, self.root / "srv" / name], check=True, stdout=log, stderr=log)
        shutil.copy(HERE / "train.py", self.root / "srv")
        for who in ("root", "user"):
            self.results.joinpath(who).mkdir(parents=True)
        self.results.joinpath("user").chmod(0o777)

    def do(self, user, script):
        """Runs a script as a user: whether all went well."""
        if user != "root":
            uid = output_of("chroot", self.root, "id", "-u", user).strip()
            subprocess.run(["chown", "-R", uid, self.root / "srv" / "user.git"], check=True)
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                   HERE / "enter.sh", self.root, self.debs, self.results, user, script]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        running.add(process)
        try:
            if stopped.is_set():
                return False
            return process.wait(timeout=self.limit) == 0
        except subprocess.TimeoutExpired:
            print("bare.py: killed after %d s" % self.limit, file=self.log, flush=True)
            return False
        finally:
            running.discard(process)
            process.kill()
            process.wait()


def tail_of(path, start):
    with open(path, "rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    return "".join("          %s\n" % line[:300] for line in lines[-60:])


def one_release(release, folder, work, log_path, whole):
    """All steps on one machine: (name, outcome, detail) of each, and of each test that they ran."""
    done = []
    into = work / release
    into.mkdir()
    with open(log_path, "w", encoding="utf-8") as log:
        machine = Machine(release, folder, into, log, steps.SUITES_LIMIT_S + FETCH_LIMIT_S if whole else STEP_LIMIT_S)
        for name, user, script in steps.steps((REPO / "README.md").read_text(), whole):
            if stopped.is_set():
                done.append(("%s: %s" % (release, name), "failed", "not run"))
                continue
            print("\n== %s\n%s" % (name, script), file=log, flush=True)
            start, began = os.path.getsize(log_path), time.monotonic()
            well = machine.do(user, script)
            print("  %-7s %-9s %-52s %6.1f s" % ("ok" if well else "FAILED", release, name, time.monotonic() - began), flush=True)
            if not well:
                print(tail_of(log_path, start), flush=True)
            done.append(("%s: %s" % (release, name), "passed" if well else "failed", "" if well else "see %s" % log_path))
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

    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / "lock", "w", encoding="utf-8")  # one run at a time uses the cache
    fcntl.flock(lock, fcntl.LOCK_EX)
    shutil.rmtree(args.results, ignore_errors=True)
    args.results.mkdir(parents=True)
    work = pathlib.Path(tempfile.mkdtemp(prefix="epochfs-bare-"))
    work.chmod(0o755)

    def attempt(release):
        try:
            return one_release(release, folder, work, args.results.parent / (release + ".log"), args.whole)
        except (OSError, subprocess.CalledProcessError) as error:
            return [("%s: its root" % release, "failed", "%s, see %s" % (error, args.results.parent / (release + ".log")))]

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            tests = [test for tests in pool.map(attempt, args.releases) for test in tests]
    finally:
        if args.keep:
            print("bare.py: the roots are in %s" % work)
        else:
            subprocess.run(["rm", "-rf", "--one-file-system", work], check=False)
    results.write(args.results, "bare", tests)
    return totals.report(tests)


if __name__ == "__main__":
    sys.exit(main())
