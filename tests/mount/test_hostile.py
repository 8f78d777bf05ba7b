# SPDX-License-Identifier: Apache-2.0
"""Remotes that an attacker wrote (crafted.py): whatever is in them, nothing is reached outside, memory and time are bounded, no right is
given away, and nothing is said to a terminal that it would obey."""

import json
import os
import pty
import re
import stat
import struct
import subprocess
import sys
import tempfile

import pytest

import crafted
from conftest import BIN, LIMIT, SLOWNESS, MountError, run
from crafted import BLOCK, CHAR, CHUNK, DIR, FIFO, LINK, ROOT, SYMLINK, Volume, entry, recipe, tree

DAMAGED = 6
NOBODY = 65534
# Of any command, and of the mount's process. A sanitizer's own comes on top.
MEMORY_MB = 2000 if os.environ.get("EPOCHFS_TEST_SAN") else 300
OBEYED_IN_JSON = re.compile("[\0-\x09\x0b-\x1f]")
OBEYED = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root is given rights")


# The kernel counts to a process what the one had that it was forked from: so a small one starts the command, and tells the end of it.
LAUNCHER = """
import os, subprocess, sys
_, status, usage = os.wait4(subprocess.Popen(sys.argv[2:]).pid, 0)
with open(sys.argv[1], "w") as file:
    print(os.waitstatus_to_exitcode(status), usage.ru_maxrss, file=file)
"""


def command(*arguments):
    """Runs the command: exit code and output. It ends by itself, in bounded memory, and prints nothing that a terminal would obey."""
    with tempfile.NamedTemporaryFile("r") as told:
        done = subprocess.run([sys.executable, "-c", LAUNCHER, told.name, BIN, *map(os.fspath, arguments)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        shown = done.stdout.decode(errors="replace")
        assert done.returncode == 0, shown
        code, memory_kib = map(int, told.read().split())
    assert code >= 0, (arguments, shown)
    # JSON for a program is JSON; on a terminal it is ASCII.
    assert not (OBEYED_IN_JSON if "--json" in arguments else OBEYED).search(shown), (arguments, shown)
    if SLOWNESS == 1:
        assert memory_kib < MEMORY_MB << 10, arguments
    return code, shown


def all_commands(volume, *codes):
    """All that reads a remote: each ends with 0, or one of these codes. The exit codes by name."""
    found = {}
    for words in (["log"], ["log", "--json"], ["show"], ["show", "--json"], ["diff", "1"], ["status"], ["tag"], ["verify"], ["fsck"],
                  ["fsck", "--read-data"], ["gc", "--dry-run"], ["export", volume.base / "out"]):
        flags = [w for w in words[1:] if str(w).startswith("-")]
        rest = [w for w in words[1:] if w not in flags]
        found[" ".join([words[0], *flags])] = command(words[0], *flags, volume.remote, *rest)[0]
    assert set(found.values()) <= {0, *codes}, found
    return found


def serves_again(volume):
    """An import goes on after whatever is there, and its epoch is whole."""
    source = volume.base / "source"
    source.mkdir()
    (source / "new").write_bytes(b"new" * 1000)
    code, shown = command("import", source, volume.remote, "-o", "cache-dir=%s" % (volume.base / "import-cache"))
    assert code == 0, shown
    number = re.search(r"epoch (\d+) imported", shown)[1]
    out = volume.base / "imported"
    assert command("export", "%s@%d" % (volume.remote, int(number)), out)[0] == 0
    assert sorted(os.listdir(out)) == ["new"] and (out / "new").read_bytes() == b"new" * 1000


def read_everything(top):
    """Each file's content, or its errno: no read hangs."""
    found = {}
    for folder, folders, files in os.walk(top):
        for name in files + folders:
            path = os.path.join(folder, name)
            os.lstat(path)
            if not stat.S_ISREG(os.lstat(path).st_mode):
                continue
            try:
                with open(path, "rb") as f:
                    found[name] = f.read(1 << 20)
            except OSError as error:
                found[name] = error.errno
    return found


def bounded(volume):
    """The mount's process has stayed within its memory."""
    if SLOWNESS == 1:
        with open("/proc/%d/status" % volume.pid, encoding="ascii") as f:
            peak = int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1])
        assert peak < MEMORY_MB << 10


@pytest.fixture
def once(passthrough):
    if passthrough == "off":
        pytest.skip("the command does not mount")


