# SPDX-License-Identifier: Apache-2.0
"""Runs the enumerator on a mount; mounts again, and makes it evict, when it asks for that."""

import errno
import os
import subprocess

# Of a mount that can be made to evict: more than all histories of a batch take, and who is refused room is so at once.
CACHE_BYTES = 64 << 20
EVICTS = {"cache_size": "64M", "full": "error"}


def evict(mount):
    """All that is durable and that nobody uses leaves the cache: a file asks for all of it, of which another one has some already."""
    latest = mount.status()["epochs"]["latest"]
    if latest:
        mount.request("wait", epoch=latest)
    other, path = mount.path / "other", mount.path / "room"
    other.write_bytes(bytes(1 << 16))  # closed, so that it counts, and no epoch has it
    with open(path, "wb") as f:
        try:
            os.posix_fallocate(f.fileno(), 0, CACHE_BYTES)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        else:
            raise AssertionError("a file got more room than there is")
    os.unlink(path)
    os.unlink(other)


def enumerate_on(mount, program, *arguments, say=print):
    """mount: conftest's. Its exit code, and all it said."""
    evicts = ["--evicts"] if "cache_size" in mount.options else []
    command = [program, "--on", "mount", "--remounts", *evicts, *map(str, arguments), str(mount.path)]
    said = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            if line.startswith("remount ") or line == "evict\n":
                if line == "evict\n":
                    evict(mount)
                else:
                    mount.remount(empty_cache="cold" in line)
                process.stdin.write("\n")
                process.stdin.flush()
            else:
                said.append(line)
                say(line.rstrip("\n"))
    return process.returncode, "".join(said)
