/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to the state's database, its prepared statements, queries, and damage. */
#include "lib/state/state_db.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "lib/util/clock.h"
#include "lib/util/log.h"

#define BUSY_TRIES 20000
#define BUSY_NS	   (NS_PER_MS / 2)

static int io_error(sqlite3 *db)
{
	int error = sqlite3_system_errno(db);

	return error == ENOSPC || error == EDQUOT || error == EACCES || error == EROFS ||
			       error == EMFILE || error == ENFILE || error == ENOENT
		       ? -error
		       : -EIO;
}

static void tell(sqlite3 *db, int rc)
{
	const char *path = sqlite3_db_filename(db, "main");
	cleanup_buf struct buf advice = {0};

	if ((rc & 0xff) == SQLITE_CORRUPT)
		buf_printf(&advice,
			   ": unmount and mount again: that rebuilds it from the remote and "
			   "keeps what only this machine has");
	if ((rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN)
		buf_printf(&advice, " (%s): see to that disk, then unmount and mount again",
			   strerror(-io_error(db)));
	log_error("local state %s: %s%s", path ? path : "state.db", sqlite3_errmsg(db),
		  advice.len ? buf_str(&advice) : "");
}

int db_error(sqlite3 *db, int rc)
{
	switch (rc & 0xff) {
	case SQLITE_OK:
	case SQLITE_ROW:
	case SQLITE_DONE:
		return 0;
	case SQLITE_CONSTRAINT:
		return -EEXIST;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return -EROFS;
	case SQLITE_TOOBIG:
		return -E2BIG;
	}
	if (state_vfs_note(db, rc))
		tell(db, rc);
	switch (rc & 0xff) {
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EUCLEAN;
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
		return io_error(db);
	}
	return -EIO;
}

/* Only the end of a long WAL makes one connection wait for another (state_journal.c). */
static int on_busy(void *arg, int tries)
{
	struct timespec pause = clock_timespec(BUSY_NS);

	(void)arg;
	if (tries >= BUSY_TRIES)
		return 0;
	nanosleep(&pause, NULL);
	return 1;
}

int db_connect(const struct state_vfs *vfs, const char *path, int flags, sqlite3 **ret_db)
{
	sqlite3 *db = NULL;
	int rc = sqlite3_open_v2(path, &db, flags | SQLITE_OPEN_NOMUTEX, state_vfs_name(vfs));
	int error;

	if (!db)
		return -ENOMEM;
	sqlite3_extended_result_codes(db, 1);
	sqlite3_busy_handler(db, on_busy, NULL);
	error = db_error(db, rc);
	if (!error)
		error = db_exec(db, "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
				    "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;"
				    "PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY;");
	if (error) {
		sqlite3_close(db);
		return error;
	}
	*ret_db = db;
	return 0;
}

void db_disconnect(struct state *s)
{
	for (size_t i = 0; i < STATEMENTS_MAX; i++)
		sqlite3_finalize(s->statements[i].stmt);
	if (s->db && sqlite3_close(s->db) != SQLITE_OK)
		log_error("local state: a query is still open at close");
}

int db_exec(sqlite3 *db, const char *sql)
{
	return db_error(db, sqlite3_exec(db, sql, NULL, NULL, NULL));
}

int db_number(sqlite3 *db, const char *sql, int64_t *ret_value)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc == SQLITE_ROW)
		*ret_value = sqlite3_column_int64(stmt, 0);
	sqlite3_finalize(stmt);
	return rc == SQLITE_DONE ? -EUCLEAN : db_error(db, rc);
}

/* ---- prepared statements ---- */

/* The place of this statement in the table, or NULL where the table is full. */
static struct statement *statement_slot(struct state *s, const char *sql)
{
	size_t at = ((uintptr_t)sql >> 3) * 31;

	for (size_t i = 0; i < STATEMENTS_MAX; i++) {
		struct statement *slot = &s->statements[(at + i) % STATEMENTS_MAX];

		if (slot->sql == sql || !slot->sql)
			return slot;
	}
	return NULL;
}

struct query query_of(struct state *s, const char *sql)
{
	struct query q = {.s = s};
	struct statement *slot = statement_slot(s, sql);
	int rc;

	/* SQLite itself may have rolled back: what follows must not commit by itself. */
	if (s->depth && s->failed) {
		q.error = s->failed;
		return q;
	}
	if (slot && slot->busy)
		slot = NULL;
	if (slot && slot->stmt) {
		q.stmt = slot->stmt;
	} else {
		rc = sqlite3_prepare_v3(s->db, sql, -1, slot ? SQLITE_PREPARE_PERSISTENT : 0,
					&q.stmt, NULL);
		q.error = db_error(s->db, rc);
		if (q.error)
			return q;
	}
	if (slot) {
		*slot = (struct statement){.sql = sql, .stmt = q.stmt, .busy = true};
		q.cached = slot;
	}
	return q;
}

void query_end(struct query *q)
{
	if (!q->stmt)
		return;
	if (q->cached) {
		sqlite3_reset(q->stmt);
		q->cached->busy = false;
	} else {
		sqlite3_finalize(q->stmt);
	}
	q->stmt = NULL;
}

