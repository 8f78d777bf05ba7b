# SPDX-License-Identifier: Apache-2.0
"""Who ends a job signals all of its processes: the final save is in the mount, and never below it.

Most tests stand in for a cgroup by a list of the job's processes, made before the first signal; some have a real one.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import BIN, LIMIT, MountError, is_mounted, python, run, wait_until

# Saves once it is told to end: after a moment in which it has nothing open, and slowly. More signals change nothing.
TRAINING = """
import os, signal, sys, time
top, pause = sys.argv[1], float(sys.argv[2])
told = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda n, frame: told.append(n))
def save(step):
    with open(os.path.join(top, "tmp-step"), "w") as f:
        for part in range(4):
            f.write(step)
            f.flush()
            time.sleep(pause / 4)
    os.rename(os.path.join(top, "tmp-step"), os.path.join(top, "step"))
save("1")
print("saved", flush=True)
while not told:
    time.sleep(0.01)
end = time.monotonic() + pause
while time.monotonic() < end:
    time.sleep(0.01)
save("2")
print("saved again", flush=True)
"""


def children_of(pid):
    found = []
    try:
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task), encoding="utf-8") as f:
                found += [int(word) for word in f.read().split()]
    except OSError:  # it ends
        pass
    return found


def tree_of(pid):
    return [pid] + [p for child in children_of(pid) for p in tree_of(child)]


def name_of(pid):
    try:
        with open("/proc/%d/comm" % pid, encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return "epochfs, ended"


def send(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Job:
    """`epochfs run` of the training above, and its processes."""

    def __init__(self, base, options="settle=1h", pause=0.4):
        self.base, self.path, self.remote = base, base / "mnt", base / "remote"
        self.remote.mkdir(exist_ok=True)
        self.env = {**os.environ, "EPOCHFS_CACHE_DIR": str(base / "cache")}
        self.command = [BIN, "run", "-o", options, "--mount", "%s:%s" % (self.remote, self.path), "--grace", "20s", "--",
                        sys.executable, "-c", TRAINING, str(self.path), str(pause)]
        self.process = None

    def start(self, *before):
        self.process = subprocess.Popen([*before, *self.command], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line == "saved\n", line + self.process.stderr.read()
        return self

    def processes(self):
        """By what they are: the runner, training, and those that serve the mount."""
        runner = next(p for p in tree_of(self.process.pid) if name_of(p) == "epochfs")
        rest = [p for p in tree_of(runner) if p != runner]
        training = [p for p in rest if not name_of(p).startswith("epochfs")]
        return {"runner": [runner], "training": training, "daemon": [p for p in rest if p not in training]}

    def end(self):
        out, err = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, out, err

    def check_saved(self, step="2222"):
        """The last save is in the remote, in a whole epoch, and nothing is below the mount point."""
        wait_until(lambda: not is_mounted(self.path), "the unmount")
        assert os.listdir(self.path) == []
        newest = json.loads(run(BIN, "log", "--json", self.remote).stdout)[0]
        assert newest["complete"] is True and newest["state"] == "durable"
        run(BIN, "export", "--force", self.remote, self.base / "out")
        assert (self.base / "out" / "step").read_text() == step


@pytest.fixture
def job(tmp_path):
    made = []

    def make(**keywords):
        made.append(Job(tmp_path, **keywords))
        return made[-1]

    yield make
    for one in made:
        while is_mounted(one.path):
            run("umount", "-l", one.path, check=False)


# ---- epochfs run ----


ORDERS = list(itertools.permutations(["daemon", "training", "runner"]))


@pytest.mark.parametrize("options", ["settle=1h", "settle=1h,supervise"], ids=["plain", "supervised"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_a_signal_to_every_process_of_a_run(job, order, number, options):
    """Each group of them a moment after the other: what was signalled first has had time to act."""
    j = job(options=options).start()
    processes = j.processes()
    assert len(processes["training"]) == 1 and len(processes["daemon"]) == (3 if "supervise" in options else 2)
    for group in order:
        send(processes[group], number)
        time.sleep(0.1)
    code, out, err = j.end()
    assert code == 85 and out == "saved again\n", out + err
    j.check_saved()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_daemon_alone_is_signalled(job, number):
    """It outlives the run, and ends with it."""
    j = job().start()
    processes = j.processes()
    for _ in range(3):
        send(processes["daemon"], number)
        time.sleep(0.1)
    assert is_mounted(j.path) and j.process.poll() is None
    send(processes["training"], signal.SIGTERM)
    assert j.end()[0] == 0
    j.check_saved()


def test_a_signal_waits_for_a_run_in_a_mount_that_was_there(mnt):
    """The run did not mount it: after its end the mount does what it was told."""
    (mnt.path / "f").write_text("1")
    script = 'echo ready; read go; echo 2 > "$1/f"'
    process = subprocess.Popen([BIN, "run", "--mount", mnt.path, "--", "sh", "-c", script, "sh", mnt.path],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    mnt.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "waits until `epochfs run` ends" in mnt.log.read_text(), "the word in the log")
    mnt.process.send_signal(signal.SIGTERM)
    process.communicate("go\n", timeout=LIMIT)
    assert process.returncode == 0
    # This very process has written there and may do it again: the grace, which a second SIGINT ends.
    mnt.process.send_signal(signal.SIGINT)
    mnt.wait_end()
    assert not is_mounted(mnt.path) and not os.listdir(mnt.path)
    mnt.mount()
    assert (mnt.epochs_dir / "latest" / "f").read_text() == "2\n"


@pytest.mark.parametrize("first", ["runner", "runner and signal"])
def test_a_runner_that_is_killed_leaves_the_mount_to_training(job, first):
    j = job(pause=0.6).start()
    processes = j.processes()
    if first != "runner":
        send(processes["daemon"] + processes["training"], signal.SIGTERM)
    send(processes["runner"], signal.SIGKILL)
    j.process.wait(timeout=LIMIT)
    time.sleep(0.5)  # in vain: training lives
    assert is_mounted(j.path)
    send(processes["training"], signal.SIGTERM)
    assert j.process.stdout.read() == "saved again\n"
    wait_until(lambda: not is_mounted(j.path), "the unmount")
    wait_until(lambda: not os.path.exists("/proc/%d" % processes["daemon"][0]), "the end of the daemon")
    # The next one uploads what this one did not.
    j.command[-5:] = ["true"]
    assert run(*j.command, env=j.env, check=False).returncode == 0
    j.check_saved()


def test_a_hold_outlives_the_worker(job):
    """Under a supervisor: the worker is killed, the next one knows that a run has the mount."""
    j = job(options="settle=1h,supervise").start()
    status = json.loads(run(BIN, "status", "--json", j.path).stdout)
    os.kill(status["pid"], signal.SIGKILL)
    after = wait_until(lambda: json.loads(run(BIN, "status", "--json", j.path).stdout), "the next worker")
    assert after["pid"] != status["pid"]
    for pid in (after["pid"], after["supervisor"]):
        os.kill(pid, signal.SIGTERM)
    time.sleep(0.3)
    assert is_mounted(j.path)
    # It dies once more, after it was told to end.
    os.kill(after["pid"], signal.SIGKILL)
    send(j.processes()["training"], signal.SIGTERM)
    code, out, err = j.end()
    assert code == 0 and out == "saved again\n", err
    j.check_saved()


def test_a_second_signal_does_not_fail_the_save(job):
    """From the first one on a close waits for the remote; the second one ends that wait, and the close is none the worse."""
    j = job()
    j.command[j.command.index("--mount") + 1] = "fault+file://%s?put.delay=1500ms&only=epochs/:%s" % (j.remote, j.path)
    j.start()
    groups = j.processes()
    send(groups["runner"], signal.SIGTERM)
    # The second save is written, and its close waits.
    wait_until(lambda: len(json.loads(run(BIN, "log", "--json", j.path).stdout)) == 2, "the wait of the close")
    send(groups["training"], signal.SIGTERM)
    code, out, err = j.end()
    assert code == 85 and out == "saved again\n", err
    j.check_saved()


# ---- a plain mount ----


@pytest.fixture
def training(mnt):
    """Has saved once in the mount, with nothing open since."""
    p = python(TRAINING, mnt.path, "0.5")
    assert p.stdout.readline() == "saved\n"
    yield p
    p.kill()
    p.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("order", ["daemon first", "training first"])
def test_training_saves_once_more_after_the_signal(mnt, training, order, number):
    groups = [mnt.pid, training.pid]
    for pid in groups if order == "daemon first" else groups[::-1]:
        os.kill(pid, number)
        time.sleep(0.1)
    assert training.stdout.read() == "saved again\n"
    mnt.wait_end()
    assert not is_mounted(mnt.path) and os.listdir(mnt.path) == []
    newest = json.loads(run(BIN, "log", "--json", mnt.remote).stdout)[0]
    assert newest["complete"] is True
    run(BIN, "export", mnt.remote, mnt.base / "out")  # it is uploaded
    assert (mnt.base / "out" / "step").read_text() == "2222"


@pytest.mark.options(settle="1h", grace="300ms")
@pytest.mark.parametrize("how", ["writes", "reads", "stands", "maps"])
def test_a_mount_in_use_is_never_uncovered(mnt, how):
    """However often it is told, and whatever the grace."""
    (mnt.path / "d").mkdir()
    (mnt.path / "d" / "old").write_text("old")
    p = python("""
