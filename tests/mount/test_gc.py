# SPDX-License-Identifier: Apache-2.0
"""epochfs gc: beside mounts that write and read, killed anywhere, and what its command says."""

import json
import os
import random
import shutil
import signal
import subprocess
import threading

import pytest

from conftest import BIN, LIMIT, run, wait_until
from garbage import MIB, drop, in_log, make_garbage, noise, save

DONE, USAGE, NOT_FOUND, DAMAGED, CONFLICT = 0, 2, 5, 6, 8


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of the command."""
    return "auto"


@pytest.fixture
def mnt(make_volume):
    return make_volume(settle="1h").mount()


def gc(target, *words, code=DONE):
    done = run(BIN, "gc", "--json", *words, target, check=False)
    assert done.returncode == code, done
    return json.loads(done.stdout) if code == DONE else done.stderr


def assert_sound(url):
    """No damage, every byte read. Gives the report."""
    done = run(BIN, "fsck", "--json", "--read-data", url, check=False)
    assert done.returncode == DONE, done
    return json.loads(done.stdout)


def packs(volume):
    return {p.name for p in (volume.remote / "packs").glob("*/*")}


def test_it_says_what_it_frees(mnt):
    first = save(mnt, a=noise(2 * MIB, 1))
    save(mnt, a=noise(2 * MIB, 2))
    drop(mnt, first)
    plan = gc(mnt.path, "--dry-run")
    assert plan["dry_run"] and plan["condemned"]["packs"] == 1 and not (mnt.remote / "gc").exists()
    now = gc(mnt.url)
    assert now["condemned"] == plan["condemned"] and now["deleted"]["packs"] == 0
    assert now["waiting"]["bytes"] > 2 * MIB and now["next_ns"] > 0
    done = run(BIN, "gc", "--grace", "0", mnt.url)
    assert "deleted now" in done.stdout and "freed 2 MiB" in done.stdout.replace("freed 2.0 MiB", "freed 2 MiB")
    report = assert_sound(mnt.url)
    assert report["orphans"] == 0 and report["condemned"] == 0 and report["foreign"] == 0
    assert gc(mnt.path)["before"] == gc(mnt.url, "--grace", "0")["after"]


def test_what_it_refuses(mnt, tmp_path):
    assert "needs a TARGET" in run(BIN, "gc", check=False).stderr
    for words in (["--grace", "soon"], ["--grace", "-1"], ["--rewrite-below", "101"]):
        assert run(BIN, "gc", *words, mnt.url, check=False).returncode == USAGE
    assert run(BIN, "gc", tmp_path / "nothing", check=False).returncode == NOT_FOUND
    number = save(mnt, a=noise(MIB, 1))
    (mnt.remote / "epochs" / ("%020d.json" % number)).write_text("{")
    mnt.unmount()
    line = gc(mnt.url, "--grace", "0", code=DAMAGED)
    assert "epoch %d: its record is damaged" % number in line and "nothing was condemned" in line
    assert line.count("\n") == 1


def test_beside_a_writer(mnt, make_volume):
    """A mount saves, drops, repeats old content and rolls back; collections without a grace follow one another; a reader reads
    what is there. At the end each epoch reads whole, from an empty cache, as it was saved."""
    rng = random.Random(7)
    contents = [noise(rng.randrange(100_000, 600_000), seed) for seed in range(12)]
    saved, stop, problems = {}, threading.Event(), []

    def collect():
        while not stop.is_set():
            done = run(BIN, "gc", "--grace", "0", "--json", mnt.url, check=False)
            if done.returncode != DONE:
                problems.append(done.stderr)

    reader = make_volume(settle="1h")
    reader.url = mnt.url
    save(mnt, f0=contents[0])
    reader.mount(ro=True, refresh="100ms", cache_size="1M")
    collector = threading.Thread(target=collect)
    collector.start()
    try:
        for turn in range(25):
            for _ in range(rng.randrange(1, 4)):
                (mnt.path / ("f%d" % rng.randrange(6))).write_bytes(rng.choice(contents))
            if saved and rng.random() < 0.2:
                number = mnt.rollback(rng.choice(list(saved)))
            else:
                number = mnt.seal()
            saved[number] = {p.name: p.read_bytes() for p in mnt.path.iterdir()}
            if rng.random() < 0.5:
                mnt.wait_durable()
                for name in saved[number]:
                    wait_until(lambda name=name: (reader.path / name).exists(), "the reader to follow")
                    (reader.path / name).read_bytes()  # never EIO
            if len(saved) > 4 and rng.random() < 0.7:
                mnt.wait_durable()
                victim = rng.choice(sorted(saved)[:-2])
                os.rmdir(mnt.epoch(victim))
                del saved[victim]
        mnt.wait_durable()
    finally:
        stop.set()
        collector.join()
    assert not problems
    reader.unmount()
    mnt.remount(empty_cache=True)
    # An epoch that a rollback sealed before its own is there, too.
    assert set(saved) <= set(mnt.epochs())
    for number, files in saved.items():
        assert {p.name: p.read_bytes() for p in mnt.epoch(number).iterdir()} == files
    gc(mnt.url, "--grace", "0")
    assert assert_sound(mnt.url)["orphans"] == 0


def test_a_mount_stores_again_what_was_condemned(mnt):
    """The writer's own index knows the old packs; it must not build on them."""
    data = noise(2 * MIB, 5)
    first = save(mnt, a=data)
    save(mnt, a=b"x")
    drop(mnt, first)
    old = packs(mnt)
    assert gc(mnt.url)["condemned"]["packs"] > 0
    again = save(mnt, b=data)
    assert packs(mnt) - old
    gc(mnt.url, "--grace", "0")
    assert_sound(mnt.url)
    mnt.remount(empty_cache=True)
    assert (mnt.epoch(again) / "b").read_bytes() == data


