# SPDX-License-Identifier: Apache-2.0
"""SQLite: HOW is the journal mode (delete or wal); one transaction a save."""

import sqlite3
import sys

import marks

base = sqlite3.connect("state.db", isolation_level=None)
base.execute("PRAGMA journal_mode = " + sys.argv[1])
base.execute("CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value BLOB)")
for number in range(1, 5):
    marks.train()
    with marks.save(number):
        base.execute("BEGIN")
        base.execute("INSERT OR REPLACE INTO state VALUES ('model', ?)", (bytes([number]) * 8000,))
        base.execute("INSERT OR REPLACE INTO state VALUES ('step', ?)", (number,))
        base.execute("COMMIT")
base.close()
