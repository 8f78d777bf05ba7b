# SPDX-License-Identifier: Apache-2.0
"""What epochfs-semantics(7) says of writing: replacing, ordinary files, closes, killed writers, logs, errors."""

import mmap
import os
import signal

import pytest

from conftest import BIN, python, run, wait_until
from measure import await_tick

OLD = b"old content, whole\n" * 1000
NEW = b"NEW content, longer than the old\n" * 2000

# Opens as argv says, writes, says so, then does what it is told on stdin.
WRITER = """
import os, sys, signal
path, mode, data = sys.argv[1], sys.argv[2], sys.argv[3].encode() * int(sys.argv[4])
f = open(path, mode)
f.write(data); f.flush()
print("written", flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "close": f.close()
    elif word == "fsync": os.fsync(f.fileno())
    elif word == "kill": os.kill(os.getpid(), signal.SIGKILL)
    elif word == "term": os.kill(os.getpid(), signal.SIGTERM)
    elif word == "exit": os._exit(0)
    elif word == "fail": os._exit(3)
    elif word == "see": print(open(path, "rb").read()[:3].decode(), os.stat(path).st_size, os.fstat(f.fileno()).st_size)
    print("done", flush=True)
"""


class Writer:
    def __init__(self, path, mode="wb", data="NEW", times=1000):
        self.process = python(WRITER, path, mode, data, str(times))
        assert self.process.stdout.readline() == "written\n"

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        lines = []
        while True:
            line = self.process.stdout.readline()
            if line in ("done\n", ""):
                return lines
            lines.append(line.strip())

    def end(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        code = self.process.wait(timeout=60)
        self.process.stdin.close()
        self.process.stdout.close()
        return code

    def leave(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0
        self.process.stdout.close()


def log_of(mnt):
    return mnt.request("log")["epochs"]


# ---- 1: replacing is atomic


def test_a_replacement_is_seen_by_its_writer_and_by_nobody_else(mnt):
    path = mnt.path / "model"
    path.write_bytes(OLD)
    before = open(path, "rb")
    mapping = mmap.mmap(before.fileno(), 0, prot=mmap.PROT_READ)
    inode = os.stat(path).st_ino
    writer = Writer(path)
    assert writer.tell("see") == ["NEW 3000 3000"]
    assert path.read_bytes() == OLD and os.stat(path).st_size == len(OLD)
    assert before.read() == OLD and mapping[:] == OLD
    writer.leave()
    assert path.read_bytes() == b"NEW" * 1000
    assert os.stat(path).st_ino == inode
    before.seek(0)
    assert before.read() == OLD and mapping[:] == OLD
    mapping.close()
    before.close()


@pytest.mark.parametrize("how, when", [("touch", "before"), ("r+b", "before"), ("ab", "before"), ("r+b", "after"), ("ab", "after")])
def test_who_has_a_file_open_and_writes_nothing_does_not_vouch_for_a_killed_writer(mnt, how, when):
    path = mnt.path / "model"
    path.write_bytes(OLD)
    writer = Writer(path)
    await_tick()  # what was written just before cannot be told from what is written now (passthrough)
    if how == "touch":
        run("touch", path)
        writer.end("kill")
    elif when == "before":
        open(path, how).close()
        writer.end("kill")
    else:
        with open(path, how):
            writer.end("kill")
    assert path.read_bytes() == OLD


def test_who_writes_beside_a_killed_writer_keeps_what_he_closed(mnt):
    path = mnt.path / "model"
    writer = Writer(path)
    with open(path, "r+b") as f:
        f.write(b"mine")
    writer.end("kill")
    assert path.read_bytes()[:4] == b"mine"


def test_who_writes_and_puts_the_time_back_keeps_it_too(mnt):
    path = mnt.path / "model"
    writer = Writer(path)
    await_tick()
    with open(path, "r+b", buffering=0) as f:
        before = os.fstat(f.fileno()).st_mtime_ns
        f.write(b"mine")
        os.utime(f.fileno(), ns=(before, before))
    writer.end("kill")
    assert path.read_bytes()[:4] == b"mine"


def test_each_of_two_writers_has_its_own_replacement_and_the_last_close_wins(mnt):
    path = mnt.path / "model"
    path.write_bytes(OLD)
    first, second = Writer(path, data="one"), Writer(path, data="two", times=10)
    assert first.tell("see") == ["one 3000 3000"]
    assert second.tell("see") == ["two 30 30"]
    second.leave()
    assert path.read_bytes() == b"two" * 10
    first.leave()
    assert path.read_bytes() == b"one" * 1000


def test_who_opens_without_truncation_joins_the_newest_pending_version(mnt):
    path = mnt.path / "shared"
    path.write_bytes(OLD)
    first = Writer(path, data="one")
    joined = Writer(path, mode="r+b", data="TWO", times=1)
    assert first.tell("see") == ["TWO 3000 3000"]
    assert path.read_bytes() == OLD
    first.leave()
    joined.leave()
    assert path.read_bytes() == b"TWO" + b"one" * 999


def test_a_replacement_by_rename_of_a_temporary_file_is_atomic_too(mnt):
    path, temporary = mnt.path / "model", mnt.path / "model.part"
    path.write_bytes(OLD)
    reader = open(path, "rb")
    temporary.write_bytes(NEW)
    os.rename(temporary, path)
    assert path.read_bytes() == NEW and reader.read() == OLD
    reader.close()


def test_truncating_an_empty_or_a_new_file_is_ordinary(mnt):
    """Two processes open a lock file O_RDWR|O_TRUNC: it stays one file."""
    path = mnt.path / "lock"
    path.touch()
    first = os.open(path, os.O_RDWR | os.O_TRUNC)
    code = "import os,sys; fd=os.open(sys.argv[1], os.O_RDWR|os.O_TRUNC); os.write(fd, b'1234'); print(os.fstat(fd).st_ino)"
    out = run("/usr/bin/python3", "-c", code, path).stdout
    assert os.pread(first, 10, 0) == b"1234"
    assert int(out) == os.fstat(first).st_ino
    os.close(first)


# ---- 2: everything else is an ordinary file


@pytest.mark.parametrize("mode", ["ab", "r+b"])
def test_changes_in_place_are_seen_by_all_at_once(mnt, mode):
    path = mnt.path / "data"
    path.write_bytes(OLD)
    reader = open(path, "rb")
    inode = os.stat(path).st_ino
    writer = Writer(path, mode=mode, data="NEW", times=1)
    expected = OLD + b"NEW" if mode == "ab" else b"NEW" + OLD[3:]
    assert path.read_bytes() == expected
    assert reader.read() == expected
    assert os.stat(path).st_size == len(expected) and os.stat(path).st_ino == inode
    reader.close()
    writer.leave()
    assert path.read_bytes() == expected


def test_a_new_file_is_seen_while_it_is_written(mnt):
    path = mnt.path / "new"
    writer = Writer(path, data="abc")
    assert path.read_bytes() == b"abc" * 1000
    writer.leave()


def test_a_shared_mapping_writes_to_the_file(mnt):
    path = mnt.path / "mapped"
    path.write_bytes(b"\0" * 8192)
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), 0) as m:
        m[4096:4100] = b"here"
        m.flush()
        assert path.read_bytes()[4096:4100] == b"here"
    assert path.read_bytes()[4096:4100] == b"here"


