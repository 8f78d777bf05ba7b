# SPDX-License-Identifier: Apache-2.0
"""The subcommands of epochfs, as a person and as a script use them: on a mount and on its remote."""

import datetime
import json
import os
import re
import stat
import sys
import time

import pytest

from conftest import BIN, run, wait_until

DONE, FAILED, USAGE, UNREACHABLE, DENIED, NOT_FOUND, DAMAGED, NOT_DURABLE, CONFLICT = range(9)
SUBCOMMANDS = ("mount", "umount", "status", "log", "show", "diff", "commit", "wait", "rollback", "tag", "rm", "export",
               "verify", "fsck", "run", "version")
TARGETS = ("mount", "path", "url")


@pytest.fixture
def passthrough():
    """How the kernel reads is no matter of the command."""
    return "auto"


def epochfs(*arguments, code=DONE, **keywords):
    """Runs the command: what it printed. One that fails prints one line to stderr and nothing else."""
    done = run(BIN, *arguments, check=False, **keywords)
    assert done.returncode == code, (arguments, done)
    if code != DONE:
        assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("epochfs"), done.stderr
        return done.stderr
    return done.stdout


def parsed(*arguments, **keywords):
    return json.loads(epochfs(*arguments, **keywords))


@pytest.fixture
def run7(mnt):
    """Two durable epochs: 1 with step 500 and the tag best, 2 without."""
    (mnt.path / "checkpoint-500").mkdir()
    (mnt.path / "checkpoint-500" / "model.pt").write_bytes(os.urandom(300000))
    (mnt.path / "args").write_text("lr=1")
    os.symlink("checkpoint-500", mnt.path / "last")
    epochfs("commit", mnt.path, "--tag", "best", "-m", "a text")
    (mnt.path / "args").write_text("lr=0.1")
    os.unlink(mnt.path / "checkpoint-500" / "model.pt")
    (mnt.path / "new").write_text("four")
    # It lacks what the first one had.
    epochfs("commit", mnt.path, "--whole")
    mnt.wait_durable()
    wait_until(lambda: (mnt.remote / "tags" / "best").exists(), "the tag in the remote")
    return mnt


@pytest.fixture(params=TARGETS)
def target(request, run7):
    return {"mount": run7.path, "path": run7.remote, "url": run7.url}[request.param]


# ---- what prints, on a mount and on a remote


def test_log(target):
    lines = epochfs("log", target).splitlines()
    assert lines[0].split() == ["EPOCH", "AGE", "STEP", "FILES", "SIZE", "NEW", "STORED", "STATE", "TAGS"]
    assert lines[3].startswith("live: 10 B") and "retained: 2 epochs, 293 KiB" in lines[3]
    second, first = [re.split(r"  +", line.strip()) for line in lines[1:3]]
    assert first[0] == "000001" and second[0] == "000002"
    assert first[2:6] == ["500", "2", "293 KiB", "293 KiB"], first
    assert second[2:6] == ["-", "2", "10 B", "10 B"], second
    assert first[7:] == ["durable", "best"] and second[7:] == ["durable"]
    assert re.fullmatch(r"\d+ (ms|s|min)", first[1]) and first[6].endswith("KiB"), first
    # Each column is as wide as what is in it: all rows begin and end columns at the same place.
    assert {line.index(word) for line, word in zip(lines, ("STATE", "durable", "durable"))} == {lines[0].index("STATE")}
    assert len(epochfs("log", "-n", "1", target).splitlines()) == 3
    assert not any(line.endswith(" ") for command in ("log", "show", "status") for line in epochfs(command, target).splitlines())


def test_log_in_json(target):
    second, first = parsed("log", "--json", target)
    assert (first["epoch"], first["step"], first["step_name"], first["message"]) == (1, 500, "checkpoint-500", "a text")
    assert (first["files"], first["bytes"], first["bytes_new"]) == (2, 300004, 300004)
    assert first["tags"] == ["best"] and second["tags"] == []
    assert second["epoch"] == 2 and second["parent"] == 1 and "step" not in second
    for epoch in (first, second):
        assert epoch["complete"] is True and epoch["state"] == "durable" and epoch["trigger"] == "commit"
        assert epoch["bytes_stored"] > 0 and epoch["host"] == os.uname().nodename
        times = [datetime.datetime.fromisoformat(epoch[k][:19]) for k in ("opened", "sealed", "durable")]
        assert times == sorted(times)
    assert parsed("log", "--json", "-n", "1", target) == [second]