def test_the_epoch_of_a_rollback_is_dropped_once_the_rollback_is_durable(make_volume):
    """Until then nothing else in the remote may hold what it brought back, and a collection would take it."""
    mnt = make_volume(settle="1h")
    weather, plain = mnt.base / "weather", mnt.url
    mnt.url = "fault+file://%s?control=%s" % (mnt.remote, weather)
    mnt.mount()
    data = noise(MIB, 16)
    first = save(mnt, a=data)
    save(mnt, a=noise(MIB, 17))
    mnt.wait_durable()
    weather.write_text("create.down=1&only=epochs/")
    restored = mnt.rollback(first)
    os.rmdir(mnt.epoch(first))
    wait_until(lambda: "error" in mnt.status()["upload"], "the upload to fail")
    assert first in in_log(plain)
    gc(plain, "--grace", "0")
    weather.unlink()
    mnt.wait_durable()
    wait_until(lambda: first not in in_log(plain), "the drop")
    gc(plain, "--grace", "0")
    assert_sound(plain)
    mnt.remount(empty_cache=True)
    assert (mnt.epoch(restored) / "a").read_bytes() == data


def test_what_only_the_live_tree_needs_is_kept(make_volume):
    """Content whose epoch is dropped and collected while it waits, evicted, for the next epoch."""
    mnt = make_volume(settle="1h", cache_size="1M").mount()
    data = noise(3 * MIB, 6)
    first = save(mnt, a=data)
    (mnt.path / "b").write_bytes(noise(3 * MIB, 7))
    mnt.seal()
    mnt.wait_durable()
    os.kill(mnt.pid, signal.SIGSTOP)  # nothing is uploaded meanwhile
    key = mnt.remote / "epochs" / ("%020d.json" % first)
    key.write_text(json.dumps({"format": 1, "epoch": first, "dropped": "2026-11-22T00:00:00Z"}))
    assert gc(mnt.url)["condemned"]["packs"] == 0  # the second epoch has it, too
    os.kill(mnt.pid, signal.SIGCONT)
    number = save(mnt, c=b"small")
    gc(mnt.url, "--grace", "0")
    assert_sound(mnt.url)
    assert (mnt.epoch(number) / "a").read_bytes() == data


POINTS = ["store.pack_put", "store.index_put", "gc.rewritten", "gc.index_put", "gc.written", "gc.deleted", "gc.deleted:2",
          "gc.published", "gc.published:2", "gc.tidied"]


