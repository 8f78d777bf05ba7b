/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the local state. state.h says what the columns mean. */
#include "lib/state/state_db.h"

#include <errno.h>
#include "lib/util/log.h"

#define SCHEMA_VERSION 1
#define APPLICATION_ID 0x45504653 /* "EPFS" */

#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

/*
 * Names and other bytes are BLOBs, so that they compare bytewise. Partial indexes hold the few rows
 * that somebody searches: 2 is VERSION_DURABLE and EPOCH_DURABLE, 3 VERSION_CACHE, 4 EPOCH_DROPPED.
 */
static const char schema[] =
	"CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;"

	"CREATE TABLE files (ino INTEGER PRIMARY KEY, mode INTEGER NOT NULL, uid INTEGER NOT NULL,"
	" gid INTEGER NOT NULL, rdev INTEGER NOT NULL, nlink INTEGER NOT NULL,"
	" size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,"
	" atime INTEGER NOT NULL, live INTEGER NOT NULL, closed INTEGER NOT NULL,"
	" body INTEGER NOT NULL, born INTEGER NOT NULL, parent INTEGER NOT NULL);"
	"CREATE INDEX files_by_parent ON files (parent) WHERE parent <> 0;"
	"CREATE TABLE symlinks (ino INTEGER PRIMARY KEY, target BLOB NOT NULL);"
	"CREATE TABLE xattrs (ino INTEGER NOT NULL, name BLOB NOT NULL, value BLOB NOT NULL,"
	" PRIMARY KEY (ino, name)) WITHOUT ROWID;"

	"CREATE TABLE names (parent INTEGER NOT NULL, name BLOB NOT NULL, id INTEGER NOT NULL,"
	" ino INTEGER NOT NULL, covered INTEGER NOT NULL,"
	" PRIMARY KEY (parent, name)) WITHOUT ROWID;"
	"CREATE INDEX names_by_id ON names (parent, id, ino, covered);"
	"CREATE INDEX names_by_ino ON names (ino);"
	"CREATE INDEX names_by_covered ON names (covered) WHERE covered <> 0;"

	"CREATE TABLE versions (id INTEGER PRIMARY KEY, ino INTEGER NOT NULL,"
	" body INTEGER NOT NULL, state INTEGER NOT NULL, kind INTEGER NOT NULL,"
	" size INTEGER NOT NULL, born INTEGER NOT NULL, died INTEGER NOT NULL,"
	" flags INTEGER NOT NULL, recipe BLOB, flushed_size INTEGER NOT NULL,"
	" flushed_ctime INTEGER NOT NULL, local_bytes INTEGER NOT NULL, used INTEGER NOT NULL);"
	"CREATE INDEX versions_by_recipe ON versions (recipe) WHERE recipe IS NOT NULL;"
	"CREATE INDEX versions_died ON versions (died) WHERE died <> 0;"
	"CREATE INDEX versions_empty ON versions (kind) WHERE kind = 3 AND local_bytes = 0;"
	"CREATE INDEX versions_evictable ON versions (used) WHERE state = 2 AND local_bytes > 0;"
	"CREATE TABLE inlines (version INTEGER PRIMARY KEY, data BLOB NOT NULL);"

	"CREATE TABLE epochs (number INTEGER PRIMARY KEY, state INTEGER NOT NULL, record TEXT,"
	" error TEXT, delete_pending INTEGER NOT NULL, superseded INTEGER NOT NULL);"
	"CREATE INDEX epochs_pending ON epochs (number) WHERE state <> 2 AND state <> 4;"
	"CREATE TABLE tags (name BLOB PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;"
	"CREATE TABLE tag_changes (name BLOB PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;"

	"CREATE TABLE packs (id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE);"
	"CREATE TABLE chunks (hash BLOB PRIMARY KEY, pack INTEGER NOT NULL,"
	" start INTEGER NOT NULL, stored_len INTEGER NOT NULL, plain_len INTEGER NOT NULL)"
	" WITHOUT ROWID;"
	"CREATE TABLE indexes_loaded (key TEXT PRIMARY KEY) WITHOUT ROWID;"
	"CREATE TABLE recipes (hash BLOB PRIMARY KEY, data BLOB NOT NULL);"

	"PRAGMA application_id = " TEXT_OF(APPLICATION_ID) ";"
							   "PRAGMA user_version = " TEXT_OF(
								   SCHEMA_VERSION) ";";

