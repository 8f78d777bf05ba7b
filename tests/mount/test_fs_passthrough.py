# SPDX-License-Identifier: Apache-2.0
"""Who reads and writes: the kernel by itself, or the daemon; and that both see the same bytes."""

import ctypes
import mmap
import os
import pathlib
import signal
import time

import pytest

from conftest import BIN, NOT_ROOT, need_root, run, wait_until

MIB = 1 << 20


def daemon_io(mnt):
    """Bytes that the daemon read and wrote by system calls."""
    with open("/proc/%d/io" % mnt.pid) as f:
        fields = dict(line.split(": ") for line in f)
    return int(fields["rchar"]), int(fields["wchar"])


def test_the_daemon_sees_no_byte_of_passthrough(mnt):
    data = os.urandom(24 * MIB)
    before = daemon_io(mnt)
    (mnt.path / "f").write_bytes(data)
    assert (mnt.path / "f").read_bytes() == data
    read, written = (b - a for a, b in zip(before, daemon_io(mnt)))
    if mnt.options["passthrough"] == "on":
        assert read < 8 * MIB and written < 4 * MIB
    else:
        assert read + written > 24 * MIB


def test_an_epochs_file_is_read_by_the_kernel(mnt):
    data = os.urandom(8 * MIB)
    (mnt.path / "f").write_bytes(data)
    number = mnt.seal()
    (mnt.path / "f").write_bytes(b"newer")
    mnt.wait_durable()
    before = daemon_io(mnt)[0]
    assert (mnt.epoch(number) / "f").read_bytes() == data
    read = daemon_io(mnt)[0] - before
    assert read < 4 * MIB if mnt.options["passthrough"] == "on" else read >= 0


def opened(path, *flags):
    total = os.O_CLOEXEC
    for f in flags:
        total |= f
    return os.open(path, total, 0o644)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("order", ["reader first", "writer first", "both directions"])
def test_opens_of_all_kinds_at_once(mnt, sealed, order):
    """Whatever mode a node is in, each open works, and all see what any of them writes."""
    f = mnt.path / "f"
    f.write_bytes(b"0" * 3 * MIB)
    number = mnt.seal() if sealed else None
    kinds = {
        "reader first": [(os.O_RDONLY,), (os.O_RDWR,), (os.O_WRONLY, os.O_APPEND), (os.O_RDONLY, os.O_DIRECT)],
        "writer first": [(os.O_RDWR,), (os.O_RDONLY,), (os.O_RDONLY, os.O_DIRECT), (os.O_WRONLY,)],
        "both directions": [(os.O_RDWR, os.O_DIRECT), (os.O_WRONLY, os.O_APPEND), (os.O_RDWR,), (os.O_RDONLY,)],
    }[order]
    fds = [opened(f, *flags) for flags in kinds]
    try:
        page = mmap.mmap(-1, 4096)
        size = 3 * MIB
        for round_ in range(3):
            for fd, flags in zip(fds, kinds):
                if os.O_RDWR not in flags and os.O_WRONLY not in flags:
                    continue
                letter = b"%c" % (65 + round_ * len(fds) + fds.index(fd))
                page.seek(0)
                page.write(letter * 4096)
                if os.O_APPEND in flags:
                    assert os.write(fd, page) == 4096
                    at, size = size, size + 4096
                else:
                    at = 4096 * fds.index(fd)
                    assert os.pwrite(fd, page, at) == 4096
                for other, theirs in zip(fds, kinds):
                    if os.O_WRONLY in theirs:
                        continue
                    back = mmap.mmap(-1, 4096)
                    assert os.preadv(other, [back], at) == 4096
                    assert back[:] == letter * 4096, (order, flags, theirs)
                    assert os.fstat(other).st_size == size
    finally:
        for fd in fds:
            os.close(fd)
    assert f.stat().st_size == size
    if sealed:
        assert (mnt.epoch(number) / "f").read_bytes() == b"0" * 3 * MIB


def test_mode_is_chosen_anew_when_nobody_has_it_open(mnt):
    f = mnt.path / "f"
    for i in range(30):
        data = os.urandom(70000)
        with open(f, "wb" if i % 3 == 0 else "r+b") as stream:
            stream.write(data)
            stream.truncate()
        assert f.read_bytes() == data
        with open(f, "rb") as reader, open(f, "r+b") as writer:
            writer.write(b"abc")
            writer.flush()
            assert reader.read(3) == b"abc"
        if i % 5 == 0:
            mnt.seal()
        with open(f, "ab") as appender:
            appender.write(b"end")
        assert f.read_bytes() == b"abc" + data[3:] + b"end"