def test_log_of_a_volume_without_epochs(mnt):
    for target in (mnt.path, mnt.remote):
        done = run(BIN, "log", target)
        assert done.stdout == "" and "no epochs yet" in done.stderr
        assert parsed("log", "--json", target) == []


def test_show(target):
    text = epochfs("show", target, "best")
    record, files = text.split("\n\n")
    record = dict(line.split(None, 1) for line in record.splitlines())
    assert record["epoch"] == "1" and record["step"] == "500" and record["message"] == "a text"
    assert record["complete"] == "yes" and record["bytes"] == "293 KiB" and record["state"] == "durable"
    lines = files.splitlines()
    assert lines[0].split() == ["MODE", "SIZE", "MODIFIED", "PATH"]
    assert [line.split()[4:] for line in lines[1:]] == [
        ["args"], ["checkpoint-500"], ["checkpoint-500/model.pt"], ["last", "->", "checkpoint-500"]]
    assert [line.split()[0][0] for line in lines[1:]] == ["-", "d", "-", "l"]
    assert "new" in epochfs("show", target)  # the latest


def test_show_in_json(target, run7):
    shown = parsed("show", "--json", target, "1")
    assert shown["epoch"] == parsed("log", "--json", target)[1]
    files = {f["path"]: f for f in shown["files"]}
    assert sorted(files) == ["args", "checkpoint-500", "checkpoint-500/model.pt", "last"]
    model = files["checkpoint-500/model.pt"]
    assert (model["type"], model["size"], model["mode"]) == ("file", 300000, 0o644)
    assert files["checkpoint-500"]["type"] == "directory" and files["last"]["target"] == "checkpoint-500"
    st = os.stat(run7.epoch(1) / "checkpoint-500" / "model.pt")
    assert (model["mtime_ns"], model["mode"]) == (st.st_mtime_ns, stat.S_IMODE(st.st_mode))


def test_diff(target):
    text = epochfs("diff", target, "best", "latest")
    assert text.splitlines() == [
        "- checkpoint-500/model.pt  293 KiB", "~ args  4 B -> 6 B", "+ new  4 B",
        "1 added, 1 changed, 1 removed; 10 B more, 293 KiB less"]
    assert epochfs("diff", target, "2") == text  # against the one before it
    back = epochfs("diff", target, "2", "1")
    assert "+ checkpoint-500/model.pt  293 KiB" in back and "- new  4 B" in back
    first = epochfs("diff", target, "1").splitlines()  # against nothing
    assert "+ checkpoint-500/" in first and first[-1].startswith("4 added, 0 changed, 0 removed")
    assert epochfs("diff", target, "1", "1").startswith("0 added, 0 changed, 0 removed")


def test_the_first_epoch_only_adds(mnt):
    """Whose the root is, and which mode it has, is no change of it."""
    os.chmod(mnt.path, 0o700)
    (mnt.path / "f").write_text("text")
    mnt.seal()
    mnt.wait_durable()
    for name in (mnt.path, mnt.remote):
        assert epochfs("diff", name, "1").splitlines() == ["+ f  4 B", "1 added, 0 changed, 0 removed; 4 B more, 0 B less"]


def test_diff_in_json(target):
    diff = parsed("diff", "--json", target, "1", "2")
    assert diff == {
        "added": [{"path": "new", "type": "file", "size": 4}],
        "changed": [{"path": "args", "type": "file", "size": 6, "old_size": 4}],
        "removed": [{"path": "checkpoint-500/model.pt", "type": "file", "size": 300000}],
        "bytes_added": 10, "bytes_removed": 300004}