def test_what_an_epoch_holds_does_not_change_with_the_file(mnt):
    path = mnt.path / "data"
    path.write_bytes(OLD)
    number = mnt.seal()
    with open(path, "r+b") as f:
        f.write(b"CHANGED")
        f.flush()
        assert (mnt.epoch(number) / "data").read_bytes() == OLD
    os.truncate(path, 10)
    with open(path, "ab") as f:
        f.write(b"more")
    assert (mnt.epoch(number) / "data").read_bytes() == OLD
    assert path.read_bytes() == b"CHANGED" + OLD[7:10] + b"more"


# ---- 3: only closed content enters an epoch


def test_an_epoch_has_a_file_as_it_was_last_closed(mnt):
    old, new = mnt.path / "old", mnt.path / "new"
    old.write_bytes(OLD)
    edited, created, replaced = Writer(old, mode="r+b"), Writer(new), Writer(old)
    number = mnt.seal()
    assert (mnt.epoch(number) / "old").read_bytes() == OLD
    assert not (mnt.epoch(number) / "new").exists()
    for writer in (edited, created, replaced):
        writer.leave()
    number = mnt.seal()
    assert (mnt.epoch(number) / "new").read_bytes() == b"NEW" * 1000


def test_a_close_is_in_what_comes_right_after_it(mnt):
    for i in range(100):
        with open(mnt.path / "f", "wb") as f:
            f.write(b"%d" % i)
        os.mkdir(mnt.epochs_dir / ("t%d" % i))
        assert (mnt.epochs_dir / ("t%d" % i) / "f").read_bytes() == b"%d" % i


