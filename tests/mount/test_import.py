# SPDX-License-Identifier: Apache-2.0
"""epochfs import: an ordinary directory becomes an epoch, whole or not at all."""

import json
import os
import shutil
import signal
import stat
import subprocess
import zipfile

import pytest

from conftest import BIN, LIMIT, python, run, signals_pending, wait_until

MIB = 1 << 20


@pytest.fixture
def source(tmp_path):
    """A directory with everything in it that a live tree may hold."""
    top = tmp_path / "source"
    (top / "checkpoint-500" / "empty").mkdir(parents=True)
    (top / "model-step500.bin").write_bytes(os.urandom(3 * MIB))
    (top / "checkpoint-500" / "small").write_text("small")
    (top / "checkpoint-500" / "nothing").write_text("")
    with open(top / "sparse", "wb") as f:
        f.write(b"begin")
        f.seek(40 * MIB)
        f.write(b"end")
    os.link(top / "checkpoint-500" / "small", top / "hard")
    os.symlink("checkpoint-500/small", top / "link")
    os.symlink("nowhere", top / "checkpoint-500" / "dangling")
    os.mkfifo(top / "fifo", 0o620)
    (top / "name with \n and \xff").write_text("odd")
    os.setxattr(top / "hard", "user.note", b"\x00value")
    os.setxattr(top / "checkpoint-500", "user.dir", b"d")
    # What lends rights comes back for root alone.
    os.chmod(top / "model-step500.bin", 0o4751 if os.geteuid() == 0 else 0o751)
    if os.geteuid() == 0:
        os.chown(top / "model-step500.bin", 1234, 4321)
        os.chown(top / "link", 1, 2, follow_symlinks=False)
        os.mknod(top / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.utime(top / "link", ns=(1, 123456789123456789), follow_symlinks=False)
    os.utime(top / "checkpoint-500" / "small", ns=(1, 1111111111222222222))
    os.utime(top / "checkpoint-500", ns=(1, 1000000001000000001))
    return top


def picture(top):
    """All that is to come back: type, mode, owner, mtime, content, target, device, attributes, and which names are links."""
    seen, result = {}, {}
    for folder, folders, files in os.walk(top):
        for name in ["."] + folders + files:
            if name == "." and folder != os.fspath(top):
                continue
            path = os.path.join(folder, name)
            s = os.lstat(path)
            content = None
            if stat.S_ISREG(s.st_mode):
                with open(path, "rb") as f:
                    content = f.read()
            elif stat.S_ISLNK(s.st_mode):
                content = os.readlink(path)
            names = os.listxattr(path, follow_symlinks=False)
            attributes = {n: os.getxattr(path, n, follow_symlinks=False) for n in names
                          if n.startswith("user.") and not n.startswith("user.epochfs")}
            relative = os.path.relpath(path, top)
            first = relative if stat.S_ISDIR(s.st_mode) else seen.setdefault((s.st_dev, s.st_ino), relative)
            result[relative] = (s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns, s.st_rdev, content, attributes, first)
    # Of hard links any may come first.
    groups = {}
    for name, row in result.items():
        groups.setdefault(row[-1], set()).add(name)
    return {name: (*row[:-1], frozenset(groups[row[-1]])) for name, row in result.items()}


def below(top):
    """The same without the root, whose mtime an epoch's directory has from its seal."""
    return {name: row for name, row in picture(top).items() if name != "."}


class Importer:
    def __init__(self, base):
        self.base = base
        self.url = "file://%s" % (base / "remote")
        self.options = "cache-dir=%s" % (base / "cache")

    def command(self, directory, *words, url=None, options=""):
        return [BIN, "import", "-o", self.options + options, *map(os.fspath, words), os.fspath(directory), url or self.url]

    def __call__(self, directory, *words, code=0, **keywords):
        env = {**os.environ, **keywords.pop("env", {})}
        done = run(*self.command(directory, *words, "--json", **keywords), check=False, env=env)
        assert done.returncode == code, done
        return json.loads(done.stdout) if code == 0 else done.stderr

    def start(self, directory, *words, **keywords):
        return subprocess.Popen(self.command(directory, *words, **keywords), stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def epochs(self):
        done = run(BIN, "log", "--json", self.url, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else []

    def objects(self, kind):
        found = {}
        for folder, _, files in os.walk(self.base / "remote" / kind):
            found.update({name: os.stat(os.path.join(folder, name)).st_ino for name in files if len(name) == 64})
        return found

    def check(self, top, epoch="latest"):
        """The epoch is what the directory is, and the volume is whole."""
        out = self.base / ("out-%d" % len(os.listdir(self.base)))
        run(BIN, "export", *(["--privileged"] if os.geteuid() == 0 else []), "%s@%s" % (self.url, epoch), out)
        assert picture(out) == picture(top)
        run(BIN, "fsck", "--read-data", self.url)


@pytest.fixture
def importer(tmp_path):
    return Importer(tmp_path)


@pytest.fixture
def once(passthrough):
    if passthrough == "off":
        pytest.skip("the command does not mount")


def test_everything_comes_back_by_export_and_by_a_cold_mount(importer, source, volume):
    epoch = importer(source, "--tag", "best", "-m", "by hand")
    assert (epoch["epoch"], epoch["step"], epoch["complete"], epoch["trigger"]) == (1, 500, True, "import")
    assert (epoch["message"], epoch["files"]) == ("by hand", 5)
    importer.check(source, "best")
    volume.url = importer.url
    mnt = volume.mount(settle="1h")
    assert below(mnt.epoch(1)) == below(mnt.path) == below(source)
    assert mnt.tags() == {"best": 1}
    # The volume is the mount's now: an import is told who has it, and comes after it.
    assert "mounted at %s" % mnt.path in importer(source, code=8)
    (mnt.path / "more").write_text("from the mount")
    mnt.wait_durable()
    mnt.unmount()
    assert importer(source, "--step", "7")["removed"] == 1
    assert [e["epoch"] for e in importer.epochs()] == [3, 2, 1]
    mnt.mount(settle="1h")
    assert below(mnt.path) == below(source)


def test_what_is_sparse_takes_few_blocks_on_every_mount_after(importer, source, volume):
    def blocks(top):
        return (top / "sparse").stat().st_blocks * 512

    importer(source)
    wait_until(lambda: importer(source)["bytes_read"] < 100, "the files to be known")
    # Not read again, for nothing of it changed.
    (source / "more").write_text("more")
    assert importer(source)["epoch"] == 2
    volume.url = importer.url
    mnt = volume.mount(settle="1h")
    assert [blocks(top) < MIB for top in (mnt.path, mnt.epoch(1), mnt.epoch(2))] == [True] * 3
    # Nor when it comes back by a rollback.
    (mnt.path / "sparse").write_bytes(b"dense")
    mnt.seal()
    mnt.rollback(1)
    assert 0 < blocks(mnt.path) < MIB and (mnt.path / "sparse").stat().st_size > 40 * MIB


def test_what_is_there_is_not_stored_again(importer, source):
    data = (source / "model-step500.bin").read_bytes()
    (source / "copy").write_bytes(data)
    first = importer(source)
    assert 3 * MIB <= first["bytes_new"] < 4 * MIB
    again = importer(source)
    assert again["unchanged"] and again["epoch"] == 1
    (source / "model-step501.bin").write_bytes(data)
    second = importer(source, "--step", "9")
    assert (second["epoch"], second["bytes_new"], second["step"]) == (2, 0, 9)
    (source / "torn.pt").write_bytes(b"PK\x03\x04" + data)
    with zipfile.ZipFile(source / "whole.pt", "w") as z:
        z.writestr("data", data)
    third = importer(source)
    assert not third["complete"] and "torn.pt" in third["reason"] and "whole" not in third["reason"]
    # For as long as it is there, no epoch is complete: who resumes from one finds it torn.
    (source / "x").write_text("x")
    fourth = importer(source)
    assert not fourth["complete"] and fourth["doubts"][0]["since"] == 3
    (source / "torn.pt").unlink()
    (source / "y").write_text("y")
    assert importer(source)["complete"]
    importer.check(source)


def test_unchanged_files_are_not_read_again_but_changed_ones_are(importer, source):
    importer(source)
    # What is young is read once more; small files are always read, because they are in the tree.
    wait_until(lambda: importer(source)["bytes_read"] < 100, "the files to be known")
    path = source / "model-step500.bin"
    before = os.stat(path)
    with open(path, "r+b") as f:
        f.write(b"changed")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert importer(source)["changed"] == 1
    importer.check(source)
    wait_until(lambda: importer(source)["bytes_read"] < 100, "the files to be known")
    assert importer(source, "--read-all")["files_read"] == 4
    # Known is only what the epoch before has still.
    os.rename(source / "sparse", importer.base / "sparse")
    importer(source)
    os.rename(importer.base / "sparse", source / "sparse")
    assert importer(source)["bytes_read"] > 40 * MIB
    importer.check(source)


@pytest.mark.parametrize("point", ["store.pack_put", "store.index_put", "import.read", "import.part", "import.index",
                                   "import.record"])
def test_killed_anywhere_nothing_is_half_there_and_the_next_one_goes_on(importer, source, point):
    (source / "large").write_bytes(os.urandom(72 * MIB))
    first = importer(source / "checkpoint-500")
    (source / "new").write_bytes(os.urandom(3 * MIB))
    env = {**os.environ, "EPOCHFS_FAULT": point}
    done = run(*importer.command(source), check=False, env=env)
    assert done.returncode == -signal.SIGKILL
    assert len(importer.epochs()) == (2 if point == "import.record" else 1)
    importer.check(source / "checkpoint-500", "1")
    there = importer.objects("packs")
    (source / "zz").write_text("and it went on meanwhile")
    epoch = importer(source)
    assert first["epoch"] == 1 and epoch["epoch"] == (3 if point == "import.record" else 2) and epoch["complete"]
    importer.check(source)
    # What had been put was not put again, and nothing was put twice.
    now = importer.objects("packs")
    assert {name: now.get(name) for name in there} == there
    stored = sum(os.stat(os.path.join(folder, name)).st_size
                 for folder, _, files in os.walk(importer.base / "remote" / "packs") for name in files if len(name) == 64)
    assert stored < 79 * MIB


WRITER = """
import os, sys
folder, n = sys.argv[1], 0
while True:
    n += 1
    for name in ("a", "b"):
        with open(os.path.join(folder, "." + name), "w") as f:
            f.write(str(n).zfill(20) * 50000)
        os.rename(os.path.join(folder, "." + name), os.path.join(folder, name))
    print(n, flush=True)
    sys.stdin.readline()
"""


def test_a_directory_that_changes_gives_a_state_that_was_there_or_none(importer, source):
    writer = python(WRITER, source)
    seen = 0
    try:
        writer.stdout.readline()
        while seen < 3:
            process = importer.start(source)
            while process.poll() is None:
                writer.stdin.write("\n")
                writer.stdin.flush()
                writer.stdout.readline()
            assert process.returncode in (0, 1), process.stderr.read()
            if process.returncode:
                assert "keeps changing" in process.stderr.read()
            process.communicate()
            seen += 1
            importer.start(source).communicate(timeout=LIMIT)
    finally:
        writer.kill()
        writer.wait()
        writer.communicate()
    assert importer.epochs()
    for epoch in importer.epochs():
        assert epoch["complete"]
        out = importer.base / ("e%d" % epoch["epoch"])
        run(BIN, "export", "%s@%d" % (importer.url, epoch["epoch"]), out)
        a, b = (out / "a").read_text(), (out / "b").read_text()
        assert a == a[:20] * 50000 and b == b[:20] * 50000
        assert int(a[:20]) - int(b[:20]) in (0, 1)


NEVER_STILL = """
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.ftruncate(fd, 0)
os.write(fd, os.urandom(4 << 20))
print("ready", flush=True)
while True:
    os.pwrite(fd, os.urandom(8), 1000)
"""

LOGGER = """
import sys, time
with open(sys.argv[1], "a") as f:
    print("ready", flush=True)
    while True:
        print("line", file=f, flush=True)
        time.sleep(0.001)
"""


def test_a_file_that_never_stands_still_makes_no_epoch_unless_asked_for(importer, source):
    # On a machine that is busy enough, the writer stands still for as long as an import takes: then it is tried again.
    writer = python(NEVER_STILL, source / "busy")
    logger = python(LOGGER, source / "train.log")
    refused, epochs, incomplete = None, [], None
    try:
        assert writer.stdout.readline() and logger.stdout.readline()

        def is_refused():
            nonlocal refused, epochs
            epochs = importer.epochs()
            refused = run(*importer.command(source), check=False)
            return refused.returncode

        wait_until(is_refused, "an import that is refused")
        assert refused.returncode == 1 and "busy" in refused.stderr and "keeps changing" in refused.stderr
        assert importer.epochs() == epochs

        def is_incomplete():
            nonlocal incomplete
            incomplete = importer(source, "--allow-changing")
            return not incomplete["complete"]

        wait_until(is_incomplete, "an incomplete epoch")
        assert "busy" in incomplete["reason"] and "train.log" not in incomplete["reason"]
        writer.kill()
        writer.wait()
        # A log is taken as it stands, and holds nothing up.
        assert importer(source)["complete"]
    finally:
        for process in (writer, logger):
            process.kill()
            process.wait()
            process.communicate()
    importer(source)
    importer.check(source)


def test_one_writer_at_a_time_and_an_interrupted_one_gives_the_lease_back(importer, source):
    slow = "fault+%s?put.delay=1h&only=packs/" % importer.url
    first = importer.start(source, url=slow)
    try:
        wait_until(lambda: list((importer.base / "cache").glob("*/import/lock")), "the first import")
        other = Importer(importer.base)
        other.options = "cache-dir=%s" % (importer.base / "other")
        wait_until(lambda: json.loads(run(BIN, "status", "--json", importer.url, check=False).stdout or "{}")
                   .get("lease", {}).get("state") == "held", "the lease")
        assert "process %d" % first.pid in other(source, code=8)
        assert "another import" in importer(source, code=8)
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=LIMIT) == 1
        assert "interrupted" in first.stderr.read()
        status = json.loads(run(BIN, "status", "--json", importer.url).stdout)
        assert status["lease"]["state"] == "free" and status["epochs"]["count"] == 0
        assert other(source)["epoch"] == 1
    finally:
        first.kill()
        first.communicate()


def test_an_interrupted_one_that_hangs_ends_at_a_second_sigint(importer, source):
    """Its lease cannot be given back: it ends with its time."""
    control = importer.base / "control"
    process = importer.start(source, url="fault+%s?put.delay=1h&only=packs/&control=%s" % (importer.url, control))
    try:
        wait_until(lambda: list((importer.base / "remote").glob("lease/*")), "the lease")
        (importer.base / "next").write_text("all.delay=1h&only=lease/")
        (importer.base / "next").rename(control)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not signals_pending(process), "the first")
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not signals_pending(process), "the second")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT) == 128 + signal.SIGINT
    finally:
        process.kill()
        process.communicate()


