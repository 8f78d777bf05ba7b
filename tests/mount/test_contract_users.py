# SPDX-License-Identifier: Apache-2.0
"""What epochfs-semantics(7) says of who writes: other users, a user's own mount, writers of another process namespace; and the last
sentences on logs and killed writers."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from conftest import ALONE, BIN, LIMIT, OWN_MOUNTS, python, run, wait_until
from test_contract_writing import NEW, OLD, WRITER, Writer, log_of

NOBODY = 65534


# ---- a killed writer's epoch comes by itself


@pytest.mark.options(settle="300ms")
def test_what_changed_is_sealed_after_a_kill_without_being_asked(mnt):
    (mnt.path / "model").write_bytes(OLD)
    assert mnt.seal() == 1
    writer = Writer(mnt.path / "model")
    (mnt.path / "other").write_bytes(b"changed since")
    assert mnt.epochs() == [1]  # its close is taken into account, before the kill
    writer.end("kill")
    wait_until(lambda: len(mnt.epochs()) == 2, "the epoch")
    record = log_of(mnt)[-1]
    assert record["complete"] is False and "model" in record["reason"]
    assert (mnt.epoch(2) / "other").read_bytes() == b"changed since" and (mnt.epoch(2) / "model").read_bytes() == OLD
    assert os.readlink(mnt.epochs_dir / "latest") == "000001"


# ---- logs


@pytest.mark.options(patience="200ms")
def test_a_file_held_open_by_o_direct_is_no_log(mnt):
    """Its writer has blocks, not lines: what is there may end anywhere."""
    try:
        fd = os.open(mnt.path / "direct", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DIRECT)
    except OSError as error:
        pytest.skip("no O_DIRECT here: %s" % error)
    writer = Writer(mnt.path / "appended", mode="ab", data="1\n", times=1)

    def sealed():
        # By another process: beside its own saves the file would be output.
        run("dd", "if=/dev/urandom", "of=%s" % (mnt.path / "tick"), "bs=8", "count=1")
        number = mnt.seal()
        return (mnt.epoch(number) / "appended").exists() and number

    number = wait_until(sealed, "the log in an epoch")
    assert not (mnt.epoch(number) / "direct").exists()
    os.close(fd)
    writer.leave()


@pytest.mark.options(settle="100ms")
def test_a_log_opens_no_epoch(mnt):
    (mnt.path / "train.log").write_text("line\n")
    for i in range(5):
        with open(mnt.path / "train.log", "a") as f:
            f.write("line\n")
    assert mnt.status()["pending"]["changes"] != "changes that open an epoch"
    # An epoch that is opened by something else has it, and is the first.
    (mnt.path / "model").write_bytes(OLD)
    wait_until(lambda: mnt.epochs(), "the epoch")
    assert mnt.epochs() == [1] and (mnt.epoch(1) / "model").exists() and (mnt.epoch(1) / "train.log").exists()


@pytest.mark.options(patience="200ms")
def test_the_close_of_a_file_that_became_a_log_opens_no_epoch(mnt):
    writer = open(mnt.path / "history", "ab", buffering=0)
    writer.write(b"1\n")

    def taken():
        (mnt.path / "tick").write_bytes(os.urandom(8))
        return (mnt.epoch(mnt.seal()) / "history").exists()

    wait_until(taken, "history in an epoch")
    writer.write(b"2\n")
    writer.close()
    assert (mnt.path / "history").read_bytes() == b"1\n2\n"
    assert mnt.status()["pending"]["changes"] != "changes that open an epoch"
    number = mnt.seal()  # it rides
    assert (mnt.epoch(number) / "history").read_bytes() == b"1\n2\n"


# ---- a writer of another process namespace


@pytest.fixture
def outside(volume):
    """The mount is served in a process namespace of its own, as in a sidecar container; its root as seen from here."""
    if os.geteuid():
        pytest.skip("a process namespace needs root")
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private",
               ALONE, *volume.command(settle="1h", grace="1s")]
    with open(volume.log, "ab") as log:
        served = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    child = "/proc/%d/task/%d/children" % (served.pid, served.pid)

    def daemon():
        assert served.poll() is None, volume.log.read_text()
        with open(child, encoding="ascii") as f:
            pid = f.read().split()
        return pid and os.path.exists("/proc/%s/root%s/.epochs/.control" % (pid[0], volume.path)) and int(pid[0])

    pid = wait_until(daemon, "the mount")
    volume.served, volume.inner = pid, volume.path
    volume.path = volume.path.__class__("/proc/%d/root%s" % (pid, volume.path))
    yield volume
    os.kill(pid, signal.SIGTERM)
    assert served.wait(timeout=LIMIT) == 0, volume.log.read_text()
    volume.path = volume.inner


def test_who_is_outside_sees_the_old_version_until_the_close(outside):
    path = outside.path / "model"
    path.write_bytes(OLD)
    inside = subprocess.Popen(["nsenter", "--target", str(outside.served), "--mount", "--pid", sys.executable, "-c", WRITER,
                               outside.inner / "model", "wb", "NEW", "1000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert inside.stdout.readline() == "written\n"
    inside.stdin.write("see\n")
    inside.stdin.flush()
    assert inside.stdout.readline() == "NEW 3000 3000\n"
    assert path.read_bytes() == OLD and os.stat(path).st_size == len(OLD)
    inside.communicate(timeout=60)
    assert inside.returncode == 0
    wait_until(lambda: path.read_bytes() == b"NEW" * 1000, "the new version")


@pytest.mark.rules("2")
def test_a_kill_outside_the_process_namespace_cannot_be_told(outside):
    model, optim = outside.path / "model", outside.path / "optim"

    def epoch_where_model_is_killed(times):
        writer = python(WRITER, model, "wb", "NEW", str(times))
        assert writer.stdout.readline() == "written\n"
        writer.kill()
        writer.wait()
        writer.stdin.close()
        writer.stdout.close()
        wait_until(lambda: model.read_bytes() == b"NEW" * times, "the version of who might have closed it")
        outside.seal()
        return log_of(outside)[-1]

    model.write_bytes(OLD)
    optim.write_bytes(OLD)
    outside.seal()
    assert log_of(outside)[-1]["complete"] == "unknown"
    shown = run(BIN, "log", outside.path).stdout
    assert "unknown" in shown
    assert os.getxattr(outside.epoch(1), "user.epochfs.complete") == b"unknown"
    # Part of a save: it may have been killed, or go on.
    record = epoch_where_model_is_killed(1000)
    assert (record["complete"], record["rule"]) == ("unknown", "J5")
    # All of a save is evidence by itself.
    optim.write_bytes(NEW)
    record = epoch_where_model_is_killed(2000)
    assert (record["complete"], record["rule"]) == (True, "J7")


# ---- a user's own mount


# As tests/tools/as_user.sh: a mount namespace whose /dev/fuse is everybody's. It is there until this is told to end.
EVERYBODYS_FUSE = """set -e
mount -t tmpfs -o mode=755,size=1m system "$1"
mknod -m 666 "$1/fuse" c 10 229
mount --bind "$1/fuse" /dev/fuse
echo ready
exec cat
"""


def in_the_namespace_of(pid):
    """Which processes share a process's mount namespace, itself left out."""
    def of(name):
        try:
            return os.readlink("/proc/%s/ns/mnt" % name)
        except OSError:
            return None  # gone meanwhile

    own = of(pid)
    return [name for name in os.listdir("/proc") if own and name.isdigit() and int(name) != pid and of(name) == own]


