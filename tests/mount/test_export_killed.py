# SPDX-License-Identifier: Apache-2.0
"""A restoring that is killed leaves no half files behind, and a later one takes away what an older one left."""

import fcntl
import os
import signal
import subprocess

import pytest

from conftest import BIN, run, wait_until

LEFT = ".epochfs-export-0123456789abcdef"
MIB = 1 << 20


@pytest.fixture
def stored(volume):
    """A volume with one epoch, unmounted."""
    if volume.options["passthrough"] == "off":
        pytest.skip("the command does not mount")
    mnt = volume.mount(settle="1h")
    (mnt.path / "d").mkdir()
    for i in range(4):
        (mnt.path / "d" / ("f%d" % i)).write_bytes(os.urandom(8 * MIB))
    mnt.wait_durable()
    mnt.unmount()
    return mnt


def names(top):
    return sorted(n for _, folders, files in os.walk(top) for n in folders + files)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_export_leaves_no_half_file(stored, number):
    to = stored.base / "to"
    export = subprocess.Popen([BIN, "export", "fault+%s?get.delay=300ms" % stored.url, os.fspath(to)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def writes():
        """A file of it is open and begun."""
        assert export.poll() is None
        return any(str(to) in target and os.stat("/proc/%d/fd/%s" % (export.pid, fd)).st_blocks
                   for fd, target in links("/proc/%d/fd" % export.pid) if "#" in target or "epochfs-export" in target)

    wait_until(writes, "a file that is half restored")
    export.send_signal(number)
    export.wait(timeout=60)
    assert [n for n in names(to) if n.startswith(".")] == []
    run(BIN, "export", "--force", stored.url, to)
    assert names(to) == ["d", "f0", "f1", "f2", "f3"]


def links(folder):
    for name in os.listdir(folder):
        try:
            yield name, os.readlink(os.path.join(folder, name))
        except FileNotFoundError:
            pass


def test_an_export_removes_what_a_killed_one_left_but_nothing_of_one_that_runs(stored):
    to = stored.base / "to"
    (to / "d").mkdir(parents=True)
    for folder in (to, to / "d"):
        (folder / LEFT).write_text("half")
    (to / (LEFT + "x")).write_text("somebody's own")
    running = to / "d" / LEFT.replace("0", "f")
    with open(running, "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run(BIN, "export", "--force", stored.url, to)
        assert names(to) == sorted([LEFT + "x", running.name, "d", "f0", "f1", "f2", "f3"])


def test_an_export_goes_on_with_what_a_killed_one_has_restored(stored):
    to = stored.base / "to"
    export = subprocess.Popen([BIN, "export", "--threads", "1", "fault+%s?get.delay=200ms" % stored.url, os.fspath(to)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (to / "d" / "f1").exists(), "two whole files")
    export.kill()
    export.wait(timeout=60)
    whole = {p.name: p.stat().st_ino for p in (to / "d").iterdir()}
    damaged, marked = sorted(to.glob("d/f*"))[:2]
    del whole[damaged.name], whole[marked.name]
    before = damaged.stat()
    with open(damaged, "r+b") as f:
        f.seek(5 * MIB)
        f.write(b"other")
    os.utime(damaged, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.setxattr(marked, "user.mine", b"x")
    done = run(BIN, "export", stored.url, to, check=False)
    assert done.returncode == 8 and "--force" in done.stderr
    run(BIN, "export", "--force", stored.url, to)
    once = {p.name: p.stat().st_ino for p in (to / "d").iterdir()}
    assert {name: once[name] for name in whole} == whole
    assert os.listxattr(marked) == []
    fresh = stored.base / "fresh"
    run(BIN, "export", stored.url, fresh)
    for path in (fresh / "d").iterdir():
        there = to / "d" / path.name
        assert there.read_bytes() == path.read_bytes() and there.stat().st_mtime_ns == path.stat().st_mtime_ns
    # Attributes alone are set on what is kept.
    os.chmod(to / "d" / "f3", 0o600)
    run(BIN, "export", "--force", stored.url, to)
    assert {p.name: p.stat().st_ino for p in (to / "d").iterdir()} == once
    assert (to / "d" / "f3").stat().st_mode == (fresh / "d" / "f3").stat().st_mode
