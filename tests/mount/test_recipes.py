# SPDX-License-Identifier: Apache-2.0
"""packaging/examples: each recipe of a batch system, run by a stand-in for it that does what the recipe asks for.

The stand-ins read the example itself; only its paths are replaced.
"""

import configparser
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import threading

import pytest
import yaml

from conftest import BIN, LIMIT, is_mounted, run, wait_until

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "packaging" / "examples"
INTERRUPTED = 85
STEPS = 2  # a run is interrupted so often, then done

# Trains until SIGTERM, then saves; after STEPS of that it is done.
TRAINING = """
import os, signal, sys
top = sys.argv[sys.argv.index("--checkpoint-dir") + 1]
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
path = os.path.join(top, "step")
step = int(open(path).read()) if os.path.exists(path) else 0
print("start", step, flush=True)
if step < %d:
    signal.sigwait([signal.SIGTERM])
    with open(path, "w") as f:
        f.write(str(step + 1))
""" % STEPS


class Site:
    """The machine that the examples speak of: their paths, below a directory of the test's own."""

    def __init__(self, base):
        self.base = base
        self.remote, self.mount, self.scratch = base / "remote", base / "mnt" / "ckpt", base / "scratch"
        for folder in ("remote", "mnt", "scratch", "bin", "tmp"):
            (base / folder).mkdir()
        (base / "bin" / "epochfs").symlink_to(pathlib.Path(BIN).resolve())
        (self.scratch / "train.py").write_text(TRAINING)
        self.env = {**os.environ, "PATH": "%s:%s" % (base / "bin", os.environ["PATH"]), "EPOCHFS_SETTLE": "1h",
                    "EPOCHFS_CACHE_DIR": str(base / "cache")}
        self.started = []

    def text(self, name):
        """An example with this site's paths."""
        text = (EXAMPLES / name).read_text()
        for old, new in (("s3://my-bucket/run7", self.remote), ("/usr/local/bin", self.base / "bin"),
                         ("$$(CondorScratchDir)", self.scratch), ("/srv/run7", self.scratch), ("/app/", "%s/" % self.scratch),
                         ("/mnt", self.base / "mnt"), ("/cache", self.base / "cache"), ("/tmp/ready", self.base / "tmp" / "ready")):
            # Not inside a path that was put in before.
            text = re.sub(r"(?<![\w/.])%s" % re.escape(old) if old.startswith("/") else re.escape(old), lambda _, n=new: str(n), text)
        return text

    def start(self, words, **env):
        process = subprocess.Popen(words, cwd=self.scratch, env={**self.env, **env}, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def epochs(self):
        return json.loads(run(BIN, "log", "--json", self.remote).stdout)

    def check_done(self):
        """All that was trained is in the remote, whole; nothing is mounted."""
        assert not is_mounted(self.mount) and not is_mounted(self.scratch / "ckpt")
        assert all(e["complete"] is True and e["state"] == "durable" for e in self.epochs())
        run(BIN, "export", self.remote, self.base / "out")
        assert (self.base / "out" / "step").read_text() == str(STEPS)


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=LIMIT)
    for path in (made.mount, made.scratch / "ckpt"):
        while is_mounted(path):
            run("umount", "-l", path)


def said(process, line):
    assert process.stdout.readline() == line + "\n"


def stop(process, number, grace, also=()):
    """The signal, and SIGKILL after the grace, which no test may need: the exit code."""
    process.send_signal(number)
    too_late = threading.Timer(grace, process.kill)
    too_late.start()
    try:
        code = process.wait(timeout=LIMIT + grace)
    finally:
        too_late.cancel()
    assert code != -signal.SIGKILL, "killed after the grace of %d s" % grace
    for other in also:
        assert other.poll() is None
    return code


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(s|m|min|)", text).groups()
    return int(number) * {"": 1, "s": 1, "m": 60, "min": 60}[unit]


def grace_of(words):
    return seconds(words[words.index("--grace") + 1])


# ---- HTCondor ----