/* Came later than the others: a program that does not know them leaves them alone, so they need no new
 * version of the schema. */
static const char later_tables[] =
	"CREATE TABLE IF NOT EXISTS announcements (sink INTEGER NOT NULL, id INTEGER NOT NULL,"
	" text TEXT NOT NULL, PRIMARY KEY (sink, id)) WITHOUT ROWID;"

	"CREATE TABLE IF NOT EXISTS imported (dev INTEGER NOT NULL, ino INTEGER NOT NULL,"
	" size INTEGER NOT NULL, mtime INTEGER NOT NULL, ctime INTEGER NOT NULL,"
	" recipe BLOB NOT NULL, torn INTEGER NOT NULL, seen INTEGER NOT NULL,"
	" PRIMARY KEY (dev, ino)) WITHOUT ROWID;"

	"CREATE TABLE IF NOT EXISTS doubts (id INTEGER PRIMARY KEY, kind INTEGER NOT NULL,"
	" parent INTEGER NOT NULL, name BLOB NOT NULL, path BLOB NOT NULL, ino INTEGER NOT NULL,"
	" version INTEGER NOT NULL, since INTEGER NOT NULL, at INTEGER NOT NULL,"
	" judged INTEGER NOT NULL, why TEXT NOT NULL);"
	"CREATE TABLE IF NOT EXISTS doubt_files (doubt INTEGER NOT NULL, ino INTEGER NOT NULL,"
	" value INTEGER NOT NULL, PRIMARY KEY (doubt, ino)) WITHOUT ROWID;"

	"CREATE INDEX IF NOT EXISTS versions_replaced ON versions (replaced) WHERE replaced <> 0;"
	"CREATE INDEX IF NOT EXISTS epochs_deletes ON epochs (number) WHERE delete_pending <> 0;";

/* Columns that came later: other programs name theirs. A statement adds each once. */
static const struct later_column {
	const char *is_there, *add;
} later_columns[] = {
	{"SELECT count(*) FROM pragma_table_info('versions') WHERE name = 'holes'",
	 "ALTER TABLE versions ADD COLUMN holes INTEGER NOT NULL DEFAULT 0"},
	{"SELECT count(*) FROM pragma_table_info('versions') WHERE name = 'saved'",
	 "ALTER TABLE versions ADD COLUMN saved INTEGER NOT NULL DEFAULT 0"},
	{"SELECT count(*) FROM pragma_table_info('versions') WHERE name = 'replaced'",
	 "ALTER TABLE versions ADD COLUMN replaced INTEGER NOT NULL DEFAULT 0"},
};

static int add_columns(sqlite3 *db)
{
	int error = 0;

	for (size_t i = 0; !error && i < sizeof(later_columns) / sizeof(later_columns[0]); i++) {
		int64_t there = 0;

		error = db_number(db, later_columns[i].is_there, &there);
		if (!error && !there)
			error = db_exec(db, later_columns[i].add);
	}
	return error;
}

int db_schema_later(sqlite3 *db)
{
	int error = add_columns(db);

	return error ? error : db_exec(db, later_tables);
}

static int schema_make(sqlite3 *db)
{
	int error = db_exec(db, "BEGIN IMMEDIATE");

	if (error)
		return error;
	error = db_exec(db, schema);
	if (!error)
		error = db_exec(db, "COMMIT");
	if (error && !sqlite3_get_autocommit(db))
		db_exec(db, "ROLLBACK");
	return error;
}

int db_schema(sqlite3 *db, bool must_exist)
{
	int64_t version = 0, application = 0, tables = 0;
	int error = db_number(db, "PRAGMA user_version", &version);

	if (!error)
		error = db_number(db, "PRAGMA application_id", &application);
	if (!error)
		error = db_number(db, "SELECT count(*) FROM sqlite_schema", &tables);
	if (error)
		return error;
	if (!tables && !version && !application && !must_exist) {
		error = schema_make(db);
		return error ? error : db_schema_later(db);
	}
	if (application != APPLICATION_ID || version < 1) {
		log_error("local state %s: not a database of epochfs",
			  sqlite3_db_filename(db, "main"));
		return -EUCLEAN;
	}
	return version > SCHEMA_VERSION ? -EPROTONOSUPPORT : db_schema_later(db);
}
