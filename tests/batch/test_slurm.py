# SPDX-License-Identifier: Apache-2.0
"""packaging/examples/slurm.sh, and the recipe of epochfs-nodes(7), under a real Slurm: whatever ends a job, the last whole save is in the remote, and the next
attempt begins from it."""

import re

import pytest

from job_site import HERE, run, wait_until

pytestmark = pytest.mark.timeout(1200)
PAGE = "epochfs-nodes.7"


@pytest.fixture(autouse=True)
def empty_queue(slurm):
    yield
    slurm.cancel_all()


def recipe(site, *more):
    """The example for a machine without a GPU. Slurm counts time in minutes: three of them instead of four hours."""
    return site.recipe("slurm.sh", (r"^#SBATCH --gres=gpu:1\n", ""), (r"--time=04:00:00", "--time=00:03:00"), *more)


def trains(site, slurm, job):
    """An attempt has saved some times."""
    site.wait_steps("saved", len(site.steps("saved")) + 3, why=lambda: slurm.job(job))


def goes_on(site, slurm, job, attempts):
    """The next attempt is there, and has done nothing yet (`halt`): it begins from the last save of all before it, which is in the remote."""
    started = site.wait_steps("starts", attempts, why=lambda: slurm.job(job))[-1]
    assert started == site.latest() == site.steps("saved")[-1], site.said()
    site.take("halt")
    trains(site, slurm, job)


