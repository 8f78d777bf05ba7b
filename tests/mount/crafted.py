# SPDX-License-Identifier: Apache-2.0
"""Volumes that no epochfs would write: a remote directory put together byte by byte, as an attacker would who knows the formats (lib/format).

    v = Volume(remote)
    v.epoch(1, [entry(1, b"../escape", data=b"x")])      # whatever it is
    v.save()                                             # packs, index, records
"""

import hashlib
import json
import struct

DIR, REGULAR, SYMLINK, FIFO, SOCKET, CHAR, BLOCK, LINK = range(1, 9)
UUID = "00000000-1111-2222-3333-444444444444"
CHUNK = 4 << 20


def _crc_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out + bytes([n]))


def text(data):
    return varint(len(data)) + data + b"\0"


def sha256(data):
    return hashlib.sha256(data).digest()


# ---- chunks


def frame(plain_len, stored, codec=0):
    header = struct.pack("<3s6BH", b"EFC", 1, 0, 0, 1, codec, 1, int(codec == 0)) + varint(plain_len) + varint(len(stored))
    return header + struct.pack("<I", crc32c(header + stored)) + stored


def lz4_run(period, length):
    """An LZ4 block that says `period` over and over, `length` bytes in all: a literal, one match of any length, the last literals."""
    def count(n):
        return bytes([255]) * (n // 255) + bytes([n % 255])

    def token(literals, match):
        return bytes([min(literals, 15) << 4 | min(match, 15)])

    tail = (period * (2 + 12 // len(period)))
    tail = tail[(length - 12) % len(period):][:12]
    match = length - len(period) - 12 - 4
    out = token(len(period), match) + (count(len(period) - 15) if len(period) >= 15 else b"") + period
    out += struct.pack("<H", len(period)) + (count(match - 15) if match >= 15 else b"")
    return out + token(12, 0) + tail


# ---- trees


def xattrs(attributes):
    return b"".join(text(n) + varint(len(v)) + v for n, v in sorted(attributes.items()))


def entry(depth, name, kind=REGULAR, mode=0o644, uid=0, gid=0, mtime=1, group=0, attributes=None, data=b"", size=None, recipe=None,
          target=b"", device=(1, 3), flags=0, raw_attributes=None):
    """One entry as bytes; nothing is checked."""
    if kind == LINK:
        return bytes([LINK]) + varint(depth) + text(name) + varint(group)
    listed = raw_attributes if raw_attributes is not None else xattrs(attributes or {})
    out = bytes([kind]) + varint(depth) + text(name)
    out += bytes([flags | (1 if group else 0) | (2 if listed else 0)]) + varint(mode) + varint(uid) + varint(gid) + struct.pack("<q", mtime)
    out += (varint(group) if group else b"") + (varint(len(listed)) + listed if listed else b"")
    if kind in (CHAR, BLOCK):
        out += varint(device[0]) + varint(device[1])
    elif kind == SYMLINK:
        out += text(target)
    elif kind == REGULAR and recipe is not None:
        out += b"\2" + varint(size) + recipe
    elif kind == REGULAR:
        out += b"\1" + varint(len(data)) + data if data else b"\0"
    return out


ROOT = entry(0, b"", DIR, mode=0o755)


def tree(entries, count=None):
    body = b"EFT" + bytes([1, 0]) + b"".join(entries) + b"\0" + struct.pack("<I", len(entries) if count is None else count)
    return body + struct.pack("<I", crc32c(body))


# ---- contents


def recipe(segments, size=None, level=0):
    """Segments: (length, hash), or (length, None) for a hole."""
    total = sum(length for length, _ in segments) if size is None else size
    return b"EFR" + bytes([1, level]) + varint(total) + varint(len(segments)) + b"".join(
        varint(2 * length + 1) if h is None else varint(2 * length) + h for length, h in segments)


class Volume:
    def __init__(self, remote):
        self.remote = remote
        self.frames = []  # hash, frame, plain length
        self.placed = {}
        self.offset = 4
        self.records = {}
        self.put("epochfs.json", json.dumps({
            "format": 1, "uuid": UUID, "hash": "sha256", "created": "2026-11-22T10:00:00Z",
            "chunker": {"algorithm": "gear64", "min": 65536, "average": 262144, "max": 1048576}}))

    def put(self, key, data):
        path = self.remote / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)

    def chunk(self, plain, stored=None, codec=0, plain_len=None):
        """A chunk; `plain` may be its hash alone, where `stored` is what stands for it."""
        h = plain if stored is not None and len(plain) == 32 and plain_len else sha256(plain)
        if h not in self.placed:
            length = len(plain) if plain_len is None else plain_len
            data = frame(length, plain if stored is None else stored, codec)
            self.placed[h] = (self.offset, len(data), length)
            self.frames.append((h, data, length))
            self.offset += len(data)
        return h

    def run(self, period, length=CHUNK):
        """A chunk of one pattern over and over, stored in some KiB."""
        plain = (period * (length // len(period) + 1))[:length]
        return self.chunk(plain, lz4_run(period, length), codec=1)

    def content(self, segments, size=None, level=0):
        """The recipe's hash."""
        return self.chunk(recipe(segments, size, level))

    def epoch(self, number, entries, raw=None, chunks=None, tree_size=None, tree_hash=None, **fields):
        """A record and its tree: entries (the root is put in front), or the tree's bytes, or chunks as (hash, length)."""
        data = b"" if chunks else raw if raw is not None else tree([ROOT] + entries)
        chunks = chunks or [(self.chunk(data), len(data))]
        self.records[number] = (tree_hash or sha256(data), tree_size or sum(n for _, n in chunks), chunks, fields)

    def save(self):
        rows = b"".join(h + struct.pack("<II", len(data), plain) for h, data, plain in self.frames)
        pack = sha256(rows)
        footer = struct.pack("<QI", self.offset, len(self.frames))
        footer += struct.pack("<I", crc32c(rows + footer)) + b"EFPT\1\0\0\0"
        self.put("packs/%s/%s" % (pack.hex()[:2], pack.hex()), b"EFP\1" + b"".join(d for _, d, _ in self.frames) + rows + footer)
        index = b"EFI\1" + varint(1) + pack + varint(len(self.frames))
        index += b"".join(h + varint(0) + varint(len(d)) + varint(n) for h, d, n in self.frames)
        index += struct.pack("<I", crc32c(index))
        for number, (tree_hash, size, chunks, fields) in self.records.items():
            key = "index/%020d-%s" % (number, sha256(index).hex())
            self.put(key, index)
            place = [{"hash": h.hex(), "length": n, "pack": 0, "offset": self.placed[h][0], "stored": self.placed[h][1]}
                     for h, n in chunks]
            record = {"format": 1, "epoch": number, "volume": UUID, "complete": True, "trigger": "commit", "opened": "2026-11-22T10:00:00Z",
                      "sealed": "2026-11-22T10:00:00Z", "durable": "2026-11-22T10:00:00Z",
                      "tree": {"hash": tree_hash.hex(), "size": size, "chunks": place}, "packs": [pack.hex()], "indexes": [key], **fields}
            self.put("epochs/%020d.json" % number, json.dumps({k: v for k, v in record.items() if v is not None}))
        return self


# ---- bombs


def crc32c_join(first, second, length):
    """The CRC of two strings, one after the other, from theirs; `length` is the second's (zlib's crc32_combine, by matrices)."""
    def times(matrix, vector):
        out = 0
        for row in matrix:
            out ^= row if vector & 1 else 0
            vector >>= 1
        return out

    matrix = [0x82F63B78] + [1 << n for n in range(31)]  # one zero bit
    for _ in range(3):
        matrix = [times(matrix, row) for row in matrix]  # one zero byte
    while length:
        if length & 1:
            first = times(matrix, first)
        matrix = [times(matrix, row) for row in matrix]
        length >>= 1
    return first ^ second


def many_entries(volume, directories, each):
    """Of a tree with so many directories of so many files each, which share one chunk: for epoch(chunks=..., tree_hash=...)."""
    files = b"".join(entry(2, b"%07d" % i) for i in range(each))
    parts = [b"EFT" + bytes([1, 0]) + ROOT]
    for i in range(directories):
        parts += [entry(1, b"%07d" % i, DIR, mode=0o755), files]
    parts.append(b"\0" + struct.pack("<I", 1 + directories * (1 + each)))
    whole, crc, known = hashlib.sha256(), 0, {}
    for part in parts:
        whole.update(part)
        if part not in known:
            known[part] = crc32c(part)
        crc = crc32c_join(crc, known[part], len(part))
    parts.append(struct.pack("<I", crc))
    whole.update(parts[-1])
    return {"chunks": [(volume.chunk(part), len(part)) for part in parts], "tree_hash": whole.digest()}