class Held:
    """A process that opens a file, and is not let run again once the open is answered: a process of real-time priority has its processor, for less than a
    second."""

    def __init__(self, path, pid):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) == 1:
            pytest.skip("one processor")
        self.before, self.mine, self.pid = set(cpus), {cpus[0]}, pid
        self.said, self.say = os.pipe()
        self.spun, self.spin_says = os.pipe()
        for tid in os.listdir("/proc/%d/task" % pid):
            os.sched_setaffinity(int(tid), self.before - self.mine)
        os.sched_setaffinity(0, self.before - self.mine)
        self.children = [self.child(lambda: self.open(path))]
        os.read(self.said, 1)
        # The daemon stopped in time: of what was looked up a moment ago only the open is asked for.
        os.kill(self.pid, signal.SIGSTOP)
        try:
            os.kill(self.children[0], signal.SIGUSR1)
            wchan = pathlib.Path("/proc/%d/wchan" % self.children[0])
            wait_until(lambda: wchan.read_text() == "request_wait_answer", "the open", limit=10)
            self.children.append(self.child(self.spin))
            self.spins = os.read(self.spun, 1) == b"s"
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def child(self, function):
        pid = os.fork()
        if not pid:
            try:
                os.sched_setaffinity(0, self.mine)
                function()
            finally:
                os._exit(0)
        return pid

    def open(self, path):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.stat(path)
        os.write(self.say, b"r")
        signal.sigwait([signal.SIGUSR1])
        os.open(path, os.O_RDWR)
        os.write(self.say, b"%f" % time.monotonic())

    def spin(self):
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except OSError:
            os.write(self.spin_says, b"n")
            return
        os.write(self.spin_says, b"s")
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            pass

    def wait(self):
        """When its open returned."""
        for child in self.children:
            os.waitpid(child, 0)
        return float(os.read(self.said, 100))

    def close(self):
        os.sched_setaffinity(0, self.before)
        for fd in (self.said, self.say, self.spun, self.spin_says):
            os.close(fd)


def pages_in_kernel(fd, size):
    """Whether the kernel's cache of a file has each page."""
    with mmap.mmap(fd, size) as mapping:
        there = ctypes.create_string_buffer((size + mmap.PAGESIZE - 1) // mmap.PAGESIZE)
        libc = ctypes.CDLL(None, use_errno=True)
        view = ctypes.c_char.from_buffer(mapping)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), there) == 0
        del view
        return [byte & 1 for byte in there.raw]


def check_pages_stay(pid, f, opens):
    """Whether it could be tried: while a process opens f, and is held once that is answered, the descriptor that opens() gives reads pages of it."""
    held = Held(f, pid)
    try:
        if not held.spins:
            pytest.skip(NOT_ROOT + "a process of real-time priority")
        fd = opens()
        assert os.pread(fd, 8192, 0) == b"0" * 8192
        there, now = pages_in_kernel(fd, 8192), time.monotonic()
        returned = held.wait()
        after = pages_in_kernel(fd, 8192)
        os.close(fd)
    finally:
        held.close()
    # The kernel may let others run beside one of real-time priority at any moment.
    if not all(there) or returned - now < 0.1:
        return False
    assert all(after)
    return True


def test_an_open_drops_no_page_of_who_opened_after_it(mnt):
    """The kernel drops what it has of a file at an open that does not keep it, and only when the thread that opens runs again: a page of which
    another thread's write is on its way by then comes back as it was before, for good."""
    need_root("a process of real-time priority")
    if mnt.options["passthrough"] == "off":
        pytest.skip("of passthrough")
    for number in range(10):
        f = mnt.path / ("f%d" % number)
        f.write_bytes(b"0" * 8192)  # by passthrough; who opens it now to write is answered by the daemon
        if check_pages_stay(mnt.pid, f, lambda f=f: os.open(f, os.O_RDWR)):
            return
    pytest.fail("the open was never held")


