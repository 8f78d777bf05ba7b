# SPDX-License-Identifier: Apache-2.0
"""Bad input gets one clear line and the documented exit code, and loses nothing."""

import errno
import json
import os
import shutil
import signal
import subprocess

import pytest

from conftest import BIN, LIMIT, is_mounted, run, wait_until

USAGE, UNREACHABLE, DENIED, NOT_FOUND, DAMAGED, NOT_DURABLE, CONFLICT = 2, 3, 4, 5, 6, 7, 8


def epochfs(*arguments, **keywords):
    return run(BIN, *arguments, check=False, **keywords)


def refused(done, code, *words):
    """The command ended with this code and one line on stderr that has these words."""
    assert done.returncode == code, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("epochfs"), done.stderr
    for word in words:
        assert str(word) in lines[0], lines[0]


@pytest.fixture
def place(tmp_path):
    for name in ("mnt", "remote", "cache"):
        (tmp_path / name).mkdir()
    return tmp_path


def mount(place, *options, remote=None, directory=None):
    words = ["cache-dir=%s" % (place / "cache"), "min-free=0", *options]
    return epochfs("mount", "-o", ",".join(words), place / "remote" if remote is None else remote, directory or place / "mnt")


# ---- the command line


@pytest.mark.parametrize("arguments,word", [
    (["nonsense"], "nonsense"), (["mount"], "REMOTE"), (["log"], "TARGET"), (["commit"], "DIRECTORY"),
    (["log", "--nonsense", "x"], "--nonsense"), (["wait", "--timeout", "soon", "x"], "soon"),
    (["export", "x"], "DIRECTORY"), (["tag", "a", "b"], "NAME"), (["log", "a", "b"], "b"),
])
def test_wrong_usage(arguments, word):
    refused(epochfs(*arguments), USAGE, word)


@pytest.mark.parametrize("option", [
    "nonsense", "settle=soon", "patience=-1s", "cache-size=big", "min-free=100", "full=maybe", "durability=some", "step=(",
    "step=abc", "passthrough=yes", "cache-dir=relative", "epoch=0", "epoch=1", "threads=1000", "log-level=loud", "ro=yes",
])
def test_wrong_options(place, option):
    refused(mount(place, option), USAGE, option.split("=")[0])
    assert not is_mounted(place / "mnt") and os.listdir(place / "remote") == []


def test_wrong_options_in_the_environment(place, monkeypatch):
    monkeypatch.setenv("EPOCHFS_SETTLE", "soon")
    refused(mount(place), USAGE, "EPOCHFS_SETTLE=soon")


def test_help_and_version():
    for command in ("mount", "umount", "status", "log", "show", "diff", "commit", "wait", "rollback", "tag", "rm", "export", "fsck"):
        done = epochfs(command, "--help")
        assert done.returncode == 0 and done.stdout.startswith("usage: epochfs " + command), done
        assert command in epochfs("--help").stdout
    assert epochfs("version").stdout.startswith("epochfs ")


# ---- remotes


def test_a_remote_that_is_not_a_volume(place):
    (place / "remote" / "thesis.tex").write_text("years of work")
    refused(mount(place), DAMAGED, "not an epochfs volume", "thesis.tex")
    assert os.listdir(place / "remote") == ["thesis.tex"]


def test_a_volume_of_a_newer_format(place):
    assert mount(place).returncode == 0
    assert epochfs("umount", place / "mnt").returncode == 0
    info = json.loads((place / "remote" / "epochfs.json").read_text())
    info["format"] = 99
    (place / "remote" / "epochfs.json").write_text(json.dumps(info))
    done = mount(place)
    assert done.returncode == 1
    assert "newer" in done.stderr and "upgrade" in done.stderr
    assert epochfs("log", place / "remote").returncode == 1


@pytest.mark.parametrize("remote,code", [
    ("/proc/nowhere/at/all", NOT_FOUND), ("ftp://host/x", USAGE), ("file://relative", USAGE), ("", USAGE), ("relative", NOT_FOUND),
])
def test_remotes_that_are_none(place, remote, code):
    done = mount(place, remote=remote)
    assert done.returncode == code and len(done.stderr.strip().splitlines()) == 1, done


def test_a_remote_that_is_a_file(place):
    (place / "file").write_text("x")
    done = mount(place, remote=place / "file")
    assert done.returncode == USAGE and "directory" in done.stderr.lower(), done


def test_a_remote_without_write_permission(place):
    refused(mount(place, remote="fault+file://%s?put.denied=1" % (place / "remote")), DENIED)


