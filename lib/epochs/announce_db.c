/* SPDX-License-Identifier: Apache-2.0 */
/* The table of epochs in an SQLite database. */
#include "lib/epochs/announce_internal.h"

#include <errno.h>
#include <jansson.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/cleanup.h"

#define BUSY_MS 2000

static const struct column {
	const char *name, *type;
	const char *key; /* in the announcement; NULL: set by itself */
} columns[] = {
	{"volume", "TEXT NOT NULL", "volume"},
	{"epoch", "INTEGER NOT NULL", "epoch"},
	{"step", "INTEGER", "step"},
	{"step_name", "TEXT", "step_name"},
	{"complete", "INTEGER", "complete"},
	{"durable", "INTEGER NOT NULL", "is_durable"},
	{"dropped", "INTEGER NOT NULL DEFAULT 0", NULL},
	{"reason", "TEXT", "reason"},
	{"db_type", "TEXT", "db_type"},
	{"db_prefix", "TEXT", "db_prefix"},
	{"path_type", "TEXT", "path_type"},
	{"path_prefix", "TEXT", "path_prefix"},
	{"node_names", "TEXT", "node_names"},
	{"run_id", "TEXT", "run_id"},
	{"host", "TEXT", "host"},
	{"user_name", "TEXT", "user"},
	{"message", "TEXT", "message"},
	{"remote", "TEXT", "remote"},
	{"mountpoint", "TEXT", "mountpoint"},
	{"sealed_by", "TEXT", "trigger"},
	{"parent", "INTEGER", "parent"},
	{"continues", "INTEGER", "continues"},
	{"restores", "INTEGER", "restores"},
	{"opened_at", "TEXT", "opened"},
	{"sealed_at", "TEXT", "sealed"},
	{"durable_at", "TEXT", "durable"},
	{"dropped_at", "TEXT", NULL},
	{"save_ns", "INTEGER", "save_ns"},
	{"files", "INTEGER", "files"},
	{"bytes", "INTEGER", "bytes"},
	{"bytes_new", "INTEGER", "bytes_new"},
	{"bytes_stored", "INTEGER", "bytes_stored"},
	{"tree_hash", "TEXT", "tree_hash"},
};
#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

static void close_db(sqlite3 **db)
{
	/* Takes back what is not committed. */
	sqlite3_close(*db);
}

static void finalize(sqlite3_stmt **stmt)
{
	sqlite3_finalize(*stmt);
}

static void decref(json_t **j)
{
	json_decref(*j);
}