def test_an_inherited_descriptor_delays_nothing_and_status_names_the_process(mnt):
    code = """
import os, sys, subprocess
f = open(sys.argv[1] + "/held", "wb"); f.write(b"x" * 100); f.flush()
child = subprocess.Popen(["sleep", "1000"], pass_fds=[f.fileno()])
f.close()
open(sys.argv[1] + "/free", "wb").write(b"y")
print(child.pid, flush=True)
sys.stdin.readline()
child.kill(); child.wait()
print("gone", flush=True)
"""
    parent = python(code, mnt.path)
    child = int(parent.stdout.readline())
    number = mnt.seal()
    assert sorted(os.listdir(mnt.epoch(number))) == ["free", "held"]
    assert any("held by" in word and str(child) in word for word in mnt.status()["pending"]["open"])
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "gone\n"
    assert parent.wait(timeout=60) == 0
    assert mnt.seal() == number


def test_a_forked_child_that_closes_its_copy_commits_nothing(mnt):
    path = mnt.path / "model"
    path.write_bytes(OLD)
    code = """
import os, sys
f = open(sys.argv[1], "wb"); f.write(b"half"); f.flush()
pid = os.fork()
if pid == 0:
    f.close(); os._exit(0)
os.waitpid(pid, 0)
print("forked", flush=True); sys.stdin.readline()
f.write(b" and whole"); f.close()
"""
    writer = python(code, path)
    assert writer.stdout.readline() == "forked\n"
    assert path.read_bytes() == OLD
    writer.communicate("\n", timeout=60)
    assert path.read_bytes() == b"half and whole"


# ---- 4: a killed writer commits nothing


@pytest.mark.parametrize("end", ["kill", "term", "fail"])
def test_a_replacement_by_a_killed_writer_is_undone(mnt, end):
    path = mnt.path / "model"
    path.write_bytes(OLD)
    mnt.seal()
    (mnt.path / "other").write_bytes(b"changed since")
    writer = Writer(path)
    assert writer.end(end) != 0
    assert path.read_bytes() == OLD
    names = wait_until(mnt.torn, "the torn bytes")
    assert len(names) == 1 and names[0].endswith("-model")
    assert (mnt.epochs_dir / "torn" / names[0]).read_bytes() == b"NEW" * 1000
    latest = os.readlink(mnt.epochs_dir / "latest")
    number = mnt.seal()
    record = log_of(mnt)[-1]
    assert record["epoch"] == number and record["complete"] is False and "model" in record["reason"]
    assert os.readlink(mnt.epochs_dir / "latest") == latest


def test_a_writer_that_ends_without_an_error_commits(mnt):
    path = mnt.path / "model"
    path.write_bytes(OLD)
    assert Writer(path).end("exit") == 0
    assert path.read_bytes() == b"NEW" * 1000
    assert mnt.torn() == []


def test_a_new_file_of_a_killed_writer_is_undone(mnt):
    writer = Writer(mnt.path / "new")
    writer.end("kill")
    assert os.listdir(mnt.path) == []
    assert len(wait_until(mnt.torn, "the torn bytes")) == 1


