# SPDX-License-Identifier: Apache-2.0
"""The last files of frameworks seal by themselves: each test does what one framework does with files, and asks for no epoch.

`settle` is far away, so what is sealed was sealed by a name. Two saves follow each other; then a save is killed in each of its
files in turn, and done again.
"""

import json
import os
import signal
import subprocess
import time

import pytest

from conftest import python, wait_until
from test_contract_epochs import log_of
from test_doubts import kill as kill_in_the_middle

# Does the steps of a save in the given order; dies by SIGKILL in the middle of the KILL-th file that it writes, if that is asked for. A
# file's content tells its name and save. write: open(path, "wb"); fsync: the same, with fsync; late: it dies after that; copy: as shutil.move
# from another file system; h5: by h5py. "rank " before it: in a process of its own, as one more rank, for which `barrier` waits. When a rank
# dies, so do the others, but only once they have written what they were at.
SAVER = r"""
import io, json, os, signal, sys, zipfile

def content(path, save):
    if path.endswith((".pt", ".pth", ".ckpt", ".keras", ".distcp")) or "tmp" in os.path.basename(path) and "ckpt" in save:
        memory = io.BytesIO()
        with zipfile.ZipFile(memory, "w") as z:
            z.writestr("data", (os.path.basename(path) + save) * 3000)
        return memory.getvalue()
    return (save + " " + path + "\n").encode() * 200

top, save, kill, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4])
os.chdir(top)
written, ranks = 0, []

def barrier():
    while ranks:
        if os.waitstatus_to_exitcode(os.waitpid(ranks.pop(), 0)[1]) < 0:
            die()

def die():
    while ranks:
        os.waitpid(ranks.pop(), 0)
    os.kill(os.getpid(), signal.SIGKILL)

def write_h5(path, dies):
    import h5py
    with h5py.File(path, "w") as f:
        for name in ("layers", "optimizer"):
            f.create_group(name)["vars"] = [float(len(save))] * 20000
            f.flush()
            if dies:
                die()

def write(what, path, dies):
    if what == "h5":
        return write_h5(path, dies)
    data = content(path, save)
    with open(path, "wb") as f:
        f.write(data[:len(data) // 2])
        f.flush()
        if what == "late":
            os.fsync(f.fileno())
        if dies:
            die()
        f.write(data[len(data) // 2:])
        if what == "fsync":
            f.flush()
            os.fsync(f.fileno())
    if what == "copy":
        os.utime(path, (1700000000, 1700000000))
        os.chmod(path, 0o600)

for what, *paths in steps:
    if what == "mkdir":
        os.makedirs(paths[0], exist_ok=True)
    elif what == "rename":
        os.rename(*paths)
    elif what == "unlink":
        if os.path.lexists(paths[0]):
            os.unlink(paths[0])
    elif what == "rmdir":
        os.rmdir(paths[0])
    elif what == "barrier":
        barrier()
    else:
        written += 1
        rank = os.fork() if what.startswith("rank ") else -1
        if rank > 0:
            ranks.append(rank)
            continue
        ranks[:] = [] if rank == 0 else ranks
        write(what.removeprefix("rank "), paths[0], written == kill)
        if rank == 0:
            os._exit(0)
barrier()
"""


def megatron(step):
    """checkpointing.py: the iteration's directory, then the tracker, in place."""
    folder = "iter_%07d" % step
    yield "mkdir", folder + "/mp_rank_00"
    yield "mkdir", folder + "/mp_rank_01"
    yield "rank write", folder + "/mp_rank_01/model_optim_rng.pt"
    yield "write", folder + "/mp_rank_00/model_optim_rng.pt"
    yield ("barrier",)
    yield "write", "latest_checkpointed_iteration.txt"


def deepspeed(step):
    """engine.py: states of each rank, then the name of the tag."""
    folder = "global_step%d" % step
    yield "mkdir", folder
    yield "rank write", folder + "/zero_pp_rank_1_mp_rank_00_optim_states.pt"
    yield "write", folder + "/mp_rank_00_model_states.pt"
    yield "write", folder + "/zero_pp_rank_0_mp_rank_00_optim_states.pt"
    yield ("barrier",)
    yield "write", "latest"


