# SPDX-License-Identifier: Apache-2.0
"""A trainer of three files is killed after a call that changes its directory, any of them, in its second and third save: its framework loads `latest`, and with
resume the live tree, and all files are of one save.

Nothing here knows what epochfs makes of a kill. trainer_kills.json lists what is wrong today, of files without their ending: {style: {fault: {save: [calls]}}}. A listed call that shows nothing
wrong fails as well: the list has to get shorter then. --trainer-kills N takes N calls by --seed, 0 all of them: make check-trainer-kills.
"""

import json
import os
import random

import pytest

from trainer_killed import ENDINGS, STYLES, Job, Server, UserCalls

pytestmark = pytest.mark.rules("2")

LIST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainer_kills.json")


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    return UserCalls(tmp_path_factory.mktemp("calls") / "calls", tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module", params=list(ENDINGS))
def server(request, calls):
    server = Server(request.param, calls)
    yield server
    server.close()


def known(style, number, call):
    """Faults that a kill after this call of a save is known to show."""
    with open(LIST, encoding="utf-8") as file:
        listed = json.load(file)
    return {fault for fault, saves in listed.get(style, {}).items() if call in saves.get(str(number), [])}


def calls_of(server, calls, mount, style, number):
    """(save, call) of each call of this save."""
    job = Job(server, calls, mount, style, False)
    assert job.run(number, 0) is None
    job.on.end()
    return [(number, call) for call in range(1, calls.count + 1)]


@pytest.mark.skipif(bool(os.environ.get("EPOCHFS_TEST_SAN")), reason="a sanitizer wants to be the first library")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("resume", [False, True], ids=["", "resume"])
@pytest.mark.parametrize("style", STYLES)
def test_a_trainer_killed_after_a_call(server, calls, make_volume, pytestconfig, passthrough, style, resume):
    seed, some = pytestconfig.getoption("seed"), pytestconfig.getoption("trainer_kills")
    print("--seed %d" % seed)
    points = [point for number in (2, 3) for point in calls_of(server, calls, make_volume(), style, number)]
    if some:
        points = random.Random("%d %s %s %s" % (seed, style, resume, passthrough)).sample(points, some)
    wrong = []
    for number, call in points:
        job = Job(server, calls, make_volume(), style, resume)
        name = job.run(number, call)
        faults = job.faults(number, resume)
        job.on.end()
        line = "save %d, call %d: %s: known %s, seen %s" % (number, call, name, sorted(known(style, number, name)), faults)
        print(line)
        if {fault for fault in known(style, number, name) if resume or fault != "live"} != set(faults):
            wrong.append(line)
    assert not wrong, "\n".join(wrong)
