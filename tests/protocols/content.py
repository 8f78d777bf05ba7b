# SPDX-License-Identifier: Apache-2.0
"""Bytes for the files of a protocol: no two files have the same, and what is named like a well-known format is one."""

import hashlib
import io
import json
import struct
import zipfile

ZIP = (".pt", ".pth", ".ckpt", ".bin", ".pth.tar", ".pt2", ".npz", ".keras", ".tar")
STAMP = (1980, 1, 1, 0, 0, 0)


def noise(seed, size):
    return hashlib.shake_128(seed.encode()).digest(size)


def npy(seed, size):
    head = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }"
    length = size - 128
    text = (head % length).ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + noise(seed, length)


def zipped(seed, size, member, inner):
    """A zip of exactly this size with one stored member."""
    def made(length):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as file:
            file.writestr(zipfile.ZipInfo(member, STAMP), inner(seed, length))
        return out.getvalue()
    least = 256
    return made(least + size - len(made(least)))


def safetensors(seed, size):
    def head(length):
        text = json.dumps({"w": {"dtype": "U8", "shape": [length], "data_offsets": [0, length]}}, separators=(",", ":"))
        return text.ljust(120).encode()
    length = size - 128
    return struct.pack("<Q", 120) + head(length) + noise(seed, length)


def text(seed, size):
    word = '{"state": "%s"}' % hashlib.sha1(seed.encode()).hexdigest()
    return (word[:-1] + " " * (size - len(word)) + "}").encode() if size >= len(word) else noise(seed, size).hex()[:size].encode()


def make(seed, path, size):
    """`size` bytes for a file of this name; `seed`: a text of which they depend."""
    name = path.rsplit("/", 1)[-1]
    for ending in (".tmp", ".part", ".partial", "~"):
        name = name.removesuffix(ending)
    if name.endswith((".json", ".txt", ".yaml", ".index")):
        return text(seed, size)
    if size < 1024:
        return noise(seed, size)
    if name.endswith(".npz"):
        return zipped(seed, size, "arr_0.npy", npy)
    if name.endswith(ZIP):
        return zipped(seed, size, "archive/data/0", noise)
    if name.endswith(".npy"):
        return npy(seed, size)
    if name.endswith(".safetensors"):
        return safetensors(seed, size)
    return noise(seed, size)