def test_a_remote_that_cannot_be_reached(place):
    refused(mount(place, remote="fault+file://%s?down=1" % (place / "remote")), UNREACHABLE)


def test_foreign_and_damaged_files_in_a_remote(mnt):
    (mnt.path / "model").write_bytes(os.urandom(100000))
    first = mnt.seal()
    (mnt.path / "model").write_bytes(os.urandom(100000))
    second = mnt.seal()
    mnt.wait_durable()
    content = (mnt.path / "model").read_bytes()
    (mnt.remote / "tags").mkdir()
    for name in ("README", "epochs/notes.txt", "epochs/00000000000000000007.json", "packs/zz", "index/junk", "tags/.hidden", "tags/x_zz"):
        (mnt.remote / name).write_text("this is not epochfs's\n")
    (mnt.remote / ("epochs/%020d.json" % first)).write_text("{\"damaged\":")
    mnt.remount(empty_cache=True)
    assert (mnt.path / "model").read_bytes() == content
    assert mnt.epochs() == [second]
    (mnt.path / "model").write_bytes(b"goes on")
    assert mnt.seal() > 7
    mnt.wait_durable()


# ---- mount points


def test_a_mount_point_that_is_no_directory(place):
    (place / "file").write_text("x")
    refused(mount(place, directory=place / "file"), USAGE, "not a directory")
    refused(mount(place, directory=place / "missing" / "deeper"), NOT_FOUND, "missing")


def test_a_mount_point_that_is_not_empty(place):
    (place / "mnt" / "old-checkpoint").write_text("x")
    refused(mount(place), CONFLICT, "not empty")
    assert mount(place, "nonempty").returncode == 0
    assert os.listdir(place / "mnt") == []
    assert epochfs("umount", place / "mnt").returncode == 0
    assert os.listdir(place / "mnt") == ["old-checkpoint"]


def test_a_mount_point_in_use(mnt, place):
    refused(mount(place, directory=mnt.path), CONFLICT, "mounted there already")


def test_a_remote_inside_the_mount_point(place):
    (place / "mnt" / "remote").mkdir()
    refused(mount(place, "nonempty", remote=place / "mnt" / "remote"), USAGE, "inside each other")


@pytest.mark.parametrize("option", ["cache-dir", "log-file", "catalog", "cache-dir by the environment"])
@pytest.mark.parametrize("inside", ["there", "missing/deeper", "", "by a link", "by a link to nothing yet", "by two links to nothing yet"])
def test_what_the_mount_needs_inside_the_mount_point(place, option, inside):
    """It would wait for itself: refused before anything is made."""
    (place / "link").symlink_to(place / "mnt")
    (place / "one").symlink_to(place / "mnt" / "new")
    (place / "two").symlink_to("one")
    links = {"by a link": "link/x", "by a link to nothing yet": "one", "by two links to nothing yet": "two/deeper"}
    target = place / links[inside] if inside in links else place / "mnt" / inside
    if inside == "there":
        target.mkdir()
    if " " in option:
        done = subprocess.run([BIN, "mount", "-o", "nonempty", place / "remote", place / "mnt"], capture_output=True, text=True, check=False,
                              timeout=LIMIT, env={**os.environ, "EPOCHFS_CACHE_DIR": str(target)})
    else:
        done = mount(place, "nonempty,%s=%s" % (option, target))
    refused(done, USAGE, "would wait for itself")
    assert os.listdir(place / "mnt") == (["there"] if inside == "there" else [])


@pytest.mark.parametrize("url", ["%s", "file://%s", "file:%s", "file://localhost%s", "fault+file://%s?put.delay=1ms", "fault+fault+%s?put.delay=1ms"])
def test_a_remote_that_would_be_made_inside_the_mount_point(place, url):
    refused(mount(place, remote=url % (place / "mnt" / "new" / "remote")), USAGE, "inside each other")
    assert os.listdir(place / "mnt") == []


@pytest.mark.parametrize("what", ["cache", "remote"])
def test_what_the_mount_needs_inside_the_mount_point_by_a_bind(place, what):
    """Where mounts are shared, as systemd has them, what is mounted there is at the other name, too."""
    if os.geteuid():
        pytest.skip("only root may do that: bind mounts")
    for name in ("a", "a/mnt", "b"):
        (place / name).mkdir()
    cache, remote = ("b/mnt/c", "remote") if what == "cache" else ("cache", "b/mnt/r")
    script = 'mount --bind a a; mount --make-shared a; mount --bind a b; exec timeout -k 1 20 "$@"'
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-ec", script, "sh", BIN, "mount", "-o", "min-free=0,cache-dir=%s" % (place / cache),
                           place / remote, place / "a" / "mnt"], cwd=place, capture_output=True, text=True, check=False, timeout=LIMIT)
    refused(done, USAGE, "would wait for itself" if what == "cache" else "inside each other")


