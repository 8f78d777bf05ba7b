# SPDX-License-Identifier: Apache-2.0
"""The engine tells of each protocol the events that page.py makes of it, so what is proved of the rules with the one holds with the other.

Not told by the engine: the end of a process. Not compared: numbers of processes and handles, but for which are the same; and "had", for when there
is an epoch each decides by its own rules.
"""

import collections
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import intent  # noqa: E402
import page  # noqa: E402
import place  # noqa: E402
import player  # noqa: E402
import protocol  # noqa: E402

BUILD = os.environ["EPOCHFS_BUILD"]
NOT_OF_FILES = ("ended", "time", "lost", "sealed", "asked", "back")
# A descriptor that a child has inherited: the engine takes in what its opener has closed at the next look, or when the child has closed it, too. In the
# first case the child has it open in place from then on.
LATER = ("torch-2.6-dcp-workers",)


class Lines:
    """Events as text, with the numbers in the order in which they come up."""

    def __init__(self):
        self.numbers, self.lines = {}, []

    def number(self, what, number):
        return self.numbers.setdefault((what, number), "%s %d" % (what, len(self.numbers))) if number else ""

    def add(self, what, *words, process=0, handle=0, facts=()):
        self.lines.append(" ".join(map(str, (what, self.number("process", process), self.number("handle", handle), ",".join(sorted(set(facts) - {"had"})), *words))))


def play(where, name):
    try:
        player.Player(protocol.load(name), where, where.arena).play(player.Play())
    finally:
        where.close()


class Engine(place.InProcess):
    """Takes what was told with it before the volume is gone."""

    def end(self):
        self.facts = self.look("facts")["facts"]
        super().end()


def of_engine(name):
    where, lines = Engine(os.path.join(BUILD, "tests/protocols/protocols"), intent.Arena(), False), Lines()
    play(where, name)
    for fact in where.facts:
        if fact["what"] not in NOT_OF_FILES:
            lines.add(fact["what"], fact.get("size", 0), fact.get("path"), fact.get("to"), process=fact.get("process"), handle=fact.get("handle"),
                      facts=fact.get("facts", ()))
    return lines.lines


def of_page(name):
    where, lines = page.Page(intent.Arena(), os.path.join(BUILD, "tests/saves/saves")), Lines()
    play(where, name)
    for line in where.trace:
        words = line.split(" ")
        if not words[0].replace(".", "").isdigit() or words[1] in NOT_OF_FILES:
            continue
        values = dict(word.split("=", 1) for word in words[2:])
        path, to = (values[key][1:] if key in values else None for key in ("path", "to"))
        lines.add(words[1], values.get("size", 0), path, to, process=values.get("process"), handle=values.get("handle"),
                  facts=values["is"].split(",") if "is" in values else ())
    return lines.lines


def unnumbered(line):
    """Without the number of the process and the handle, and without what a word has not."""
    return " ".join(re.sub(r"(process|handle) \d+|None", "", line).split())


@pytest.mark.parametrize("name", protocol.names())
def test_the_engine_tells_what_the_page_tells(name):
    seen, wanted = of_engine(name), of_page(name)
    assert any(line.startswith("closed") for line in wanted)
    if name in LATER:
        more, less = (collections.Counter(map(unnumbered, a)) - collections.Counter(map(unnumbered, b)) for a, b in ((seen, wanted), (wanted, seen)))
        kept = [line for line in more if line.startswith("opened edit")]
        assert not less and sorted(more.elements()) == sorted(kept + [line for line in more if line.startswith("closed") and line.split()[2] in str(kept)])
    else:
        assert seen == wanted