@pytest.mark.options(supervise=True)
def test_an_open_after_a_restart_drops_no_page(mnt):
    """The same where others had the file open all along."""
    need_root("a process of real-time priority")
    for number in range(10):
        f = mnt.path / ("f%d" % number)
        f.write_bytes(b"0" * 8192)
        fd = os.open(f, os.O_RDWR)
        run(BIN, "restart", mnt.path)
        if check_pages_stay(mnt.status()["pid"], f, lambda fd=fd: fd):
            return
    pytest.fail("the open was never held")


class Mapping:
    """A shared mapping that holds no descriptor (Python's own keeps one)."""

    def __init__(self, fd, size):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.mmap.restype = ctypes.c_void_p
        self.libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        self.libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.size = size
        self.at = self.libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
        assert self.at != ctypes.c_void_p(-1).value

    def write(self, data):
        ctypes.memmove(self.at, data, len(data))

    def close(self):
        assert self.libc.munmap(self.at, self.size) == 0


@pytest.mark.parametrize("new", [True, False])
def test_a_mapping_goes_on_after_close(mnt, new):
    """A shared mapping that outlives its descriptor still writes to the file, but to no epoch."""
    check_a_mapping_after_close(mnt, new)


@pytest.fixture
def overlay(volume, tmp_path):
    """The cache lies on an overlayfs, as in a container: the mappings of its files are those of another's."""
    if os.geteuid():
        pytest.skip("only root may do that: an overlay")
    parts = [tmp_path / name for name in ("lower", "upper", "work")]
    for part in [*parts, volume.cache]:
        part.mkdir(exist_ok=True)
    run("mount", "-t", "overlay", "-o", "lowerdir=%s,upperdir=%s,workdir=%s" % tuple(parts), "overlay", volume.cache)
    yield volume
    if volume.process:
        volume.unmount()
    run("umount", volume.cache)


@pytest.mark.parametrize("new", [True, False])
def test_a_cache_that_does_not_tell_of_mappings_gets_no_passthrough(overlay, passthrough, new):
    if passthrough == "off":
        pytest.skip("of passthrough")
    overlay.options["passthrough"] = "auto"
    mnt = overlay.mount(settle="1h")
    assert mnt.status()["passthrough"]["mode"] == "off" and "stacked" in mnt.status()["passthrough"]["reason"]
    check_a_mapping_after_close(mnt, new)


def check_a_mapping_after_close(mnt, new):
    f = mnt.path / "f"
    if not new:
        f.write_bytes(bytes(MIB))
    fd = os.open(f, os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, MIB)
    m = Mapping(fd, MIB)
    m.write(b"one")
    os.close(fd)

    def sealed(number):
        """The start of the file in an epoch; None where it is not in it."""
        path = mnt.epoch(number) / "f"
        return path.read_bytes()[:3] if path.exists() else None

    assert f.read_bytes()[:3] == b"one"
    number = mnt.seal()
    # As the close left it; or, where the kernel counts the mapping as an open file, as before it.
    before = sealed(number)
    assert before in (b"one", None if new else bytes(3))
    m.write(b"two")
    assert f.read_bytes()[:3] == b"two" and sealed(number) == before
    m.close()
    assert f.read_bytes()[:3] == b"two"
    later = wait_until(lambda: [n for n in [mnt.seal()] if sealed(n) == b"two"], "an epoch with what was mapped")[0]
    mnt.remount()
    assert f.read_bytes()[:3] == b"two" and sealed(number) == before and sealed(later) == b"two"


