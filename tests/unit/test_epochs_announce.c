/* SPDX-License-Identifier: Apache-2.0 */
/* Telling others of epochs: the program's run, the database's rows, the queue. */
#include "lib/epochs/announce.h"

#include <sqlite3.h>
#include "lib/util/clock.h"
#include "lib/epochs/announce_internal.h"
#include "tests/unit/volume_unit.h"

/* ---- the program ---- */

static int run_program(const char *command, int64_t timeout_ns, bool stop, char ret_why[512])
{
	struct announce_program *p = NULL;
	cleanup_buf struct buf why = {0};
	atomic_bool stops = stop;
	int error;

	unit_ok(announce_program_new(command, timeout_ns, &p));
	error = announce_program_run(p, "{\"epoch\":1}", &stops, &why);
	announce_program_free(p);
	snprintf(ret_why, 512, "%s", buf_str(&why));
	return error;
}

START_TEST(a_program_that_exits_with_0_has_it)
{
	char why[512];

	unit_ok(run_program("sh -c 'read -r line && [ \"$line\" = \"{\\\"epoch\\\":1}\" ]'",
			    60 * NS_PER_S, false, why));
	ck_assert_str_eq(why, "");
	/* Nor does it matter how much it says, or that it reads nothing. */
	unit_ok(run_program("sh -c 'yes | head -c 5000000; yes | head -c 5000000 >&2'",
			    60 * NS_PER_S, false, why));
}
END_TEST

START_TEST(a_program_that_fails_says_why)
{
	char why[512];

	unit_error(run_program("sh -c 'echo first >&2; echo last >&2; exit 7'", 60 * NS_PER_S,
			       false, why),
		   -EIO);
	ck_assert_str_eq(why, "sh ended with exit code 7: last");
	unit_error(run_program("sh -c 'kill -9 $$'", 60 * NS_PER_S, false, why), -EIO);
	ck_assert_str_eq(why, "sh was killed by signal 9");
}
END_TEST

START_TEST(a_program_that_hangs_is_ended)
{
	char why[512];

	unit_error(run_program("sleep 1000", NS_PER_S / 10, false, why), -ETIMEDOUT);
	ck_assert_str_eq(why, "sleep was ended after 100 ms");
	unit_error(run_program("sleep 1000", 600 * NS_PER_S, true, why), -ECANCELED);
}
END_TEST

START_TEST(what_is_no_program_is_told_at_once)
{
	struct announce_program *p = NULL;

	unit_error(announce_program_new("sh 'open", NS_PER_S, &p), -EINVAL);
	unit_error(announce_program_new("./sh", NS_PER_S, &p), -EINVAL);
	unit_error(announce_program_new("/nowhere/sh", NS_PER_S, &p), -ENOENT);
	unit_error(announce_program_new("/etc/passwd", NS_PER_S, &p), -EACCES);
}
END_TEST

/* ---- the database ---- */

static char *database(void)
{
	char *path = NULL, *dir = unit_dir();

	ck_assert_int_ge(asprintf(&path, "%s/db", dir), 0);
	free(dir);
	return path;
}

static void write_ok(const char *path, const char *text)
{
	cleanup_buf struct buf why = {0};
	int error = announce_db_write(path, text, &why);

	ck_assert_msg(!error, "%d: %s", error, buf_str(&why));
}

/* The first column of the first row, as text. */
static void gives(const char *path, const char *sql, const char *expected)
{
	sqlite3_stmt *stmt = NULL;
	sqlite3 *db = NULL;
	const char *got;

	ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
	ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
	ck_assert_int_eq(sqlite3_step(stmt), SQLITE_ROW);
	got = (const char *)sqlite3_column_text(stmt, 0);
	ck_assert_str_eq(got ? got : "NULL", expected);
	sqlite3_finalize(stmt);
	sqlite3_close(db);
}

#define SEALED                                                                                     \
	"{\"event\":\"sealed\",\"volume\":\"v\",\"epoch\":7,\"complete\":true,\"host\":\"n1\","    \
	"\"sealed\":\"2026-01-01T00:00:00Z\",\"mountpoint\":\"/m\"}"
#define DURABLE                                                                                    \
	"{\"event\":\"durable\",\"volume\":\"v\",\"epoch\":7,\"complete\":\"unknown\","            \
	"\"message\":\"'); DROP TABLE checkpoints; --\",\"node_names\":[\"a\",\"b\"],"             \
	"\"path_type\":\"file\",\"path_prefix\":\"/p\",\"durable\":\"2026-01-01T00:00:01Z\","      \
	"\"tree_hash\":\"00ff\"}"

