#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The results of compare.py as tables in Markdown, with the goals, and as a plot.

    tests/bench/report.py RESULTS.json [--readme FILE] [--check]

Writes results.md and results.svg beside RESULTS.json, and the table of goals between the marks of FILE. --check writes nothing: it exits with 1 where a
table is not the one that RESULTS.json gives.

A ratio is taken in each turn (turns.py) of the means of its samples; shown are the median of the turns that are not void and, in brackets, the least and
the most.
"""

import argparse
import hashlib
import json
import os
import pathlib
import statistics
import sys

from series_goals import SERIES
from turns import FOREIGN, OWN_REFERENCE, SPREAD, why_void

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
# The rows of the goals that the README has; results.md has all of them.
HEADLINES = ("stall of `torch.save`", "upload of", "cold restore")
DISK, COPY, HP = "disk", "rclone-copy", "passthrough_hp"

# Column: title, metric, yardstick's metric and name.
RATIOS = (
    ("stall of a save ÷ disk", "stall", "stall", DISK),
    ("small files ÷ disk", "small", "small", DISK),
    ("small files ÷ passthrough_hp", "small", "small", HP),
    ("warm read ÷ disk", "warm read", "warm read", DISK),
    ("warm mmap ÷ disk", "warm mmap", "warm mmap", DISK),
    ("saved and durable ÷ script", "durable", "durable", COPY),
    ("cold read ÷ `rclone copy`", "cold read", "cold read", COPY),
    ("cold mmap ÷ `rclone copy`", "cold mmap", "cold read", COPY),
)
ABSOLUTE = (
    ("stall s", "stall"), ("durable s", "durable"), ("cold read s", "cold read"), ("cold mmap s", "cold mmap"),
    ("warm read s", "warm read"), ("small files s", "small"), ("upload CPU s", "upload cpu"),
    ("upload MiB", "upload memory"), ("restore CPU s", "cold cpu"), ("restore MiB", "cold memory"), ("training", "training"),
)
PANELS = (("Stall of torch.save, times the disk below", 0), ("Saved and durable, times cp + rclone copy", 5),
          ("Cold restore, times rclone copy", 6), ("Small files, times libfuse's passthrough_hp", 2))
ROOT, USER = "epochfs", "epochfs-user"
OURS = (ROOT, USER)


class Judged:
    """The samples by turns, and which of those are void."""

    def __init__(self, results):
        self.facts, self.labels, self.results = results["facts"], results["labels"], results
        self.groups = {}
        for sample in results["samples"]:
            self.groups.setdefault(sample["group"], []).append(sample)

    def label(self, name):
        return self.labels[name]

    @staticmethod
    def mean(samples, who, metric):
        values = [s["values"][metric] for s in samples if s["who"] == who and metric in s["values"]]
        return statistics.mean(values) if values else None

    def _elsewhere(self, group, references, metric):
        """What the references took in the other turns of the same pair."""
        pair = group.rpartition(", ")[0]
        return [{r: [s["values"][metric] for s in samples if s["who"] == r and metric in s["values"]] for r in references}
                for name, samples in self.groups.items() if name != group and name.rpartition(", ")[0] == pair]

    def why(self, group, references, metric):
        return why_void(self.groups[group], references, metric, self.label, self._elsewhere(group, references, metric))

    @staticmethod
    def _references(group, samples, metric):
        rival = group.split(", ")[1]
        return [rival] if metric in OWN_REFERENCE.values() else sorted({s["who"] for s in samples} - {rival})

    def void(self, group):
        """Why a turn says nothing of some metric, or None."""
        samples = self.groups[group]
        metrics = sorted({metric for s in samples for metric in s["values"]})
        found = [self.why(group, self._references(group, samples, metric), metric) for metric in metrics]
        return next((why for why in found if why), None)

    def counted(self, measure, rival):
        """Turns of a pair that are not void."""
        prefix = "%s, %s, " % (measure, rival)
        return len([group for group in self.groups if group.startswith(prefix) and not self.void(group)])

    def ratios(self, metric, who, below, yardstick):
        """The turns' ratios, and how many turns are void."""
        good, void = [], 0
        for group, samples in self.groups.items():
            ours, theirs = self.mean(samples, who, metric), self.mean(samples, yardstick, below)
            if ours is None or not theirs:
                continue
            if self.why(group, [yardstick], below):
                void += 1
            else:
                good.append(ours / theirs)
        return Figure(good, void)

    def values(self, metric, who):
        good, void = [], 0
        for group, samples in self.groups.items():
            mine = [s for s in samples if s["who"] == who]
            value = self.mean(mine, who, metric)
            if value is None:
                continue
            own = OWN_REFERENCE.get(metric)
            if self.why(group, [who], own) if own else why_void(mine, [], metric, self.label):
                void += 1
            else:
                good.append(value)
        return Figure(good, void)

    def reckoned(self, who):
        return any(s.get("reckoned") for s in self.results["samples"] if s["who"] == who)

    def void_turns(self):
        return [(group, why) for group in self.groups if (why := self.void(group))]


