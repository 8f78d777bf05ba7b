# SPDX-License-Identifier: Apache-2.0
"""Output (contract 1.2.5): what a program keeps open and writes beside its saves is valid at every length."""

import contextlib
import os
import sqlite3
import subprocess
import sys

import pytest

from conftest import wait_until

# What the programs below share. argv: the folder, how it ends, what else.
BEGIN = """
import os, signal, sys, threading, time
folder, end = sys.argv[1:3]
os.chdir(folder)
def save(name, data, how="wb"):
    with open(name, how) as f:
        f.write(data)
def leave():
    if end == "stay":
        print("written", flush=True)
        sys.stdin.readline()
    if end != "close":
        os.kill(os.getpid(), signal.SIGTERM if end == "term" else signal.SIGKILL)
"""

# LAMMPS: `dump`, a log without the name of one, `restart 50 r.1 r.2`, or `restart 50 lj.restart.*`.
LAMMPS = BEGIN + """
toggle = sys.argv[3] == "toggle"
dump, log = open("dump.lammpstrj", "wb", buffering=0), open("run.lmp-log", "wb", buffering=0)
for step in range(50, 50 * (1 + int(sys.argv[4])), 50):
    dump.write(b"ITEM: TIMESTEP %d\\n" % step + b"1 1 0.5 0.5 0.5\\n" * 60)
    log.write(b"step %d\\n" % step)
    save("r.%d" % (1 + step // 50 % 2) if toggle else "lj.restart.%d" % step, b"%d" % step * 1000)
dump.write(b"end")
leave()
"""

# GROMACS: trajectories that are fsynced at each checkpoint, which is renamed from a numbered name, the one before being copied.
GROMACS = BEGIN + """
out = [os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC) for name in ("md.trr", "md.edr")]
for step in range(100, 100 * (1 + int(sys.argv[3])), 100):
    for fd in out:
        os.write(fd, b"\\x00frame" * 100)
        os.fsync(fd)
    cpt = "md_step%d.cpt" % step
    save(cpt, b"%d" % step * 1000)
    if os.path.exists("md.cpt"):
        save("md_prev.cpt", open("md.cpt", "rb").read())
    os.rename(cpt, "md.cpt")
for fd in out:
    os.write(fd, b"end")
leave()
"""


def play(mnt, script, end, *arguments):
    return subprocess.run([sys.executable, "-c", script, mnt.path, end, *map(str, arguments)], timeout=60, check=False).returncode


def log_of(mnt):
    return {e["epoch"]: e for e in mnt.request("log")["epochs"]}


def seal_whole(mnt):
    """The epoch that is sealed now is complete and the latest, with nothing in doubt."""
    number = mnt.seal()
    record = log_of(mnt)[number]
    assert record["complete"] is True and "reason" not in record, record
    assert int(os.readlink(mnt.epochs_dir / "latest")) == number
    return mnt.epoch(number)


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("end", ["kill", "term"])
@pytest.mark.parametrize("how", ["toggle", "numbers"])
def test_the_dump_of_a_killed_lammps_stays(mnt, how, end):
    assert play(mnt, LAMMPS, end, how, 7) < 0
    dump = (mnt.path / "dump.lammpstrj").read_bytes()
    assert dump.count(b"ITEM") == 7 and dump.endswith(b"end")
    assert (mnt.path / "run.lmp-log").read_bytes().endswith(b"step 350\n") and mnt.torn() == []
    whole = seal_whole(mnt)
    assert (whole / "dump.lammpstrj").read_bytes() == dump


@pytest.mark.options(settle="1h")
def test_what_is_open_beside_one_save_is_undone(mnt):
    play(mnt, LAMMPS, "kill", "toggle", 1)
    assert sorted(os.listdir(mnt.path)) == ["r.2"] and len(mnt.torn()) == 2