def test_a_remote_inside_the_mount_point_by_an_encoded_name(place):
    refused(mount(place, remote="file://%s/%%6dnt/remote" % place), USAGE, "inside each other")
    assert os.listdir(place / "mnt") == []


def test_a_cache_in_use_by_another_mount(mnt, place):
    done = epochfs("mount", "-o", "cache-dir=%s" % mnt.cache, mnt.remote, place / "mnt")
    refused(done, CONFLICT, str(mnt.pid))
    assert not is_mounted(place / "mnt")


def test_a_dead_mount_is_taken_away_first(volume):
    volume.mount()
    (volume.path / "model").write_bytes(b"closed")
    volume.process.kill()
    volume.process.wait()
    volume.process = None
    with pytest.raises(OSError) as failure:
        os.listdir(volume.path)
    assert failure.value.errno == errno.ENOTCONN
    done = epochfs("status", volume.path)
    assert done.returncode == 1 and "mount it again" in done.stderr
    done = epochfs("mount", "-o", "cache-dir=%s" % volume.cache, volume.url, volume.path)
    assert done.returncode == 0, done.stderr
    assert (volume.path / "model").read_bytes() == b"closed"
    assert epochfs("umount", volume.path).returncode == 0


def test_commands_that_need_a_mount(place):
    for command in (["commit"], ["wait"], ["rollback", "1"], ["rm", "1"]):
        refused(epochfs(command[0], place / "mnt", *command[1:]), NOT_FOUND, "mount")
    refused(epochfs("umount", place / "mnt"), NOT_FOUND)


# ---- epochs and tags


def test_epochs_and_tags_that_are_not_there(mnt):
    (mnt.path / "a").write_bytes(b"a")
    number = mnt.seal()
    refused(epochfs("rollback", mnt.path, "99"), NOT_FOUND, "99")
    refused(epochfs("show", mnt.path, "best"), NOT_FOUND, "best")
    refused(epochfs("show", mnt.path, "step=5"), NOT_FOUND)
    refused(epochfs("tag", "-d", mnt.path, "best"), NOT_FOUND, "best")
    refused(epochfs("tag", mnt.path, str(number), "latest"), USAGE, "latest")
    refused(epochfs("rm", mnt.path, str(number)), CONFLICT)
    assert epochfs("tag", mnt.path, str(number), "best").returncode == 0
    refused(epochfs("commit", "--tag", "best", mnt.path), CONFLICT, "best")
    mnt.wait_durable()
    refused(epochfs("export", "%s@99" % mnt.remote, mnt.base / "out"), NOT_FOUND)
    refused(epochfs("export", "%s@latest:no/such" % mnt.remote, mnt.base / "out2"), NOT_FOUND, "no/such")


# ---- names


@pytest.mark.parametrize("name", [b"x" * 255, b"\xff\xfe invalid utf-8", b"new\nline", b"\x01", b" leading", b"-rf", b"*?["])
def test_any_name_that_linux_allows(mnt, name):
    path = os.fsencode(mnt.path) + b"/" + name
    with open(path, "wb") as f:
        f.write(b"content" * 1000)
    number = mnt.seal()
    assert os.listdir(os.fsencode(mnt.epoch(number))) == [name]
    mnt.remount(empty_cache=True)
    with open(path, "rb") as f:
        assert f.read() == b"content" * 1000
    assert epochfs("show", mnt.path).returncode == 0
    assert epochfs("export", mnt.remote, mnt.base / "out").returncode == 0
    assert os.listdir(os.fsencode(mnt.base / "out")) == [name]


def test_a_name_that_is_too_long(mnt):
    with pytest.raises(OSError) as failure:
        (mnt.path / ("x" * 256)).write_bytes(b"")
    assert failure.value.errno == errno.ENAMETOOLONG


# ---- a full disk