@pytest.mark.parametrize("kind", ["append", "readwrite", "fsynced", "in place"])
def test_every_other_file_of_a_killed_writer_stays_as_a_disk_would_leave_it(mnt, kind):
    path = mnt.path / "file"
    if kind == "in place":
        path.write_bytes(OLD)
    writer = Writer(path, mode={"append": "ab", "readwrite": "w+b", "fsynced": "wb", "in place": "r+b"}[kind])
    if kind == "fsynced":
        writer.tell("fsync")
    writer.end("kill")
    expected = b"NEW" * 1000
    if kind == "in place":
        expected += OLD[3000:]
    assert path.read_bytes() == expected
    assert mnt.torn() == []
    mnt.seal()
    assert log_of(mnt)[-1]["complete"] is False


def test_a_rename_of_a_killed_writers_file_over_a_committed_one_is_undone(mnt):
    path = mnt.path / "model"
    path.write_bytes(OLD)
    writer = Writer(mnt.path / "model.part")
    os.rename(mnt.path / "model.part", path)
    assert path.read_bytes() == b"NEW" * 1000
    writer.end("kill")
    wait_until(lambda: path.read_bytes() == OLD, "the old file to come back")
    assert os.listdir(mnt.path) == ["model"]


def test_of_the_torn_files_the_newest_sixteen_are_kept_across_unmounts(mnt):
    for i in range(18):
        Writer(mnt.path / ("f%02d" % i), times=i + 1).end("kill")
    names = wait_until(lambda: len(mnt.torn()) == 16 and mnt.torn(), "sixteen torn files")
    assert sorted(n.split("-", 1)[1] for n in names) == ["f%02d" % i for i in range(2, 18)]
    mnt.remount()
    assert sorted(mnt.torn()) == sorted(names)
    Writer(mnt.path / "another").end("kill")
    wait_until(lambda: any(n.endswith("-another") for n in mnt.torn()), "one more")
    assert len(mnt.torn()) == 16 and not any(n.endswith("-f02") for n in mnt.torn())
    # Of all that are there, by status; of this mount's own, by umount.
    assert "16 files of killed writers, " in run(BIN, "status", mnt.path).stdout
    assert "-another)" in run(BIN, "status", mnt.path).stdout
    said = run(BIN, "umount", mnt.path).stderr
    assert "1 file of killed writers, " in said and "-another)" in said
    mnt.wait_end()
    mnt.mount()
    assert "killed writers" not in run(BIN, "umount", mnt.path).stderr
    mnt.wait_end()
    mnt.mount()


@pytest.mark.rules("2")
def test_what_was_open_when_the_daemon_died_is_treated_alike(mnt):
    old = mnt.path / "old"
    old.write_bytes(OLD)
    (mnt.path / "closed").write_bytes(NEW)
    writers = [Writer(old), Writer(mnt.path / "new"), Writer(mnt.path / "appended", mode="ab")]
    wait_until(lambda: log_of(mnt), "the epoch of what was closed before old is replaced")
    mnt.kill()
    for writer in writers:
        writer.process.kill()
        writer.process.wait()
        writer.process.stdin.close()
        writer.process.stdout.close()
    mnt.mount(resume="off")
    assert old.read_bytes() == OLD and (mnt.path / "closed").read_bytes() == NEW
    assert not (mnt.path / "new").exists()
    assert (mnt.path / "appended").read_bytes() == b"NEW" * 1000
    mnt.seal()
    left = log_of(mnt)[-1]
    assert left["complete"] is False
    # By itself the tree goes back: what was closed before the replacement began is a whole save.
    mnt.remount()
    assert old.read_bytes() == OLD and (mnt.path / "closed").read_bytes() == NEW
    assert not (mnt.path / "appended").exists()
    assert (mnt.epoch(left["epoch"]) / "appended").read_bytes() == b"NEW" * 1000