def test_status_of_a_mount(run7):
    status = parsed("status", "--json", run7.path)
    assert status["mountpoint"] == str(run7.path) and status["pid"] == run7.pid
    assert status["remote"] == status["remote_url"] == run7.url and status["local_only"] is False
    assert status["epochs"] == {"count": 2, "complete": 2, "latest": 2, "current": 2, "recent_from": 0}
    assert status["upload"]["pending_epochs"] == 0 and status["pending"]["changes"] == "none"
    assert status["cache"]["bytes"] >= 300000 and status["cache"]["dirty_bytes"] == 0
    text = epochfs("status", run7.path)
    assert re.search(r"^remote +%s$" % re.escape(run7.url), text, re.M)
    assert re.search(r"^upload\n  pending epochs +0$", text, re.M)
    with open(run7.path / "open", "wb") as f:
        f.write(b"x")
        f.flush()
        assert "open by" in re.sub(r" +", " ", epochfs("status", run7.path)) and "(pid %d)" % os.getpid() in epochfs("status", run7.path)


def test_status_of_a_remote(run7):
    for name in (run7.remote, run7.url):
        status = parsed("status", "--json", name)
        assert status["epochs"] == {"count": 2, "complete": 2, "latest": 2} and status["tags"] == {"best": 1}
        assert status["uuid"] == json.loads((run7.remote / "epochfs.json").read_text())["uuid"]
        assert status["bytes_stored"] == sum(e["bytes_stored"] for e in parsed("log", "--json", name))
        assert re.search(r"^  best +1$", epochfs("status", name), re.M)


def test_tag(target, run7):
    assert epochfs("tag", target).split() == ["000001", "best"]
    assert parsed("tag", "--json", target) == {"best": 1}
    epochfs("tag", target, "latest", "good")
    assert parsed("tag", "--json", target) == {"best": 1, "good": 2}
    epochfs("tag", target, "1", "good", code=CONFLICT)
    epochfs("tag", "-f", target, "1", "good")
    assert parsed("tag", "--json", target)["good"] == 1
    assert set(parsed("log", "--json", target)[1]["tags"]) == {"best", "good"}
    epochfs("tag", "-d", target, "good")
    epochfs("tag", "-d", target, "good", code=NOT_FOUND)
    assert parsed("tag", "--json", target) == {"best": 1}
    wait_until(lambda: os.listdir(run7.remote / "tags") == ["best"], "the tags in the remote")
    for name in ("latest", "current", "torn", "42", "a/b", ".x", ""):
        assert "tag" in epochfs("tag", target, "1", name, code=USAGE)


def test_a_tag_made_on_the_remote_is_there_after_the_next_mount(run7):
    epochfs("tag", run7.remote, "2", "elsewhere")
    run7.remount()
    assert run7.tags() == {"best": 1, "elsewhere": 2}


def test_export(target, run7, tmp_path):
    said = epochfs("export", "%s@best" % target, tmp_path / "all")
    assert said == "epoch 000001 restored to %s: 2 files, 293 KiB\n" % (tmp_path / "all")
    assert run("diff", "-r", "--no-dereference", tmp_path / "all", run7.epoch(1)).stdout == ""
    assert epochfs("export", "%s" % target, tmp_path / "latest").startswith("epoch 000002")
    assert (tmp_path / "latest" / "new").read_text() == "four"
    done = parsed("export", "--json", "--threads", "2", "%s@step=500:checkpoint-500/model.pt" % target, tmp_path / "one")
    assert done == {"epoch": 1, "files": 1, "bytes": 300000}
    model = (run7.epoch(1) / "checkpoint-500" / "model.pt").read_bytes()
    assert (tmp_path / "one" / "model.pt").read_bytes() == model
    epochfs("export", "%s@1:checkpoint-500" % target, tmp_path / "folder")
    assert (tmp_path / "folder" / "checkpoint-500" / "model.pt").read_bytes() == model
    assert "not empty" in epochfs("export", target, tmp_path / "all", code=CONFLICT)
    epochfs("export", "--force", target, tmp_path / "all")
    assert (tmp_path / "all" / "args").read_text() == "lr=0.1"
    assert "no path 'no/such'" in epochfs("export", "%s@1:no/such" % target, tmp_path / "no", code=NOT_FOUND)
    epochfs("export", "%s@7" % target, tmp_path / "no", code=NOT_FOUND)


