#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What epochfs costs on top of a server: an epoch uploaded and read back cold, against the same server's
bare PUTs and ranged GETs, turn by turn in one run.

    tests/bench/remotes.py BUILD/epochfs [--mib N] [--turns N] [SERVER...]

The bare server is asked by curl, 8 connections at once, 32 MiB an object. The data is
incompressible. Prints seconds (median and spread), the ratio of the medians, and the CPU seconds a
GiB of either client and of the server.
"""

import argparse
import json
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
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_of(pid):
    """User and system seconds of a process so far."""
    fields = pathlib.Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Bare:
    """The server as curl sees it."""

    def __init__(self, server, folder, mib):
        self.base, self.arguments = server.curl()
        self.folder = folder
        self.count = mib // OBJECT_MIB
        self.objects = []
        for number in range(self.count):
            path = folder / ("object%d" % number)
            path.write_bytes(os.urandom(OBJECT_MIB << 20))
            self.objects.append(path)

    def run(self, turn, options):
        """One curl with a transfer an object; `options` makes its lines."""
        config = self.folder / "curl.config"
        part = []
        for number, path in enumerate(self.objects):
            lines = ['url = "%s/bare-%d-%d"' % (self.base, turn, number), *options(path), "fail",
                     "no-progress-meter", "max-time = 600", *self.arguments]
            part.append("\n".join(lines))
        config.write_text("\nnext\n".join(part))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.monotonic()
        subprocess.run(["curl", "--no-progress-meter", "--parallel", "--parallel-immediate", "--parallel-max", str(CONNECTIONS), "-K", config],
                       check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - started
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def put(self, turn):
        return self.run(turn, lambda path: ['upload-file = "%s"' % path])

    def get(self, turn):
        return self.run(turn, lambda path: ['range = "0-%d"' % ((OBJECT_MIB << 20) - 1), 'output = "/dev/null"'])


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
        self.run("mount", "-o", "cache-dir=%s,connections=%d,min-free=0" % (self.folder / cache, CONNECTIONS),
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
        before, started = cpu_of(pid), time.monotonic()
        self.run("commit", self.point)
        self.run("wait", self.point)
        figures = time.monotonic() - started, cpu_of(pid) - before
        self.umount("writer")
        return figures

    def get(self, turn):
        pid = self.mount(turn, "reader")
        before, started = cpu_of(pid), time.monotonic()
        readers = [subprocess.Popen(["cat", *self.objects_of(n)], stdout=subprocess.DEVNULL) for n in range(4)]
        if any(reader.wait() for reader in readers):
            raise RuntimeError("a file cannot be read")
        figures = time.monotonic() - started, cpu_of(pid) - before
        self.umount("reader")
        return figures

    def objects_of(self, reader):
        return [self.point / path.name for path in self.objects[reader::4]]


def line(what, bare, ours, server_cpu, mib):
    """One row of the table: seconds and CPU of both sides, from (seconds, cpu) a turn."""
    def column(figures, index):
        return [f[index] for f in figures]
    gib = mib / 1024
    base, own = statistics.median(column(bare, 0)), statistics.median(column(ours, 0))
    return "| %s | %.2f (%.2f–%.2f) | %.2f (%.2f–%.2f) | %.2f | %.2f | %.2f | %.2f / %.2f |" % (
        what, base, min(column(bare, 0)), max(column(bare, 0)), own, min(column(ours, 0)), max(column(ours, 0)), own / base,
        statistics.median(column(bare, 1)) / gib, statistics.median(column(ours, 1)) / gib,
        statistics.median(server_cpu["bare"]) / gib, statistics.median(server_cpu["epochfs"]) / gib)


def measure(program, kind, folder, mib, turns):
    folder = pathlib.Path(folder)
    with SERVERS[kind](folder / "server", memory=(2 * turns + 2) * mib << 20) as server:
        bare = Bare(server, folder, mib)
        ours = Epochfs(program, server, folder, bare.objects)
        for what in ("put", "get"):
            figures = {"bare": [], "epochfs": []}
            server_cpu = {"bare": [], "epochfs": []}
            for turn in range(turns):
                for name, who in (("bare", bare), ("epochfs", ours)):
                    before = sum(cpu_of(p.pid) for p in server.processes)
                    figures[name].append(getattr(who, what)(turn))
                    server_cpu[name].append(sum(cpu_of(p.pid) for p in server.processes) - before)
            print(line("%s %s" % (kind, what), figures["bare"], figures["epochfs"], server_cpu, mib), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("servers", nargs="*", default=["lighttpd", "rgw"])
    parser.add_argument("--mib", type=int, default=2048)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_intermixed_args()
    print("| %d MiB | bare s | epochfs s | ratio | bare CPU s/GiB | epochfs CPU s/GiB | server CPU s/GiB, bare / epochfs |"
          % options.mib)
    print("|---|---|---|---|---|---|---|")
    for kind in options.servers:
        with tempfile.TemporaryDirectory(prefix="epochfs-bench-") as folder:
            try:
                measure(os.path.realpath(options.program), kind, folder, options.mib, options.turns)
            except ServerMissing as error:
                print("| %s | skipped: %s |" % (kind, error))


if __name__ == "__main__":
    sys.exit(main())
