/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of the local state: after each commit, rollback and failed write another program that is given the files finds exactly what
 * was committed. A cache of few pages makes SQLite write in the middle of transactions, read that back, and write it again.
 */
#include "lib/state/state_db.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include "lib/state/reserve.h"
#include "tests/unit/unit.h"

#define ROWS 60

static char *dir, *path, *copy;
static int dirfd_;
static struct reserve *reserve;
static struct state_vfs *vfs;
static sqlite3 *db;

static void run(const char *sql)
{
	ck_assert_msg(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s: %s", sql,
		      sqlite3_errmsg(db));
}

static void connect_again(void)
{
	unit_ok(db_connect(vfs, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &db));
	run("PRAGMA journal_mode = WAL; PRAGMA cache_size = 6;"
	    "CREATE TABLE IF NOT EXISTS t (k INTEGER PRIMARY KEY, v BLOB, w)");
}

/* Both become its own. */
static void setup_in(char *folder, char *copied)
{
	dir = folder;
	path = unit_path(dir, "state.db");
	copy = copied;
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(dirfd_, 0);
	unit_ok(reserve_open(dirfd_, &reserve));
	unit_ok(state_vfs_new(reserve, dirfd_, &vfs));
	connect_again();
}

static void setup(void)
{
	char *folder = unit_dir();

	setup_in(folder, unit_path(folder, "copy.db"));
}

static void teardown(void)
{
	ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
	state_vfs_free(vfs);
	reserve_close(reserve);
	close(dirfd_);
	free(copy);
	free(path);
	free(dir);
}

