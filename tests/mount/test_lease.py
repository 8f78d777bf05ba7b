# SPDX-License-Identifier: Apache-2.0
"""Two and more mounts of one volume, each with a cache of its own: one writes, the others wait, take over or read along.

A holder on another machine is one whose object says another boot of another host: what decides is the object alone.
"""

import json
import os
import signal
import subprocess
import time
import uuid

import pytest

from conftest import BIN, LIMIT, MountError, run, wait_until

SHORT = "2s"  # a lease that lapses while a test looks on


@pytest.fixture
def pair(make_volume):
    """Two volumes of one remote, not mounted yet."""
    return family(make_volume, 2)


def family(make_volume, count, **options):
    members = [make_volume(settle="1h", lease=SHORT, refresh="200ms", **options) for _ in range(count)]
    for v in members[1:]:
        v.remote, v.url = members[0].remote, members[0].url
    return members


def refused(v, **options):
    """What a mount that is refused says, in its last line."""
    with pytest.raises(MountError) as e:
        v.mount(**options)
    assert e.value.code == 8, e.value.output
    line = e.value.output.splitlines()[-1]
    assert line.startswith("epochfs: ")
    return line


def leases(v):
    """The objects of the lease, oldest first."""
    return sorted((v.remote / "lease").iterdir())


def move_holder_elsewhere(v):
    """Makes the newest object that of a process of another machine, whose clock is wrong."""
    path = leases(v)[-1]
    lease = json.loads(path.read_text())
    lease.update(boot_id=str(uuid.uuid4()), host="elsewhere", since="2031-01-01T00:00:00Z")
    new = path.with_name(".tmp-test")
    new.write_text(json.dumps(lease))
    new.rename(path)


def save(v, name, text):
    """Saves a file and makes it durable: the epoch's number."""
    (v.path / name).write_text(text)
    number = v.seal()
    v.wait_durable()
    return number


def fsck(v):
    done = run(BIN, "fsck", "--read-data", v.url)
    assert "no damage" in done.stdout


# ---- one writer ----


def test_a_second_mount_is_told_who_has_it(pair):
    a, b = pair
    a.mount()
    line = refused(b)
    assert str(a.path) in line and "process %d" % a.pid in line and os.uname().nodename in line
    assert json.loads(leases(a)[0].read_text())["since"][:19] in line
    said = json.loads(run(BIN, "status", "--json", a.url).stdout)["lease"]
    assert said["state"] == "held" and said["pid"] == a.pid and said["mountpoint"] == str(a.path)
    assert save(a, "f", "1") == 1
    a.unmount()
    assert json.loads(run(BIN, "status", "--json", a.url).stdout)["lease"] == {"state": "free"}
    b.mount()
    assert (b.path / "f").read_text() == "1"
    assert b.status()["lease"]["generation"] == 2


def test_the_exit_code_of_the_command_is_8(pair):
    """As a job's script sees it: in the background, one line, exit code 8."""
    a, b = pair
    a.mount()
    options = ",".join(["cache-dir=%s" % b.cache, "lease=%s" % SHORT])
    done = run(BIN, "mount", "-o", options, b.url, b.path, check=False)
    assert done.returncode == 8
    assert len(done.stderr.splitlines()) == 1 and "held for writing by" in done.stderr
    assert run(BIN, "mount", "-o", options + ",ro,take-over", b.url, b.path, check=False).returncode == 2


def test_after_a_kill_the_same_host_comes_back_at_once(pair):
    a, b = pair
    a.mount(lease="1h")
    save(a, "f", "1")
    a.kill()
    b.mount(lease="1h")  # another cache: the process is gone
    assert (b.path / "f").read_text() == "1"
    b.kill()
    a.mount(lease="1h")
    assert "waiting" not in a.log.read_text()
    assert (a.path / "f").read_text() == "1"
    assert save(a, "f", "2") == 2


def test_a_holder_that_is_gone_elsewhere_lapses(pair):
    a, b = pair
    a.mount()
    save(a, "f", "1")
    a.kill()
    move_holder_elsewhere(a)
    b.mount()
    log = b.log.read_text()
    assert "held for writing by elsewhere" in log and "waiting for up to 2 s" in log
    assert "took the lease of" in log
    assert save(b, "f", "2") == 2
    fsck(b)


def test_a_wait_ends_with_the_command_that_waits(pair):
    """Ctrl-C while it waits: nothing is mounted behind the user's back."""
    a, b = pair
    a.mount(lease="1h")
    a.kill()
    move_holder_elsewhere(a)
    command = [BIN, "mount", "-o", "cache-dir=%s" % b.cache, b.url, os.fspath(b.path)]
    with open(b.log, "ab") as log:
        waiting = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    wait_until(lambda: "waiting for up to" in b.log.read_text(), "the wait")
    waiting.send_signal(signal.SIGINT)
    waiting.wait(timeout=LIMIT)
    lock = next(b.cache.iterdir()) / "lock"
    wait_until(lambda: run("flock", "-n", lock, "true", check=False).returncode == 0, "the daemon to give up")
    assert "gave up waiting" in b.log.read_text()
    assert not os.path.ismount(b.path)


