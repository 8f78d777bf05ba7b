# SPDX-License-Identifier: Apache-2.0
"""Where options come from: long ones, the configuration files, the environment; and what epochfs config says of it."""

import json
import os

import pytest

from conftest import ALONE, BIN, OWN_MOUNTS, need_root, run, wait_until
from test_command import USAGE, epochfs


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of the command."""
    return "auto"


@pytest.fixture
def config(tmp_path, monkeypatch):
    """Writes the user's file, and gives its path."""
    path = tmp_path / "config" / "epochfs" / "config"
    path.parent.mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def write(text):
        path.write_text(text)
        return path

    return write


def options(*arguments, **keywords):
    return json.loads(epochfs("config", "--json", *arguments, **keywords))["options"]


def given(*arguments, **keywords):
    return {name: (o["value"], o["from"]) for name, o in options(*arguments, **keywords).items() if o["from"] != "default"}


# ---- long options


def test_each_option_of_a_mount_is_a_long_one(volume):
    (volume.path / "before").write_text("1")
    run(BIN, "mount", "--cache-dir", volume.cache, "--settle=1h", "--resume", "--gc=off", "--temporary", "*.a", "--temporary=*.b", "--keep", "last:3,daily:2",
        "--nonempty", "-o", "patience=3s", volume.url, volume.path)
    try:
        assert given(volume.path) == {name: (value, "-o") for name, value in {
            "cache-dir": str(volume.cache), "settle": "1h", "resume": "", "gc": "off", "temporary": "*.a,*.b", "keep": "last:3,daily:2", "nonempty": "",
            "patience": "3s"}.items()}
        (volume.path / "model").write_text("1")
        (volume.path / "x.b").write_text("1")
        assert "on-epoch" not in options(volume.path)
    finally:
        epochfs("umount", volume.path)


def test_a_supervised_mount_keeps_its_long_options(volume, config):
    """Also those of the configuration that it was started with, when another process takes over."""
    path = config("settle = 1h\nmessage = \"of a, b\"\ntemporary = *.a\ngrace = 7s\n")
    run(BIN, "mount", "--cache-dir=%s" % volume.cache, "--supervise", "--grace", "9s", volume.url, volume.path)
    try:
        before = given(volume.path)
        assert before["settle"] == ("1h", "%s:1" % path) and before["grace"] == ("9s", "-o")
        config("settle = 0\ncache-dir = /nonexistent\n")
        pid = json.loads(epochfs("status", "--json", volume.path))["pid"]
        epochfs("restart", volume.path)
        wait_until(lambda: json.loads(epochfs("status", "--json", volume.path))["pid"] != pid, "the next process")
        assert {name: value for name, (value, _) in given(volume.path).items()} == {name: value for name, (value, _) in before.items()}
    finally:
        epochfs("umount", volume.path)


@pytest.mark.parametrize("words, said", [
    (["--settle=soon"], "option settle=soon: expected a time"), (["--ro=1"], "ro takes no value"), (["--settle"], "option --settle needs a value"),
    (["--setle=1s"], "did you mean `--settle`?"), (["--rw"], "unknown option --rw")])
def test_what_is_wrong_of_a_long_option(words, said, tmp_path):
    assert said in epochfs("mount", tmp_path, tmp_path, *words, code=USAGE)


def test_commands_that_take_no_options_take_no_long_ones(tmp_path):
    assert "unknown option --settle" in epochfs("log", "--settle=1s", tmp_path, code=USAGE)


