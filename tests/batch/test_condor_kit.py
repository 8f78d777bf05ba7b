# SPDX-License-Identifier: Apache-2.0
"""KIT's checkpointer in its mode htcondor: HTCondor itself takes the file to its spool, which lies in a mount, by transfer_checkpoint_files and exit code 85."""

import pathlib
import re
import shutil
import tempfile

import pytest

from condor import COMPLETED, HELD, RUNNING, Condor
from job_site import HERE, USER, run, wait_until
from training import load_archive

pytestmark = pytest.mark.timeout(1200)

KEPT = "checkpoint.zip"

# As its own example has it. It asks the job for CheckpointExitCode, and HTCondor 23.9 calls what checkpoint_exit_code says SuccessCheckpointExitCode: hence the line with +.
KIT = """
executable = /usr/bin/python3
transfer_executable = false
arguments = "kit_job.py --mode htcondor --local %s --every 5 1000000"
checkpoint_exit_code = 85
+CheckpointExitCode = 85
transfer_checkpoint_files = %s
kill_sig = SIGTERM
should_transfer_files = YES
when_to_transfer_output = ON_EXIT_OR_EVICT
+TransferOutput = ""
transfer_input_files = kit_job.py
output = kit.out
error = kit.err
log = kit.log
request_memory = 200MB
request_disk = 100MB
queue
""" % (KEPT, KEPT)


@pytest.fixture
def spool(user, request):
    """A pool whose spool lies in a mount."""
    if shutil.which("condor_master") is None:
        pytest.skip("this release has no HTCondor")
    remote = pathlib.Path(tempfile.mkdtemp(prefix="spool-", dir="/srv"))
    mount = pathlib.Path("/srv/spool-of-condor")
    mount.mkdir(exist_ok=True)
    run("epochfs", "mount", "-o", "allow_other,settle=2s", remote, mount)
    try:
        with Condor("/srv/condor-kit", mount / "spool") as made:
            made.remote, made.mount = remote, mount
            yield made
            made.remove_all()
    finally:
        run("epochfs", "umount", mount)


def kept(pool):
    """The step of the newest whole checkpoint in the remote, of whatever job; 0 where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        if run("epochfs", "export", "%s@latest" % pool.remote, folder + "/out", check=False).returncode:
            return 0
        return max((load_archive(path, ("model", "optimizer")).steps for path in pathlib.Path(folder, "out").rglob(KEPT)), default=0)


def after(site, pool, job, attempt, *how):
    """After some more saves the attempt is ended so: the step from which the next one starts."""
    site.wait_steps("saved", len(site.steps("saved")) + 2, why=lambda: pool.about(job))
    run(*how)
    wait_until(lambda: len(site.steps("ends")) == attempt, lambda: "the end: %s\n%s" % (site.said(), pool.about(job)))
    if how[0] == "condor_hold":
        pool.wait_status(job, HELD)
        run("condor_release", job)
    return site.wait_steps("starts", attempt + 1, why=lambda: pool.about(job))[-1]


def test_kit_s_checkpoints_in_the_spool(site, spool):
    """HTCondor takes the checkpoint of a job that ends by itself with 85. Of one that it ends itself it takes what TransferOutput says, nothing, and starts it from the checkpoint that it took
    before: the one that is in the remote, whole."""
    site.put("kit_job.py", (HERE / "kit_job.py").read_text())
    job = spool.submit(site.put("kit.sub", KIT))
    assert site.wait_steps("starts", 1, why=lambda: spool.about(job)) == [0]
    first = after(site, spool, job, 1, "pkill", "-TERM", "-u", USER, "-f", "^/usr/bin/python3 kit_job.py")
    assert first == site.steps("ends")[-1] > 0
    wait_until(lambda: kept(spool) == first, lambda: "step %d, not %d, in the remote:\n%s" % (first, kept(spool), site.said()))
    for attempt, how in ((2, "condor_hold"), (3, "condor_vacate_job")):
        assert after(site, spool, job, attempt, how, job) == kept(spool) >= first
    spool.wait_status(job, RUNNING)
    site.put("enough")
    spool.wait_status(job, COMPLETED)
    assert re.search(r"^done \d+ ", "\n".join(site.said()), re.M)
