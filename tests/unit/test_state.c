/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: opening, damage, transactions, snapshots, what a crash leaves. */
#include "lib/state/state.h"

#include "tests/unit/state_unit.h"

/* ---- opening ---- */

START_TEST(the_first_file_is_the_root)
{
	ck_assert_uint_eq(new_file(S_IFDIR | 0755), ROOT_INO);
}
END_TEST

START_TEST(foreign_bytes_are_refused)
{
	struct state *other = NULL;
	cleanup_free char *file = unit_path(dir, "other.db");
	char garbage[8192];

	memset(garbage, 'x', sizeof(garbage));
	unit_ok(io_replace_file(AT_FDCWD, file, garbage, sizeof(garbage)));
	unit_error(state_open(dirfd_, file, &other), -EUCLEAN);
	ck_assert_ptr_null(other);
}
END_TEST

static void sql(const char *file, const char *text)
{
	sqlite3 *db = NULL;

	ck_assert_int_eq(sqlite3_open(file, &db), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

START_TEST(somebody_elses_database_is_refused)
{
	struct state *other = NULL;
	cleanup_free char *file = unit_path(dir, "other.db");

	sql(file, "CREATE TABLE t (x)");
	unit_error(state_open(dirfd_, file, &other), -EUCLEAN);
	sql(file, "PRAGMA user_version = 1");
	unit_error(state_open(dirfd_, file, &other), -EUCLEAN);
	ck_assert_ptr_null(other);
}
END_TEST

START_TEST(a_newer_schema_is_refused)
{
	struct state *other = NULL;

	state_close(s);
	s = NULL;
	sql(path, "PRAGMA user_version = 2");
	unit_error(state_open(dirfd_, path, &other), -EPROTONOSUPPORT);
	ck_assert_ptr_null(other);
}
END_TEST

/* The state of a release that knew no holes. */
START_TEST(what_an_older_program_left_is_read_and_completed)
{
	struct state_version v = {.state = VERSION_DURABLE, .size = 9, .has_recipe = true}, got;
	uint64_t id;

	unit_ok(state_version_new(s, &v, &id));
	state_close(s);
	s = NULL;
	sql(path, "ALTER TABLE versions RENAME COLUMN holes TO unknown");
	unit_ok(state_open(dirfd_, path, &s));
	unit_ok(state_version_get(s, id, &got));
	ck_assert_uint_eq(got.holes, 0);
	got.holes = 4;
	unit_ok(state_version_set(s, &got));
	unit_ok(state_version_get(s, id, &got));
	ck_assert_uint_eq(got.holes, 4);
	/* What is not told by a recipe has none, and no more than its bytes. */
	got.has_recipe = false;
	unit_ok(state_version_set(s, &got));
	unit_ok(state_version_get(s, id, &got));
	ck_assert_uint_eq(got.holes, 0);
	state_close(s);
	s = NULL;
	sql(path, "UPDATE versions SET holes = 10");
	unit_ok(state_open(dirfd_, path, &s));
	unit_error(state_version_get(s, id, &got), -EUCLEAN);
}
END_TEST

START_TEST(a_missing_directory_is_enoent)
{
	struct state *other = NULL;
	cleanup_free char *file = unit_path(dir, "none/state.db");

	unit_error(state_open(dirfd_, file, &other), -ENOENT);
	ck_assert_ptr_null(other);
}
END_TEST

START_TEST(a_damaged_page_is_told)
{
	char zeros[4096] = {0};
	struct state_file f;
	int fd;

	for (int i = 0; i < 200; i++)
		new_file(S_IFREG | 0644);
	state_close(s);
	s = NULL;
	/* All pages but the first, which holds the schema. */
	fd = open(path, O_RDWR);
	ck_assert_int_ge(fd, 0);
	for (off_t at = 4096, end = lseek(fd, 0, SEEK_END); at < end; at += 4096)
		ck_assert_int_eq(pwrite(fd, zeros, 4096, at), 4096);
	close(fd);
	if (state_open(dirfd_, path, &s) == 0)
		unit_error(state_file_get(s, 7, &f), -EUCLEAN);
	else
		unit_error(state_open(dirfd_, path, &s), -EUCLEAN);
}
END_TEST

/* ---- small values ---- */

START_TEST(meta_comes_back)
{
	cleanup_buf struct buf b = {0};
	uint64_t v = 77;

	unit_error(state_get_meta(s, "uuid", &b), -ENOENT);
	unit_error(state_get_meta_u64(s, "n", &v), -ENOENT);
	ck_assert_uint_eq(v, 77);
	unit_ok(state_set_meta(s, "uuid", "abc"));
	unit_ok(state_set_meta(s, "uuid", "defg"));
	unit_ok(state_set_meta_u64(s, "n", UINT64_MAX));
	reopen();
	unit_ok(state_get_meta(s, "uuid", &b));
	ck_assert_str_eq(buf_str(&b), "defg");
	unit_ok(state_get_meta_u64(s, "n", &v));
	ck_assert_uint_eq(v, UINT64_MAX);
	unit_error(state_get_meta_u64(s, "uuid", &v), -EUCLEAN);
}
END_TEST

/* ---- transactions ---- */

START_TEST(a_rollback_leaves_nothing)
{
	uint64_t ino, v;

	unit_ok(state_begin(s));
	ino = new_file(S_IFREG);
	unit_ok(state_set_meta(s, "k", "v"));
	ck_assert_uint_eq(state_file_count(s), 1);
	unit_error(state_end(s, -EPERM), -EPERM);
	ck_assert_uint_eq(state_file_count(s), 0);
	unit_error(state_get_meta_u64(s, "k", &v), -ENOENT);
	ck_assert_uint_gt(new_file(S_IFREG), ino);
}
END_TEST

START_TEST(an_inner_failure_rolls_all_back)
{
	struct state_file f;
	uint64_t ino;

	unit_ok(state_begin(s));
	ino = new_file(S_IFREG);
	unit_ok(state_begin(s));
	unit_error(state_end(s, -ENOENT), -ENOENT);
	unit_error(state_end(s, 0), -ENOENT);
	unit_error(state_file_get(s, ino, &f), -ENOENT);

	unit_ok(state_begin(s));
	unit_ok(state_begin(s));
	ino = new_file(S_IFREG);
	unit_ok(state_end(s, 0));
	unit_ok(state_end(s, 0));
	unit_ok(state_file_get(s, ino, &f));
}
END_TEST

START_TEST(a_failed_statement_spoils_no_transaction)
{
	struct state_name n;

	unit_ok(state_begin(s));
	unit_ok(state_name_add(s, 1, "a", 5));
	unit_error(state_name_add(s, 1, "a", 6), -EEXIST);
	unit_ok(state_name_add(s, 1, "b", 7));
	unit_ok(state_end(s, 0));
	unit_ok(state_name_get(s, 1, "a", &n));
	ck_assert_uint_eq(n.ino, 5);
	unit_ok(state_name_get(s, 1, "b", &n));
}
END_TEST

START_TEST(numbers_are_never_given_twice)
{
	uint64_t last = 0, last_version = 0;

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < 1500; i++) {
			uint64_t ino, version;

			unit_ok(state_begin(s));
			ino = new_file(S_IFREG);
			version = new_version(&(struct state_version){0});
			ck_assert_uint_gt(ino, last);
			ck_assert_uint_gt(version, last_version);
			last = ino;
			last_version = version;
			if (i % 3 == 0)
				unit_ok(state_file_remove(s, ino));
			state_end(s, i % 100 == 0 ? -EIO : 0);
		}
		reopen();
	}
}
END_TEST

