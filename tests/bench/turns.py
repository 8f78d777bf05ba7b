# SPDX-License-Identifier: Apache-2.0
"""What makes a turn of the benchmark fair, and what makes it void.

A turn of a rival is a group of samples: it and its references, in an order that is drawn by the run's seed, and then in the reverse
order, so that what drifts meanwhile is the same for all. Each sample begins in the same state: a fresh folder, warmed by a little of the same
work, everything synced, nothing left to write back. Small files of earlier samples are not removed before the run ends, for that slows the next. A turn is void

    where a reference took more than SPREAD times as long once as another time, in this turn or in others of the same pair;
    where processes that are not ours, or the host of a virtual machine, took more than FOREIGN processors while a sample was taken, or in the part of it
    that is timed;
    where something else kept writing to the disk.
"""

import ctypes
import os
import random
import statistics
import time

# What is a share of something that is measured in the same sample, and that.
OWN_REFERENCE = {"training": "training alone"}
SPREAD = 2.0
FOREIGN = 0.10
DIRTY_MIB = 16
SYNC_LIMIT = 30  # seconds
TICKS = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36


class Draw:
    """Orders, by the seed. The order of one group does not depend on which others there are."""

    def __init__(self, seed):
        self.seed = seed

    def _random(self, *words):
        return random.Random("%d %s" % (self.seed, " ".join(map(str, words))))

    def shuffled(self, names, *words):
        names = list(names)
        return self._random(*words).sample(names, len(names))

    def group(self, names, again, *words):
        """All of them once, and with `again` once more in the reverse order."""
        order = self.shuffled(names, *words)
        return order + order[::-1] if again else order


# ---- the state


def dirty_mib():
    """What the kernel has still to write back."""
    with open("/proc/meminfo", encoding="ascii") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(("Dirty:", "Writeback:"))) / 1024


def sync(limit=SYNC_LIMIT):
    """Everything to the disk. MiB that are dirty nevertheless after the limit, because somebody goes on writing; else 0."""
    deadline = time.monotonic() + limit
    while True:
        os.sync()
        left = dirty_mib()
        if left <= DIRTY_MIB:
            return 0
        if time.monotonic() > deadline:
            return left
        time.sleep(0.1)


# ---- the load


def processes():
    """PID: (parent, CPU seconds of it, and with those of its children that it has waited for)."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % name, encoding="ascii", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
        except OSError:
            continue
        found[int(name)] = int(fields[1]), sum(map(int, fields[11:13])) / TICKS, sum(map(int, fields[11:15])) / TICKS
    return found


def stolen():
    """CPU seconds that the host of this virtual machine has given to others."""
    with open("/proc/stat", encoding="ascii") as f:
        fields = f.readline().split()
    return int(fields[8]) / TICKS if len(fields) > 8 else 0.0


def own(table, root):
    """What descends from this process, itself included."""
    children = {}
    for pid, (parent, *_) in table.items():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return set(found)


def of_others(table, root):
    """What neither descends from this process nor is a thread of the kernel."""
    ours = own(table, root)
    return {pid: seconds for pid, (parent, *seconds) in table.items() if pid not in ours and pid != 2 and parent != 2}


def taken_by_others(before, after, root):
    """CPU seconds between two tables. Who has ended is only in what his parent has waited for; who ended without being waited for takes his seconds
    away from that sum, and must not take others' away. So the greater of both ways to count."""
    before, after = of_others(before, root), of_others(after, root)
    with_children = sum(s[1] for s in after.values()) - sum(s[1] for s in before.values())
    those_who_are_there = sum(max(0.0, s[0] - before.get(pid, (0.0,))[0]) for pid, s in after.items())
    return max(with_children, those_who_are_there)


def processors(cpu, seconds):
    """How many processors these CPU seconds are. A tick or two of everybody's is nothing."""
    return max(0.0, cpu - 2 / TICKS) / max(seconds, 1 / TICKS)


class Load:
    """`with Load() as load:` then load.foreign: the processors that others than ROOT and its own took meanwhile; load.cpu and load.seconds, of which that is made
    where parts are added up. The kernel's threads do our work, and do not count."""

    def __init__(self, root=None):
        # What a daemon leaves behind when it forks stays ours.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.root = root or os.getpid()
        self.foreign = self.cpu = self.seconds = 0.0

    def taken(self):
        return taken_by_others(self.before, processes(), self.root)

    def __enter__(self):
        self.begin, self.before, self.stolen = time.monotonic(), processes(), stolen()
        return self

    def __exit__(self, *_):
        self.cpu = self.taken() + max(0.0, stolen() - self.stolen)
        self.seconds = time.monotonic() - self.begin
        self.foreign = processors(self.cpu, self.seconds)


# ---- the verdict


def spread_of(values):
    return max(values) / max(min(values), 1e-9)


def agreeing(values):
    """The most of them that are within SPREAD of one another, in their order; of as many, the least."""
    values, most = sorted(values), []
    for i, low in enumerate(values):
        near = [value for value in values[i:] if spread_of([low, value]) <= SPREAD]
        most = near if len(near) > len(most) else most
    return most


def spread_in(values, others):
    """The values of a reference that are too far apart, of this turn and what it took in each of the others; or None. Of turns that differ, those
    count that more than half of all agree with; where there are none nobody can say which is wrong."""
    if len(values) > 1 and spread_of(values) > SPREAD:
        return values
    if not values or not others:
        return None
    own = statistics.median(values)
    every = [own, *others]
    agreed = agreeing(every)
    if 2 * len(agreed) <= len(every):
        return every
    if not agreed[0] <= own <= agreed[-1]:
        return [own, min(agreed, key=lambda value: abs(value - own))]
    values = values + [statistics.median(agreed)]
    return values if spread_of(values) > SPREAD else None


def why_void(samples, references, metric, label, elsewhere=()):
    """Why this group says nothing of this metric, or None. `elsewhere`: lists of what a reference took in the other turns of the same pair."""
    for sample in samples:
        if sample["foreign"] > FOREIGN:
            return "others took %.2f processors while %s was measured" % (sample["foreign"], label(sample["who"]))
        if sample["dirty"] > DIRTY_MIB:
            return "%.0f MiB of others were still dirty before %s" % (sample["dirty"], label(sample["who"]))
    for reference in references:
        values = [s["values"][metric] for s in samples if s["who"] == reference and metric in s["values"]]
        others = [statistics.median(seen[reference]) for seen in elsewhere if seen.get(reference)]
        apart = spread_in(values, others)
        if apart:
            return "%s took %.3g to %.3g" % (label(reference), min(apart), max(apart))
    return None
