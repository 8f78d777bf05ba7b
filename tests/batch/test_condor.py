# SPDX-License-Identifier: Apache-2.0
"""packaging/examples/htcondor.sub under a real HTCondor: whatever takes a job from its machine, the last whole save is in the remote,
and the next attempt begins from it."""

import pytest

from condor import COMPLETED, HELD
from job_site import run, wait_until

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def pool(condor):
    yield condor
    condor.remove_all()


def recipe(site):
    """The example for a smaller machine."""
    return site.recipe("htcondor.sub", (r"^request_gpus = 1\n", ""), (r"= 16GB", "= 200MB"), (r"= 50GB", "= 100MB"), (r"^request_cpus = 4$", "request_cpus = 1"))


def trains(site, pool, job):
    site.wait_steps("saved", len(site.steps("saved")) + 3, why=lambda: pool.about(job))


def goes_on(site, pool, job, attempts):
    """The next attempt is there, and has done nothing yet (`halt`): it begins from the last save of all before it, which is in the remote."""
    started = site.wait_steps("starts", attempts, why=lambda: pool.about(job))[-1]
    assert started == site.latest() == site.steps("saved")[-1], site.said()
    site.take("halt")
    trains(site, pool, job)


def ends(site, pool, job):
    site.put("enough")
    pool.wait_status(job, COMPLETED)
    assert pool.attribute(job, "ExitCode") == "0"
    assert site.latest() == site.steps("done")[-1] == site.steps("saved")[-1]
    site.check_remote()


def ended(site, pool, job):
    """It was told to end, and has saved; the next attempt stands still."""
    site.put("halt")
    wait_until(lambda: site.steps("ended"), lambda: "the end: %s" % pool.about(job))


def test_it_checkpoints_itself(site, pool):
    """epochfs run gets the signal from somebody else: HTCondor takes 85 for a checkpoint, and starts the job again where it is."""
    job = pool.submit(recipe(site))
    trains(site, pool, job)
    runner = run("pgrep", "-u", "trainer", "-o", "-f", "epochfs run").stdout.split()[0]
    run("kill", "-TERM", runner)
    ended(site, pool, job)
    goes_on(site, pool, job, 2)
    ends(site, pool, job)


def test_vacated(site, pool):
    job = pool.submit(recipe(site))
    trains(site, pool, job)
    run("condor_vacate_job", job)
    ended(site, pool, job)
    goes_on(site, pool, job, 2)
    ends(site, pool, job)


def test_evicted_by_the_machine(site, pool):
    job = pool.submit(recipe(site))
    trains(site, pool, job)
    run("condor_vacate", "-all")
    ended(site, pool, job)
    goes_on(site, pool, job, 2)
    ends(site, pool, job)


def test_evicted_at_once(site, pool):
    """No signal but SIGKILL, and the scratch directory, with the cache, is gone."""
    job = pool.submit(recipe(site))
    trains(site, pool, job)
    site.put("halt")
    site.wait_said("halted")
    wait_until(lambda: site.latest() == site.steps("saved")[-1], "the upload of the last save")  # what came later is lost with the machine
    run("condor_vacate", "-fast", "-all")
    goes_on(site, pool, job, 2)
    ends(site, pool, job)


def test_held_and_released(site, pool):
    job = pool.submit(recipe(site))
    trains(site, pool, job)
    run("condor_hold", job)
    ended(site, pool, job)
    pool.wait_status(job, HELD)
    pool.wait_free()
    assert site.latest() == site.steps("saved")[-1]
    run("condor_release", job)
    goes_on(site, pool, job, 2)
    ends(site, pool, job)


def test_removed(site, pool):
    """Whoever submits it again goes on."""
    job = pool.submit(recipe(site))
    trains(site, pool, job)
    run("condor_rm", job)
    ended(site, pool, job)
    pool.wait_free()
    assert site.latest() == site.steps("saved")[-1]
    job = pool.submit(recipe(site))
    goes_on(site, pool, job, 2)
    ends(site, pool, job)
