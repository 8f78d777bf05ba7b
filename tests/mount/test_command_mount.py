# SPDX-License-Identifier: Apache-2.0
"""epochfs mount and umount, mount(8), and what the papers say of their options."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import papers
import pytest

from conftest import ALONE, BIN, LIMIT, is_mounted, need_root, run, wait_until
from test_command import CONFLICT, DONE, FAILED, NOT_FOUND, USAGE, epochfs, parsed

REPO = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def passthrough():
    return "auto"


class Place:
    """A remote, a cache and a mount point for mounts in the background."""

    def __init__(self, base):
        self.mnt, self.remote, self.cache = base / "mnt", base / "remote", base / "cache"
        for folder in (self.mnt, self.remote, self.cache):
            folder.mkdir()

    def mount(self, *arguments, code=DONE, options="min-free=0", **keywords):
        return epochfs("mount", "-o", "cache-dir=%s,%s" % (self.cache, options), *arguments, self.remote, self.mnt, code=code, **keywords)

    def status(self):
        return parsed("status", "--json", self.mnt)

    def umount(self):
        epochfs("umount", self.mnt)


@pytest.fixture
def place(tmp_path):
    made = Place(tmp_path)
    yield made
    if is_mounted(made.mnt):
        run(BIN, "umount", "--no-drain", made.mnt, check=False)
    if is_mounted(made.mnt):
        run("umount", "-l", made.mnt, check=False)


def has_ended(pid):
    """Also where nobody has asked for its exit code yet."""
    try:
        return pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


# ---- mount and umount


def test_mount_returns_once_it_serves(place):
    assert place.mount() == ""
    # No wait: what follows in the script finds the volume.
    assert is_mounted(place.mnt)
    (place.mnt / "f").write_text("x")
    status = place.status()
    pid = status["pid"]
    assert os.getsid(pid) == pid and os.readlink("/proc/%d/cwd" % pid) == "/"
    # It holds neither the terminal nor a pipe of the one that started it.
    for fd in (0, 1):
        assert os.readlink("/proc/%d/fd/%d" % (pid, fd)) == "/dev/null"
    assert os.readlink("/proc/%d/fd/2" % pid) == str(place.cache / status["uuid"] / "log")
    place.umount()
    assert not is_mounted(place.mnt) and has_ended(pid)
    assert len(json.loads(epochfs("log", "--json", place.remote))) == 1
    # So the next mount finds the cache free at once.
    place.mount()
    assert (place.mnt / "f").read_text() == "x"
    place.umount()


def test_a_mount_that_fails_says_so_and_leaves_nothing(place):
    said = place.mount(options="min-free=0,passthrough=maybe", code=USAGE)
    assert "passthrough=maybe" in said
    (place.remote / "other").write_text("x")
    assert "not an epochfs volume" in place.mount(code=6)
    assert not is_mounted(place.mnt) and os.listdir(place.mnt) == []


def test_mount_in_the_foreground(place):
    served = subprocess.Popen([BIN, "mount", "-f", "-o", "min-free=0,cache-dir=%s" % place.cache, place.remote, place.mnt],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: is_mounted(place.mnt), "the mount")
    (place.mnt / "f").write_text("x")
    assert place.status()["pid"] == served.pid
    place.umount()
    out, err = served.communicate(timeout=LIMIT)
    assert served.returncode == 0 and out == "" and "epoch 1 sealed" in err  # the log is on stderr


def test_umount(place):
    place.mount(options="min-free=0,settle=1h")
    (place.mnt / "f").write_text("x")
    with open(place.mnt / "f"):
        assert "in use by python3 (process %d, f)" % os.getpid() in epochfs("umount", place.mnt, code=CONFLICT)
    assert (place.mnt / "f").read_text() == "x"  # still there
    place.umount()
    assert (place.remote / "epochs" / ("%020d.json" % 1)).exists()
    assert "no volume is mounted" in epochfs("umount", place.mnt, code=NOT_FOUND)


def test_umount_of_a_mount_that_another_pid_namespace_serves(volume):
    """As of a sidecar container: its process 1 is not ours, and nobody waits for that one to end."""
    if os.geteuid():
        pytest.skip("a process namespace needs root")
    with open(volume.log, "ab") as log:
        served = subprocess.Popen(["unshare", "--pid", "--fork", *volume.command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    wait_until(lambda: is_mounted(volume.path) or served.poll() is not None, "the mount")
    (volume.path / "f").write_text("1")
    assert volume.status()["pid"] == 1
    epochfs("umount", volume.path)
    assert not is_mounted(volume.path)
    assert served.wait(timeout=LIMIT) == 0


def test_a_mount_that_another_mount_namespace_holds(place):
    """status and umount name a process of it: without them, the daemon is there for ever, and nobody knows why."""
    if os.geteuid():
        pytest.skip("a mount namespace needs root")
    place.mount()
    before = place.status()
    other = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo there; exec cat"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "there\n"
        assert other.pid in place.status()["held_elsewhere_by_pids"]
        assert "%d" % other.pid in epochfs("status", place.mnt)
        said = epochfs("umount", place.mnt, code=CONFLICT)
        assert str(other.pid) in said and "still mounted" in said and not is_mounted(place.mnt)
        assert os.path.exists("/proc/%d" % before["pid"])
        for command in ("status", "wait", "umount"):
            told = epochfs(command, place.mnt, code=NOT_FOUND)
            assert re.search(r"no volume.*a volume is mounted at that path in the mount namespaces of processes (\d+, )*%d\b" % other.pid, told), told
        done = run(BIN, "mount", "-o", "cache-dir=%s" % place.cache, place.remote, place.mnt, check=False)
        assert done.returncode == CONFLICT
        assert re.search(r"\(process %d, still mounted in .*\b%d\b.*\)" % (before["pid"], other.pid), done.stderr), done.stderr
    finally:
        other.communicate("")
    wait_until(lambda: not os.path.exists("/proc/%d" % before["pid"]), "the end of the daemon")
    told = epochfs("status", place.mnt, code=NOT_FOUND)
    assert "no volume" in told and "namespaces" not in told


def ticks(pid):
    """The processor's time that it had, in clock ticks."""
    words = pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