@pytest.fixture
def outside(volume):
    """What lies beside the volume stays as it is."""
    folder = volume.base / "outside"
    folder.mkdir()
    (folder / "victim").write_text("safe")
    before = set(os.listdir(volume.base.parent))
    yield folder
    assert os.listdir(folder) == ["victim"] and (folder / "victim").read_text() == "safe"
    assert set(os.listdir(volume.base.parent)) == before
    assert not os.path.exists("/escaped-from-epochfs")


# ---- names


BAD_TREES = {
    "dotdot": [entry(1, b"..", data=b"x")],
    "dot": [entry(1, b".", data=b"x")],
    "slash": [entry(1, b"../escaped", data=b"x")],
    "absolute": [entry(1, b"/escaped-from-epochfs", data=b"x")],
    "nul": [entry(1, b"a\0b", data=b"x")],
    "empty": [entry(1, b"", data=b"x")],
    "long": [entry(1, b"x" * 256, data=b"x")],
    "deep": [entry(1, b"d", DIR), entry(3, b"x", data=b"x")],
    "below-a-file": [entry(1, b"f", data=b"x"), entry(2, b"x", data=b"x")],
    "twice": [entry(1, b"f", data=b"x"), entry(1, b"f", data=b"y")],
    "not-sorted": [entry(1, b"b", data=b"x"), entry(1, b"a", data=b"y")],
    "second-root": [ROOT],
    "link-to-nothing": [entry(1, b"a", LINK, group=7)],
    "linked-directory": [entry(1, b"a", DIR, group=1), entry(1, b"b", LINK, group=1)],
    "mode": [entry(1, b"a", mode=0o170000)],
    "attributes": [entry(1, b"a", raw_attributes=b"\4user")],
    "attribute-too-large": [entry(1, b"a", attributes={b"user.a": bytes(65537)})],
    "attributes-too-large": [entry(1, b"a", attributes={b"user.%03d" % i: bytes(65536) for i in range(17)})],
    "target-too-long": [entry(1, b"a", SYMLINK, target=b"x" * 5000)],
    "local": [bytes([2, 1]) + b"\1a\0" + bytes(12) + b"\3\1\1"],
}


def test_trees_that_are_none(volume, outside, once):
    v = Volume(volume.remote)
    v.epoch(1, [entry(1, b"good", data=b"good")])
    for number, bad in enumerate(BAD_TREES.values(), 2):
        v.epoch(number, bad)
    v.epoch(len(BAD_TREES) + 2, [], raw=tree([ROOT], count=2**32 - 1))
    v.save()
    found = all_commands(volume, DAMAGED)
    assert found["show"] == found["verify"] == found["fsck"] == found["export"] == DAMAGED
    assert not os.path.exists(volume.base / "out")
    for number, name in enumerate(BAD_TREES, 2):
        out = volume.base / ("out-" + name)
        assert command("export", "%s@%d" % (volume.remote, number), out)[0] == DAMAGED, name
        assert not os.path.exists(out), name
    assert command("export", "%s@1" % volume.remote, volume.base / "first")[0] == 0
    assert os.listdir(volume.base / "first") == ["good"]
    for options in ({}, {"ro": True}):
        with pytest.raises(MountError) as refused:
            volume.mount(**options)
        assert refused.value.code == DAMAGED
    serves_again(volume)


def test_trees_that_are_none_beside_one_that_is(volume, outside):
    v = Volume(volume.remote)
    for number, bad in enumerate(BAD_TREES.values(), 1):
        v.epoch(number, bad)
    good = len(BAD_TREES) + 1
    v.epoch(good, [entry(1, b"good", data=b"good")])
    v.save()
    volume.mount()
    assert os.listdir(volume.path) == ["good"]
    for number, name in enumerate(BAD_TREES, 1):
        with pytest.raises(OSError):
            os.listdir(volume.epoch(number))
    with pytest.raises(OSError):
        os.symlink("1", volume.epochs_dir / "current.tmp")
        os.rename(volume.epochs_dir / "current.tmp", volume.epochs_dir / "current")
    assert os.listdir(volume.path) == ["good"]
    bounded(volume)


