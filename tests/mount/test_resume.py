# SPDX-License-Identifier: Apache-2.0
"""-o resume: after a killed or torn save the live tree goes back by itself, before a restarted trainer can look; and a new save
seals the one before it."""

import io
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from conftest import MountError, python, wait_until
from retention import wait_settled
from test_contract_sealing import write_zip
from test_contract_writing import Writer, log_of

# These are of the rules before those of one page: of nodes, the import and the watch still.
pytestmark = pytest.mark.rules("1")


def put_bytes(path, data):
    """By a process of its own, which may not go on with the save."""
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["dd", "of=%s" % path, "status=none"], input=data, check=True)


def put(path, text):
    put_bytes(path, text.encode())


def record(mnt, number):
    return {e["epoch"]: e for e in log_of(mnt)}[number]


def latest(mnt):
    return int(os.readlink(mnt.epochs_dir / "latest"))


@pytest.fixture
def resuming(volume):
    volume.options.setdefault("settle", "1h")
    try:
        return volume.mount(resume=True)
    except MountError as error:
        if volume.options["passthrough"] == "on" and "passthrough=on" in error.output:
            pytest.skip("this kernel has no passthrough for us: %s" % error.output.strip())
        raise


# Resumes from what lies there, saves the next step, and dies in the middle where it is told to: after so many files, with one half written.
TRAINER = """
import os, signal, sys
top, kind, dies = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.chdir(top)

def names(step):
    if kind in ("place", "anew"):
        return ["model", "optimizer"]
    os.makedirs("checkpoint-%d" % step, exist_ok=True)
    return ["checkpoint-%d/%s" % (step, n) for n in ("model", "optimizer", "trainer_state.json")]

def last():
    if kind in ("place", "anew"):
        return kind if os.listdir(".") else 0
    steps = [int(n.split("-")[1]) for n in os.listdir(".") if n.startswith("checkpoint-")]
    return max(steps, default=0)

found = last()
if found:
    texts = {open(n).read() for n in (names(found))}
    assert len(texts) == 1, "half a checkpoint: %s" % texts
    step = int(texts.pop().strip())
else:
    step = 0
print(step, flush=True)
step += 1
for i, name in enumerate(names(step)):
    if kind == "anew" and os.path.exists(name):
        os.remove(name)
    f = open(name, "w")
    f.write("%d" % step + " " * 5000)
    if i == dies:
        f.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    f.close()
"""


def train(mnt, kind, dies=-1):
    """Runs the trainer: the step that it resumed from."""
    process = python(TRAINER, mnt.path, kind, str(dies))
    out, _ = process.communicate(timeout=60)
    assert process.returncode == (-9 if dies >= 0 else 0), out
    return int(out)


@pytest.mark.parametrize("kind, files", [("place", 2), ("anew", 2), ("directories", 3)])
def test_a_restarted_trainer_never_meets_half_a_save(resuming, kind, files):
    assert train(resuming, kind) == 0
    assert train(resuming, kind) == 1
    resuming.seal()
    for dies in range(files):
        assert train(resuming, kind, dies) == 2
        assert train(resuming, kind, dies) == 2
    assert train(resuming, kind) == 2
    assert train(resuming, kind) == 3
    number = resuming.seal()
    assert record(resuming, number)["complete"] is True and latest(resuming) == number


@pytest.mark.options(settle="200ms")
def test_with_epochs_by_quiet_too(resuming):
    for step in range(3):
        assert train(resuming, "place") == step
    wait_until(lambda: os.path.lexists(resuming.epochs_dir / "latest") and
               (resuming.epochs_dir / "latest" / "optimizer").read_text().strip() == "3", "the epoch of step 3")
    assert train(resuming, "place", 1) == 3
    assert train(resuming, "place") == 3