def measured_once(results, commit):
    """What of earlier results needs no turns (bytes stored, memory) for a run of this commit: of another tree nothing, as the new results name one."""
    if not commit or commit.endswith("+") or results["commit"] != commit:
        return {}, {}
    return results["stored"], results["memory"]


class Figure:
    """What some turns gave."""

    def __init__(self, values, void=0):
        self.values, self.void = values, void

    def text(self, mark=""):
        if self.values:
            told = mark + number(statistics.median(self.values))
            told += " (%s–%s)" % (number(min(self.values)), number(max(self.values))) if len(self.values) > 1 else ""
        else:
            told = "void" if self.void else ""
        return told + (", %d of %d turns void" % (self.void, self.void + len(self.values)) if self.void else "")

    def verdict(self, kept):
        """With more void turns than others there is none."""
        if not self.values and not self.void:
            return "not measured"
        if self.void >= max(1, len(self.values)):
            return "void"
        return "reached" if kept(statistics.median(self.values)) else "**missed**"


def number(value):
    return "%.0f" % value if value >= 100 else "%.1f" % value if value >= 10 else "%.2f" % value


def table(heads, rows):
    lines = ["| %s |" % " | ".join(heads), "|%s" % ("---|" * len(heads))]
    return "\n".join(lines + ["| %s |" % " | ".join(row) for row in rows]) + "\n"


class Goals:
    """The rows of the table of goals: for root with passthrough, and beside it for an ordinary user, who has none."""

    HEADS = ("", "root, passthrough", "", "ordinary user", "", "goal")

    def __init__(self, r):
        self.r, self.rows = r, []

    def row(self, what, goal, *figures):
        """Of each column its figure, and what a figure must be; None: there is no goal."""
        cells = []
        for figure, kept in (*figures, (None, None))[:2]:
            verdict = figure.verdict(kept) if kept else ""
            cells += [figure.text() if figure else "", verdict]
        self.rows.append([what, *cells, goal])

    @staticmethod
    def most(limit):
        return lambda value: value <= limit

    def at_most(self, what, limit, figure):
        self.row(what, "≤ %s" % number(limit), (figure, self.most(limit)))

    def at_least(self, what, limit, figure):
        self.row(what, "≥ %s" % number(limit), (figure, lambda v: v >= limit))

    def both(self, metric, yardstick):
        return [self.r.ratios(metric, own, metric, yardstick) for own in OURS]

    def local(self):
        """Without passthrough the daemon copies what is read and written: another goal."""
        mib, files = self.r.facts["mib"], self.r.facts["files"]
        for what, metric, root, user in (("stall of `torch.save`, %d MiB ÷ disk" % mib, "stall", 1.1, 1.1),
                                         ("write of %d MiB and close ÷ disk" % (2 * mib), "blocks write", 1.1, 2.5),
                                         ("warm read of %d MiB ÷ disk" % (2 * mib), "blocks read", 1.05, 2),
                                         ("warm mmap of %d MiB ÷ disk" % (2 * mib), "blocks mmap", 1.05, 2)):
            goal = "≤ %s" % number(root) + ("; user ≤ %s" % number(user) if user != root else "")
            self.row(what, goal, *zip(self.both(metric, DISK), (self.most(root), self.most(user))))
        limit = 1.25
        self.row("%d small files ÷ libfuse's passthrough_hp" % files, "≤ %s" % number(limit), *[(f, self.most(limit)) for f in self.both("small", HP)])
        self.row("the same ÷ disk", "", *[(f, None) for f in self.both("small", DISK)])
        beside = tuple(self.r.values("small", name).text() or "not measured" for name in (DISK, HP))
        self.row("the same in seconds (the disk: %s; passthrough_hp: %s)" % beside, "", *[(self.r.values("small", own), None) for own in OURS])

    def others(self):
        r, mib = self.r, self.r.facts["mib"]
        gb = mib * (1 << 20) / 1e9
        per_gb = lambda figure: Figure([v / gb for v in figure.values], figure.void)  # noqa: E731
        for other, goal in (("rclone-full", 2), ("s3fs", 4)):
            self.at_least("stall of %s ÷ epochfs" % r.labels[other], goal, r.ratios("stall", other, "stall", ROOT))
        self.at_most("CPU seconds a GB of fp32 checkpoints, the pipeline (cut, copy, hash, compress)", 1.2, r.values("pipeline cpu", ROOT))
        self.at_most("CPU seconds a GB of upload, all of the daemon, its sending too", 1.2, per_gb(r.values("upload cpu", ROOT)))
        for what, metric, goal in (("upload of %d MiB ÷ `rclone copy`" % mib, "upload", .9), ("the same, 60 % stored before", "upload, 60 % there", .4),
                                   ("the same, incompressible", "upload, noise", .9), ("cold restore ÷ `rclone copy`", "cold read", .9),
                                   ("the same, incompressible", "cold noise read", .9)):
            self.at_most(what, goal, r.ratios(metric, ROOT, metric, COPY))
        self.at_least("training while an upload runs ÷ none running", .95, r.values("training", ROOT))

    def once(self):
        memory = self.r.results["memory"]
        for what, key in (("uploading", "up"), ("restoring", "down")):
            self.at_most("daemon's memory in MiB, %s %g GiB" % (what, memory.get("gib", 8)), 300, Figure([memory[key]] if memory else []))
        for name, (what, goal) in SERIES.items():
            share = self.r.results["stored"].get(name)
            self.row("stored ÷ raw, %s: %s" % (name, what), "≤ %.3f" % goal, (Figure([] if share is None else [share]), self.most(goal)))

    def table(self, begins=("",)):
        """Of all rows, or of those that begin so."""
        self.local()
        self.others()
        self.once()
        return table(self.HEADS, [row for row in self.rows if row[0].startswith(begins)])


