# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests on a real mount.

The program under test is EPOCHFS_BIN. A test gets a fresh volume, mounted, once with kernel
passthrough and once without; whatever happens, the mount is gone after it and the daemon has ended.

    def test_x(mnt):              # both ways; mnt.path is the live tree
    @pytest.mark.options(settle="0")   # more mount options for one test
    def test_y(volume):           # nothing is mounted yet: volume.mount(...)
"""

import ctypes
import json
import mmap
import os
import pathlib
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest

# The servers of tests/remotes, and the slow clock of tests/protocols.
sys.path += [os.path.join(os.path.dirname(os.path.abspath(__file__)), folder) for folder in ("remotes", "protocols")]
from slow_mount import SlowMount  # noqa: E402: of tests/protocols

pytest_plugins = ["server_fixture"]
# What these assert for several test files is explained where it fails, as if it stood there.
pytest.register_assert_rewrite("framework_saves", "origins_run", "stored_data", "supervised", "training_job")

# A proxy of this machine would not find the servers of tests on loopback.
for _name in ("https_proxy", "all_proxy", "no_proxy"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.upper(), None)
# Nor are the options meant that a developer has set for mounts of his own.
for _name in ("CACHE_DIR", "KEY_FILE", "PASSPHRASE_FILE", "KEEP", "RUN_ID"):
    os.environ.pop("EPOCHFS_" + _name, None)
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"

BIN = os.environ.get("EPOCHFS_BIN", "epochfs")
TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools")
# Each begins a command in a new mount namespace.
ALONE, OWN_MOUNTS = os.path.join(TOOLS, "alone.sh"), os.path.join(TOOLS, "own_mounts.py")
# The rules of every mount: as the program has them by itself, or those that are being tried.
RULES = os.environ.get("EPOCHFS_TEST_RULES")
SLOWNESS = float(os.environ.get("EPOCHFS_TEST_SLOWNESS", "1"))
LIMIT = 60 * SLOWNESS  # for what happens in a moment, on a busy machine too


def signals_pending(process):
    """The signals that a process has not taken yet, as bits."""
    with open("/proc/%d/status" % process.pid, encoding="ascii") as f:
        return next(int(line.split()[1], 16) for line in f if line.startswith("ShdPnd"))


def wait_until(condition, what, limit=LIMIT):
    """Polls until condition() is true, and gives what it gave."""
    deadline = time.monotonic() + limit
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail("waited %d s in vain: %s" % (limit, what))
        time.sleep(0.01)


def in_the_kernel(pid):
    """Whether a thread of it waits where no signal ends the wait."""
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/stat" % (pid, task), encoding="utf-8", errors="replace") as f:
            if f.read().rpartition(")")[2].split()[0] == "D":
                return True
    return False


def is_mounted(path):
    point = os.fspath(path).replace(" ", r"\040")
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        return any(line.split(" ")[4] == point for line in f)


def run(*command, check=True, **keywords):
    """Runs a program: its CompletedProcess, with output as text."""
    keywords.setdefault("timeout", LIMIT)
    done = subprocess.run(
        [os.fspath(c) for c in command], capture_output=True, text=True, errors="replace", check=False, **keywords
    )
    if check and "must be superuser to use mount" in done.stderr:
        need_root("mount")
    if check and done.returncode:
        pytest.fail("%s: exit code %d\n%s%s" % (command, done.returncode, done.stdout, done.stderr))
    return done


def python(code, *arguments, **keywords):
    """Starts another process that runs this Python code; its standard streams are pipes."""
    keywords.setdefault("stdin", subprocess.PIPE)
    keywords.setdefault("stdout", subprocess.PIPE)
    # Sanitizers of the daemon are no business of the programs that use the mount.
    return subprocess.Popen([sys.executable, "-u", "-c", code, *map(os.fspath, arguments)], text=True, **keywords)


class Mapping:
    """A shared mapping without a descriptor: Python's own mmap keeps one open."""

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def __init__(self, fd, size, prot=mmap.PROT_READ | mmap.PROT_WRITE):
        self.size = size
        self.address = self.libc.mmap(None, size, prot, mmap.MAP_SHARED, fd, 0)
        if self.address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "mmap")

    def read(self):
        return ctypes.string_at(self.address, self.size)

    def write(self, data, offset=0):
        ctypes.memmove(self.address + offset, data, len(data))

    def close(self):
        self.libc.munmap(self.address, self.size)