def test_export_of_an_epoch_that_is_not_durable_yet_waits_for_it(mnt, tmp_path):
    mnt.remount(settle="1h")
    (mnt.path / "f").write_bytes(os.urandom(3 << 20))
    epochfs("commit", mnt.path)
    epochfs("export", mnt.path, tmp_path / "out")
    assert (tmp_path / "out" / "f").read_bytes() == (mnt.path / "f").read_bytes()


@pytest.mark.parametrize("folder", ["a@b", "a:b"])
def test_export_from_and_of_paths_with_the_signs_that_part_them(make_volume, tmp_path, folder):
    volume = make_volume(settle="1h")
    volume.remote = tmp_path / folder / "run"
    volume.remote.mkdir(parents=True)
    volume.url = str(volume.remote)
    volume.mount()
    (volume.path / "x@y:z").mkdir()
    (volume.path / "x@y:z" / "f").write_text("here")
    volume.wait_durable()
    epochfs("export", volume.remote, tmp_path / "1")
    epochfs("export", "%s@1" % volume.remote, tmp_path / "2")
    epochfs("export", "%s@@0s:x@y:z/f" % volume.remote, tmp_path / "3")
    assert (tmp_path / "1" / "x@y:z" / "f").read_text() == (tmp_path / "2" / "x@y:z" / "f").read_text() == "here"
    assert (tmp_path / "3" / "f").read_text() == "here"


# ---- what needs a mount


def test_commit(mnt):
    (mnt.path / "f").write_text("1")
    assert epochfs("commit", mnt.path) == "epoch 000001 is sealed\n"
    assert epochfs("commit", mnt.path) == "epoch 000001 is sealed\n"  # nothing changed
    (mnt.path / "f").write_text("2")
    assert parsed("commit", "--json", "--tag", "t", "--step=70", "-m", "why", mnt.path) == {"epoch": 2}
    second = parsed("log", "--json", mnt.path)[0]
    assert (second["step"], second["message"], second["tags"]) == (70, "why", ["t"])
    (mnt.path / "f").write_text("3")
    assert "tag t is taken" in epochfs("commit", "--tag", "t", mnt.path, code=CONFLICT)
    epochfs("commit", "--step", "x", mnt.path, code=USAGE)
    epochfs("commit", "--tag", "a/b", mnt.path, code=USAGE)


def test_wait(mnt):
    assert epochfs("wait", mnt.path) == "there is no epoch yet, and nothing to seal\n"
    (mnt.path / "f").write_text("1")
    assert epochfs("wait", mnt.path) == "epoch 000001 is durable\n"
    assert parsed("wait", "--json", "--timeout", "60s", mnt.path, "latest") == {"epoch": 1}
    assert (mnt.remote / "epochs" / ("%020d.json" % 1)).exists()
    epochfs("wait", mnt.path, "9", code=NOT_FOUND)
    epochfs("wait", "--timeout", "x", mnt.path, code=USAGE)


def test_rollback_and_rm(run7):
    assert epochfs("rollback", run7.path, "best") == "live is epoch 000001 again, as 000003; before it was 000002\n"
    assert (run7.path / "args").read_text() == "lr=1"
    assert parsed("rollback", "--json", run7.path, "2") == {"epoch": 4, "restores": 2, "before": 3}
    assert (run7.path / "args").read_text() == "lr=0.1"
    run7.wait_durable()
    said = epochfs("rm", run7.path, "2").splitlines()
    assert said[0] == "epoch 000002 is dropped"
    assert said[1] == "nothing is freed: other epochs need all that they held"
    assert parsed("rm", "--json", run7.path, "3") == {"epoch": 3}
    assert run7.epochs() == [1, 4]
    assert "tagged" in epochfs("rm", run7.path, "best", code=CONFLICT)
    epochfs("rm", run7.path, "4", code=CONFLICT)
    epochfs("rm", run7.path, "3", code=NOT_FOUND)
    for target in (run7.path, run7.remote):
        wait_until(lambda: [e["epoch"] for e in parsed("log", "--json", target)] == [4, 1], "the drop")