def test_symlinks_lead_out_only_who_follows_them(volume, outside, once):
    v = Volume(volume.remote)
    v.epoch(1, [entry(1, b"d", SYMLINK, mode=0o777, target=os.fsencode(outside)),
                entry(1, b"f", SYMLINK, mode=0o777, target=os.fsencode(outside / "victim")),
                entry(1, b"up", SYMLINK, mode=0o777, target=b"../" * 50 + b"escaped-from-epochfs")])
    v.epoch(2, [entry(1, b"d", DIR, mode=0o755), entry(2, b"victim", data=b"evil"), entry(1, b"f", data=b"evil"),
                entry(1, b"up", DIR, mode=0o755), entry(2, b"escaped", data=b"evil")])
    v.save()
    out = volume.base / "out"
    assert command("export", "%s@1" % volume.remote, out)[0] == 0
    code, _ = command("export", "--force", "%s@2" % volume.remote, out)
    assert code != 0  # no directory takes a symlink's place
    assert os.path.islink(out / "d") and (out / "f").read_text() == "evil" and not os.path.islink(out / "f")


# ---- sizes


def bombs(volume):
    v = Volume(volume.remote)
    pattern = v.run(b"ab")
    itself = b"\7" * 32  # a chunk's hash is what the attacker says, until it is read
    listed = recipe([(100, itself)], level=1)
    v.chunk(itself, stored=listed, plain_len=len(listed))
    level1 = v.content([(len(listed), itself)], level=1)
    nested = v.content([(60, level1)], level=1)
    short = v.content([(50, v.chunk(b"x" * 50))], size=2**63 - 1)
    expands = v.chunk(b"\1" * 32, stored=b"\x1fa\1\0" + b"\xff" * 4000 + b"\0", codec=1, plain_len=1000)
    cut = v.chunk(b"\2" * 32, stored=b"\x1fa\1\0" + b"\xff" * 40 + b"\0", codec=1, plain_len=CHUNK)
    v.epoch(1, [
        entry(1, b"cut", recipe=v.content([(CHUNK, cut)]), size=CHUNK),
        entry(1, b"expands", recipe=v.content([(1000, expands)]), size=1000),
        entry(1, b"hole", recipe=v.content([(2**63 - 1, None)]), size=2**63 - 1),
        entry(1, b"level1", recipe=level1, size=100),
        entry(1, b"many", recipe=v.content([(CHUNK, pattern)] * 30), size=30 * CHUNK),
        entry(1, b"missing", recipe=b"\3" * 32, size=10),
        entry(1, b"nested", recipe=nested, size=100),
        entry(1, b"other-size", recipe=v.content([(CHUNK, pattern)]), size=CHUNK - 1),
        entry(1, b"self", recipe=itself, size=100),
        entry(1, b"short", recipe=short, size=2**63 - 1),
        entry(1, b"sparse", recipe=v.content([(2**62, None), (CHUNK, pattern), (2**62 - 1 - CHUNK, None)]), size=2**63 - 1),
    ])
    v.save()
    return {"cut", "expands", "level1", "missing", "nested", "other-size", "self", "short"}


def test_contents_that_are_bombs(volume, outside, once):
    bad = bombs(volume)
    found = all_commands(volume, DAMAGED, 1)
    assert found["verify"] == DAMAGED and found["fsck --read-data"] == DAMAGED
    shown = command("verify", volume.remote)[1]
    assert {line.split(":")[0] for line in shown.splitlines() if ": its data" in line} == bad, shown
    # A file of 8 EiB is no file system's here, which is that file's failure alone.
    restored = set(os.listdir(volume.base / "out"))
    assert restored >= {"many"} and not restored & bad
    serves_again(volume)


@pytest.mark.parametrize("how", ["rw", "ro"])
def test_contents_that_are_bombs_on_a_mount(volume, outside, how):
    bad = bombs(volume)
    volume.mount(**({"ro": True} if how == "ro" else {}))
    found = read_everything(volume.path)
    assert {name for name, content in found.items() if isinstance(content, int)} >= bad
    assert found["many"] == b"ab" * (1 << 19)
    for name in bad:
        assert os.lstat(volume.path / name).st_size > 0
    bounded(volume)
    assert run(BIN, "umount", "--no-drain", volume.path).returncode == 0
    volume.wait_end()


