# SPDX-License-Identifier: Apache-2.0
"""Volumes on an SFTP server."""

import json
import os
import time

import pytest

from conftest import BIN, MountError, run, wait_until
from server_sshd import PlainSshd, Sshd
from story import check_files, run_recipe, save, whole_story

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture
def passthrough():
    return "auto"


@pytest.fixture
def volume(server, make_volume, request):
    """Not mounted; its remote is a folder of the server, `volume.store`."""
    v = make_volume()
    prefix = request.node.name.split("[")[0]
    v.url = server.url(prefix)
    v.store = server.folder / "data" / prefix
    return v


def test_a_volume_is_saved_killed_and_restored(volume, tmp_path):
    whole_story(volume, tmp_path)
    # What the daemon was writing as it died is removed by who writes once it is old.
    for name in temporaries(volume):
        os.utime(volume.store / name, (1, 1))
    volume.mount(settle="1h")
    (volume.path / "more").write_bytes(b"more")
    volume.seal()
    volume.wait_durable()
    volume.unmount()
    assert not temporaries(volume)


def temporaries(volume):
    return [name for name in os.listdir(volume.store) if name.startswith(".tmp-")]


def test_the_recipe_of_the_readme(server, tmp_path):
    # The host's name, port and key stand in ssh's configuration, as a user's would; a wrapper names it.
    (tmp_path / "config").write_text("Host store.example.org\n HostName 127.0.0.1\n Port %d\n IdentityFile %s\n"
                                     " UserKnownHostsFile %s\n" % (server.port, server.key, tmp_path / "known"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ssh").write_text('#!/bin/sh\nexec /usr/bin/ssh -F %s "$@"\n' % (tmp_path / "config"))
    (tmp_path / "bin" / "ssh").chmod(0o755)
    (server.folder / "data" / "recipe").mkdir()
    run_recipe("ssh-keyscan store.example.org", tmp_path, {
        "ssh-keyscan store.example.org": "ssh-keyscan -p %d 127.0.0.1" % server.port,
        "~/.ssh/known_hosts": str(tmp_path / "known"),
        "/srv/runs": "%s/data/recipe" % server.folder})


@pytest.mark.parametrize("kind, options", [("rsa", ["-t", "rsa", "-b", "3072"]), ("ecdsa", ["-t", "ecdsa"])])
def test_keys_of_other_kinds_are_taken(volume, server, tmp_path, kind, options):
    key = tmp_path / kind
    run("ssh-keygen", "-q", *options, "-N", "", "-f", key)
    with open(server.folder / "authorized_keys", "a", encoding="ascii") as authorized:
        authorized.write(key.with_suffix(".pub").read_text())
    volume.url = volume.url.replace(str(server.key), str(key))
    volume.mount()
    volume.unmount()


def test_a_key_comes_from_the_agent(volume, server, tmp_path, monkeypatch):
    agent = server.spawn("ssh-agent", "-D", "-a", tmp_path / "agent")
    try:
        wait_until(lambda: (tmp_path / "agent").exists(), "the agent")
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        volume.url = volume.url.split("&key=")[0]
        with pytest.raises(MountError) as refused:
            volume.mount()
        assert refused.value.code == 4
        run("ssh-add", "-q", server.key)
        volume.mount()
        volume.unmount()
    finally:
        server.processes.remove(agent)
        agent.kill()
        agent.wait()


def test_a_server_without_extensions_keeps_a_volume_too(make_volume, tmp_path):
    with PlainSshd(tmp_path / "plain") as plain:
        volume = make_volume()
        volume.url = plain.url("story")
        whole_story(volume, tmp_path)
        report = json.loads(run(BIN, "check", "--json", "--size", "64K", volume.url).stdout)
        assert report["usable"] and report["create_if_absent"] == "atomic"
        assert not [p for p in (plain.folder / "data").rglob(".tmp-*")]


def refuse(volume, url):
    """The mount of this URL is refused: its exit code and line."""
    volume.url = url
    with pytest.raises(MountError) as error:
        volume.mount()
    assert not os.listdir(volume.store), "something was written"
    return error.value.code, error.value.output


def test_an_unknown_host_is_refused_and_told_how_to_be_known(volume, server, tmp_path):
    code, line = refuse(volume, volume.url.replace(str(server.known_hosts), str(tmp_path / "none")))
    assert code == 4
    assert "host key is not known" in line
    assert "ssh-keyscan -p %d 127.0.0.1 >> %s" % (server.port, tmp_path / "none") in line


def test_a_host_with_another_key_is_refused(volume, server, tmp_path):
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other")
    words = (tmp_path / "other.pub").read_text().split()
    (tmp_path / "known").write_text("[127.0.0.1]:%d %s %s\n" % (server.port, words[0], words[1]))
    code, line = refuse(volume, volume.url.replace(str(server.known_hosts), str(tmp_path / "known")))
    assert code == 4
    assert "another than the known one" in line


def test_a_configuration_cannot_switch_the_check_off(volume, server, tmp_path, monkeypatch):
    # ssh takes the home from the password file, so the file is named on its command line by a wrapper.
    (tmp_path / "config").write_text("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
                                     "NoHostAuthenticationForLocalhost yes\n")
    (tmp_path / "ssh").write_text('#!/bin/sh\nexec /usr/bin/ssh -F %s "$@"\n' % (tmp_path / "config"))
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", "%s:%s" % (tmp_path, os.environ["PATH"]))
    code, _ = refuse(volume, volume.url.replace(str(server.known_hosts), str(tmp_path / "none")))
    assert code == 4
    code, _ = refuse(volume, volume.url.replace("known-hosts=%s&" % server.known_hosts, ""))
    assert code == 4


def test_a_wrong_key_is_refused(volume, server, tmp_path):
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "wrong")
    code, line = refuse(volume, volume.url.replace(str(server.key), str(tmp_path / "wrong")))
    assert code == 4
    assert "none of your keys" in line


def test_what_is_not_there_is_told(volume, server):
    code, line = refuse(volume, volume.url.replace("/data/", "/no/such/"))
    assert code == 3
    assert "directory above" in line
    code, line = refuse(volume, volume.url.replace(":%d/" % server.port, ":1/"))
    assert code == 3
    assert "refused" in line


def uploads(volume):
    return [n for n in os.listdir(volume.store) if n.startswith(".tmp-")]


def test_a_server_that_dies_in_mid_upload_and_returns_loses_nothing(volume, server, tmp_path):
    volume.mount(settle="1h")
    files = {"a": save(volume, "a", 1 << 20)}
    volume.wait_durable()
    files["b"] = save(volume, "b", 96 << 20)
    volume.seal()
    wait_until(lambda: uploads(volume), "an upload")
    server.kill_all()
    try:
        run(BIN, "wait", "--timeout", "1ms", volume.path, check=False)
        files["c"] = save(volume, "c", 1 << 20)
        volume.seal()
        wait_until(lambda: "error" in str(volume.status().get("upload")), "status to tell of the failure")
        assert volume.status()["upload"]["pending_epochs"] > 0
    finally:
        server.run_daemon()
    volume.wait_durable()
    volume.unmount()
    run(BIN, "fsck", "--read-data", volume.url, timeout=120)
    run(BIN, "export", volume.url, tmp_path / "restored", timeout=120)
    check_files(tmp_path / "restored", files)


def test_what_killed_uploads_left_is_removed_after_an_hour(volume):
    for name, age in ((".tmp-old", 7200), (".tmp-new", 60), ("other-old", 7200)):
        (volume.store / name).write_bytes(b"x")
        os.utime(volume.store / name, (time.time() - age,) * 2)
    os.mkdir(volume.store / ".tmp-dir")
    (volume.store / "other-old").unlink()
    volume.mount()
    volume.unmount()
    assert sorted(uploads(volume)) == [".tmp-dir", ".tmp-new"]


def test_modes_are_those_of_the_root(volume):
    volume.store.chmod(0o750)
    volume.mount()
    save(volume, "a", 1 << 20)
    volume.wait_durable()
    volume.unmount()
    for folder, _, names in os.walk(volume.store):
        assert os.stat(folder).st_mode & 0o777 == 0o750
        for name in names:
            assert os.stat(os.path.join(folder, name)).st_mode & 0o777 == 0o640
