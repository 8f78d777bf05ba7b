# SPDX-License-Identifier: Apache-2.0
"""A personal HTCondor on this machine: one pool with one slot, on loopback."""

import pathlib
import shutil
import subprocess

from job_site import as_user, run, wait_until

FOLDERS = {"RUN": "run", "LOG": "log", "LOCK": "lock", "SPOOL": "spool", "EXECUTE": "execute"}
# What follows looks around often; what a job gets, and when, is as HTCondor has it by itself.
CONF = """
use ROLE: CentralManager, Submit, Execute
CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:19618
NETWORK_INTERFACE = 127.0.0.1
BIND_ALL_INTERFACES = False
use SECURITY: user_based
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_ADMINISTRATOR = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
NUM_CPUS = 1
MEMORY = 2000
CREATE_CGROUP_WITHOUT_DELEGATION = False
NEGOTIATOR_INTERVAL = 5
NEGOTIATOR_CYCLE_DELAY = 2
SCHEDD_INTERVAL = 5
UPDATE_INTERVAL = 5
START = True
SUSPEND = False
PREEMPT = False
KILL = False
"""
RUNNING, COMPLETED, HELD = "2", "4", "5"


class Condor:
    def __init__(self, top, spool=None):
        self.top, self.spool = pathlib.Path(top), spool
        self.master = None

    def __enter__(self):
        shutil.rmtree(self.top, ignore_errors=True)
        lines = CONF
        for name, folder in FOLDERS.items():
            path = self.spool if name == "SPOOL" and self.spool else self.top / folder
            path.mkdir(parents=True, exist_ok=True)
            shutil.chown(path, "condor", "condor")
            lines += "%s = %s\n" % (name, path)
        # Jobs of the user write below their directory in it.
        (self.top / "execute").chmod(0o755)
        pathlib.Path("/etc/condor/config.d/99-batch.config").write_text(lines)
        with open(self.top / "master.out", "wb") as out:
            self.master = subprocess.Popen(["condor_master", "-f"], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        wait_until(lambda: "Unclaimed" in run("condor_status", "-af", "State", check=False).stdout and run("condor_q", check=False).returncode == 0, "the pool")
        return self

    def __exit__(self, *_):
        run("condor_off", "-master", "-fast", check=False)
        try:
            self.master.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.master.kill()
            self.master.wait()

    def submit(self, description):
        """The job's cluster."""
        out = as_user("condor_submit", "-terse", description, cwd=description.parent)
        return out.stdout.split(".")[0]

    def attribute(self, job, name):
        """Of a job, also of one that has left the queue; None where it has none."""
        for command in ("condor_q", "condor_history"):
            found = run(command, job, "-af", name, check=False).stdout.split()
            if found:
                return found[0]
        return None

    def wait_status(self, job, status):
        wait_until(lambda: self.attribute(job, "JobStatus") == status, lambda: self.about(job))

    def wait_free(self):
        """Nothing of a job runs any more."""
        wait_until(lambda: run("condor_status", "-af", "State").stdout.split() == ["Unclaimed"] and run("pgrep", "-u", "trainer", check=False).returncode == 1,
                   lambda: "a free machine, not\n%s%s" % (run("condor_status").stdout, run("ps", "-f", "-u", "trainer", check=False).stdout))

    def about(self, job):
        return "job %s: %s\n%s" % (job, run("condor_q", job, "-af", "JobStatus", "HoldReason", check=False).stdout, self.logs())

    def logs(self):
        return "".join("%s:\n%s\n" % (path.name, path.read_text(errors="replace")[-1500:]) for path in sorted(self.top.glob("log/StarterLog.slot*")))

    def remove_all(self):
        run("condor_rm", "-all", check=False)
        run("condor_rm", "-all", "-forcex", check=False)
        self.wait_free()