def test_what_was_done_is_told_and_can_be_undone(resuming):
    put(resuming.path / "a", "a 1"), put(resuming.path / "b", "b 1")
    resuming.seal()
    put(resuming.path / "a", "a 2")
    Writer(resuming.path / "b").end("kill")
    assert (resuming.path / "a").read_text() == "a 1"
    assert [(e["epoch"], e["complete"]) for e in log_of(resuming)] in ([(1, True), (2, False), (3, True)],
                                                                     [(3, True), (2, False), (1, True)])
    assert record(resuming, 3)["restores"] == 1
    done = resuming.status()["resumed"]
    assert (done["left"], done["to"], done["epoch"]) == (2, 1, 3) and done["why"] == "b: its writer was killed"
    assert done["to_undo"] == "epochfs rollback %s 2" % resuming.path
    wait_until(lambda: "went back from epoch 2 to epoch 1" in resuming.log.read_text(), "a line in the log")
    resuming.rollback(2)
    assert (resuming.path / "a").read_text() == "a 2"
    resuming.remount(resume=True)
    assert (resuming.path / "a").read_text() == "a 2"


def test_nothing_happens_without_need(resuming):
    put(resuming.path / "a", "a 1"), put(resuming.path / "b", "b 1")
    resuming.seal()
    Writer(resuming.path / "b").end("kill")
    work = resuming.path / "_checkpoint"
    put(work / "model", "1")
    Writer(work / "optimizer").end("kill")
    assert (work / "model").read_text() == "1"
    shutil.rmtree(work)
    put(work / "model", "1"), put(work / "optimizer", "1")
    os.rename(work, resuming.path / "checkpoint-1")
    wait_until(lambda: resuming.epochs() == [1, 2], "the epoch of the rename")
    assert record(resuming, 2)["complete"] is True
    assert "resumed" not in resuming.status()


def test_logs_stay(resuming):
    put(resuming.path / "a", "a 1"), put(resuming.path / "b", "b 1")
    resuming.seal()
    with open(resuming.path / "train.log", "a", encoding="utf-8") as log:
        log.write("step 2\n")
        log.flush()
        put(resuming.path / "runs" / "events.out.tfevents.1", "event")
        put(resuming.path / "a", "a 2")
        Writer(resuming.path / "b").end("kill")
        assert (resuming.path / "a").read_text() == "a 1"
        log.write("step 3\n")
    assert (resuming.path / "train.log").read_text() == "step 2\nstep 3\n"
    assert (resuming.path / "runs" / "events.out.tfevents.1").read_text() == "event"


@pytest.mark.options(settle="2s")
def test_a_save_of_somebody_else_is_waited_for(resuming):
    put(resuming.path / "checkpoint-100" / "a", "1"), put(resuming.path / "cfg.json", "{}")
    resuming.seal()
    put(resuming.path / "best.json", "2")
    (resuming.path / "checkpoint-200").mkdir()
    with open(resuming.path / "checkpoint-200" / "a", "w", encoding="utf-8") as a:
        a.write("2")
        a.flush()
        Writer(resuming.path / "fig.png").end("kill")
        (resuming.path / "checkpoint-200" / "b").write_text("2")
        a.write("2")
    # Its last file, after a moment with none open.
    (resuming.path / "checkpoint-200" / "c").write_text("2")
    wait_until(lambda: resuming.epochs() == [1, 2, 3], "the way back, by quiet")
    assert resuming.epochs() == [1, 2, 3] and record(resuming, 3)["restores"] == 1
    assert (resuming.epoch(2) / "checkpoint-200" / "a").read_text() == "22"
    assert (resuming.epoch(2) / "checkpoint-200" / "b").read_text() == (resuming.epoch(2) / "checkpoint-200" / "c").read_text() == "2"
    assert not (resuming.path / "checkpoint-200").exists()


@pytest.mark.options(keep="last:1")
def test_what_was_left_is_kept_to_undo_it(resuming):
    put(resuming.path / "model", "1"), put(resuming.path / "optimizer", "1")
    resuming.seal()
    wait_settled(resuming)
    put(resuming.path / "model", "2"), put(resuming.path / "optimizer", "2")
    Writer(resuming.path / "plot.png").end("kill")
    assert (resuming.path / "model").read_text() == "1"
    wait_settled(resuming)
    assert resuming.epochs() == [2, 3]
    assert resuming.status()["resumed"]["to_undo"] == "epochfs rollback %s 2" % resuming.path
    resuming.rollback(2)
    assert (resuming.path / "model").read_text() == "2" and (resuming.path / "optimizer").read_text() == "2"