def ends(site, slurm, job):
    """Enough: the job is done, and so is what is in the remote."""
    site.put("enough")
    assert slurm.wait_state(job, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT") == "COMPLETED"
    assert site.latest() == site.steps("done")[-1] == site.steps("saved")[-1]
    site.check_remote()


def test_the_time_limit(site, slurm):
    """USR1 comes a minute before it; the job goes back into the queue by itself."""
    job = slurm.submit(recipe(site))
    trains(site, slurm, job)
    wait_until(lambda: site.steps("ended"), lambda: "the notice: %s" % slurm.job(job))
    site.put("halt")
    goes_on(site, slurm, job, 2)
    assert slurm.job(job)["Restarts"] == "1"
    ends(site, slurm, job)


def test_the_time_limit_itself(site, slurm):
    """No notice was asked for: SIGTERM to all of the job, SIGKILL after KillWait. Whoever submits it again goes on."""
    script = recipe(site, (r"^#SBATCH --signal=B:USR1@60\n", ""), (r"00:03:00", "00:01:00"), (r"scontrol requeue .*", "true"))
    job = slurm.submit(script)
    trains(site, slurm, job)
    wait_until(lambda: site.steps("ended"), lambda: "the limit: %s" % slurm.job(job))
    assert slurm.wait_state(job, "TIMEOUT", "COMPLETED", "FAILED", "CANCELLED") == "TIMEOUT"
    site.put("halt")
    job = slurm.submit(recipe(site))
    goes_on(site, slurm, job, 2)
    ends(site, slurm, job)


def test_a_trainer_that_is_killed_in_a_save_at_the_time_limit(site, slurm):
    """It does not listen, and has half a save: SIGKILL to all of the job, the mount too."""
    job = slurm.submit(recipe(site, (r"^#SBATCH --signal=B:USR1@60\n", ""), (r"00:03:00", "00:01:00")))
    trains(site, slurm, job)
    site.put("halt")
    site.wait_said("halted")
    whole = site.steps("saved")[-1]
    wait_until(lambda: site.latest() == whole, "the upload of the last save")
    site.put("deaf")
    site.put("stuck")
    site.take("halt")
    site.wait_said("stuck")
    site.put("halt")
    assert slurm.wait_state(job, "TIMEOUT", "COMPLETED", "FAILED", "CANCELLED") == "TIMEOUT"
    wait_until(lambda: "idle" in slurm.node_states()[:1], "the end of the job's processes")
    assert site.latest() == whole
    site.take("stuck")
    site.take("deaf")
    job = slurm.submit(recipe(site))
    goes_on(site, slurm, job, 2)
    ends(site, slurm, job)


def test_cancelled(site, slurm):
    job = slurm.submit(recipe(site))
    trains(site, slurm, job)
    run("scancel", job)
    slurm.wait_state(job, "CANCELLED", "COMPLETED", "FAILED")
    wait_until(lambda: "idle" in slurm.node_states()[:1], "the end of the job's processes")
    assert site.latest() == site.steps("saved")[-1]
    site.put("halt")
    job = slurm.submit(recipe(site))
    goes_on(site, slurm, job, 2)
    ends(site, slurm, job)


def test_told_to_save_and_go_on_elsewhere(site, slurm):
    """scancel --batch --signal=TERM: the script asks for a requeue."""
    job = slurm.submit(recipe(site))
    trains(site, slurm, job)
    run("scancel", "--batch", "--signal=TERM", job)
    wait_until(lambda: site.steps("ended"), "the signal")
    site.put("halt")
    wait_until(lambda: slurm.job(job)["Restarts"] == "1", lambda: slurm.job(job))
    site.another_machine()
    goes_on(site, slurm, job, 2)
    ends(site, slurm, job)


def test_preempted(site, slurm):
    """A job of a better partition wants the node: SIGCONT and SIGTERM, and after GraceTime the job is requeued."""
    job = slurm.submit(recipe(site))
    trains(site, slurm, job)
    better = site.put("better.sh", "#!/bin/sh\nwhile [ ! -e ~/enough-of-that ]; do sleep 0.2; done\n")
    other = slurm.submit(better, "--partition=high", "--time=10")
    slurm.wait_state(other, "RUNNING")
    assert site.latest() == site.steps("saved")[-1]
    site.put("halt")
    site.put("enough-of-that")
    goes_on(site, slurm, job, 2)
    ends(site, slurm, job)


def test_requeued(site, slurm):
    """By the administrator."""
    job = slurm.submit(recipe(site))
    trains(site, slurm, job)
    run("scontrol", "requeue", job)
    wait_until(lambda: slurm.job(job)["Restarts"] == "1", lambda: slurm.job(job))
    site.put("halt")
    goes_on(site, slurm, job, 2)
    ends(site, slurm, job)


def test_held_and_released(site, slurm):
    job = slurm.submit(recipe(site))
    trains(site, slurm, job)
    run("scontrol", "requeuehold", job)
    wait_until(lambda: slurm.job(job)["JobState"] == "PENDING" and slurm.job(job)["Priority"] == "0", lambda: slurm.job(job))
    wait_until(lambda: "idle" in slurm.node_states()[:1], "the end of the job's processes")
    assert site.latest() == site.steps("saved")[-1]
    site.put("halt")
    run("scontrol", "release", job)
    goes_on(site, slurm, job, 2)
    ends(site, slurm, job)


def test_suspended_and_resumed(site, slurm):
    """All of the job is stopped, the process that serves the mount too, and goes on."""
    job = slurm.submit(recipe(site))
    trains(site, slurm, job)
    run("scontrol", "suspend", job)
    slurm.wait_state(job, "SUSPENDED")
    run("scontrol", "resume", job)
    slurm.wait_state(job, "RUNNING")
    trains(site, slurm, job)
    ends(site, slurm, job)


def test_the_node_fails(site, slurm):
    """Nothing is told to anybody, and all that the node had is gone."""
    job = slurm.submit(recipe(site))
    trains(site, slurm, job)
    site.put("halt")
    site.wait_said("halted")
    wait_until(lambda: site.latest() == site.steps("saved")[-1], "the upload of the last save")  # what came later is lost with the machine
    run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
    wait_until(lambda: slurm.job(job)["Restarts"] == "1", lambda: slurm.job(job))
    wait_until(lambda: run("pgrep", "-u", "trainer", check=False).returncode == 1, "the end of what ran there")
    site.another_machine()
    run("scontrol", "update", "NodeName=n1", "State=RESUME", check=False)  # where slurmd has not registered it again by itself
    goes_on(site, slurm, job, 2)
    ends(site, slurm, job)


# ---- two nodes


def nodes_recipe(site):
    """The line for Slurm of epochfs-nodes(7), as printed."""
    text = (HERE.parents[1] / "packaging" / "man" / PAGE).read_text().replace("\\-", "-")
    line = re.search(r"^# Slurm: .*\n(srun .*)$", text, re.M)[1]
    line, count = re.subn(r"s3://bucket/run7", str(site.remote), line)
    assert count
    # Each task is told which it is, as torchrun tells its workers.
    line, count = re.subn(r"torchrun \.\.\. train\.py$", "sh -c 'exec python3 train.py --checkpoint-dir /mnt/ckpt --part $SLURMD_NODENAME'", line)
    assert count
    return site.put("nodes.sh", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --partition=both\n#SBATCH --open-mode=append\n%s\n" % line)


def test_two_nodes(site, slurm):
    job = slurm.submit(nodes_recipe(site), "--time=10")
    for part in ("n1", "n2"):
        site.wait_steps("saved", 4, part, why=lambda: slurm.job(job))
    run("scancel", "--signal=TERM", job)
    for part in ("n1", "n2"):
        site.wait_steps("ended", 1, part)
    slurm.wait_state(job, "FAILED", "COMPLETED")
    last = min(site.steps("saved", part)[-1] for part in ("n1", "n2"))
    assert site.latest_of(("n1", "n2")) == last, site.said()
    site.put("halt")
    job = slurm.submit(nodes_recipe(site), "--time=10")
    starts = [site.wait_steps("starts", 2, part, why=lambda: slurm.job(job))[-1] for part in ("n1", "n2")]
    assert starts == [last, last], site.said()
    site.put("enough")
    site.take("halt")
    assert slurm.wait_state(job, "COMPLETED", "FAILED") == "COMPLETED"
    assert site.latest_of(("n1", "n2")) == last + 1
