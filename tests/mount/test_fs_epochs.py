# SPDX-License-Identifier: Apache-2.0
"""The directory .epochs, used with ordinary tools."""

import errno
import os
import signal
import stat
import subprocess
import time

import pytest

from conftest import LIMIT, OTHER_OWNER, MountError, python, run, wait_until


def fails(number, call, *arguments, **keywords):
    with pytest.raises(OSError) as error:
        call(*arguments, **keywords)
    assert errno.errorcode[error.value.errno] == errno.errorcode[number], error.value
    return True


@pytest.fixture
def three(mnt):
    """Epochs 1 to 3, tagged first, second, third; `f` has the text "one", "two", "three"."""
    for text, tag in (("one", "first"), ("two", "second"), ("three", "third")):
        (mnt.path / "f").write_text(text)
        (mnt.path / text).write_text(text)
        mnt.seal(tag)
    return mnt


def test_an_empty_volume(mnt):
    assert sorted(os.listdir(mnt.epochs_dir)) == ["torn"]
    assert os.listdir(mnt.epochs_dir / "torn") == []
    assert fails(errno.ENOENT, os.lstat, mnt.epochs_dir / "latest")
    assert fails(errno.ENOENT, os.lstat, mnt.epochs_dir / "000001")
    assert fails(errno.ENOENT, os.lstat, mnt.epochs_dir / "1")


def test_mkdir_seals_and_tags(mnt):
    (mnt.path / "f").write_text("one")
    before = time.time_ns()
    os.mkdir(mnt.epochs_dir / "first")
    after = time.time_ns()
    assert os.readlink(mnt.epochs_dir / "first") == "000001"
    assert (mnt.epochs_dir / "first" / "f").read_text() == "one"
    assert before <= mnt.epoch(1).stat().st_mtime_ns <= after
    assert os.readlink(mnt.epochs_dir / "latest") == os.readlink(mnt.epochs_dir / "current") == "000001"
    assert sorted(os.listdir(mnt.epochs_dir)) == ["000001", "current", "first", "latest", "torn"]
    # Nothing changed: the same epoch gets another name.
    os.mkdir(mnt.epochs_dir / "again")
    assert mnt.epochs() == [1] and mnt.tags() == {"first": 1, "again": 1}
    assert fails(errno.EEXIST, os.mkdir, mnt.epochs_dir / "first")


@pytest.mark.parametrize("name", ["42", "000042", "0", "99999999999999999999", "latest", "current", "torn", ".control"])
def test_mkdir_of_numbers_and_reserved_names(mnt, name):
    (mnt.path / "f").touch()
    assert fails(errno.EEXIST, os.mkdir, mnt.epochs_dir / name)
    assert mnt.epochs() == []


def test_numbers_are_links_that_are_not_listed(three):
    assert os.readlink(three.epochs_dir / "2") == "000002"
    assert (three.epochs_dir / "2" / "f").read_text() == "two"
    assert stat.S_ISLNK(os.lstat(three.epochs_dir / "2").st_mode)
    assert fails(errno.ENOENT, os.lstat, three.epochs_dir / "4")
    assert fails(errno.ENOENT, os.lstat, three.epochs_dir / "0002")
    assert "2" not in os.listdir(three.epochs_dir) and ".control" not in os.listdir(three.epochs_dir)


def test_each_epoch_is_what_was_sealed(three):
    for number, text in enumerate(("one", "two", "three"), 1):
        d = three.epoch(number)
        assert (d / "f").read_text() == text
        assert sorted(os.listdir(d)) == sorted(["f", "one", "two", "three"][: number + 1])
    (three.path / "f").unlink()
    (three.path / "one").write_text("changed")
    assert (three.epoch(1) / "f").read_text() == "one" and (three.epoch(3) / "one").read_text() == "one"


