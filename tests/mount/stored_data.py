# SPDX-License-Identifier: Apache-2.0
"""The data of a mount where it is stored, in the cache and in the remote's packs: counted, taken away, damaged, read page by page."""

import contextlib
import errno
import hashlib
import os
import re

MIB = 1 << 20


def file_bytes(path):
    """What a file really takes; nothing where it has just gone."""
    try:
        return os.lstat(path).st_blocks * 512
    except FileNotFoundError:
        return 0


def folder_bytes(path):
    """What the files below really take."""
    return sum(file_bytes(os.path.join(top, name)) for top, _, names in os.walk(path) for name in names)


def cached(volume):
    return sum(folder_bytes(path) for path in volume.cache.glob("*/objects"))


def bytes_read(volume):
    """All that the daemon has read so far, from wherever."""
    with open("/proc/%d/io" % volume.pid, encoding="ascii") as f:
        return int(re.search(r"^rchar: (\d+)", f.read(), re.M).group(1))


def packs(volume):
    return sorted(p for p in (volume.remote / "packs").rglob("*") if p.is_file())


def digest(path):
    done = hashlib.sha256()
    with open(path, "rb", buffering=0) as f:
        while True:
            part = f.read(MIB)
            if not part:
                return done.hexdigest()
            done.update(part)


@contextlib.contextmanager
def away(path):
    """What lies there is somewhere else for a while."""
    aside = path.with_name(path.name + ".away")
    os.rename(path, aside)
    try:
        yield
    finally:
        os.rename(aside, path)


def flip(path, other):
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        byte = f.read(1)[0]
        f.seek(-1, 1)
        f.write(bytes([byte ^ 4]))


def read_pages(path, size):
    """What each page gives: its bytes, or None for EIO; anything else fails."""
    pages = []
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for offset in range(0, size, 4096):
            try:
                pages.append(os.pread(fd, 4096, offset))
            except OSError as error:
                assert error.errno == errno.EIO
                pages.append(None)
    finally:
        os.close(fd)
    return pages


def told(volume, *words):
    """Whether a line of the log has all these words."""
    lines = volume.log.read_text(errors="replace").splitlines()
    return any(all(word in line for word in words) for line in lines)
