# SPDX-License-Identifier: Apache-2.0
"""epochfs run: the command's signals, its end, and what is durable then."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import BIN, is_mounted, run, signals_pending, wait_until

# Trains until it is told to stop, then saves and exits with 3. Says each signal that comes.
TRAINING = """
import os, signal, sys
top, told = sys.argv[1], []
def note(number, frame):
    told.append(number)
    os.write(1, b"signal %d\\n" % number)  # print refuses where the signal came while it wrote
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGCONT):
    signal.signal(number, note)
# A signal that comes before the read is not lost, as it would be before pause.
came, tell = os.pipe()
os.set_blocking(tell, False)
signal.set_wakeup_fd(tell)
path = os.path.join(top, "step")
step = int(open(path).read()) if os.path.exists(path) else 0
print("start", step, flush=True)
while not set(told) - {signal.SIGCONT, signal.SIGUSR2}:
    os.read(came, 1)
with open(path, "w") as f:
    f.write(str(step + 1))
sys.exit(3)
"""


class Job:
    """`epochfs run` over a remote, a cache and a mount point of its own."""

    def __init__(self, base):
        self.base = base
        self.path, self.remote = base / "mnt", base / "remote"
        self.url = str(self.remote)
        self.env = {**os.environ, "EPOCHFS_CACHE_DIR": str(base / "cache"), "EPOCHFS_SETTLE": "1h"}
        for folder in (self.path, self.remote, base / "cache"):
            folder.mkdir()

    def start(self, *words, command=None):
        command = command or [sys.executable, "-c", TRAINING, str(self.path)]
        return subprocess.Popen([BIN, "run", "--mount", "%s:%s" % (self.url, self.path), *words, "--", *command],
                                env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def shell(self, script, *words, code=0):
        process = self.start(*words, command=["sh", "-c", script, "sh", str(self.path)])
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, out + err
        return out + err

    def log(self):
        return sorted(json.loads(run(BIN, "log", "--json", self.remote).stdout), key=lambda e: e["epoch"])


def holds(process):
    """Whether a run, whose command was started, has not let go of its mount."""
    files = "/proc/%d/fd" % process.pid
    for fd in os.listdir(files):
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(os.path.join(files, fd)).endswith("/.control"):
                return True
    return False


@pytest.fixture
def job(tmp_path):
    made = Job(tmp_path)
    yield made
    while is_mounted(made.path):
        run("umount", "-l", made.path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP])
def test_an_interrupted_job_is_durable_and_ends_with_85(job, number):
    process = job.start()
    assert process.stdout.readline() == "start 0\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 85, err
    assert out == "signal %d\n" % number  # once
    assert not is_mounted(job.path)
    assert run(BIN, "export", str(job.remote), job.base / "out").returncode == 0
    assert (job.base / "out" / "step").read_text() == "1"


def test_a_job_goes_on_where_it_was_interrupted(job):
    for turn in range(3):
        process = job.start("--resume", "--checkpoint-exit-code", "77")
        assert process.stdout.readline() == "start %d\n" % turn
        process.terminate()
        process.communicate(timeout=120)
        assert process.returncode == 77


def test_under_nohup_a_hangup_ends_nothing(job):
    script = "echo started; sleep 1; echo saved > $1/file"
    process = subprocess.Popen(["nohup", BIN, "run", "--mount", "%s:%s" % (job.url, job.path), "--", "sh", "-c", script, "sh", str(job.path)],
                               env=job.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "started\n"
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


def test_every_signal_reaches_the_whole_group(job):
    process = job.start(command=["sh", "-c", "%s -c '%s' %s & child=$!; trap : USR2 CONT; echo $child; wait $child; wait $child; wait $child"
                                 % (sys.executable, TRAINING, job.path)])
    first = {process.stdout.readline(), process.stdout.readline()}
    assert "start 0\n" in first
    for number in (signal.SIGUSR2, signal.SIGCONT):
        process.send_signal(number)
        assert process.stdout.readline() == "signal %d\n" % number
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 85


def test_what_ends_by_itself_keeps_its_exit_code(job):
    job.shell('echo one > "$1/f"; exit 9', code=9)
    assert [e["state"] for e in job.log()] == ["durable"]
    job.shell('cat "$1/f"; kill -KILL $$', code=128 + signal.SIGKILL)
    assert "one" in job.shell('cat "$1/f"')


def test_not_durable_within_the_grace_is_7(job):
    job.url = "fault+file://%s?put.delay=1h&only=epochs/" % job.remote
    process = job.start("--grace", "300ms")
    assert process.stdout.readline() == "start 0\n"
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 7 and "not durable in time" in err
    assert not is_mounted(job.path)
    # The next one uploads it.
    job.url = str(job.remote)
    job.shell("true")
    assert job.log()[-1]["complete"] is True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_an_upload_after_the_command_is_given_the_grace_from_a_signal_on(job, number):
    """Nobody is left who could save: the upload goes on for so long, and what the command said counts where that is enough."""
    job.url = "fault+file://%s?put.delay=1h&only=epochs/" % job.remote
    process = job.start("--grace", "300ms", command=["sh", "-c", 'echo one > "$1/f"; echo done; exit 3', "sh", str(job.path)])
    assert process.stdout.readline() == "done\n"
    wait_until(lambda: json.loads(run(BIN, "status", "--json", job.path).stdout)["upload"]["pending_epochs"], "the upload")
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 7 and "not durable in time" in err
    assert not is_mounted(job.path)
    job.url = "fault+file://%s?put.delay=2s&only=epochs/" % job.remote
    process = job.start("--grace", "60s", command=["sh", "-c", 'echo two > "$1/f"; echo done; exit 3', "sh", str(job.path)])
    assert process.stdout.readline() == "done\n"
    wait_until(lambda: json.loads(run(BIN, "status", "--json", job.path).stdout)["upload"]["pending_epochs"], "the upload")
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 3, err
    assert job.log()[-1]["state"] == "durable"


def test_a_signal_that_comes_twice_leaves_the_grace(job):
    """As Slurm ends a step; the upload is held up meanwhile, once the command has ended, too."""
    job.url = "fault+file://%s?put.delay=2s&only=packs/" % job.remote
    process = job.start("--grace", "120s")
    assert process.stdout.readline() == "start 0\n"
    process.terminate()
    time.sleep(0.014)
    process.send_signal(signal.SIGCONT)
    process.terminate()
    wait_until(lambda: json.loads(run(BIN, "status", "--json", job.path).stdout)["upload"]["pending_epochs"], "the upload")
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 85, err
    assert job.log()[-1]["state"] == "durable"


def test_a_second_sigint_after_the_command_does_not_wait(job):
    job.url = "fault+file://%s?put.delay=1h&only=epochs/" % job.remote
    process = job.start("--grace", "1h", command=["sh", "-c", 'echo one > "$1/f"; echo done', "sh", str(job.path)])
    assert process.stdout.readline() == "done\n"
    wait_until(lambda: json.loads(run(BIN, "status", "--json", job.path).stdout)["upload"]["pending_epochs"], "the upload")
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: not signals_pending(process), "the first")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 7 and "not durable in time" in err
    assert not is_mounted(job.path)


def test_resume_starts_from_the_newest_whole_epoch(job):
    job.shell('echo 1 > "$1/a"; echo 1 > "$1/b"')
    # Half of a save, then a kill: "a" is closed, "b" is not.
    job.shell('echo 2 > "$1/a"; exec 3> "$1/b"; echo torn >&3; kill -KILL $$', "-o", "resume=off", code=128 + signal.SIGKILL)
    assert job.log()[-1]["complete"] is False
    assert job.shell('cat "$1/a" "$1/b"', "-o", "resume=off") == "2\n1\n"
    said = job.shell('cat "$1/a" "$1/b"', "--resume")
    assert "1\n1\n" in said and "resuming from epoch" in said
    assert job.shell('cat "$1/a"', "--resume") == "1\n"  # whole now: nothing to resume from


def test_a_mount_that_is_there_stays(job):
    run(BIN, "mount", job.url, job.path, env=job.env)
    job.shell('echo x > "$1/f"')
    assert is_mounted(job.path)
    done = run(BIN, "run", "--mount", job.path, "--", "cat", job.path / "f", env=job.env)
    assert done.stdout == "x\n"
    other = run(BIN, "run", "--mount", "/elsewhere:%s" % job.path, "--", "true", env=job.env, check=False)
    assert other.returncode == 8 and "another volume" in other.stderr
    run("umount", job.path)
    wait_until(lambda: run(BIN, "run", "--mount", job.path, "--", "true", check=False).returncode == 5, "the unmount")


@pytest.mark.parametrize("words,code", [
    ([], 2), (["--mount", "a:b"], 2), (["--mount", ":b", "--", "true"], 2), (["--mount", "a:", "--", "true"], 2),
    (["--", "true"], 2), (["--grace", "soon", "--mount", "/r:/m", "--", "true"], 2),
    (["--checkpoint-exit-code", "256", "--mount", "/r:/m", "--", "true"], 2),
])
def test_what_cannot_be_run(words, code):
    done = run(BIN, "run", *words, check=False)
    assert done.returncode == code and len(done.stderr.strip().splitlines()) == 1, done


def test_a_program_that_is_not_there_is_127(job):
    process = job.start(command=["/proc/no/such/program"])
    _, err = process.communicate(timeout=60)
    assert process.returncode == 127 and "/proc/no/such/program" in err
    assert not is_mounted(job.path)
    job.shell(str(job.base), code=126)


def test_without_mount_on_a_directory_that_is_mounted(job):
    """Somebody else has mounted it: the command's signals, its end and what is durable then are the same, and the mount stays."""
    run(BIN, "mount", job.url, job.path, env=job.env)
    (job.path / "sub").mkdir()

    def start(*words, cwd=None):
        return subprocess.Popen([BIN, "run", *map(str, words), "--", sys.executable, "-c", TRAINING, str(job.path)], cwd=cwd,
                                env=job.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    for step, (words, cwd) in enumerate([([job.path], None), ([], job.path), (["--resume"], job.path / "sub"), (["sub/.."], job.path)]):
        process = start(*words, cwd=cwd)
        assert process.stdout.readline() == "start %d\n" % step
        process.terminate()
        _, err = process.communicate(timeout=120)
        assert process.returncode == 85, err
        assert is_mounted(job.path)
        run(BIN, "export", job.remote, job.base / ("out%d" % step))
        assert (job.base / ("out%d" % step) / "step").read_text() == str(step + 1)
    for words in (["--mount", job.path, job.path], [job.path, job.path]):
        assert start(*words).wait(timeout=60) == 2
    # Not a mount, and not there.
    assert start(job.base).wait(timeout=60) == 5 and start(job.base / "missing").wait(timeout=60) == 5
    outside = start(cwd=job.base)
    assert outside.wait(timeout=60) == 2 and "--mount REMOTE:DIR" in outside.stderr.read()


def test_a_mount_point_that_is_not_empty(job):
    """Refused, as by `mount`, unless nonempty says that what lies below may be covered; it is there again afterwards."""
    (job.path / "below").write_text("1")
    said = job.shell("echo saved > $1/model", code=8)
    assert "below" in said and not is_mounted(job.path) and os.listdir(job.path) == ["below"]
    job.shell("test ! -e $1/below; echo saved > $1/model", "-o", "nonempty")
    assert not is_mounted(job.path) and os.listdir(job.path) == ["below"]
    run(BIN, "export", job.url, job.base / "out")
    assert (job.base / "out" / "model").read_text() == "saved\n"


def test_what_stays_in_use_is_not_said_to_be_over(job):
    process = job.start(command=["sh", "-c", "cd $1; trap 'exit 0' TERM; setsid sh -c 'echo $$; exec sleep 30 >/dev/null 2>&1' & while :; do sleep 0.1; done", "sh", str(job.path)])
    sleeper = int(process.stdout.readline())
    process.terminate()
    _, err = process.communicate(timeout=120)
    os.kill(sleeper, signal.SIGTERM)
    assert process.returncode == 8 and "in use after the command has ended: by sleep" in err, err


def test_what_a_killed_writer_left_is_neither_0_nor_85(job):
    """It is in .epochs/torn and in no epoch: one line says so, and the exit code."""
    half = "import os, sys; f = open(sys.argv[1] + '/model', 'wb'); f.write(b'half' * 1000); f.flush(); print('start', flush=True); "
    said = job.shell("%s -c \"%s os._exit(1)\" \"$1\"; exit 0" % (sys.executable, half), code=6)
    assert "1 file of killed writers, 3.9 KiB, is in .epochs/torn (the newest: 1-model)" in said
    process = job.start(command=[sys.executable, "-c", half + "sys.stdin.read(); import signal; signal.pause()", str(job.path)])
    assert process.stdout.readline() == "start\n"
    process.terminate()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 6 and "(the newest: 2-model)" in err, err
    # What runs before left is no matter of this one; and a code of the command's own stays.
    assert "killed writers" not in job.shell("true")
    assert "(the newest: 3-model)" in job.shell("%s -c \"%s os._exit(1)\" \"$1\"; exit 9" % (sys.executable, half), code=9)


def test_what_is_torn_as_the_mount_ends_is_neither_0_nor_85(job):
    """A process that outlives the command still writes, and is killed while the mount waits for it to end."""
    half = "import os, signal, sys; f = open(sys.argv[1] + '/model', 'wb'); f.write(b'half' * 1000); f.flush(); " \
           "p = open(sys.argv[2], 'w'); print(os.getpid(), file=p, flush=True); signal.pause()"
    pid = job.base / "pid"
    script = 'setsid "$2" -c "$3" "$1" "$4" > /dev/null 2>&1 & while ! test -s "$4"; do sleep 0.05; done'
    process = job.start(command=["sh", "-c", script, "sh", str(job.path), sys.executable, half, str(pid)])
    wait_until(lambda: pid.exists() and pid.read_text(), "the writer")
    wait_until(lambda: not holds(process), "the end of the hold")
    # It is patient for some seconds only.
    process.send_signal(signal.SIGSTOP)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    wait_until(lambda: not is_mounted(job.path), "the end of the mount")
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 6 and "1 file of killed writers, 3.9 KiB, is in .epochs/torn (the newest: 1-model)" in err, err


def test_what_a_run_did_not_keep_of_killed_writers_is_counted(job):
    half = "import os, sys; f = open(sys.argv[1], 'wb'); f.write(b'half'); f.flush(); os._exit(1)"
    script = 'for i in $(seq 19); do "$2" -c "$3" "$1/model"; done; exit 0'
    process = job.start(command=["sh", "-c", script, "sh", str(job.path), sys.executable, half])
    _, err = process.communicate(timeout=120)
    assert process.returncode == 6 and "16 files of killed writers" in err and "(the newest: 19-model), 3 more were not kept;" in err, err
