# SPDX-License-Identifier: Apache-2.0
"""Tools on the mount: git, rsync, tar, cp, an editor, a shell, and what make, find and tail rely on."""

import hashlib
import os
import random
import shutil
import subprocess
import tarfile
import time

import pytest

from conftest import python, run, wait_until
from test_contract_writing import Writer


def digests(root):
    return {os.path.relpath(os.path.join(folder, n), root): hashlib.sha256(open(os.path.join(folder, n), "rb").read()).hexdigest()
            for folder, _, names in os.walk(root) for n in names if not os.path.islink(os.path.join(folder, n))}


def some_tree(top, seed=1):
    """A directory with what trees have: many files, links, modes, times."""
    dice = random.Random(seed)
    top.mkdir(parents=True, exist_ok=True)
    for i in range(8):
        folder = top / ("d%d" % (i // 2)) / ("e%d" % i)
        folder.mkdir(parents=True)
        for j in range(8):
            f = folder / ("file %d-%d" % (i, j))
            f.write_bytes(dice.randbytes(dice.choice([0, 1, 100, 5000, 70000])))
            os.chmod(f, dice.choice([0o600, 0o644, 0o755]))
            os.utime(f, ns=(10**18, dice.randrange(10**18, 16 * 10**17)))
    os.symlink("d0/e0", top / "link")
    os.link(top / "d0" / "e0" / "file 0-1", top / "hard")
    (top / "näme \n with everything \\ in it").write_text("x")
    with open(top / "sparse", "wb") as f:
        f.seek(1 << 20)
        f.write(b"end")
    return top


# ---- git, rsync, tar, cp


def git(*arguments, cwd):
    identity = {"GIT_%s_%s" % (who, what): "test@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return run("git", *arguments, cwd=cwd, env={"PATH": os.environ["PATH"], "HOME": os.fspath(cwd), **identity}).stdout


def test_git(mnt, tmp_path):
    origin = some_tree(tmp_path / "origin")
    os.unlink(origin / "sparse")
    git("init", "-q", "-b", "main", cwd=origin)
    git("add", "-A", cwd=origin)
    git("commit", "-q", "-m", "one", cwd=origin)
    git("clone", "-q", "--no-hardlinks", origin, "clone", cwd=mnt.path)
    clone = mnt.path / "clone"
    git("fsck", "--strict", cwd=clone)
    assert git("status", "--porcelain", cwd=clone) == ""
    (clone / "new").write_text("x")
    git("add", "new", cwd=clone)
    git("commit", "-q", "-m", "two", cwd=clone)
    git("gc", "-q", cwd=clone)
    git("checkout", "-q", "HEAD~1", cwd=clone)
    assert not (clone / "new").exists()
    git("checkout", "-q", "main", cwd=clone)
    git("fsck", "--strict", cwd=clone)
    number = mnt.seal()
    mnt.remount(empty_cache=True)
    assert git("status", "--porcelain", cwd=clone) == ""
    git("-c", "safe.directory=*", "fsck", cwd=mnt.epoch(number) / "clone")


def test_rsync_twice(mnt, tmp_path):
    source = some_tree(tmp_path / "source")
    target = mnt.path / "target"
    first = run("rsync", "-aHS", "--itemize-changes", "%s/" % source, "%s/" % target).stdout
    assert "file 0-1" in first
    assert run("rsync", "-aHS", "--itemize-changes", "%s/" % source, "%s/" % target).stdout == ""
    assert run("rsync", "-acH", "--itemize-changes", "%s/" % source, "%s/" % target).stdout == ""
    number = mnt.seal()
    mnt.remount(empty_cache=True)
    # Times, modes, links and bytes came back from the remote; an epoch is as good a source.
    assert run("rsync", "-acH", "--itemize-changes", "%s/" % source, "%s/" % target).stdout == ""
    back = tmp_path / "back"
    run("rsync", "-aH", "%s/target/" % mnt.epoch(number), "%s/" % back)
    assert run("rsync", "-acH", "--itemize-changes", "%s/" % source, "%s/" % back).stdout == ""


def test_rsync_with_attributes_of_an_epoch_that_holds_more_than_files(mnt, tmp_path):
    """The kernel lets nobody read user.* of a symlink or a fifo."""
    source = mnt.path / "top"
    source.mkdir()
    (source / "f").write_text("1")
    os.setxattr(source / "f", "user.note", b"kept")
    os.symlink("f", source / "link")
    os.mkfifo(source / "fifo")
    epoch = mnt.epoch(mnt.seal())
    for path in (epoch / "top", *(epoch / "top").iterdir(), epoch):
        for name in os.listxattr(path, follow_symlinks=False):
            os.getxattr(path, name, follow_symlinks=False)
    assert {"user.note", "user.epochfs.epoch"} <= set(os.listxattr(epoch / "top" / "f"))
    run("rsync", "-aX", "%s/" % epoch, tmp_path / "back")
    assert os.getxattr(tmp_path / "back" / "top" / "f", "user.note") == b"kept"
    assert os.readlink(tmp_path / "back" / "top" / "link") == "f"


def test_tar(mnt, tmp_path):
    source = some_tree(tmp_path / "source")
    run("tar", "-C", tmp_path, "-cf", mnt.path / "a.tar", "source")
    run("tar", "-C", mnt.path, "-xpf", mnt.path / "a.tar")
    assert run("tar", "-C", mnt.path, "--compare", "-f", mnt.path / "a.tar").stdout == ""
    assert digests(mnt.path / "source") == digests(source)
    number = mnt.seal()
    with tarfile.open(mnt.epoch(number) / "a.tar") as t:
        assert len(t.getmembers()) == 64 + 1 + 4 + 8 + 4
    run("tar", "-C", mnt.epoch(number), "-cf", tmp_path / "b.tar", "source")
    assert run("tar", "-C", mnt.path, "--compare", "-f", tmp_path / "b.tar").stdout == ""


def test_cp(mnt, tmp_path):
    source = some_tree(tmp_path / "source")
    assert run("cp", "-a", source, mnt.path / "copy").stderr == ""
    assert digests(mnt.path / "copy") == digests(source)
    number = mnt.seal()
    victim = mnt.path / "copy" / "d0" / "e0" / "file 0-1"
    old = victim.read_bytes()
    victim.write_bytes(b"spoilt")
    # From an epoch onto the live file, and onto the live tree.
    assert run("cp", "-a", mnt.epoch(number) / "copy" / "d0" / "e0" / "file 0-1", victim).stderr == ""
    assert victim.read_bytes() == old
    shutil.rmtree(mnt.path / "copy" / "d1")
    (mnt.path / "copy" / "sparse").write_text("spoilt")
    assert run("cp", "-a", "--remove-destination", mnt.epoch(number) / "copy", mnt.path).stderr == ""
    assert digests(mnt.path / "copy") == digests(source)
    assert run("diff", "-r", "--no-dereference", mnt.epoch(number) / "copy", mnt.path / "copy").stdout == ""
    assert run("cp", "--reflink=auto", "--sparse=always", mnt.path / "copy" / "sparse", mnt.path / "again").stderr == ""
    assert (mnt.path / "again").read_bytes() == (source / "sparse").read_bytes()


def test_an_editor_saves(mnt):
    path = mnt.path / "notes.txt"
    path.write_text("one\ntwo\n")
    os.chmod(path, 0o640)
    first = mnt.seal()
    vi = shutil.which("vim") or shutil.which("vi")
    run(vi, "-Nes", "-u", "NONE", "-c", "set backup writebackup backupdir=. backupskip=", "-c", "%s/two/2/", "-c", "wq", path,
        stdin=open(os.devnull), cwd=mnt.path)
    assert path.read_text() == "one\n2\n" and os.stat(path).st_mode & 0o777 == 0o640
    assert (mnt.path / "notes.txt~").read_text() == "one\ntwo\n"
    assert not list(mnt.path.glob(".*.sw?"))
    run("sed", "-i", "s/one/1/", path)
    assert path.read_text() == "1\n2\n"
    number = mnt.seal()
    assert (mnt.epoch(number) / "notes.txt").read_text() == "1\n2\n"
    assert (mnt.epoch(first) / "notes.txt").read_text() == "one\ntwo\n"


# ---- a shell


def test_a_shell_script(mnt):
    """Redirections close and reopen: each is whole for those that come after it."""
    run("sh", "-euc", """
        cd "$1"
        (echo a; echo b) > f
        echo c >> f
        test "$(cat f)" = "$(printf 'a\\nb\\nc')"
        sort -r f > g && mv g f
        test "$(head -1 f)" = c
        for i in 1 2 3 4 5 6 7 8 9 10; do echo $i > n; test "$(cat n)" = $i; done
        mkdir -p x/y && cp f x/y/ && ln -s x/y/f s && test "$(cat s)" = "$(cat f)"
        yes | head -c 1000000 | dd of=big bs=4k 2>/dev/null && test $(wc -c < big) = 1000000
        truncate -s 10 big && test $(stat -c %s big) = 10
        rm -r x && ! cat s 2>/dev/null
        find . -type f | wc -l
    """, "sh", mnt.path)
    number = mnt.seal()
    assert sorted(os.listdir(mnt.epoch(number))) == ["big", "f", "n", "s"]
    assert mnt.torn() == []


def test_times_move_forward(mnt):
    """make and ninja compare the times of what they write with one another."""
    (mnt.path / "a.c").write_text("x")
    before = time.time_ns()
    for i in range(20):
        (mnt.path / "a.o").write_text(str(i))
        assert os.stat(mnt.path / "a.o").st_mtime_ns >= os.stat(mnt.path / "a.c").st_mtime_ns
        (mnt.path / "a.c").write_text(str(i))
        assert os.stat(mnt.path / "a.c").st_mtime_ns >= os.stat(mnt.path / "a.o").st_mtime_ns
    # A file's time is that of the kernel's clock, which ticks.
    assert os.stat(mnt.path / "a.c").st_mtime_ns >= before - 10**9


def test_a_reader_of_a_directory_that_is_written(mnt):
    """find and ls meet each name once that is there all the time."""
    for i in range(300):
        (mnt.path / ("stays%d" % i)).touch()
    writer = python("""
import os, sys
print("writes", flush=True)
i = 0
while not os.path.exists(sys.argv[1] + "/stop"):
    open(sys.argv[1] + "/comes%d" % (i % 50), "wb").close()
    os.unlink(sys.argv[1] + "/comes%d" % (i % 50))
    i += 1
""", mnt.path)
    assert writer.stdout.readline() == "writes\n"
    for _ in range(30):
        names = [n for n in os.listdir(mnt.path) if n.startswith("stays")]
        assert len(names) == 300 and len(set(names)) == 300
    (mnt.path / "stop").touch()
    writer.communicate(timeout=60)
    assert writer.returncode == 0


@pytest.mark.options(settle="1h")
def test_tail_by_name_on_a_reader(mnt, make_volume, tmp_path):
    """A log that grew is another file there: tail goes over to it, also under its second name. What has not changed is the same one."""
    for name in ("log", "same"):
        (mnt.path / name).write_text("one\n")
    os.link(mnt.path / "log", mnt.path / "second")
    mnt.seal()
    mnt.wait_durable()
    reader = make_volume(ro=True, refresh="100ms")
    reader.url = mnt.url
    reader.mount()
    inos = {name: os.stat(reader.path / name).st_ino for name in ("log", "second", "same")}
    with open(reader.path / "log", encoding="ascii") as held, open(tmp_path / "out", "w", encoding="ascii") as out:
        tails = [subprocess.Popen(["tail", "-n", "+1", "--sleep-interval=0.1", "-F", reader.path / name], stdout=out, stderr=subprocess.DEVNULL)
                 for name in ("log", "second")]
        try:
            wait_until(lambda: (tmp_path / "out").read_text().count("one") == 2, "the first lines")
            for word in ("two", "three"):
                with open(mnt.path / "log", "a", encoding="ascii") as f:
                    f.write(word + "\n")
                mnt.seal()
                mnt.wait_durable()
                wait_until(lambda: (tmp_path / "out").read_text().count(word) >= 2, word)
        finally:
            for tail in tails:
                tail.kill()
                tail.wait()
        assert held.read() == "one\n"
    now = {name: os.stat(reader.path / name).st_ino for name in inos}
    assert now["same"] == inos["same"] and now["log"] == now["second"] != inos["log"]
    assert os.stat(reader.path / "log").st_nlink == 2
    reader.unmount()


def test_a_log_and_tail(mnt):
    """tail -f reads what another process appends."""
    path = mnt.path / "train.log"
    path.touch()
    reader = python("""
import os, sys, time
print("reads", flush=True)
with open(sys.argv[1]) as f:
    seen = ""
    while not seen.endswith("end\\n"):
        seen += f.read()
        time.sleep(0.01)
print(len(seen))
""", path)
    assert reader.stdout.readline() == "reads\n"
    writer = Writer(path, mode="ab", data="line\n", times=100)
    writer.leave()
    with open(path, "a") as f:
        f.write("end\n")
    out, _ = reader.communicate(timeout=60)
    assert out == "504\n"
