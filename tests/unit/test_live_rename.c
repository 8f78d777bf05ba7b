/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree: rename, exchange, and renames that a kill undoes. */
#include "lib/live/live.h"

#include "tests/unit/live_unit.h"

/* ---- rename ---- */

START_TEST(a_rename_replaces)
{
	uint64_t dir = mkdir_at(ROOT_INO, "dir"), a = file_at(ROOT_INO, "a", "new");

	file_at(dir, "b", "old");
	unit_ok(live_rename(vol, ROOT_INO, "a", dir, "b", 0, NULL));
	unit_error(looks(ROOT_INO, "a"), -ENOENT);
	ck_assert_uint_eq(look(dir, "b").ino, a);
	ck_assert_uint_eq(look(dir, "b").nlink, 1);
	assert_text(dir, "b", "new");
}
END_TEST

START_TEST(a_rename_tells_what_is_wrong)
{
	uint64_t dir = mkdir_at(ROOT_INO, "dir"), sub = mkdir_at(dir, "sub");
	char name[258];

	memset(name, 'n', sizeof(name));
	name[257] = '\0';
	file_at(ROOT_INO, "file", "x");
	mkdir_at(ROOT_INO, "empty");
	unit_error(live_rename(vol, ROOT_INO, "none", ROOT_INO, "b", 0, NULL), -ENOENT);
	unit_error(live_rename(vol, ROOT_INO, "file", 9999, "b", 0, NULL), -ENOENT);
	unit_error(live_rename(vol, ROOT_INO, "file", look(ROOT_INO, "file").ino, "b", 0, NULL),
		   -ENOTDIR);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, name, 0, NULL), -ENAMETOOLONG);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "a/b", 0, NULL), -EINVAL);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "empty", 0, NULL), -EISDIR);
	unit_error(live_rename(vol, ROOT_INO, "empty", ROOT_INO, "file", 0, NULL), -ENOTDIR);
	unit_error(live_rename(vol, ROOT_INO, "empty", ROOT_INO, "dir", 0, NULL), -ENOTEMPTY);
	unit_error(live_rename(vol, ROOT_INO, "dir", sub, "in", 0, NULL), -EINVAL);
	unit_error(live_rename(vol, ROOT_INO, "dir", dir, "in", 0, NULL), -EINVAL);
	unit_error(live_rename(vol, dir, "sub", ROOT_INO, "dir", 0, NULL), -ENOTEMPTY);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "dir", RENAME_NOREPLACE, NULL),
		   -EEXIST);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "b", RENAME_EXCHANGE, NULL),
		   -ENOENT);
	unit_error(live_rename(vol, ROOT_INO, "dir", dir, "sub", RENAME_EXCHANGE, NULL), -EINVAL);
	unit_error(live_rename(vol, dir, "sub", ROOT_INO, "dir", RENAME_EXCHANGE, NULL), -EINVAL);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "b", 0x80, NULL), -EINVAL);
	unit_error(live_rename(vol, ROOT_INO, "file", ROOT_INO, "b",
			       RENAME_EXCHANGE | RENAME_NOREPLACE, NULL),
		   -EINVAL);
	unit_ok(live_rename(vol, ROOT_INO, "file", ROOT_INO, "b", RENAME_NOREPLACE, NULL));
	unit_ok(live_rename(vol, ROOT_INO, "b", ROOT_INO, "b", 0, NULL));
	assert_text(ROOT_INO, "b", "x");
}
END_TEST

START_TEST(two_names_of_one_file_stay)
{
	uint64_t ino = file_at(ROOT_INO, "a", "x");
	struct live_attr a;

	unit_ok(live_link(vol, ino, ROOT_INO, "b", NULL, &a));
	unit_ok(live_rename(vol, ROOT_INO, "a", ROOT_INO, "b", 0, NULL));
	ck_assert_uint_eq(look(ROOT_INO, "a").nlink, 2);
	ck_assert_uint_eq(look(ROOT_INO, "b").ino, ino);
}
END_TEST

