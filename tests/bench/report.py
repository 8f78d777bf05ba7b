# SPDX-License-Identifier: Apache-2.0
"""The results of compare.py as tables in Markdown, with the goals, and as a plot.

A ratio is taken turn by turn, against the yardstick of the same turn; shown are the median of the turns
and, in brackets, the least and the most.
"""

import os
import statistics

from series import SERIES

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
DISK, COPY = "disk", "rclone-copy"

# Column: title, measure, yardstick's measure and name.
RATIOS = (
    ("stall of a save ÷ disk", "stall", "stall", DISK),
    ("small files ÷ disk", "small", "small", DISK),
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
PANELS = (("Stall of torch.save, times the disk below", 0), ("Saved and durable, times cp + rclone copy", 4),
          ("Cold restore, times rclone copy", 5), ("Small files, times the disk below", 1))
OURS = ("epochfs", "epochfs-off")


class Results:
    def __init__(self, results):
        self.facts, self.labels = results["facts"], results["labels"]
        self.figures, self.results = results["figures"], results

    def of(self, measure, who):
        """The turns' values, None where a turn has none."""
        return self.figures.get(measure, {}).get(who, [])

    def ratios(self, measure, who, below, yardstick):
        if yardstick == COPY and not self.serves(who):
            return []
        pairs = zip(self.of(measure, who), self.of(below, yardstick))
        return [a / b for a, b in pairs if a is not None and b]

    def serves(self, who):
        """Whether what it saves reaches a server."""
        return bool(self.of("upload", who) or self.of("upload, noise", who))

    def values(self, measure, who):
        return [value for value in self.of(measure, who) if value is not None]


def number(value):
    return "%.0f" % value if value >= 100 else "%.1f" % value if value >= 10 else "%.2f" % value


def spread(values, mark=""):
    if not values:
        return ""
    text = mark + number(statistics.median(values))
    return text + (" (%s–%s)" % (number(min(values)), number(max(values))) if len(values) > 1 else "")


def table(heads, rows):
    lines = ["| %s |" % " | ".join(heads), "|%s" % ("---|" * len(heads))]
    return "\n".join(lines + ["| %s |" % " | ".join(row) for row in rows]) + "\n"


def at_most(what, values, goal):
    return goal_row(what, values, "≤ %s" % number(goal), lambda v: v <= goal)


def at_least(what, values, goal):
    return goal_row(what, values, "≥ %s" % number(goal), lambda v: v >= goal)


def goal_row(what, values, goal, kept):
    if not values:
        return [what, "not measured", goal, ""]
    return [what, spread(values), goal, "reached" if kept(statistics.median(values)) else "**missed**"]


def goals(r):
    """The rows of the table of goals."""
    mib, gb = r.facts["mib"], r.facts["mib"] * (1 << 20) / 1e9
    rows = []
    for own, reads, writes in (("epochfs", 1.05, 1.1), ("epochfs-off", 2, 2.5)):
        way = "passthrough" if own == "epochfs" else "no passthrough"
        rows += [at_most("stall of `torch.save`, %d MiB, %s ÷ disk" % (mib, way), r.ratios("stall", own, "stall", DISK), 1.1),
                 at_most("write of %d MiB and close, %s ÷ disk" % (2 * mib, way), r.ratios("blocks write", own, "blocks write", DISK), writes)]
        for kind in ("read", "mmap"):
            rows.append(at_most("warm %s of %d MiB, %s ÷ disk" % (kind, 2 * mib, way),
                                r.ratios("blocks " + kind, own, "blocks " + kind, DISK), reads))
        rows.append(at_most("%d small files, %s ÷ disk" % (r.facts["files"], way), r.ratios("small", own, "small", DISK), 6))
    for other, goal in (("rclone-full", 2), ("s3fs", 4)):
        rows.append(at_least("stall of %s ÷ epochfs" % r.labels[other], r.ratios("stall", other, "stall", "epochfs"), goal))
    rows.append(at_most("CPU seconds a GB of fp32 checkpoints, the pipeline (cut, copy, hash, compress)", r.values("pipeline cpu", "epochfs"), 1.2))
    rows.append(at_most("CPU seconds a GB of upload, all of the daemon, its sending too", [v / gb for v in r.values("upload cpu", "epochfs")], 1.2))
    for what, measure, below, goal in (
            ("upload of %d MiB ÷ `rclone copy`" % mib, "upload", "upload", .9),
            ("the same, 60 % stored before", "upload, 60 % there", "upload, 60 % there", .4),
            ("the same, incompressible", "upload, noise", "upload, noise", .9),
            ("cold restore ÷ `rclone copy`", "cold read", "cold read", .9),
            ("the same, incompressible", "cold noise read", "cold noise read", .9)):
        rows.append(at_most(what, r.ratios(measure, "epochfs", below, COPY), goal))
    rows.append(at_least("training while an upload runs ÷ none running", r.values("training", "epochfs"), .95))
    memory = r.results["memory"]
    for what, key in (("uploading", "up"), ("restoring", "down")):
        rows.append(at_most("daemon's memory in MiB, %s %g GiB" % (what, memory.get("gib", 8)), [memory[key]] if memory else [], 300))
    for name, (what, goal) in SERIES.items():
        share = r.results["stored"].get(name)
        rows.append(goal_row("stored ÷ raw, %s: %s" % (name, what), [] if share is None else [share], "≤ %.3f" % goal, lambda v, g=goal: v <= g))
    return rows


def names(r):
    return [name for name in r.labels if any(name in of for of in r.figures.values())]


def competitors(r):
    """The table of ratios and that of plain figures."""
    rows = []
    for name in names(r):
        cells = ["**%s**" % r.labels[name] if name in OURS else r.labels[name]]
        for _, measure, below, yardstick in RATIOS:
            mark = "~" if measure == "small" and name in r.results["reckoned"] else ""
            cells.append("1" if (name, measure) == (yardstick, below) else spread(r.ratios(measure, name, below, yardstick), mark))
        rows.append(cells)
    plain = [[r.labels[name]] + [spread(r.values(measure, name)) for _, measure in ABSOLUTE] for name in names(r)]
    return table(["", *(head for head, *_ in RATIOS)], rows), table(["", *(head for head, _ in ABSOLUTE)], plain)


def machine(r):
    f = r.facts
    busy = ("" if f["load"][0] < 3 else " **The machine was busy with other work throughout: seconds mean nothing outside this run, short measures scatter"
            " widely, and ratios are rough.**")
    groups = ", a scheduling group for each session" if f.get("session_groups") else ""
    return "%s, %d cores, %d GiB, Linux %s%s, %s below; %s; %d turns with a checkpoint of %d MiB; load before and after each turn %s.%s" % (
        f["cpu"], f["cores"], f["memory"], f["kernel"], groups, f["disk"], f["date"], f["turns"], f["mib"],
        ", ".join("%.1f" % load for load in f["load"]), busy)


NOTES = """\
- A ratio is taken in each turn against the yardstick of the same turn: the median of the turns, and the least and the most.
- Ceph RGW with its objects in memory serves all that need a server, sshd serves sshfs; both run on the same cores as everything else.
- The checkpoint is made of tensors of a language model that was trained in the run (fp32 weights and AdamW's state); incompressible data
  is measured where a competitor looks at content. Each turn begins with an empty cache and an empty prefix in the server.
- *Stall*: `torch.save` until it returns. *Durable*: from its begin until the object is whole in the server; epochfs by `epochfs wait`, rclone mounts
  without their delay of 5 s, the script with the `cp` that keeps the next save from tearing what is uploaded. *Upload*: without the save and that `cp`.
- *Cold*: with an empty local cache; read in blocks of 1 MiB, and each word through a mapping. Scripts: their download into an empty folder. The disk, and what
  passes through to it: without its page cache. *Warm*: what was read just before.
- All that runs is in one group of the scheduler, as a job of a batch system or a login under systemd is. Where there is none, Linux shares out the processors
  among sessions whatever their nice values (`kernel.sched_autogroup_enabled`): training beside an upload then keeps about 0.6 of its steps.
- s3fs and sshfs upload before close returns, so that nothing is left for *training while an upload runs*; there the servers run on other cores than the training.
- *Stored*: all that lies in the remote over the bytes saved; the models are trained for some hundred steps only, and grow a little less compressible later.
- ~: stopped after 20 s, the rest reckoned.
"""


def text_of(r):
    ratios, plain = competitors(r)
    left_out = "".join("- %s: left out (%s)\n" % (r.labels[name], " ".join(why.split())) for name, why in r.results["left_out"].items())
    return ("# epochfs beside others\n\n%s\n\n![](results.svg)\n\n## Goals\n\n%s\n## Ratios\n\n%s\n## Figures\n\n%s\n## How it is measured\n\n%s%s" % (
        machine(r), table(["", "figure", "goal", ""], goals(r)), ratios, plain, NOTES, left_out))


def plot(r, path):
    import matplotlib  # where it is missing there is no plot
    matplotlib.use("svg")
    import matplotlib.pyplot as pyplot
    matplotlib.rcParams.update({"svg.hashsalt": "epochfs", "svg.fonttype": "none"})
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 7))
    for (title, column), axis in zip(PANELS, axes.flat):
        _, measure, below, yardstick = RATIOS[column]
        bars = [(r.labels[name], r.ratios(measure, name, below, yardstick), name) for name in reversed(names(r))]
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
    figure.savefig(path, metadata={"Date": None})


def into_readme(r, readme, out):
    """The goals and the plot between the marks."""
    text = readme.read_text(encoding="utf-8")
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError("%s has no marks %s and %s" % (readme, BEGIN, END))
    folder = os.path.relpath(out, readme.resolve().parent)
    body = "\n![](%s/results.svg)\n\n%s\nOn %s All figures, and how they are measured: [results.md](%s/results.md).\n" % (
        folder, table(["", "figure", "goal", ""], goals(r)), machine(r), folder)
    readme.write_text(before + BEGIN + body + END + after, encoding="utf-8")


def write(results, out, readme):
    r = Results(results)
    (out / "results.md").write_text(text_of(r), encoding="utf-8")
    try:
        plot(r, out / "results.svg")
    except ImportError as error:
        print("  no plot: %s" % error)
    if readme:
        into_readme(r, readme, out.resolve())