def tensorflow(step):
    """BundleWriter: temporary names that become data and index; the record of checkpoints by rename."""
    prefix = "ckpt-%d" % step
    yield "mkdir", prefix + "_temp"
    yield "write", prefix + "_temp/part-00000-of-00001.data-00000-of-00001.tempstate17"
    yield "rename", prefix + "_temp/part-00000-of-00001.data-00000-of-00001.tempstate17", prefix + ".data-00000-of-00001"
    yield "write", prefix + "_temp/part-00000-of-00001.index"
    yield "rename", prefix + "_temp/part-00000-of-00001.index", prefix + ".index"
    yield "rmdir", prefix + "_temp"
    yield "write", "checkpoint.tmp6a1f"
    yield "rename", "checkpoint.tmp6a1f", "checkpoint"


def distributed_2_1(step):
    """FileSystemWriter up to PyTorch 2.1: .metadata in place."""
    folder = "step-%d" % step
    yield "mkdir", folder
    yield "rank fsync", folder + "/__1_0.distcp"
    yield "fsync", folder + "/__0_0.distcp"
    yield ("barrier",)
    yield "fsync", folder + "/.metadata"


def distributed(step):
    """From 2.2 on: by rename."""
    folder = "step-%d" % step
    yield "mkdir", folder
    yield "rank fsync", folder + "/__1_0.distcp"
    yield "fsync", folder + "/__0_0.distcp"
    yield ("barrier",)
    yield "fsync", folder + "/.metadata.tmp"
    yield "unlink", folder + "/.metadata"
    yield "rename", folder + "/.metadata.tmp", folder + "/.metadata"


def distributed_in_place(_):
    """The same directory for each save."""
    yield "rank fsync", "__1_0.distcp"
    yield "fsync", "__0_0.distcp"
    yield ("barrier",)
    yield "fsync", ".metadata.tmp"
    yield "unlink", ".metadata"
    yield "rename", ".metadata.tmp", ".metadata"


def lightning(step):
    """_atomic_save with $TMPDIR on the mount: shutil.move is a rename."""
    yield "write", "tmpq7d1_ckpt"
    yield "rename", "tmpq7d1_ckpt", "epoch=0-step=%d.ckpt" % step


def lightning_moved(step):
    """With $TMPDIR elsewhere it is a copy."""
    yield "copy", "epoch=0-step=%d.ckpt" % step


def keras(step):
    yield "write", "tmpq7d1_ckpt"
    yield "rename", "tmpq7d1_ckpt", "model-step%d.keras" % step


def keras_weights(step):
    yield "h5", "tmpq7d1_ckpt.h5"
    yield "rename", "tmpq7d1_ckpt.h5", "model-step%d.weights.h5" % step


def keras_h5(step):
    yield "h5", "model-step%d.h5" % step


def keras_backup(step):
    """BackupAndRestore: the weights, then what was trained."""
    yield "mkdir", "backup"
    yield "write", "backup/latest.weights.pt"
    yield "write", "backup/training_metadata.json"


def trainer_4_35(step):
    """transformers up to 4.35: the state of random numbers last."""
    folder = "checkpoint-%d" % step
    yield "mkdir", folder
    for name in ("config.json", "pytorch_model.pt", "training_args.pt", "optimizer.pt", "scheduler.pt", "trainer_state.json", "rng_state.pth"):
        yield "write", folder + "/" + name


