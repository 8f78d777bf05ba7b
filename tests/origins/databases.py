# SPDX-License-Identifier: Apache-2.0
"""caffe2's databases (caffe2/core/db.cc, caffe2/db/leveldb.cc, caffe2/db/lmdb.cc), with their options: LevelDB and LMDB are the libraries themselves.

A database is opened to make a new one or to read one; put() is a transaction of its own, as SaveOp makes them; items() goes in the
database's order, one at a time.
"""

import os
import struct

LMDB_MAP_SIZE = 1 << 40


class MiniDB:
    """One file: lengths of key and value, key, value. Made by fopen "wb", read by "rb"."""

    def __init__(self, path, new):
        self.file = open(path, "wb" if new else "rb")

    def put(self, key, value):
        self.file.write(struct.pack("=ii", len(key), len(value)) + key + value)
        self.file.flush()

    def items(self):
        while True:
            lengths = self.file.read(8)
            if not lengths:
                return
            key, value = struct.unpack("=ii", lengths)
            yield self.file.read(key), self.file.read(value)

    def close(self):
        self.file.close()


class LevelDB:
    """A directory. Whoever opens it writes to it, to read too: a new manifest, and a table of what was in the log."""

    def __init__(self, path, new):
        import plyvel
        self.db = plyvel.DB(path, create_if_missing=new, error_if_exists=new, write_buffer_size=268435456, max_open_files=100,
                            block_size=65536)

    def put(self, key, value):
        self.db.put(key, value)

    def items(self):
        return self.db.iterator()

    def close(self):
        self.db.close()


class LMDB:
    """A directory with a data file, and a lock file that all who have it open map and write. A new one must not be there yet."""

    def __init__(self, path, new):
        import lmdb
        if new:
            os.mkdir(path, 0o744)
        self.env = lmdb.open(path, map_size=LMDB_MAP_SIZE, readonly=not new, create=False, mode=0o664)

    def put(self, key, value):
        with self.env.begin(write=True) as transaction:
            transaction.put(key, value)

    def items(self):
        with self.env.begin() as transaction:
            yield from transaction.cursor()

    def close(self):
        self.env.close()


TYPES = {"minidb": MiniDB, "leveldb": LevelDB, "lmdb": LMDB}
