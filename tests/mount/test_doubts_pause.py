# SPDX-License-Identifier: Apache-2.0
"""Saves in place that are sealed in the middle, by quiet or by closes that make epochs, and killed after that."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import BIN, run, wait_until
from test_contract_epochs import log_of
from test_contract_sealing import write_zip
from test_contract_writing import Writer
from test_doubts import doubts, kill, latest, put, record, retained

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")

KILLED = ("undone", True)


def complete(mnt):
    return [n for n, e in sorted(log_of(mnt).items()) if e["complete"] is True]


def sealed(mnt, path, text):
    """Saves one file, and waits for the epoch that makes it by itself."""
    before = max(log_of(mnt), default=0)
    put(mnt.path / path, text)
    return wait_until(lambda: max(log_of(mnt), default=0) > before and max(log_of(mnt)), "an epoch by itself")


@pytest.fixture
def half(mnt):
    """A and B were saved together; of the next save A is in an epoch of its own."""
    put(mnt.path / "A", "a 1"), put(mnt.path / "B", "b 1")
    wait_until(lambda: 1 in log_of(mnt), "the first save")
    assert sealed(mnt, "A", "a 2") == latest(mnt) == 2
    return mnt


QUIET = pytest.mark.options(settle="150ms")


@pytest.mark.options(settle="150ms", keep="last:1")
def test_a_kill_after_a_pause_makes_what_was_sealed_in_it_half(half):
    kill(half.path / "B")
    wait_until(lambda: latest(half) == 1, "the good epoch to be the latest again")
    assert max(log_of(half)) == 3 and doubts(half, 3) == {"B": KILLED} and record(half, 3)["doubts"][0]["companions"] == ["A"]
    assert record(half, 3)["continues"] == 2 and not record(half, 2)["complete"]
    retained(half, [1, 2, 3])
    half.remount(empty_cache=True)
    assert latest(half) == 1 and complete(half) == [1]
    assert sealed(half, "B", "b 2") == latest(half) == 4


@pytest.mark.parametrize("keep", [pytest.param("", marks=QUIET), pytest.param("last:1", marks=pytest.mark.options(settle="150ms", keep="last:1"))])
def test_what_is_sealed_between_is_half_too(half, keep):  # pylint: disable=unused-argument
    for number in range(3):
        sealed(half, "status.json", str(number))
        half.wait_durable()
    retained(half, [1, 2, 3, 4, 5])  # and so they are with keep=: each may be a part of the save
    assert latest(half) == 5 and complete(half) == [1, 2, 3, 4, 5]
    kill(half.path / "B")
    wait_until(lambda: latest(half) == 1, "the good epoch to be the latest again")
    assert doubts(half, 6) == {"B": KILLED} and complete(half) == [1]
    half.remount(empty_cache=True)
    assert latest(half) == 1 and complete(half) == [1]


@QUIET
@pytest.mark.parametrize("dropped_in", ["mount", "remote"])
def test_what_is_half_stays_so_elsewhere_when_its_rest_was_dropped(half, make_volume, dropped_in):
    """For who reads the remote from the start, and for who follows it."""
    half.wait_durable()
    other = make_volume()
    other.url = half.url
    for number in range(3):
        sealed(half, "status.json", str(number))
    half.wait_durable()
    if dropped_in == "mount":
        other.mount(ro=True, refresh="1s")
    assert sealed(half, "B", "b 2") == 6 and record(half, 6)["continues"] == 5
    put(half.path / "A", "a 3"), put(half.path / "B", "b 3")
    assert half.seal() == 7
    half.wait_durable()
    if dropped_in == "remote":
        half.unmount()
        other.mount(ro=True, refresh="1s")
        run(BIN, "rm", half.url, "6")
    else:
        run(BIN, "rm", half.path, "6")
        half.wait_durable()
        half.unmount()
    catalog = {e["epoch"]: e["complete"] for e in json.loads(run(BIN, "log", "--json", half.url).stdout)}
    assert catalog == {1: True, 2: False, 3: False, 4: False, 5: False, 7: True}
    wait_until(lambda: complete(other) == [1, 7], "the follower to know it")
    half.empty_cache()
    half.mount(settle="1h")
    assert complete(half) == [1, 7]
    run(BIN, "undrop", half.path, "6")
    wait_until(lambda: complete(half) == [1, 6, 7], "the dropped epoch to be back")


@QUIET
def test_rounds_with_something_between(half):
    """Each save is whole in the end, whatever is sealed amid it."""
    whole = 1
    for number in range(3, 6):
        sealed(half, "status.json", str(number))
        sealed(half, "status-%d" % number, "new")
        assert sealed(half, "B", "b %d" % number) == latest(half)
        assert complete(half)[-1] - complete(half)[-2] > 3
        whole = latest(half)
        sealed(half, "A", "a %d" % number)
        assert whole in complete(half)
    kill(half.path / "B")
    wait_until(lambda: latest(half) == whole, "the whole save to be the latest again")


@pytest.mark.options(settle="150ms", patience="2s", keep="last:1")
def test_a_file_that_is_written_for_long(half):
    """Longer than `patience`: it was opened soon after."""
    writer = Writer(half.path / "B")
    for _ in range(3):
        time.sleep(1)
        put(half.path / "train.log", "a log")
    assert {1, 2} <= set(log_of(half))
    writer.end("kill")
    wait_until(lambda: latest(half) == 1, "the good epoch to be the latest again")


@QUIET
def test_a_save_that_goes_on_after_a_pause_completes_what_was_sealed_in_it(half):
    assert sealed(half, "B", "b 2") == latest(half) == 3
    assert complete(half) == [1, 3] and record(half, 3)["continues"] == 2
    # So it is each time.
    assert sealed(half, "A", "a 3") == 4 and complete(half) == [1, 3, 4]
    kill(half.path / "B")
    wait_until(lambda: latest(half) == 3, "the whole save to be the latest again")
    assert complete(half) == [1, 3]


@QUIET
def test_a_crash_of_the_daemon_after_a_pause(half):
    writer = Writer(half.path / "B")
    half.kill()
    writer.end("kill")
    half.mount()
    wait_until(lambda: latest(half) == 1, "the good epoch to be the latest again")


@QUIET
def test_a_file_that_is_saved_less_often_takes_nothing_with_it(half):
    for number in range(3, 6):
        sealed(half, "A", "a %d" % number)
    kill(half.path / "B")
    time.sleep(0.6)
    assert complete(half) == [1, 2, 3, 4, 5] and latest(half) == max(log_of(half)) == 5


@QUIET
def test_a_word_in_the_pause_holds(half):
    assert run(BIN, "commit", "-m", "whole", half.path).returncode == 0
    put(half.path / "A", "a 3")
    number = half.seal()
    kill(half.path / "B")
    time.sleep(0.6)
    assert latest(half) == max(log_of(half)) == number


@pytest.mark.options(settle="150ms", patience="1s", keep="last:1")
def test_what_is_open_all_the_time_keeps_no_epochs(mnt):
    """It was opened before them."""
    sealed(mnt, "results", "of the run before")
    with open(mnt.path / "results", "w", encoding="ascii") as results:
        results.write("open for the whole run")
        results.flush()
        put(mnt.path / "model", "whole" * 100)
        wait_until(lambda: len(log_of(mnt)) > 1, "the first save")
        for number in range(8):
            sealed(mnt, "status.json", str(number) * 500)
        time.sleep(1.5)
        last = sealed(mnt, "status.json", "last" * 125)
        mnt.wait_durable()
        # But the one that was sealed right before it was opened: what is open may go on with its save.
        wait_until(lambda: min(n for n in log_of(mnt) if n > 1) >= last - 2, "what is old to be dropped")


@QUIET
def test_a_small_rest_that_is_killed(mnt):
    """With keep= the way back stays, though its own new bytes are few: it completed others."""
    mnt.remount(keep="last:1")
    for turn in range(2):
        put(mnt.path / "A", "a %d" % turn * 100), put(mnt.path / "B", "b %d" % turn)
        wait_until(lambda t=turn: len(log_of(mnt)) > t, "an epoch by itself")
    sealed(mnt, "A", "a 2" * 100)
    whole = sealed(mnt, "B", "b 2")
    sealed(mnt, "A", "a 3" * 100)
    sealed(mnt, "note", "new")
    mnt.wait_durable()
    kill(mnt.path / "B")
    wait_until(lambda: latest(mnt) == whole, "the whole save to be the latest again")


@pytest.mark.options(settle="1h", durability="remote", keep="last:1")
def test_closes_that_make_epochs(mnt):
    """Nobody says by a close that the save is over."""
    for turn in range(1, 4):
        put(mnt.path / "A", "a %d" % turn), put(mnt.path / "B", "b %d" % turn), put(mnt.path / "C", "c %d" % turn)
    whole = latest(mnt)
    put(mnt.path / "A", "a 4"), put(mnt.path / "B", "b 4")
    kill(mnt.path / "C")
    mnt.seal()
    assert latest(mnt) == whole and {n: (mnt.epoch(whole) / n).read_text() for n in "ABC"} == {"A": "a 3", "B": "b 3", "C": "c 3"}
    put(mnt.path / "C", "c 4")
    assert latest(mnt) > whole


# Saves A and B; told to stop it saves once more, and is killed in B.
TRAINER = """
import os, signal, sys
top = sys.argv[1]
def save(text, dies=False):
    for name in "AB":
        with open(os.path.join(top, name), "w") as f:
            f.write(text)
            f.flush()
            if dies and name == "B":
                os.kill(os.getpid(), signal.SIGKILL)
