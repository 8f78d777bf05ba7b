# SPDX-License-Identifier: Apache-2.0
"""What the plays of all protocols show, as results.json keeps it and results.md tells it.

results.json: {protocol: {"text": SHA-1 of its file, "saves", "plays", "kills", "epochs", "stored", "delay": {path: {delay: saves}}, "wrong": {path: {kind
of play: {fault: points}}}}}. Points are operations of the body, as ranges: "5,16-18"; path is "on", "off" (passthrough) or "both". What is wrong
is known to be wrong: a play that shows something else than this list fails, in either direction.
"""

import hashlib
import json
import os

import protocol

FOLDER = protocol.FOLDER
JSON, TABLE = os.path.join(FOLDER, "results.json"), os.path.join(FOLDER, "results.md")
FAULTS = ("half", "first", "long", "late", "lost", "taken", "called", "live", "failed")
DELAYS = ("at once", "settle", "patience", "never")


def digest_of(name):
    with open(os.path.join(FOLDER, name + ".txt"), "rb") as file:
        return hashlib.sha1(file.read()).hexdigest()


def ranges(points):
    out = []
    for point in sorted(points):
        if out and out[-1][1] == point - 1:
            out[-1][1] = point
        else:
            out.append([point, point])
    return ",".join(str(a) if a == b else "%d-%d" % (a, b) for a, b in out)


def points(text):
    out = set()
    for part in text.split(",") if text else []:
        first, _, last = part.partition("-")
        out |= set(range(int(first), int(last or first) + 1))
    return out


class Wrong:
    """Faults by data path, kind of play, and point."""

    def __init__(self):
        self.found = {"on": {}, "off": {}}

    def add(self, path, kind, fault, point):
        self.found[path].setdefault(kind, {}).setdefault(fault, set()).add(-1 if point is None else point)

    def as_json(self):
        def text(kinds):
            return {kind: {fault: ranges(p) if p != {-1} else "" for fault, p in sorted(faults.items())} for kind, faults in sorted(kinds.items())}
        return of_both({path: text(kinds) for path, kinds in self.found.items()})


def of_both(paths):
    """What is the same on both data paths stands once."""
    return {"both": paths["on"]} if paths["on"] == paths["off"] else {"off": paths["off"], "on": paths["on"]}


def expected(results, name, path, kind, point):
    """The faults that a play is known to show."""
    wrong = results[name]["wrong"]
    faults = wrong.get("both", wrong.get(path, {})).get(kind, {})
    return {fault for fault, text in faults.items() if (point is None and text == "") or (point is not None and point in points(text))}


def load():
    if not os.path.exists(JSON):
        return {}
    with open(JSON, encoding="utf-8") as file:
        return json.load(file)


def save(results):
    with open(JSON, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1, sort_keys=True)
        file.write("\n")
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(table(results))


def count(row, fault, kinds=("",)):
    """Plays of these kinds that show this fault, of both data paths together."""
    total = 0
    for path, kindly in row["wrong"].items():
        for kind, faults in kindly.items():
            if kind.startswith(kinds) and fault in faults:
                total += (2 if path == "both" else 1) * max(1, len(points(faults[fault])))
    return total


HEAD = """# What real programs' saves become

Made by `make protocols` from results.json; README.md says what a protocol is. A play is one run of a protocol on one data path, in process: as it is, with a pause of
2, 10 or 90 s before one of its operations, or killed before one and started again: without more, with `-o resume`, and with the loss of the machine.

* *epochs*: how many the play as it is has in the end, with passthrough
* *latest follows*: how long after the end of a save `latest` is that save, where the program does nothing more: at once, after `settle`, after `settle + patience`,
  never (saves of each); off and on: without and with passthrough, where they differ
* *half*: plays in which `latest` named a tree in which a save was half, those with a kill and the others
* limits, which are not counted as *half*: the same of a run that has no whole save yet, by a kill in its first save (*first: kills*) or by a pause in it (*first:
  pauses*); and by a pause longer than `patience` within a later save (*long*)
* *late*: plays at whose end, or at the end of a save, the last whole save is not `latest`, though `settle + patience` passed
* *lost*: plays in which `latest` named an older save after a kill than before it, or none
* *taken*: plays without `-o resume` and without the loss of the machine in which a kill took bytes from an `output`
* *called*: plays without a kill in which an epoch that holds a whole save, which no other epoch holds, is not called whole
* *live*: plays with `-o resume` in which the live tree held no whole save after a kill, though `latest` had named one

| protocol | program | saves | epochs | latest follows | plays | half: kills | half: others | first: kills | first: pauses | long | late | lost | taken | called | live |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
"""


def delays_text(delays):
    return ", ".join("%s %d" % (delay, delays[delay]) for delay in DELAYS if delays.get(delay))


def table(results):
    lines = []
    for name, row in sorted(results.items()):
        follows = "; ".join(("" if path == "both" else path + ": ") + delays_text(delays) for path, delays in row["delay"].items())
        figures = [row["plays"]] + [count(row, fault, kinds) for fault in ("half", "first") for kinds in (("kill",), ("pause", "as", "delay"))]
        figures += [count(row, fault) for fault in ("long", "late", "lost", "taken", "called", "live")]
        lines.append("| %s | %s | %d | %d | %s | %s |\n" % (
            name, row["program"], row["saves"], row["epochs"], follows, " | ".join(map(str, figures))))
    total = "\n%d protocols, %d plays, %d of them with a kill. Wrong: %s.\n" % (
        len(results), sum(r["plays"] for r in results.values()), sum(r["kills"] for r in results.values()),
        ", ".join("%s %d" % (fault, sum(count(r, fault) for r in results.values())) for fault in FAULTS))
    return HEAD + "".join(lines) + total