def test_lengths_that_nothing_has(volume, outside, once):
    """An index and a record that claim chunks of 4 GiB and trees of 2 GiB are damaged; no memory is taken for them."""
    v = Volume(volume.remote)
    v.epoch(1, [entry(1, b"a", data=b"a")])
    v.epoch(2, [], chunks=[(v.run(b"EFT\1\0\0"), CHUNK)] * 400)
    v.epoch(3, [], chunks=[(v.run(b"EFT\1\0\0"), CHUNK)] * 600)
    v.epoch(4, [], chunks=[(v.chunk(b"EFT"), 3)], tree_size=2**63 - 1)
    v.save()
    index = b"EFI\1" + crafted.varint(2**60) + bytes(32) + crafted.varint(2**60) + bytes(32) + b"\0" + crafted.varint(2**32 - 1) * 2
    index += struct.pack("<I", crafted.crc32c(index))
    v.put("index/%020d-%s" % (1, crafted.sha256(index).hex()), index)
    for number in (2, 3, 4):
        process = subprocess.run([BIN, "export", "%s@%d" % (volume.remote, number), volume.base / "out"], capture_output=True,
                                 check=False, timeout=LIMIT)
        assert process.returncode in (DAMAGED, 5), process
    assert command("export", "%s@1" % volume.remote, volume.base / "one")[0] == 0


def test_a_tree_that_repeats_one_chunk(volume, outside):
    """300,000 entries from 2 MiB: 60 bytes of memory each, and no more."""
    v = Volume(volume.remote)
    v.epoch(1, [], **crafted.many_entries(v, 6, 50000))
    v.save()
    volume.mount()
    assert len(os.listdir(volume.path)) == 6 and len(os.listdir(volume.path / "0000005")) == 50000
    bounded(volume)
    code, shown = command("verify", volume.remote)
    assert code == 0 and "300000 files" in shown


# ---- rights


FLAGS = stat.S_ISUID | stat.S_ISGID
CAPABILITY = struct.pack("<5I", 0x02000001, 0x3FFFFFFF, 0, 0, 0)


def privileged(volume):
    v = Volume(volume.remote)
    attributes = {b"security.capability": CAPABILITY, b"trusted.overlay.opaque": b"y", b"user.note": b"kept"}
    v.epoch(1, [
        entry(1, b"block", BLOCK, mode=0o666, device=(8, 0)),
        entry(1, b"capable", mode=0o755, attributes=attributes, data=b"#!/bin/true\n"),
        entry(1, b"fifo", FIFO, mode=0o6666),
        entry(1, b"linked", CHAR, mode=0o666, group=1, device=(1, 5)),
        entry(1, b"linked-again", LINK, group=1),
        entry(1, b"nobody", mode=0o6777, uid=2**32 - 1, gid=2**32 - 1, data=b"#!/bin/true\n"),
        entry(1, b"setuid", mode=0o6755, uid=0, gid=0, data=b"#!/bin/true\n"),
        entry(1, b"sticky", DIR, mode=0o7777),
        entry(1, b"zero", CHAR, mode=0o666, device=(1, 5)),
    ])
    v.save()


def flags_of(path):
    """Of the mount: what the kernel obeys."""
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return next(line.split()[5].split(",") for line in f if line.split()[4] == os.fspath(path))


def test_a_mount_gives_no_rights(volume, outside):
    privileged(volume)
    volume.mount()
    assert {"nosuid", "nodev"} <= set(flags_of(volume.path))
    for name in ("zero", "block", "linked", "linked-again"):
        with pytest.raises(PermissionError):
            os.close(os.open(volume.path / name, os.O_RDONLY))
    assert os.getxattr(volume.path / "capable", "user.note") == b"kept"
    read_everything(volume.path / "sticky")
    bounded(volume)


@root_only
def test_root_may_take_setuid_and_devices_on_a_mount(volume, outside):
    privileged(volume)
    volume.mount(suid=True, dev=True)
    assert not {"nosuid", "nodev"} & set(flags_of(volume.path))
    with open(volume.path / "zero", "rb") as f:
        assert f.read(4) == bytes(4)
    volume.remount(suid=True, dev=True, nosuid=True)
    assert "nosuid" in flags_of(volume.path) and "nodev" not in flags_of(volume.path)


@root_only
def test_an_export_gives_no_rights(volume, outside, once):
    privileged(volume)
    out = volume.base / "out"
    code, shown = command("export", volume.remote, out)
    assert code == 0 and "7 entries came without" in shown, shown
    assert sorted(os.listdir(out)) == ["capable", "fifo", "nobody", "setuid", "sticky"]
    for name in ("capable", "nobody", "setuid"):
        assert not os.lstat(out / name).st_mode & FLAGS, name
    assert [n for n in os.listxattr(out / "capable") if not n.startswith("user.")] == []
    asked = volume.base / "asked"
    assert command("export", "--privileged", volume.remote, asked)[0] == 0
    assert os.lstat(asked / "setuid").st_mode & FLAGS == FLAGS
    assert stat.S_ISCHR(os.lstat(asked / "zero").st_mode)
    assert os.lstat(asked / "linked").st_ino == os.lstat(asked / "linked-again").st_ino
    # An owner that nobody can be is no reason to leave the file to root with its owner's rights.
    assert not os.lstat(asked / "nobody").st_mode & FLAGS