@pytest.mark.parametrize("full", ["error", "wait"])
def test_a_full_cache_says_so_to_the_writer(volume, tmp_path, full):
    """The cache is a file system of its own, of 16 MiB, and the remote is away, so that nothing can be evicted."""
    if os.geteuid():
        pytest.skip("mounting a tmpfs needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", volume.cache], check=True)
    try:
        volume.url = "fault+file://%s?control=%s" % (volume.remote, tmp_path / "faults")
        volume.mount(full=full, patience="300ms", settle="1h")
        (volume.path / "small").write_bytes(b"kept" * 1000)
        (tmp_path / "faults").write_text("down=1")
        with pytest.raises(OSError) as failure:
            for i in range(100):
                (volume.path / ("big%d" % i)).write_bytes(os.urandom(1 << 20))
        assert failure.value.errno == errno.ENOSPC
        assert (volume.path / "small").read_bytes() == b"kept" * 1000
        for name in os.listdir(volume.path):
            if name != "small":
                os.unlink(volume.path / name)
        (volume.path / "after").write_bytes(b"room again")
        os.unlink(tmp_path / "faults")
        volume.wait_durable()
        volume.unmount()
    finally:
        volume.clean_up()
        subprocess.run(["umount", "-l", volume.cache], check=True)
    shutil.rmtree(volume.cache)
    volume.cache.mkdir()
    volume.url = "file://%s" % volume.remote
    volume.mount()
    assert (volume.path / "small").read_bytes() == b"kept" * 1000
    assert (volume.path / "after").read_bytes() == b"room again"


@pytest.mark.parametrize("name,meant", [("EPOCHFS_SETLE", "settle"), ("EPOCHFS_CACHEDIR", "cache-dir"), ("EPOCHFS_PASSWORD_FILE", "passphrase-file"), ("EPOCHFS_UPLOADLIMITS", "upload-limit"),
                                        ("EPOCHFS_KEY", "key-file"), ("EPOCHFS_PASSPHRASE", "passphrase-file"), ("EPOCHFS_cache-dir", "cache-dir"),
                                        ("EPOCHFS_CACHE_DIRECTORY", "cache-dir"), ("EPOCHFS_settle", "settle"), ("EPOCHFS_GRACE_TIME", "grace"),
                                        ("EPOCHFS_STEP_REGEX", "step")])
def test_a_misspelt_option_in_the_environment_is_told(place, name, meant):
    done = epochfs("mount", "-o", "min-free=0,cache-dir=%s" % (place / "cache"), place / "remote", place / "mnt", env={**os.environ, name: "1h"})
    assert epochfs("umount", place / "mnt").returncode == 0
    assert done.stderr == "epochfs: environment %s is no option and is ignored: is %s meant?\n" % (name, meant)


@pytest.mark.parametrize("name", ["ro", "allow_other", "take-over", "nonempty", "noexec"])
def test_an_option_that_the_environment_does_not_give_is_told(place, name):
    """Who believes that a mount is read-only must not find that it writes."""
    variable = "EPOCHFS_%s" % name.upper().replace("-", "_")
    done = epochfs("mount", "-o", "min-free=0,cache-dir=%s" % (place / "cache"), place / "remote", place / "mnt", env={**os.environ, variable: "1"})
    assert epochfs("umount", place / "mnt").returncode == 0
    assert done.stderr == "epochfs: environment %s is ignored: %s is given with -o alone\n" % (variable, name)


@pytest.mark.parametrize("name", ["EPOCHFS_DAV_USERNAME", "EPOCHFS_DAV_PASS", "EPOCHFS_DAV_PASSWORDFILE", "EPOCHFS_dav_user"])
def test_a_misspelt_variable_of_webdav_is_told(place, name):
    done = epochfs("log", place / "remote", env={**os.environ, name: "x", "EPOCHFS_DAV_USER": "x", "EPOCHFS_DAV_PASSWORD": "x", "EPOCHFS_DAV_PASSWORD_FILE": "x"})
    assert [line.split(":")[1] for line in done.stderr.splitlines() if "environment" in line] == [" environment %s is ignored" % name]


def test_a_misspelt_option_is_told_by_commands_on_a_remote(mnt):
    (mnt.path / "f").write_text("1")
    mnt.wait_durable()
    done = epochfs("log", mnt.remote, env={**os.environ, "EPOCHFS_UPLOADLIMITS": "1", "EPOCHFS_SETLE": "1"})
    assert sorted(done.stderr.splitlines()) == ["epochfs: environment %s is no option and is ignored: is %s meant?" % pair for pair in (
        ("EPOCHFS_SETLE", "settle"), ("EPOCHFS_UPLOADLIMITS", "upload-limit"))]


def test_an_export_that_restores_nothing_leaves_nothing(mnt, tmp_path):
    (mnt.path / "f").write_text("1")
    mnt.wait_durable()
    (tmp_path / "there").mkdir()
    for folder in ("there", "there/new", "new/a/b"):
        assert epochfs("export", "%s@latest:none" % mnt.remote, tmp_path / folder).returncode == 5
    assert os.listdir(tmp_path / "there") == [] and not (tmp_path / "new").exists()