START_TEST(a_row_follows_its_epoch)
{
	cleanup_free char *path = database();

	write_ok(path, SEALED);
	gives(path, "SELECT complete || ' ' || durable || ' ' || dropped FROM checkpoints",
	      "1 0 0");
	gives(path, "SELECT path_type || path_prefix || node_names FROM checkpoints",
	      "epochfs/m/.epochs/000007[\"n1\"]");
	write_ok(path, DURABLE);
	gives(path, "SELECT durable FROM checkpoints WHERE complete IS NULL", "1");
	gives(path, "SELECT message FROM checkpoints", "'); DROP TABLE checkpoints; --");
	gives(path, "SELECT path_type || path_prefix || node_names FROM checkpoints",
	      "file/p[\"a\",\"b\"]");
	/* Another writer with this number, whose epoch is in no remote. */
	write_ok(path, SEALED);
	gives(path, "SELECT durable || tree_hash FROM checkpoints", "100ff");
	write_ok(path, "{\"event\":\"dropped\",\"volume\":\"v\",\"epoch\":7,\"dropped\":\"now\"}");
	gives(path, "SELECT dropped || dropped_at || durable FROM checkpoints", "1now1");
	gives(path, "SELECT count(*) FROM checkpoints", "1");
}
END_TEST

START_TEST(an_epoch_that_is_continued_is_not_complete)
{
	cleanup_free char *path = database();

	write_ok(path, SEALED);
	write_ok(path, "{\"event\":\"sealed\",\"volume\":\"w\",\"epoch\":8,\"continues\":7}");
	gives(path, "SELECT complete FROM checkpoints WHERE epoch = 7", "1");
	write_ok(path, "{\"event\":\"sealed\",\"volume\":\"v\",\"epoch\":8,\"continues\":7}");
	gives(path, "SELECT complete FROM checkpoints WHERE epoch = 7", "0");
}
END_TEST

START_TEST(a_database_that_cannot_be_written_says_why)
{
	cleanup_free char *path = database();
	cleanup_buf struct buf why = {0};
	int fd;

	unit_error(announce_db_write("/nowhere/db", SEALED, &why), -EIO);
	ck_assert_str_eq(buf_str(&why), "/nowhere/db: unable to open database file");
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	unit_ok(io_write_full(fd, "this is a text and no database, however long it may be", 54));
	close(fd);
	buf_reset(&why);
	unit_error(announce_db_write(path, SEALED, &why), -EIO);
	ck_assert_ptr_nonnull(strstr(buf_str(&why), "/db: file is not a database"));
}
END_TEST

/* ---- the queue ---- */

START_TEST(a_queue_keeps_its_order_and_its_sink)
{
	struct vu u = {0};
	cleanup_free char *first = NULL, *second = NULL;
	uint64_t id, next, count;

	vu_start(&u);
	mutex_lock(&u.vol->lock);
	unit_ok(state_announcement_add(u.vol->state, 0, "a"));
	unit_ok(state_announcement_add(u.vol->state, 1, "other"));
	unit_ok(state_announcement_add(u.vol->state, 0, "b"));
	mutex_unlock(&u.vol->lock);
	/* A mount without a program keeps what waits for one; a database that is not named does not. */
	vu_remount(&u);
	mutex_lock(&u.vol->lock);
	unit_ok(state_announcement_first(u.vol->state, 0, &id, &first));
	ck_assert_str_eq(first, "a");
	unit_ok(state_announcement_remove(u.vol->state, 0, id));
	unit_ok(state_announcement_first(u.vol->state, 0, &next, &second));
	ck_assert_str_eq(second, "b");
	ck_assert_uint_gt(next, id);
	unit_ok(state_announcements_count(u.vol->state, 0, &count));
	ck_assert_uint_eq(count, 1);
	unit_ok(state_announcements_clear(u.vol->state, 0));
	unit_error(state_announcement_first(u.vol->state, 0, &id, &first), -ENOENT);
	mutex_unlock(&u.vol->lock);
	vu_stop(&u);
}
END_TEST

/* Sealed epochs of a volume reach the database while others seal. */
START_TEST(a_volume_announces_what_it_seals)
{
	struct vu u = {.cache = unit_dir(), .remote = strdup("none")};
	cleanup_free char *path = database();
	struct volume_options o;
	char *message = NULL;

	vu_options(&u, &o);
	o.catalog_db = path;
	o.on_epoch = "cat";
	o.run_id = "run7";
	unit_ok(volume_open(&o, &u.vol, &message));
	for (int i = 0; i < 5; i++) {
		vu_save(&u, "model", i % 2 ? "one" : "two");
		vu_seal(&u);
	}
	unit_ok(volume_finish(u.vol, true, NULL, NULL));
	gives(path,
	      "SELECT count(*) || max(epoch) || max(durable) FROM checkpoints"
	      " WHERE run_id = 'run7' AND complete",
	      "550");
	vu_stop(&u);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_announce");
	TCase *t = unit_case(s, "program");

	tcase_add_test(t, a_program_that_exits_with_0_has_it);
	tcase_add_test(t, a_program_that_fails_says_why);
	tcase_add_test(t, a_program_that_hangs_is_ended);
	tcase_add_test(t, what_is_no_program_is_told_at_once);
	t = unit_case(s, "database");
	tcase_add_test(t, a_row_follows_its_epoch);
	tcase_add_test(t, an_epoch_that_is_continued_is_not_complete);
	tcase_add_test(t, a_database_that_cannot_be_written_says_why);
	t = unit_case(s, "queue");
	tcase_add_test(t, a_queue_keeps_its_order_and_its_sink);
	tcase_add_test(t, a_volume_announces_what_it_seals);
	return unit_run(s);
}
