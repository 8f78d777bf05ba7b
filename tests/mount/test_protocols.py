# SPDX-License-Identifier: Apache-2.0
"""What real programs do when they save (tests/protocols), as it is, with real processes on a real mount. test_protocols_killed.py kills them.

In process there is a list of what is wrong today, by play and operation (tests/protocols/results.json). Here a fault fails where no play of that
protocol is known to show one of its kind: on a mount the kernel decides when a file is released, and processes take their time. Where
results.json does not have the protocol, all faults are expected ones, and a play shows only that it comes to its end.
"""

import contextlib
import os

import pytest

import intent  # of tests/protocols
import protocol_mount
import player
import protocol
import table

pytestmark = pytest.mark.rules("2")

PROGRAM = os.path.join(os.environ.get("EPOCHFS_UNITS", ""), "protocols/epochfs")


def known(name):
    """Kinds of faults that some play of this protocol shows in process."""
    results = table.load()
    if name not in results:
        return set(table.FAULTS)
    return {fault for kinds in results[name]["wrong"].values() for faults in kinds.values() for fault in faults}


@contextlib.contextmanager
def played(make_volume, name):
    """A function that plays this protocol: a fault that is not known fails."""
    arena = intent.Arena()
    place = protocol_mount.Mounted(PROGRAM, arena, make_volume)
    all_plays = player.Player(protocol.load(name), place, arena)

    def play(which):
        faults = all_plays.play(which).faults
        assert set(faults) <= known(name), "%s: %s" % (player.text_of(which), "\n".join(map(str, faults.values())))
    try:
        yield play
    finally:
        place.close()


@pytest.mark.parametrize("name", protocol.names())
def test_a_program_that_saves(make_volume, name):
    with played(make_volume, name) as play:
        play(player.Play())
