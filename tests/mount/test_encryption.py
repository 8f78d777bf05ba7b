# SPDX-License-Identifier: Apache-2.0
"""Encrypted volumes: nothing readable in the remote, everything works with a key, and nothing without it."""

import hashlib
import json
import os
import random
import shutil
import subprocess

import pytest

from conftest import BIN, LIMIT, MountError, run, wait_until

DONE, FAILED, USAGE, DENIED, NOT_FOUND, DAMAGED, CONFLICT = 0, 1, 2, 4, 5, 6, 8
MIB = 1 << 20
MARK = "a-word-that-stands-nowhere-else"


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of what lies in the remote."""
    return "auto"


@pytest.fixture
def secrets(tmp_path):
    """Files with secrets, by name; any other name is that of a new key file."""
    class Secrets(dict):
        def __missing__(self, name):
            self[name] = tmp_path / name
            self[name].write_bytes(os.urandom(32))
            self[name].chmod(0o600)
            return self[name]

    made = Secrets()
    for name, text in {"passphrase": "correct horse\nbattery staple\n", "wrong": "correct house\n"}.items():
        made[name] = tmp_path / name
        made[name].write_text(text)
        made[name].chmod(0o600)
    return made


@pytest.fixture
def mnt(make_volume, secrets):
    """Mounted, encrypted with the key file `key`."""
    return make_volume(settle="1h", key_file=secrets["key"]).mount()


def command(*words, code=DONE, key=None, passphrase=None):
    options = ["--key-file", key] if key else ["--passphrase-file", passphrase] if passphrase else []
    done = run(BIN, *words, *options, check=False)
    assert done.returncode == code, done
    return done.stdout if code == DONE else done.stderr


def parsed(*words, **how):
    return json.loads(command(*words, "--json", **how))


def stored(volume):
    return {p.relative_to(volume.remote): p.read_bytes() for p in volume.remote.rglob("*") if p.is_file()}


def save(volume, **files):
    for name, data in files.items():
        (volume.path / name).write_bytes(data)
    number = volume.seal()
    volume.wait_durable()
    return number


def noise(size, seed):
    return random.Random(seed).randbytes(size)


def test_nothing_readable_is_in_the_remote(mnt):
    weights = noise(200_000, 1)
    text = (MARK + "\n").encode() * 5000
    (mnt.path / ("directory-" + MARK)).mkdir()
    save(mnt, **{"file-%s.txt" % MARK: text, "weights.bin": weights, "small-" + MARK: MARK.encode()})
    run(BIN, "tag", mnt.path, "1", "best")
    os.symlink(MARK, mnt.path / "link")
    run(BIN, "commit", mnt.path, "-m", MARK)
    mnt.wait_durable()
    run(BIN, "wait", mnt.path)
    mnt.unmount()
    objects = stored(mnt)
    plain = hashlib.sha256(weights).hexdigest()
    assert {str(k).split("/", maxsplit=1)[0] for k in objects} >= {"epochfs.json", "keys", "epochs", "packs", "index", "tags", "lease"}
    for key, data in objects.items():
        assert MARK.encode() not in data and MARK not in str(key), key
        assert weights[:64] not in data and weights[-64:] not in data, key
        assert plain not in str(key) and plain.encode() not in data and bytes.fromhex(plain) not in data, key
        if key.parts[0] not in ("epochfs.json", "keys"):
            assert b"epoch" not in data and b"EFP" not in data[:4], key


def test_a_cold_machine_with_the_passphrase_has_it_all(make_volume, secrets):
    mnt = make_volume(settle="1h", passphrase_file=secrets["passphrase"]).mount()
    model = noise(3 * MIB, 2)
    save(mnt, model=model, small=b"few bytes")
    save(mnt, model=model[:MIB] + b"changed" + model[MIB:])
    mnt.remount(empty_cache=True)
    assert (mnt.path / "model").read_bytes() == model[:MIB] + b"changed" + model[MIB:]
    assert (mnt.epoch(1) / "model").read_bytes() == model
    assert (mnt.path / "small").read_bytes() == b"few bytes"
    mnt.unmount()
    with pytest.raises(MountError) as refused:
        mnt.mount(passphrase_file=secrets["wrong"])
    assert refused.value.code == DENIED and "does not open" in refused.value.output
    assert "correct" not in refused.value.output
    assert (mnt.log.read_text() + str(stored(mnt))).find("correct horse") < 0


def test_a_key_that_lacks_or_is_too_much_is_refused(mnt, make_volume, secrets):
    save(mnt, a=b"a" * 10000)
    mnt.unmount()
    for options, words in (({"key_file": None}, "is encrypted: give -o passphrase-file="),
                           ({"key_file": secrets["another"]}, "does not open"),
                           ({"key_file": None, "passphrase_file": secrets["passphrase"]}, "none of its keys is a passphrase")):
        with pytest.raises(MountError) as refused:
            mnt.mount(**options)
        assert refused.value.code == DENIED and words in refused.value.output
    for words in (["log"], ["fsck"], ["export"], ["gc"], ["verify"], ["status"], ["tag"]):
        more = [mnt.base / "out"] if words == ["export"] else []
        assert "is encrypted" in command(*words, mnt.url, *more, code=DENIED)
    plain = make_volume(settle="1h").mount()
    save(plain, a=b"a" * 10000)
    plain.unmount()
    with pytest.raises(MountError) as refused:
        plain.mount(key_file=secrets["key"])
    assert refused.value.code == DENIED and "is not encrypted" in refused.value.output
    assert "is not encrypted" in command("log", plain.url, key=secrets["key"], code=DENIED)


def test_files_that_are_no_secret_are_refused(volume, secrets, tmp_path):
    short, empty = tmp_path / "short", tmp_path / "empty"
    short.write_bytes(b"x" * 31)
    empty.write_bytes(b"\nsecond line\n")
    for options, code in (({"key_file": short}, USAGE), ({"passphrase_file": empty}, USAGE),
                          ({"key_file": tmp_path / "absent"}, NOT_FOUND), ({"key_file": "relative"}, USAGE)):
        with pytest.raises(MountError) as refused:
            volume.mount(**options)
        assert refused.value.code == code
    assert not stored(volume)
    os.chmod(secrets["key"], 0o644)
    volume.mount(key_file=secrets["key"])
    assert "chmod 600" in volume.log.read_text()


def test_what_is_there_is_not_stored_again(mnt):
    model = noise(4 * MIB, 3)
    save(mnt, one=model)
    before = sum(len(d) for d in stored(mnt).values())
    save(mnt, two=model)
    added = sum(len(d) for d in stored(mnt).values()) - before
    assert added < 64 << 10
    # Also by another machine.
    mnt.remount(empty_cache=True)
    before = sum(len(d) for d in stored(mnt).values())
    save(mnt, three=model)
    assert sum(len(d) for d in stored(mnt).values()) - before < 64 << 10


def test_keys_come_and_go(mnt, secrets, make_volume):
    first = parsed("key", "list", mnt.url)
    assert [k["kind"] for k in first] == ["key-file"] and first[0]["created_ns"] > 0
    added = parsed("key", "add", mnt.url, "--new-passphrase-file", secrets["passphrase"], key=secrets["key"])["added"]
    assert [k["id"] for k in parsed("key", "list", mnt.url)] == [first[0]["id"], added]
    assert added in command("key", "list", mnt.url)
    # By a mount, the key that it has counts.
    command("key", "add", mnt.path, "--new-key-file", secrets["third"])
    save(mnt, a=b"a" * 100_000)
    mnt.unmount()
    assert "000001" in command("log", mnt.url, passphrase=secrets["passphrase"])
    # Not the one that was given, not one that is not there, not without a key.
    assert "is the one that was given" in command("key", "remove", mnt.url, added, passphrase=secrets["passphrase"], code=CONFLICT)
    command("key", "remove", mnt.url, "0123456789abcdef", key=secrets["key"], code=NOT_FOUND)
    command("key", "remove", mnt.url, "../epochfs.json", key=secrets["key"], code=NOT_FOUND)
    command("key", "remove", mnt.url, added, code=DENIED)
    command("key", "remove", mnt.url, first[0]["id"], passphrase=secrets["passphrase"])
    command("log", mnt.url, key=secrets["key"], code=DENIED)
    third = [k["id"] for k in parsed("key", "list", mnt.url) if k["id"] != added]
    command("key", "remove", mnt.url, third[0], passphrase=secrets["passphrase"])
    assert "it is the last" in command("key", "remove", mnt.url, added, passphrase=secrets["passphrase"], code=CONFLICT)
    mnt.mount(key_file=None, passphrase_file=secrets["passphrase"])
    assert (mnt.path / "a").read_bytes() == b"a" * 100_000
    plain = make_volume(settle="1h").mount()
    assert "is not encrypted" in command("key", "list", plain.url, code=USAGE)
    command("key", "add", mnt.url, key=secrets["key"], code=USAGE)
    command("key", "polish", mnt.url, code=USAGE)


def test_commands_on_the_remote_take_the_key(mnt, secrets, tmp_path, monkeypatch):
    model = noise(2 * MIB, 4)
    first = save(mnt, model=model, other=noise(MIB, 5))
    save(mnt, model=model, other=noise(MIB, 6))
    os.rmdir(mnt.epoch(first))
    run(BIN, "wait", mnt.path)
    assert parsed("status", mnt.path)["encrypted"] is True
    run(BIN, "export", mnt.path, tmp_path / "by-mount")
    assert (tmp_path / "by-mount" / "model").read_bytes() == model
    mnt.unmount()
    monkeypatch.setenv("EPOCHFS_KEY_FILE", os.fspath(secrets["key"]))
    command("gc", "--grace", "0", mnt.url)
    report = json.loads(command("fsck", "--json", "--read-data", mnt.url))
    assert report["epochs"] == 1 and not report["problems"] and report["foreign"] == 0
    command("verify", mnt.url)
    command("tag", mnt.url, "2", "best")
    assert parsed("tag", mnt.url) == {"best": 2}
    source = tmp_path / "source"
    source.mkdir()
    (source / "model").write_bytes(model)
    (source / "more").write_bytes(b"more" * 5000)
    command("import", "-o", "cache-dir=%s" % (tmp_path / "import-cache"), source, mnt.url)
    command("export", mnt.url + "@latest", tmp_path / "out")
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == {p.name: p.read_bytes() for p in source.iterdir()}
    command("export", "--force", mnt.url + "@best", tmp_path / "out")
    assert (tmp_path / "out" / "model").read_bytes() == model
    command("check", mnt.url)
    command("fsck", "--read-data", mnt.url)


@pytest.mark.parametrize("way", ["import", "watch"])
def test_a_key_on_the_command_line_makes_an_encrypted_volume(tmp_path, secrets, way):
    """Not only one in the environment, or as -o key-file."""
    source, remote = tmp_path / "source", tmp_path / "remote"
    source.mkdir()
    (source / "model").write_bytes(b"secret" * 1000)
    cache = ("-o", "min-free=0", "-o", "cache-dir=%s" % (tmp_path / "cache"))
    options = (way, *cache, "--key-file", secrets["key"].name, source, remote)
    if way == "import":
        run(BIN, *options, cwd=secrets["key"].parent)
    else:
        watch = subprocess.Popen([BIN, *map(os.fspath, options)], cwd=secrets["key"].parent)
        wait_until(lambda: list(remote.glob("epochs/*")), "the epoch")
        watch.terminate()
        assert watch.wait(timeout=LIMIT) == 0
    assert "encryption" in json.loads((remote / "epochfs.json").read_text())
    assert (tmp_path / "cache").exists()
    done = run(BIN, "log", remote, check=False)
    # As this command takes it.
    assert done.returncode == 4 and "encrypted" in done.stderr and "--key-file" in done.stderr and "-o " not in done.stderr, done
    run(BIN, "export", "--key-file", secrets["key"], remote, tmp_path / "out")
    assert (tmp_path / "out" / "model").read_bytes() == b"secret" * 1000


def test_readers_follow(mnt, make_volume, secrets):
    save(mnt, a=b"first" * 2000)
    reader = make_volume(key_file=secrets["key"], ro=True, refresh="100ms")
    reader.url = mnt.url
    reader.mount()
    assert (reader.path / "a").read_bytes() == b"first" * 2000
    save(mnt, a=b"second" * 2000)
    wait_until(lambda: (reader.path / "a").read_bytes() == b"second" * 2000, "the reader to follow")


def test_what_somebody_changed_is_damage(mnt, secrets):
    """Objects swapped, cut, forged and put back: never taken for true."""
    save(mnt, a=noise(MIB, 7))
    save(mnt, a=noise(MIB, 8))
    mnt.unmount()
    key, records = secrets["key"], sorted((mnt.remote / "epochs").iterdir())
    good = [r.read_bytes() for r in records]
    records[1].write_bytes(good[0])
    assert "epochs/00000000000000000002.json" in run(BIN, "fsck", "--key-file", key, mnt.url, check=False).stdout
    command("fsck", mnt.url, key=key, code=DAMAGED)
    records[1].write_bytes(good[1])
    command("fsck", "--read-data", mnt.url, key=key)
    pack = next((mnt.remote / "packs").glob("*/*"))
    data = bytearray(pack.read_bytes())
    data[100_000] ^= 1
    pack.write_bytes(data)
    command("fsck", "--read-data", mnt.url, key=key, code=DAMAGED)
    data[100_000] ^= 1
    pack.write_bytes(data)
    slot = next((mnt.remote / "keys").iterdir())
    (mnt.remote / "keys" / "0123456789abcdef.json").write_bytes(slot.read_bytes()[:100])
    assert "keys/0123456789abcdef.json" in run(BIN, "fsck", "--key-file", key, mnt.url, check=False).stdout
    command("key", "remove", mnt.url, "0123456789abcdef", key=key)
    info = mnt.remote / "epochfs.json"
    text = info.read_text()
    info.write_text(text.replace("262144", "262152"))
    assert "changed" in command("log", mnt.url, key=key, code=DAMAGED)
    info.write_text(text.replace("hmac-sha256", "sha256").split(',\n  "encryption"')[0] + "\n}\n")
    assert "is not encrypted" in command("log", mnt.url, key=key, code=DENIED)
    info.write_text(text)
    command("fsck", "--read-data", mnt.url, key=key)


def test_a_remote_that_was_put_back_is_told(mnt):
    save(mnt, a=b"first" * 2000)
    shutil.copytree(mnt.remote, mnt.base / "earlier")
    save(mnt, a=b"second" * 2000)
    mnt.remount()
    assert "put back" not in mnt.log.read_text()
    mnt.unmount()
    shutil.rmtree(mnt.remote)
    shutil.copytree(mnt.base / "earlier", mnt.remote)
    mnt.mount()
    assert "epoch 2 was in" in mnt.log.read_text() and "the last there is 1" in mnt.log.read_text()
    assert (mnt.path / "a").read_bytes() == b"second" * 2000


def test_a_key_whose_trial_would_take_a_terabyte_is_not_tried(make_volume, secrets):
    mnt = make_volume(settle="1h", passphrase_file=secrets["passphrase"]).mount()
    save(mnt, a=b"a" * 10000)
    mnt.unmount()
    slot = next((mnt.remote / "keys").iterdir())
    text = slot.read_text()
    assert '"n": 131072' in text
    for n in ("2147483648", "131073", "524288"):
        slot.write_text(text.replace('"n": 131072', '"n": ' + n))
        assert "none of its keys" in command("log", mnt.url, passphrase=secrets["passphrase"], code=DENIED)
    slot.write_text(text.replace('"n": 131072', '"n": 16'))
    assert "does not open" in command("log", mnt.url, passphrase=secrets["passphrase"], code=DENIED)
    slot.write_text(text)
    command("log", mnt.url, passphrase=secrets["passphrase"])


def test_keys_of_another_volume_open_nothing(mnt, make_volume, secrets):
    """Both have the same key file, and an attacker swaps what it wraps."""
    other = make_volume(settle="1h", key_file=secrets["key"]).mount()
    save(mnt, a=b"a" * 10000)
    save(other, a=b"b" * 10000)
    mnt.unmount()
    other.unmount()
    shutil.rmtree(mnt.remote / "keys")
    shutil.copytree(other.remote / "keys", mnt.remote / "keys")
    assert "does not open" in command("log", mnt.url, key=secrets["key"], code=DENIED)