def submit_commands(text):
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    assert lines[-1] == "queue"
    return dict(re.split(r"\s*=\s*", line, maxsplit=1) for line in lines[:-1])


def condor_words(value):
    """Arguments and environment in the new syntax: in double quotes, parted by spaces; ours have no quotes within."""
    quoted = re.fullmatch(r'"([^"\']*)"', value)
    return quoted.group(1).split()


def test_htcondor(site):
    job = submit_commands(site.text("htcondor.sub"))
    words = [job["executable"], *condor_words(job["arguments"])]
    env = dict(pair.split("=", 1) for pair in condor_words(job["environment"]))
    vacate = int(job["job_max_vacate_time"])
    assert job["transfer_input_files"] == "train.py" and grace_of(words) < vacate
    # HTCondor 23.9 leaves a word of its own there, and the job does not start.
    assert "$$(CondorScratchDir)" not in submit_commands((EXAMPLES / "htcondor.sub").read_text())["arguments"]
    for turn in range(STEPS):
        process = site.start(words, **env)
        said(process, "start %d" % turn)
        assert stop(process, getattr(signal, job["kill_sig"]), vacate) == int(job["checkpoint_exit_code"])
        # Another machine.
        run("rm", "-rf", site.scratch / "cache")
    process = site.start(words, **env)
    said(process, "start %d" % STEPS)
    assert process.wait(timeout=LIMIT) == 0
    site.check_done()


# ---- Slurm ----


def slurm_job(site, state):
    """The script, and the file that has what it asks scontrol for; squeue says that the job is in this state."""
    script, queue = site.base / "slurm.sh", site.base / "queue"
    script.write_text(site.text("slurm.sh"))
    for name, line in (("scontrol", 'echo "$*" >> %s' % queue), ("squeue", "echo %s" % state)):
        path = site.base / "bin" / name
        path.write_text("#!/bin/sh\n%s\n" % line)
        path.chmod(0o755)
    return script, queue


def test_slurm(site):
    text = site.text("slurm.sh")
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(\S*)$", text, re.M))
    name, ahead = re.fullmatch(r"B:(\w+)@(\d+)", options["signal"]).groups()
    assert "requeue" in options and grace_of(shlex.split(text, comments=True)) < int(ahead)
    script, queue = slurm_job(site, "RUNNING")
    for turn in range(STEPS):
        process = site.start(["bash", str(script)], SLURM_JOB_ID="4711")
        said(process, "start %d" % turn)
        # To the batch script alone.
        assert stop(process, getattr(signal, "SIG" + name), int(ahead)) == INTERRUPTED
        assert queue.read_text() == "requeue 4711\n" * (turn + 1)
    process = site.start(["bash", str(script)], SLURM_JOB_ID="4711")
    said(process, "start %d" % STEPS)
    assert process.wait(timeout=LIMIT) == 0
    assert queue.read_text() == "requeue 4711\n" * STEPS
    site.check_done()


def test_a_cancelled_job_of_slurm_is_not_brought_back(site):
    """scancel sends SIGTERM to the script, too, and the job is completing then."""
    script, queue = slurm_job(site, "COMPLETING")
    process = site.start(["bash", str(script)], SLURM_JOB_ID="4711")
    said(process, "start 0")
    assert stop(process, signal.SIGTERM, 60) == INTERRUPTED
    assert not queue.exists()
    run(BIN, "export", site.remote, site.base / "out")
    assert (site.base / "out" / "step").read_text() == "1"


# ---- Kubernetes ----


def container(spec):
    return spec["command"] + spec.get("args", []), {e["name"]: e["value"] for e in spec.get("env", [])}


