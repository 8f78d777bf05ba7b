/* SPDX-License-Identifier: Apache-2.0 */
/* The disk fails while a folder of the cache is listed: the mount is refused, and nothing is taken for
 * gone. */
#include <glob.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include "lib/cache/torn.h"
#include "tests/unit/readdir_unit.h"
#include "tests/unit/volume_unit.h"

#define FILES 6

static struct vu u;

static void setup(void)
{
	u = (struct vu){.cache = unit_dir(), .remote = strdup("none")};
}

static void teardown(void)
{
	if (u.vol)
		volume_close(u.vol);
	free(u.cache);
	free(u.remote);
}

static const char *name_of(int i, char ret_name[8])
{
	snprintf(ret_name, 8, "f%d", i);
	return ret_name;
}

/* What was closed by a daemon that was killed. */
static void save_and_die(void)
{
	int status;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (!pid) {
		char name[8];

		vu_mount(&u);
		for (int i = 0; i < FILES; i++)
			vu_save(&u, name_of(i, name), "precious");
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Tries to open the volume while one listing of `folder` fails, after this many entries. */
static void open_fails(const char *folder, unsigned entries)
{
	struct volume_options o;
	char *message = NULL;
	int error;

	readdir_fails_in = folder;
	readdir_entries = entries;
	readdir_failures = 0;
	readdir_failures_max = 1;
	vu_options(&u, &o);
	error = volume_open(&o, &u.vol, &message);
	if (!error)
		volume_close(u.vol);
	u.vol = NULL;
	readdir_fails_in = NULL;
	ck_assert_uint_gt(readdir_failures, 0);
	ck_assert_msg(error == -EIO, "volume_open: %d: %s", error, message ? message : "");
	ck_assert_ptr_nonnull(message);
	free(message);
}

static void all_is_there(void)
{
	char name[8];

	vu_mount(&u);
	for (int i = 0; i < FILES; i++) {
		vu_holds(&u, name_of(i, name), "precious");
		ck_assert(!vu_version(&u, vu_file(&u, name).closed).torn);
	}
}

/* It is listed to see whether it is a new cache, then for what was cut short, then for what is there: each of them fails. */
START_TEST(closed_content_is_not_torn)
{
	save_and_die();
	readdir_listings = (unsigned)_i / FILES;
	open_fails("/objects", (unsigned)_i % FILES);
	all_is_there();
}
END_TEST

/* Without its database, a cache whose objects cannot be listed must not be taken for a new one: then all in
 * it would be garbage. */
START_TEST(a_cache_that_lost_its_database_is_not_new)
{
	char *pattern = unit_path(u.cache, "*/state.db*"), command[PATH_MAX];

	save_and_die();
	snprintf(command, sizeof(command), "rm %s", pattern);
	ck_assert_int_eq(system(command), 0);
	open_fails("/objects", (unsigned)_i);
	snprintf(command, sizeof(command), "test $(find %s -path '*/objects/*' | wc -l) -ge %d",
		 u.cache, FILES);
	ck_assert_int_eq(system(command), 0);
	free(pattern);
}
END_TEST

/* As the last connection that closes is another's. */
static void empty_journal(void)
{
	cleanup_free char *pattern = unit_path(u.cache, "*/state.db");
	glob_t found;
	sqlite3 *db;

	ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
	ck_assert_int_eq(sqlite3_open(found.gl_pathv[0], &db), SQLITE_OK);
	ck_assert_int_eq(sqlite3_exec(db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL),
			 SQLITE_OK);
	sqlite3_close(db);
	globfree(&found);
}

/* Whether the journal was lost, or moved into the database in order, only the objects tell. */
START_TEST(a_missing_journal_is_not_taken_for_moved)
{
	save_and_die();
	empty_journal();
	readdir_listings = 1;
	open_fails("/objects", (unsigned)_i);
	all_is_there();
}
END_TEST

/* What only this machine has is brought back by the next mount. */
START_TEST(what_a_damaged_state_leaves_is_recovered_later)
{
	char command[PATH_MAX];

	save_and_die();
	empty_journal();
	/* The objects are younger. */
	snprintf(command, sizeof(command), "touch -d @1 %s/*/state.db", u.cache);
	ck_assert_int_eq(system(command), 0);
	open_fails("/damaged/objects", (unsigned)_i);
	snprintf(command, sizeof(command), "test -d %s/*/damaged", u.cache);
	ck_assert_int_eq(system(command), 0);
	all_is_there();
}
END_TEST

START_TEST(torn_files_are_not_forgotten)
{
	save_and_die();
	open_fails("/torn", (unsigned)_i);
	all_is_there();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_readdir");
	TCase *t = unit_case(s, "a folder that cannot be listed");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, closed_content_is_not_torn, 0, 3 * FILES);
	tcase_add_loop_test(t, a_cache_that_lost_its_database_is_not_new, 0, 3);
	tcase_add_loop_test(t, a_missing_journal_is_not_taken_for_moved, 0, FILES);
	tcase_add_loop_test(t, what_a_damaged_state_leaves_is_recovered_later, 0, FILES);
	tcase_add_loop_test(t, torn_files_are_not_forgotten, 0, 2);
	return unit_run(s);
}