def test_ctrl_c_in_a_save(resuming):
    path, whole = resuming.path / "model.pt", io.BytesIO()
    write_zip(whole)
    put(resuming.path / "config.json", "1")
    path.write_bytes(whole.getvalue())
    resuming.seal()
    put(resuming.path / "config.json", "2")
    put_bytes(path, whole.getvalue()[:-3000])
    # Whoever wrote it might have done so again, until he had ended.
    wait_until(lambda: path.read_bytes() == whole.getvalue(), "the live tree to go back")
    assert (resuming.path / "config.json").read_text() == "1"


@pytest.mark.parametrize("mounted", ["before", "between"])
@pytest.mark.parametrize("kind", ["torn", "killed"])
def test_what_is_in_doubt_loses_its_temporary_name(resuming, kind, mounted):
    """Under that name it did not count, and no close follows the rename."""
    work, whole = resuming.path / "_checkpoint", io.BytesIO()
    write_zip(whole)
    put(resuming.path / "checkpoint-1" / "model.pt", "1")
    resuming.seal()
    work.mkdir()
    put_bytes(work / "model.pt", whole.getvalue()[:-3000] if kind == "torn" else whole.getvalue())
    if kind == "killed":
        Writer(work / "optimizer").end("kill")
    assert work.exists()
    if mounted == "between":
        resuming.remount(resume=True)
    os.rename(work, resuming.path / "checkpoint-2")
    wait_until(lambda: not (resuming.path / "checkpoint-2").exists(), "the live tree to go back")
    assert (resuming.path / "checkpoint-1").exists()
    # It is told after the tree is back.
    done = wait_until(lambda: resuming.status().get("resumed"), "it to be told")
    assert record(resuming, done["left"])["complete"] is False
    assert (resuming.epoch(done["left"]) / "checkpoint-2" / "model.pt").exists()
    shutil.rmtree(work, ignore_errors=True)  # the last unmount's epoch has it
    put(work / "model.pt", "2"), put(work / "optimizer", "2")
    os.rename(work, resuming.path / "checkpoint-2")
    assert record(resuming, resuming.seal())["complete"] is True and (resuming.path / "checkpoint-2").exists()


@pytest.mark.parametrize("how", ["resumes", "does not"])
def test_a_daemon_that_is_killed_in_a_save(mnt, how):
    put(mnt.path / "a", "a 1"), put(mnt.path / "b", "b 1")
    mnt.seal()
    put(mnt.path / "a", "a 2")
    writer = Writer(mnt.path / "b")
    mnt.kill()
    writer.process.kill()
    writer.process.communicate()
    mnt.mount(**({"resume": True} if how == "resumes" else {}))
    assert (mnt.path / "a").read_text() == ("a 1" if how == "resumes" else "a 2")
    assert (mnt.path / "b").read_text() == "b 1"
    if how == "resumes":
        assert (mnt.epoch(2) / "a").read_text() == "a 2" and record(mnt, 2)["complete"] is False
        assert mnt.status()["resumed"]["left"] == 2


@pytest.mark.options(supervise=True)
def test_a_supervised_daemon(resuming):
    """The writer lives on; then it is killed."""
    if not resuming.status().get("supervised"):
        pytest.skip("this kernel has no supervised mounts")
    put(resuming.path / "a", "a 1"), put(resuming.path / "b", "b 1")
    resuming.seal()
    put(resuming.path / "a", "a 2")
    writer = Writer(resuming.path / "b")
    os.kill(resuming.status()["pid"], 9)
    assert (resuming.path / "a").read_text() == "a 2"
    assert writer.tell("see") == ["NEW 3000 3000"]
    writer.end("kill")
    assert (resuming.path / "a").read_text() == "a 1" and (resuming.path / "b").read_text() == "b 1"


def test_whoever_looks_meanwhile_waits_and_nobody_hangs(resuming):
    stop, seen = threading.Event(), set()

    def look():
        while not stop.is_set():
            for name in sorted(os.listdir(resuming.path)):
                try:
                    os.stat(resuming.path / name)
                    with open(resuming.path / name, encoding="utf-8") as f:
                        seen.add((name, f.read()[:3]))
                except FileNotFoundError:
                    pass

    put(resuming.path / "a", "a 1"), put(resuming.path / "b", "b 1")
    resuming.seal()
    lookers = [threading.Thread(target=look) for _ in range(3)]
    for thread in lookers:
        thread.start()
    try:
        for i in range(5):
            put(resuming.path / "a", "a 2"), put(resuming.path / ("new%d" % i), "x")
            Writer(resuming.path / "b").end("kill")
            assert (resuming.path / "a").read_text() == "a 1"
            # The kernel knows the name, and others have the file open: it hears of it when the close is taken in.
            wait_until(lambda: not os.path.exists(resuming.path / ("new%d" % i)), "the file to go")  # pylint: disable=cell-var-from-loop
    finally:
        stop.set()
        for thread in lookers:
            thread.join()
    assert ("a", "a 1") in seen and ("b", "b 1") in seen and ("b", "NEW") not in seen