def type_at(path):
    """Of the file system that is seen there."""
    return run("findmnt", "-no", "FSTYPE", "--mountpoint", path, check=False).stdout.split()[-1:]


def test_a_signalled_daemon_whose_mount_another_namespace_holds_is_quiet(place):
    """It has unmounted once: it neither tries again and again, nor takes away what is mounted below."""
    need_root("make a mount namespace")
    run("mount", "-t", "tmpfs", "below", place.mnt)
    try:
        place.mount(options="min-free=0,nonempty,grace=1s")
        pid = place.status()["pid"]
        other = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", "echo there; exec cat"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert other.stdout.readline() == "there\n"
            os.kill(pid, signal.SIGTERM)
            wait_until(lambda: type_at(place.mnt) == ["tmpfs"], "the unmount")
            before, looks = ticks(pid), 0
            until = time.monotonic() + 3
            while time.monotonic() < until:
                assert type_at(place.mnt) == ["tmpfs"]
                looks += 1
            assert looks and ticks(pid) - before < os.sysconf("SC_CLK_TCK")  # a third of what spinning takes
        finally:
            other.communicate("")
        wait_until(lambda: has_ended(pid), "the end of the daemon")
        assert type_at(place.mnt) == ["tmpfs"]
    finally:
        run("umount", place.mnt, check=False)