@root_only
def test_an_export_into_what_others_prepared_changes_no_file_of_theirs(volume, outside, once):
    """A name in the directory that is a link to somebody's file, with the content that the epoch has."""
    v = Volume(volume.remote)
    v.epoch(1, [entry(1, b"one", uid=NOBODY, gid=NOBODY, mode=0o666, group=1, data=b"safe"), entry(1, b"two", LINK, group=1)])
    v.save()
    out = volume.base / "out"
    out.mkdir()
    os.link(outside / "victim", out / "one")
    before = os.stat(outside / "victim")
    assert command("export", "--force", volume.remote, out)[0] == 0
    after = os.stat(outside / "victim")
    assert (after.st_uid, after.st_mode, after.st_nlink) == (before.st_uid, before.st_mode, 1)
    assert os.stat(out / "one").st_uid == NOBODY and os.stat(out / "one").st_ino == os.stat(out / "two").st_ino != before.st_ino


# ---- records, tags, leases: what is printed


EVIL = "\x1b]0;owned\x07\x1b[2J\r\n\x7f\u009b2J\u202eevil"


def test_what_is_said_is_not_obeyed(volume, outside):
    v = Volume(volume.remote)
    wild = dict(step=2**63 - 1, step_name=EVIL, message=EVIL, host=EVIL, user=EVIL, run_id=EVIL, reason=EVIL, complete="unknown", files=2**63 - 1,
                bytes=2**63 - 1, bytes_new=2**63 - 1, bytes_stored=2**63 - 1, save_ns=2**63 - 1, added=2**63 - 1, missing=[EVIL], conflicts=[EVIL],
                node_names=[EVIL], db_type=EVIL, path_prefix=EVIL, sealed="2262-04-11T23:47:15Z", opened="1970-01-01T00:00:00Z")
    name = EVIL.encode()
    v.epoch(1, [entry(1, name, data=b"x", mtime=-2**63), entry(1, name + b"d", DIR, mtime=2**63 - 1),
                entry(1, name + b"l", SYMLINK, mode=0o777, target=name)], **wild)
    v.epoch(2, [entry(1, name, data=b"y")], parent=1, continues=2**63 - 1, restores=2**63 - 1, **{**wild, "complete": True})
    for number, bad in enumerate([{"step": -1}, {"epoch": 4}, {"epoch": 2**64}, {"files": 1.5}, {"complete": "maybe"}, {"message": 7}, {"volume": "../x"},
                                  {"sealed": "9999-12-31T23:59:59Z"}, {"packs": ["../../etc"]}, {"indexes": ["../../etc/passwd"]}], 5):
        v.epoch(number, [entry(1, b"x", data=b"x")], **bad)
    v.save()
    v.put("tags/to-nowhere", "77\n")
    v.put("tags/evil" + "".join("_%02x" % c for c in EVIL.encode()), "2\n")
    v.put("tags/huge", "9" * 30 + "\n")
    v.put("lease/%020d.json" % 3, json.dumps({
        "format": 1, "generation": 3, "holder": crafted.UUID, "host": EVIL, "node": EVIL, "mountpoint": EVIL, "boot_id": crafted.UUID, "pid": 1,
        "pid_started": 1, "pid_namespace": 1, "since": "2026-11-22T10:00:00Z", "renewed": 1, "ttl_ms": 1000, "released": False, "pending": 2**63 - 1}))
    all_commands(volume, DAMAGED, 5)
    for words in (["show", volume.remote, "1"], ["show", volume.remote, "2"], ["diff", volume.remote, "1", "2"], ["verify", volume.remote, "1"],
                  ["prune", "--dry-run", "--keep", "last:1", volume.remote], ["export", "%s@2" % volume.remote, volume.base / "two"],
                  ["tag", volume.remote, "2", EVIL], ["show", volume.remote, EVIL], ["latest", volume.remote], ["rm", volume.remote, "77"]):
        command(*words)
    volume.mount(ro=True, epoch=2)
    for words in (["log"], ["show"], ["show", "1"], ["diff", "1", "2"], ["status"], ["tag"], ["latest"]):
        code, _ = command(words[0], volume.path, *words[1:])
        assert code in (0, 5, 6, 8), words
    read_everything(volume.path)
    assert not OBEYED.search(volume.log.read_text(errors="replace"))
    bounded(volume)


