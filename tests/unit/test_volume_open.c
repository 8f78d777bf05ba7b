/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a volume: one mount at a time, a database that fails, what is no volume. */
#include <sqlite3.h>

#include "tests/unit/recover_unit.h"

START_TEST(a_cache_is_used_by_one_mount_at_a_time)
{
	struct volume_options o;
	struct volume *second;
	char *message = NULL;
	char pid[16];

	vu_mount(&u);
	vu_options(&u, &o);
	unit_error(volume_open(&o, &second, &message), -ENOTUNIQ);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	ck_assert(message && strstr(message, pid));
	ck_assert(message && strstr(message, "cache-dir"));
	free(message);
}
END_TEST

static int selects, refused;

static int authorize(void *arg, int action, const char *table, const char *column,
		     const char *database, const char *trigger)
{
	(void)arg, (void)column, (void)database, (void)trigger;
	if (action == SQLITE_SELECT)
		selects++;
	return action == SQLITE_READ && strcmp(table, "versions") == 0 && selects == refused
		       ? SQLITE_DENY
		       : SQLITE_OK;
}

static int watch(sqlite3 *db, const char **ret_message, const struct sqlite3_api_routines *api)
{
	(void)ret_message, (void)api;
	return sqlite3_set_authorizer(db, authorize, NULL);
}

/* Whichever query about versions fails. */
START_TEST(content_of_which_the_database_cannot_tell_stays)
{
	struct volume_options o;
	unsigned failed = 0;

	vu_mount(&u);
	vu_save(&u, "a", "precious");
	volume_close(u.vol);
	vu_options(&u, &o);
	ck_assert_int_eq(sqlite3_auto_extension((void (*)(void))watch), SQLITE_OK);
	for (refused = 1; refused < 30; refused++) {
		char *message = NULL;

		selects = 0;
		u.vol = NULL;
		if (volume_open(&o, &u.vol, &message))
			failed++;
		else
			volume_close(u.vol);
		free(message);
	}
	u.vol = NULL;
	sqlite3_reset_auto_extension();
	ck_assert_uint_gt(failed, 0);
	vu_mount(&u);
	vu_holds(&u, "a", "precious");
}
END_TEST

START_TEST(what_is_no_volume_is_refused)
{
	struct volume_options o;
	struct volume *vol;
	char *message = NULL;
	char *dir = unit_dir(), *path = unit_path(dir, "thesis.txt");

	close(open(path, O_CREAT | O_WRONLY, 0600));
	free(u.remote);
	u.remote = dir;
	vu_options(&u, &o);
	unit_error(volume_open(&o, &vol, &message), -EBADMSG);
	ck_assert(message && strstr(message, "thesis.txt"));
	free(message);
	unlink(path);
	o.read_only = true;
	unit_error(volume_open(&o, &vol, &message), -ENOENT);
	free(message);
	o.read_only = false;
	unit_ok(volume_open(&o, &vol, &message));
	volume_close(vol);
	free(path);
}
END_TEST

START_TEST(without_a_remote_a_cache_directory_is_asked_for)
{
	struct volume_options o;
	struct volume *vol;
	char *message = NULL;

	volume_options_init(&o);
	unit_error(volume_open(&o, &vol, &message), -EINVAL);
	ck_assert(message && strstr(message, "cache-dir"));
	free(message);
	o.at_epoch = 1;
	unit_error(volume_open(&o, &vol, &message), -EINVAL);
	free(message);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_open");
	TCase *t = recover_case(s, "open");

	tcase_add_test(t, a_cache_is_used_by_one_mount_at_a_time);
	tcase_add_test(t, content_of_which_the_database_cannot_tell_stays);
	tcase_add_test(t, what_is_no_volume_is_refused);
	tcase_add_test(t, without_a_remote_a_cache_directory_is_asked_for);
	return unit_run(s);
}