def test_a_stopped_holder_lapses_for_others_and_learns_of_it(pair):
    """A process that sleeps for longer than its lease: another takes over; what it has is kept and not uploaded."""
    a, b = pair
    a.mount()
    save(a, "f", "1")
    os.kill(a.pid, signal.SIGSTOP)
    try:
        # Of the same host it would be seen that the process is there.
        line = refused(b)
        assert "process %d" % a.pid in line
        move_holder_elsewhere(a)
        b.mount()
        save(b, "f", "theirs")
    finally:
        os.kill(a.pid, signal.SIGCONT)
    wait_until(lambda: a.status()["lease"]["state"] == "lost", "the old holder to learn of it")
    (a.path / "f").write_text("mine")
    assert a.seal() == 2
    wait_until(lambda: a.status()["upload"].get("conflict"), "the upload to stop")
    assert (a.path / "f").read_text() == "mine"
    assert (b.path / "f").read_text() == "theirs"
    fsck(b)


def test_a_live_holder_is_taken_over_only_on_demand(pair):
    a, b = pair
    a.mount()
    save(a, "f", "1")
    run(BIN, "mount", "--take-over", "-o", "cache-dir=%s,lease=%s,settle=1h" % (b.cache, SHORT), b.url, b.path)
    try:
        assert (b.path / "f").read_text() == "1"
        (b.path / "f").write_text("theirs")
        assert b.seal() == 2
        b.wait_durable()
        # What the loser does from now on stays with it: in its live tree, and in epochs of its own.
        (a.path / "f").write_text("mine")
        (a.path / "g").write_text("more")
        assert a.seal("mine") == 2
        failed = wait_until(lambda: a.status()["upload"].get("conflict") and a.status(), "the upload to stop")
        assert failed["lease"]["state"] == "lost" and str(b.path) in failed["lease"]["taken_over_by"]
        assert "taken over by" in failed["upload"]["error"] and failed["upload"]["pending_epochs"] == 1
        (a.path / "h").write_text("later")
        assert a.seal() == 3
        for number in (2, 3):
            wait_until(lambda n=number: os.getxattr(a.epoch(n), "user.epochfs.state") == b"failed", "the epoch to fail")
            assert b"taken over by" in os.getxattr(a.epoch(number), "user.epochfs.error")
        done = run(BIN, "wait", a.path, check=False)
        assert done.returncode == 8 and "taken over by" in done.stderr
        done = run(BIN, "umount", a.path, check=False)
        assert done.returncode == 8 and "--no-drain" in done.stderr
        assert "taken over by" in a.log.read_text()
        # The winner has none of it, and its tag is not there.
        assert (b.epoch(2) / "f").read_text() == "theirs"
        assert run(BIN, "tag", b.url).stdout == ""
        assert sorted(os.listdir(b.path)) == ["f"]
        # And the user gets the work out, also after an unmount: a read-only mount of the same cache shows it.
        assert (a.epoch(3) / "h").read_text() == "later"
        a.unmount()
        a.mount(ro=True)
        assert (a.path / "f").read_text() == "mine" and (a.path / "h").read_text() == "later"
        assert (a.epoch(2) / "g").read_text() == "more"
        a.unmount()
        assert refused(a)
    finally:
        run(BIN, "umount", b.path)
    fsck(b)


def test_a_remote_that_is_away_longer_than_the_lease_does_not_stop_the_holder(pair, tmp_path):
    a, b = pair
    control = tmp_path / "faults"
    a.url = "fault+%s?control=%s" % (a.url, control)
    a.mount()
    save(a, "f", "1")
    before = json.loads(leases(a)[-1].read_text())["renewed"]
    new = tmp_path / "faults.new"
    new.write_text("down=1")
    new.rename(control)
    (a.path / "f").write_text("2")
    assert a.seal() == 2
    wait_until(lambda: "error" in a.status()["lease"], "a renewal that fails")
    assert a.status()["lease"]["state"] == "held"
    control.unlink()
    a.wait_durable()
    wait_until(lambda: json.loads(leases(a)[-1].read_text())["renewed"] > before, "a renewal")
    wait_until(lambda: "error" not in a.status()["lease"], "the status to say so")
    a.unmount()
    assert json.loads(leases(a)[-1].read_text())["released"]
    b.mount()
    assert (b.path / "f").read_text() == "2"