@pytest.mark.options(settle="300ms", patience="1h")
def test_output_holds_no_epoch_up_and_is_in_each_as_it_stands(mnt):
    with subprocess.Popen([sys.executable, "-c", LAMMPS, mnt.path, "stay", "numbers", "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        program.stdout.readline()
        wait_until(lambda: any((mnt.epoch(n) / "lj.restart.150").exists() for n in mnt.epochs()), "an epoch by quiet, with the last restart file")
        dump = mnt.epoch(max(mnt.epochs())) / "dump.lammpstrj"
        assert dump.read_bytes().endswith(b"end") and log_of(mnt)[max(mnt.epochs())]["complete"] is True
        number = mnt.seal()
        assert number == max(mnt.epochs())
        program.communicate("go on\n", timeout=60)
    # Its kill makes no epoch either, and nothing has changed.
    assert mnt.seal() == number


@pytest.mark.options(settle="1h")
def test_gromacs_killed_among_its_checkpoints_leaves_a_whole_epoch(mnt):
    assert play(mnt, GROMACS, "kill", 4) < 0
    for name in ("md.trr", "md.edr"):
        assert (mnt.path / name).read_bytes() == b"\x00frame" * 400 + b"end"
    whole = seal_whole(mnt)
    assert (whole / "md.cpt").read_bytes() == b"400" * 1000 and (whole / "md.trr").read_bytes().endswith(b"end")


APPENDS = BEGIN + """
out = os.open("md.trr", os.O_RDWR)
os.ftruncate(out, 600)
os.lseek(out, 0, os.SEEK_END)
for step in range(500, 800, 100):
    os.write(out, b"\\x00again" * 100)
    save("md_step%d.cpt" % step, b"%d" % step * 1000)
    os.rename("md_step%d.cpt" % step, "md.cpt")
leave()
"""


@pytest.mark.options(settle="1h")
def test_output_that_a_restart_goes_on_with_is_not_in_doubt(mnt):
    play(mnt, GROMACS, "close", 2)
    mnt.seal()
    assert play(mnt, APPENDS, "kill") < 0
    assert (seal_whole(mnt) / "md.trr").read_bytes() == b"\x00frame" * 100 + b"\x00again" * 300


@pytest.mark.options(settle="1h")
def test_output_that_replaces_that_of_a_run_before_takes_its_place(mnt):
    (mnt.path / "dump.lammpstrj").write_bytes(b"of the run before" * 100)
    mnt.seal()
    before = open(mnt.path / "dump.lammpstrj", "rb")
    with subprocess.Popen([sys.executable, "-c", LAMMPS, mnt.path, "stay", "toggle", "5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        program.stdout.readline()
        # Others see it grow, and who had the old one open keeps it.
        assert (mnt.path / "dump.lammpstrj").read_bytes().count(b"ITEM") == 5
        assert before.read() == b"of the run before" * 100
        assert (mnt.epoch(mnt.seal()) / "dump.lammpstrj").read_bytes().count(b"ITEM") == 5
        program.communicate("go on\n", timeout=60)
    before.close()
    assert (seal_whole(mnt) / "dump.lammpstrj").read_bytes().endswith(b"end")
    assert (mnt.epoch(1) / "dump.lammpstrj").read_bytes() == b"of the run before" * 100
    mnt.remount()
    assert (mnt.path / "dump.lammpstrj").read_bytes().endswith(b"end")


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("program, name, again", [
    (LAMMPS, "dump.lammpstrj", False), (LAMMPS, "dump.lammpstrj", True), (GROMACS, "md.trr", False),
], ids=["LAMMPS", "LAMMPS again", "GROMACS"])
def test_output_outlives_the_daemon(mnt, program, name, again):
    if again:
        (mnt.path / name).write_bytes(b"of the run before" * 100)
        mnt.seal()
    arguments = ["toggle", "5"] if program is LAMMPS else ["5"]
    with subprocess.Popen([sys.executable, "-c", program, mnt.path, "stay", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as alive:
        alive.stdout.readline()
        mnt.kill()
        alive.kill()
    mnt.mount()
    assert (mnt.path / name).read_bytes().endswith(b"end") and mnt.torn() == []
    assert (seal_whole(mnt) / name).read_bytes().endswith(b"end")


# LAMMPS under MPI, `dump d.%`: each rank writes a file of its own, and the first one saves.
RANKS = BEGIN + """
ready, go = os.pipe(), os.pipe()
for rank in range(1, 4):
    if os.fork() == 0:
        if end == "early":
            out = open("d.%d" % rank, "wb", buffering=0)
            out.write(b"\\x80" * 1000)
        os.write(ready[1], b"1")
        os.read(go[0], 1)
        if end == "late":
            out = open("d.%d" % rank, "wb", buffering=0)
            out.write(b"\\x80" * 1000)
        out.write(b"end")
        os.write(ready[1], b"1")
        while os.getppid():
            time.sleep(1)
out = open("d.0", "wb", buffering=0)
def meet():
    n = 0
    while n < 3:
        n += len(os.read(ready[0], 3))
meet()
for step in range(4):
    out.write(b"\\x80" * 1000)
    save("lj.restart.%d" % step, b"%d" % step * 1000)
out.write(b"end")
os.write(go[1], b"123")
meet()
# Who has opened late is seen with the next save, which the volume has taken in once it can be opened: the kernel tells it in the background.
save("lj.restart.5", b"5" * 1000)
open("lj.restart.5", "rb").close()
os.killpg(0, signal.SIGKILL)
"""


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("others", ["early", "late"])
def test_what_each_rank_writes_is_output_where_one_saves(mnt, others):
    done = subprocess.run([sys.executable, "-c", RANKS, mnt.path, others], timeout=60, check=False, start_new_session=True)
    assert done.returncode == -9
    wait_until(lambda: not mnt.status()["pending"]["open"], "the end of all ranks")
    for rank in range(4):
        assert (mnt.path / ("d.%d" % rank)).read_bytes().endswith(b"\x80end"), rank
    assert mnt.torn() == []
    seal_whole(mnt)


# CP2K: h2-pos-1.xyz is opened, appended to by a seek, and closed at each step.
CP2K = BEGIN + """
for step in range(int(sys.argv[3])):
    fd = os.open("h2-pos-1.xyz", os.O_WRONLY | os.O_CREAT, 0o644)
    os.lseek(fd, 0, os.SEEK_END)
    os.write(fd, b"frame %d\\n" % step * 100)
    if step + 1 < int(sys.argv[3]):
        os.close(fd)
    save("h2-1.restart", b"%d" % step * 100)
leave()
"""


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("died", ["writer", "daemon"])
@pytest.mark.parametrize("durable", [False, True], ids=["local", "durable"])
def test_what_only_grew_is_not_spoilt_by_a_kill(mnt, died, durable):
    play(mnt, CP2K, "close", 3)
    mnt.seal()
    before = (mnt.path / "h2-pos-1.xyz").read_bytes()
    if durable:
        mnt.wait_durable()
    if died == "daemon":
        with subprocess.Popen([sys.executable, "-c", CP2K, mnt.path, "stay", "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            program.stdout.readline()
            mnt.kill()
            program.kill()
        mnt.mount()
    else:
        play(mnt, CP2K, "kill", 2)
    data = (mnt.path / "h2-pos-1.xyz").read_bytes()
    assert data.startswith(before) and data.endswith(b"frame 1\n" * 100)
    assert (seal_whole(mnt) / "h2-pos-1.xyz").read_bytes() == data


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("how", ["write", "truncate", "append and write"])
def test_what_was_changed_before_its_end_is_in_doubt(mnt, how):
    play(mnt, CP2K, "close", 3)
    mnt.seal()
    script = BEGIN + """
f = open("h2-pos-1.xyz", "r+b", buffering=0)
if "append" in sys.argv[3]:
    os.lseek(f.fileno(), 0, os.SEEK_END)
    f.write(b"more" * 1000)
    os.lseek(f.fileno(), 0, os.SEEK_SET)
f.truncate(5) if sys.argv[3] == "truncate" else f.write(b"other")
save("h2-1.restart", b"again" * 100)
leave()
"""
    play(mnt, script, "kill", how)
    number = mnt.seal()
    assert log_of(mnt)[number]["complete"] is False


# ---- what is none


PARTS = BEGIN + """
first, others = sys.argv[3], sys.argv[4:]
with open(first, "wb", buffering=0) as f:
    f.write(b"half")
    for name in others:
        save(name, b"part" * 1000)
    leave()
"""


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("first, others", [
    ("__0_0.distcp", ["__0_1.distcp", "__0_2.distcp", "__0_3.distcp"]),
    ("model-00001-of-00004.safetensors", ["model-00002-of-00004.safetensors", "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors"]),
    ("optim.bin", ["layer_0.bin", "layer_1.bin", "layer_2.bin"]),
    ("optim.bin", ["model-00001-of-00002.bin", "model-00002-of-00002.bin"]),
    ("optim.bin", ["train.log", "train.log", "metrics.jsonl", "metrics.jsonl"]),
], ids=["distcp", "safetensors", "layers", "parts of another name", "logs"])
def test_a_part_of_a_save_is_no_output(mnt, first, others):
    (mnt.path / first).write_bytes(b"whole")
    mnt.seal()
    play(mnt, PARTS, "kill", first, *others)
    assert (mnt.path / first).read_bytes() == b"whole" and [n.split("-", 1)[1] for n in mnt.torn()] == [first]


DATABASE = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1] + "/state.db")
db.execute("create table t (x)")
for n in range(3):
    db.execute("insert into t values (?)", ("x" * 2000,))
    db.commit()
    time.sleep(2)
db.close()
"""


@pytest.mark.options(settle="300ms", patience="1s")
def test_a_database_is_no_output_for_the_sake_of_its_journal(mnt):
    subprocess.run([sys.executable, "-c", DATABASE, mnt.path], check=True, timeout=60)
    # What is closed opens an epoch, which output does not.
    wait_until(lambda: rows(mnt) == 3, "an epoch that has all transactions")


def rows(mnt):
    """Of the newest epoch's database."""
    number = max(mnt.epochs(), default=0)
    if not number or not (mnt.epoch(number) / "state.db").exists():
        return 0
    with contextlib.closing(sqlite3.connect("file:%s?immutable=1" % (mnt.epoch(number) / "state.db"), uri=True)) as db:
        try:
            return db.execute("select count(*) from t").fetchone()[0]
        except sqlite3.Error:
            return 0


BESIDE = BEGIN + """
def beat():
    for n in range(4):
        save("status.json.tmp", b"{}" * (n + 1))
        os.rename("status.json.tmp", "status.json")
with open(sys.argv[3], "wb", buffering=0) as f:
    f.write(eval(sys.argv[4]))
    thread = threading.Thread(target=beat)
    if sys.argv[5:] == ["alone"]:
        beat()
    else:
        thread.start()
        thread.join()
    leave()
"""


@pytest.mark.options(settle="1h")
@pytest.mark.parametrize("name, threads", [("model.pt", []), ("model.gguf", []), ("model.pt", ["alone"]), ("model.gguf", ["alone"])])
def test_a_checkpoint_beside_which_a_status_file_is_kept_is_no_output(mnt, name, threads):
    (mnt.path / name).write_bytes(b"whole")
    mnt.seal()
    play(mnt, BESIDE, "kill", name, "b'half' * 1000", *threads)
    assert (mnt.path / name).read_bytes() == b"whole" and len(mnt.torn()) == 1


@pytest.mark.options(settle="1h")
def test_lines_of_text_beside_the_saves_of_another_thread_are_output(mnt):
    play(mnt, BESIDE, "kill", "history", "b'a line\\n' * 100")
    assert (mnt.path / "history").read_bytes() == b"a line\n" * 100 and mnt.torn() == []
    seal_whole(mnt)


@pytest.mark.options(settle="1h")
def test_what_another_process_saves_makes_no_output(mnt):
    with subprocess.Popen([sys.executable, "-c", LAMMPS, mnt.path, "stay", "toggle", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        program.stdout.readline()
        for n in range(4):
            (mnt.path / "r.1").write_bytes(b"another" * (n + 1))
        program.communicate("go on\n", timeout=60)
    assert not (mnt.path / "dump.lammpstrj").exists() and any(n.endswith("dump.lammpstrj") for n in mnt.torn())