def test_a_relative_directory_with_a_path_is_exported(mnt, tmp_path):
    (mnt.path / "f").write_text("1")
    mnt.wait_durable()
    for i, target in enumerate((mnt.path.name, "./" + mnt.path.name)):
        done = epochfs("export", "%s:f" % target, tmp_path / str(i), cwd=mnt.path.parent)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / str(i) / "f").read_text() == "1"


def test_a_path_without_an_epoch_is_exported(mnt, tmp_path):
    (mnt.path / "d").mkdir()
    (mnt.path / "d" / "model.pt").write_text("1")
    mnt.wait_durable()
    for i, target in enumerate((mnt.remote, "file://%s" % mnt.remote, mnt.path)):
        done = epochfs("export", "%s:d/model.pt" % target, tmp_path / str(i))
        assert done.returncode == 0, done.stderr
        assert [p.read_text() for p in (tmp_path / str(i)).rglob("model.pt")] == ["1"]
    # A directory's own ':' stays what it is.
    (tmp_path / "a:b").symlink_to(mnt.remote)
    assert epochfs("export", tmp_path / "a:b", tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "d" / "model.pt").read_text() == "1"


def test_a_relative_path_is_a_target_too(mnt):
    (mnt.path / "f").write_text("1")
    mnt.wait_durable()
    assert '"path": "f"' in epochfs("show", "--json", "remote", cwd=mnt.base).stdout
    mnt.unmount()
    refused(epochfs("log", "mnt", cwd=mnt.base), NOT_FOUND, "%s holds no volume" % mnt.path, "a mount point")
    refused(epochfs("log", "./gone", cwd=mnt.base), NOT_FOUND, "./gone", "neither a mount point")


# What a command on a remote says at its end, and its exit code.
ON_REMOTES = [
    (["fsck", "remote"], 0, "no damage"), (["fsck", "--repair", "remote"], 0, "0 gone"), (["gc", "remote"], 0, "freed 0 B"),
    (["gc", "fault+{}/remote"], 0, "freed 0 B"), (["key", "list", "remote"], USAGE, "is not encrypted"), (["check", "--size", "1M", "remote"], 0, "download: "),
    (["import", "other", "remote"], 0, "epoch 000002 imported"), (["import", "--remove", "f", "remote"], 0, "without f"),
    (["import", "remote", "remote/in"], NOT_FOUND, "nor a directory here"), (["check", "away"], NOT_FOUND, "nor a directory here"),
    (["prune", "--gc", "--keep", "last:1", "remote"], 0, "1 epoch needs"), (["run", "--mount", "remote:mnt", "--", "ls", "mnt"], 0, "f\n"),
    (["run", "--mount", "away:mnt", "--", "true"], NOT_FOUND, "nor a directory here"),
]


@pytest.mark.parametrize("words,code,said", ON_REMOTES, ids=lambda v: "-".join(v[:2]) if isinstance(v, list) else None)
def test_a_relative_path_is_a_remote_too(mnt, words, code, said):
    (mnt.path / "f").write_text("1")
    mnt.wait_durable()
    mnt.unmount()
    (mnt.base / "other").mkdir()
    environment = {**os.environ, "EPOCHFS_CACHE_DIR": str(mnt.base / "cache"), "EPOCHFS_MIN_FREE": "0"}
    done = epochfs(*[word.format(mnt.base) for word in words], cwd=mnt.base, env=environment)
    assert done.returncode == code and said in done.stdout + done.stderr, done


@pytest.mark.parametrize("options", [[], ["-o", "supervise"]], ids=["plain", "supervised"])
def test_a_relative_path_is_mounted(place, options):
    """What serves stands elsewhere; a worker after the first, too."""
    def status():
        done = epochfs("status", "--json", "mnt", cwd=place)
        return json.loads(done.stdout) if done.returncode == 0 else None

    done = epochfs("mount", "-o", "min-free=0,cache-dir=%s" % (place / "cache"), *options, "remote", "mnt", cwd=place)
    assert done.returncode == 0, done
    (place / "mnt" / "f").write_text("1")
    assert status()["remote_url"] == str(place / "remote")
    if options:
        os.kill(status()["pid"], signal.SIGKILL)
        wait_until(status, "the next worker")
    assert epochfs("umount", place / "mnt").returncode == 0
    assert [e["state"] for e in json.loads(epochfs("log", "--json", place / "remote").stdout)] == ["durable"]
