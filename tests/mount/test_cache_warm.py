# SPDX-License-Identifier: Apache-2.0
"""epochfs cache: an epoch fetched before it is needed; what the cache holds."""

import contextlib
import errno
import json
import os
import signal
import subprocess

import pytest

from conftest import BIN, Control, run, wait_until

DONE, FAILED, USAGE, NOT_FOUND, DAMAGED = 0, 1, 2, 5, 6
MIB = 1 << 20


def cache(*words, code=DONE):
    done = run(BIN, "cache", *map(str, words), check=False)
    assert done.returncode == code, done
    return done


def warm(*words, code=DONE):
    return json.loads(cache("warm", "--json", *words, code=code).stdout)


def calm(mnt):
    """What is fetched already may still be on its way into the figures."""
    seen = []

    def steady():
        seen.append(mnt.status()["cache"]["bytes"])
        return len(seen) > 20 and len(set(seen[-20:])) == 1

    wait_until(steady, "a calm cache")
    return seen[-1]


@pytest.fixture
def passthrough():
    """Where it matters, a test says so."""
    return "auto"


@pytest.fixture
def cold(mnt):
    """Epoch 1, of which nothing is local; the contents by path."""
    files = {"model.bin": os.urandom(20 * MIB), "run/a.bin": os.urandom(3 * MIB), "run/b.bin": os.urandom(MIB), "run/small": b"x", "empty": b""}
    (mnt.path / "run").mkdir()
    for name, data in files.items():
        (mnt.path / name).write_bytes(data)
    (mnt.path / "link").symlink_to("model.bin")
    mnt.seal()
    mnt.remount(empty_cache=True)
    mnt.files = files
    return mnt


def without_remote(mnt):
    """The packs are gone: what is read now is local."""
    (mnt.remote / "packs").rename(mnt.remote / "gone")


@pytest.mark.parametrize("passthrough", ["on", "off"])
def test_all_of_an_epoch(cold):
    assert warm(cold.path) == {"epoch": 1, "files": 5, "bytes": 24 * MIB + 1, "damaged": []}
    without_remote(cold)
    for name, data in cold.files.items():
        assert (cold.epoch(1) / name).read_bytes() == data
        assert (cold.path / name).read_bytes() == data
    # Once more costs nothing, and another mount has it still.
    assert warm(cold.path, 1)["files"] == 5
    cold.remount()
    assert (cold.path / "model.bin").read_bytes() == cold.files["model.bin"]


def test_paths_of_it(cold):
    assert warm(cold.path, "latest", "run/", "empty") == {"epoch": 1, "files": 4, "bytes": 4 * MIB + 1, "damaged": []}
    assert 4 * MIB <= calm(cold) < 8 * MIB
    without_remote(cold)
    assert (cold.epoch(1) / "run/a.bin").read_bytes() == cold.files["run/a.bin"]


def test_status(cold):
    before = json.loads(cache("status", "--json", cold.path).stdout)
    assert before["bytes"] < MIB
    cache("warm", cold.path)
    assert calm(cold) >= 24 * MIB
    assert "24 MiB" in cache("status", cold.path).stdout


def test_what_is_damaged_is_named_and_the_rest_comes(cold):
    damaged = max(cold.remote.glob("packs/*/*"), key=lambda p: p.stat().st_size)
    os.chmod(damaged, 0o600)
    with open(damaged, "r+b") as f:
        f.seek(damaged.stat().st_size // 2)
        f.write(b"damaged" * 100)
    done = run(BIN, "cache", "warm", "--json", cold.path, check=False)
    assert done.returncode == DAMAGED, done
    answer = json.loads(done.stdout)
    assert answer["damaged"], answer
    assert answer["files"] == 5 - len(answer["damaged"])
    for name in answer["damaged"]:
        assert "%s is damaged or missing in the remote" % name in done.stderr
        with pytest.raises(OSError):
            (cold.epoch(1) / name).read_bytes()
    without_remote(cold)
    for name in set(cold.files) - set(answer["damaged"]):
        assert (cold.epoch(1) / name).read_bytes() == cold.files[name]


def test_what_does_not_fit_is_not_begun(cold):
    cold.remount(empty_cache=True, cache_size="16M")
    line = cache("warm", cold.path, code=FAILED).stderr
    assert "do not fit into the cache" in line and "16 MiB" in line and line.count("\n") == 1
    assert calm(cold) < MIB
    assert warm(cold.path, "latest", "run")["files"] == 3


def open_files(pid):
    folder = "/proc/%d/fd" % pid
    found = []
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(os.path.join(folder, fd)))
    return found


def test_an_interrupt_ends_it(cold):
    cold.url = "fault+%s?get.delay=10s&only=packs/" % cold.url
    cold.remount(empty_cache=True)
    control = os.fspath(cold.epochs_dir / ".control")
    with subprocess.Popen([BIN, "cache", "warm", os.fspath(cold.path)], stderr=subprocess.DEVNULL) as p:
        # It asks for the list of files first, which needs no pack.
        wait_until(lambda: p.poll() is not None or control in open_files(p.pid), "its request")
        p.send_signal(signal.SIGINT)
        assert p.wait(60) == -signal.SIGINT
    # And the mount is as before.
    assert (cold.epoch(1) / "run/small").read_bytes() == b"x"


def test_what_is_wrong_has_one_line(cold, tmp_path):
    for words, code, text in (
        (["warm"], USAGE, "needs the DIRECTORY"),
        (["fetch", cold.path], USAGE, "needs `list`, `drop`, `warm` or `status`"),
        (["status", cold.path, "1"], USAGE, "too many arguments"),
        (["warm", tmp_path], NOT_FOUND, "`epochfs mount REMOTE DIRECTORY` first"),
        (["warm", cold.url], NOT_FOUND, "`epochfs export` restores"),
        (["warm", cold.path, 7], NOT_FOUND, "no epoch 7"),
        (["warm", cold.path, 1, "run", "nothing"], NOT_FOUND, "has no path 'nothing'"),
    ):
        line = cache(*words, code=code).stderr
        assert text in line and line.count("\n") == 1, line
    with Control(cold.path) as control:
        for request in ({}, {"entry": 1}, {"entry": 99, "offset": 0, "length": 1}):
            assert control.request("fetch", epoch=1, **request)["errno"] == errno.EINVAL
