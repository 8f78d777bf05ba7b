/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: opening, transactions, small values, snapshots. */
#include "lib/state/state_db.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/state/reserve.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"

#define COUNTER_BLOCK 1024
#define IDLE_MAX      4

/* Pages of 4 KiB that a connection may keep, as PRAGMA cache_size takes it (KiB, negative). */
#define CACHE_MAIN     "PRAGMA cache_size = -16384;"
#define CACHE_SNAPSHOT "PRAGMA cache_size = -4096; PRAGMA query_only = ON;"

/* What a WAL that grew long is cut to once it starts over. */
#define WAL_KEEP "PRAGMA journal_size_limit = 16777216;"

/* ---- opening and closing ---- */

static int wal_mode(sqlite3 *db)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(db, "PRAGMA journal_mode = WAL", -1, &stmt, NULL);
	int error = 0;

	if (rc == SQLITE_OK)
		rc = sqlite3_step(stmt);
	if (rc != SQLITE_ROW)
		error = rc == SQLITE_DONE ? -EIO : db_error(db, rc);
	else if (strcmp((const char *)sqlite3_column_text(stmt, 0), "wal"))
		error = -EIO;
	sqlite3_finalize(stmt);
	return error;
}

static int counter_load(struct state *s, struct counter *c)
{
	int error = state_get_meta_u64(s, c->key, &c->next);

	if (error && error != -ENOENT)
		return error;
	if (error)
		c->next = 1;
	c->reserved = c->next;
	return 0;
}

/* SQLite's own attempts hide why the file cannot be made, and make it as the umask says; names, messages and URLs are in it, so
 * it is ours alone, and so is what SQLite puts beside it with the same mode. */
