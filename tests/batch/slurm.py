# SPDX-License-Identifier: Apache-2.0
"""A Slurm of two nodes on this machine: munged, slurmctld, and two slurmd that each have /mnt and /local of their own."""

import os
import re
import shutil
import subprocess

from job_site import as_user, run, wait_until

NODES = ("n1", "n2")

# No cgroups, no database, everything on loopback. cred_expire: a job that was requeued waits for so long, two minutes by default. KillWait, GraceTime and
# all else that decides what a job gets is as Slurm has it by itself, or as the manual of a site would say it.
CONF = """
ClusterName=batch
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=16817
AuthType=auth/munge
AuthInfo=cred_expire=10
SlurmUser=root
SlurmdUser=root
StateSaveLocation={top}/state
SlurmdSpoolDir={top}/%n
SlurmctldPidFile={top}/slurmctld.pid
SlurmdPidFile={top}/%n.pid
SlurmctldLogFile={top}/slurmctld.log
SlurmdLogFile={top}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
MpiDefault=none
MinJobAge=36000
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=17001 CPUs=1
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=17002 CPUs=1
PartitionName=low Nodes=n1 Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=60 State=UP
PartitionName=high Nodes=n1 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=both Nodes=n1,n2 PriorityTier=1 PreemptMode=OFF State=UP
"""


class Slurm:
    def __init__(self, top):
        self.top = top
        self.processes = []

    def spawn(self, name, *command):
        with open(self.top / (name + ".out"), "ab") as out:
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out))

    def __enter__(self):
        shutil.rmtree(self.top, ignore_errors=True)
        for name in ("state", *NODES):
            (self.top / name).mkdir(parents=True)
        (self.top / "slurm.conf").write_text(CONF.format(top=self.top))
        # This root has no cgroups. 22.05 has no "disabled", but its v1 asks for nothing until it is used.
        old = run("slurmd", "-V").stdout.split()[1].startswith("22.")
        (self.top / "cgroup.conf").write_text("CgroupPlugin=%s\n" % ("cgroup/v1" if old else "disabled"))
        os.environ["SLURM_CONF"] = str(self.top / "slurm.conf")
        run("install", "-d", "-o", "munge", "-g", "munge", "-m", "755", "/run/munge")
        self.spawn("munged", "setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups", "munged", "--foreground", "--force")
        wait_until(lambda: run("munge", "-n", check=False).returncode == 0, "munged")
        self.spawn("slurmctld", "slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        wait_until(lambda: set(self.node_states()) == {"idle"}, lambda: "idle nodes, not %s" % self.node_states())
        return self

    def start_node(self, node):
        """A slurmd in a mount namespace of its own: its jobs have a /mnt and a /local that the other node's do not see."""
        script = ("mount --make-rprivate / && mount -t tmpfs -o mode=1777 tmpfs /mnt && mkdir -p /local && mount -t tmpfs -o mode=1777 tmpfs /local"
                  " && exec slurmd -D -N %s" % node)
        self.spawn(node, "unshare", "--mount", "sh", "-c", script)

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(timeout=60)

    def node_states(self):
        return run("sinfo", "-h", "-N", "-p", "both", "-o", "%t", check=False).stdout.split()

    # Jobs.

    def submit(self, script, *options):
        """The job's number."""
        out = as_user("sbatch", "--parsable", *options, script, cwd=script.parent)
        return out.stdout.strip().split(";")[0]

    def job(self, number):
        """What `scontrol show job` says of it."""
        return dict(re.findall(r"(\w+)=(\S*)", run("scontrol", "show", "job", number).stdout))

    def state(self, number):
        return self.job(number)["JobState"]

    def wait_state(self, number, *states):
        wait_until(lambda: self.state(number) in states, lambda: "job %s: %s, not %s" % (number, states, self.job(number)))
        return self.state(number)

    def cancel_all(self):
        """After a test: no job is left, and the nodes are idle."""
        run("scancel", "-u", "trainer")
        run("scancel", "-s", "KILL", "-u", "trainer", check=False)
        wait_until(lambda: not run("squeue", "-h").stdout.strip() and set(self.node_states()) == {"idle"},
                   lambda: "an empty queue, not %s %s" % (run("squeue").stdout, self.node_states()))
