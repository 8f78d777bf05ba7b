# SPDX-License-Identifier: Apache-2.0
"""A close is taken in before what anybody asks after it. The kernel tells of the last close without
waiting for an answer, so each of these would fail now and then if requests could overtake it."""

import os
import sys
import threading
import time

import pytest

from conftest import Mapping, python, run

ROUNDS = 150

ECHO = """
import os, sys
for line in sys.stdin:
    with open(sys.argv[1], "rb") as f:
        print(f.read(50).decode(), os.stat(sys.argv[1]).st_size, flush=True)
"""


def test_another_process_sees_what_was_closed(mnt):
    f = mnt.path / "f"
    f.write_text("begin")
    mnt.seal()
    other = python(ECHO, f)
    for i in range(ROUNDS):
        text = "version-%d" % i
        with open(f, "wb") as stream:
            stream.write(text.encode() * 1000)
        other.stdin.write("look\n")
        other.stdin.flush()
        words = other.stdout.readline().split()
        assert words[0].startswith(text) and int(words[1]) == 1000 * len(text)
    other.stdin.close()
    assert other.wait() == 0


def test_a_rename_after_a_close_moves_what_was_written(mnt):
    f, tmp = mnt.path / "f", mnt.path / "tmp"
    for i in range(ROUNDS):
        with open(tmp, "wb") as stream:
            stream.write(b"%d" % i * 100)
        os.rename(tmp, f)
        assert f.read_bytes() == b"%d" % i * 100
        assert os.listdir(mnt.path) == ["f"]


def test_a_seal_after_a_close_takes_the_file(mnt):
    f = mnt.path / "f"
    for i in range(1, 41):
        with open(f, "wb") as stream:
            stream.write(b"%d" % i * 100)
        if i % 2:
            os.mkdir(mnt.epochs_dir / ("e%d" % i))
        else:
            mnt.seal()
        assert (mnt.epoch(i) / "f").read_bytes() == b"%d" % i * 100


def test_an_open_after_a_close_begins_anew(mnt):
    """Each O_TRUNC of closed content makes a version of its own; none is joined with the last."""
    f = mnt.path / "f"
    f.write_bytes(b"x" * 10)
    for i in range(ROUNDS):
        with open(f, "rb") as reader:
            before = f.read_bytes()
            with open(f, "wb") as stream:
                stream.write(b"%d" % i)
            assert reader.read() == before
            assert f.read_bytes() == b"%d" % i


def test_a_mapping_that_is_left_keeps_nobody_waiting(mnt):
    """The kernel has the file open for it, so that no release is on its way."""
    f, waits = mnt.path / "f", []
    f.write_bytes(bytes(8192))
    for _ in range(5):
        fd = os.open(f, os.O_RDWR)
        mapped = Mapping(fd, 8192)
        os.close(fd)
        began = time.monotonic()
        os.close(os.open(f, os.O_RDONLY))
        waits.append(time.monotonic() - began)
        mapped.close()
    assert min(waits) < 0.4, waits


@pytest.mark.parametrize("beside", ["a reader", "a reader before", "another name"])
def test_what_is_closed_beside_a_mapping_that_is_left_is_in_the_epoch(mnt, beside):
    """Of whatever else the one that maps the file has open, only what he writes by is a close still to come."""
    f, mapped_by = mnt.path / "f", mnt.path / "f"
    f.write_bytes(b"a" * 8192)
    if beside == "another name":
        mapped_by = mnt.path / "d" / "e" / "g"
        mapped_by.parent.mkdir(parents=True)
        os.link(f, mapped_by)
    mnt.seal()
    reader = [os.open(f, os.O_RDONLY)] if beside == "a reader before" else []
    fd = os.open(mapped_by, os.O_RDWR)
    mapped = Mapping(fd, 8192)
    os.close(fd)
    reader += [os.open(f, os.O_RDONLY)] if beside == "a reader" else []
    run(sys.executable, "-c", "import os, sys; fd = os.open(sys.argv[1], os.O_WRONLY); os.write(fd, b'b' * 8192); os.close(fd)", f)
    assert (mnt.epoch(mnt.seal()) / "f").read_bytes() == b"b" * 8192
    for fd in reader:
        os.close(fd)
    mapped.close()
    assert f.read_bytes() == b"b" * 8192


