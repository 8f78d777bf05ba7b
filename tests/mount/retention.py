# SPDX-License-Identifier: Apache-2.0
"""What the tests of dropped epochs share."""

import json
import os

from conftest import BIN, run, wait_until


def epochfs(*arguments, **keywords):
    return run(BIN, *arguments, **keywords)


def save(mnt, *numbers, **commit):
    """An epoch for each number, sealed; its file holds the number, and enough to lie in a pack."""
    for n in numbers:
        (mnt.path / "f").write_bytes(b"%d\n" % n * 5000)
        number = mnt.request("commit", **commit)["epoch"]
    return number


def records(mnt):
    """The numbers of the epochs in the remote: what has a record, and what has a tombstone."""
    found = {True: [], False: []}
    for name in sorted(os.listdir(mnt.remote / "epochs")):
        if name.endswith(".json"):
            text = json.loads((mnt.remote / "epochs" / name).read_text())
            found["dropped" in text].append(int(name.split(".")[0]))
    return found[False], found[True]


def settled(mnt):
    """Nothing is to be dropped any more, and the remote knows of all."""
    status = mnt.status()
    return not status.get("retention", {}).get("busy") and not status["upload"]["pending_changes"]


def wait_settled(mnt):
    mnt.wait_durable()
    wait_until(lambda: settled(mnt), "the drops to be in the remote")


def holds(directory, number):
    return (directory / "f").read_bytes() == b"%d\n" % number * 5000
