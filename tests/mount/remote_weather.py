# SPDX-License-Identifier: Apache-2.0
"""A remote that is away, fails or is slow while a test says so, and what of it can be seen in the mount."""

import pytest

from conftest import wait_until

# The name of an epoch in the remote.
NUMBER = "%020d.json"


class Weather:
    """What befalls the requests to the remote, by the parameters of lib/remote/fault.c."""

    def __init__(self, volume):
        self.file = volume.base / "weather"
        volume.url = "fault+file://%s?control=%s" % (volume.remote, self.file)

    def turn(self, parameters):
        new = self.file.with_suffix(".new")
        new.write_text(parameters)
        new.rename(self.file)

    def clear(self):
        self.file.unlink()


@pytest.fixture
def weather(volume):
    """Before mnt among the arguments: the remote of that mount has a weather."""
    return Weather(volume)


def upload(mnt):
    return mnt.status()["upload"]


def fails_now(mnt):
    """Waits until the upload has failed and will be tried again: what status says."""
    return wait_until(lambda: "error" in upload(mnt) and upload(mnt).get("retries", 0) > 1 and upload(mnt), "a failure")


def in_remote(mnt, folder="epochs"):
    return sorted(p.name for p in (mnt.remote / folder).rglob("*") if p.is_file())
