#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What epochfs costs on top of a server: an epoch uploaded and read back cold, against the same server's
bare PUTs and ranged GETs, turn by turn in one run; and against the same with what epochfs never goes without:
the SHA-256 of what is put, for the server to check, and of what came, which lies on the disk then.

    tests/bench/remotes.py BUILD/epochfs [--mib N] [--turns N] [SERVER...]

The bare server is asked by curl, 8 connections at once, 32 MiB an object. The data is
incompressible. Before each turn free memory is touched once: what the host of a virtual machine takes to
find it, up to a second a GiB, is nobody's. Prints seconds (median and spread), the ratios of the medians,
and the CPU seconds a GiB of either client and of the server.
"""

import argparse
import concurrent.futures
import hashlib
import json
import mmap
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.fspath(pathlib.Path(__file__).resolve().parents[1] / "remotes"))

from server import ServerMissing  # noqa: E402
from servers import SERVERS  # noqa: E402

CONNECTIONS, OBJECT_MIB = 8, 32
COMPETITORS = ("bare", "checked", "epochfs")
TICKS = os.sysconf("SC_CLK_TCK")
WARM_MIB = 4 << 10


def warm_up(mib=WARM_MIB):
    """Makes sure that so much of the free memory has a host's memory behind it."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, mib << 20, flags).close()


def cpu_of(pid):
    """User and system seconds of a process so far."""
    fields = pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def timed(work):
    """Seconds, and the CPU seconds of this process and its children."""
    def cpu():
        return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)))
    warm_up()
    before, started = cpu(), time.monotonic()
    work()
    return time.monotonic() - started, cpu() - before


RANGE = ['range = "0-%d"' % ((OBJECT_MIB << 20) - 1)]


class Bare:
    """The server as curl sees it."""
    name = "bare"

    def __init__(self, server, folder, mib):
        self.server = server
        self.folder = folder
        self.count = mib // OBJECT_MIB
        self.objects = []
        for number in range(self.count):
            path = folder / ("%s%d" % (self.name, number))
            path.write_bytes(os.urandom(OBJECT_MIB << 20))
            self.objects.append(path)

    def run(self, turn, options, sums=None):
        """One curl with a transfer an object; `options` makes its lines."""
        config = self.folder / "curl.config"
        part = []
        for number, path in enumerate(self.objects):
            base, arguments = self.server.curl(sums[number] if sums else None)
            lines = ['url = "%s/%s-%d-%d"' % (base, self.name, turn, number), *options(path), "fail",
                     "no-progress-meter", "max-time = 600", *arguments]
            part.append("\n".join(lines))
        config.write_text("\nnext\n".join(part))
        subprocess.run(["curl", "--no-progress-meter", "--parallel", "--parallel-immediate", "--parallel-max", str(CONNECTIONS), "-K", config],
                       check=True, stdout=subprocess.DEVNULL)

    def put(self, turn):
        for path in self.objects:
            path.write_bytes(os.urandom(OBJECT_MIB << 20))
        return timed(lambda: self.run(turn, lambda path: ['upload-file = "%s"' % path]))

    def get(self, turn):
        return timed(lambda: self.run(turn, lambda path: [*RANGE, 'output = "/dev/null"']))


class Checked(Bare):
    """The same, and each object's SHA-256."""
    name = "checked"

    def sums(self, paths):
        def sum_of(path):
            with open(path, "rb") as f:
                return hashlib.file_digest(f, "sha256").hexdigest()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(sum_of, paths))

    def put(self, turn):
        for path in self.objects:
            path.write_bytes(os.urandom(OBJECT_MIB << 20))
        return timed(lambda: self.run(turn, lambda path: ['upload-file = "%s"' % path], self.sums(self.objects)))

    def get(self, turn):
        copies = [path.with_suffix(".copy") for path in self.objects]

        def restore():
            self.run(turn, lambda path: [*RANGE, 'output = "%s"' % path.with_suffix(".copy")])
            return self.sums(copies)
        figures = timed(restore)
        for copy in copies:
            copy.unlink()
        return figures


