# SPDX-License-Identifier: Apache-2.0
"""Several mounts of one volume on each real server: one writes, a second is told who does, readers follow."""

import pytest

from conftest import MountError, run, wait_until
from servers import SERVERS

# One of each kind that creates an object only if it is absent, and keeps to it in a race.
KINDS = ("lighttpd", "rgw", "sshd")


@pytest.fixture
def passthrough():
    return "auto"


@pytest.fixture(scope="module", params=KINDS)
def running(request, tmp_path_factory):
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as server:
        yield server


@pytest.fixture
def mounts(running, make_volume, monkeypatch, request):
    """A function that makes one more cache and mount point of the same volume."""
    for name, value in running.env().items():
        monkeypatch.setenv(name, value)
    url = running.url("two-" + "".join(c for c in request.node.name if c.isalnum()))

    def make(**options):
        v = make_volume(settle="1h", lease="2s", refresh="200ms", **options)
        v.url = url
        return v
    return make


def test_a_second_writer_is_told_who_writes(mounts):
    first, second = mounts().mount(), mounts()
    with pytest.raises(MountError) as error:
        second.mount()
    line = error.value.output.strip().splitlines()[-1]
    assert error.value.code == 8 and str(first.path) in line, error.value.output
    (first.path / "f").write_text("the first goes on")
    assert first.seal() == 1
    first.wait_durable()
    first.unmount()
    second.mount()  # at once: the first gave it back
    assert (second.path / "f").read_text() == "the first goes on"
    second.unmount()


def test_a_reader_follows_the_writer(mounts):
    writer = mounts().mount()
    (writer.path / "f").write_text("one")
    writer.seal()
    writer.wait_durable()
    reader = mounts(ro=True).mount()
    assert (reader.path / "f").read_text() == "one"
    (writer.path / "f").write_text("two")
    (writer.path / "g").write_text("new")
    writer.seal("named")
    writer.wait_durable()
    wait_until(lambda: (reader.path / "g").exists() and (reader.path / "f").read_text() == "two", "the second epoch")
    wait_until(lambda: (reader.epochs_dir / "named").exists(), "the tag")
    assert (reader.epoch(1) / "f").read_text() == "one"
    reader.unmount()
    writer.unmount()


def test_the_loser_of_a_take_over_damages_nothing(mounts, running):
    loser = mounts().mount()
    (loser.path / "f").write_text("before")
    loser.seal()
    loser.wait_durable()
    winner = mounts(**{"take-over": True}).mount()
    (winner.path / "f").write_text("the winner's")
    winner.seal()
    winner.wait_durable()
    (loser.path / "f").write_text("the loser's")
    assert loser.seal() == 2
    wait_until(lambda: loser.status()["lease"]["state"] == "lost", "the loser to learn of it")
    assert (loser.path / "f").read_text() == "the loser's"
    winner.remount(empty_cache=True)
    assert (winner.path / "f").read_text() == "the winner's"
    winner.unmount()
    loser.kill()
    assert "no damage" in run("env", *("%s=%s" % item for item in running.env().items()), loser.command()[0], "fsck",
                              "--read-data", loser.url).stdout