def test_tree_of_an_epoch_keeps_everything(mnt):
    top = mnt.path
    (top / "d" / "e").mkdir(parents=True)
    (top / "d" / "file").write_bytes(b"x" * 100000)
    (top / "d" / "small").write_bytes(b"small")
    (top / "d" / "none").touch()
    os.link(top / "d" / "file", top / "d" / "e" / "hard")
    (top / "link").symlink_to("d/file")
    os.mkfifo(top / "fifo", 0o600)
    os.setxattr(top / "d" / "small", "user.note", b"kept")
    os.chmod(top / "d" / "small", 0o640)
    os.chown(top / "d" / "small", *OTHER_OWNER)
    os.utime(top / "d" / "small", ns=(5, 1_000_000_007))
    os.utime(top / "d", ns=(5, 2_000_000_009))

    def picture(root):
        found = {}
        for folder, names, files in os.walk(root):
            for path in [folder] + [os.path.join(folder, n) for n in names + files]:
                st = os.lstat(path)
                key = os.path.relpath(path, root)
                found[key] = [st.st_mode, st.st_uid, st.st_gid]
                if key != ".":
                    found[key] += [st.st_mtime_ns, st.st_nlink]
                if stat.S_ISREG(st.st_mode):
                    with open(path, "rb") as f:
                        found[key] += [st.st_size, f.read()]
                    found[key].append([n for n in os.listxattr(path) if not n.startswith("user.epochfs.")])
        return found

    live = picture(top)
    d = mnt.epoch(mnt.seal())
    assert picture(d) == live
    assert os.getxattr(d / "d" / "small", "user.note") == b"kept"
    assert (d / "d" / "file").stat().st_ino == (d / "d" / "e" / "hard").stat().st_ino
    mnt.remount()
    assert picture(d) == live


def test_inode_numbers_are_their_own(three):
    seen = {}
    for folder, names, files in os.walk(three.epochs_dir):
        for path in [folder] + [os.path.join(folder, n) for n in names + files]:
            ino = os.lstat(path).st_ino
            assert seen.setdefault(ino, path) == path
    live = {os.lstat(p).st_ino for p in [three.path, *three.path.iterdir()]}
    assert not live & set(seen)
    # What readdir says is what stat says.
    for folder in (three.epochs_dir, three.epoch(2)):
        for entry in os.scandir(folder):
            assert entry.inode() == os.lstat(entry.path).st_ino
    run("cp", three.epoch(1) / "f", three.path / "f")
    assert (three.path / "f").read_text() == "one"


def test_nothing_in_an_epoch_changes(three):
    d = three.epoch(2)
    f = d / "f"
    assert fails(errno.EROFS, os.open, f, os.O_WRONLY)
    assert fails(errno.EROFS, os.open, f, os.O_RDWR)
    assert fails(errno.EROFS, os.open, f, os.O_RDONLY | os.O_TRUNC)
    assert fails(errno.EROFS, os.open, d / "new", os.O_WRONLY | os.O_CREAT)
    assert fails(errno.EROFS, os.mkdir, d / "new")
    assert fails(errno.EROFS, os.unlink, f)
    assert fails(errno.EROFS, os.rename, f, d / "g")
    assert fails(errno.EROFS, os.rename, f, three.path / "g")
    assert fails(errno.EROFS, os.rename, three.path / "f", d / "g")
    assert fails(errno.EROFS, os.symlink, "x", d / "new")
    assert fails(errno.EROFS, os.link, f, d / "new")
    assert fails(errno.EXDEV, os.link, f, three.path / "new")
    assert fails(errno.EROFS, os.chmod, f, 0o600)
    assert fails(errno.EROFS, os.utime, f)
    assert fails(errno.EROFS, os.truncate, f, 0)
    assert fails(errno.EROFS, os.setxattr, f, "user.a", b"1")
    assert fails(errno.EROFS, os.mkfifo, d / "new")
    assert fails(errno.EROFS, os.chmod, d, 0o700)
    assert (d / "f").read_text() == "two" and sorted(os.listdir(d)) == ["f", "one", "two"]


def test_everything_else_in_epochs_is_read_only(three):
    e = three.epochs_dir
    before = sorted(os.listdir(e))
    assert fails(errno.EROFS, os.open, e / "x", os.O_WRONLY | os.O_CREAT)
    assert fails(errno.EROFS, os.mkfifo, e / "x")
    assert fails(errno.EROFS, os.link, three.path / "f", e / "x")
    assert fails(errno.EROFS, os.rename, three.path / "f", e / "x")
    assert fails(errno.EROFS, os.rename, e / "first", three.path / "x")
    assert fails(errno.EROFS, os.rename, three.epoch(1), e / "x")
    assert fails(errno.EROFS, os.rename, e / "torn", e / "x")
    assert fails(errno.EROFS, os.rename, e / "latest", e / "x")
    assert fails(errno.EROFS, os.unlink, e / "latest")
    assert fails(errno.EROFS, os.unlink, e / "current")
    assert fails(errno.EROFS, os.unlink, e / "2")
    assert fails(errno.EROFS, os.unlink, e / ".control")
    assert fails(errno.EROFS, os.rmdir, e / "torn")
    assert fails(errno.EROFS, os.chmod, e, 0o700)
    assert fails(errno.EROFS, os.symlink, "../f", e / "x")
    assert fails(errno.EROFS, os.open, e / "torn" / "x", os.O_WRONLY | os.O_CREAT)
    assert sorted(os.listdir(e)) == before


