#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what each C file includes: dependencies point down only.

    tests/tools/layers.py

A file in a room may include only its own room's headers and those of the rooms below that MAY
names; project headers are named from the repository's root; a .c file that has a header includes
it first, or one of its room that includes it. Prints each offence and exits 1 where there is one.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

MAY = {
    "lib/util": set(),
    "lib/format": {"lib/util"},
    "lib/remote": {"lib/util"},
    "lib/store": {"lib/remote", "lib/format", "lib/util"},
    "lib/volume": {"lib/store", "lib/remote", "lib/format", "lib/util"},
    # What the volume hands out, entries and names, is of lib/format: pure data.
    "fs": {"lib/volume", "lib/format", "lib/util"},
    "tools": {"fs", "lib/volume", "lib/util"},
}
# Where one file may look deeper than its room.
MAY_FILE = {
    "tools/argv": {"lib/remote"},  # what of a URL is a secret
    "tools/mountpoint": {"lib/remote"},  # which directory a URL names
    "tools/fsck": {"lib/store", "lib/format", "lib/remote"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def room_of(path):
    parts = pathlib.PurePath(path).parts
    return "/".join(parts[:2]) if parts[0] == "lib" else parts[0]


def offences(path):
    name = path.relative_to(ROOT).as_posix()
    room, includes = room_of(name), INCLUDE.findall(path.read_text())
    allowed = MAY[room] | {room}
    for prefix, more in MAY_FILE.items():
        if name.startswith(prefix):
            allowed = allowed | more
    for kind, target in includes:
        if kind == "<":
            continue
        if not (ROOT / target).is_file():
            yield '%s: "%s" is not named from the root, or is not there' % (name, target)
        elif room_of(target) not in allowed:
            yield "%s: %s may not include %s" % (name, room, target)
    own = path.with_suffix(".h")
    if path.suffix == ".c" and own.is_file():
        if not includes or includes[0][0] == "<" or room_of(includes[0][1]) != room:
            yield "%s: the first include is not its own header" % name


def main():
    found = []
    for pattern in ("lib/*/*.[ch]", "fs/*.[ch]", "tools/*.[ch]"):
        for path in sorted(ROOT.glob(pattern)):
            if room_of(path.relative_to(ROOT)) not in MAY:
                found.append("%s: a room that layers.py does not know" % path.relative_to(ROOT))
                continue
            found += offences(path)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