def test_an_outage_in_the_middle_is_waited_for(importer, source):
    control = importer.base / "control"
    control.write_text("put.down=1&only=packs/")
    process = importer.start(source, url="fault+%s?control=%s" % (importer.url, control))
    try:
        wait_until(lambda: list((importer.base / "remote").glob("lease/*")), "the lease")
        control.unlink()
        assert process.wait(timeout=LIMIT) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    importer.check(source)


def test_what_it_does_not_take(importer, source, volume, once):
    assert "is a mount" in run(BIN, "import", source, volume.mount().path, check=False).stderr
    assert run(BIN, "import", source, volume.path, check=False).returncode == 2
    assert "lies in" in importer(source, code=2, url=os.fspath(source / "remote"))
    assert "lies in" in importer(importer.base, code=2, url="memory:x")
    assert "the catalog" in run(BIN, "import", "-o", "%s,catalog=%s" % (importer.options, source / "new" / "c.db"), source, importer.url, check=False).stderr
    assert importer(importer.base / "missing", code=5)
    assert importer(source / "hard", code=2)
    assert importer(source, "--step", "x", code=2)
    assert importer(source, "--tag", "a/b", code=2)
    assert importer(source, code=2, url="none")
    importer(source, "--tag", "best")
    assert "taken" in importer(source, "--tag", "best", code=8)
    assert importer(source, code=3, url="http://127.0.0.1:9/x", options=",timeout=1s")


