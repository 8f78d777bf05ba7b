# SPDX-License-Identifier: Apache-2.0
"""What is compared of a file, and of a whole tree."""

import errno
import hashlib
import os
import stat

# A time that a test set itself lies before or after these; others are the clock's, which two places read at different moments.
CLOCK = range(1_600_000_000 * 10**9, 2_100_000_000 * 10**9)


def facts(st):
    """What POSIX defines of a stat; of a directory neither size nor links."""
    found = {"mode": "%o" % st.st_mode, "uid": st.st_uid, "gid": st.st_gid, "mtime": st.st_mtime_ns, "ctime": st.st_ctime_ns,
             "ino": st.st_ino}
    if not stat.S_ISDIR(st.st_mode):
        found["nlink"] = st.st_nlink
        found["size"] = st.st_size
    if stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
        found["rdev"] = st.st_rdev
    return found


def digest(path):
    whole, size = hashlib.sha256(), 0
    with open(path, "rb", buffering=0) as f:
        while part := f.read(1 << 20):
            whole.update(part)
            size += len(part)
    return size, whole.hexdigest()[:16]


def attempt(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]


def attributes(path):
    return {n: os.getxattr(path, n, follow_symlinks=False) for n in os.listxattr(path, follow_symlinks=False)
            if not n.startswith("user.epochfs.") and not n.startswith("security.")}


def describe(path, st):
    found = facts(st)
    if stat.S_ISREG(st.st_mode):
        found["content"] = attempt(digest, path)
        if isinstance(found["content"], tuple) and found["content"][0] != st.st_size:
            found["torn"] = "stat says %d bytes, %d are read" % (st.st_size, found["content"][0])
    elif stat.S_ISLNK(st.st_mode):
        found["target"] = os.readlink(path)
    found["xattrs"] = attempt(attributes, path)
    return found


def walk(top):
    """{path: facts, content, target and xattrs} of all below a directory, the directory itself as "."."""
    tree, folders = {".": describe(top, os.lstat(top))}, [""]
    while folders:
        folder = folders.pop()
        names = attempt(os.listdir, os.path.join(top, folder))
        if isinstance(names, str):
            tree[folder or "."]["list"] = names
            continue
        for name in names:
            path = os.path.join(folder, name)
            try:
                tree[path] = describe(os.path.join(top, path), os.lstat(os.path.join(top, path)))
            except OSError as error:
                tree[path] = {"mode": errno.errorcode[error.errno]}
                continue
            if stat.S_ISDIR(int(tree[path]["mode"], 8)):
                folders.append(path)
    return tree


def aliases(tree, loose=()):
    """The sets of names that are one file, but for those in LOOSE."""
    groups = {}
    for path, found in tree.items():
        if found.get("nlink", 1) > 1 and path not in loose:
            groups.setdefault(found["ino"], []).append(path)
    return sorted(sorted(paths) for paths in groups.values())


def differences(expected, found, unlike=(), times=False, loose=()):
    """Lines that say where two walks differ. Of the inodes (of EXPECTED) in UNLIKE neither size nor content is compared.
    TIMES: modification times are the same to the nanosecond. LOOSE: paths of files whose links are not compared."""
    lines = []
    for path in sorted(expected.keys() | found.keys()):
        a, b = expected.get(path), found.get(path)
        if a is None or b is None:
            lines.append("%s: %s" % (ascii(path), "is there" if a is None else "is missing"))
            continue
        keys = (a.keys() | b.keys()) - {"ino", "ctime", "mtime"} - ({"nlink"} if path in loose else set())
        if a.get("ino") in unlike:
            keys -= {"size", "content", "torn"}
        elif a.get("mode", "").isdigit() and stat.S_ISFIFO(int(a["mode"], 8)):
            pass  # what goes through it, the file system is not told
        elif times or a.get("mtime", 0) not in CLOCK or b.get("mtime", 0) not in CLOCK:
            keys.add("mtime")
        lines += ["%s: %s is %s, expected %s" % (ascii(path), key, b.get(key), a.get(key))
                  for key in sorted(keys) if a.get(key) != b.get(key)]
    if not lines and aliases(expected, loose) != aliases(found, loose):
        lines.append("names of one file are %s, expected %s" % (aliases(found, loose), aliases(expected, loose)))
    return lines
