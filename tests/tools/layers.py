#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what each C file includes and calls: dependencies point down only.

    tests/tools/layers.py [BUILD]

A file in a room may include only its own room's headers and those of the rooms below that MAY
names; project headers are named from the repository's root; a .c file that has a header includes
it first, or one of its room that includes it. With the folder of the objects (build), what each
object takes from others is held against the same rule, whoever declares it: nm tells. Prints each
offence and exits 1 where there is one.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

BOTTOM = {"lib/util", "lib/format", "lib/remote", "lib/net", "lib/store", "lib/state", "lib/meta", "lib/saves"}
MOUNT = {"lib/cache", "lib/live", "lib/epochs", "lib/upload"}
MAY = {
    "lib/util": set(),
    "lib/format": {"lib/util"},
    "lib/remote": {"lib/util"},
    "lib/net": {"lib/remote", "lib/util"},
    "lib/store": {"lib/remote", "lib/format", "lib/util"},
    "lib/state": {"lib/util"},
    "lib/meta": {"lib/state", "lib/store", "lib/remote", "lib/format", "lib/util"},
    # Names of files are rules of lib/meta; all else of it is the engine's.
    "lib/saves": {"lib/meta", "lib/util"},
    "lib/cache": BOTTOM,
    "lib/live": BOTTOM | {"lib/cache"},
    "lib/epochs": BOTTOM | {"lib/cache", "lib/live"},
    "lib/upload": BOTTOM | {"lib/cache", "lib/live", "lib/epochs"},
    "lib/volume": BOTTOM | MOUNT,
    "lib/import": BOTTOM | MOUNT | {"lib/volume"},
    "lib/metrics": BOTTOM | MOUNT | {"lib/volume"},
    "lib/admin": BOTTOM | MOUNT | {"lib/volume"},
    # What these hand out, entries, names and options, is of lib/format and lib/meta: pure data.
    "fs": {"lib/volume", "lib/epochs", "lib/live", "lib/cache", "lib/meta", "lib/format", "lib/util"},
    "tools": {"fs", "lib/admin", "lib/import", "lib/metrics", "lib/volume", "lib/meta", "lib/format", "lib/util"},
}
# Where one file may look deeper than its room.
MAY_FILE = {
    "fs/control_file": {"lib/admin"},  # the requests of the command come through a file
    "lib/admin/control.": {"lib/metrics"},  # the same numbers for the command
    "tools/explain.": {"lib/saves"},  # prints the tables of its rules: data alone
    "tools/main": {"lib/remote"},  # what of a URL is a secret
    "tools/caches": {"lib/cache"},  # where caches lie
    "tools/mount.": {"lib/cache"},  # likewise
    "tools/scrub": {"lib/remote"},  # what of a URL is a secret
    "tools/waiting": {"lib/remote"},  # likewise
    "tools/mountpoint": {"lib/remote"},  # which directory a URL names
    "tools/fsck": {"lib/store", "lib/remote"},
}
SOURCES = ("lib/*/*.[ch]", "fs/*.[ch]", "tools/*.[ch]")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def room_of(path):
    parts = pathlib.PurePath(path).parts
    return "/".join(parts[:2]) if parts[0] == "lib" else parts[0]


def may(name, room):
    allowed = MAY[room] | {room}
    for prefix, more in MAY_FILE.items():
        if name.startswith(prefix):
            allowed = allowed | more
    return allowed


def offences(path):
    name = path.relative_to(ROOT).as_posix()
    room, includes = room_of(name), INCLUDE.findall(path.read_text())
    allowed = may(name, room)
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


def symbols(build):
    """(source, name, whether it is defined there) of all objects."""
    objects = {}
    for pattern in SOURCES:
        for path in ROOT.glob(pattern.replace("[ch]", "c")):
            source = path.relative_to(ROOT)
            objects[build / source.with_suffix(".o")] = source.as_posix()
    missing = [str(o) for o in objects if not o.is_file()]
    if missing:
        sys.exit("layers.py: %s is not there: make all first" % missing[0])
    text = subprocess.run(["nm", "-A", *objects], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        where, _, rest = line.partition(":")
        kind, name = rest.split()[-2:]
        if kind in "TDBRVWU":
            yield objects[pathlib.Path(where)], name, kind != "U"


def calls(build):
    rows = list(symbols(build))
    home = {name: source for source, name, defined in rows if defined}
    for source, name, defined in rows:
        if defined or name not in home:
            continue
        room, other = room_of(source), room_of(home[name])
        if other not in may(source, room):
            yield "%s: %s may not use %s of %s (%s)" % (source, room, name, other, home[name])


def main():
    found = []
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            if room_of(path.relative_to(ROOT)) not in MAY:
                found.append("%s: a room that layers.py does not know" % path.relative_to(ROOT))
                continue
            found += offences(path)
    if len(sys.argv) > 1 and not found:
        found += sorted(set(calls(pathlib.Path(sys.argv[1]).resolve())))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
