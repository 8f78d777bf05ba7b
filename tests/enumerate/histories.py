#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The enumerator on volumes in its own process, on real mounts, or on an ordinary directory.

    histories.py BUILD [--on volume|mount|directory] [--jobs N] [--passthrough on|off] [what `enumerate` takes]

With --jobs each process takes its share of all histories. What it makes lies under TMPDIR, or in memory for a volume. Exit code 1 where
a history was not as it must be.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
MEMORY = "/dev/shm"


def on_a_mount(base, program, passthrough, arguments):
    from conftest import Mount  # it wants pytest, which nothing else here does
    from on_mount import enumerate_on

    (base / "m").mkdir()
    mount = Mount(base / "m", {"passthrough": passthrough, "settle": "24h"})
    mount.mount()
    try:
        return enumerate_on(mount, program, *arguments)[0]
    finally:
        if mount.process:
            mount.unmount()


def one(args, program, arguments):
    memory = MEMORY if args.on == "volume" and os.path.isdir(MEMORY) else None
    base = pathlib.Path(tempfile.mkdtemp(prefix="epochfs-enumerate-", dir=memory))
    try:
        if args.on == "mount":
            return on_a_mount(base, program, args.passthrough, arguments)
        more = ["--passthrough", args.passthrough] if args.on == "volume" else []
        return subprocess.run([program, "--on", args.on, *more, *arguments, base], check=False).returncode
    finally:
        shutil.rmtree(base, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--on", default="volume", choices=["volume", "mount", "directory"])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--passthrough", default="on", choices=["on", "off"])
    args, arguments = parser.parse_known_args()
    os.environ.setdefault("EPOCHFS_BIN", str(args.build.resolve() / "epochfs"))
    program = args.build.resolve() / "tests/enumerate/enumerate"
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        shares = [["--shard", "%d/%d" % (i, args.jobs)] if args.jobs > 1 else [] for i in range(args.jobs)]
        codes = list(pool.map(lambda share: one(args, program, arguments + share), shares))
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