static void query_bound(struct query *q, int rc)
{
	if (!q->error)
		q->error = db_error(q->s->db, rc);
}

void query_bind_i64(struct query *q, int64_t value)
{
	if (!q->error)
		query_bound(q, sqlite3_bind_int64(q->stmt, ++q->bound, value));
}

void query_bind_u64(struct query *q, uint64_t value)
{
	query_bind_i64(q, (int64_t)value);
}

void query_bind_bytes(struct query *q, const void *data, size_t len)
{
	/* A NULL pointer would be SQL's NULL. */
	if (!q->error)
		query_bound(q, sqlite3_bind_blob64(q->stmt, ++q->bound, data ? data : "", len,
						   SQLITE_STATIC));
}

void query_bind_name(struct query *q, const char *name)
{
	query_bind_bytes(q, name, strlen(name));
}

void query_bind_text(struct query *q, const char *text)
{
	if (!q->error)
		query_bound(q, sqlite3_bind_text(q->stmt, ++q->bound, text, -1, SQLITE_STATIC));
}

void query_bind_hash(struct query *q, const struct hash *h)
{
	query_bind_bytes(q, h->bytes, sizeof(h->bytes));
}

int query_step(struct query *q)
{
	int rc;

	if (q->error)
		return q->error;
	q->column = 0;
	rc = sqlite3_step(q->stmt);
	if (rc == SQLITE_ROW)
		return 1;
	if (rc == SQLITE_DONE)
		return 0;
	q->error = db_error(q->s->db, rc);
	if (q->s->depth && !q->s->failed && sqlite3_get_autocommit(q->s->db))
		q->s->failed = q->error;
	return q->error;
}

int query_one(struct query *q)
{
	int got = query_step(q);

	if (got < 0)
		return got;
	return got ? 0 : -ENOENT;
}

int query_run(struct query *q)
{
	int got;

	while ((got = query_step(q)) > 0)
		;
	return got;
}

int query_change(struct query *q)
{
	int error = query_run(q);

	if (!error && sqlite3_changes(q->s->db) == 0)
		return -ENOENT;
	return error;
}

int64_t query_i64(struct query *q)
{
	return sqlite3_column_int64(q->stmt, q->column++);
}

uint64_t query_u64(struct query *q)
{
	return (uint64_t)query_i64(q);
}

uint32_t query_u32(struct query *q)
{
	return (uint32_t)query_i64(q);
}

const void *query_bytes(struct query *q, size_t *ret_len)
{
	const void *data = sqlite3_column_blob(q->stmt, q->column);

	*ret_len = (size_t)sqlite3_column_bytes(q->stmt, q->column++);
	return data;
}

int query_text(struct query *q, char **ret_text)
{
	int column = q->column++;
	const unsigned char *text;
	char *copy;

	if (sqlite3_column_type(q->stmt, column) == SQLITE_NULL) {
		*ret_text = NULL;
		return 0;
	}
	text = sqlite3_column_text(q->stmt, column);
	copy = text ? strdup((const char *)text) : NULL;
	if (!copy)
		return -ENOMEM;
	*ret_text = copy;
	return 0;
}

int query_hash(struct query *q, struct hash *ret_hash)
{
	int column = q->column;
	size_t len;
	const void *data;

	if (sqlite3_column_type(q->stmt, column) == SQLITE_NULL) {
		q->column++;
		return -ENOENT;
	}
	data = query_bytes(q, &len);
	if (!data || len != HASH_SIZE)
		return -EUCLEAN;
	memcpy(ret_hash->bytes, data, HASH_SIZE);
	return 0;
}

int query_name(struct query *q, char ret_name[256])
{
	size_t len;
	const void *data = query_bytes(q, &len);

	if (!data || len > NAME_MAX)
		return -EUCLEAN;
	memcpy(ret_name, data, len);
	ret_name[len] = '\0';
	return 0;
}

int query_append(struct query *q, struct buf *out)
{
	size_t len;
	const void *data = query_bytes(q, &len);

	buf_put(out, data, len);
	return buf_error(out);
}

/* ---- Looking for damage in the local state. ---- */

/* The first line of what the check says: "ok", or what is wrong. */
static int check_text(struct state *s, const char *sql, struct buf *out)
{
	cleanup_query struct query q = query_of(s, sql);
	int error = query_one(&q);

	return error ? error : query_append(&q, out);
}

int state_check(struct state *s, bool indexes)
{
	cleanup_buf struct buf text = {0};
	int error = indexes ? check_text(s, "PRAGMA integrity_check(1)", &text)
			    : check_text(s, "PRAGMA quick_check(1)", &text);

	if (error || !strcmp(buf_str(&text), "ok"))
		return error;
	log_error("local state %s: %s", sqlite3_db_filename(s->db, "main"), buf_str(&text));
	return -EUCLEAN;
}

bool state_is_damaged(const struct state *s)
{
	return s->vfs && state_vfs_damaged(s->vfs);
}