# ---- a new save seals the one before it


def test_saves_by_hand_one_after_the_other(mnt):
    for i in (1, 2, 3):
        put(mnt.path / "model.pt", "save %d" % i)
    last = mnt.seal()
    texts = [(mnt.epoch(n) / "model.pt").read_text() for n in mnt.epochs()]
    assert texts[0] == "save 1" and texts[-1] == "save 3" and all(e["complete"] for e in log_of(mnt))
    assert record(mnt, 1)["trigger"] == "next-save" and last >= 2


def test_a_status_file_seals_nothing(mnt):
    (mnt.path / "model.pt").write_bytes(b"1" * 1000000)
    mnt.seal()
    for i in range(3):
        put(mnt.path / "status.json", '{"step": %d}' % i)
    assert mnt.epochs() == [1]


@pytest.mark.options(settle="10s", patience="2s")
@pytest.mark.parametrize("tmp", [False, True])
def test_a_text_that_is_all_there_is(mnt, tmp):
    """It may be the checkpoint: an epoch now and then, not one a second."""
    began = time.monotonic()
    for i in range(32):
        path = mnt.path / ("state.json.tmp" if tmp else "state.json")
        path.write_text('{"step": %d}' % i)
        if tmp:
            path.rename(mnt.path / "state.json")
        time.sleep(0.3)
    assert 3 <= len(log_of(mnt)) <= (time.monotonic() - began) / 2 + 2 and all(e["complete"] for e in log_of(mnt)), log_of(mnt)


@pytest.mark.options(settle="1s")
@pytest.mark.parametrize("how", ["in-place", "tmp", "tempfile"])
@pytest.mark.parametrize("sizes", [(300, 600), (600, 300), (500,)], ids=str)
def test_a_status_file_that_is_written_all_the_time(mnt, how, sizes):
    """It makes no epochs, and it does not keep the saves beside it from becoming some."""
    stop, saves = threading.Event(), range(1, 4)

    def write():
        while not stop.wait(0.2):
            path = mnt.path / "status.json"
            with {"in-place": lambda: open(path, "w"), "tmp": lambda: open(str(path) + ".tmp", "w"),
                  "tempfile": lambda: tempfile.NamedTemporaryFile("w", dir=mnt.path, delete=False)}[how]() as f:
                f.write("%f" % time.time())
            os.rename(f.name, path)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for save in saves:
            time.sleep(1)
            for i, size in enumerate(sizes):
                (mnt.path / ("file%d.bin" % i)).write_bytes(b"%d" % save * (size << 10))
            time.sleep(2)
    finally:
        stop.set()
        thread.join()
    found = [[(mnt.epoch(e["epoch"]) / ("file%d.bin" % i)).read_bytes()[:1] for i in range(len(sizes))] for e in log_of(mnt)
             if (mnt.epoch(e["epoch"]) / "file0.bin").exists()]
    assert sorted(found) == [[b"%d" % save] * len(sizes) for save in saves] and len(log_of(mnt)) <= len(saves) + 1


def save_small(top, how, i):
    """A small file of each save: it is removed and made anew, or has another name each time."""
    if how == "anew":
        (top / "state.json").unlink(missing_ok=True)
    put(top / ("state.json" if how == "anew" else "state-%s.json" % "abc"[i]), "%d" % i)


@pytest.mark.parametrize("how", ["anew", "renamed"])
def test_a_new_small_file_before_the_large_one_is_of_the_next_save(mnt, how):
    """With it, what the last save left of the large file is no whole save."""
    for i in range(2):
        save_small(mnt.path, how, i)
        put_bytes(mnt.path / "model.bin", b"%d" % i * 500000)
        time.sleep(1.2)
    save_small(mnt.path, how, 2)
    Writer(mnt.path / "model.bin").end("kill")
    assert mnt.epochs() == []
    assert mnt.seal() == 1 and record(mnt, 1)["complete"] is False


