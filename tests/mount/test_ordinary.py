# SPDX-License-Identifier: Apache-2.0
"""Mounts of an ordinary user, through fusermount3: where the cache goes, and what is said where it cannot, or should not, go there."""

import os
import pathlib

import pytest

from conftest import BIN, run

HERE = pathlib.Path(__file__).resolve().parent
AS_USER = HERE.parent / "tools" / "as_user.sh"
STATFS = os.path.join(os.environ["EPOCHFS_UNITS"], "libstatfs.so")
NFS, LUSTRE, TMPFS = "0x6969", "0x0bd00bd0", "0x01021994"

# Mounts, saves, looks, unmounts, and finds it in the remote.
COURSE = """
mkdir -p $HOME/m $HOME/r && cd $HOME
"$BIN" mount $HOME/r $HOME/m
echo saved > m/model
"$BIN" status m > status
"$BIN" umount m
"$BIN" export r out && cat out/model
"""


@pytest.fixture
def passthrough():
    return "auto"


def as_user(script, *before, check=True):
    """Runs a shell script, in a home of its own, by the command `before`; $BIN is the program."""
    done = run(AS_USER, *before, "sh", "-e", "-c", script, check=False, cwd="/", env={**os.environ, "BIN": os.path.abspath(BIN)})
    assert done.returncode == 0 or not check, done
    return done


@pytest.fixture
def user():
    for folder in pathlib.Path(BIN).resolve().parents:
        if not os.stat(folder).st_mode & 0o001:
            pytest.skip("%s is closed to other users" % folder)
    probe = as_user("command -v fusermount3 && test -r /dev/fuse -a -w /dev/fuse", check=False)
    if probe.returncode:
        pytest.skip("no fusermount3, or a /dev/fuse that is root's alone")
    return as_user


# ---- what a mount needs, and says


def test_a_user_s_mount_has_nothing_to_say(user):
    """That there is no passthrough is nothing to tell each time: status says it."""
    done = user(COURSE + "grep -A4 ^passthrough status\n")
    assert done.stderr == "" and "\nsaved\n" in done.stdout and "CAP_SYS_ADMIN" in done.stdout, done


def test_the_cache_is_in_the_home(user):
    done = user(COURSE + "ls .cache/epochfs; stat -c %a .cache/epochfs/*\n")
    assert done.stdout.splitlines()[-1] == "700", done


def test_who_is_only_called_root_has_his_cache_in_the_home(user):
    """In an unprivileged user namespace uid 0 owns nothing of root's; the log is in the cache."""
    if user("unshare -Urm true", check=False).returncode:
        pytest.skip("no user namespaces here")
    done = user('test "$(id -u)" = 0\n' + COURSE + "ls .cache/epochfs/*/log", "unshare", "-Urm")
    assert done.stdout.splitlines()[-2] == "saved" and done.stdout.splitlines()[-1].startswith(".cache/epochfs/"), done


def test_without_a_home_the_cache_must_be_named(user):
    for unset in ("unset HOME XDG_CACHE_HOME", "unset XDG_CACHE_HOME; HOME=relative"):
        done = user("cd $HOME; mkdir r m; r=$PWD/r; %s\n\"$BIN\" mount $r m" % unset, check=False)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and "cache-dir=DIR" in done.stderr, done
    done = user("cd $HOME; mkdir r m c; r=$PWD/r; c=$PWD/c; unset HOME\n\"$BIN\" mount -o cache-dir=$c $r m; touch m/f; \"$BIN\" umount m; touch m/g\n"
                "\"$BIN\" import -o cache-dir=$c m $r; \"$BIN\" log $r\n")
    assert "000001" in done.stdout and done.stderr == "", done


@pytest.mark.parametrize("home", ["/proc", "/root/nowhere", "closed"])
def test_a_home_that_takes_no_cache(user, home):
    """Nothing is mounted, and one line says which directory, why, and how to choose another."""
    script = "cd $HOME; mkdir r m closed; chmod 555 closed; r=$PWD/r\ncase %s in closed) HOME=$HOME/closed;; *) HOME=%s;; esac\n" % (home, home)
    done = user(script + '"$BIN" mount $r m', check=False)
    assert done.returncode in (1, 4, 5), done
    (line,) = done.stderr.splitlines()
    assert home in line and "/.cache/epochfs" in line and "cache-dir=DIR" in line


def test_an_unwritable_log_is_named(user):
    done = user('cd $HOME; mkdir r m; "$BIN" mount -o log-file=/proc/log $HOME/r m', check=False)
    assert done.returncode == 1 and "/proc/log: cannot open the log file" in done.stderr, done


def test_a_directory_that_cannot_be_listed_is_not_taken_for_an_empty_one(user):
    done = user('cd $HOME; mkdir r m; echo kept > m/model; chmod 300 m; "$BIN" mount r m', check=False)
    assert done.returncode == 1 and "m: what lies there cannot be listed: Permission denied" in done.stderr, done
    done = user('cd $HOME; mkdir r m out; echo x > m/x; "$BIN" import m r; echo kept > out/model; chmod 300 out; "$BIN" export r out', check=False)
    assert done.returncode == 1 and "out: Permission denied" in done.stderr, done