/* ---- snapshots, threads, crashes ---- */

START_TEST(a_snapshot_sees_what_was_committed)
{
	uint64_t ino = new_file(S_IFREG);
	struct state *a = NULL, *b = NULL;
	struct state_file f;

	unit_ok(state_name_add(s, 1, "before", ino));
	unit_ok(state_begin(s));
	unit_ok(state_name_add(s, 1, "open", ino));
	unit_ok(state_snapshot_begin(s, &a));
	unit_ok(state_end(s, 0));
	unit_ok(state_name_remove(s, 1, "before"));
	unit_ok(state_snapshot_begin(s, &b));
	unit_ok(state_name_get(a, 1, "before", &(struct state_name){0}));
	unit_error(state_name_get(a, 1, "open", &(struct state_name){0}), -ENOENT);
	unit_error(state_name_get(b, 1, "before", &(struct state_name){0}), -ENOENT);
	unit_ok(state_name_get(b, 1, "open", &(struct state_name){0}));
	ck_assert_uint_eq(state_file_count(a), 1);
	state_snapshot_end(a);
	new_file(S_IFREG);
	/* A connection that comes back is a new view. */
	unit_ok(state_snapshot_begin(s, &a));
	ck_assert_uint_eq(state_file_count(a), 2);
	unit_ok(state_file_get(a, ino, &f));
	unit_error(state_file_remove(a, ino), -EROFS);
	state_snapshot_end(a);
	state_snapshot_end(b);
}
END_TEST

struct reading {
	struct state *snapshot;
	int count;
};