@pytest.mark.parametrize("new", [False, True])
def test_what_is_truncated_beside_a_mapping_that_is_left_is_in_the_epoch(mnt, new):
    """truncate(2) has no close: it counts as one. With passthrough the kernel itself reads and writes a new file."""
    f = mnt.path / "f"
    if not new:
        f.write_bytes(b"a" * 8192)
        mnt.seal()
    fd = os.open(f, os.O_RDWR | os.O_CREAT)
    os.write(fd, b"a" * 8192)
    mapped = Mapping(fd, 4096)
    os.close(fd)
    mnt.seal()
    run(sys.executable, "-c", "import os, sys; os.truncate(sys.argv[1], 5000)", f)
    assert (mnt.epoch(mnt.seal()) / "f").read_bytes() == b"a" * 5000
    mapped.close()
    assert f.read_bytes() == b"a" * 5000


def test_many_writers_at_once(mnt):
    """Threads that each replace, rename, list and remove in a directory of their own."""
    errors = []

    def work(name):
        d = mnt.path / name
        d.mkdir()
        try:
            for i in range(60):
                data = os.urandom(3000)
                (d / "tmp").write_bytes(data)
                os.rename(d / "tmp", d / ("f%d" % (i % 7)))
                assert (d / ("f%d" % (i % 7))).read_bytes() == data
                assert len(os.listdir(d)) == min(i + 1, 7)
            for entry in list(os.scandir(d)):
                os.unlink(entry.path)
            os.rmdir(d)
        except BaseException as error:  # the test's thread reports it
            errors.append(error)

    threads = [threading.Thread(target=work, args=("t%d" % i,)) for i in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors
    assert os.listdir(mnt.path) == []


def test_more_waits_than_threads(volume):
    """Requests that wait for the remote hold up nobody else, many though they are."""
    volume.url = "fault+file://%s?put.delay=1h&only=epochs/" % volume.remote
    volume.mount(settle="1h")
    (volume.path / "f").write_bytes(b"x" * 100)
    code = """
import json, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.write(fd, json.dumps({"op": "wait"}).encode())
print("asked", flush=True)
os.read(fd, 100)
"""
    waiters = [python(code, volume.epochs_dir / ".control") for _ in range(30)]
    try:
        for w in waiters:
            assert w.stdout.readline() == "asked\n"
        for i in range(20):
            (volume.path / "g").write_bytes(b"%d" % i)
            assert (volume.path / "g").read_bytes() == b"%d" % i
            assert volume.status()["pid"] == volume.pid
        assert all(w.poll() is None for w in waiters)
    finally:
        for w in waiters:
            w.kill()
        for w in waiters:
            w.wait(timeout=60)


REPLACER = """
import sys
for line in sys.stdin:
    with open(sys.argv[1], "wb") as f:
        print("open", flush=True)
        f.write(sys.stdin.readline().strip().encode() * 1000)
    print("closed", flush=True)
"""


def test_of_two_replacements_the_one_that_is_closed_last_counts(mnt):
    """Also an empty one: its release may be the first that is worked on."""
    f = mnt.path / "f"
    other = python(REPLACER, f)

    def tell(word):
        other.stdin.write(word + "\n")
        other.stdin.flush()
        return other.stdout.readline()

    for i in range(ROUNDS):
        f.write_text("old")
        assert tell("open") == "open\n"
        with open(f, "wb") as stream:
            assert tell("other-%d" % i) == "closed\n"
            stream.write(b"mine" if i % 2 else b"")
        assert f.read_bytes() == (b"mine" if i % 2 else b""), i
    other.stdin.close()
    assert other.wait() == 0