@pytest.mark.parametrize("how", ["anew", "renamed"])
def test_a_new_small_file_after_the_large_one_is_of_the_same_save(mnt, how):
    for i in range(3):
        put_bytes(mnt.path / "model.bin", b"%d" % i * 500000)
        save_small(mnt.path, how, i)
        time.sleep(1.2)
    wait_until(lambda: mnt.epochs() == [1, 2], "the epochs of two saves")
    assert [record(mnt, n)["trigger"] for n in (1, 2)] == ["next-save"] * 2
    assert (mnt.epoch(2) / ("state.json" if how == "anew" else "state-b.json")).read_text() == "1"


def test_a_fast_save_that_fails_between_two_files_and_is_tried_again(mnt):
    for i in range(4):
        put(mnt.path / "a", "%d" % i * 200000)
        if i < 3:
            put(mnt.path / "b", "%d" % i * 150000)
        if i == 0:
            assert mnt.seal() == 1
    # The third save has sealed the second, less than a second before the fourth began.
    wait_until(lambda: mnt.epochs() == [1, 2], "the epoch of the second save")
    time.sleep(1.3)
    put(mnt.path / "a", "4" * 200000)
    Writer(mnt.path / "b").end("kill")
    assert mnt.seal() == 3 and record(mnt, 3)["complete"] is False and latest(mnt) == 2


def test_the_next_step_seals_the_last_one(mnt):
    assert [train(mnt, "directories") for _ in range(2)] == [0, 1]
    # It was begun when the second was; its end comes by itself.
    wait_until(lambda: mnt.epochs() == [1], "the epoch of the first")
    assert sorted(os.listdir(mnt.epoch(1))) == ["checkpoint-1"] and len(os.listdir(mnt.epoch(1) / "checkpoint-1")) == 3


def test_a_save_that_is_killed_after_the_one_before_was_sealed_by_it(resuming):
    """Nobody sealed anything: the restarted trainer gets the first save all the same."""
    assert train(resuming, "place") == 0
    assert train(resuming, "place", 1) == 1
    assert train(resuming, "place") == 1
    assert latest(resuming) == int(os.readlink(resuming.epochs_dir / "current"))


def test_a_file_that_is_made_empty_first_takes_nothing_back(resuming):
    """mkstemp(), close(), and then torch.save(name): between them nothing goes back. Where it stays so, the next mount does it."""
    put(resuming.path / "x", "1")
    resuming.seal()
    put(resuming.path / "x", "2")
    (resuming.path / "model.pt").touch()
    assert (resuming.path / "model.pt").exists() and (resuming.path / "x").read_text() == "2"
    write_zip(resuming.path / "model.pt")
    assert resuming.seal() == 2 and record(resuming, 2)["complete"] is True and "resumed" not in resuming.status()
    (resuming.path / "other.pt").touch()
    resuming.remount(resume=True)
    assert not (resuming.path / "other.pt").exists() and (resuming.path / "x").read_text() == "2"


def test_whoever_waits_for_a_killed_writer_finds_no_trace_of_its_save(resuming):
    mnt = resuming
    put(mnt.path / "checkpoint-1" / "model", "1")
    assert mnt.seal() == 1
    for i in range(20):
        top = mnt.path / "checkpoint-2"
        pid = os.fork()
        if pid == 0:
            (top / "rank0").mkdir(parents=True)
            (top / "model").write_text("2")
            with open(top / "rank0" / "optimizer", "wb", buffering=0) as f:
                f.write(b"half")
                os.stat(top / "rank0" / "optimizer")
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
        assert not os.path.exists(top / "rank0" / "optimizer") and not os.path.exists(top), i
    assert os.listdir(mnt.path) == ["checkpoint-1"]