def test_mappings_of_two_versions(mnt):
    """A reader's mapping of replaced content stays, as torch.load(mmap=True) needs it."""
    f = mnt.path / "f"
    f.write_bytes(b"a" * MIB)
    with open(f, "rb") as old, mmap.mmap(old.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as m:
        f.write_bytes(b"b" * MIB)
        mnt.seal()
        assert m[:] == b"a" * MIB
        with open(f, "rb") as new, mmap.mmap(new.fileno(), 0, prot=mmap.PROT_READ) as n:
            assert n[:] == b"b" * MIB and m[:] == b"a" * MIB


def test_files_that_are_not_here_yet(mnt):
    """With an empty cache content is fetched by what is read; then the kernel may have it."""
    data = {name: os.urandom(size) for name, size in (("small", 3000), ("large", 9 * MIB + 5))}
    for name, content in data.items():
        (mnt.path / name).write_bytes(content)
    number = mnt.seal()
    mnt.remount(empty_cache=True)
    with open(mnt.path / "large", "rb") as f, open(mnt.epoch(number) / "large", "rb") as e:
        f.seek(5 * MIB)
        assert f.read(100) == data["large"][5 * MIB:5 * MIB + 100]
        assert e.read(100) == data["large"][:100]
        # Somebody else reads all of it meanwhile, and a third one changes it.
        assert (mnt.path / "large").read_bytes() == data["large"]
        with open(mnt.path / "large", "r+b") as w:
            w.write(b"changed")
        f.seek(0)
        assert f.read(10) == b"changed" + data["large"][7:10]
        assert e.read() == data["large"][100:]
    assert (mnt.path / "small").read_bytes() == data["small"]
    assert (mnt.path / "large").read_bytes() == b"changed" + data["large"][7:]
    assert (mnt.epoch(number) / "large").read_bytes() == data["large"]


def test_a_file_with_setuid_is_written_through_the_daemon(mnt):
    """The kernel would not tell of the writes that take the bit away."""
    f = mnt.path / "f"
    f.write_bytes(b"x" * 100)
    os.chmod(f, 0o4755)
    before = mnt.status()["passthrough"]["ordinary_opens"]
    with open(f, "r+b") as stream:
        stream.write(b"yy")
    assert mnt.status()["passthrough"]["ordinary_opens"] == before + 1
    assert f.read_bytes()[:3] == b"yyx"


def test_writes_ask_nothing_of_the_daemon(mnt):
    """Not even for security.capability, which the kernel would else ask for before every write."""
    if mnt.options["passthrough"] != "on":
        pytest.skip("of passthrough")
    fd = os.open(mnt.path / "f", os.O_RDWR | os.O_CREAT)
    try:
        os.write(fd, b"x")
        before = context_switches(mnt.pid)
        for i in range(5000):
            os.pwrite(fd, b"y" * 100, i * 100)
            os.pread(fd, 100, i * 100)
        assert context_switches(mnt.pid) - before < 2000
    finally:
        os.close(fd)


def context_switches(pid):
    """How often the daemon's threads waited: at least once a request."""
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, task)) as f:
            total += sum(int(line.split()[1]) for line in f if line.startswith("voluntary"))
    return total


@pytest.fixture
def unprivileged(volume):
    """Runs a mount where the kernel gives no passthrough, in a user namespace."""
    if run("unshare", "-Urm", "true", check=False).returncode:
        pytest.skip("no user namespaces here")

    def start(script, **options):
        return run("unshare", "-Urm", "sh", "-c", script, BIN, volume.path, *volume.command(**options), check=False)

    return start


def test_without_the_capability_auto_goes_through_the_daemon(unprivileged):
    done = unprivileged("""
mount=$1 && shift
"$@" 2>&1 & daemon=$!
while ! mountpoint -q "$mount"; do kill -0 $daemon || exit 9; sleep 0.02; done
cd "$mount" && echo text > f && cat f; result=$?
"$0" status "$mount"
cd / && umount "$mount" && wait $daemon && exit $result
""", passthrough="auto")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "text\n" in done.stdout
    # There to look up, and no line for each mount.
    assert "needs CAP_SYS_ADMIN" in done.stdout and "info: kernel passthrough" not in done.stdout


def test_without_the_capability_on_fails(unprivileged):
    done = unprivileged('shift; exec "$@"', passthrough="on")
    assert done.returncode == 1
    line = [text for text in done.stderr.splitlines() if text.startswith("epochfs: ")]
    assert len(line) == 1 and "passthrough=on" in line[0] and "passthrough=auto" in line[0]


def test_nfs_cannot_export_it(mnt):
    """A file handle that outlives the kernel's memory of a node would be lost: none are given."""
    class FileHandle(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_char * 128)]

    (mnt.path / "f").touch()
    libc = ctypes.CDLL(None, use_errno=True)
    handle, where = FileHandle(bytes=128), ctypes.c_int()
    if libc.name_to_handle_at(-100, os.fsencode(mnt.path / "f"), ctypes.byref(handle), ctypes.byref(where), 0) == 0:
        fd = os.open(mnt.path, os.O_RDONLY)
        try:
            assert libc.open_by_handle_at(fd, ctypes.byref(handle), os.O_RDONLY) < 0
        finally:
            os.close(fd)
