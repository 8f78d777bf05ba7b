# SPDX-License-Identifier: Apache-2.0
"""Other users of the machine: a mount without allow_other is closed to them, one with it goes by owners and modes, and what lies in the
cache is nobody else's."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile

import pytest

from conftest import BIN, LIMIT

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

# Prints, for each expression, its value or the name of its error.
ASK = """
import errno, os, sys
for line in sys.argv[1:]:
    try:
        print(eval(line))
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


def as_nobody(folder, *expressions):
    """What another user gets for these expressions. He stands in `folder`, since pytest's own directories are closed to him."""
    def become():
        os.fchdir(fd)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)

    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        done = subprocess.run([sys.executable, "-c", ASK, *expressions], preexec_fn=become, capture_output=True, text=True, check=False,
                              timeout=LIMIT)
    finally:
        os.close(fd)
    assert done.returncode == 0, done
    return done.stdout.split("\n")[:-1]


def fill(volume):
    (volume.path / "secret").write_text("secret")
    os.chmod(volume.path / "secret", 0o600)
    (volume.path / "shared").write_text("shared")
    (volume.path / "closed").mkdir(mode=0o700)
    (volume.path / "closed" / "shared").write_text("shared")
    (volume.path / "his").write_text("his")
    os.chown(volume.path / "his", NOBODY, NOBODY)
    os.chmod(volume.path, 0o755)
    volume.seal()
    volume.seal("best")


def test_without_allow_other_nothing_is_seen(mnt):
    fill(mnt)
    name = mnt.path.name
    assert as_nobody(mnt.base, "os.stat(%r)" % name, "os.listdir(%r)" % name, "os.chmod(%r, 0o777)" % name) == ["EACCES"] * 3
    for path in ("/shared", "/his", "/.epochs", "/.epochs/000001/shared", "/.epochs/.control", "/no/such"):
        for expression in ("os.stat(%r)", "os.open(%r, os.O_RDONLY)", "os.listdir(%r)", "os.open(%r, os.O_WRONLY | os.O_CREAT)"):
            assert as_nobody(mnt.base, expression % (name + path)) == ["EACCES"], (path, expression)
    # Nor through a descriptor that somebody hands out by standing in it.
    assert as_nobody(mnt.path, "os.listdir('.')", "os.stat('shared')", "open('shared').read()") == ["EACCES"] * 3


@pytest.mark.options(allow_other=True)
def test_with_allow_other_owners_and_modes_hold(mnt):
    fill(mnt)
    for folder in (mnt.path, mnt.epoch(1)):
        assert as_nobody(folder, "open('shared').read()", "open('secret').read()", "os.listdir('closed')", "open('closed/shared').read()",
                         "open('his').read()") == ["shared", "EACCES", "EACCES", "EACCES", "his"]
    for expression in ("os.open('shared', os.O_RDWR)", "os.open('new', os.O_WRONLY | os.O_CREAT)", "os.unlink('his')", "os.rename('his', 'x')",
                       "os.chmod('shared', 0o777)", "os.truncate('shared', 0)", "os.mkdir('new')", "os.setxattr('shared', 'user.x', b'x')",
                       "os.utime('shared', (0, 0))", "os.link('secret', 'new')"):
        assert as_nobody(mnt.path, expression)[0] in ("EACCES", "EPERM"), expression
    assert as_nobody(mnt.path, "open('his', 'a').write('!')", "os.chmod('his', 0o6777)", "os.chown('his', 0, 0)") == ["1", "None", "EPERM"]
    assert (mnt.path / "his").read_text() == "his!"


@pytest.mark.options(allow_other=True)
def test_with_allow_other_epochs_and_requests_are_the_owners(mnt):
    fill(mnt)
    before = mnt.epochs(), mnt.tags()
    refused = as_nobody(mnt.epochs_dir, "os.open('.control', os.O_RDWR)", "os.open('.control', os.O_RDONLY)", "os.mkdir('new')", "os.symlink('1', 'new')",
                        "os.unlink('best')", "os.rmdir('000001')", "os.rename('best', 'x')", "os.listdir('torn')", "os.unlink('current')")
    assert set(refused) <= {"EACCES", "EPERM"}, refused
    assert (mnt.epochs(), mnt.tags()) == before
    assert subprocess.run([BIN, "status", os.fspath(mnt.path)], capture_output=True, check=False).returncode == 0