/* All that is in the table, as text. */
static char *content(sqlite3 *of)
{
	static const char sql[] =
		"SELECT ifnull(group_concat(k || ':' || length(v) || ':' || w), '') FROM (SELECT * FROM t ORDER BY k)";
	sqlite3_stmt *stmt = NULL;
	char *text;

	ck_assert_int_eq(sqlite3_prepare_v2(of, sql, -1, &stmt, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
	text = strdup((const char *)sqlite3_column_text(stmt, 0));
	sqlite3_finalize(stmt);
	ck_assert_ptr_nonnull(text);
	return text;
}

static void copy_file(const char *suffix)
{
	cleanup_free char *from = NULL, *to = NULL;
	cleanup_close int in = -1, out = -1;
	char block[65536];
	ssize_t n;

	ck_assert_int_gt(asprintf(&from, "%s%s", path, suffix), 0);
	ck_assert_int_gt(asprintf(&to, "%s%s", copy, suffix), 0);
	in = open(from, O_RDONLY | O_CLOEXEC);
	out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(in, 0);
	ck_assert_int_ge(out, 0);
	while ((n = read(in, block, sizeof(block))) > 0)
		ck_assert_int_eq(write(out, block, (size_t)n), n);
	ck_assert_int_eq(n, 0);
}

/* What somebody else makes of the files, as they are now: as after a crash of this process. */
static char *content_of_files(void)
{
	sqlite3 *other = NULL;
	sqlite3_stmt *stmt = NULL;
	char *text;

	copy_file("");
	copy_file("-wal");
	ck_assert_int_eq(sqlite3_open_v2(copy, &other, SQLITE_OPEN_READWRITE, "unix"), SQLITE_OK);
	ck_assert_int_eq(sqlite3_prepare_v2(other, "PRAGMA integrity_check", -1, &stmt, NULL),
			 SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
	ck_assert_str_eq((const char *)sqlite3_column_text(stmt, 0), "ok");
	sqlite3_finalize(stmt);
	text = content(other);
	ck_assert_int_eq(sqlite3_close(other), SQLITE_OK);
	return text;
}

static unsigned chance(unsigned *seed, unsigned below)
{
	return (unsigned)rand_r(seed) % below;
}

static void change(unsigned *seed)
{
	char sql[100];
	unsigned k = chance(seed, ROWS);

	if (chance(seed, 4) == 0)
		snprintf(sql, sizeof(sql), "DELETE FROM t WHERE k = %u", k);
	else
		snprintf(sql, sizeof(sql), "REPLACE INTO t VALUES (%u, zeroblob(%u), %u)", k,
			 chance(seed, 9000), chance(seed, 1000000));
	run(sql);
}

static void changes(unsigned *seed)
{
	unsigned count = chance(seed, 3) ? 1 + chance(seed, 3) : chance(seed, 80);

	while (count--) {
		bool inside = chance(seed, 4) == 0;

		if (inside)
			run("SAVEPOINT inner");
		change(seed);
		if (inside && chance(seed, 2))
			run("ROLLBACK TO inner");
		if (inside)
			run("RELEASE inner");
	}
}

static void check_files(const char *want)
{
	cleanup_free char *mine = content(db), *theirs = content_of_files();

	ck_assert_str_eq(mine, want);
	ck_assert_str_eq(theirs, want);
}

START_TEST(the_files_hold_what_was_committed_and_nothing_else)
{
	unsigned seed = (unsigned)_i;
	char *want = content(db);

	for (int i = 0; i < 60; i++) {
		run("BEGIN IMMEDIATE");
		changes(&seed);
		if (chance(&seed, 3) == 0) {
			cleanup_free char *others = content_of_files();

			/* In the middle of it, too. */
			ck_assert_str_eq(others, want);
			run("ROLLBACK");
		} else {
			run("COMMIT");
			free(want);
			want = content(db);
		}
		check_files(want);
		if (chance(&seed, 12) == 0)
			run(chance(&seed, 2) ? "PRAGMA wal_checkpoint(RESTART)"
					     : "PRAGMA wal_checkpoint(TRUNCATE)");
		if (chance(&seed, 12) == 0) {
			ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
			connect_again();
		}
	}
	free(want);
}
END_TEST

/* The journal cannot grow: the commit says so, and what comes after is as if it had not been tried. */
START_TEST(a_write_that_fails_at_the_commit_leaves_what_was_there)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	unsigned seed = (unsigned)_i, failed = 0;
	char *want = content(db);

	signal(SIGXFSZ, SIG_IGN);
	for (int i = 0; i < 40; i++) {
		int rc;

		run("BEGIN IMMEDIATE");
		change(&seed);
		change(&seed);
		limit.rlim_cur = chance(&seed, 2) ? 4096 * (1 + chance(&seed, 100)) : RLIM_INFINITY;
		ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
		rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
		limit.rlim_cur = RLIM_INFINITY;
		ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
		failed += rc != SQLITE_OK;
		if (!sqlite3_get_autocommit(db))
			run("ROLLBACK");
		if (rc == SQLITE_OK) {
			free(want);
			want = content(db);
		}
		check_files(want);
	}
	ck_assert_uint_gt(failed, 0);
	free(want);
}
END_TEST

static bool tried(const char *sql)
{
	return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

/* One that several rows go into needs a journal of the statement, so that its failure alone ends no transaction. */
static void try_change(unsigned *seed)
{
	char sql[200];

	snprintf(sql, sizeof(sql),
		 "REPLACE INTO t SELECT (k + %u) %% %u, zeroblob(%u), %u FROM t LIMIT %u",
		 chance(seed, ROWS), ROWS, chance(seed, 9000), chance(seed, 1000000),
		 1 + chance(seed, 40));
	tried(sql);
}

/* How much a transaction in try_changes may write; SIZE_MAX: as much as it likes. */
typedef void (*limit_fn)(size_t bytes);

static void limit_files(size_t bytes)
{
	struct rlimit limit = {.rlim_cur = bytes == SIZE_MAX ? RLIM_INFINITY : bytes,
			       .rlim_max = RLIM_INFINITY};

	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* What is left on the disk. */
static void limit_disk(size_t bytes)
{
	cleanup_free char *filler = unit_path(dir, "filler");
	cleanup_close int fd = -1;
	struct statfs fs;

	unlink(filler);
	if (bytes == SIZE_MAX)
		return;
	fd = open(filler, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstatfs(fd, &fs), 0);
	if ((size_t)fs.f_bavail * (size_t)fs.f_bsize > bytes)
		ck_assert_int_eq(
			posix_fallocate(fd, 0,
					(off_t)((size_t)fs.f_bavail * (size_t)fs.f_bsize - bytes)),
			0);
}

/* What is written in the middle of a transaction may fail. */
static void try_transactions(unsigned seed, limit_fn limit)
{
	unsigned committed = 0, failed = 0;
	char *want;

	for (unsigned k = 0; k < ROWS; k += 2)
		change(&seed);
	want = content(db);
	for (int i = 0; i < 60; i++) {
		bool is_committed;

		run("BEGIN IMMEDIATE");
		for (unsigned n = 1 + chance(&seed, 12); n-- && !sqlite3_get_autocommit(db);) {
			limit(chance(&seed, 3) ? SIZE_MAX
					       : 4096 * (size_t)(1 + chance(&seed, 100)));
			try_change(&seed);
		}
		limit(SIZE_MAX);
		is_committed = !sqlite3_get_autocommit(db) && tried("COMMIT");
		if (!sqlite3_get_autocommit(db))
			run("ROLLBACK");
		committed += is_committed;
		failed += !is_committed;
		if (is_committed) {
			free(want);
			want = content(db);
		}
		check_files(want);
		if (chance(&seed, 8) == 0)
			tried("PRAGMA wal_checkpoint(TRUNCATE)");
	}
	ck_assert_uint_gt(committed, 0);
	ck_assert_uint_gt(failed, 0);
	free(want);
}

START_TEST(a_write_that_fails_in_a_transaction_leaves_no_half)
{
	signal(SIGXFSZ, SIG_IGN);
	try_transactions((unsigned)_i, limit_files);
}
END_TEST

/* SQLite ends no transaction for this by itself, but the statement. */
START_TEST(a_full_disk_in_a_transaction_leaves_no_half)
{
	cleanup_free char *outside = unit_dir(), *small = unit_path(outside, "small");

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		unit_skip("only root may mount a small disk");
	ck_assert_int_eq(mkdir(small, 0700), 0);
	ck_assert_int_eq(mount("small", small, "tmpfs", 0, "size=24m"), 0);
	teardown();
	setup_in(strdup(small), unit_path(outside, "copy.db"));
	try_transactions((unsigned)_i, limit_disk);
}
END_TEST

/* In one piece more than SQLite's own VFS can write, if it were. */
START_TEST(a_large_transaction_is_written_whole)
{
	cleanup_free char *want = NULL;

	run("PRAGMA cache_size = 10000; BEGIN IMMEDIATE");
	for (unsigned k = 0; k < 300; k++) {
		char sql[100];

		snprintf(sql, sizeof(sql), "INSERT INTO t VALUES (%u, randomblob(%u), %u)", k,
			 1000 + 37 * k, k);
		run(sql);
	}
	run("COMMIT");
	want = content(db);
	check_files(want);
	for (unsigned pages = 14; pages < 70; pages++) {
		cleanup_free char *now = NULL;
		char sql[100];

		snprintf(sql, sizeof(sql), "REPLACE INTO t VALUES (1000, randomblob(%u), %u)",
			 pages * 4092, pages);
		run(sql);
		now = content(db);
		check_files(now);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("state_vfs");
	TCase *t = tcase_create("journal");

	/* A small disk is made full again and again, and synced; a busy machine takes long for that. */
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, the_files_hold_what_was_committed_and_nothing_else, 1, 9);
	tcase_add_loop_test(t, a_write_that_fails_at_the_commit_leaves_what_was_there, 1, 5);
	tcase_add_loop_test(t, a_write_that_fails_in_a_transaction_leaves_no_half, 1, 9);
	tcase_add_loop_test(t, a_full_disk_in_a_transaction_leaves_no_half, 1, 9);
	tcase_add_test(t, a_large_transaction_is_written_whole);
	suite_add_tcase(suite, t);
	return unit_run(suite);
}