class Control:
    """One open of .epochs/.control."""

    def __init__(self, mountpoint):
        self.fd = os.open(os.path.join(mountpoint, ".epochs", ".control"), os.O_RDWR)

    def request(self, op, **arguments):
        os.write(self.fd, json.dumps({"op": op, **arguments}).encode() + b"\n")
        answer = b""
        while True:
            part = os.read(self.fd, 1 << 20)
            if not part:
                return json.loads(answer)
            answer += part

    def close(self):
        os.close(self.fd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Mount:
    """A volume in its own directory: remote, cache, mount point; mounted or not."""

    def __init__(self, base, options):
        self.base = pathlib.Path(base)
        self.path = self.base / "mnt"
        self.remote = self.base / "remote"
        self.cache = self.base / "cache"
        self.log = self.base / "log"
        self.url = "file://%s" % self.remote
        self.options = dict(options)
        self.process = None
        self.program, self.environment = None, {}  # None: the one under test
        # A mount that is refused what this kernel or this user cannot have skips the test.
        self.may_skip = True
        for folder in (self.path, self.remote, self.cache):
            folder.mkdir()
        os.chmod(self.base, 0o755)

    @property
    def epochs_dir(self):
        return self.path / ".epochs"

    @property
    def pid(self):
        return self.process.pid

    def command(self, **options):
        # allow_other and the like keep their underscore: they are FUSE's own words.
        words = [k if v is True else "%s=%s" % (k.replace("_", "-"), v)
                 for k, v in {"cache_dir": self.cache, **self.options, **options}.items() if v is not None]
        return [self.program or BIN, "mount", "-f", "-o", ",".join(words), self.url, os.fspath(self.path)]

    def answers(self):
        """Whether a mount is there that serves: a dead one stays until the next takes its place."""
        try:
            os.stat(self.path)
        except OSError:
            return False
        return is_mounted(self.path)

    def mount(self, **options):
        """Mounts, with these options over the volume's own, and waits until requests are answered."""
        assert self.process is None, "already mounted"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(**options), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, **self.environment})
        wait_until(lambda: self.answers() or self.process.poll() is not None, "the mount")
        try:
            os.stat(self.epochs_dir)
        except OSError:
            # It was there for a moment: the kernel did not agree to what it must have.
            wait_until(lambda: self.process.poll() is not None, "the end of a mount that does not answer")
        if self.process.poll() is not None:
            code, self.process = self.process.returncode, None
            output = self.log.read_text(errors="replace")
            if self.may_skip:
                skip_where_refused(output)
            raise MountError(code, output)
        return self

    def unmount(self):
        """Unmounts by the system's command; the daemon seals and ends without an error."""
        assert self.process, "not mounted"
        wait_until(lambda: run("umount", self.path, check=False).returncode == 0, "umount %s" % self.path)
        self.wait_end()

    def wait_end(self):
        code = self.process.wait(timeout=LIMIT)
        self.process = None
        assert code == 0, "the daemon ended with %d:\n%s" % (code, self.log.read_text(errors="replace"))

    def terminate(self, number=signal.SIGTERM):
        """Ends the daemon by a signal, in order."""
        self.process.send_signal(number)
        self.wait_end()

    def kill(self):
        """SIGKILL; the dead mount is taken away."""
        self.process.kill()
        self.process.wait(timeout=LIMIT)
        self.process = None
        wait_until(lambda: run("umount", "-l", self.path, check=False).returncode == 0 or not is_mounted(self.path),
                   "the dead mount to go")

    def remount(self, empty_cache=False, **options):
        """Unmounts in order and mounts again. With an empty cache all comes from the remote."""
        if self.process:
            if empty_cache:
                self.wait_durable()
            self.unmount()
        if empty_cache:
            self.empty_cache()
        return self.mount(**options)

    def empty_cache(self):
        shutil.rmtree(self.cache)
        self.cache.mkdir()

    def request(self, op, **arguments):
        """One request as the command makes it; fails for an error in the answer."""
        with Control(self.path) as control:
            answer = control.request(op, **arguments)
        assert "error" not in answer, answer
        return answer

    def status(self):
        return self.request("status")

    def seal(self, name=None):
        """Seals an epoch now: its number."""
        if name is None:
            return self.request("commit")["epoch"]
        os.mkdir(self.epochs_dir / name)
        return int(os.readlink(self.epochs_dir / name))

    def rollback(self, epoch):
        """As `ln -sfn EPOCH .epochs/current` does it: the number of the epoch made."""
        run("ln", "-sfn", str(epoch), self.epochs_dir / "current")
        return int(os.readlink(self.epochs_dir / "current"))

    def wait_durable(self):
        """Waits until all that is closed is durable in the remote, as `sync .epochs` does."""
        fd = os.open(self.epochs_dir, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def epochs(self):
        """The numbers of the epochs that .epochs lists, in order."""
        return sorted(int(n) for n in os.listdir(self.epochs_dir) if n.isdigit())

    def tags(self):
        fixed = {"latest", "current", "torn"}
        return {n: int(os.readlink(self.epochs_dir / n)) for n in os.listdir(self.epochs_dir)
                if not n.isdigit() and n not in fixed}

    def epoch(self, number):
        """The directory of an epoch."""
        return self.epochs_dir / ("%06d" % int(number))

    def torn(self):
        """Names of what killed writers left."""
        return sorted(os.listdir(self.epochs_dir / "torn"))

    def clean_up(self):
        """After the test: nothing stays mounted, nothing runs. Says what was left to do by force."""
        left = []
        if self.process and self.process.poll() is None:
            try:
                done = run("umount", self.path, check=False, timeout=LIMIT / 2)
                # A grandchild that the test has killed may be on its way out with a file open.
                deadline = time.monotonic() + LIMIT / 10
                while done.returncode and time.monotonic() < deadline:
                    time.sleep(0.05)
                    done = run("umount", self.path, check=False, timeout=LIMIT / 2)
                if done.returncode:
                    left.append(done.stderr.strip())
            except subprocess.TimeoutExpired:
                left.append("umount hangs")
            try:
                if not left:
                    self.process.wait(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                left.append("the daemon does not end")
        if is_mounted(self.path):
            subprocess.run(["umount", "-l", os.fspath(self.path)], check=False)
        if self.process:
            if left:
                self.process.kill()
            code = self.process.wait()
            self.process = None
            if not left and code:
                left.append("the daemon ended with %d" % code)
        return left


NO_PASSTHROUGH = "this kernel or this user has no passthrough"
NO_ALLOW_OTHER = "/etc/fuse.conf does not let users allow others"
NOT_ROOT = "only root may do that: "


def skip_where_refused(output):
    """What no mount of this kernel or this user can have is nothing to test here."""
    if "cannot mount with passthrough=on" in output:
        pytest.skip(NO_PASSTHROUGH)
    if "option allow_other only allowed if 'user_allow_other' is set" in output:
        pytest.skip(NO_ALLOW_OTHER)


# An owner and a group that a file may be given to.
OTHER_OWNER = (11, 12) if os.geteuid() == 0 else (os.getuid(), os.getgid())


def need_root(what):
    """For tests that mount a disk, become another user, give files away, ..."""
    if os.geteuid():
        pytest.skip(NOT_ROOT + what)


class MountError(Exception):
    """The command did not mount: its exit code and what it printed."""

    def __init__(self, code, output):
        super().__init__("exit code %d: %s" % (code, output))
        self.code = code
        self.output = output


@pytest.fixture(params=["on", "off"])
def passthrough(request):
    return request.param


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    """make_volume must know whether its test has failed."""
    report = (yield).get_result()
    item.failed = getattr(item, "failed", False) or report.failed


def remove(folder):
    """What a passed test leaves, 16 MiB and more each: two thousand of them would fill a disk. Nothing that is mounted below is entered."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        if not any(line.split()[4].startswith(os.fspath(folder) + "/") for line in f):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def make_volume(tmp_path_factory, passthrough, request):
    """Makes volumes, each with a daemon of its own; takes them away after the test. What a failed one left stays."""
    made = []

    def make(**options):
        rules = request.node.get_closest_marker("rules")
        v = Mount(tmp_path_factory.mktemp("v"), {"passthrough": passthrough, "rules": rules.args[0] if rules else RULES, **options})
        made.append(v)
        return v

    yield make
    left = [(v, word) for v in made for word in v.clean_up()]
    if left:
        pytest.fail("\n".join("%s\n%s" % (word, v.log.read_text(errors="replace")) for v, word in left))
    if not getattr(request.node, "failed", False):
        for v in made:
            remove(v.base)


@pytest.fixture
def volume(make_volume, request):
    """A volume that is not mounted yet."""
    marker = request.node.get_closest_marker("options")
    return make_volume(**(marker.kwargs if marker else {}))


@pytest.fixture
def slow(volume):
    """The same, mounted, with a time that passes when the test says so: slow.mount, slow.pause(SETTLE + 1)."""
    return SlowMount(os.path.join(os.environ["EPOCHFS_UNITS"], "protocols/epochfs"), volume)


@pytest.fixture
def mnt(volume):
    """A fresh volume, mounted. Sealing by quiet is far away unless the test asks for it."""
    volume.options.setdefault("settle", "1h")
    return volume.mount()


def pytest_addoption(parser):
    parser.addoption("--seed", default=os.environ.get("EPOCHFS_SEED", "fresh"),
                     help="of all that is chosen at random: a number, or \"fresh\" for another each time, which is printed")
    parser.addoption("--model-histories", type=int, default=100, help="how many histories test_model.py makes at most, each way")
    parser.addoption("--model-seconds", type=float, default=15, help="how long test_model.py makes new histories, each way")
    parser.addoption("--enumerate-histories", type=int, default=1200, help="how many histories test_enumerate.py draws, each way")
    parser.addoption("--enumerate-seconds", type=float, default=90, help="how long each test of test_enumerate.py runs at most")
    parser.addoption("--differential-seconds", type=float, default=15, help="how long test_differential.py makes new histories, each way")
    parser.addoption("--damages", type=int, default=int(os.environ.get("EPOCHFS_DAMAGES", "3")),
                     help="how many damaged remotes test_damage.py takes; 0: all")
    parser.addoption("--damage-only", default="", help="only those whose kind, key, damage and seed contain this")
    parser.addoption("--crashes", type=int, default=int(os.environ.get("EPOCHFS_CRASHES", "10")),
                     help="how many calls of test_crash.py the daemon is killed after, each way; 0: all")
    parser.addoption("--faults", type=int, default=int(os.environ.get("EPOCHFS_FAULTS", "3")),
                     help="how many calls of test_fault.py fail, of each kind; 0: all")
    parser.addoption("--fault-at", default="", help="the number of the one call that fails, or FIRST-LAST")
    parser.addoption("--trainer-kills", type=int, default=2,
                     help="after how many calls test_trainer_kills.py kills the trainer, each way; 0: all")
    parser.addoption("--crash-after", default="", help="the number of the one call to kill it after, or FIRST-LAST")


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.line("what was chosen at random: --seed %d (EPOCHFS_SEED)" % config.option.seed)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config, specs):
    """A mount namespace for each worker: a copy that a test makes of its own holds no mount of a test beside it."""
    if not os.geteuid():
        for spec in specs:
            spec.python = shlex.join([sys.executable, OWN_MOUNTS, sys.executable])


def pytest_configure(config):
    # Before there are workers, which are given it.
    config.option.seed = random.SystemRandom().randrange(10**9) if config.option.seed == "fresh" else int(config.option.seed)
    config.addinivalue_line("markers", "options(name=value): options of the mount")
    config.addinivalue_line("markers", "rules(number): the rules of saves that the mount has, as its option says them")