import mmap, os, sys
how, d = sys.argv[1:]
if how == "writes":
    f = open(d + "/new", "w")
elif how == "reads":
    f = open(d + "/old")
elif how == "stands":
    os.chdir(d)
else:
    with open(d + "/old") as f:
        m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print("there", flush=True)
sys.stdin.readline()
with open(d + "/late", "w") as late:
    late.write("late")
if how == "writes":
    f.write("new")
    f.close()
""", how, mnt.path / "d")
    assert p.stdout.readline() == "there\n"
    mnt.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "once it is not in use any more" in mnt.log.read_text(), "the word in the log")
    assert "(process %d, " % p.pid in mnt.log.read_text()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGINT):
        mnt.process.send_signal(number)
        time.sleep(0.1)
    assert is_mounted(mnt.path) and mnt.process.poll() is None
    p.communicate("go\n", timeout=LIMIT)
    assert p.returncode == 0
    mnt.wait_end()
    assert os.listdir(mnt.path) == []
    mnt.mount()
    assert (mnt.epochs_dir / "latest" / "d" / "late").read_text() == "late"


@pytest.mark.options(settle="1h", grace="1h")
def test_a_drain_ends_with_the_second_interrupt(volume):
    """A remote that is away: Ctrl-C asks for the upload, another one for the end."""
    volume.url = "fault+file://%s?put.delay=1h&only=packs/" % volume.remote
    volume.mount()
    (volume.path / "f").write_bytes(os.urandom(100000))
    volume.process.send_signal(signal.SIGINT)
    wait_until(lambda: volume.request("log")["epochs"], "the seal")
    assert is_mounted(volume.path)
    volume.terminate(signal.SIGINT)
    volume.url = "file://%s" % volume.remote
    volume.mount()
    volume.wait_durable()


@pytest.mark.options(settle="1h", grace="500ms")
def test_a_drain_ends_with_the_grace(volume):
    volume.url = "fault+file://%s?put.delay=1h&only=packs/" % volume.remote
    volume.mount()
    (volume.path / "f").write_bytes(os.urandom(100000))
    volume.terminate()
    assert "the grace is over" in volume.log.read_text()


# ---- what lies below ----


def test_what_lies_below_is_named_at_the_next_mount(mnt):
    (mnt.path / "f").write_text("1")
    mnt.unmount()
    (mnt.path / "step-2.pt").write_text("saved in vain")
    with pytest.raises(MountError) as failure:
        mnt.mount()
    assert failure.value.code == 8
    said = failure.value.output
    assert "step-2.pt" in said and "mv %s %s.below" % (mnt.path, mnt.path) in said and "-o nonempty" in said
    os.rename(mnt.path, "%s.below" % mnt.path)
    mnt.path.mkdir()
    mnt.mount()
    assert (mnt.path / "f").read_text() == "1"


def text_of(path):
    try:
        return path.read_text()
    except OSError:
        return None


def test_a_dead_mount_covers_until_the_next_one(mnt):
    """While the next mount waits for its remote, nothing can be written below."""
    (mnt.path / "f").write_text("1")
    mnt.wait_durable()
    mnt.process.kill()
    mnt.process.wait(timeout=LIMIT)
    mnt.process = None
    assert is_mounted(mnt.path)
    url, mnt.url = mnt.url, "fault+file://%s?get.delay=1h" % mnt.remote
    with open(mnt.log, "ab") as log:
        mnt.process = subprocess.Popen(mnt.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    time.sleep(0.5)
    assert mnt.process.poll() is None
    with pytest.raises(OSError):
        (mnt.path / "step").write_text("2")
    mnt.process.kill()
    mnt.process.wait()
    mnt.process = None
    mnt.url = url
    assert is_mounted(mnt.path)
    mnt.process = subprocess.Popen(mnt.command(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: text_of(mnt.path / "f") == "1", "the mount")


# ---- batch systems: who is signalled, and when SIGKILL follows, each second a tenth of one ----

TENTH = 0.1


def end_as(scheme, j):
    """The signals that it sends, in order; gives when SIGKILL is due, in its own seconds."""
    groups = j.processes()
    every = [p for pids in groups.values() for p in pids]
    if scheme == "slurm: time limit, scancel":
        send(every, signal.SIGCONT)
        send(every, signal.SIGTERM)
        return every, 30
    if scheme == "slurm: --signal=B:USR1, then the time limit":
        send(groups["runner"], signal.SIGUSR1)  # the script passes it on
        time.sleep(10 * TENTH)
        send(every, signal.SIGCONT)
        send(every, signal.SIGTERM)
        return every, 30
    if scheme == "slurm: scancel twice":
        for _ in range(2):
            send(every, signal.SIGTERM)
            time.sleep(2 * TENTH)
        return every, 30
    if scheme == "htcondor: vacate":
        send(groups["runner"], signal.SIGTERM)
        return every, 300
    if scheme == "systemd: KillMode=control-group, SendSIGHUP":
        send(every, signal.SIGTERM)
        send(every, signal.SIGCONT)
        send(every, signal.SIGHUP)
        return every, 90
    assert scheme == "systemd: KillMode=mixed"
    send(groups["runner"], signal.SIGTERM)
    return every, 90


@pytest.mark.parametrize("scheme", ["slurm: time limit, scancel", "slurm: --signal=B:USR1, then the time limit", "slurm: scancel twice",
                                    "htcondor: vacate", "systemd: KillMode=control-group, SendSIGHUP", "systemd: KillMode=mixed"])
def test_a_save_of_two_seconds_is_in_time(job, scheme):
    j = job(pause=4 * TENTH).start()
    every, limit = end_as(scheme, j)
    # SIGKILL comes at its time; on a machine that is busy with other things it comes later.
    try:
        j.process.wait(timeout=limit * TENTH + LIMIT / 2)
    except subprocess.TimeoutExpired:
        send(every, signal.SIGKILL)
    code, out, err = j.end()
    assert code == 85 and out == "saved again\n", err
    j.check_saved()


def test_kubernetes_signals_process_1(job):
    """In a process namespace of its own, as a container has it: SIGTERM to the first process, whose end kills all others."""
    j = job()
    try:
        j.start("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "unchanged")
    except AssertionError as error:
        if "unshare" in str(error):
            pytest.skip("no process namespace can be made: %s" % error)
        raise
    send(j.processes()["runner"], signal.SIGTERM)
    code, out, err = j.end()
    assert code == 85 and out == "saved again\n", err
    j.check_saved()


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_sigkill_before_the_save_is_done(job, order):
    """Whoever dies first: nothing goes below, and the next run goes on from what was whole."""
    j = job(pause=2).start()
    groups = j.processes()
    every = [p for pids in groups.values() for p in pids]
    send(every, signal.SIGTERM)
    wait_until(lambda: "tmp-step" in os.listdir(j.path), "the second save")
    for group in order:
        send(groups[group], signal.SIGKILL)
        time.sleep(0.1)
    j.process.wait(timeout=LIMIT)
    for pid in every:
        wait_until(lambda p=pid: not os.path.exists("/proc/%d" % p), "the end of all")
    script = 'cat "$1/step"; ls -A "$1"'
    done = run(*j.command[:j.command.index("--")], "--resume", "--", "sh", "-c", script, "sh", j.path, env=j.env)
    assert done.stdout.startswith("1111"), done
    j.check_saved("1111")


# ---- a real cgroup, and a process group ----


class Cgroup:
    """A control group below this process's own; what is started by `enter` is in it, and all that this starts."""

    def __init__(self, top):
        with open("/proc/self/cgroup", encoding="utf-8") as f:
            own = next(line[3:].strip() for line in f if line.startswith("0::"))
        self.path = "%s%s/epochfs-test-%d" % (top, own, os.getpid())
        os.mkdir(self.path)

    def enter(self):
        return ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', self.path]

    def processes(self):
        with open(self.path + "/cgroup.procs", encoding="utf-8") as f:
            return [int(line) for line in f]

    def kill(self):
        """All at once, by the kernel."""
        with open(self.path + "/cgroup.kill", "w", encoding="utf-8") as f:
            f.write("1")