START_TEST(directories_move_with_their_links)
{
	uint64_t a = mkdir_at(ROOT_INO, "a"), b = mkdir_at(ROOT_INO, "b");
	uint64_t moved = mkdir_at(a, "moved"), parent = 0;

	mkdir_at(b, "over");
	file_at(moved, "file", "x");
	unit_ok(live_rename(vol, a, "moved", b, "over", 0, NULL));
	ck_assert_uint_eq(attr(a).nlink, 2);
	ck_assert_uint_eq(attr(b).nlink, 3);
	unit_ok(live_parent(vol, moved, &parent));
	ck_assert_uint_eq(parent, b);
	assert_text(moved, "file", "x");
	unit_ok(live_rename(vol, b, "over", ROOT_INO, "top", 0, NULL));
	ck_assert_uint_eq(attr(b).nlink, 2);
	ck_assert_uint_eq(attr(ROOT_INO).nlink, 5);
}
END_TEST

START_TEST(an_exchange_swaps_a_file_and_a_directory)
{
	uint64_t dir = mkdir_at(ROOT_INO, "dir"), sub = mkdir_at(dir, "sub"), parent = 0;
	uint64_t file = file_at(ROOT_INO, "file", "x");

	unit_ok(live_rename(vol, ROOT_INO, "file", dir, "sub", RENAME_EXCHANGE, NULL));
	ck_assert_uint_eq(look(ROOT_INO, "file").ino, sub);
	ck_assert_uint_eq(look(dir, "sub").ino, file);
	ck_assert_uint_eq(attr(dir).nlink, 2);
	ck_assert_uint_eq(attr(ROOT_INO).nlink, 4);
	unit_ok(live_parent(vol, sub, &parent));
	ck_assert_uint_eq(parent, ROOT_INO);
}
END_TEST

START_TEST(a_tree_is_as_deep_as_an_epoch_may_be)
{
	uint64_t at = ROOT_INO, half = 0, side = mkdir_at(ROOT_INO, "side"), number = 0;
	struct epochs_seal how = {.trigger = "commit"};
	struct live_attr a;

	for (int depth = 1; depth < TREE_DEPTH_MAX; depth++) {
		at = mkdir_at(at, "d");
		if (depth == TREE_DEPTH_MAX / 2)
			half = at;
	}
	unit_error(live_mkdir(vol, at, "d", 0755, &me, &a), -ENAMETOOLONG);
	empty_at(at, "file");
	unit_error(live_rename(vol, ROOT_INO, "d", side, "d", 0, NULL), -ENAMETOOLONG);
	unit_error(live_rename(vol, half, "d", at, "e", 0, NULL), -EINVAL);
	unit_error(live_rename(vol, ROOT_INO, "side", at, "e", 0, NULL), -ENAMETOOLONG);
	unit_ok(live_rename(vol, half, "d", side, "d", 0, NULL));
	unit_ok(live_rename(vol, side, "d", half, "d", 0, NULL));
	unit_ok(epochs_seal(vol, &how, &number));
}
END_TEST

/* ---- renames that may be undone ---- */

/* A committed file "final", and an open new one "temporary" of a process of its own. */
struct fragile {
	uint64_t old;
	struct live_attr fresh;
	struct live_caller who;
	struct handle *h;
};

static struct fragile fragile_start(void)
{
	struct fragile f = {.old = file_at(ROOT_INO, "final", "old")};

	f.who = (struct live_caller){.pid = start_writer()};
	f.h = writing_at(ROOT_INO, "temporary", "new", &f.who, &f.fresh);
	return f;
}

static void fragile_close(struct fragile *f)
{
	close_handle(f->h);
	kill(f->who.pid, SIGKILL);
	waitpid(f->who.pid, NULL, 0);
}

START_TEST(a_killed_writers_rename_is_undone)
{
	struct fragile f = fragile_start();

	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0, NULL));
	ck_assert_uint_eq(look(ROOT_INO, "final").ino, f.fresh.ino);
	kill_writer(f.who.pid, f.h);
	unit_error(looks(ROOT_INO, "temporary"), -ENOENT);
	ck_assert_uint_eq(look(ROOT_INO, "final").ino, f.old);
	ck_assert_uint_eq(look(ROOT_INO, "final").nlink, 1);
	assert_text(ROOT_INO, "final", "old");
}
END_TEST