@pytest.mark.parametrize("target", ["2", "000002", "second", "./2", "{}/.epochs/000002", "{}/.epochs/2/"])
def test_tag_by_symlink(three, target):
    os.symlink(target.format(three.path), three.epochs_dir / "best")
    assert os.readlink(three.epochs_dir / "best") == "000002"
    assert (three.epochs_dir / "best" / "f").read_text() == "two"
    assert three.tags()["best"] == 2
    assert fails(errno.EEXIST, os.symlink, "1", three.epochs_dir / "best")
    three.remount()
    assert three.tags()["best"] == 2
    os.unlink(three.epochs_dir / "best")
    assert "best" not in three.tags()
    assert fails(errno.ENOENT, os.unlink, three.epochs_dir / "best")


def test_tag_of_no_epoch(three):
    assert fails(errno.ENOENT, os.symlink, "99", three.epochs_dir / "best")
    assert fails(errno.EEXIST, os.symlink, "1", three.epochs_dir / "7")
    assert fails(errno.EEXIST, os.symlink, "1", three.epochs_dir / "latest")


def test_ln_moves_a_tag(three):
    e = three.epochs_dir
    run("ln", "-s", "1", e / "best")
    run("ln", "-sfn", "3", e / "best")
    assert os.readlink(e / "best") == "000003"
    # As Python programs do it: a link under another name, and a rename.
    os.symlink("2", e / ".best.tmp")
    os.replace(e / ".best.tmp", e / "best")
    assert three.tags()["best"] == 2
    os.rename(e / "best", e / "better")
    assert three.tags() == {"first": 1, "second": 2, "third": 3, "better": 2}
    assert not [n for n in os.listdir(e) if n.startswith((".", "Cu"))]


def test_ln_over_current_rolls_back(three):
    e = three.epochs_dir
    (three.path / "pending").write_text("not sealed yet")
    run("ln", "-sfn", "1", e / "current")
    # At once, for all who look.
    assert sorted(os.listdir(three.path)) == ["f", "one"]
    assert (three.path / "f").read_text() == "one"
    assert not (three.path / "two").exists()
    # First what was pending was sealed, then a new epoch with the old one's tree made.
    assert three.epochs() == [1, 2, 3, 4, 5]
    assert os.readlink(e / "current") == "000005"
    assert (three.epoch(4) / "pending").read_text() == "not sealed yet"
    assert sorted(os.listdir(three.epoch(5))) == ["f", "one"]
    # It can be undone.
    run("ln", "-sfn", "4", e / "current")
    assert sorted(os.listdir(three.path)) == ["f", "one", "pending", "three", "two"]
    assert (three.path / "f").read_text() == "three"
    assert fails(errno.ENOENT, os.symlink, "99", e / "CuAbCdEf")


def test_rollback_is_seen_through_what_the_kernel_knows(three):
    """Names, attributes and directories that a process looked at just before."""
    f, d = three.path / "f", three.path / "d"
    d.mkdir()
    (d / "x").write_text("x")
    os.link(f, three.path / "hard")
    for path in (f, d, d / "x", three.path / "hard"):
        os.stat(path)
    with open(f) as kept, open(d / "x") as gone:
        run("ln", "-sfn", "2", three.epochs_dir / "current")
        assert f.stat().st_size == 3 and f.read_text() == "two" and f.stat().st_nlink == 1
        assert fails(errno.ENOENT, os.stat, d / "x") and fails(errno.ENOENT, os.stat, d)
        assert fails(errno.ENOENT, os.stat, three.path / "hard")
        # Open handles keep what they have open.
        assert kept.read() == "three" and gone.read() == "x"