@pytest.fixture
def cgroup(tmp_path):
    if os.geteuid():
        pytest.skip("only root may do that: make a control group")
    (tmp_path / "cgroup").mkdir()
    done = run("mount", "-t", "cgroup2", "none", tmp_path / "cgroup", check=False)
    if done.returncode:
        pytest.skip("no control groups here: %s" % done.stderr)
    try:
        made = Cgroup(tmp_path / "cgroup")
        yield made
        made.kill()
        wait_until(lambda: not made.processes(), "the end of all")
        os.rmdir(made.path)
    finally:
        run("umount", "-l", tmp_path / "cgroup")


@pytest.mark.parametrize("options", ["settle=1h", "settle=1h,supervise"], ids=["plain", "supervised"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("way", ["as listed", "backwards"])
def test_a_signal_to_each_process_of_a_cgroup(job, cgroup, way, number, options):
    """No process has left it, the daemon and its watchdog neither."""
    j = job(options=options).start(*cgroup.enter())
    listed = cgroup.processes()
    assert sorted(listed) == sorted(p for pids in j.processes().values() for p in pids)
    for pid in listed if way == "as listed" else listed[::-1]:
        send([pid], number)
        time.sleep(0.05)
    code, out, err = j.end()
    assert code == 85 and out == "saved again\n", out + err
    j.check_saved()
    assert not cgroup.processes()


@pytest.mark.parametrize("options", ["settle=1h", "settle=1h,supervise"], ids=["plain", "supervised"])
@pytest.mark.parametrize("told", [True, False], ids=["after SIGTERM", "at once"])
def test_a_cgroup_that_is_killed_in_the_middle_of_a_save(job, cgroup, told, options):
    """As systemd does at the end of its time, and the kernel where memory is short: nobody is left to clean up."""
    j = job(options=options, pause=2).start(*cgroup.enter())
    if told:
        send(cgroup.processes(), signal.SIGTERM)
    else:
        send(j.processes()["training"], signal.SIGUSR1)  # saves again
    wait_until(lambda: "tmp-step" in os.listdir(j.path), "the second save")
    cgroup.kill()
    j.process.wait(timeout=LIMIT)
    wait_until(lambda: not cgroup.processes(), "the end of all")
    # Nothing can be written below.
    assert is_mounted(j.path)
    with pytest.raises(OSError):
        (j.path / "step").write_text("3")
    done = run(*j.command[:j.command.index("--")], "--resume", "--", "sh", "-c", 'cat "$1/step"; ls -A "$1"', "sh", j.path, env=j.env)
    assert done.stdout.startswith("1111"), done
    j.check_saved("1111")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
@pytest.mark.parametrize("options", ["settle=1h", "settle=1h,supervise"], ids=["plain", "supervised"])
def test_a_signal_to_each_process_group(job, number, options):
    """That of the runner, as a terminal or `kill -- -PID` does, and those that the daemon and the command have."""
    j = job(options=options).start("setsid")
    groups = {os.getpgid(p) for pids in j.processes().values() for p in pids}
    assert os.getpgid(j.processes()["runner"][0]) in groups and len(groups) >= 2
    for group in sorted(groups):
        os.killpg(group, number)
    code, out, err = j.end()
    assert code == 85 and out == "saved again\n", out + err
    j.check_saved()


# ---- before the command has begun ----


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("options", ["settle=1h", "settle=1h,supervise"], ids=["plain", "supervised"])
def test_a_run_that_is_interrupted_while_it_mounts_leaves_no_mount(job, number, options):
    """A slow remote: whoever presses Ctrl-C has a machine as before."""
    j = job(options=options)
    j.command[j.command.index("--mount") + 1] = "fault+file://%s?get.delay=1h&list.delay=1h:%s" % (j.remote, j.path)
    j.process = subprocess.Popen(j.command, env=j.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    (daemon,) = wait_until(lambda: children_of(j.process.pid), "the daemon")
    j.process.send_signal(number)
    code, out, err = j.end()
    assert code == 85 and out == "" and "interrupted" in err, out + err
    assert not is_mounted(j.path) and not os.path.exists("/proc/%d" % daemon)


def test_a_mount_whose_command_was_interrupted_ends(tmp_path):
    """`epochfs mount` in the background: nobody knows of a mount that comes up after the Ctrl-C."""
    for name in ("mnt", "remote", "cache"):
        (tmp_path / name).mkdir()
    url = "fault+file://%s?put.delay=200ms" % (tmp_path / "remote")
    process = subprocess.Popen([BIN, "mount", "-o", "cache-dir=%s" % (tmp_path / "cache"), url, tmp_path / "mnt"], stderr=subprocess.PIPE)
    (daemon,) = wait_until(lambda: children_of(process.pid), "the daemon")
    process.send_signal(signal.SIGINT)
    process.wait(timeout=LIMIT)
    wait_until(lambda: not os.path.exists("/proc/%d" % daemon) or name_of(daemon) != "epochfs", "the end of the daemon")
    wait_until(lambda: not is_mounted(tmp_path / "mnt"), "the unmount")


# ---- umount of a busy mount ----


def test_a_umount_that_fails_seals_nothing_and_names_who_is_busy(mnt):
    (mnt.path / "f").write_text("1")
    mnt.seal()
    p = python("import sys; f = open(sys.argv[1], 'w'); print('open', flush=True); sys.stdin.read()", mnt.path / "new")
    assert p.stdout.readline() == "open\n"
    for _ in range(3):
        os.utime(mnt.path / "f")
        done = run(BIN, "umount", mnt.path, check=False)
        assert done.returncode == 8 and "in use by python3 (process %d, new)" % p.pid in done.stderr, done.stderr
    assert mnt.epochs() == [1]
    p.communicate(timeout=LIMIT)
    run(BIN, "umount", mnt.path)
    mnt.wait_end()


def test_a_umount_of_what_has_a_mount_in_it_seals_nothing_and_names_it(mnt):
    if os.geteuid():
        pytest.skip("only root may do that: mount something in it")
    (mnt.path / "in it").mkdir()
    (mnt.path / "f").write_text("1")
    mnt.seal()
    run("mount", "-t", "tmpfs", "none", mnt.path / "in it")
    try:
        for number in range(2):
            (mnt.path / "f").write_text("2" * number)
            done = run(BIN, "umount", mnt.path, check=False)
            assert done.returncode == 8 and "something is mounted in it, at %s/in\\040it: unmount that first" % mnt.path in done.stderr, done.stderr
        assert mnt.epochs() == [1]
    finally:
        run("umount", mnt.path / "in it")
    run(BIN, "umount", mnt.path)
    mnt.wait_end()


def test_a_dead_mount_that_is_in_use_stays(mnt):
    (mnt.path / "d").mkdir()
    p = python("import os, sys; os.chdir(sys.argv[1]); print('in', flush=True); sys.stdin.read()", mnt.path / "d")
    assert p.stdout.readline() == "in\n"
    mnt.process.kill()
    mnt.process.wait()
    mnt.process = None
    done = run(BIN, "umount", mnt.path, check=False)
    assert done.returncode == 8 and "python3 (process %d, its working directory)" % p.pid in done.stderr
    assert is_mounted(mnt.path)
    p.communicate(timeout=LIMIT)
    run(BIN, "umount", mnt.path)
    assert not is_mounted(mnt.path)