def names(r):
    there = {s["who"] for s in r.results["samples"]}
    return [name for name in r.labels if name in there]


def competitors(r):
    """The table of ratios and that of plain figures."""
    rows = []
    for name in names(r):
        cells = ["**%s**" % r.labels[name] if name in OURS else r.labels[name]]
        for _, metric, below, yardstick in RATIOS:
            mark = "~" if metric == "small" and r.reckoned(name) else ""
            cells.append("1" if (name, metric) == (yardstick, below) else r.ratios(metric, name, below, yardstick).text(mark))
        rows.append(cells)
    plain = [[r.labels[name]] + [r.values(metric, name).text() for _, metric in ABSOLUTE] for name in names(r)]
    return table(["", *(head for head, *_ in RATIOS)], rows), table(["", *(head for head, _ in ABSOLUTE)], plain)


def machine(r):
    f = r.facts
    groups = ", a scheduling group for each session" if f.get("session_groups") else ""
    told = "%s, %d cores, %d GiB, Linux %s%s, %s below; %s; up to %d turns with a checkpoint of %d MiB" % (
        f["cpu"], f["cores"], f["memory"], f["kernel"], groups, f["disk"], f["date"], f["turns"], f["mib"])
    void = r.void_turns()
    return told + "; commit %s, seed %d. %d of %d turns were void: a reference spread more than %g times, or others took more than %g processors." % (
        r.results["commit"][:12] + r.results["commit"][40:], r.results["seed"], len(void), len(r.groups), SPREAD, FOREIGN)


NOTES = """\
- A turn of a rival is it and its references, one after the other in an order that the seed gives, and, of what is short, once more in the reverse order. Each begins in a fresh folder, after
  a little of the same work, with everything synced and nothing dirty. A ratio is that of the turn's means; shown are the median of the turns, the least and the most.
- A turn is void where a reference took more than twice as long once as another time, where others than the run took more than a tenth of a processor meanwhile (a host that takes the machine's time, too), or where they kept the
  disk dirty. It is tried again, up to twice the number of turns; a row with as many void turns as others has no verdict. All samples are in results.json.
- *Small files*: opened, written (4 KiB) and closed, in a loop that does nothing else. The reference is libfuse's own pass-through, which costs what any file system in a process costs.
- *Ordinary user*: mounted and used by one, through fusermount3, without the kernel's passthrough, which is for root.
- Ceph RGW with its objects in memory serves all that need a server, sshd serves sshfs; both run on the same cores as everything else.
- The checkpoint is made of tensors of a language model that was trained in the run (fp32 weights and AdamW's state); incompressible data
  is measured where a competitor looks at content. Each sample begins with an empty cache and an empty prefix in the server.
- *Stall*: `torch.save` until it returns. *Durable*: from its begin until the object is whole in the server; epochfs by `epochfs wait`, rclone mounts
  without their delay of 5 s, the script with the `cp` that keeps the next save from tearing what is uploaded. *Upload*: without the save and that `cp`.
- *Cold*: with an empty local cache; read in blocks of 1 MiB, and each word through a mapping. Scripts: their download into an empty folder. *Warm*: what was read just before.
- All that runs is in one group of the scheduler, as a job of a batch system or a login under systemd is. Where there is none, Linux shares out the processors
  among sessions whatever their nice values (`kernel.sched_autogroup_enabled`): training beside an upload then keeps about 0.6 of its steps.
- s3fs and sshfs upload before close returns, so that nothing is left for *training while an upload runs*; there the servers run on other cores than the training.
- *Stored*: all that lies in the remote over the bytes saved; the models are trained for some hundred steps only, and grow a little less compressible later.
- ~: stopped after 20 s, the rest reckoned.
"""