def test_rmdir_drops_an_epoch(three):
    e = three.epochs_dir
    assert fails(errno.EBUSY, os.rmdir, three.epoch(1))  # tagged
    os.unlink(e / "first")
    assert (three.epoch(1) / "f").read_text() == "one"
    os.rmdir(three.epoch(1))
    assert three.epochs() == [2, 3]
    assert fails(errno.ENOENT, os.lstat, three.epoch(1)) and fails(errno.ENOENT, os.lstat, e / "1")
    assert fails(errno.ENOENT, os.symlink, "1", e / "best")
    os.unlink(e / "third")
    assert fails(errno.EBUSY, os.rmdir, three.epoch(3))  # the newest, and current
    assert fails(errno.ENOENT, os.rmdir, three.epoch(1))
    assert fails(errno.ENOTDIR, os.rmdir, e / "2")
    assert fails(errno.ENOTDIR, os.rmdir, e / "second")
    # Its number is never used again.
    (three.path / "new").touch()
    assert three.seal() == 4
    three.remount()
    assert three.epochs() == [2, 3, 4]


def test_an_epoch_that_the_command_drops_is_gone_at_once(three):
    os.unlink(three.epochs_dir / "first")
    with open(three.epoch(1) / "f") as f:
        three.request("rm", epoch="1")
        assert fails(errno.ENOENT, os.stat, three.epoch(1)) and fails(errno.ENOENT, os.stat, three.epoch(1) / "f")
        assert f.read() == "one"


def test_no_labels_are_told_once(three):
    """ls -l asks for one label and then, hearing that there are none, for no more."""
    for path in (three.path / "f", three.epoch(1) / "f", three.epochs_dir, three.epoch(1)):
        assert fails(errno.EOPNOTSUPP, os.getxattr, path, "security.selinux")
        assert fails(errno.ENODATA, os.getxattr, path, "user.none")
    os.setxattr(three.path / "f", "security.selinux", b"kept")
    assert os.getxattr(three.path / "f", "security.selinux") == b"kept"


def test_an_open_file_outlives_its_epoch(three):
    os.unlink(three.epochs_dir / "first")
    with open(three.epoch(1) / "f") as f:
        os.rmdir(three.epoch(1))
        assert f.read() == "one"


def test_sync_of_epochs_makes_all_durable(mnt):
    (mnt.path / "f").write_bytes(os.urandom(1 << 20))
    run("sync", mnt.epochs_dir)
    number = int(os.readlink(mnt.epochs_dir / "current"))
    assert os.getxattr(mnt.epoch(number), "user.epochfs.state") == b"durable"
    assert (mnt.remote / "epochs" / ("%020d.json" % number)).exists()


def own(path):
    return {n[len("user.epochfs."):]: os.getxattr(path, n).decode()
            for n in os.listxattr(path) if n.startswith("user.epochfs.")}


def test_attributes_say_what_became_of_a_file(mnt):
    d = mnt.path / "checkpoint-500"
    d.mkdir()
    f = d / "f"
    f.write_bytes(b"x" * 5000)
    assert own(f)["state"] == "staged" and "epoch" not in own(f)
    number = mnt.seal()
    assert own(f)["state"] in ("sealed", "uploading", "durable") and own(f)["epoch"] == str(number)
    run("sync", mnt.epochs_dir)
    assert own(f) == {"state": "durable", "epoch": "1", "step": "500"}
    epoch = own(mnt.epoch(1))
    assert epoch["state"] == "durable" and epoch["complete"] == "true" and epoch["epoch"] == "1"
    assert epoch["bytes"] == "5000" and int(epoch["bytes_new"]) > 0 and epoch["step"] == "500"
    inside = mnt.epoch(1) / "checkpoint-500" / "f"
    assert own(inside) == {"state": "durable", "epoch": "1", "step": "500"}
    shown = run("getfattr", "-d", "-m", "user.epochfs", f).stdout
    assert 'user.epochfs.state="durable"' in shown


def test_tools_that_copy_attributes_are_not_disturbed(mnt):
    f = mnt.path / "f"
    f.write_text("x")
    os.setxattr(f, "user.epochfs.state", b"lie")
    assert own(f)["state"] == "staged"
    os.removexattr(f, "user.epochfs.state")
    assert own(f)["state"] == "staged"
    d = mnt.epoch(mnt.seal())
    assert run("cp", "-a", d / "f", mnt.path / "g").stderr == ""
    assert run("cp", "-a", d / "f", f).stderr == ""
    assert f.read_text() == "x" and (mnt.path / "g").read_text() == "x"


