# SPDX-License-Identifier: Apache-2.0
"""Who ends a job of `epochfs run` signals all of its processes: the final save is in the mount, and never below it.

Most tests stand in for a cgroup by a list of the job's processes, made before the first signal; some have a real one.
"""

import itertools
import json
import os
import signal
import subprocess
import time

import pytest

from conftest import BIN, LIMIT, is_mounted, run, wait_until
from training_job import Job, children_of, send


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


@pytest.mark.parametrize("options", ["settle=1h", "settle=1h,supervise"], ids=["plain", "supervised"])
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU], ids=lambda number: number.name)
def test_a_notice_that_is_meant_for_training_does_not_end_the_daemon(job, number, options):
    """Which Slurm (--signal), LSF and Grid Engine send to every process of a job before its time ends."""
    j = job(options=options).start()
    processes = j.processes()
    send(processes["daemon"], number)
    time.sleep(0.1)
    send(processes["training"] + processes["runner"], signal.SIGUSR1)
    code, out, err = j.end()
    assert code == 85 and out == "saved again\n", out + err
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
    if scheme == "slurm: --signal=USR1, then the time limit":
        send(every, signal.SIGUSR1)
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


@pytest.mark.parametrize("scheme", ["slurm: time limit, scancel", "slurm: --signal=B:USR1, then the time limit",
                                    "slurm: --signal=USR1, then the time limit", "slurm: scancel twice", "htcondor: vacate",
                                    "systemd: KillMode=control-group, SendSIGHUP", "systemd: KillMode=mixed"])
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