def test_an_unmount_does_not_wait_for_a_lease_that_hangs(pair, tmp_path):
    a, b = pair
    faults = tmp_path / "faults"
    a.url = "fault+file://%s?control=%s" % (a.remote, faults)
    a.mount(lease="1h")
    save(a, "f", "1")
    faults.write_text("put.delay=10m&only=lease/")
    a.unmount()  # LIMIT is a minute
    assert "the lease was not given back" in a.log.read_text()
    b.mount(lease="1h")  # its process is gone
    assert (b.path / "f").read_text() == "1"


def test_a_holder_that_cannot_be_read_is_waited_for(pair):
    a, b = pair
    a.mount()
    a.kill()
    leases(a)[-1].write_text("{")
    b.mount(**{"take-over": True})
    assert "took the lease" in b.log.read_text() and "unknown host" in b.log.read_text()
    assert len(leases(b)) == 2


# ---- many readers ----


@pytest.fixture
def followed(make_volume):
    """A writer with one epoch, and a reader of it with a cache of its own."""
    writer, reader = family(make_volume, 2)
    writer.mount()
    save(writer, "f", "one")
    reader.mount(ro=True)
    return writer, reader


def follows(reader, number):
    """Waits until the reader stands on that epoch, and the kernel has been told: another look was begun since."""
    wait_until(lambda: reader.status()["epochs"]["current"] == number, "the reader to follow to epoch %d" % number)
    now = time.time_ns()
    wait_until(lambda: reader.status()["follow"]["refreshed_ns"] >= now, "the next look")


def test_a_reader_follows(followed):
    writer, reader = followed
    assert (reader.path / "f").read_text() == "one"
    assert reader.tags() == {}
    os.mkdir(writer.path / "dir")
    (writer.path / "dir" / "new").write_text("n" * 10000)
    assert save(writer, "f", "two") == 2
    os.symlink("1", writer.epochs_dir / "best")
    follows(reader, 2)
    assert (reader.path / "f").read_text() == "two"
    assert (reader.path / "dir" / "new").read_text() == "n" * 10000
    assert sorted(os.listdir(reader.path)) == ["dir", "f"]
    assert reader.epochs() == [1, 2]
    assert os.readlink(reader.epochs_dir / "latest") == os.readlink(reader.epochs_dir / "current") == "000002"
    assert (reader.epoch(1) / "f").read_text() == "one"
    wait_until(lambda: reader.tags() == {"best": 1}, "the tag")
    listed = json.loads(run(BIN, "log", "--json", reader.path).stdout)
    assert [e["epoch"] for e in listed] in ([2, 1], [1, 2])
    # What is removed is gone, also from the kernel's caches; what is dropped too.
    os.unlink(writer.path / "f")
    os.unlink(writer.epochs_dir / "best")
    assert save(writer, "g", "three") == 3
    os.rmdir(writer.epoch(1))
    follows(reader, 3)
    assert sorted(os.listdir(reader.path)) == ["dir", "g"]
    assert not (reader.path / "f").exists()
    wait_until(lambda: reader.epochs() == [2, 3] and not reader.tags(), "what was dropped to go")
    assert not (reader.epochs_dir / "000001").exists() and not (reader.epochs_dir / "1").is_symlink()
    with pytest.raises(OSError):
        (reader.path / "new").write_text("x")
    reader.unmount()
    writer.unmount()
    fsck(writer)


def test_what_a_reader_has_open_stays_whole(followed):
    """An open file keeps its content, through many epochs; by name there is always one whole version."""
    writer, reader = followed
    size = 1 << 20
    save(writer, "f", "A" * size)
    follows(reader, 2)
    with open(reader.path / "f") as old:
        assert old.read(10) == "A" * 10
        for number, letter in enumerate("BCDE", 3):
            assert save(writer, "f", letter * size) == number
            while reader.status()["epochs"]["current"] < number:
                text = (reader.path / "f").read_text()
                assert len(text) == size and text == text[0] * size
            follows(reader, number)
            assert (reader.path / "f").read_text() == letter * size
        assert old.read() == "A" * (size - 10)
        assert os.fstat(old.fileno()).st_size == size


def test_many_readers_follow(make_volume):
    writer, *readers = family(make_volume, 6)
    writer.mount()
    save(writer, "f", "1")
    for r in readers:
        r.mount(ro=True)
    for number in range(2, 5):
        assert save(writer, "f", str(number)) == number
    for r in readers:
        follows(r, 4)
        assert (r.path / "f").read_text() == "4"
        assert "lease" not in r.status()
    assert len(leases(writer)) == 1
    # They go on when the writer ends, and when the next one comes.
    writer.kill()
    writer.mount()
    save(writer, "f", "5")
    for r in readers:
        follows(r, 5)