def test_an_option_of_the_command_comes_first(tmp_path):
    """--step of import is a number, -o step a regular expression."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "model-7").write_text("1")
    epochfs("import", "--step", "5", "--cache-dir", tmp_path / "cache", "--node=n1", tmp_path / "d", tmp_path / "remote")
    (epoch,) = json.loads(epochfs("log", "--json", tmp_path / "remote"))
    assert epoch["step"] == 5 and epoch["host"] == "n1"


# ---- the files


def test_what_wins(config, monkeypatch, tmp_path):
    """The longest URL; the environment over the file; of one name in one place the last."""
    path = config('''# for all
settle = 1s
patience = 2s # said twice
patience = 3s
message = "a # in quotes, and a comma"
[remote "s3://bucket/runs/7"]
	settle = 7s
[remote "s3://bucket/runs/"]
	settle = 4s
	lease = 4s
[remote "/data"]
	settle = 9s
[remote "https://host.example/dav"]
	settle = 8s
''')

    def of(*arguments):
        return {name: value for name, (value, _) in given(*arguments).items() if name in ("settle", "lease")}

    assert given() == {"settle": ("1s", "%s:2" % path), "patience": ("3s", "%s:4" % path), "message": ("a # in quotes, and a comma", "%s:5" % path)}
    assert of("s3://bucket/runs/7?region=eu") == {"settle": "7s", "lease": "4s"}
    assert of("s3://bucket/runs/77") == {"settle": "4s", "lease": "4s"}
    assert of("s3://bucket/runs") == {"settle": "4s", "lease": "4s"}
    assert of("s3://bucket/runsmore") == of("s3://bucket") == {"settle": "1s"}
    assert of("/data/run7") == of("file:///data") == {"settle": "9s"}
    assert of("https://run:pAsS@host.example/dav/x") == {"settle": "8s"}
    monkeypatch.setenv("EPOCHFS_SETTLE", "6s")
    assert given("s3://bucket/runs/7")["settle"] == ("6s", "EPOCHFS_SETTLE")
    lines = epochfs("config", "s3://bucket/runs/7").splitlines()
    assert ["settle", "6s", "EPOCHFS_SETTLE"] in [line.split() for line in lines] and ["gc", "on", "default"] in [line.split() for line in lines]
    assert lines[-1] == "%s: read" % path
    # A directory by whatever name.
    (tmp_path / "there" / "run").mkdir(parents=True)
    config('[remote "%s"]\nsettle = 5s\n' % (tmp_path / "there"))
    monkeypatch.delenv("EPOCHFS_SETTLE")
    monkeypatch.chdir(tmp_path / "there")
    assert of("run") == of(tmp_path / "there" / ".." / "there" / "run") == {"settle": "5s"}


def test_a_mount_has_them(volume, config):
    path = config('cache-dir = %s\n[remote "%s"]\nsettle = 1h\ntemporary = *.a\n' % (volume.cache, volume.remote))
    run(BIN, "mount", "-o", "temporary=*.b", volume.url, volume.path)
    try:
        assert given(volume.path) == {"cache-dir": (str(volume.cache), "%s:1" % path), "settle": ("1h", "%s:3" % path), "temporary": ("*.a,*.b", "-o")}
        assert given(volume.path / ".") == given(volume.path) and os.listdir(volume.cache)
    finally:
        epochfs("umount", volume.path)


def test_commands_on_a_remote_have_the_key(config, tmp_path, monkeypatch):
    """Also in the order with what is given elsewhere."""
    (tmp_path / "d").mkdir()
    (tmp_path / "key").write_bytes(os.urandom(32))
    (tmp_path / "other").write_bytes(os.urandom(32))
    config('cache-dir = %s\n[remote "%s"]\nkey-file = %s\n' % (tmp_path / "cache", tmp_path / "remote", tmp_path / "key"))
    epochfs("import", tmp_path / "d", tmp_path / "remote")
    assert given(tmp_path / "remote", env={**os.environ, "EPOCHFS_PASSPHRASE_FILE": "/p"}).keys() == {"cache-dir", "passphrase-file"}
    for words in (["log"], ["status"], ["fsck"], ["gc"], ["key", "list"], ["verify"], ["doctor"]):
        epochfs(*words, tmp_path / "remote")
    epochfs("log", "--key-file", tmp_path / "other", tmp_path / "remote", code=4)
    config("")
    assert "encrypted" in epochfs("log", tmp_path / "remote", code=4)


@pytest.mark.parametrize("text, line, said", [
    ("settel = 3s", 1, "unknown option 'settel'"), ("\n\nsettle", 3, "not NAME = VALUE"), ("settle = x", 1, "settle = x: expected a time"),
    ('keep = "last:3', 1, "a quote too few"), ('keep = "last:3" more', 1, "a quote too few"), ("allow_other = on", 1, "is given with -o alone"),
    ("[remote]", 1, 'a section is [remote "URL"]'), ("[remote s3://b]", 1, 'a section is [remote "URL"]'), ('[mount "x"]', 1, 'a section is [remote "URL"]'),
    ('[remote "x"', 1, 'a section is [remote "URL"]'), ('#\n[remote "https://u:sEcReT@h/x"]', 2, "no password belongs in this file"),
    ("passphrase = sEcReT", 1, "no secret belongs in this file"), ("dav-password = sEcReT", 1, "no secret belongs in this file"),
    ('[remote "s3://other/x"]\nsettel = 3s', 2, "unknown option 'settel'")])
def test_what_is_wrong_is_told_with_its_line(config, tmp_path, text, line, said):
    path = config(text)
    # What a command on a remote does not need may hold what it likes; but each line is one.
    for words in (["config"], ["mount", tmp_path, tmp_path], ["log", "/nonexistent"])[:2 if "expected" in said else 3]:
        told = epochfs(*words, code=USAGE)
        assert "%s:%d: " % (path, line) in told and said in told and "sEcReT" not in told, told


def test_a_file_that_others_can_write_is_refused(config):
    path = config("settle = 3s")
    path.chmod(0o646)
    assert "chmod go-w" in epochfs("config", code=USAGE)
    path.chmod(0o644)
    assert "settle" in given()
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        assert "another user owns it" in epochfs("config", code=USAGE)


def test_the_file_of_the_machine(config, tmp_path):
    need_root("a /etc of its own")
    path = config("settle = 3s\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "epochfs.conf").write_text('settle = 2s\npatience = 2s\n[remote "/data"]\nsettle = 1s\n')
    script = "mount --bind %s /etc && exec %s config --json /data" % (tmp_path / "etc", BIN)
    told = json.loads(run(OWN_MOUNTS, ALONE, "sh", "-c", script).stdout)
    assert told["options"]["settle"] == {"value": "3s", "from": "%s:1" % path} and told["options"]["patience"] == {"value": "2s", "from": "/etc/epochfs.conf:2"}
    assert [f["there"] for f in told["files"]] == [True, True]


def test_a_target_that_is_none():
    epochfs("config", "nowhere/at/all", code=5)
