# SPDX-License-Identifier: Apache-2.0
"""epochfs debug: one file for a bug report, with nothing secret in it."""

import json
import os
import signal
import stat
import tarfile

import pytest

from fake_s3 import FakeS3

from conftest import BIN, run
from test_command import FAILED, USAGE, epochfs

FOLDER = "epochfs-debug"


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of the command."""
    return "auto"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Where it writes when nobody says."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def debug(*arguments, **keywords):
    """What the file holds, by name."""
    path = epochfs("debug", *arguments, **keywords).strip()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with tarfile.open(path) as tar:
        assert tar.getnames()[0] == FOLDER
        held = {m.name[len(FOLDER) + 1:]: tar.extractfile(m).read().decode() for m in tar if m.isfile()}
    for name, text in held.items():
        if name.endswith(".json"):
            json.loads(text)
    return held


def found(held, secrets):
    return [(name, secret) for name, text in held.items() for secret in secrets if secret in text or secret in name]


def test_of_a_mount(mnt):
    (mnt.path / "model").write_text("1")
    mnt.seal()
    mnt.wait_durable()
    held = debug(mnt.path)
    assert os.listdir(".") == [n for n in os.listdir(".") if n.startswith("epochfs-debug-") and n.endswith(".tar")]
    status = json.loads(held["status.json"])
    assert status["mountpoint"] == str(mnt.path) and status["uuid"] in held["metrics.txt"]
    assert [e["epoch"] for e in json.loads(held["epochs.json"])] == [1]
    assert json.loads(held["options.json"])["cache-dir"] == {"value": str(mnt.cache), "from": "-o"}
    assert "model" in held["explain.json"] and "epochfs_latest_epoch" in held["metrics.txt"]
    assert {"machine.json", "doctor.json", "cache.json", "mounts.txt"} <= set(held)
    for word in ("epochfs ", os.uname().release, "libcurl/", "OpenSSL", "SQLite", "libfuse"):
        assert word in held["versions.txt"], word
    assert held["asked.txt"].count(": exit code 0 after ") == 6, held["asked.txt"]
    # The same of a path in it, and of the mount that it is called in.
    assert set(debug("-o", "a.tar", mnt.path / "model")) == set(held)
    assert set(debug("--output=%s" % (mnt.base / "b.tar"), cwd=mnt.path)) == set(held)


def test_the_log_of_a_mount(volume):
    log = volume.base / "its log"
    log.write_text("old\n" * 500000 + "near the end\n")
    volume.mount(log_file=log)
    held = debug(volume.path)
    assert "near the end" in held["log.txt"] and len(held["log.txt"]) <= 1 << 20


def test_nothing_secret(volume, monkeypatch):
    """What is planted: keys in the environment of the mount and of the command, the password of a proxy, passphrases and where they lie, options, names of files, and
    lines of the log."""
    secrets = ["sEcReTkEy1", "sEsSiOnToKeN2", "pRoXyPaSs3", "pAsSpHrAsE4", "pAtHoFkEy5", "hOoKtOkEn6", "hf_aBcDeFgHiJkLmNoP7", "DaVpAsS8", "sIgNeD9", "bEaReR10",
               "AKIAABCDEFGHIJKLMNOP", "pAsSwOrDfIlE11", "oThErKeY12", 'qUoTeD"13', "aCcEsS14", "rAwAuTh15"]
    (volume.base / "pAtHoFkEy5").write_text("pAsSpHrAsE4\n")
    (volume.base / "davfile").write_text("pAsSwOrDfIlE11\n")
    (volume.base / "hook").write_text("#!/bin/sh\n")
    (volume.base / "hook").chmod(0o755)
    log = volume.base / "its log"
    log.write_text('GET https://run:DaVpAsS8@dav.example/x failed\nat https://h.example/x?X-Amz-Signature=sIgNeD9&x=kept\nsent "Authorization: Bearer bEaReR10"\n'
                   "AKIAABCDEFGHIJKLMNOP\npAsSwOrDfIlE11 sEcReTkEy1 pRoXyPaSs3 pAsSpHrAsE4 qUoTeD\"13\nexec --token aCcEsS14 Authorization: rAwAuTh15\n")
    with FakeS3() as fake:
        fake.secret, fake.token = "sEcReTkEy1", "sEsSiOnToKeN2"
        volume.environment = {"AWS_ACCESS_KEY_ID": fake.key, "AWS_SECRET_ACCESS_KEY": fake.secret, "AWS_SESSION_TOKEN": fake.token, "AWS_ENDPOINT_URL": fake.endpoint,
                              "HTTPS_PROXY": "http://me:pRoXyPaSs3@proxy.example:3128", "no_proxy": "*", "EPOCHFS_DAV_PASSWORD_FILE": str(volume.base / "davfile")}
        volume.url = "s3://%s/run7" % fake.bucket
        volume.mount(passphrase_file=volume.base / "pAtHoFkEy5", on_epoch="%s --token hOoKtOkEn6" % (volume.base / "hook"), log_file=log)
        for name in ("hf_aBcDeFgHiJkLmNoP7", "model"):
            (volume.path / name).write_text("1")
        volume.seal()
        volume.wait_durable()
        for name, value in {**volume.environment, "AWS_SECRET_ACCESS_KEY": "oThErKeY12", "SOME_API_KEY": 'qUoTeD"13'}.items():
            monkeypatch.setenv(name, value)
        held = debug(volume.path)
        assert found(held, secrets) == []
        # What is no secret stays, and what was hidden shows that it was there.
        for word, name in (("dav.example", "log.txt"), ("x=kept", "log.txt"), ("model", "explain.json"), ("https://***@dav.example/x", "log.txt"),
                           ("AWS_SECRET_ACCESS_KEY is set", "environment.txt"), ("s3://fake-bucket/run7", "status.json")):
            assert word in held[name], (word, held[name])
        assert json.loads(held["options.json"])["passphrase-file"]["value"] is None
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", fake.secret)
        held = debug("-o", "remote.tar", "--passphrase-file", volume.base / "pAtHoFkEy5", volume.url)
        assert found(held, secrets) == [] and "status.json" in held and json.loads(held["options.json"])["passphrase-file"]["value"] is None


def test_a_remote_that_is_away():
    held = debug("http://run:DaVpAsS8@127.0.0.1:1/x?token=sIgNeD9")
    assert found(held, ["DaVpAsS8", "sIgNeD9", "run:"]) == []
    assert "127.0.0.1:1" in held["asked.txt"] and "machine.json" in held


def test_where_it_writes(mnt, tmp_path):
    """Never into a mount, over another file, or half."""
    before = os.listdir(mnt.path)
    assert "lies in the mount" in epochfs("debug", "-o", mnt.path / "a.tar", mnt.path, code=USAGE)
    done = run(BIN, "debug", cwd=mnt.path, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.stdout.startswith(str(tmp_path)) and os.path.exists(done.stdout.strip()) and os.listdir(mnt.path) == before
    (tmp_path / "there").write_text("mine")
    assert "File exists" in epochfs("debug", "-o", tmp_path / "there", mnt.path, code=FAILED)
    assert (tmp_path / "there").read_text() == "mine"
    (tmp_path / "bin").mkdir()
    assert "tar failed" in epochfs("debug", "-o", tmp_path / "new", mnt.remote, code=FAILED, env={**os.environ, "PATH": str(tmp_path / "bin")})
    assert sorted(os.listdir(tmp_path / "here")) == [] and not (tmp_path / "new").exists()


def test_a_mount_that_does_not_answer(mnt):
    mnt.process.send_signal(signal.SIGSTOP)
    try:
        held = debug("-o", "stopped.tar", mnt.path)
    finally:
        mnt.process.send_signal(signal.SIGCONT)
    assert "does not answer" in held["doctor.json"] and "status.json" not in held
