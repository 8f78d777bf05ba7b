# SPDX-License-Identifier: Apache-2.0
"""Runs the enumerator on a mount, and mounts anew when it asks for that."""

import subprocess


def enumerate_on(mount, program, *arguments, say=print):
    """mount: conftest's. Its exit code, and all it said."""
    command = [program, "--on", "mount", "--remounts", *map(str, arguments), str(mount.path)]
    said = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            if line.startswith("remount "):
                mount.remount(empty_cache="cold" in line)
                process.stdin.write("\n")
                process.stdin.flush()
            else:
                said.append(line)
                say(line.rstrip("\n"))
    return process.returncode, "".join(said)