def trainer(step):
    """From 4.36 on: the Trainer's state last."""
    folder = "checkpoint-%d" % step
    yield "mkdir", folder
    for name in ("config.json", "model.pt", "training_args.pt", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"):
        yield "write", folder + "/" + name


def trainer_of_ranks(step):
    """Process 0 of two, which saves after the other."""
    folder = "checkpoint-%d" % step
    yield "mkdir", folder
    yield "rank write", folder + "/rng_state_1.pth"
    for name in ("model.pt", "optimizer.pt", "scheduler.pt"):
        yield "write", folder + "/" + name
    yield ("barrier",)
    for name in ("rng_state_0.pth", "trainer_state.json"):
        yield "write", folder + "/" + name


FRAMEWORKS = [megatron, deepspeed, tensorflow, distributed_2_1, distributed, distributed_in_place, lightning, keras, keras_weights, keras_backup, trainer_4_35, trainer, trainer_of_ranks]
# Whose last rename is one of a temporary name, which seals with marker=none, too.
BY_TEMPORARY = [tensorflow, distributed, distributed_in_place]
# Whose single file is written under its final name: nothing but quiet tells when.
BY_QUIET = [lightning_moved, keras_h5]
BY_ITSELF = [pytest.param(f, id=f.__name__) for f in FRAMEWORKS] + [pytest.param(f, id=f.__name__, marks=pytest.mark.options(settle="200ms")) for f in BY_QUIET]
NOT_WRITES = ("mkdir", "rename", "unlink", "rmdir", "barrier")


@pytest.fixture
def passthrough():
    """Sealing is the same either way."""
    return "auto"


def save(mnt, steps, text, kill=0):
    done = python(SAVER, mnt.path, text, str(kill), json.dumps(list(steps)))
    out, _ = done.communicate(timeout=60)
    assert done.returncode == (-signal.SIGKILL if kill else 0), out


def writes_of(steps):
    return sum(step[0] not in NOT_WRITES for step in steps)


def files(top):
    return {os.path.relpath(os.path.join(d, n), top): open(os.path.join(d, n), "rb").read() for d, _, names in os.walk(top) for n in names}


def latest(mnt):
    try:
        return int(os.readlink(mnt.epochs_dir / "latest"))
    except FileNotFoundError:
        return 0


def is_sealed(mnt, framework, after=0):
    """By a name, whole, complete, and newer than that one: the epoch's number."""
    number = wait_until(lambda: latest(mnt) > after and latest(mnt), "an epoch")
    record = log_of(mnt)[number]
    # Quiet after a kill is told as that.
    triggers = ["rename"] if framework in BY_TEMPORARY else ["quiet", "killed"] if framework in BY_QUIET else ["marker"]
    assert record["trigger"] in triggers and record["complete"] is True, record
    assert files(mnt.epoch(number)) == files(mnt.path)
    return number


@pytest.mark.parametrize("framework", BY_ITSELF)
def test_two_saves_in_a_row_are_two_epochs(mnt, framework):
    save(mnt, framework(100), "first")
    assert is_sealed(mnt, framework) == 1
    save(mnt, framework(200), "second")
    assert is_sealed(mnt, framework, 1) == 2
    save(mnt, framework(200), "again")  # over the same files
    assert is_sealed(mnt, framework, 2) == 3
    assert [e["epoch"] for e in mnt.request("log")["epochs"]] == [1, 2, 3]


@pytest.mark.parametrize("framework", BY_ITSELF)
def test_a_kill_in_each_file_of_a_save(mnt, framework):
    # Beside this no file is so large that the next save seals, which it does at most once a second: a matter of time.
    with open(mnt.path / "weights", "wb") as f:
        f.truncate(32 << 20)
    alone = is_sealed(mnt, framework) if framework in BY_QUIET else 0
    save(mnt, framework(100), "whole 0")
    good = is_sealed(mnt, framework, alone)
    writes = writes_of(framework(0))
    for kill in range(1, writes + 1):
        whole = files(mnt.epoch(good))
        save(mnt, framework(100 + 100 * kill), "torn %d" % kill, kill)
        assert latest(mnt) == good and files(mnt.epoch(good)) == whole
        save(mnt, framework(100 + 100 * kill), "whole %d" % kill)
        good = is_sealed(mnt, framework, good)
    names = {n for s in framework(100 + 100 * writes) for n in s[1:]}
    there = files(mnt.epoch(good))
    assert all(b"torn" not in there[n] for n in names if n in there and not n.endswith((".pt", ".pth", ".ckpt", ".keras", ".distcp", ".h5")))


# Whose loader takes what one file names, which is written last: what lies beside that is nothing to it.
BY_TRACKER = [megatron, deepspeed, tensorflow]


@pytest.mark.options(settle="200ms", patience="1s")
@pytest.mark.parametrize("framework", FRAMEWORKS + BY_QUIET, ids=lambda f: f.__name__)
def test_what_a_kill_in_each_file_leaves_is_sealed_and_never_the_latest(mnt, framework):
    save(mnt, framework(100), "whole 0")
    good = wait_until(lambda: latest(mnt), "the first save")
    for kill in range(1, 1 + writes_of(framework(0))):
        wait_until(lambda: files(mnt.epoch(latest(mnt))) == files(mnt.path), "the whole save")
        good = latest(mnt)
        whole = files(mnt.epoch(good))
        save(mnt, framework(100 + 100 * kill), "torn %d" % kill, kill)
        time.sleep(0.6)  # by quiet, where anything is left of it
        there = files(mnt.epoch(latest(mnt)))
        assert latest(mnt) == good or framework in BY_TRACKER and whole == {n: there[n] for n in whole}
        save(mnt, framework(100 + 100 * kill), "whole %d" % kill)
    wait_until(lambda: latest(mnt) > good and files(mnt.epoch(latest(mnt))) == files(mnt.path), "the last save")


def newest(mnt):
    return log_of(mnt)[max(log_of(mnt), default=0)]


# ---- the last file of torch.distributed.checkpoint is written under a temporary name, beside shards that are whole


def is_half(mnt, good, whole):
    """The epoch that came after the good one by itself is known not to be whole."""
    wait_until(lambda: max(log_of(mnt)) > good, "an epoch by itself")
    record = newest(mnt)
    assert record["complete"] is False and latest(mnt) == good and files(mnt.epoch(good)) == whole
    doubt = record["doubts"][0]
    assert os.path.basename(doubt["path"]) == ".metadata.tmp" and doubt["counts"]
    assert {os.path.basename(n) for n in doubt["companions"]} == {"__0_0.distcp", "__1_0.distcp"}


def later(steps):
    """The metadata is written out when its writer dies."""
    return [("late", *s[1:]) if s[0] == "fsync" and s[1].endswith(".metadata.tmp") else s for s in steps]


@pytest.mark.parametrize("how", ["quiet", "unmount", "crash", "fsynced"])
@pytest.mark.parametrize("framework", [distributed, distributed_in_place], ids=lambda f: f.__name__)
def test_metadata_is_killed_after_the_shards(volume, framework, how):
    volume.options.setdefault("settle", "200ms" if how == "quiet" else "1h")
    mnt = volume.mount()
    save(mnt, framework(100), "whole")
    good = is_sealed(mnt, framework)
    whole = files(mnt.epoch(good))
    steps = list(framework(200))
    if how == "crash":
        half = python(SAVER.replace("os.kill(os.getpid(), signal.SIGKILL)", "print('half', flush=True); sys.stdin.read()"),
                      mnt.path, "half", "3", json.dumps(later(steps)))
        assert half.stdout.readline() == "half\n"
        mnt.kill()
        half.kill()
        half.communicate(timeout=60)
        mnt.mount()
        mnt.seal()
    else:
        save(mnt, later(steps) if how == "fsynced" else steps, "half", 3)
        if how != "quiet":
            mnt.remount()
    is_half(mnt, good, whole)
    # It is still so when other files change; not when the save is done again.
    (mnt.path / "notes").write_text("more")
    mnt.seal()
    assert newest(mnt)["complete"] is False and latest(mnt) == good
    save(mnt, steps, "again")
    is_sealed(mnt, framework, good)
    assert not [d for d in newest(mnt).get("doubts", []) if d["kind"] == "undone"]


@pytest.mark.options(settle="200ms")
def test_metadata_is_killed_after_an_epoch_that_came_too_early(mnt):
    """The shards were sealed by quiet, before .metadata.tmp was begun."""
    save(mnt, distributed(100), "whole")
    good = is_sealed(mnt, distributed)
    steps = list(distributed(200))
    save(mnt, steps[:3], "half")
    wait_until(lambda: latest(mnt) > good, "the epoch of the shards")
    save(mnt, steps[3:], "half", 1)
    wait_until(lambda: latest(mnt) == good, "the good epoch to be the latest again")
    save(mnt, steps, "again")
    is_sealed(mnt, distributed, good)


@pytest.mark.parametrize("name", ["model.pt.tmp", ".model.pt.tmp4711", "tmp-model.pt", "status.json.tmp"])
def test_a_temporary_file_is_killed_alone(mnt, name):
    """Whoever resumes finds what an epoch has already; logs and what comes after the kill are not of that save."""
    (mnt.path / "model.pt").write_bytes(b"whole")
    (mnt.path / "status.json").write_bytes(b"{}")
    assert mnt.seal() == 1
    (mnt.path / "train.log").write_text("step 1")
    save(mnt, [("write", name)], "half", 1)
    (mnt.path / "notes").write_text("a restarted program")
    assert mnt.seal() == 2 and newest(mnt)["complete"] is True and "doubts" not in newest(mnt)


@pytest.mark.options(settle="1h")
def test_an_empty_one_is_no_sign(mnt):
    """As who is interrupted between opening and writing it leaves it."""
    (mnt.path / "iter_1").mkdir()
    (mnt.path / "iter_1" / "model.bin").write_bytes(b"1")
    (mnt.path / "latest_checkpointed_iteration.txt").write_text("")
    assert mnt.epochs() == []
    (mnt.path / "latest_checkpointed_iteration.txt").write_text("1")
    wait_until(lambda: mnt.epochs() == [1], "the epoch")


@pytest.mark.parametrize("again", [".model.bin.tmp2", "model.bin.tmp", "tmp-1"])
def test_a_killed_temporary_file_is_saved_again(mnt, again):
    """Under the same name, or another process's; the config that changed before it stays as it is."""
    (mnt.path / "model.bin").write_bytes(b"whole")
    assert mnt.seal() == 1
    (mnt.path / "config.json").write_text("{}")
    save(mnt, [("write", ".model.bin.tmp1" if again.startswith(".") else again)], "half", 1)
    assert mnt.seal() == 2 and newest(mnt)["complete"] is False
    assert [d["settled_by"] for d in mnt.status()["doubts"]]
    save(mnt, [("write", again), ("rename", again, "model.bin")], "again")
    mnt.seal()
    assert newest(mnt)["complete"] is True and "doubts" not in newest(mnt) and "doubts" not in mnt.status()


@pytest.mark.parametrize("framework", [f for f in FRAMEWORKS if f not in BY_TEMPORARY], ids=lambda f: f.__name__)
@pytest.mark.options(marker="none", settle="1h")
def test_none_of_them(mnt, framework):
    save(mnt, framework(100), "first")
    assert mnt.status()["pending"]["held_up"]["by"] == "waiting for quiet" and mnt.epochs() == []


@pytest.mark.options(marker="none", settle="100ms")
def test_then_quiet_seals(mnt):
    save(mnt, megatron(100), "first")
    wait_until(lambda: latest(mnt) == 1, "the epoch")
    assert log_of(mnt)[1]["trigger"] == "quiet"


def waits(mnt):
    assert mnt.status()["pending"]["held_up"]["by"] == "waiting for quiet"
    return True


def test_what_is_not_the_last_file(mnt):
    """Names that say nothing where they stand."""
    # Beside this a small file that is written again and again is no save.
    (mnt.path / "weights").write_bytes(bytes(1 << 20))
    # DeepSpeed inside a checkpoint of the Trainer: more will follow.
    save(mnt, [("mkdir", "checkpoint-5/global_step5"), ("write", "checkpoint-5/global_step5/states.pt"), ("write", "checkpoint-5/latest")], "a")
    assert waits(mnt) and mnt.epochs() == []
    # The Trainer's state alone, and beside random numbers of an earlier save.
    save(mnt, [("write", "checkpoint-5/model.pt"), ("write", "checkpoint-5/trainer_state.json")], "a")
    assert waits(mnt) and mnt.epochs() == []
    save(mnt, [("write", "checkpoint-5/rng_state.pth")], "a")
    assert is_sealed(mnt, trainer) == 1
    save(mnt, [("write", "checkpoint-5/model.pt"), ("write", "checkpoint-5/rng_state.pth")], "b")
    assert waits(mnt) and mnt.epochs() == [1]
    save(mnt, [("write", "checkpoint-5/trainer_state.json")], "b")
    assert is_sealed(mnt, trainer, 1) == 2
    # A file that alone is written again and again; a directory of that name; an old file that is renamed.
    for text in "abc":
        save(mnt, [("write", "latest")], text)
    assert waits(mnt) and mnt.epochs() == [1, 2]
    save(mnt, [("mkdir", "checkpoint"), ("write", "checkpoint/x")], "a")
    assert waits(mnt) and mnt.epochs() == [1, 2]
    mnt.seal()
    save(mnt, [("rename", "checkpoint-5/model.pt", "checkpoint-5/model.ckpt")], "a")
    assert waits(mnt) and mnt.epochs() == [1, 2, 3]
    # The last save is moved out of the way of the next one.
    save(mnt, [("write", "last.ckpt"), ("rename", "last.ckpt", "prev.ckpt")], "a")
    assert waits(mnt) and mnt.epochs() == [1, 2, 3]


def test_another_file_of_the_save_is_open(mnt):
    """As where DeepSpeed's other ranks are late: the last file does not seal while somebody writes."""
    late = python("""
import os, sys
os.makedirs(sys.argv[1])
with open(sys.argv[1] + "/rank1.pt", "wb") as f:
    f.write(b"x" * 5000); f.flush(); print("open", flush=True); sys.stdin.readline()
""", mnt.path / "global_step7")
    assert late.stdout.readline() == "open\n"
    save(mnt, [("write", "global_step7/rank0.pt"), ("write", "latest")], "a")
    assert mnt.epochs() == []
    late.communicate("\n", timeout=60)
    assert late.returncode == 0
    save(mnt, deepspeed(8), "b")
    number = wait_until(lambda: latest(mnt), "the next save's epoch")
    assert (mnt.epoch(number) / "global_step7" / "rank1.pt").stat().st_size == 5000


# ---- the last file has said that the save is over: what another process leaves half beside it is no part of that


def shell_fails(path):
    """The command of a redirect ends with an error."""
    subprocess.run(["bash", "-c", "python3 -c 'print(1); raise SystemExit(1)' > \"$1\"", "-", path], check=False)


ENDS_BADLY = {"killed": kill_in_the_middle, "a redirect fails": shell_fails}


@pytest.mark.parametrize("how", ENDS_BADLY)
@pytest.mark.parametrize("before", ["at once", "a note", "another whole one", "remounted", "empty cache"])
@pytest.mark.options(settle="200ms", keep="last:1", grace="0")
def test_another_process_is_killed_beside_a_whole_save(mnt, how, before):
    """An evaluator of checkpoints, as the trainer goes on."""
    for number in (1, 2):
        save(mnt, trainer(number * 100), "whole")
        assert is_sealed(mnt, trainer, number - 1) == number
    if before == "a note":
        (mnt.path / "notes").write_text("beside it")
        wait_until(lambda: latest(mnt) == 3, "the note")
    elif before == "another whole one":
        (mnt.path / "checkpoint-200" / "loss.txt").write_text("whole")
        wait_until(lambda: latest(mnt) == 3, "what the other one added")
    elif before != "at once":
        mnt.remount(empty_cache=before == "empty cache")
    good = latest(mnt)
    ENDS_BADLY[how](mnt.path / "checkpoint-200" / "eval.txt")
    time.sleep(0.6)
    (mnt.path / "more").write_text("another note")
    wait_until(lambda: (mnt.epoch(max(log_of(mnt))) / "more").exists(), "the epoch after it")
    assert [d for e in log_of(mnt).values() for d in e.get("doubts", []) if d.get("counts")] == []
    assert latest(mnt) == max(log_of(mnt)) and not log_of(mnt).get(good, {}).get("continued", False)


@pytest.mark.options(settle="200ms", resume=True)
def test_the_live_tree_keeps_a_whole_save_beside_which_another_process_is_killed(mnt):
    for number in (1, 2):
        save(mnt, trainer(number * 100), "whole")
        is_sealed(mnt, trainer, number - 1)
    whole = files(mnt.path)
    kill_in_the_middle(mnt.path / "checkpoint-200" / "eval.txt")
    time.sleep(1)
    assert files(mnt.path) == whole and latest(mnt) == max(log_of(mnt))


@pytest.mark.options(settle="200ms")
def test_the_saver_itself_is_killed_in_a_file_after_the_last_one(mnt):
    """A program that adds to what the framework wrote: then that was no last file."""
    save(mnt, trainer(100), "whole")
    is_sealed(mnt, trainer)
    steps = list(trainer(200))
    save(mnt, steps + [("write", "checkpoint-200/more.txt")], "half", writes_of(steps) + 1)
    wait_until(lambda: max(log_of(mnt)) > 2 and latest(mnt) == 1, "going back to the first")


@pytest.mark.options(settle="200ms")
def test_another_process_is_killed_in_a_file_that_was_saved_before_the_last_one(mnt):
    """Another rank is late, whose file is part of the save each time, also of a job that began anew."""
    save(mnt, trainer_of_ranks(100), "whole")
    is_sealed(mnt, trainer_of_ranks)
    late = [s for s in trainer_of_ranks(200) if s[1:] != ("checkpoint-200/rng_state_1.pth",)]
    save(mnt, late, "half")
    wait_until(lambda: latest(mnt) == 2, "an epoch at the last file")
    kill_in_the_middle(mnt.path / "checkpoint-200" / "rng_state_1.pth")
    wait_until(lambda: latest(mnt) == 1, "going back to the first")