@pytest.fixture
def user():
    """Runs the command as a user without rights, through fusermount3; its home; `see` leads root to what lies there in that user's mounts."""
    if os.geteuid():
        pytest.skip("root runs this as another user; the other tests run as this user do the same")
    if not shutil.which("fusermount3"):
        pytest.skip("no fusermount3")
    # pytest's own directories are closed to other users.
    home = pathlib.Path(tempfile.mkdtemp(prefix="user-", dir=os.environ.get("EPOCHFS_TEST_RUN")))
    for folder in home.parents:
        if not os.stat(folder).st_mode & 0o001:
            pytest.skip("%s is closed to other users" % folder)
    shutil.copy(BIN, home / "epochfs")
    (home / "system").mkdir()
    for folder in ("mnt", "remote", "cache"):
        (home / folder).mkdir()
        os.chown(home / folder, NOBODY, NOBODY)
    os.chown(home, NOBODY, NOBODY)
    os.chmod(home, 0o755)

    holder = subprocess.Popen([OWN_MOUNTS, ALONE, "sh", "-c", EVERYBODYS_FUSE, "sh", home / "system"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    enter = ["nsenter", "--target", str(holder.pid), "--mount"]

    def call(*command, check=True):
        return run(*enter, "setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all", "env", "-C", home, *command,
                   check=check, env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")})

    call.home = home
    call.see = lambda name: "/proc/%d/root%s" % (holder.pid, home / name)
    try:
        assert holder.stdout.readline() == "ready\n"
        yield call
    finally:
        run(*enter, "umount", "-l", home / "mnt", check=False)
        wait_until(lambda: not in_the_namespace_of(holder.pid), "the end of the user's mounts")
        holder.communicate(timeout=LIMIT)
        shutil.rmtree(home)


def test_a_user_mounts_and_unmounts(user):
    epochfs = user.home / "epochfs"
    user(epochfs, "mount", "-o", "min-free=0", user.home / "remote", user.home / "mnt")
    user(sys.executable, "-c", "open('mnt/model', 'wb').write(b'x' * 100000)")
    status = user(epochfs, "status", user.home / "mnt").stdout
    assert "ordinary" in status or "passthrough" in status
    assert user("cat", "mnt/model").stdout == "x" * 100000
    assert os.listdir(user.see("remote"))
    # Nobody else, root neither, may look into it without allow_other.
    with pytest.raises(PermissionError):
        os.listdir(user.see("mnt"))
    user(epochfs, "umount", user.home / "mnt")
    assert user(epochfs, "log", user.home / "remote").stdout.count("durable") == 1
    assert [p.name for p in (user.home / "cache").iterdir()] == ["epochfs"]
    user(epochfs, "mount", "-o", "min-free=0,ro", user.home / "remote", user.home / "mnt")
    assert user("cat", "mnt/model").stdout == "x" * 100000
    user("fusermount3", "-u", user.home / "mnt")


def test_a_user_whose_mount_is_refused_is_told(user):
    epochfs = user.home / "epochfs"
    done = user(epochfs, "mount", "-o", "min-free=0,passthrough=on", user.home / "remote", user.home / "mnt", check=False)
    assert done.returncode == 1 and "passthrough=on" in done.stderr.splitlines()[-1], done
    conf = pathlib.Path("/etc/fuse.conf")
    allowed = conf.exists() and "user_allow_other" in map(str.strip, conf.read_text().splitlines())
    done = user(epochfs, "mount", "-o", "min-free=0,allow_other", user.home / "remote", user.home / "mnt", check=False)
    assert (done.returncode == 0) == allowed, done
    if not allowed:
        assert "allow_other" in done.stderr


# ---- a writer of another user, who replaces what is there


@pytest.mark.options(allow_other=True, settle="1h")
def test_each_user_has_a_pending_version_of_its_own(mnt):
    os.chmod(mnt.path, 0o1777)
    path = mnt.path / "model"
    path.write_bytes(OLD)
    os.chmod(path, 0o666)
    code = "import os\nos.setgroups([]); os.setgid(65534); os.setuid(65534)\n" + WRITER
    other = python(code, "model", "wb", "two", "10", cwd=mnt.path)
    assert other.stdout.readline() == "written\n"
    mine = Writer(path, data="one")
    assert path.read_bytes() == OLD
    assert mine.tell("see") == ["one 3000 3000"]
    other.stdin.write("close\n")
    other.stdin.flush()
    assert other.stdout.readline() == "done\n"
    assert path.read_bytes() == b"two" * 10
    mine.leave()
    assert path.read_bytes() == b"one" * 1000
    other.stdin.close()
    assert other.wait(timeout=60) == 0
    other.stdout.close()
    st = os.stat(path)
    assert (st.st_uid, st.st_mode & 0o777) == (os.getuid(), 0o666)  # it is still the same file
    path.write_bytes(NEW)
    assert path.read_bytes() == NEW