static int fail(sqlite3 *db, int rc, struct buf *why)
{
	buf_printf(why, "%s", db ? sqlite3_errmsg(db) : sqlite3_errstr(rc));
	switch (rc & 0xff) {
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_NOMEM:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

static int run_sql(sqlite3 *db, const char *sql, struct buf *why)
{
	int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);

	return rc == SQLITE_OK ? 0 : fail(db, rc, why);
}

static int open_db(const char *path, sqlite3 **ret_db, struct buf *why)
{
	CLEANUP(close_db) sqlite3 *db = NULL;
	int rc = sqlite3_open_v2(
		path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);

	if (rc != SQLITE_OK)
		return fail(db, rc, why);
	sqlite3_busy_timeout(db, BUSY_MS);
	*ret_db = steal_ptr(db);
	return 0;
}

static int make_table(sqlite3 *db, struct buf *why)
{
	cleanup_buf struct buf sql = {0};

	buf_printf(&sql, "CREATE TABLE IF NOT EXISTS checkpoints (");
	for (size_t i = 0; i < COLUMN_COUNT; i++)
		buf_printf(&sql, "%s %s, ", columns[i].name, columns[i].type);
	buf_printf(&sql, "PRIMARY KEY (volume, epoch));"
			 "CREATE INDEX IF NOT EXISTS checkpoints_by_run"
			 " ON checkpoints (run_id, epoch)");
	return buf_error(&sql) ? -ENOMEM : run_sql(db, buf_str(&sql), why);
}

/* ---- values ---- */

static int bind(sqlite3_stmt *stmt, int at, const json_t *value)
{
	char *list;

	if (json_is_integer(value))
		return sqlite3_bind_int64(stmt, at, json_integer_value(value));
	if (json_is_boolean(value))
		return sqlite3_bind_int64(stmt, at, json_is_true(value));
	if (json_is_string(value))
		return sqlite3_bind_text(stmt, at, json_string_value(value), -1, SQLITE_TRANSIENT);
	if (!json_is_array(value))
		return sqlite3_bind_null(stmt, at);
	list = json_dumps(value, JSON_COMPACT);
	return list ? sqlite3_bind_text(stmt, at, list, -1, free) : SQLITE_NOMEM;
}

/* Parameters ?1, ?2, ... are the values of these keys. */
static int run_with(sqlite3 *db, const char *sql, const json_t *told, const char *const *keys,
		    size_t count, struct buf *why)
{
	CLEANUP(finalize) sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

	for (size_t i = 0; rc == SQLITE_OK && i < count; i++)
		rc = bind(stmt, (int)i + 1, json_object_get(told, keys[i]));
	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	return rc == SQLITE_DONE ? 0 : fail(db, rc, why);
}

/* Takes the value. */
static int set_default(json_t *told, const char *key, json_t *value)
{
	if (!json_object_get(told, key))
		return json_object_set_new(told, key, value);
	json_decref(value);
	return 0;
}

/* What the table wants and the record may lack. */
static int complete_values(json_t *told)
{
	const char *point = json_string_value(json_object_get(told, "mountpoint"));
	json_t *host = json_object_get(told, "host");
	int error = json_object_set_new(told, "is_durable",
					json_boolean(json_object_get(told, "durable") != NULL));

	/* "unknown" is SQL's NULL. */
	if (json_is_string(json_object_get(told, "complete")))
		json_object_del(told, "complete");
	/* What a metadata writer said stays. */
	if (point) {
		error |= set_default(told, "path_type", json_string("epochfs"));
		error |= set_default(told, "db_prefix", json_string(point));
		error |= set_default(told, "path_prefix",
				     json_sprintf("%s/.epochs/%06lld", point,
						  (long long)json_integer_value(
							  json_object_get(told, "epoch"))));
	}
	if (!json_object_get(told, "node_names") && host)
		error |= json_object_set_new(told, "node_names", json_pack("[O]", host));
	return error ? -ENOMEM : 0;
}

/* ---- the three writes ---- */

static int upsert(sqlite3 *db, json_t *told, struct buf *why)
{
	cleanup_buf struct buf sql = {0}, places = {0}, sets = {0};
	const char *keys[COLUMN_COUNT];
	size_t count = 0;
	int error = complete_values(told);

	buf_printf(&sql, "INSERT INTO checkpoints (");
	for (size_t i = 0; i < COLUMN_COUNT; i++) {
		const char *name = columns[i].name, *comma = count ? ", " : "";

		if (!columns[i].key)
			continue;
		keys[count++] = columns[i].key;
		buf_printf(&sql, "%s%s", comma, name);
		buf_printf(&places, "%s?%zu", comma, count);
		buf_printf(&sets, "%s%s = excluded.%s", comma, name, name);
	}
	buf_printf(&sql,
		   ") VALUES (%s) ON CONFLICT (volume, epoch) DO UPDATE SET %s"
		   " WHERE excluded.durable >= checkpoints.durable",
		   buf_str(&places), buf_str(&sets));
	if (error || buf_error(&sql) || buf_error(&places) || buf_error(&sets))
		return -ENOMEM;
	return run_with(db, buf_str(&sql), told, keys, count, why);
}

static int mark_continued(sqlite3 *db, const json_t *told, struct buf *why)
{
	static const char *const keys[] = {"volume", "continues", "continued_epochs"};

	if (!json_object_get(told, "continues"))
		return 0;
	return run_with(db,
			"UPDATE checkpoints SET complete = 0 WHERE volume = ?1"
			" AND (epoch = ?2 OR epoch IN (SELECT value FROM json_each(?3)))",
			told, keys, 3, why);
}

static int mark_dropped(sqlite3 *db, const json_t *told, struct buf *why)
{
	static const char *const keys[] = {"volume", "epoch", "dropped"};

	return run_with(db,
			"UPDATE checkpoints SET dropped = 1, dropped_at = ?3"
			" WHERE volume = ?1 AND epoch = ?2",
			told, keys, 3, why);
}

static int mark_undropped(sqlite3 *db, const json_t *told, struct buf *why)
{
	static const char *const keys[] = {"volume", "epoch"};

	return run_with(db,
			"UPDATE checkpoints SET dropped = 0, dropped_at = NULL"
			" WHERE volume = ?1 AND epoch = ?2",
			told, keys, 2, why);
}

static int write_to(const char *path, const char *text, struct buf *why)
{
	CLEANUP(close_db) sqlite3 *db = NULL;
	CLEANUP(decref) json_t *told = json_loads(text, 0, NULL);
	int error = told ? open_db(path, &db, why) : -ENOMEM;

	if (!error)
		error = run_sql(db, "BEGIN IMMEDIATE", why);
	if (!error)
		error = make_table(db, why);
	if (!error && json_object_get(told, "dropped"))
		error = mark_dropped(db, told, why);
	else if (!error && json_object_get(told, "undropped"))
		error = mark_undropped(db, told, why);
	else if (!error)
		error = upsert(db, told, why);
	if (!error)
		error = mark_continued(db, told, why);
	return error ? error : run_sql(db, "COMMIT", why);
}

int announce_db_write(const char *path, const char *text, struct buf *why)
{
	cleanup_buf struct buf reason = {0};
	int error = write_to(path, text, &reason);

	if (error)
		buf_printf(why, "%s: %s", path, reason.len ? buf_str(&reason) : strerror(-error));
	return error;
}
