/* SPDX-License-Identifier: Apache-2.0 */
/* Watching a directory: what inotify cannot tell is looked for. */
#include "lib/import/import.h"
#include "tests/unit/readdir_unit.h"

/* A directory whose listing breaks off has others in it that nobody watches: it is listed from then on, as
 * where inotify is refused. */
START_TEST(a_listing_that_fails_is_made_up_for)
{
	static struct volume_options options;
	char *dir = unit_dir(), *below = unit_path(dir, "step/shards"), *message = NULL;
	struct watch_options o = {.directory = dir, .volume = &options};
	struct watch *w = NULL;
	const char *why;

	unit_ok(io_mkdir_p(below));
	readdir_fails_in = _i < 3 ? "/step" : "/shards";
	readdir_entries = (unsigned)_i % 3;
	readdir_failures_max = 1;
	unit_ok(watch_open(&o, &w, &message));
	ck_assert_uint_eq(readdir_failures, 1);
	ck_assert(watch_polls(w, &why));
	ck_assert_str_ne(why, "");
	watch_close(w);
	free(below);
	free(dir);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("import_watch");
	TCase *t = unit_case(s, "inotify");

	tcase_add_loop_test(t, a_listing_that_fails_is_made_up_for, 0, 6);
	return unit_run(s);
}
