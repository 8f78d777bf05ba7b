# SPDX-License-Identifier: Apache-2.0
"""epochfs doctor: what is wrong with this machine, a mount or a remote, and what to do."""

import json
import os
import signal

import pytest

from fake_s3 import FakeS3

from conftest import BIN, is_mounted, run, wait_until
from test_command import DONE, FAILED, USAGE, epochfs
from test_lease import family, move_holder_elsewhere
from test_ordinary import preloaded

SECRET = "sEcReT7"


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of the command."""
    return "auto"


def doctor(*arguments, code=DONE, **keywords):
    """What it finds; the plain output says the same, each finding in a line, and --quiet what is wrong of it."""
    done = run(BIN, "doctor", "--json", *arguments, check=False, **keywords)
    assert done.returncode == code and not done.stderr, done
    found = json.loads(done.stdout)
    for f in found:
        assert set(f) == {"check", "ok", "what", "do"} and (f["ok"] or f["do"]), f
    assert code == (DONE if all(f["ok"] for f in found) else FAILED)
    return found


def wrong(*arguments, **keywords):
    return [f for f in doctor(*arguments, code=FAILED, **keywords) if not f["ok"]]


# ---- machine


def test_the_machine():
    """Other tests of this machine may have left a mount that is dead at this moment."""
    done = run(BIN, "doctor", check=False)
    assert done.returncode == (FAILED if "\nwrong" in done.stdout else DONE) and not done.stderr
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines} <= {"ok", "note", "wrong"}
    assert lines[0].split(None, 1) == ["ok", "/dev/fuse can be opened"]
    for word in ("mount", "allow_other", "Linux", "open files", "memory is available"):
        assert word in done.stdout, word


def test_limits_of_the_machine():
    found = {f["check"]: f for f in json.loads(run("sh", "-c", "ulimit -n 64; exec %s doctor --json" % BIN, check=False).stdout)}
    assert found["open-files"]["ok"] is False and "ulimit -n" in found["open-files"]["do"]
    found = {f["check"]: f for f in json.loads(run("sh", "-c", "ulimit -n 1024; exec %s doctor --json" % BIN, check=False).stdout)}
    assert found["open-files"]["ok"] and found["open-files"]["do"]


def test_a_dead_mount(mnt):
    mnt.process.kill()
    mnt.process.wait()
    wait_until(lambda: not mnt.answers(), "the end of the mount")
    mnt.process = None
    assert is_mounted(mnt.path)
    (found,) = [f for f in json.loads(run(BIN, "doctor", "--json", check=False).stdout) if str(mnt.path) in f["what"]]
    assert not found["ok"] and found["check"] == "mounts" and "is gone" in found["what"] and "fusermount3 -u %s" % mnt.path in found["do"]
    assert wrong(mnt.path) == [found]
    lines = run(BIN, "doctor", "--quiet", check=False).stdout.splitlines()
    assert "wrong  %s; %s" % (found["what"], found["do"]) in lines and {line.split()[0] for line in lines} == {"wrong"}
    run("fusermount3", "-u", mnt.path)
    assert str(mnt.path) not in run(BIN, "doctor", check=False).stdout


def test_a_mount_that_does_not_answer(mnt):
    mnt.process.send_signal(signal.SIGSTOP)
    try:
        (found,) = wrong(mnt.path)
        assert "does not answer" in found["what"] and "fusermount3 -uz" in found["do"]
    finally:
        mnt.process.send_signal(signal.SIGCONT)


# ---- a mount


def test_a_healthy_mount(mnt):
    (mnt.path / "d").mkdir()
    (mnt.path / "d" / "model").write_bytes(b"1" * 5000)
    mnt.seal()
    mnt.wait_durable()
    before = sorted(os.listdir(mnt.remote / "packs"))
    found = doctor(mnt.path)
    assert {"upload", "lease", "saves", "cache-disk", "cache-room", "volume", "remote"} <= {f["check"] for f in found}
    assert sorted(os.listdir(mnt.remote / "packs")) == before
    assert [f["check"] for f in doctor(mnt.path / "d")] == [f["check"] for f in found]
    assert epochfs("doctor", "--quiet", mnt.path) == "" and doctor("--quiet", mnt.path) == []
    assert epochfs("doctor", mnt.path).splitlines()[0].split(None, 1) == ["ok", "all epochs are durable"]


def test_a_remote_that_was_removed(mnt):
    (mnt.path / "a").write_text("1")
    mnt.seal()
    mnt.wait_durable()
    mnt.remote.rename(mnt.base / "away")
    found = wrong(mnt.path)
    assert [f["check"] for f in found] == ["remote"] and str(mnt.remote) in found[0]["what"]
    assert not mnt.remote.exists(), "the doctor makes nothing there"
    mnt.remote.mkdir()
    (found,) = wrong(mnt.path)
    assert found["check"] == "volume" and "no more" in found["what"] and os.listdir(mnt.remote) == []
    mnt.remote.rmdir()
    (mnt.base / "away").rename(mnt.remote)
    doctor(mnt.path)


def test_a_remote_that_cannot_be_written_to(mnt):
    """A directory of it is a file: root, too, cannot write there."""
    (mnt.path / "a").write_text("1")
    mnt.seal()
    mnt.wait_durable()
    (mnt.remote / "packs").rename(mnt.base / "packs")
    (mnt.remote / "packs").write_text("")
    (found,) = wrong(mnt.path)
    assert found["check"] == "remote" and str(mnt.remote) in found["what"]
    (mnt.path / "b").write_bytes(os.urandom(100000))
    mnt.seal()
    wait_until(lambda: "error" in mnt.status()["upload"], "a failed upload")
    found = wrong(mnt.path)
    assert [f["check"] for f in found] == ["upload", "remote"] and "uploads" in found[0]["what"]
    (mnt.remote / "packs").unlink()
    (mnt.base / "packs").rename(mnt.remote / "packs")
    mnt.wait_durable()
    doctor(mnt.path)


def killed(path, how):
    """A writer that opens the file so and is killed in the middle."""
    run("python3", "-c", "import os, sys; f = open(*sys.argv[1:], buffering=0); f.write(b'PK' * 50000); os.kill(os.getpid(), 9)", path, how, check=False)


@pytest.mark.rules("2")
def test_what_killed_saves_left(mnt):
    killed(mnt.path / "new.pt", "wb")
    wait_until(lambda: not mnt.status()["pending"]["open"], "the end of the writer")
    (torn,) = [f for f in doctor(mnt.path) if f["check"] == "saves" and f["do"]]
    assert ".epochs/torn" in torn["what"]
    (mnt.path / "model.pt").write_bytes(b"1" * 200000)
    mnt.seal()
    mnt.remount(resume="off")
    killed(mnt.path / "model.pt", "r+b")
    wait_until(lambda: mnt.status().get("verdict") == "not whole", "the verdict")
    found = wrong(mnt.path)
    assert {f["check"] for f in found} == {"saves"} and "model.pt" in found[-1]["what"], found
    assert found[-1]["do"].endswith("epochfs rollback %s latest" % mnt.path)


def test_a_cache_on_a_network(mnt):
    for kind, name in (("0x6969", "NFS"), ("0x0BD00BD0", "Lustre"), ("0x65735546", "FUSE")):
        (found,) = wrong(mnt.path, env=preloaded(EPOCHFS_STATFS="%s:%s" % (kind, mnt.cache)))
        assert found["check"] == "cache-disk" and name in found["what"] and "-o cache-dir" in found["do"]


def test_the_limit_of_the_cache(volume):
    volume.mount(settle="1h", cache_size="1M")
    (volume.path / "model").write_bytes(os.urandom(3 << 20))
    volume.seal()
    volume.wait_durable()
    (found,) = wrong(volume.path)
    assert found["check"] == "cache-limit" and "cache-size is 1.0 MiB" in found["what"]


def test_a_lease_that_is_lost(make_volume):
    a, b = family(make_volume, 2)
    a.mount()
    (a.path / "a").write_text("1")
    a.seal()
    a.wait_durable()
    b.mount(**{"take-over": True})
    wait_until(lambda: a.status()["lease"]["state"] == "lost", "the loss")
    (found,) = [f for f in wrong(a.path) if f["check"] == "lease"]
    assert "taken over by" in found["what"] and str(b.path) in found["what"]


# ---- a remote


def test_a_remote(tmp_path):
    remote = tmp_path / "remote"
    (found,) = wrong(remote)
    assert found["check"] == "remote" and str(remote) in found["what"] and not remote.exists()
    remote.mkdir()
    assert [f["check"] for f in doctor(remote)] == ["volume", "remote", "create-if-absent"]
    (remote / "packs").rmdir()
    (remote / "packs").write_text("")
    assert {f["check"] for f in wrong(remote)} <= {"remote", "volume"}
    assert "needs" not in epochfs("doctor", "a", "b", code=USAGE)


def test_a_volume_held_elsewhere(make_volume):
    (v,) = family(make_volume, 1)
    v.mount()
    (v.path / "a").write_text("1")
    v.seal()
    v.wait_durable()
    (found,) = [f for f in doctor(v.url) if f["check"] == "lease"]
    assert "pid %d" % v.pid in found["what"] and str(v.path) in found["what"] and found["do"]
    v.kill()
    move_holder_elsewhere(v)
    (found,) = [f for f in doctor(v.url) if f["check"] == "lease"]
    assert "elsewhere" in found["what"]


def test_damage_of_the_volume(mnt):
    mnt.unmount()
    (mnt.remote / "epochfs.json").write_text("{")
    assert [f["check"] for f in wrong(mnt.remote)] == ["volume"]


def test_a_server(monkeypatch, make_volume):
    """What it tells of its clock, what it refuses, and that no key is printed."""
    for name, value in {"AWS_ACCESS_KEY_ID": "FAKEKEY", "AWS_SECRET_ACCESS_KEY": "FAKE+/SECRET"}.items():
        monkeypatch.setenv(name, value)
    with FakeS3() as fake:
        found = doctor(fake.url("p"))
        assert [f["check"] for f in found] == ["volume", "remote", "create-if-absent", "clock"] and not any(f["do"] for f in found)
        assert not fake.objects
        for ahead, word in ((330, "ahead of"), (-330, "behind")):
            fake.clock_ahead = ahead
            (found,) = wrong(fake.url("p"))
            assert found["check"] == "clock" and "5 min %s" % word in found["what"], found
        fake.clock_ahead = 20
        assert [f["check"] for f in doctor(fake.url("p")) if f["do"]] == ["clock"]
        fake.clock_ahead = 0
        v = make_volume()
        v.url = fake.url("p")
        v.mount()
        (v.path / "a").write_text("1")
        v.seal()
        v.wait_durable()
        assert [f["check"] for f in doctor(v.path)][-4:] == ["volume", "remote", "create-if-absent", "clock"]
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "WRONG" + SECRET)
        for target in (v.path, v.url):
            done = run(BIN, "doctor", target, check=False)
            assert done.returncode == FAILED and "wrong" in done.stdout
            assert SECRET not in done.stdout + done.stderr and "FAKE+/SECRET" not in done.stdout
        v.unmount()
    (found,) = wrong(fake.url("p"))
    assert found["check"] == "remote" and "cannot be reached" in found["what"]


def test_no_secret_is_printed():
    for url in ("https://user:%s@127.0.0.1:1/b" % SECRET, "http://127.0.0.1:1/b?token=%s" % SECRET, "s3://127/b?secret_access_key=%s" % SECRET):
        for options in ((), ("--json",)):
            done = run(BIN, "doctor", *options, url, check=False)
            assert done.returncode and SECRET not in done.stdout + done.stderr, done
