# SPDX-License-Identifier: Apache-2.0
"""Work on a mount whose daemon may be killed in the middle, with a note of what was promised; and the checks after it."""

import ctypes
import mmap
import os
import subprocess

import pytest

from conftest import BIN, python, run

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
MS_SYNC = 4


def content(name, version):
    """Tells by itself whether it is whole."""
    return b"%s:%d\n" % (name.encode(), version) * (1 + version * 700)


def is_whole(data):
    """Whether these bytes are content(name, version) for some version."""
    if not data:
        return True
    line = data.split(b"\n", 1)[0]
    name, _, version = line.partition(b":")
    return version.isdigit() and data == content(name.decode(), int(version))


class Session:
    """Work on a mount, with a note of what was promised."""

    def __init__(self, mnt):
        self.mnt = mnt
        self.promised = {}  # path -> bytes; None: removed
        self.doing = {}  # path -> what it may hold as well, because the last step was cut off

    def step(self, path, data, act):
        self.doing = {path: data}
        act(self.mnt.path / path)
        self.promised[path] = data
        self.doing = {}

    def write(self, path, version):
        data = content(os.path.basename(path), version)
        self.step(path, data, lambda p: p.write_bytes(data))

    def edit(self, path, version):
        """Rewrites a file in place, to content of the same kind; it is whole only when it is closed."""
        data = content(os.path.basename(path), version)

        def act(p):
            # Somebody who reads it must see the change: the backing file changes hands.
            with open(p, "rb") as reader, open(p, "r+b") as f:
                f.write(data)
                f.truncate()
                reader.read()

        self.step(path, data, act)

    def fsync(self, path, version):
        data = content(os.path.basename(path), version)

        def act(p):
            with open(p, "wb") as f:
                f.write(data)
                f.flush()
                os.fsync(f.fileno())

        self.step(path, data, act)

    def remove(self, path):
        self.step(path, None, lambda p: p.unlink())

    def directory(self, name, version):
        """A checkpoint under a temporary name, then its final one: seals at once."""
        part = self.mnt.path / ("tmp-" + name)
        part.mkdir()
        data = content("w", version)
        (part / "w").write_bytes(data)
        self.doing = {name + "/w": data}
        os.rename(part, self.mnt.path / name)
        self.promised[name + "/w"] = data
        self.doing = {}

    def killed_writer(self, path):
        # Python would close the file at its end, where the write is refused.
        writer = python("import os,sys\nf=open(sys.argv[1],'wb')\ntry:\n f.write(b'torn');f.flush()\nexcept OSError:\n os.kill(os.getpid(),9)\n"
                        "print('x',flush=True)\nsys.stdin.read()",
                        self.mnt.path / path, stderr=subprocess.DEVNULL)
        writer.stdout.readline()
        writer.kill()
        writer.wait()
        writer.stdin.close()
        writer.stdout.close()
        os.listdir(self.mnt.path)

    def mapping(self, path, version):
        """A shared mapping that is written after the close. (Python's own keeps a descriptor of its own.)"""
        data = content(os.path.basename(path), version)
        self.doing = {path: data}
        failed = address = ctypes.c_void_p(-1).value
        try:
            # The close may fail.
            with open(self.mnt.path / path, "w+b") as f:
                f.truncate(len(data))
                address = LIBC.mmap(None, len(data), mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, f.fileno(), 0)
            assert address != failed
            ctypes.memmove(address, data, len(data))
            os.listdir(self.mnt.path)
            # What is not synced lies in the kernel's pages, which can only be written back while the daemon lives.
            assert LIBC.msync(address, len(data), MS_SYNC) == 0, os.strerror(ctypes.get_errno())
        finally:
            if address != failed:
                LIBC.munmap(address, len(data))
        self.promised[path] = data
        self.doing = {}

    def seal(self):
        with_tag = self.mnt.epochs_dir / ("s%d" % len(os.listdir(self.mnt.epochs_dir)))
        os.mkdir(with_tag)

    def work(self):
        for turn in range(1, 4):
            self.write("model", turn)
            self.write("new%d" % turn, turn)
            self.seal()
            self.edit("model", turn + 10)
            self.fsync("safe", turn)
            self.directory("checkpoint-%d" % turn, turn)
            self.killed_writer("model")
            self.killed_writer("never")
            self.mapping("mapped%d" % turn, turn)
            self.remove("new%d" % turn)
            self.mnt.wait_durable()
        self.promised = None  # the tree of an epoch: only its wholeness is checked from here on
        run("ln", "-sfn", "2", self.mnt.epochs_dir / "current")
        os.unlink(self.mnt.epochs_dir / os.path.basename(min(self.tag_paths())))
        os.rmdir(self.mnt.epoch(1))
        self.mnt.wait_durable()

    def tag_paths(self):
        return [self.mnt.epochs_dir / n for n, e in self.mnt.tags().items() if e == 1]

    def run_until_killed(self):
        """True where the daemon died."""
        try:
            self.work()
        except (OSError, AssertionError, subprocess.SubprocessError, pytest.fail.Exception):
            if self.mnt.process.poll() is None:
                self.mnt.process.wait(timeout=60)
        return self.mnt.process.poll() is not None

    def check_promises(self, promised=None, root=None):
        """In the live tree; or what was promised of another."""
        for path, data in (promised or self.promised or {}).items():
            allowed = [data]
            if path in self.doing:
                allowed.append(self.doing[path])
            try:
                found = ((root or self.mnt.path) / path).read_bytes()
            except FileNotFoundError:
                found = None
            # An edit in place that was cut off is what a disk would leave: some of the new over the old.
            if path == "model" and self.doing.get(path):
                continue
            assert found in allowed, "%s: %r, promised %r" % (path, found and found[:30], data and data[:30])


def check_tree(root, edited):
    for base, _, files in os.walk(root):
        for name in files:
            with open(os.path.join(base, name), "rb") as f:
                data = f.read()
            assert name in edited or is_whole(data), "%s/%s is torn: %r" % (base, name, data[:40])
            assert name != "never" and data != b"torn"


def check_remote(mnt, tmp_path, edited):
    """Every epoch in the remote reads whole, without the mount."""
    def dropped(record):
        return b'"dropped"' in (mnt.remote / "epochs" / record).read_bytes()

    records = [record for record in os.listdir(mnt.remote / "epochs") if not dropped(record)]
    assert records
    for record in records:
        target = tmp_path / ("export-" + record)
        done = run(BIN, "export", "%s@%d" % (mnt.remote, int(record.split(".")[0])), target, check=False)
        # What was dropped before the kill may get its tombstone only now.
        if done.returncode and dropped(record):
            continue
        assert done.returncode == 0, done
        check_tree(target, edited)


def take_away(mnt):
    """The daemon is dead: so is its mount."""
    mnt.process.wait()
    mnt.process = None
    run("umount", "-l", mnt.path, check=False)