static int file_make(const char *path, bool must_exist)
{
	cleanup_close int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat st;

	if (fd < 0 || fchmod(fd, 0600) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (must_exist && !st.st_size) {
		log_error("local state %s: it is empty", path);
		return -EUCLEAN;
	}
	return 0;
}

static int state_setup(struct state *s, int cache_dirfd, const char *path, bool must_exist)
{
	int error = reserve_open(cache_dirfd, &s->reserve);

	s->dirfd = fcntl(cache_dirfd, F_DUPFD_CLOEXEC, 3);
	if (!error && s->dirfd < 0)
		error = -errno;
	if (!error)
		error = file_make(path, must_exist);
	if (!error)
		error = state_vfs_new(s->reserve, s->dirfd, &s->vfs);
	if (!error)
		error = db_connect(s->vfs, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
				   &s->db);
	if (!error)
		error = wal_mode(s->db);
	if (!error)
		error = db_schema(s->db, must_exist);
	if (!error)
		error = db_exec(s->db, CACHE_MAIN WAL_KEEP);
	if (!error)
		error = counter_load(s, &s->inos);
	if (!error)
		error = counter_load(s, &s->names);
	if (!error)
		error = counter_load(s, &s->versions);
	if (error)
		return error;
	/* SQLite takes no POSIX lock on the WAL, so that a close of ours releases none. */
	s->wal_fd = open(sqlite3_filename_wal(sqlite3_db_filename(s->db, "main")),
			 O_RDONLY | O_CLOEXEC);
	if (s->wal_fd < 0)
		return -errno;
	return checkpointer_start(s, path);
}

static struct state *state_alloc(void)
{
	struct state *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->inos.key = "next_ino";
	s->names.key = "next_name";
	s->versions.key = "next_version";
	s->dirfd = -1;
	s->wal_fd = -1;
	mutex_init(&s->idle_lock, LOCK_STATE_IDLE);
	return s;
}

static int state_open_as(int cache_dirfd, const char *path, bool must_exist,
			 struct state **ret_state)
{
	struct state *s = state_alloc();
	int error;

	if (!s)
		return -ENOMEM;
	error = state_setup(s, cache_dirfd, path, must_exist);
	if (error) {
		state_close(s);
		return error;
	}
	*ret_state = s;
	return 0;
}

int state_open(int cache_dirfd, const char *path, struct state **ret_state)
{
	return state_open_as(cache_dirfd, path, false, ret_state);
}

int state_open_existing(int cache_dirfd, const char *path, struct state **ret_state)
{
	return state_open_as(cache_dirfd, path, true, ret_state);
}

/* By the directory that is open, wherever it was moved to and whatever lies in its place. */
static void path_by_fd(int dirfd, char ret_path[64])
{
	snprintf(ret_path, 64, "/proc/self/fd/%d/state.db", dirfd);
}

int state_open_damaged(int dirfd, struct state **ret_state)
{
	struct state *s = state_alloc();
	char path[64];
	int error;

	if (!s)
		return -ENOMEM;
	path_by_fd(dirfd, path);
	error = db_connect(NULL, path, SQLITE_OPEN_READWRITE, &s->db);
	if (error) {
		state_close(s);
		return error;
	}
	/* Where this fails, so will the questions that it is for. */
	db_schema_later(s->db);
	*ret_state = s;
	return 0;
}

static void state_free(struct state *s)
{
	db_disconnect(s);
	mutex_destroy(&s->idle_lock);
	if (s->dirfd >= 0)
		close(s->dirfd);
	if (s->wal_fd >= 0)
		close(s->wal_fd);
	free(s);
}

void state_close(struct state *s)
{
	struct state_vfs *vfs;
	struct reserve *reserve;

	if (!s)
		return;
	vfs = s->vfs;
	reserve = s->reserve;
	checkpointer_stop(s);
	while (s->idle) {
		struct state *snapshot = s->idle;

		s->idle = snapshot->next_idle;
		state_free(snapshot);
	}
	state_free(s);
	state_vfs_free(vfs);
	reserve_close(reserve);
}

struct reserve *state_reserve(struct state *s)
{
	return s->reserve;
}

uint64_t state_changes(struct state *s)
{
	return (uint64_t)sqlite3_total_changes64(s->db);
}

int state_sync(struct state *s)
{
	if (fdatasync(s->wal_fd) < 0)
		return -errno;
	if (!atomic_load(&s->dir_synced)) {
		if (fsync(s->dirfd) < 0)
			return -errno;
		atomic_store(&s->dir_synced, true);
	}
	return 0;
}

/* ---- transactions ---- */

int state_begin(struct state *s)
{
	if (s->depth == 0) {
		cleanup_query struct query q = query_of(s, "BEGIN IMMEDIATE");
		int error;

		checkpointer_make_room(s);
		error = query_run(&q);

		if (error)
			return error;
		s->failed = 0;
	}
	s->depth++;
	return 0;
}

static void state_rollback(struct state *s)
{
	/* After some errors SQLite has rolled back by itself. */
	if (!sqlite3_get_autocommit(s->db))
		db_exec(s->db, "ROLLBACK");
	s->inos.reserved = s->names.reserved = s->versions.reserved = 0;
	s->totals_known = false;
	s->pack_row = 0;
}

int state_end(struct state *s, int error)
{
	if (error && !s->failed)
		s->failed = error;
	if (s->depth > 1) {
		s->depth--;
		return error ? error : s->failed;
	}
	if (!error)
		error = s->failed;
	s->depth = 0;
	if (!error) {
		cleanup_query struct query q = query_of(s, "COMMIT");

		error = query_run(&q);
	}
	s->failed = 0;
	if (error)
		state_rollback(s);
	return error;
}

int counter_next(struct state *s, struct counter *c, uint64_t *ret_number)
{
	if (c->next >= c->reserved) {
		int error = state_set_meta_u64(s, c->key, c->next + COUNTER_BLOCK);

		if (error)
			return error;
		c->reserved = c->next + COUNTER_BLOCK;
	}
	*ret_number = c->next++;
	return 0;
}

/* ---- small values ---- */

int state_get_meta(struct state *s, const char *key, struct buf *out)
{
	cleanup_query struct query q = query_of(s, "SELECT value FROM meta WHERE key = ?");
	int error;

	query_bind_text(&q, key);
	error = query_one(&q);
	return error ? error : query_append(&q, out);
}

int state_set_meta(struct state *s, const char *key, const char *value)
{
	cleanup_query struct query q = query_of(s, "INSERT OR REPLACE INTO meta VALUES (?, ?)");

	query_bind_text(&q, key);
	query_bind_text(&q, value);
	return query_run(&q);
}

int state_get_meta_u64(struct state *s, const char *key, uint64_t *ret_value)
{
	cleanup_buf struct buf text = {0};
	int error = state_get_meta(s, key, &text);

	if (error)
		return error;
	return parse_u64(buf_str(&text), ret_value) < 0 ? -EUCLEAN : 0;
}

int state_set_meta_u64(struct state *s, const char *key, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	return state_set_meta(s, key, text);
}

/* ---- readers and snapshots ---- */

static struct state *idle_take(struct state *s)
{
	SCOPED_LOCK(&s->idle_lock);
	struct state *snapshot = s->idle;

	if (snapshot)
		s->idle = snapshot->next_idle;
	return snapshot;
}

/* False where enough are kept already. */
static bool idle_give(struct state *s, struct state *snapshot)
{
	SCOPED_LOCK(&s->idle_lock);
	unsigned kept = 0;

	for (struct state *i = s->idle; i; i = i->next_idle)
		kept++;
	if (kept >= IDLE_MAX)
		return false;
	snapshot->next_idle = s->idle;
	s->idle = snapshot;
	return true;
}

static int snapshot_connect(struct state *s, struct state **ret_snapshot)
{
	struct state *snapshot = state_alloc();
	char path[64];
	int error;

	if (!snapshot)
		return -ENOMEM;
	snapshot->main = s;
	path_by_fd(s->dirfd, path);
	error = db_connect(s->vfs, path, SQLITE_OPEN_READWRITE, &snapshot->db);
	if (!error)
		error = db_exec(snapshot->db, CACHE_SNAPSHOT);
	if (error) {
		state_free(snapshot);
		return error;
	}
	*ret_snapshot = snapshot;
	return 0;
}

int state_reader_take(struct state *s, struct state **ret_reader)
{
	struct state *reader = idle_take(s);
	int error = 0;

	if (!reader)
		error = snapshot_connect(s, &reader);
	if (!error)
		*ret_reader = reader;
	return error;
}

void state_reader_give(struct state *reader)
{
	if (reader && !idle_give(reader->main, reader))
		state_free(reader);
}

int state_snapshot_begin(struct state *s, struct state **ret_snapshot)
{
	struct state *snapshot;
	int error = state_reader_take(s, &snapshot);

	if (error)
		return error;
	snapshot->totals_known = false;
	/* The view is taken by the first read, not by BEGIN. */
	error = db_exec(snapshot->db, "BEGIN; SELECT 1 FROM meta LIMIT 1");
	if (error) {
		state_free(snapshot);
		return error;
	}
	*ret_snapshot = snapshot;
	return 0;
}

void state_snapshot_end(struct state *snapshot)
{
	if (!snapshot)
		return;
	if (db_exec(snapshot->db, "COMMIT"))
		state_free(snapshot);
	else
		state_reader_give(snapshot);
}