def test_fsck(run7):
    for name in (run7.remote, run7.url):
        assert "the data was not read" in epochfs("fsck", name).splitlines()[-1]
        assert "all read" in epochfs("fsck", "--read-data", name)
        found = parsed("fsck", "--json", "--read-data", name)
        assert found["epochs"] == 2 and found["problems"] == [] and found["packs"] >= 1 and found["bytes_stored"] > 0
    assert "name its remote" in epochfs("fsck", run7.path, code=USAGE)


def test_fsck_says_what_is_damaged(run7):
    pack = sorted((p for p in (run7.remote / "packs").rglob("*") if p.is_file()), key=os.path.getsize)[-1]
    data = bytearray(pack.read_bytes())
    data[len(data) // 2] ^= 1
    pack.write_bytes(data)
    assert epochfs("fsck", run7.remote).splitlines()[-1].startswith("no damage in what names the data")  # it read none of it
    done = run(BIN, "fsck", "--read-data", run7.remote, check=False)
    assert done.returncode == DAMAGED and pack.name in done.stdout and "model.pt" in done.stdout, done
    done = run(BIN, "fsck", "--json", "--read-data", run7.remote, check=False)
    problems = json.loads(done.stdout)["problems"]
    assert done.returncode == DAMAGED and problems and all(set(p) == {"object", "where", "problem"} for p in problems)


def test_one_is_not_several(mnt, tmp_path):
    """What is said of one file in one epoch."""
    (mnt.path / "f").write_text("text")
    epochfs("commit", mnt.path)
    epochfs("wait", mnt.path)
    said = mnt.log.read_text()
    for command in (["log", mnt.path], ["status", "--usage", mnt.path], ["verify", mnt.path], ["prune", "--dry-run", "--keep", "last:9", mnt.path],
                    ["cache", "warm", mnt.path], ["fsck", mnt.remote], ["gc", "-n", mnt.remote], ["export", mnt.remote, tmp_path / "out"],
                    ["import", "-o", "min-free=0,cache-dir=%s" % (tmp_path / "cache"), tmp_path / "out", tmp_path / "other"]):
        done = run(BIN, *command)
        said += done.stdout + done.stderr
    assert len(re.findall(r"\b1 (?:epoch|file|pack)\b", said)) >= 8, said
    assert not re.findall(r".*(?<![.:\d])\b1 (?!is\b|takes\b)[a-z]+s\b.*", said)


# ---- messages that lead on


def test_latest_where_no_epoch_is_complete(mnt, tmp_path):
    """It is not that there is none: the numbers are in the log."""
    assert "there is no epoch yet" in epochfs("export", mnt.path, tmp_path / "out", code=NOT_FOUND)
    (mnt.path / "model.zip").write_bytes(b"PK\3\4 torn")
    epochfs("commit", mnt.path)
    epochfs("wait", mnt.path)
    for name in (mnt.path, mnt.remote):
        said = epochfs("export", name, tmp_path / "out", code=NOT_FOUND)
        assert "no epoch is complete" in said and "epochfs log" in said and "number" in said, said
    epochfs("export", "%s@1" % mnt.remote, tmp_path / "out")
    assert "there is no epoch 'best'" in epochfs("export", "%s@best" % mnt.remote, tmp_path / "out2", code=NOT_FOUND)


def test_latest_says_what_there_is_not(mnt):
    assert "there is no epoch yet" in epochfs("latest", mnt.path, code=NOT_FOUND)
    (mnt.path / "model.zip").write_bytes(b"PK\3\4 torn")
    epochfs("commit", mnt.path)
    epochfs("wait", mnt.path)
    for name in (mnt.path, mnt.remote):
        assert ": no complete epoch; `epochfs log %s` says which there are" % name in epochfs("latest", "--complete", name, code=NOT_FOUND)
        assert ": no epoch of step 7; " in epochfs("latest", "--step", "7", name, code=NOT_FOUND)


def test_names_that_are_no_target(tmp_path):
    """A path is never taken for a kind of remote, and a directory without a volume is named as what it is."""
    (tmp_path / "ckpt").mkdir()
    for command in ("log", "status", "latest", "verify"):
        for name in ("ckpt", "./ckpt", "missing", "./a/missing", "missing/", tmp_path / "ckpt", tmp_path / "missing"):
            said = epochfs(command, name, code=NOT_FOUND, cwd=tmp_path)
            assert "mount point" in said and "volume" in said and "kind of remote" not in said, (command, name, said)


def test_version():
    assert re.fullmatch(r"epochfs \d+\.\d+\.\d+\n", epochfs("version"))
    assert epochfs("--version") == epochfs("version")


def test_status_counts_what_was_not_kept_in_this_mount_alone(mnt):
    half = "import os, sys; f = open(sys.argv[1], 'wb'); f.write(b'half'); f.flush(); os._exit(1)"
    for _ in range(19):
        assert run(sys.executable, "-c", half, mnt.path / "model", check=False).returncode == 1
    wait_until(lambda: len(mnt.torn()) == 16 and not mnt.status()["pending"]["open"], "the end of the writers")
    assert "16 files of killed writers" in epochfs("status", mnt.path) and "3 more were not kept" in epochfs("status", mnt.path)
    mnt.remount()
    assert "16 files of killed writers" in epochfs("status", mnt.path) and "not kept" not in epochfs("status", mnt.path)


# ---- where the caller stands


def test_without_a_target_commands_take_the_mount_that_they_are_called_in(run7, tmp_path):
    path = run7.path
    inside = path / "checkpoint-500"
    assert epochfs("latest", cwd=inside) == epochfs("latest", path)
    assert parsed("log", "--json", cwd=run7.epochs_dir / "1") == parsed("log", "--json", path)
    assert parsed("show", "--json", cwd=path) == parsed("show", "--json", path)
    assert epochfs("tag", cwd=inside) == epochfs("tag", path) and "best" in epochfs("tag", cwd=inside)
    assert parsed("status", "--json", cwd=inside)["uuid"] == run7.status()["uuid"]
    (path / "args").write_text("lr=0.01")
    number = parsed("commit", "--json", cwd=inside)["epoch"]
    assert parsed("wait", "--json", cwd=inside)["epoch"] == number
    epochfs("rollback", "2", cwd=path)
    assert (path / "args").read_text() == "lr=0.1"
    for command in ("log", "latest", "show", "tag", "commit", "wait"):
        assert "or to be called in a mount" in epochfs(command, code=USAGE, cwd=tmp_path), command
    assert "or to be called in a mount" in epochfs("rollback", "1", code=USAGE, cwd=tmp_path)


def test_a_target_is_a_path_in_a_mount_too(run7):
    path = run7.path
    for command in ("log", "latest", "show", "tag"):
        assert epochfs(command, path / "checkpoint-500") == epochfs(command, path) == epochfs(command, path / "new"), command
    assert parsed("status", "--json", path / "args")["uuid"] == run7.status()["uuid"]


# ---- help


def test_help():
    everything = epochfs("--help")
    assert epochfs("help") == epochfs("-h") == everything
    listed = re.findall(r"^  ([a-z]+) +\S", everything, re.M)
    assert set(SUBCOMMANDS) <= set(listed)
    for code in range(9):
        assert re.search(r"\b%d [a-z]" % code, everything), code
    done = run(BIN, check=False)
    assert done.returncode == USAGE and done.stderr == everything and done.stdout == ""


@pytest.mark.parametrize("command", SUBCOMMANDS)
def test_help_of_a_subcommand(command):
    text = epochfs(command, "--help")
    assert text == epochfs(command, "-h") and text.startswith("usage: epochfs " + command)
    # Help is given whatever else is there, and does nothing.
    if command not in ("version", "run"):
        assert epochfs(command, "/missing", "--help") == text
    # Each option of the usage line is explained below it, or says all by itself.
    usage, rest = text.split("\n", 1)
    for option in re.findall(r"--[a-z-]+", usage):
        assert option in rest or option == "--json", option
    epochfs(command, "--nonsense", code=USAGE)


# ---- names of epochs


def test_names_of_epochs(target):
    for name, number in [("1", 1), ("000002", 2), ("step=500", 1), ("latest", 2), ("current", 2), ("best", 1), ("@0s", 2)]:
        assert parsed("show", "--json", target, name)["epoch"]["epoch"] == number, name
    for name in ("3", "step=7", "worst", "@2h", "000000099", "0"):
        assert name in epochfs("show", target, name, code=NOT_FOUND)
    for name in ("step=", "step=x", "@", "@soon", "", "a/b"):
        said = epochfs("show", target, name, code=USAGE)
        assert "names no epoch" in said and "latest" in said, said


def test_the_age_of_an_epoch_parts_them(target, run7):
    before = time.time_ns()
    wait_until(lambda: time.time_ns() > before + 2 * 10**9, "two seconds between two epochs")
    (run7.path / "third").touch()
    run7.seal()
    run7.wait_durable()
    middle = before + 10**9

    def asked():
        """Between the two when it was asked, and still when the answer was there; else the machine was too busy to tell."""
        age = (time.time_ns() - middle) // 10**6
        number = parsed("show", "--json", target, "@%dms" % age)["epoch"]["epoch"]
        return time.time_ns() - middle - age * 10**6 < 9 * 10**8 and number

    assert wait_until(asked, "an answer in time") == 2
    assert parsed("show", "--json", target, "@0s")["epoch"]["epoch"] == 3


# ---- exit codes, and the one line that says what, where, and what to do


def test_the_exit_codes(run7, tmp_path):
    faults = tmp_path / "faults"
    url = "fault+%s?control=%s" % (run7.url, faults)
    assert "restored" in epochfs("export", url, tmp_path / "0")
    assert "not empty" in epochfs("export", url, tmp_path / "0", code=CONFLICT)
    faults.write_text("down=1")
    done = run(BIN, "log", url, check=False)
    assert done.returncode == UNREACHABLE and not done.stdout
    # That it is tried came first.
    said = done.stderr.splitlines()[-1]
    assert str(run7.remote) in said and "try again" in said
    faults.write_text("all.denied=1")
    for command in (["log"], ["show"], ["diff", "1"], ["status"], ["tag"], ["fsck"], ["verify"], ["export", tmp_path / "4"]):
        said = epochfs(command[0], url, *command[1:], code=DENIED)
        assert str(run7.remote) in said and "permissions" in said
    faults.write_text("put.denied=1")
    epochfs("tag", url, "1", "x", code=DENIED)
    faults.unlink()
    assert "missing" in epochfs("log", tmp_path / "missing", code=NOT_FOUND)
    assert str(tmp_path) in epochfs("log", tmp_path, code=DAMAGED)  # holds something, but no volume
    epochfs("log", "gopher://x", code=USAGE)
    epochfs("commit", run7.remote, code=NOT_FOUND)
    for pack in (run7.remote / "packs").rglob("*"):
        if pack.is_file():
            pack.unlink()
    assert "fsck" in epochfs("show", run7.remote, code=DAMAGED)
    assert "fsck" in epochfs("export", run7.remote, tmp_path / "6", code=DAMAGED)


def test_a_wait_that_takes_too_long(volume):
    control = volume.base / "weather"
    volume.url = "fault+%s?control=%s" % (volume.url, control)
    volume.mount(settle="1h")
    (volume.path / "f").write_text("1")
    control.write_text("put.down=1")
    for command in ("wait", "umount"):
        said = epochfs(command, "--timeout", "300ms", volume.path, code=NOT_DURABLE)
        assert "not durable in time" in said and str(volume.path) in said, said
    assert (volume.path / "f").read_text() == "1"  # still mounted
    control.unlink()
    epochfs("wait", volume.path)


def test_a_mount_that_is_dead(volume):
    volume.mount()
    volume.process.kill()
    volume.process.wait()
    volume.process = None
    for command in (["status"], ["log"], ["commit"], ["wait"], ["rollback", "1"], ["tag"], ["export", volume.base / "out"]):
        said = epochfs(command[0], volume.path, *command[1:], code=FAILED)
        assert "mount it again" in said and str(volume.path) in said
    done = run(BIN, "umount", volume.path)
    assert "was dead" in done.stderr
    epochfs("umount", volume.path, code=NOT_FOUND)
