# SPDX-License-Identifier: Apache-2.0
"""What the daemons of a soak hold while all stands still, and whether it grows."""

import os
import pathlib
import re

MIB = 1 << 20

# What may be more at a later rest than at the first: the part of it, and an amount. Work goes on between two rests, so a leak
# of a few bytes a request, of a descriptor an epoch, or of a row a file adds up beyond these in minutes, while the caches that
# are bounded by design (SQLite's pages, some trees, malloc's own) are full after the first half. Medians of the last
# three rests count, so one that fell on an unlucky moment decides nothing.
MAY_GROW = {
    "rss": (0.15, 24 * MIB),
    "data": (0.15, 48 * MIB),
    "fds": (0, 16),  # the state keeps up to four connections that read, of three descriptors each
    "pidfds": (0, 128),  # of processes that had files open: so many are remembered before those that ended are looked for
    "threads": (0, 4),
    "cache": (0.2, 16 * MIB),
    "objects": (0.3, 100),
    "state": (0.3, 8 * MIB),
    "remote": (0.4, 16 * MIB),  # beyond what its epochs may hold
}
MEMORY = ("rss", "data")
# What an epoch may hold alone. How many stay is a matter of chance: incomplete ones, until a whole one comes after them.
EPOCH = 11 * MIB


PIDFD = "anon_inode:[pidfd]"


def kind_of(descriptor):
    """What it leads to; None where it was closed meanwhile."""
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:
        return None


def of_process(pid, name):
    proc = pathlib.Path("/proc", str(pid))
    status = (proc / "status").read_text()
    kinds = [kind_of(proc / "fd" / n) for n in os.listdir(proc / "fd")]
    return {
        name + "rss": int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024,
        name + "data": int(re.search(r"VmData:\s+(\d+)", status)[1]) * 1024,
        name + "fds": len([k for k in kinds if k != PIDFD]),
        name + "pidfds": kinds.count(PIDFD),
        name + "threads": int(re.search(r"Threads:\s+(\d+)", status)[1]),
    }


def size(folder):
    """Bytes on the disk, and files."""
    total = files = 0
    for base, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(base, name)).st_blocks * 512
                files += 1
            except FileNotFoundError:
                continue
    return total, files


def sample(soak):
    """The figures now, of the mount that writes and of the one that follows."""
    found = {**of_process(soak.main.process.pid, ""), **of_process(soak.follower.process.pid, "follower ")}
    for mount, name in ((soak.main, ""), (soak.follower, "follower ")):
        (folder,) = [p for p in mount.options["cache-dir"].iterdir() if (p / "state.db").exists()]
        found[name + "cache"], found[name + "objects"] = size(folder / "objects")
        found[name + "state"] = sum(p.stat().st_size for p in folder.glob("state.db"))
    found["remote"] = max(0, size(soak.remote)[0] - EPOCH * len(soak.epochs()))
    return found


def tell(figures):
    return ", ".join("%s %s" % (k, "%.1f MiB" % (v / MIB) if v > 100000 else v) for k, v in figures.items())


def growth(rests, san):
    """What grew from the first rests to the last, in words."""
    if len(rests) < 3:
        return []
    wrong = []
    for name, first in rests[0].items():
        kind = name.split(" ")[-1]
        part, amount = MAY_GROW[kind]
        last = sorted(r[name] for r in rests[-3:])[1]
        if last > first * (1 + part) + amount and not (san and kind in MEMORY):
            wrong.append("%s grew: %s" % (name, ", ".join(str(r[name]) for r in rests)))
    return wrong


def reports(base):
    return ["%s:\n%s" % (p.name, p.read_text(errors="replace")[:4000]) for p in sorted((base / "reports").iterdir())]