START_TEST(a_closed_writers_rename_stays)
{
	struct fragile f = fragile_start();

	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0, NULL));
	fragile_close(&f);
	assert_text(ROOT_INO, "final", "new");
	unit_error(live_getattr(vol, f.old, 0, &(struct live_attr){0}), -ENOENT);
}
END_TEST

START_TEST(what_a_second_rename_covers_is_the_committed_file)
{
	struct fragile f = fragile_start();
	struct live_attr a = {0};
	struct handle *h = writing_at(ROOT_INO, "second", "2nd", &f.who, &a);

	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0, NULL));
	unit_ok(live_rename(vol, ROOT_INO, "second", ROOT_INO, "final", 0, NULL));
	ck_assert_uint_eq(look(ROOT_INO, "final").ino, a.ino);
	close_handle(f.h);
	ck_assert_uint_eq(look(ROOT_INO, "final").ino, a.ino);
	kill_writer(f.who.pid, h);
	assert_text(ROOT_INO, "final", "old");
}
END_TEST

START_TEST(a_removed_name_takes_what_it_covered_along)
{
	struct fragile f = fragile_start();

	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0, NULL));
	unit_ok(live_unlink(vol, ROOT_INO, "final"));
	unit_error(looks(ROOT_INO, "final"), -ENOENT);
	kill_writer(f.who.pid, f.h);
	unit_error(looks(ROOT_INO, "final"), -ENOENT);
	unit_error(live_getattr(vol, f.old, 0, &(struct live_attr){0}), -ENOENT);
}
END_TEST

START_TEST(a_committed_file_over_a_covering_one_is_final)
{
	struct fragile f = fragile_start();

	file_at(ROOT_INO, "done", "done");
	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0, NULL));
	unit_ok(live_rename(vol, ROOT_INO, "done", ROOT_INO, "final", 0, NULL));
	kill_writer(f.who.pid, f.h);
	assert_text(ROOT_INO, "final", "done");
	unit_error(live_getattr(vol, f.old, 0, &(struct live_attr){0}), -ENOENT);
}
END_TEST

START_TEST(a_covered_name_is_no_link_that_is_seen)
{
	struct fragile f = fragile_start();
	struct live_attr a = {0};

	unit_ok(live_link(vol, f.old, ROOT_INO, "other", NULL, &a));
	unit_ok(live_rename(vol, ROOT_INO, "temporary", ROOT_INO, "final", 0, NULL));
	ck_assert_uint_eq(look(ROOT_INO, "other").nlink, 1);
	/* Where the covering name goes on over the other link, the link count stays right. */
	unit_ok(live_rename(vol, ROOT_INO, "final", ROOT_INO, "other", 0, NULL));
	kill_writer(f.who.pid, f.h);
	unit_error(looks(ROOT_INO, "final"), -ENOENT);
	ck_assert_uint_eq(look(ROOT_INO, "other").ino, f.old);
	ck_assert_uint_eq(look(ROOT_INO, "other").nlink, 1);
	assert_text(ROOT_INO, "other", "old");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("live_rename");
	TCase *t;

	t = fixture(suite, "rename");
	tcase_add_test(t, a_rename_replaces);
	tcase_add_test(t, a_rename_tells_what_is_wrong);
	tcase_add_test(t, two_names_of_one_file_stay);
	tcase_add_test(t, directories_move_with_their_links);
	tcase_add_test(t, an_exchange_swaps_a_file_and_a_directory);
	tcase_add_test(t, a_tree_is_as_deep_as_an_epoch_may_be);
	t = fixture(suite, "renames that may be undone");
	tcase_add_test(t, a_killed_writers_rename_is_undone);
	tcase_add_test(t, a_closed_writers_rename_stays);
	tcase_add_test(t, what_a_second_rename_covers_is_the_committed_file);
	tcase_add_test(t, a_removed_name_takes_what_it_covered_along);
	tcase_add_test(t, a_committed_file_over_a_covering_one_is_final);
	tcase_add_test(t, a_covered_name_is_no_link_that_is_seen);
	return unit_run(suite);
}