def test_kubernetes_run(site):
    job = yaml.safe_load(site.text("kubernetes-run.yaml"))["spec"]
    pod = job["template"]["spec"]
    (spec,) = pod["containers"]
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore" and pod["restartPolicy"] == "Never"
    assert rule["onExitCodes"] == {"containerName": spec["name"], "operator": "In", "values": [INTERRUPTED]}
    words, env = container(spec)
    grace = pod["terminationGracePeriodSeconds"]
    assert grace_of(words) < grace
    for turn in range(STEPS):
        process = site.start(words, **env)
        said(process, "start %d" % turn)
        assert stop(process, signal.SIGTERM, grace) == INTERRUPTED
        run("rm", "-rf", site.base / "cache")  # the emptyDir of that pod
    process = site.start(words, **env)
    said(process, "start %d" % STEPS)
    assert process.wait(timeout=LIMIT) == 0
    site.check_done()


def start_pod(site, pod, turn):
    """The sidecar, and once its probe is content the training container."""
    (sidecar,), (train,) = pod["initContainers"], pod["containers"]
    words, env = container(sidecar)
    keeper = site.start(words, **env)
    probe = sidecar["startupProbe"]["exec"]["command"]
    wait_until(lambda: run(*probe, check=False).returncode == 0, "the startup probe")
    words, env = container(train)
    process = site.start(words, **env)
    said(process, "start %d" % turn)
    return keeper, process


def test_kubernetes_sidecar(site):
    pod = yaml.safe_load(site.text("kubernetes-sidecar.yaml"))["spec"]["template"]["spec"]
    # What the stand-in has by itself: one process namespace, one mount namespace, this order of ends.
    (sidecar,), (train,) = pod["initContainers"], pod["containers"]
    assert pod["shareProcessNamespace"] is True and sidecar["restartPolicy"] == "Always"
    assert [m["mountPropagation"] for c in (sidecar, train) for m in c["volumeMounts"] if m["name"] == "ckpt"] == [
        "Bidirectional", "HostToContainer"]
    grace, hook = pod["terminationGracePeriodSeconds"], train["lifecycle"]["preStop"]["exec"]["command"]
    assert grace_of(container(sidecar)[0]) + int(hook[hook.index("timeout") + 1]) < grace
    for turn in range(STEPS):
        keeper, process = start_pod(site, pod, turn)
        (site.mount / "early").write_text(str(turn))
        run(*hook)
        assert [e["state"] for e in site.epochs()].count("durable") == 2 * turn + 1  # before any signal
        assert stop(process, signal.SIGTERM, grace, also=[keeper]) == 0
        assert stop(keeper, signal.SIGTERM, grace) == INTERRUPTED
        run("rm", "-rf", site.base / "cache", site.base / "tmp" / "ready")
    keeper, process = start_pod(site, pod, STEPS)
    assert process.wait(timeout=LIMIT) == 0
    assert stop(keeper, signal.SIGTERM, grace) == INTERRUPTED
    site.check_done()


# ---- systemd ----


def test_systemd(site):
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes="#")
    unit.optionxform = str
    unit.read_string(site.text("systemd.service"))
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    limit = seconds(service["TimeoutStopSec"])
    assert service["KillMode"] == "mixed" and grace_of(words) < limit
    assert service["WorkingDirectory"] == str(site.scratch)
    again = int(service["RestartForceExitStatus"])
    assert int(service["SuccessExitStatus"]) == again
    for turn in range(STEPS):
        process = site.start(words)
        said(process, "start %d" % turn)
        assert stop(process, signal.SIGTERM, limit) == again  # to the main process alone
    process = site.start(words)
    said(process, "start %d" % STEPS)
    assert process.wait(timeout=LIMIT) == 0
    site.check_done()


def test_systemd_knows_all_of_the_unit(tmp_path):
    unit = tmp_path / "run7.service"
    unit.write_text((EXAMPLES / "systemd.service").read_text().replace("/usr/local/bin/epochfs", str(pathlib.Path(BIN).resolve())))
    try:
        done = run("systemd-analyze", "verify", unit, check=False)
    except FileNotFoundError:
        pytest.skip("systemd-analyze is not installed")
    assert not [line for line in done.stderr.splitlines() if line.startswith(str(unit)) or line.startswith(unit.name)], done.stderr