def test_many_epochs_and_tags_are_listed(mnt):
    for i in range(1, 121):
        (mnt.path / "f").write_text(str(i))
        os.mkdir(mnt.epochs_dir / ("tag-%d" % i))
    assert mnt.epochs() == list(range(1, 121))
    assert mnt.tags() == {"tag-%d" % i: i for i in range(1, 121)}
    names = os.listdir(mnt.epochs_dir)
    assert len(names) == len(set(names)) == 120 + 120 + 3
    assert run("ls", "-l", mnt.epochs_dir).stdout.count("\n") == len(names) + 1
    assert (mnt.epoch(77) / "f").read_text() == "77"


def test_a_large_directory_of_an_epoch(mnt):
    d = mnt.path / "d"
    d.mkdir()
    for i in range(1500):
        (d / ("f%d" % i)).touch()
    e = mnt.epoch(mnt.seal()) / "d"
    for _ in range(2):
        assert sorted(os.listdir(e)) == sorted(os.listdir(d))
    assert sum(1 for x in os.scandir(e) if x.is_file()) == 1500


def test_a_mount_of_one_epoch(three):
    three.wait_durable()
    three.unmount()
    three.mount(ro=True, epoch=2)
    assert sorted(os.listdir(three.path)) == ["f", "one", "two"]
    assert (three.path / "f").read_text() == "two"
    for call in (lambda: (three.path / "new").touch(), lambda: os.unlink(three.path / "f"),
                 lambda: os.mkdir(three.path / "d"), lambda: open(three.path / "f", "r+b").close(),
                 lambda: os.chmod(three.path / "f", 0o600), lambda: os.mkdir(three.epochs_dir / "x"),
                 lambda: os.symlink("1", three.epochs_dir / "y")):
        assert fails(errno.EROFS, call)
    assert (three.epoch(3) / "f").read_text() == "three"
    assert three.status()["mountpoint"] == str(three.path)


def test_a_read_only_mount(three):
    three.wait_durable()
    three.unmount()
    three.mount(ro=True)
    assert (three.path / "f").read_text() == "three"
    assert fails(errno.EROFS, (three.path / "f").write_text, "x")
    assert fails(errno.EROFS, (three.path / "g").touch)
    assert fails(errno.EROFS, os.rename, three.path / "f", three.path / "g")
    assert fails(errno.EROFS, os.mkdir, three.epochs_dir / "x")
    assert fails(errno.EROFS, os.rmdir, three.epoch(1))
    assert fails(errno.EROFS, os.unlink, three.epochs_dir / "first")
    three.unmount()
    three.mount()
    assert (three.path / "f").read_text() == "three"


def test_a_mount_of_no_epoch(three):
    three.wait_durable()
    three.unmount()
    with pytest.raises(MountError):
        three.mount(ro=True, epoch=99)


# ---- .control


def test_control_requests_follow_each_other(three):
    control = os.open(three.epochs_dir / ".control", os.O_RDWR)
    try:
        for word in ("latest", "first", "2"):
            text = b'{"op": "resolve", "epoch": "%s"}' % word.encode()
            for i in range(0, len(text), 7):  # in pieces
                os.write(control, text[i:i + 7])
            answer = os.read(control, 1 << 16)
            assert b'"epoch"' in answer and b"error" not in answer
            assert os.read(control, 100) == b""
        assert os.read(control, 100) == b""
        os.write(control, b"nonsense\n")
        assert b'"error"' in os.read(control, 1 << 16)
    finally:
        os.close(control)


def test_control_answers_are_read_in_pieces(three):
    three.wait_durable()  # then two answers say the same
    with_whole = None
    for size in (1 << 20, 10):
        control = os.open(three.epochs_dir / ".control", os.O_RDWR)
        try:
            os.write(control, b'{"op":"log"}\n')
            whole = b""
            while part := os.read(control, size):
                whole += part
        finally:
            os.close(control)
        with_whole = with_whole or whole
        assert whole == with_whole and len(whole) > 100


def test_a_request_to_control_is_not_endless(mnt):
    control = os.open(mnt.epochs_dir / ".control", os.O_RDWR)
    try:
        with pytest.raises(OSError) as error:
            for _ in range(100):
                os.write(control, b" " * (64 << 10))
        assert error.value.errno == errno.EFBIG
    finally:
        os.close(control)
    assert mnt.status()