static int count_name(void *arg, const struct state_name *n, const char *name,
		      const struct state_file *f)
{
	(void)n;
	(void)name;
	(void)f;
	++*(int *)arg;
	return 0;
}

static void *read_snapshot(void *arg)
{
	struct reading *r = arg;

	state_dir_list_sorted(r->snapshot, 1, count_name, &r->count);
	state_snapshot_end(r->snapshot);
	return NULL;
}

START_TEST(snapshots_are_read_beside_a_writer)
{
	char name[32];

	for (int round = 0; round < 10; round++) {
		struct reading r[3] = {{0}};
		pthread_t thread[3];

		for (int t = 0; t < 3; t++) {
			for (int i = 0; i < 300; i++) {
				snprintf(name, sizeof(name), "%d.%d.%d", round, t, i);
				unit_ok(state_name_add(s, 1, name, 5));
			}
			unit_ok(state_snapshot_begin(s, &r[t].snapshot));
			ck_assert_int_eq(pthread_create(&thread[t], NULL, read_snapshot, &r[t]), 0);
		}
		for (int t = 0; t < 3; t++) {
			ck_assert_int_eq(pthread_join(thread[t], NULL), 0);
			ck_assert_int_eq(r[t].count, 900 * round + 300 * (t + 1));
		}
	}
}
END_TEST

static off_t file_size(const char *suffix)
{
	char file[PATH_MAX];
	struct stat st;

	snprintf(file, sizeof(file), "%s%s", path, suffix);
	return stat(file, &st) == 0 ? st.st_size : -1;
}

START_TEST(the_wal_is_moved_into_the_database)
{
	const long each = 6000; /* bytes of a commit */
	char value[3000];
	long i = 0;

	memset(value, 'v', sizeof(value));
	value[sizeof(value) - 1] = '\0';
	/* 120 MB go through the WAL, or more where the disk is slow to take them: it stays far below that. */
	for (; i < 20000 || (i < 100000 && i * each < file_size("-wal") / 2 * 3); i++) {
		char key[16];

		snprintf(key, sizeof(key), "%ld", i % 500);
		unit_ok(state_begin(s));
		unit_ok(state_set_meta(s, key, value));
		unit_ok(state_end(s, 0));
	}
	ck_assert_int_lt(file_size("-wal"), i * each / 3 * 2);
	ck_assert_int_gt(file_size(""), 500 * 3000);
	unit_ok(state_sync(s));
}
END_TEST

START_TEST(a_killed_process_loses_no_commit)
{
	pid_t child;
	uint64_t n = 0, seen = 0;
	int pipes[2], status;

	state_close(s);
	s = NULL;
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		close(pipes[0]);
		if (state_open(dirfd_, path, &s))
			_exit(1);
		for (uint64_t i = 1;; i++)
			if (state_set_meta_u64(s, "n", i) ||
			    write(pipes[1], &i, sizeof(i)) != sizeof(i))
				_exit(1);
	}
	close(pipes[1]);
	while (seen < 3000 && read(pipes[0], &n, sizeof(n)) == sizeof(n))
		seen = n;
	ck_assert_uint_eq(seen, 3000);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	while (read(pipes[0], &n, sizeof(n)) == sizeof(n))
		seen = n;
	close(pipes[0]);
	open_state();
	unit_ok(state_get_meta_u64(s, "n", &n));
	ck_assert_uint_ge(n, seen);
	ck_assert_uint_le(n, seen + 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("state");
	TCase *t;

	t = fixture(suite, "opening");
	tcase_add_test(t, the_first_file_is_the_root);
	tcase_add_test(t, foreign_bytes_are_refused);
	tcase_add_test(t, somebody_elses_database_is_refused);
	tcase_add_test(t, a_newer_schema_is_refused);
	tcase_add_test(t, what_an_older_program_left_is_read_and_completed);
	tcase_add_test(t, a_missing_directory_is_enoent);
	tcase_add_test(t, a_damaged_page_is_told);
	t = fixture(suite, "small values");
	tcase_add_test(t, meta_comes_back);
	t = fixture(suite, "transactions");
	tcase_add_test(t, a_rollback_leaves_nothing);
	tcase_add_test(t, an_inner_failure_rolls_all_back);
	tcase_add_test(t, a_failed_statement_spoils_no_transaction);
	tcase_add_test(t, numbers_are_never_given_twice);
	t = fixture(suite, "snapshots, threads, crashes");
	tcase_add_test(t, a_snapshot_sees_what_was_committed);
	tcase_add_test(t, snapshots_are_read_beside_a_writer);
	tcase_add_test(t, the_wal_is_moved_into_the_database);
	tcase_add_test(t, a_killed_process_loses_no_commit);
	return unit_run(suite);
}
