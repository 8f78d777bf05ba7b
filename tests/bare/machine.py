# SPDX-License-Identifier: Apache-2.0
"""Minimal roots of Debian releases, and what is run in them as if each were a machine of its own.

make_root() makes a root as it is before anything is installed, by mmdebstrap with the host's apt configuration (mirror, proxies,
keys), and keeps it, and the packages that are fetched, in cache_folder() for the next run. A Machine is such a root, unpacked for
a run; what it does is run by enter.sh, in namespaces of its own that end with it. Needs root.
"""

import concurrent.futures
import contextlib
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# A root is rebuilt after so long: its packages are old by then.
ROOT_AGE_S = 14 * 24 * 3600

stopped = threading.Event()
running = set()


@contextlib.contextmanager
def ends_at_signals(name):
    """After a signal what runs ends, and nothing more begins: `stopped` is set."""
    def stop(number, _):
        stopped.set()
        for process in list(running):
            process.kill()
        print("%s: ended by signal %d" % (name, number), flush=True)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    yield


@contextlib.contextmanager
def unpacked(name, keep):
    """A folder for the roots of a run, which is removed after it."""
    work = pathlib.Path(tempfile.mkdtemp(prefix="epochfs-bare-"))
    work.chmod(0o755)
    try:
        yield work
    finally:
        if keep:
            print("%s: the roots are in %s" % (name, work))
        else:
            subprocess.run(["rm", "-rf", "--one-file-system", work], check=False)


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "epochfs-bare"


def locked(folder):
    """Makes the cache; one run at a time uses it, while the file that this returns is open."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / "lock", "w", encoding="utf-8")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


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

    def __init__(self, release, into, log, limit):
        folder = cache_folder()
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

    def clone(self, repository, path):
        """A bare clone of what is committed."""
        subprocess.run(["git", "clone", "-q", "--bare", repository, path], check=True, stdout=self.log, stderr=self.log)

    def do(self, user, script, alone=False):
        """Runs a script as a user: whether all went well. `alone`: with a name and a network of its own, in which nothing is up yet."""
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *(["--net", "--uts"] if alone else []),
                   HERE / "enter.sh", self.root, self.debs, self.results, user, script]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        running.add(process)
        try:
            if stopped.is_set():
                return False
            return process.wait(timeout=self.limit) == 0
        except subprocess.TimeoutExpired:
            print("killed after %d s" % self.limit, file=self.log, flush=True)
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


def do_steps(machine, steps, log_path):
    """Does (name, user, script) one after another, also after one that failed: (name, outcome, detail) of each.

    A fourth item, True, is that of Machine.do.
    """
    done = []
    for name, *step in steps:
        label = "%s: %s" % (machine.release, name)
        if stopped.is_set():
            done.append((label, "failed", "not run"))
            continue
        print("\n== %s\n%s" % (name, step[1]), file=machine.log, flush=True)
        start, began = os.path.getsize(log_path), time.monotonic()
        well = machine.do(*step)
        print("  %-7s %-9s %-52s %6.1f s" % ("ok" if well else "FAILED", machine.release, name, time.monotonic() - began), flush=True)
        if not well:
            print(tail_of(log_path, start), flush=True)
        done.append((label, "passed" if well else "failed", "" if well else "see %s" % log_path))
    return done


def on_machines(name, one_release, options):
    """one_release(release, folder, log, log's path, options) for each of options.releases, options.jobs at a time: what they all gave.

    options.results is emptied; options.keep leaves the roots.
    """
    def attempt(release, work):
        log_path = options.results.parent / (release + ".log")
        into = work / release
        into.mkdir()
        try:
            with open(log_path, "w", encoding="utf-8") as log:
                return one_release(release, into, log, log_path, options)
        except (OSError, subprocess.CalledProcessError) as error:
            return [("%s: its root" % release, "failed", "%s, see %s" % (error, log_path))]

    lock = locked(cache_folder())
    shutil.rmtree(options.results, ignore_errors=True)
    options.results.mkdir(parents=True)
    try:
        with ends_at_signals(name), unpacked(name, options.keep) as work, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            return [test for tests in pool.map(lambda release: attempt(release, work), options.releases) for test in tests]
    finally:
        lock.close()