def test_the_cache_is_nobody_elses(mnt):
    """Also where the umask would leave it open, and what an older version left open."""
    fill(mnt)
    mnt.wait_durable()
    mnt.unmount()
    (folder,) = [p for p in mnt.cache.iterdir() if p.is_dir()]
    os.chmod(folder / "state.db", 0o644)
    before = os.umask(0)
    try:
        mnt.mount(log_file=mnt.base / "daemon.log")
    finally:
        os.umask(before)
    (mnt.path / "more").write_bytes(os.urandom(100000))
    mnt.seal()
    mnt.wait_durable()
    seen = 0
    for path, folders, files in os.walk(folder):
        for name in files:
            st = os.lstat(os.path.join(path, name))
            assert stat.S_IMODE(st.st_mode) & 0o177 == 0, (path, name, oct(st.st_mode))
            seen += 1
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700, path
    assert seen > 3
    assert stat.S_IMODE(os.stat(mnt.base / "daemon.log").st_mode) == 0o600
    assert as_nobody(mnt.cache, "os.listdir(%r)" % folder.name, "open(%r)" % (folder.name + "/state.db")) == ["EACCES", "EACCES"]


def test_a_cache_directory_that_is_made_is_closed(volume):
    volume.cache = volume.base / "new" / "cache"
    before = os.umask(0)
    try:
        volume.mount()
    finally:
        os.umask(before)
    for folder in (volume.base / "new", volume.cache):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    assert as_nobody(volume.base, "os.listdir('new')") == ["EACCES"]


@pytest.mark.parametrize("option", ["suid", "dev"])
def test_suid_and_dev_are_roots_to_give(volume, option):
    if volume.options["passthrough"] == "off":
        pytest.skip("refused before anything is mounted")
    shutil.copy(BIN, volume.base / "epochfs")
    refused = as_nobody(volume.base, "__import__('subprocess').run(['./epochfs', 'mount', '-o', %r, 'none', 'mnt'], capture_output=True)" % option)[0]
    assert "returncode=4" in refused and "option %s is root" % option in refused


@pytest.fixture
def nobody():
    """Runs a command as another user, in a directory that is reached as root; with a copy of the program that he may run."""
    home = tempfile.mkdtemp(prefix="nobody-")
    os.chmod(home, 0o755)
    shutil.copy(BIN, os.path.join(home, "epochfs"))

    def as_nobody_run(folder, *command):
        def become():
            os.fchdir(fd)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)

        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return subprocess.run(command, preexec_fn=become, capture_output=True, text=True, check=False, timeout=LIMIT,
                                  env={**os.environ, "PATH": "%s:%s" % (home, os.environ["PATH"])})
        finally:
            os.close(fd)

    yield as_nobody_run
    shutil.rmtree(home)


@pytest.mark.options(allow_other=True, settle="1h")
def test_epochs_of_a_shared_mount_are_its_owners(mnt, nobody):
    """Another user may write where modes let him, and not seal, tag, roll back or drop."""
    os.chmod(mnt.path, 0o1777)
    for i in range(3):
        (mnt.path / "f").write_text(str(i))
        mnt.seal()
    os.symlink("2", mnt.epochs_dir / "mine")
    for command in (["touch", "own"], ["cat", ".epochs/000001/f"], ["sync", "own"]):
        done = nobody(mnt.path, *command)
        assert done.returncode == 0, (command, done)
    before = mnt.epochs(), mnt.tags()
    for command in (["mkdir", "now"], ["ln", "-s", "1", "best"], ["ln", "-sfn", "1", "current"], ["rmdir", "000001"], ["rm", "mine"],
                    ["mv", "mine", "other"], ["sync", "."]):
        done = nobody(mnt.epochs_dir, *command)
        assert done.returncode and "Operation not permitted" in done.stderr, (command, done)
    for command in (["commit", "."], ["rollback", ".", "1"], ["rm", ".", "1"], ["tag", ".", "1", "best"]):
        done = nobody(mnt.path, "epochfs", *command)
        assert done.returncode == 4 and "in a shared mount this is for its owner" in done.stderr, (command, done)
    assert (mnt.epochs(), mnt.tags()) == before