def test_json_on_a_terminal_is_ascii(volume, once):
    v = Volume(volume.remote)
    v.epoch(1, [entry(1, EVIL.encode(), data=b"x")], message=EVIL)
    v.save()
    for words in (["log", "--json"], ["show", "--json"], ["show"]):
        ours, its = pty.openpty()
        process = subprocess.Popen([BIN, *words, os.fspath(volume.remote)], stdin=its, stdout=its, stderr=its)
        os.close(its)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # EIO: nobody has the other end any more
            pass
        os.close(ours)
        assert process.wait(timeout=LIMIT) == 0
        assert b"evil" in shown and not re.search(rb"[\0-\x09\x0b\x0c\x0e-\x1f\x80-\xff]", shown), shown


def test_a_refusal_names_who_holds_the_volume_and_is_not_obeyed(volume, once):
    """Also where a mount waits for a lease, and in the line that says whose it is."""
    v = Volume(volume.remote)
    v.epoch(1, [entry(1, b"a", data=b"a")])
    v.save()
    v.put("lease/%020d.json" % 1, json.dumps({
        "format": 1, "generation": 1, "holder": crafted.UUID, "host": EVIL, "node": EVIL, "mountpoint": EVIL, "boot_id": crafted.UUID, "pid": 1,
        "pid_started": 1, "pid_namespace": 1, "since": "2026-11-22T10:00:00Z", "renewed": 1, "ttl_ms": 2000, "released": False, "pending": 0}))
    with open(volume.log, "wb") as log:
        volume.mount()
        log.flush()
    shown = volume.log.read_text(errors="replace")
    assert "evil" in shown and not OBEYED.search(shown), shown
    code, shown = command("status", volume.remote)
    assert code == 0, shown


@pytest.mark.parametrize("chain", [{3: 3}, {2: 3, 3: 2}, {3: 9}, {1: 3, 2: 1, 3: 2}])
def test_epochs_that_continue_one_another_in_a_circle(volume, chain):
    """Each mount and each command that follows them ends."""
    v = Volume(volume.remote)
    for n in (1, 2, 3):
        v.epoch(n, [entry(1, b"a%d" % i, data=b"%d" % n) for i in range(n)], complete=False, trigger="quiet",
                **({"continues": chain[n]} if n in chain else {}))
    v.save()
    volume.options["settle"] = "100ms"
    volume.mount()
    (volume.path / "b").write_text("b")
    volume.seal()
    volume.rollback(2)
    volume.remount(empty_cache=True)
    volume.unmount()
    all_commands(volume, 0, 3, 4, 5, DAMAGED)


# ---- a server that lists what is no key


LISTS = r"""#!/bin/sh
printf '%s\n' "$*" >> {asked}
here=$(cd "$(dirname "$0")" && pwd)
case "$1" in
list) {program} {remote} "$@" && printf '%s\n' '1 ../outside/victim' '1 /etc/passwd' '1 packs/../../outside/victim' '1 tags/../../outside/victim' \
	'1 index/../epochfs.json' '99999999999999999999 epochs/x' '-1 epochs/y' "1 epochs/a b" "$(printf '1 epochs/\033[2J')" '1 epochs//x' '1 ./epochfs.json' ;;
*) exec {program} {remote} "$@" ;;
esac
"""


def test_keys_that_are_none_are_never_asked_for(volume, outside, once):
    v = Volume(volume.remote)
    v.epoch(1, [entry(1, b"a", data=b"a")])
    v.save()
    program, asked = volume.base / "lists", volume.base / "asked"
    directory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../packaging/examples/exec-directory")
    program.write_text(LISTS.format(asked=asked, program=directory, remote=volume.remote))
    program.chmod(0o755)
    url = "exec:%s" % program
    for words in (["log", url], ["fsck", "--read-data", url], ["export", url, volume.base / "out"], ["gc", "--grace", "0", url], ["status", url]):
        code, shown = command(*words)
        assert code == 0, (words, shown)
    for line in asked.read_text().splitlines():
        verb, *rest = line.split(" ")
        assert verb == "capabilities" or verb == "list" or re.fullmatch(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*", rest[0]), line
        assert ".." not in line and "/etc" not in line, line