# ---- file systems below the cache


def test_the_cache_on_a_tmpfs(user):
    done = user("mkdir -p $HOME/c; mount -t tmpfs -o size=64m none $HOME/c\n" + COURSE.replace(" mount ", " mount -o cache-dir=$HOME/c,min-free=0 ")
                + "df --output=fstype c | tail -1\n", "unshare", "-Urm")
    assert done.stdout.splitlines()[-2:] == ["saved", "tmpfs"] and done.stderr == "", done


def test_a_nearly_full_disk(user):
    """The whole suite of full disks is root's (test_cache_disk.py); here a user meets one."""
    done = user("""
mkdir -p $HOME/c $HOME/m $HOME/r && cd $HOME
mount -t tmpfs -o size=40m none c
"$BIN" mount -o cache-dir=$HOME/c,settle=100ms,patience=2s $HOME/r m
head -c 1000000 /dev/urandom > m/first
"$BIN" wait m >/dev/null
head -c 64000000 /dev/urandom > m/huge 2>err && echo 'huge went in'
grep -o 'No space left on device' err | head -1
ls m/.epochs/torn
rm -f m/huge
cksum m/first > sum1
head -c 1000000 /dev/urandom > m/second && echo 'second went in'
"$BIN" umount m
"$BIN" export r@current out
cksum out/first | cut -d' ' -f1,2; cut -d' ' -f1,2 sum1; stat -c %s out/second
""", "unshare", "-Urm")
    lines = done.stdout.splitlines()
    # What the save that failed has left gives way to the next one.
    assert lines[:3] == ["No space left on device", "1-huge", "second went in"], done
    assert lines[-1] == "1000000" and lines[-2] == lines[-3], done


def preloaded(**environment):
    if os.environ.get("EPOCHFS_TEST_SAN"):
        pytest.skip("a sanitizer wants to be the first library")
    return {**os.environ, "LD_PRELOAD": STATFS, **environment}


@pytest.mark.parametrize("kind, name", [(NFS, "NFS"), (LUSTRE, "Lustre"), ("0xfe534d42", "SMB"), (TMPFS, None), ("0xef53", None)])
def test_a_cache_on_a_network_is_warned_of(tmp_path, kind, name):
    """Nothing but a line; it names those of the usual places that are there, writable, and local."""
    for folder in ("m", "r", "c", "job", "far"):
        (tmp_path / folder).mkdir()
    environment = preloaded(EPOCHFS_STATFS="%s:%s" % (kind, tmp_path / "c"), SLURM_TMPDIR=str(tmp_path / "job"), TMPDIR=str(tmp_path / "none"))
    options = "min-free=0,cache-dir=%s" % (tmp_path / "c")
    said = run(BIN, "mount", "-o", options, tmp_path / "r", tmp_path / "m", env=environment).stderr
    run(BIN, "umount", tmp_path / "m")
    if not name:
        assert said == ""
        return
    (line,) = said.splitlines()
    assert " lies on %s, a network file system" % name in line and str(tmp_path / "c") in line and "cache-dir" in line
    assert "$SLURM_TMPDIR/epochfs" in line and "$TMPDIR" not in line
    # A place that is no better is not named; an import says the same.
    environment = preloaded(EPOCHFS_STATFS="%s:%s" % (kind, tmp_path), SLURM_TMPDIR=str(tmp_path / "job"), TMPDIR=str(tmp_path / "far"))
    said = run(BIN, "import", "-o", options, tmp_path / "far", tmp_path / "r", env=environment).stderr
    assert "lies on %s" % name in said and "$SLURM_TMPDIR" not in said, said
    assert "such as" in said or os.path.isdir("/local"), said


# ---- mount(8)


def test_umount_and_fusermount3_take_a_user_s_mount_away(user):
    for command in ("umount", "fusermount3 -u", '"$BIN" umount'):
        done = user('cd $HOME; mkdir -p m r; "$BIN" mount $HOME/r m; echo 1 >> m/f; %s m; ! mountpoint -q m; "$BIN" mount $HOME/r m; '
                    'cat m/f; "$BIN" umount m' % command)
        assert done.stdout == "1\n", (command, done)


HIDDEN = """
import ctypes, sys
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody but root looks into it
f = open("m/new", "w")
print("open", flush=True)
sys.stdin.readline()
"""


def test_a_umount_seals_nothing_while_an_unseen_process_writes(user):
    """It is refused each time, and names what is open; the mount knows who has it."""
    done = user("""
cd $HOME; mkdir -p m r in; mkfifo in/go; "$BIN" mount -o settle=1h $HOME/r m
python3 -c '%s' <in/go >out & exec 3>in/go
while ! grep -qs open out; do :; done
for i in 1 2 3; do echo $i >m/f; "$BIN" umount m || echo "exit $?"; done
"$BIN" log --json m
echo go >&3; wait; "$BIN" umount m; ls m
""" % HIDDEN)
    assert done.stdout.splitlines() == ["exit 8"] * 3 + ["[]"], done
    assert done.stderr.count("in use, open for writing: new by python3 (pid ") == 3, done