def test_control_is_its_owners(mnt):
    st = os.stat(mnt.epochs_dir / ".control")
    assert stat.S_IMODE(st.st_mode) == 0o600 and st.st_uid == os.getuid()


def test_status_names_mount_and_passthrough(mnt):
    (mnt.path / "f").write_bytes(b"x" * 100)
    (mnt.path / "f").read_bytes()
    status = mnt.status()
    assert status["mountpoint"] == str(mnt.path) and status["pid"] == mnt.pid
    counts = status["passthrough"]
    assert counts["mode"] == mnt.options["passthrough"]
    if counts["mode"] == "on":
        assert counts["opens"] >= 2 and counts["ordinary_opens"] == 0
    else:
        assert counts["opens"] == 0 and counts["ordinary_opens"] >= 2


@pytest.fixture
def stuck(volume):
    """A mount whose epochs never become durable, and a process that waits for that in `sync .epochs`."""
    volume.url = "fault+file://%s?put.delay=1h&only=epochs/" % volume.remote
    volume.mount(settle="1h")
    (volume.path / "f").write_bytes(os.urandom(1000))
    code = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
os.fsync(fd)
"""
    waiters = [python(code, volume.epochs_dir)]
    wait_until(lambda: "epoch 1 sealed" in volume.log.read_text(), "the epoch")
    volume.waiters = waiters
    yield volume
    for waiter in waiters:
        waiter.kill()
        waiter.wait(timeout=60)


def test_a_wait_can_be_interrupted(stuck):
    waiter = stuck.waiters[0]
    assert waiter.poll() is None
    waiter.terminate()
    assert waiter.wait(timeout=60) < 0
    assert stuck.status()["mountpoint"] == str(stuck.path)


def test_others_use_epochs_while_one_waits(stuck):
    """The waiter holds the kernel's lock of the directory that it syncs."""
    e = stuck.epochs_dir
    assert sorted(os.listdir(e)) == ["000001", "current", "latest", "torn"]
    with open(stuck.epoch(1) / "f", "rb") as kept:
        os.symlink("1", e / "best")
        os.mkdir(e / "named")
        assert stuck.tags() == {"best": 1, "named": 1}
        (stuck.path / "f").write_bytes(b"new")
        assert stuck.seal() == 2
        run("ln", "-sfn", "1", e / "current")
        assert len((stuck.path / "f").read_bytes()) == 1000
        assert kept.read() == (stuck.path / "f").read_bytes()
    assert stuck.waiters[0].poll() is None


LOOKS_TWICE = """
import os, signal, sys, time
time.sleep(1.1)  # what is known has run out, and starts over for the whole path
began = time.monotonic()
os.lstat(sys.argv[1])
os.kill(int(sys.argv[2]), signal.SIGSTOP)
time.sleep(0.05)
print(flush=True)
passed = time.monotonic() - began
os.lstat(sys.argv[1])
print(passed)
"""


def answers_without_the_daemon(mnt, path):
    """The kernel knows the way for a second: whether it asks nobody for it. Only where this machine let half of that pass meanwhile it is tried again."""
    pid = mnt.status()["pid"]
    passed = 1
    while passed > 0.5:
        child = python(LOOKS_TWICE, path, str(pid))
        try:
            child.stdout.readline()
            child.wait(timeout=5)
            return True
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGCONT)
            passed = float(child.communicate(timeout=LIMIT)[0])
        finally:
            os.kill(pid, signal.SIGCONT)
            child.communicate(timeout=LIMIT)
    return False


def test_a_path_in_an_epoch_is_not_asked_for_part_by_part(mnt):
    """`ls -l .epochs/1/d` walks the whole path for each file."""
    (mnt.path / "d").mkdir()
    (mnt.path / "d" / "f").write_text("1")
    mnt.seal()
    for name in ("000001", "1"):
        assert answers_without_the_daemon(mnt, mnt.epochs_dir / name / "d" / "f"), name


def test_a_symlink_leads_to_its_new_target_at_once(mnt):
    """The kernel keeps what symlinks say: never for longer than it is true."""
    for text in map(str, range(30)):
        (mnt.path / "f").write_text(text)
        number = mnt.seal()
        link = mnt.epochs_dir / "t"
        link.unlink(missing_ok=True)
        link.symlink_to("%06d" % number)
        for name in ("latest", "current", "t"):
            assert os.readlink(mnt.epochs_dir / name) == "%06d" % number
            assert (mnt.epochs_dir / name / "f").read_text() == text
