#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A volume on a distributed engine that loses parts while it is used: nothing may be lost.

    tests/scale/scale.py BUILD/epochfs [--mib N]

An OSD and a gateway are killed while epochs are uploaded; they come back; another OSD and the other
gateway are killed while a machine with an empty cache restores. Then every byte is compared, and
fsck reads all data. Then eight nodes write one checkpoint (nodes.py). Prints what happened; exit code 1 where a byte or an epoch is missing.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from cluster import Cluster
from nodes import nodes_through_failures

FILE_MIB = 64


class Scale:
    def __init__(self, program, folder, cluster):
        self.program = program
        self.folder = pathlib.Path(folder)
        self.cluster = cluster
        self.url = cluster.url("scale")
        self.env = {**os.environ, **cluster.env(), "EPOCHFS_SETTLE": "1h"}
        self.started = time.monotonic()
        self.hashes = {}

    def say(self, text):
        print("%6.1f s  %s" % (time.monotonic() - self.started, text), flush=True)

    def epochfs(self, *words, check=True):
        done = subprocess.run([self.program, *map(os.fspath, words)], env=self.env, capture_output=True, text=True,
                              check=False)
        if check and done.returncode:
            raise RuntimeError("epochfs %s: exit code %d\n%s%s" % (words, done.returncode, done.stdout, done.stderr))
        return done

    def mount(self, name):
        """Mounts with a cache of this name: the mount point."""
        point, cache = self.folder / ("mnt-" + name), self.folder / ("cache-" + name)
        point.mkdir(exist_ok=True)
        self.epochfs("mount", "-o", "cache-dir=%s" % cache, self.url, point)
        return point

    def umount(self, point):
        self.epochfs("umount", point)

    def upload(self, point):
        return json.loads(self.epochfs("status", "--json", point).stdout)["upload"]

    def wait_uploading(self, point, part):
        """Until this part of what is pending is uploaded."""
        def there():
            u = self.upload(point)
            return u["bytes_total"] and u["bytes_done"] > part * u["bytes_total"]
        self.cluster.wait(there, "the upload to be on its way")

    def save(self, point, epoch, mib):
        """A checkpoint: most of it new, a file of it as it was."""
        folder = point / "ckpt"
        folder.mkdir(exist_ok=True)
        (folder / "frozen").write_bytes(b"the same in every epoch" * 100000)
        for number in range(max(1, mib // FILE_MIB)):
            (folder / ("shard%d" % number)).write_bytes(os.urandom(min(mib, FILE_MIB) << 20))
        self.hashes[epoch] = hash_tree(folder)
        self.epochfs("commit", "--step", str(epoch), point)

    def compare(self, root, epoch, where):
        found = hash_tree(root)
        if found != self.hashes[epoch]:
            wrong = sorted(n for n in set(found) | set(self.hashes[epoch]) if found.get(n) != self.hashes[epoch].get(n))
            raise RuntimeError("%s: epoch %d differs: %s" % (where, epoch, wrong))


def hash_file(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while part := f.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def hash_tree(root):
    files = [p for p in sorted(pathlib.Path(root).rglob("*")) if p.is_file()]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return dict(zip((os.fspath(p.relative_to(root)) for p in files), pool.map(hash_file, files)))


def upload_through_failures(scale, mib):
    cluster = scale.cluster
    point = scale.mount("writer")
    try:
        scale.save(point, 1, mib)
        scale.wait_uploading(point, 0.1)
        cluster.kill_osd(0)
        scale.say("killed OSD 0 during the upload: %s" % scale.upload(point))
        scale.wait_uploading(point, 0.4)
        cluster.kill_gateway(0)
        scale.say("killed gateway 0 during the upload: %s" % scale.upload(point))
        scale.save(point, 2, mib)
        scale.epochfs("wait", "--timeout", "300s", point)
        scale.say("two epochs are durable without OSD 0 and gateway 0")
    finally:
        scale.umount(point)


def restore_through_failures(scale):
    cluster = scale.cluster
    cluster.start_osd(0)
    cluster.wait_osds(cluster.osd_count)
    cluster.start_one_gateway(0)
    cluster.wait_clean()
    scale.say("OSD 0 and gateway 0 are back, and every object is there twice")
    point = scale.mount("reader")
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            first = pool.submit(scale.compare, point / ".epochs" / "000001" / "ckpt", 1, "cold mount")
            second = pool.submit(scale.compare, point / "ckpt", 2, "cold mount")
            cluster.kill_osd(1)
            cluster.kill_gateway(1)
            scale.say("killed OSD 1 and gateway 1 during the restore")
            first.result()
            second.result()
    finally:
        scale.umount(point)
    scale.say("a mount with an empty cache has both epochs, byte for byte")
    scale.epochfs("export", "%s@1" % scale.url, scale.folder / "out")
    scale.compare(scale.folder / "out" / "ckpt", 1, "export")
    scale.say("so has an export; fsck --read-data says:")
    print(scale.epochfs("fsck", "--read-data", scale.url).stdout.strip())


def all_is_back(scale):
    scale.cluster.start_osd(1)
    scale.cluster.wait_osds(scale.cluster.osd_count)
    scale.cluster.start_one_gateway(1)
    scale.cluster.wait_clean()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--mib", type=int, default=512, help="MiB of new data an epoch")
    parser.add_argument("--nodes-only", action="store_true", help="only the eight nodes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="epochfs-scale-") as folder:
        with Cluster(os.path.join(folder, "cluster")) as cluster:
            scale = Scale(os.path.realpath(options.program), folder, cluster)
            scale.say("%d OSDs at size 2, %d gateways" % (cluster.osd_count, cluster.gateway_count))
            try:
                if not options.nodes_only:
                    upload_through_failures(scale, options.mib)
                    restore_through_failures(scale)
                    all_is_back(scale)
                nodes_through_failures(scale)
            except RuntimeError as error:
                print(error, file=sys.stderr)
                return 1
    print("nothing was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