def test_a_file_closed_before_the_daemon_died_is_kept(mnt):
    path = mnt.path / "model"
    for content in (OLD, NEW):
        path.write_bytes(content)
        mnt.kill()
        mnt.mount()
        assert path.read_bytes() == content
    mnt.seal()
    assert log_of(mnt)[-1]["complete"] is True


# ---- 5: logs are valid at every length


@pytest.mark.parametrize("name", ["train.log", "metrics.jsonl", "loss.csv", "job.out", "job.err", "events.out.tfevents.17.host"])
def test_an_open_log_is_in_each_epoch_as_it_stands(mnt, name):
    (mnt.path / "model").write_bytes(OLD)
    writer = Writer(mnt.path / name, mode="ab", data="line\n", times=10)
    number = mnt.seal()
    assert (mnt.epoch(number) / name).read_bytes() == b"line\n" * 10
    with open(mnt.path / name, "ab") as f:
        f.write(b"more\n")
    assert (mnt.epoch(number) / name).read_bytes() == b"line\n" * 10
    (mnt.path / "model").write_bytes(NEW)
    number = mnt.seal()
    assert (mnt.epoch(number) / name).read_bytes() == b"line\n" * 10 + b"more\n"
    writer.leave()


def test_an_open_log_that_changed_and_did_not_grow_is_in_the_next_epoch(mnt):
    """As a log that is begun again, of the same length."""
    with open(mnt.path / "train.log", "wb", buffering=0) as log:
        log.write(b"step 1\n")
        first = mnt.seal()
        log.seek(0)
        log.write(b"step 2\n")
        number = mnt.seal()
        assert number == first + 1 and mnt.seal() == number
        assert (mnt.epoch(number) / "train.log").read_bytes() == b"step 2\n"


def test_a_log_survives_the_kill_of_its_writer_and_of_the_daemon(mnt):
    path = mnt.path / "train.log"
    writer = Writer(path, mode="wb", data="line\n", times=10)
    writer.end("kill")
    assert path.read_bytes() == b"line\n" * 10
    writer = Writer(path, mode="wb", data="again\n", times=5)
    mnt.kill()
    writer.process.kill()
    writer.process.wait()
    writer.process.stdin.close()
    writer.process.stdout.close()
    mnt.mount()
    assert path.read_bytes() == b"again\n" * 5
    mnt.seal()
    assert log_of(mnt)[-1]["complete"] is True


def test_a_log_is_exempt_from_replacement(mnt):
    path = mnt.path / "train.log"
    path.write_bytes(b"first\n")
    writer = Writer(path, mode="wb", data="second\n", times=1)
    assert path.read_bytes() == b"second\n"
    writer.leave()


@pytest.mark.options(log="*.metrics")
def test_more_names_can_be_logs(mnt):
    writer = Writer(mnt.path / "a.metrics", data="1\n", times=1)
    number = mnt.seal()
    assert (mnt.epoch(number) / "a.metrics").read_bytes() == b"1\n"
    writer.leave()


@pytest.mark.options(patience="200ms")
def test_a_file_held_open_for_appending_becomes_a_log(mnt):
    writer = Writer(mnt.path / "history", mode="ab", data="1\n", times=1)

    def sealed():
        (mnt.path / "tick").write_bytes(os.urandom(8))
        number = mnt.seal()
        return (mnt.epoch(number) / "history").exists() and number

    number = wait_until(sealed, "history in an epoch")
    assert (mnt.epoch(number) / "history").read_bytes() == b"1\n"
    writer.leave()


def test_kill_by_signal_of_the_whole_group_undoes_too(mnt):
    """A batch system kills the process group: the shell and what it started."""
    path = mnt.path / "model"
    path.write_bytes(OLD)
    job = python(
        "import os,sys,time\nos.setpgid(0,0)\nf=open(sys.argv[1],'wb');f.write(b'x'*5000);f.flush()\n"
        "if os.fork(): print('up',flush=True)\ntime.sleep(1000)", path)
    assert job.stdout.readline() == "up\n"
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    job.stdin.close()
    job.stdout.close()
    wait_until(mnt.torn, "the torn bytes")
    assert path.read_bytes() == OLD