@pytest.fixture
def garbage(mnt):
    """Not mounted any more."""
    return mnt, make_garbage(mnt)


def copy_of(volume, tmp_path, name):
    shutil.copytree(volume.remote, tmp_path / name)
    return "file://%s" % (tmp_path / name)


def assert_restores(url, files, tmp_path):
    to = tmp_path / "restored"
    run(BIN, "export", url, to)
    for name, data in files.items():
        assert (to / name).read_bytes() == data
    shutil.rmtree(to)


def test_killed_anywhere(garbage, tmp_path):
    """After a kill at each point, the next run ends it: nothing is lost, and nothing is left."""
    volume, files = garbage
    for turn, point in enumerate(POINTS):
        url = copy_of(volume, tmp_path, "copy%d" % turn)
        done = run(BIN, "gc", "--grace", "0", url, check=False, env={**os.environ, "EPOCHFS_FAULT": point})
        assert done.returncode == -signal.SIGKILL, (point, done)
        assert_sound(url)
        assert_restores(url, files, tmp_path)
        gc(url, "--grace", "0")
        assert assert_sound(url)["orphans"] == 0, point
        assert_restores(url, files, tmp_path)


def test_two_at_once(garbage, tmp_path):
    """One decides, the other one gives way or finds nothing to do; never is anything lost."""
    volume, files = garbage
    for turn in range(6):
        url = copy_of(volume, tmp_path, "copy%d" % turn)
        both = [subprocess.Popen([BIN, "gc", "--grace", "0", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                for _ in range(2)]
        for p in both:
            output = p.communicate(timeout=LIMIT)
            assert p.returncode in (DONE, CONFLICT), output
            assert p.returncode == DONE or "another garbage collection" in output[1]
        assert any(p.returncode == DONE for p in both)
        gc(url, "--grace", "0")
        assert assert_sound(url)["orphans"] == 0
        assert_restores(url, files, tmp_path)


@pytest.mark.parametrize("point", ["store.pack_put", "store.index_put", "upload.index", "upload.record", "upload.kept"])
def test_a_writer_killed_in_an_upload(mnt, point):
    """Collected while it is dead, its upload ends well when it is back."""
    first = save(mnt, a=noise(2 * MIB, 1))
    save(mnt, a=b"x")
    drop(mnt, first)
    gc(mnt.url)
    mnt.unmount()
    os.environ["EPOCHFS_FAULT"] = point
    try:
        mnt.mount()
    finally:
        del os.environ["EPOCHFS_FAULT"]
    data = noise(2 * MIB, 1)
    (mnt.path / "b").write_bytes(data)
    try:
        mnt.seal()
        mnt.wait_durable()
    except OSError:
        pass  # it was killed
    wait_until(lambda: mnt.process.poll() is not None or not point, "the writer to be killed")
    mnt.kill()
    gc(mnt.url, "--grace", "0")
    mnt.mount()
    mnt.wait_durable()
    gc(mnt.url, "--grace", "0")
    assert_sound(mnt.url)
    mnt.remount(empty_cache=True)
    assert (mnt.path / "b").read_bytes() == data
    assert (mnt.epochs_dir / "latest" / "b").read_bytes() == data


def test_an_import_stores_again_what_was_condemned(tmp_path):
    """Without a mount; its cache remembers where the condemned chunks lay."""
    remote, source = tmp_path / "remote", tmp_path / "source"
    url, data = "file://%s" % remote, noise(2 * MIB, 8)
    source.mkdir()

    def imported(**files):
        for name, content in files.items():
            (source / name).write_bytes(content)
        run(BIN, "import", "-o", "cache-dir=%s" % (tmp_path / "cache"), source, url)

    imported(a=data)
    imported(a=b"x")
    run(BIN, "rm", url, "1")
    assert gc(url)["condemned"]["packs"] > 0
    imported(b=data)
    gc(url, "--grace", "0")
    assert assert_sound(url)["orphans"] == 0
    assert_restores(url, {"a": b"x", "b": data}, tmp_path)