def text_of(r):
    ratios, plain = competitors(r)
    left_out = "".join("- %s: left out (%s)\n" % (r.labels[name], " ".join(why.split())) for name, why in r.results["left_out"].items())
    void = "".join("- %s: %s\n" % turn for turn in r.void_turns())
    return ("# epochfs beside others\n\n%s\n\n![](results.svg)\n\n## Goals\n\n%s\n## Ratios\n\n%s\n## Figures\n\n%s\n## How it is measured\n\n%s%s%s" % (
        machine(r), Goals(r).table(), ratios, plain, NOTES, left_out, "\n## Void turns\n\n%s" % void if void else ""))


def mark_of(r):
    """What says of which results a plot is."""
    return "results %s" % hashlib.sha256(json.dumps(r.results, sort_keys=True).encode()).hexdigest()


def plot(r, path):
    import matplotlib  # where it is missing there is no plot
    matplotlib.use("svg")
    import matplotlib.pyplot as pyplot
    matplotlib.rcParams.update({"svg.hashsalt": "epochfs", "svg.fonttype": "none"})
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7))
    for (title, column), axis in zip(PANELS, axes.flat):
        _, measure, below, yardstick = RATIOS[column]
        bars = [(r.labels[name], r.ratios(measure, name, below, yardstick).values, name) for name in reversed(names(r))]
        bars = [bar for bar in bars if bar[1]]
        middles = [statistics.median(values) for _, values, _ in bars]
        errors = [[m - min(v) for (_, v, _), m in zip(bars, middles)], [max(v) - m for (_, v, _), m in zip(bars, middles)]]
        axis.barh([label for label, _, _ in bars], middles, xerr=errors, error_kw={"lw": .8},
                  color=["#1f77b4" if name in OURS else "#bbbbbb" for _, _, name in bars])
        if middles and max(middles) > 12:
            axis.set_xscale("log")
        axis.axvline(1, color="black", lw=.8)
        for row, middle in enumerate(middles):
            axis.annotate(number(middle), (middle, row), xytext=(3, 5), textcoords="offset points", fontsize=7)
        axis.set_title(title + " (less is better)", fontsize=9)
        axis.tick_params(labelsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Description": mark_of(r)})


def with_table(r, readme, out):
    """The text of the README with the headlines of the goals between its marks."""
    text = readme.read_text(encoding="utf-8")
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError("%s has no marks %s and %s" % (readme, BEGIN, END))
    folder = os.path.relpath(out, readme.resolve().parent)
    body = "\n%s\nOn %s All figures, and how they are measured: [results.md](%s/results.md).\n" % (Goals(r).table(HEADLINES), machine(r), folder)
    return before + BEGIN + body + END + after


def write(results, out, readme):
    r = Judged(results)
    (out / "results.md").write_text(text_of(r), encoding="utf-8")
    try:
        plot(r, out / "results.svg")
    except ImportError as error:
        print("  no plot: %s" % error)
    if readme:
        readme.write_text(with_table(r, readme, out.resolve()), encoding="utf-8")


def differences(results, out, readme):
    """What is not what the results give."""
    r = Judged(results)
    found = []
    if (out / "results.md").read_text(encoding="utf-8") != text_of(r):
        found.append(out / "results.md")
    if mark_of(r) not in (out / "results.svg").read_text(encoding="utf-8"):
        found.append(out / "results.svg")
    if readme and readme.read_text(encoding="utf-8") != with_table(r, readme, out.resolve()):
        found.append(readme)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--readme", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results, out = json.loads(options.results.read_text(encoding="utf-8")), options.results.parent
    if not options.check:
        write(results, out, options.readme)
        return 0
    wrong = differences(results, out, options.readme)
    for path in wrong:
        print("%s is not what %s gives: run tests/bench/report.py without --check" % (path, options.results), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