def remove(importer, path, *words, code=0, url=None):
    done = run(BIN, "import", "-o", importer.options, "--remove", path, "--json", *words, url or importer.url, check=False)
    assert done.returncode == code, done
    return json.loads(done.stdout) if code == 0 else done.stderr


def test_an_epoch_without_a_path_needs_no_directory(importer, source):
    """All but that path is as it was, down to the hard links, and no content is fetched or put again."""
    data = os.urandom(2 * MIB)
    (source / "torn.pt").write_bytes(b"PK\x03\x04" + data)
    assert not importer(source)["complete"]
    packs = importer.objects("packs")
    made = remove(importer, "torn.pt", "--tag", "mended")
    assert made["complete"] and (made["parent"], made["removed"], made["bytes_read"]) == (1, 1, 0)
    times = os.stat(source).st_atime_ns, os.stat(source).st_mtime_ns  # the directory's time stays, too
    (source / "torn.pt").unlink()
    os.utime(source, ns=times)
    importer.check(source, "mended")
    remove(importer, "checkpoint-500/")
    shutil.rmtree(source / "checkpoint-500")
    os.utime(source, ns=times)
    importer.check(source)  # "hard" has lost its other name
    assert all(name in importer.objects("packs") for name in packs)
    assert sum(e["bytes_new"] for e in importer.epochs() if e["epoch"] > 1) == 0
    # What the next import makes of the directory is the same.
    assert importer(source)["unchanged"]


def test_what_cannot_be_removed(importer, source, volume, once):
    importer(source)
    assert "no path 'a'" in remove(importer, "a", code=5)
    assert "all of the epoch" in remove(importer, "/", code=2)
    assert importer.epochs()[-1]["epoch"] == 1
    # No volume is made where there is none.
    assert remove(importer, "a", code=5, url="file://%s" % (importer.base / "elsewhere"))
    assert not (importer.base / "elsewhere").exists()
    assert "is a mount" in remove(importer, "a", code=2, url=os.fspath(volume.mount().path))