@pytest.mark.parametrize("option", [{"settle": "0"}, {"marker": "*.pt"}], ids=["settle=0", "marker"])
def test_what_a_close_seals_that_is_torn(resuming, option):
    """The epoch is there before the tail is looked at."""
    resuming.remount(resume=True, **option)
    write_zip(resuming.path / "model.pt")
    good = wait_until(lambda: os.path.lexists(resuming.epochs_dir / "latest") and latest(resuming), "the first save")
    whole = (resuming.path / "model.pt").read_bytes()
    for _ in range(3):
        put_bytes(resuming.path / "model.pt", whole[:-3000])
        wait_until(lambda: (resuming.path / "model.pt").read_bytes() == whole, "the live tree to go back")
    wait_until(lambda: (resuming.epoch(latest(resuming)) / "model.pt").read_bytes() == whole, "an epoch that is whole")
    assert latest(resuming) >= good


# FOLDER TEXT TORN MKSTEMP PAUSE: two archives, renamed into place one after the other; Ctrl-C in one of them closes it in good order. PAUSE: after
# each until an epoch has it, and so many seconds.
RENAMING = """
import glob, io, os, sys, tempfile, time, zipfile
folder, text, torn, mkstemp, pause = sys.argv[1:]
def sealed(name):
    new = open(os.path.join(folder, name), "rb").read()
    epochs = glob.glob(os.path.join(folder, ".epochs", "[0-9]*", name))
    return any(open(at, "rb").read() == new for at in epochs)
def archive():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("data", text * 1000)
    return out.getvalue()
for name in ("model.pt", "optim.pt"):
    path = os.path.join(folder, name)
    fd, at = tempfile.mkstemp(dir=folder) if mkstemp else (os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), path + ".tmp")
    with os.fdopen(fd, "wb") as f:
        f.write(archive()[:-50] if name == torn else archive())
        if name == torn:
            raise KeyboardInterrupt
    os.rename(at, path)
    while float(pause) and not sealed(name):
        time.sleep(0.05)
    time.sleep(float(pause))
"""


def save_renaming(mnt, text, torn="", mkstemp="", pause="0"):
    subprocess.run([sys.executable, "-c", RENAMING, mnt.path, text, torn, mkstemp, pause], stderr=subprocess.DEVNULL, timeout=60, check=False)


@pytest.mark.parametrize("mkstemp", ["", "mkstemp"])
@pytest.mark.options(resume=True, settle="1h", patience="1h")
def test_an_interrupt_under_a_temporary_name_is_taken_back_at_once(mnt, mkstemp):
    def save(text, torn=""):
        save_renaming(mnt, text, torn, mkstemp)

    def texts():
        return [(mnt.path / name).read_bytes()[:200].decode("latin-1").count(text) > 90 for name, text in
                (("model.pt", "2"), ("optim.pt", "2"))]
    save("1")
    save("2")
    assert mnt.seal() and texts() == [True, True]
    save("3", torn="optim.pt")
    wait_until(lambda: texts() == [True, True], "the tree to go back", 30)
    assert sorted(os.listdir(mnt.path)) == ["model.pt", "optim.pt"]
    save("4")
    mnt.seal()
    assert record(mnt, latest(mnt))["complete"] is True and b"4" * 90 in (mnt.epochs_dir / "latest" / "optim.pt").read_bytes()


@pytest.mark.parametrize("mkstemp", ["", "mkstemp"])
@pytest.mark.options(resume=True, settle="150ms", keep="last:1")
def test_an_interrupt_after_a_pause_is_taken_back(mnt, mkstemp):
    """The epoch that was sealed in the pause has the first half alone."""
    save_renaming(mnt, "0", mkstemp=mkstemp, pause="0.6"), mnt.seal()
    save_renaming(mnt, "1", mkstemp=mkstemp, pause="0.6")
    good = mnt.seal()
    save_renaming(mnt, "2", torn="optim.pt", mkstemp=mkstemp, pause="0.6")
    wait_until(lambda: b"1" * 90 in (mnt.path / "model.pt").read_bytes(), "the tree to go back", 30)
    wait_until(lambda: latest(mnt) > good, "the epoch of that")
    assert sorted(os.listdir(mnt.path)) == ["model.pt", "optim.pt"]
    assert all(b"1" * 90 in (mnt.epochs_dir / "latest" / name).read_bytes() for name in ("model.pt", "optim.pt"))
    save_renaming(mnt, "3", mkstemp=mkstemp)
    mnt.seal()
    assert record(mnt, latest(mnt))["complete"] is True and b"3" * 90 in (mnt.epochs_dir / "latest" / "optim.pt").read_bytes()