def test_a_reader_follows_from_the_first_epoch_on(pair):
    writer, reader = pair
    writer.mount()
    reader.mount(ro=True)
    assert os.listdir(reader.path) == [] and reader.epochs() == []
    save(writer, "f", "first")
    follows(reader, 1)
    assert (reader.path / "f").read_text() == "first"


def test_a_reader_of_one_epoch_does_not_follow(followed):
    writer, reader = followed
    reader.unmount()
    reader.mount(ro=True, epoch=1)
    save(writer, "f", "two")
    assert "follow" not in reader.status()
    assert (reader.path / "f").read_text() == "one"
    assert reader.epochs() == [1]


def test_a_reader_needs_a_cache_of_its_own(followed):
    writer, reader = followed
    other = reader.path.with_name("other")
    other.mkdir()
    done = run(BIN, "mount", "-o", "ro,cache-dir=%s" % reader.cache, reader.url, other, check=False)
    assert done.returncode == 8 and "in use by another mount" in done.stderr
    assert "cache of its own" in done.stderr
    assert writer.status()["lease"]["state"] == "held"


def test_a_reader_waits_for_a_remote_that_is_away(followed, tmp_path):
    writer, reader = followed
    reader.unmount()
    control = tmp_path / "faults"
    reader.url = "fault+%s?control=%s" % (reader.url, control)
    reader.mount(ro=True, patience="1s")
    new = tmp_path / "faults.new"
    new.write_text("down=1")
    new.rename(control)
    save(writer, "f", "two")
    wait_until(lambda: "error" in reader.status()["follow"], "a refresh that fails")
    assert (reader.path / "f").read_text() == "one"
    control.unlink()
    follows(reader, 2)
    wait_until(lambda: "error" not in reader.status()["follow"], "a refresh that goes well")
    assert (reader.path / "f").read_text() == "two"


def test_a_cache_that_followed_can_write(followed):
    """A reader's cache, mounted for writing: nothing of what it followed is news to it."""
    writer, reader = followed
    save(writer, "f", "two")
    save(writer, "g", "three")
    follows(reader, 3)
    reader.unmount()
    writer.unmount()
    reader.mount()
    assert reader.seal() == 3  # nothing changed
    assert save(reader, "f", "four") == 4
    reader.kill()
    reader.mount()
    assert reader.seal() == 4
    fsck(reader)


def test_the_work_of_a_writer_is_not_touched_by_following(pair):
    """A cache with epochs that are only there, mounted read-only: the live tree is that work, whatever comes."""
    a, b = pair
    a.mount()
    save(a, "f", "1")
    b.mount(**{"take-over": True})
    (a.path / "f").write_text("mine")
    a.seal()
    wait_until(lambda: a.status()["upload"].get("conflict"), "the upload to stop")
    a.unmount()
    a.mount(ro=True)
    for number in range(2, 5):
        save(b, "f", "theirs %d" % number)
    wait_until(lambda: 4 in a.epochs(), "the other's epochs")
    assert (a.path / "f").read_text() == "mine"
    assert (a.epoch(2) / "f").read_text() == "mine"
    assert (a.epoch(3) / "f").read_text() == "theirs 3"


# ---- changes without a mount ----


def test_a_tag_on_a_remote_goes_beside_a_mount_that_writes(pair):
    """One small object, created only if it is absent: it takes no lease, and readers see it."""
    a, b = pair
    a.mount()
    save(a, "f", "1")
    b.mount(ro=True)
    run(BIN, "tag", a.url, "1", "best")
    wait_until(lambda: b.tags() == {"best": 1}, "the tag")
    assert a.status()["lease"]["state"] == "held"
    save(a, "f", "2")
    a.remount()
    assert a.tags() == {"best": 1}


def test_the_next_mount_says_of_left_epochs_what_it_does(volume):
    """With the same cache it uploads them; with another they are lost to the remote once it seals its own."""
    volume.options["passthrough"] = "off"
    volume.url = "fault+file://%s?put.error=1&only=epochs/" % volume.remote
    volume.mount(settle="1h")
    (volume.path / "f").write_text("1")
    volume.seal()
    run(BIN, "umount", "--no-drain", volume.path)
    volume.wait_end()
    volume.url = "file://%s" % volume.remote
    before = len(volume.log.read_text())
    cache, volume.cache = volume.cache, volume.base / "other"
    volume.mount(settle="1h")
    assert "1 epoch not uploaded, which lies in its cache: it cannot be uploaded once this mount seals" in volume.log.read_text()[before:]
    volume.unmount()
    volume.cache, before = cache, len(volume.log.read_text())
    volume.mount(settle="1h")
    volume.wait_durable()
    assert "cannot be" not in volume.log.read_text()[before:]