class Epochfs:
    """The same bytes as a volume's epoch."""

    def __init__(self, program, server, folder, objects):
        self.program, self.server, self.folder, self.objects = program, server, folder, objects
        self.env = {**os.environ, **server.env(), "EPOCHFS_SETTLE": "1h"}
        self.point = folder / "mnt"
        self.point.mkdir()

    def run(self, *words):
        done = subprocess.run([self.program, *map(os.fspath, words)], env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError("epochfs %s: %s" % (words, done.stderr))
        return done.stdout

    def mount(self, turn, cache):
        # All of it is put while it is measured, nothing ahead of that.
        self.run("mount", "-o", "cache-dir=%s,connections=%d,min-free=0,upload-ahead=0" % (self.folder / cache, CONNECTIONS),
                 self.server.url("turn%d" % turn), self.point)
        return json.loads(self.run("status", "--json", self.point))["pid"]

    def umount(self, *caches):
        self.run("umount", self.point)
        for cache in caches:
            shutil.rmtree(self.folder / cache)

    def put(self, turn):
        pid = self.mount(turn, "writer")
        # New bytes each turn, so that nothing of it is stored already.
        for path in self.objects:
            path.write_bytes(os.urandom(OBJECT_MIB << 20))
            shutil.copyfile(path, self.point / path.name)
        warm_up()
        before, started = cpu_of(pid), time.monotonic()
        self.run("commit", self.point)
        self.run("wait", self.point)
        figures = time.monotonic() - started, cpu_of(pid) - before
        self.umount("writer")
        return figures

    def get(self, turn):
        pid = self.mount(turn, "reader")
        warm_up()
        before, started = cpu_of(pid), time.monotonic()
        readers = [subprocess.Popen(["cat", *self.objects_of(n)], stdout=subprocess.DEVNULL) for n in range(4)]
        if any(reader.wait() for reader in readers):
            raise RuntimeError("a file cannot be read")
        figures = time.monotonic() - started, cpu_of(pid) - before
        self.umount("reader")
        return figures

    def objects_of(self, reader):
        return [self.point / path.name for path in self.objects[reader::4]]


def median(figures, index):
    return statistics.median(f[index] for f in figures)


def seconds(figures):
    column = [f[0] for f in figures]
    return "%.2f (%.2f–%.2f)" % (statistics.median(column), min(column), max(column))


def line(what, figures, mib):
    """One row of the table, from (seconds, CPU of the client, CPU of the server) a turn of each."""
    base, checked, own = (median(figures[name], 0) for name in COMPETITORS)
    cells = [what, *(seconds(figures[name]) for name in COMPETITORS), "%.2f" % (own / base), "%.2f" % (own / checked)]
    for index in (1, 2):
        cells.append(" / ".join("%.2f" % (median(figures[name], index) / mib * 1024) for name in COMPETITORS))
    return "| %s |" % " | ".join(cells)


def measure(program, kind, folder, mib, turns):
    folder = pathlib.Path(folder)
    with SERVERS[kind](folder / "server", memory=(3 * turns + 2) * mib << 20) as server:
        bare = Bare(server, folder, mib)
        who = dict(zip(COMPETITORS, (bare, Checked(server, folder, mib), Epochfs(program, server, folder, bare.objects))))
        for what in ("put", "get"):
            figures = {name: [] for name in COMPETITORS}
            for turn in range(turns):
                for name in COMPETITORS:
                    before = sum(cpu_of(p.pid) for p in server.processes)
                    figures[name].append((*getattr(who[name], what)(turn), sum(cpu_of(p.pid) for p in server.processes) - before))
            print(line("%s %s" % (kind, what), figures, mib), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("servers", nargs="*", default=["lighttpd", "rgw"])
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_intermixed_args()
    print("| %d MiB | bare s | checked s | epochfs s | to bare | to checked | client's CPU s/GiB | server's CPU s/GiB |" % options.mib)
    print("|---|---|---|---|---|---|---|---|")
    for kind in options.servers:
        with tempfile.TemporaryDirectory(prefix="epochfs-bench-") as folder:
            try:
                measure(os.path.realpath(options.program), kind, folder, options.mib, options.turns)
            except ServerMissing as error:
                print("| %s | skipped: %s |" % (kind, error))


if __name__ == "__main__":
    sys.exit(main())
