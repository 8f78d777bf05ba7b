/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SQL for state*.c: a connection, its prepared statements, and queries that carry their error with
 * them, so that a row of binds and reads needs one check at its end. Private to state*.c.
 *
 *	cleanup_query struct query q = query_of(s, "SELECT size FROM files WHERE ino = ?");
 *
 *	query_bind_u64(&q, ino);
 *	error = query_one(&q);
 *	if (!error)
 *		*ret_size = query_u64(&q);
 */
#ifndef EPOCHFS_STATE_STATE_DB_H
#define EPOCHFS_STATE_STATE_DB_H

#include <sqlite3.h>
#include <stdatomic.h>
#include "lib/state/state.h"
#include "lib/util/lock.h"

/* A power of two, well above the number of different statements. */
#define STATEMENTS_MAX 256

struct statement {
	const char *sql; /* the literal's address is the key */
	sqlite3_stmt *stmt;
	bool busy;
};

/*
 * Numbers that are never given twice. They are reserved in the database in blocks, so that most
 * cost no write; a crash loses the rest of a block. A rollback takes the reservation back, not the
 * numbers: `reserved` becomes 0, and the next number reserves again.
 */
struct counter {
	const char *key; /* in meta */
	uint64_t next, reserved;
};

struct checkpointer;
struct reserve;
struct state_vfs;

struct state {
	sqlite3 *db;
	struct statement statements[STATEMENTS_MAX];
	unsigned depth; /* of transactions */
	int failed;	/* why the open transaction must roll back */

	/* Of the main connection only. */
	struct counter inos, names, versions;
	bool totals_known; /* the next three hold; a rollback forgets them */
	uint64_t files, local_bytes, dirty_bytes;
	struct hash pack; /* the pack that state_chunk_put saw last */
	int64_t pack_row; /* its row, 0: none */
	int dirfd, wal_fd;
	atomic_bool dir_synced;
	struct reserve *reserve;
	struct state_vfs *vfs;
	struct checkpointer *checkpointer;
	struct mutex idle_lock; /* guards `idle`; innermost of all locks */
	struct state *idle;	/* snapshots' connections, kept for the next one */

	/* Of a snapshot only. */
	struct state *main;
	struct state *next_idle;
};

/* What an error of SQLite on this connection is as -errno; logs what a person should know. */
int db_error(sqlite3 *db, int rc);
/* A VFS of its own, whose writes may use the reserve; `dirfd` is the directory of its files. Both must outlive it
 * (state_vfs.c). */
int state_vfs_new(struct reserve *reserve, int dirfd, struct state_vfs **ret_vfs);
/* All connections must be closed. NULL is allowed. */
void state_vfs_free(struct state_vfs *v);
/* NULL: that of SQLite which it stands on. */
const char *state_vfs_name(const struct state_vfs *v);
/* Notes an error of SQLite on this connection; whether it should be told: not where it was lately, nor for a
 * connection without a VFS of ours. */
bool state_vfs_note(sqlite3 *db, int rc);
bool state_vfs_damaged(const struct state_vfs *v);
/* Opens a connection with the settings that all of ours have. */
int db_connect(const struct state_vfs *vfs, const char *path, int flags, sqlite3 **ret_db);
/* Finalizes the prepared statements and closes. */
void db_disconnect(struct state *s);
/* Runs statements that give no rows. */
int db_exec(sqlite3 *db, const char *sql);
/* One number of a PRAGMA or the like. */
int db_number(sqlite3 *db, const char *sql, int64_t *ret_value);
/* Makes the tables in a new database, which `must_exist` makes -EUCLEAN; checks the version of an old one.
 * -EPROTONOSUPPORT: newer. */
int db_schema(sqlite3 *db, bool must_exist);
/* What an older program's database lacks: tables and columns that came later. */
int db_schema_later(sqlite3 *db);

/* The thread that moves the WAL into the database, so that no commit has to (state_journal.c). */
int checkpointer_start(struct state *s, const char *path);
void checkpointer_stop(struct state *s);
/* Before a transaction: on a full disk, waits for a checkpoint where the WAL would grow. */
void checkpointer_make_room(struct state *s);

/* Computes files, local_bytes and dirty_bytes where they are not known. */
int state_totals_load(struct state *s);
int counter_next(struct state *s, struct counter *c, uint64_t *ret_number);

struct query {
	struct state *s;
	sqlite3_stmt *stmt;
	struct statement *cached; /* NULL: stmt is this query's own */
	int error;
	int bound, column;
};

/* `sql` must be a literal. The same query may be open several times (a directory in a directory). */
struct query query_of(struct state *s, const char *sql);
void query_end(struct query *q);
#define cleanup_query CLEANUP(query_end)

/* Bind the parameters one after another. Bytes and strings must stay until the query ends. */
void query_bind_u64(struct query *q, uint64_t value);
void query_bind_i64(struct query *q, int64_t value);
void query_bind_bytes(struct query *q, const void *data, size_t len);
/* A string as a BLOB: any bytes, compared bytewise. */
void query_bind_name(struct query *q, const char *name);
/* NULL is SQL's NULL. */
void query_bind_text(struct query *q, const char *text);
void query_bind_hash(struct query *q, const struct hash *h);

/* 1: a row; 0: no more; or -errno. */
int query_step(struct query *q);
/* 0: a row; -ENOENT: none; or -errno. */
int query_one(struct query *q);
/* To the end: 0 or -errno. */
int query_run(struct query *q);
/* The same, but -ENOENT where no row was changed. */
int query_change(struct query *q);

/* Read the columns of the row one after another. */
uint64_t query_u64(struct query *q);
int64_t query_i64(struct query *q);
uint32_t query_u32(struct query *q);
/* The bytes until the next step or the end; NULL where there are none. */
const void *query_bytes(struct query *q, size_t *ret_len);
/* A copy (NULL of SQL: NULL): 0 or -ENOMEM. */
int query_text(struct query *q, char **ret_text);
/* 0, -ENOENT for NULL, -EUCLEAN where it is no hash. */
int query_hash(struct query *q, struct hash *ret_hash);
/* A name that fits NAME_MAX: 0, or -EUCLEAN. */
int query_name(struct query *q, char ret_name[256]);
/* Appends the column's bytes: 0 or -ENOMEM. */
int query_append(struct query *q, struct buf *out);

/* The columns of struct state_file in the order that files_read takes them. */
#define FILE_COLUMNS                                                                               \
	"f.ino, f.mode, f.uid, f.gid, f.rdev, f.nlink, f.size, f.mtime, f.ctime, f.atime, "        \
	"f.live, f.closed, f.body, f.born, f.parent"
void files_read(struct query *q, struct state_file *ret_file);

#endif