def test_who_is_in_what_the_mount_covers_does_not_keep_it(place):
    (place.mnt / "covered").write_text("below")
    with open(place.mnt / "covered") as below:
        inside = subprocess.Popen(["sh", "-c", "echo there; exec cat"], cwd=place.mnt, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert inside.stdout.readline() == "there\n"
        try:
            place.mount(options="min-free=0,nonempty")
            place.umount()
        finally:
            inside.communicate("")
        assert not is_mounted(place.mnt) and below.read() == "below"


def test_a_mount_that_gets_the_number_of_one_that_ends(place, make_volume):
    """The kernel gives the number of a device to the next mount while the daemon of the one before is still ending: that is no copy."""
    place.mount(options="min-free=0,settle=1h,on-epoch=sleep 30")
    (place.mnt / "f").write_text("x")
    device, pid = os.stat(place.mnt).st_dev, place.status()["pid"]
    umount = subprocess.Popen([BIN, "umount", "--no-drain", place.mnt], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: not is_mounted(place.mnt), "the unmount")
    others = []
    # Other tests of this moment mount, too: they may be quicker.
    while len(others) < 20 and not any(os.stat(v.path).st_dev == device for v in others):
        others.append(make_volume(settle="1h", min_free="0").mount())
    if not any(os.stat(v.path).st_dev == device for v in others):
        pytest.skip("another mount has the number")
    assert os.path.exists("/proc/%d" % pid)  # it waits for the program
    _, said = umount.communicate(timeout=LIMIT)
    assert umount.returncode == 0 and said == "", said


def test_umount_without_the_upload(place):
    control = place.cache / "weather"
    epochfs("mount", "-o", "settle=1h,min-free=0,cache-dir=%s" % place.cache, "fault+file://%s?control=%s" % (place.remote, control), place.mnt)
    (place.mnt / "f").write_text("x")
    control.write_text("put.down=1")
    epochfs("umount", "--no-drain", place.mnt)
    assert os.listdir(place.remote / "epochs") == [] if (place.remote / "epochs").exists() else True
    place.mount()
    epochfs("wait", place.mnt)
    assert (place.remote / "epochs" / ("%020d.json" % 1)).exists()


def test_a_read_only_mount_of_one_epoch(place):
    place.mount(options="min-free=0,settle=1h")
    for text in "12":
        (place.mnt / "f").write_text(text)
        epochfs("commit", place.mnt)
    place.umount()
    assert "ro" in place.mount(options="min-free=0,epoch=1", code=USAGE)
    place.mount(options="min-free=0,ro,epoch=1")
    assert (place.mnt / "f").read_text() == "1" and place.status()["read_only"] is True
    with pytest.raises(OSError):
        (place.mnt / "g").touch()
    for command in (["commit"], ["rollback", "2"], ["rm", "1"]):
        assert "read-only" in epochfs(command[0], place.mnt, *command[1:], code=4)
    place.umount()
    epochfs("mount", "-o", "ro,epoch=9,min-free=0,cache-dir=%s" % place.cache, place.remote, place.mnt, code=NOT_FOUND)


# ---- options


def test_the_command_line_wins_over_the_environment(place, tmp_path, monkeypatch):
    monkeypatch.setenv("EPOCHFS_NODE", "of-the-environment")
    monkeypatch.setenv("EPOCHFS_RUN_ID", "of-the-environment")
    monkeypatch.setenv("EPOCHFS_CACHE_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("EPOCHFS_MIN_FREE", "0")
    monkeypatch.setenv("EPOCHFS_SETTLE", "1h")
    monkeypatch.setenv("EPOCHFS_MESSAGE", "")  # as if it were not set
    place.mount(options="node=of-the-line")
    (place.mnt / "f").touch()
    epochfs("commit", place.mnt)
    place.umount()
    first = parsed("log", "--json", place.remote)[0]
    assert first["host"] == "of-the-line" and first["run_id"] == "of-the-environment" and "message" not in first
    assert os.listdir(place.cache) and not (tmp_path / "elsewhere").exists()


def test_several_options(place):
    """By commas and by several -o; the later wins; a comma inside a value has a backslash."""
    epochfs("mount", "-onode=a,settle=1h", "-o", "min-free=0%", place.remote, place.mnt, "-o",
            r"node=b,message=one\, two,cache-dir=%s,marker=*.done,marker=\,x" % place.cache)
    (place.mnt / "model").touch()
    (place.mnt / ",x").touch()
    wait_until(lambda: parsed("log", "--json", place.mnt), "the marker's epoch")
    first = parsed("log", "--json", place.mnt)[0]
    assert (first["trigger"], first["host"], first["message"]) == ("marker", "b", "one, two")


@pytest.mark.parametrize("size,bytes_", [("64M", 64 << 20), ("1G", 1 << 30), ("2048K", 2 << 20), ("1T", 1 << 40), ("1000000", 1000000)])
def test_sizes(place, size, bytes_):
    place.mount(options="min-free=0,cache-size=" + size)
    assert place.status()["cache"]["limit_bytes"] == bytes_


@pytest.mark.parametrize("time,ns", [("90s", 90 * 10**9), ("2m", 120 * 10**9), ("1h", 3600 * 10**9), ("1d", 86400 * 10**9), ("100000ms", 10**11)])
def test_times(place, time, ns):
    place.mount(options="min-free=0,settle=" + time)
    (place.mnt / "f").touch()
    held = place.status()["pending"]["held_up"]
    assert held["by"] == "waiting for quiet" and ns - LIMIT * 10**9 < held["for_ns"] <= ns


def test_a_log_file(place, tmp_path):
    place.mount(options="min-free=0,log-level=debug,log-file=%s" % (tmp_path / "log"))
    (place.mnt / "f").touch()
    place.umount()
    assert "epoch 1 sealed" in (tmp_path / "log").read_text()
    assert "relative" in place.mount(options="log-file=relative", code=USAGE)
    assert "cannot open" in place.mount(options="min-free=0,log-file=%s" % (tmp_path / "missing" / "log"), code=FAILED)
    assert not is_mounted(place.mnt)


# ---- mount(8) and fstab


@pytest.fixture
def sbin(tmp_path):
    """Runs a shell script where /sbin/mount.epochfs and the program are installed, for this script only."""
    if os.geteuid():
        pytest.skip("needs root, for a mount namespace of its own")
    run("make", "-C", REPO, "-o", "all", "O=" + os.path.dirname(os.environ["EPOCHFS_INSTALLED"]), "DESTDIR=%s" % (tmp_path / "root"), "install")
    installed = tmp_path / "root"
    (tmp_path / "run").mkdir()

    def script(text):
        (tmp_path / "script").write_text(
            "set -e\n"
            "mount -t overlay -o lowerdir=%s:%s overlay %s\n" % (installed / "sbin", os.path.realpath("/sbin"), os.path.realpath("/sbin"))
            + "mount -t overlay -o lowerdir=%s:/usr/local/bin overlay /usr/local/bin\n" % (installed / "usr/local/bin")
            + "cd %s\n" % (tmp_path / "run") + text)
        return run("unshare", "--mount", ALONE, "sh", tmp_path / "script", check=False)

    probe = script("true")
    if probe.returncode:
        pytest.skip("no overlay in a mount namespace here: %s" % probe.stderr.strip())
    return script


def test_remount(sbin, place):
    """ro and rw by the kernel's flag, an option that it has changes nothing, and any other is refused by name."""
    done = sbin("m=%s\n" % place.mnt + "mount -t epochfs -o cache-dir=%s,settle=1h,min-free=0 %s $m\n" % (place.cache, place.remote) +
                "touch $m/one; mount -o remount,ro $m\n"
                "findmnt -no VFS-OPTIONS $m; touch $m/two 2>/dev/null && echo written\n"
                "mount -o remount,rw,settle=1h,cache-dir=%s $m; findmnt -no VFS-OPTIONS $m; touch $m/three\n" % place.cache +
                "mount -o remount,settle=9s $m || echo refused $?\n"
                "ls $m; for word in noexec noatime exec suid relatime; do mount -o remount,$word $m; findmnt -no VFS-OPTIONS $m; done; umount $m\n")
    lines = done.stdout.split()
    flags = [set(line.split(",")) for line in lines if "nodev" in line]
    assert [sorted(f & {"ro", "rw"}) for f in flags] == [["ro"]] + 6 * [["rw"]], done
    assert ["nosuid" in f for f in flags] == 5 * [True] + 2 * [False], done
    assert ["noexec" in f for f in flags[2:]] == [True, True, False, False, False], done
    assert ["noatime" in f for f in flags[2:]] == [False, True, True, True, False], done
    assert "written" not in lines and "refused" in lines and lines[-7:-5] == ["one", "three"], done
    assert "settle=9s cannot be changed while it is mounted" in done.stderr, done


@pytest.mark.parametrize("kind", ["epochfs", "fuse.epochfs"])
def test_mount_of_type_epochfs(place, sbin, kind):
    done = sbin("""
mount -t %(kind)s -o cache-dir=%(cache)s,min-free=0,settle=1h,noexec %(remote)s %(mnt)s
findmnt -no FSTYPE,OPTIONS %(mnt)s
echo saved > %(mnt)s/f
epochfs umount %(mnt)s
mount -t %(kind)s -o cache-dir=%(cache)s,min-free=0,ro %(remote)s %(mnt)s
cat %(mnt)s/f
! touch %(mnt)s/g
epochfs umount %(mnt)s
""" % {"kind": kind, **vars(place)})
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert lines[0].split()[0] == "fuse.epochfs" and {"rw", "noexec", "nosuid", "nodev"} <= set(lines[0].split()[1].split(","))
    assert lines[1] == "saved"


@pytest.mark.parametrize("kind", ["epochfs", "fuse.epochfs"])
def test_mount_by_fstab(place, sbin, tmp_path, kind):
    (tmp_path / "fstab").write_text(
        r"%(remote)s %(mnt)s %(kind)s cache-dir=%(cache)s,min-free=0,settle=1h,marker=a\,b,_netdev,noauto,nofail,noatime,user,exec,x-systemd.automount 0 0"
        % {"kind": kind, **vars(place)} + "\n")
    done = sbin("mount --fstab %s %s\ntouch %s/f\nepochfs umount %s\n" % (tmp_path / "fstab", place.mnt, place.mnt, place.mnt))
    assert done.returncode == 0, done
    assert parsed("log", "--json", place.remote)[0]["files"] == 1


def test_mount_of_type_epochfs_that_fails(place, sbin):
    done = sbin("""
set +e
mount -t epochfs -o nonsense %(remote)s %(mnt)s; echo $?
mount -t epochfs -o cache-dir=%(cache)s,min-free=0 gopher://x %(mnt)s; echo $?
mount -f -t epochfs -o cache-dir=%(cache)s %(remote)s %(mnt)s; echo $?
mount.epochfs; echo $?
findmnt %(mnt)s; echo $?
""" % vars(place))
    assert done.stdout.split() == ["1", "1", "0", "1", "1"], done
    assert "unknown option 'nonsense'" in done.stderr and "gopher" in done.stderr and "usage: mount.epochfs" in done.stderr


# ---- the papers agree


def test_help_of_a_mount_says_what_each_option_means():
    rows = json.loads(epochfs("help", "--json"))["mount_options"]
    text = " ".join(epochfs("mount", "--help-all").split())
    known = [row for row in rows if "value" in row]
    assert len(known) > 20 and {"name": "_netdev", "environment": False} in rows
    for row in known:
        default = " (default: %s)" % row["default"] if "default" in row else ""
        assert " %s%s %s%s" % (row["name"], "=" + row["value"] if row["value"] else "", row["help"], default) in text, row
    # What people use fits on a screen.
    assert len(epochfs("mount", "--help").splitlines()) <= 40


@pytest.mark.parametrize("words, said", [
    (["unmount", "/x"], "did you mean `epochfs umount`?"), (["restore"], "did you mean `epochfs export`?"), (["ls"], "did you mean `epochfs log`?"),
    (["rollbakc"], "did you mean `epochfs rollback`?"), (["zzz"], "unknown command 'zzz'; see"), (["log", "--jsn"], "did you mean `--json`?"),
    (["mount", "-o", "setle=5s", "/x", "/y"], "did you mean `-o settle`?"), (["mount", "-o", "x" * 99, "/x", "/y"], "x'; see"),
])
def test_a_wrong_spelling_is_answered_with_the_right_one(words, said):
    done = run(BIN, *words, check=False)
    assert done.returncode == USAGE and said in done.stderr and not done.stdout, done


def test_the_version_is_asked_for_in_any_way():
    assert epochfs("-V") == epochfs("--version") == epochfs("version")


def test_a_mount_makes_the_directory_that_alone_is_missing(place):
    place.mnt.rmdir()
    place.mnt = place.mnt / "deep"
    assert "the mount point cannot be made: No such file" in place.mount(code=NOT_FOUND)
    place.mnt = place.mnt.parent
    place.mount(code=USAGE, options="cache-dir=%s/in/it" % place.mnt)
    assert not place.mnt.exists(), "what failed leaves no directory behind"
    place.mount()
    (place.mnt / "model.pt").write_bytes(b"bytes")
    place.umount()
    assert place.mnt.is_dir()


def test_the_man_page_is_made_of_the_tables_and_has_the_exit_codes():
    run(REPO / "tests/tools/man_page.py", BIN, "--check")
    status = papers.page("epochfs.1").split(".SH EXIT STATUS")[1]
    for code in range(9):
        assert re.search(r"\b%d [a-z]" % code, status)


@pytest.mark.parametrize("line, changed, said", [
    ("@options cache-size", "", "lacks @options cache-size"),
    ("@command gc", "@command gc gc", "@command gc: the tables have no such entry, or it is there twice"),
    ("@options lease", "@options lease nonsense", "@options nonsense: the tables have no such entry"),
    ("It returns once", "It comes back once", "epochfs.1 is not what epochfs.1.in and the tables make"),
])
def test_a_man_page_that_is_not_what_the_tables_say_is_refused(tmp_path, line, changed, said):
    page = REPO / "packaging/man/epochfs.1"
    shutil.copy(page, tmp_path)
    template = tmp_path / "epochfs.1.in"
    text = page.with_suffix(".1.in").read_text()
    assert text.count(line) == 1
    template.write_text(text.replace(line, changed))
    done = run(REPO / "tests/tools/man_page.py", BIN, template, "--check", check=False)
    assert done.returncode == 1 and said in done.stderr, done


def test_each_option_of_a_command_is_taken():
    """What the table has, the parser of that command takes: an option without a place for it would end the program."""
    tables = json.loads(epochfs("help", "--json"))
    for command in tables["commands"]:
        for option in command["options"] + tables["common_options"]:
            value = ["/x"] if "value" in option else []
            spelt = ["--" + option["name"], *(["-" + option["letter"]] if "letter" in option else [])]
            for one in spelt:
                text = epochfs(command["name"], one, *value, "--help")
                assert text.startswith("usage: epochfs %s" % command["name"]), (command["name"], one)
                assert option["name"] in ("help", "key-file", "passphrase-file") or "--" + option["name"] in text


def test_the_manual_as_html(tmp_path):
    run("make", "-C", REPO, "BUILD=%s" % tmp_path, "docs")
    made = {path.name: path.read_text() for path in (tmp_path / "docs").iterdir()}
    assert sorted(made) == ["%s.html" % page.name for page in papers.PAGES]
    assert '<a href="epochfs-remotes.7.html">' in made["epochfs.1.html"]


@pytest.mark.parametrize("page", papers.PAGES, ids=lambda page: page.name)
def test_a_page_of_the_manual_is_well_formed(page):
    done = run("man", "--warnings", "-E", "UTF-8", "-l", page, check=False)
    # A long word may leave a line short.
    assert done.returncode == 0 and not [w for w in done.stderr.splitlines() if not w.endswith(("adjust line", "break line"))], done.stderr
    named = re.findall(r"^\.[BI]R \"?(epochfs[a-z\\-]*)\"? \((\d)\)", page.read_text(), re.M)
    assert {papers.typed(name) + "." + section for name, section in named} <= {page.name for page in papers.PAGES}