def stop(number, frame):
    save("second", True)
signal.signal(signal.SIGTERM, stop)
save("first")
print("saved", flush=True)
while True:
    signal.pause()
"""


def test_a_job_that_is_killed_in_its_last_save_resumes_from_the_one_before(tmp_path):
    """`epochfs run` makes what is closed durable at once after a signal."""
    for name in ("mnt", "remote", "cache"):
        (tmp_path / name).mkdir()
    env = {**os.environ, "EPOCHFS_CACHE_DIR": str(tmp_path / "cache"), "EPOCHFS_SETTLE": "200ms", "EPOCHFS_KEEP": "last:1"}
    words = [BIN, "run", "--resume", "--mount", "%s:%s" % (tmp_path / "remote", tmp_path / "mnt"), "--"]
    job = subprocess.Popen(words + [sys.executable, "-c", TRAINER, str(tmp_path / "mnt")], env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout.readline() == "saved\n"
        wait_until(lambda: os.path.lexists(tmp_path / "mnt" / ".epochs" / "1"), "the first save")
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=60)
    finally:
        job.kill()
        run("umount", "-l", tmp_path / "mnt", check=False)
    said = subprocess.run(words + ["cat", tmp_path / "mnt" / "A", tmp_path / "mnt" / "B"], env=env, capture_output=True, text=True,
                          timeout=60, check=True).stdout
    assert said == "firstfirst"


@pytest.mark.parametrize("names", [("consolidated.00.pth", "consolidated.01.pth"), ("dir/model_0.pt", "dir/model_1.pt")])
def test_numbers_of_what_is_saved_again_count_its_parts(mnt, names):
    for name in names:
        put(mnt.path / name, "first")
    assert mnt.seal() == 1
    put(mnt.path / names[0], "second")
    kill(mnt.path / names[1])
    assert mnt.seal() == 2 and latest(mnt) == 1
    assert doubts(mnt, 2) == {names[1]: KILLED} and record(mnt, 2)["doubts"][0]["companions"] == [names[0]]
    mnt.remount(empty_cache=True)
    put(mnt.path / "notes", "more")
    assert mnt.seal() == 3 and latest(mnt) == 1
    put(mnt.path / names[1], "second")
    assert mnt.seal() == latest(mnt) == 4


@pytest.mark.parametrize("torn", [0, 1])
def test_parts_that_are_torn_count_until_they_are_saved_again(mnt, torn):
    """Ctrl-C in a rewrite: all parts are closed, and what is saved after that is no whole checkpoint."""
    names = ["consolidated.00.pth", "consolidated.01.pth"]
    for name in names:
        write_zip(mnt.path / name)
    assert mnt.seal() == latest(mnt) == 1
    for number, name in enumerate(names):
        write_zip(mnt.path / name)
        if number == torn:
            os.truncate(mnt.path / name, 40000)
    assert mnt.seal() == 2 and latest(mnt) == 1
    assert doubts(mnt, 2) == {names[torn]: ("torn", True)} and record(mnt, 2)["doubts"][0]["companions"] == [names[1 - torn]]
    for number in (3, 4):
        write_zip(mnt.path / names[1 - torn])
        assert mnt.seal() == number and latest(mnt) == 1 and doubts(mnt, number) == {names[torn]: ("torn", True)}
    mnt.remount(empty_cache=True)
    write_zip(mnt.path / names[1 - torn])
    assert mnt.seal() == 5 and latest(mnt) == 1
    write_zip(mnt.path / names[torn])
    assert mnt.seal() == latest(mnt) == 6


def test_torn_steps_spoil_no_others(mnt):
    """Though both are saved once more."""
    for number in (1, 2):
        write_zip(mnt.path / ("model_%d.pt" % number))
        assert mnt.seal() == latest(mnt) == number
    for number in (1, 2):
        write_zip(mnt.path / ("model_%d.pt" % number))
    os.truncate(mnt.path / "model_1.pt", 40000)
    write_zip(mnt.path / "model_3.pt")
    assert mnt.seal() == latest(mnt) == 3 and doubts(mnt, 3) == {"model_1.pt": ("torn", False)}


def test_a_new_number_is_a_step(mnt):
    put(mnt.path / "model_1.pt", "first")
    assert mnt.seal() == 1
    put(mnt.path / "model_2.pt", "second")
    kill(mnt.path / "model_3.pt")
    put(mnt.path / "notes", "more")
    assert mnt.seal() == latest(mnt) == 2


def test_a_new_file_that_is_open_for_reading_too_is_missed(mnt):
    """As HDF5 opens what it makes."""
    put(mnt.path / "checkpoint-100" / "model.h5", "whole"), put(mnt.path / "checkpoint-100" / "opt.h5", "whole")
    assert mnt.seal() == 1
    put(mnt.path / "checkpoint-200" / "model.h5", "whole")
    fd = os.open(mnt.path / "checkpoint-200" / "opt.h5", os.O_RDWR | os.O_CREAT)
    try:
        os.write(fd, b"half")
        assert mnt.seal() == 2 and latest(mnt) == 1 and doubts(mnt, 2) == {"checkpoint-200/opt.h5": KILLED}
    finally:
        os.close(fd)
    assert mnt.seal() == latest(mnt) == 3
    # A database is as whole as it was.
    with open(mnt.path / "checkpoint-200" / "trials.db", "w+b") as f:
        f.write(b"SQLite format 3\0" + bytes(1000))
        f.flush()
        put(mnt.path / "checkpoint-200" / "notes", "more")
        assert mnt.seal() == latest(mnt) == 4


def test_what_python_left_under_a_temporary_name_is_no_doubt(mnt):
    """NamedTemporaryFile(dir=..., delete=False), as Ignite's DiskSaver."""
    put(mnt.path / "model.pt", "first")
    assert mnt.seal() == 1
    code = """
import os, signal, sys, tempfile
f = tempfile.NamedTemporaryFile(dir=sys.argv[1], delete=False)
f.write(b"PK\\3\\4 half of a zip" * 100)
f.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code, mnt.path], timeout=60, check=False).returncode == -signal.SIGKILL
    put(mnt.path / "model.pt", "second")
    assert mnt.seal() == latest(mnt) == 2


# Two files (or one) by NamedTemporaryFile and os.replace, whose names tell no final one.
UNNAMED = """
import os, signal, sys, tempfile, time
folder, saves = sys.argv[1], sys.argv[2].split()
for save in saves:
    name, _, what = save.partition("=")
    if name == "sleep":
        time.sleep(float(what))
        continue
    with tempfile.NamedTemporaryFile(sys.argv[3], dir=folder, delete=False) as f:
        f.write(what.encode() * 1000)
        f.flush()
        if what.endswith("KILL"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.replace(f.name, os.path.join(folder, name))
"""


def save_unnamed(folder, saves, mode="w+b"):
    done = subprocess.run([sys.executable, "-c", UNNAMED, folder, saves, mode], timeout=60, check=False)
    assert done.returncode == (-signal.SIGKILL if "KILL" in saves else 0)


@pytest.mark.parametrize("mode", ["w+b", "wb"])
@pytest.mark.options(settle="150ms", keep="last:1", patience="5s")
def test_a_kill_under_a_name_that_tells_nothing_makes_what_was_sealed_before_half(mnt, mode):
    save_unnamed(mnt.path, "model=m1xxxx opt=o1xxxx sleep=1", mode)
    save_unnamed(mnt.path, "model=m2xxxx opt=o2xxxx sleep=1", mode)
    good = latest(mnt)
    save_unnamed(mnt.path, "model=m3xxxx sleep=1 opt=KILL", mode)
    wait_until(lambda: max(log_of(mnt).items())[1]["complete"] is False, "the kill to be sealed")
    assert latest(mnt) == good
    retained(mnt, [n for n in log_of(mnt) if n >= good])
    for name in ("model", "opt"):
        assert (mnt.epoch(good) / name).read_bytes() == (name[0] + "2xxxx").encode() * 1000
    mnt.remount(empty_cache=True)
    assert latest(mnt) == good
    save_unnamed(mnt.path, "model=m4xxxx opt=o4xxxx sleep=1", mode)
    assert latest(mnt) == max(log_of(mnt)) > good


@pytest.mark.parametrize("mode", ["w+b", "wb"])
@pytest.mark.options(settle="150ms")
def test_a_kill_under_a_name_that_tells_nothing_leaves_a_whole_save(mnt, mode):
    put(mnt.path / "config.json", "{}")
    for number in range(1, 4):
        save_unnamed(mnt.path, "model=m%dxxxx opt=o%dxxxx sleep=1" % (number, number), mode)
    whole = latest(mnt)
    save_unnamed(mnt.path, "model=m4KILL", mode)
    save_unnamed(mnt.path, "other=alsoKILL", mode)
    time.sleep(1)
    assert latest(mnt) >= whole and complete(mnt)[-1] == max(log_of(mnt))
    assert not doubts(mnt, max(log_of(mnt)))


@pytest.mark.parametrize("mode", ["w+b", "wb"])
@pytest.mark.options(settle="150ms")
def test_a_kill_of_the_only_file_beside_a_configuration_leaves_the_save_before_whole(mnt, mode):
    save_unnamed(mnt.path, "config.json=c model=m1xxxx sleep=1", mode)
    save_unnamed(mnt.path, "model=m2xxxx sleep=1", mode)
    save_unnamed(mnt.path, "model=m3KILL", mode)
    time.sleep(1)
    assert complete(mnt)[-1] == max(log_of(mnt)) == latest(mnt)


@pytest.mark.parametrize("name", ["never", "model2.pt"])
@pytest.mark.options(settle="1h")
def test_a_kill_of_a_new_file_that_has_its_own_name_leaves_a_whole_save(mnt, name):
    put(mnt.path / "model", "m" * 10000), put(mnt.path / "opt", "o" * 10000)
    assert mnt.seal() == 1
    put(mnt.path / "model", "n" * 10000)
    os.mkdir(mnt.path / "tmp-checkpoint-1")
    put(mnt.path / "tmp-checkpoint-1" / "w", "w" * 10000)
    os.rename(mnt.path / "tmp-checkpoint-1", mnt.path / "checkpoint-1")
    kill(mnt.path / name)
    mnt.seal()
    assert complete(mnt) == [1, 2] and latest(mnt) == 2


# Files A, B, C in place or by rename; a kill in the middle of one, a pause after each.
SAVE = """
import os, signal, sys, time
folder, text, kill, pause, how = sys.argv[1:6]
for name in "ABC":
    path = os.path.join(folder, name)
    with open(path + how, "wb") as f:
        f.write(text.encode() * 20000)
        f.flush()
        if name == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        f.write(text.encode() * 20000)
    if how:
        os.rename(path + how, path)
    time.sleep(float(pause))
"""


def save_abc(mnt, text, kill_in="", pause=0.0, how=""):
    done = subprocess.run([sys.executable, "-c", SAVE, mnt.path, text, kill_in, str(pause), how], timeout=60, check=False)
    assert done.returncode == (-signal.SIGKILL if kill_in else 0)
    time.sleep(0.8)


def abc(root):
    return "".join((root / name).read_text()[0] for name in "ABC")


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("how", ["", ".tmp"])
@pytest.mark.options(settle="200ms", keep="last:1")
def test_a_save_that_is_done_again_with_a_pause_is_one_save(volume, how, resume):
    """What a killed try has saved of it does not hide that its files are saved together."""
    if resume:
        volume.options["resume"] = True
    mnt = volume.mount()
    save_abc(mnt, "a", how=how)
    save_abc(mnt, "b", kill_in="B", how=how)
    save_abc(mnt, "d", pause=0.7, how=how)
    assert abc(mnt.path) == abc(mnt.epochs_dir / "latest") == "ddd"
    save_abc(mnt, "e", kill_in="B", how=how)
    assert abc(mnt.epochs_dir / "latest") == "ddd"
    assert abc(mnt.path) == ("ddd" if resume else "edd")


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("how", ["", ".tmp"])
@pytest.mark.options(settle="200ms", keep="last:1")
def test_a_save_that_is_killed_again_after_a_pause_is_half(volume, how, resume):
    if resume:
        volume.options["resume"] = True
    mnt = volume.mount()
    save_abc(mnt, "a", how=how)
    save_abc(mnt, "b", kill_in="C", how=how)
    save_abc(mnt, "d", kill_in="C", pause=0.7, how=how)
    assert abc(mnt.epochs_dir / "latest") == "aaa"
    assert abc(mnt.path) == ("aaa" if resume else "dda")


@pytest.mark.options(settle="200ms", keep="last:1")
def test_a_directory_that_is_made_long_before_its_files(mnt):
    for step in (100, 200, 300):
        folder = mnt.path / ("checkpoint-%d" % step)
        folder.mkdir()
        time.sleep(0.6)
        put(folder / "A", "a" * 50000)
        time.sleep(0.6)
        if step < 300:
            put(folder / "B", "b" * 50000)
            time.sleep(0.6)
    kill(folder / "B")
    time.sleep(0.6)
    assert sorted(os.listdir(mnt.epochs_dir / "latest")) == ["checkpoint-100", "checkpoint-200"]
    assert sorted(os.listdir(mnt.epochs_dir / "latest" / "checkpoint-200")) == ["A", "B"]


@pytest.mark.options(settle="200ms", keep="last:1")
def test_a_kill_under_a_name_that_tells_nothing_spares_files_of_other_steps(mnt):
    for step in (300, 400, 500):
        save_unnamed(mnt.path, "model_%d=m%dxxxx" % (step, step))
        put(mnt.path / "results.json", str(step))
        time.sleep(0.6)
    whole = max(log_of(mnt))
    save_unnamed(mnt.path, "model_600=KILL")
    time.sleep(0.6)
    assert complete(mnt)[-1] == latest(mnt) >= whole
    assert (mnt.epochs_dir / "latest" / "results.json").read_text() == "500"


@pytest.mark.options(settle="200ms", keep="last:1")
def test_a_kill_under_a_name_that_tells_nothing_spares_what_only_some_saves_have(mnt):
    for number, saves in enumerate(["model=%s best=%s", "model=%s", "model=%s best=%s", "model=%s"]):
        text = "m%dxxxx" % number
        save_unnamed(mnt.path, saves.replace("%s", text))
        time.sleep(0.6)
    save_unnamed(mnt.path, "model=KILL")
    time.sleep(0.6)
    assert complete(mnt)[-1] == latest(mnt) == max(log_of(mnt))
    assert (mnt.epochs_dir / "latest" / "model").read_text() == "m3xxxx" * 1000


def newest_saved(mnt):
    """The save that is in ckpt in the newest complete epoch; None: between the moves and the save."""
    try:
        return (mnt.epochs_dir / "latest/ckpt/optim.pt").read_text()[0]
    except FileNotFoundError:
        return None


def save_and_move_on(root, text, killed="", pause=0):
    """ckpt is the newest, ckpt.1 the one before it."""
    shutil.rmtree(root / "ckpt.2", ignore_errors=True)
    for old, new in (("ckpt.1", "ckpt.2"), ("ckpt", "ckpt.1")):
        if (root / old).exists():
            (root / old).rename(root / new)
    time.sleep(pause)
    (root / "ckpt").mkdir()
    for name in ("model.pt", "optim.pt"):
        if name == killed:
            return kill(root / "ckpt" / name)
        put(root / "ckpt" / name, text * 1000)
    return None


@pytest.mark.parametrize("pause", [0, 0.6])  # between the moves and the save: an epoch has the moved half
@pytest.mark.parametrize("killed", ["model.pt", "optim.pt"])
@pytest.mark.options(settle="150ms")
def test_the_next_save_is_whole_where_directories_move_on(mnt, killed, pause):
    for text in "123":
        save_and_move_on(mnt.path, text)
        wait_until(lambda: newest_saved(mnt) == text, "the save to be the latest")
    save_and_move_on(mnt.path, "4", killed)
    time.sleep(0.5)
    for text in "567":
        save_and_move_on(mnt.path, text, pause=pause)
        wait_until(lambda: newest_saved(mnt) == text, "save %s to be the latest" % text)
