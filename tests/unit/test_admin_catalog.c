/* SPDX-License-Identifier: Apache-2.0 */
/* The catalog: a remote's epochs, names, trees and tags without a mount. */
#include "lib/admin/catalog.h"

#include "lib/meta/records.h"
#include "tests/unit/catalog_unit.h"

static struct made made;

static void setup(void)
{
	made_start(&made);
}

static void teardown(void)
{
	made_stop(&made);
}

/* ---- opening ---- */

static void refused(const char *url, int error, const char *word)
{
	struct catalog *c = NULL;
	char *message = NULL;

	unit_error(catalog_open(url, NULL, &c, &message), error);
	ck_assert_ptr_null(c);
	ck_assert_ptr_nonnull(message);
	ck_assert_msg(strstr(message, word) != NULL, "'%s' does not say '%s'", message, word);
	ck_assert_ptr_null(strchr(message, '\n'));
	free(message);
}

START_TEST(opening_a_volume_gives_its_uuid)
{
	struct catalog *c = catalog_at("memory:t");

	ck_assert_uint_eq(strlen(catalog_uuid(c)), 36);
	catalog_close(c);
}
END_TEST

START_TEST(a_missing_directory_is_not_made)
{
	cleanup_free char *dir = unit_dir(), *missing = unit_path(dir, "missing"),
			  *deep = unit_path(missing, "deep");

	refused(missing, -ENOENT, "no volume");
	refused(deep, -ENOENT, "deep");
	ck_assert_int_eq(access(missing, F_OK), -1);
}
END_TEST

START_TEST(an_empty_directory_is_no_volume_and_stays_empty)
{
	cleanup_free char *dir = unit_dir();

	refused(dir, -ENOENT, "holds no volume");
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(other_files_are_no_volume)
{
	cleanup_free char *dir = unit_dir(), *path = unit_path(dir, "model.pt");

	unit_ok(io_replace_file(AT_FDCWD, path, "x", 1));
	refused(dir, -EBADMSG, "not an epochfs volume");
	refused(dir, -EBADMSG, "model.pt");
}
END_TEST

START_TEST(a_damaged_volume_object_is_told)
{
	unit_ok(remote_put(made.f.remote, KEY_VOLUME, "{", 1));
	refused("memory:t", -EBADMSG, "damaged");
}
END_TEST

START_TEST(a_newer_format_asks_for_an_upgrade)
{
	static const char newer[] = "{\"format\":2}";

	unit_ok(remote_put(made.f.remote, KEY_VOLUME, newer, strlen(newer)));
	refused("memory:t", -EPROTONOSUPPORT, "newer");
}
END_TEST

START_TEST(none_and_unknown_remotes_are_refused)
{
	refused("none", -ENOENT, "mount point");
	refused("gopher://x/y", -EINVAL, "gopher");
	refused("relative/dir", -EINVAL, "relative/dir");
}
END_TEST

START_TEST(a_remote_that_denies_is_not_allowed)
{
	refused("fault+memory:t?get.denied=1", -EACCES, "memory:t");
}
END_TEST

START_TEST(a_remote_that_does_not_answer_is_unreachable)
{
	refused("fault+memory:t?get.down=1", -EHOSTUNREACH, "memory:t");
}
END_TEST

START_TEST(a_remote_that_answers_late_is_waited_for)
{
	struct catalog *c = catalog_at("fault+memory:t?get.down=1&times=2");

	catalog_close(c);
}
END_TEST

/* ---- epochs ---- */

struct seen {
	uint64_t numbers[16];
	bool complete[16], superseded[16];
	size_t count;
	int stop_with;
};

static int see(void *arg, const struct epoch_info *e)
{
	struct seen *s = arg;

	ck_assert_uint_lt(s->count, 16);
	ck_assert_uint_eq(e->number, e->record.number);
	ck_assert_int_eq(e->state, EPOCH_DURABLE);
	s->numbers[s->count] = e->number;
	s->complete[s->count] = e->complete;
	s->superseded[s->count++] = e->superseded;
	return s->stop_with;
}

static struct epoch_record complete_record(void)
{
	return (struct epoch_record){.complete = RECORD_COMPLETE};
}

START_TEST(epochs_come_in_order_and_a_continued_one_is_not_complete)
{
	struct epoch_record second = complete_record(), third = {.complete = RECORD_INCOMPLETE};
	struct seen seen = {.count = 0};
	struct epoch_info info;
	struct catalog *c;

	second.continues = 1;
	made_epoch(&made, complete_record());
	made_epoch(&made, second);
	made_epoch(&made, third);
	c = catalog_at("memory:t");
	unit_ok(catalog_each(c, see, &seen));
	ck_assert_uint_eq(seen.count, 3);
	ck_assert_uint_eq(seen.numbers[0], 1);
	ck_assert_uint_eq(seen.numbers[2], 3);
	ck_assert(!seen.complete[0] && seen.superseded[0]);
	ck_assert(seen.complete[1] && !seen.superseded[1]);
	ck_assert(!seen.complete[2] && !seen.superseded[2]);
	unit_ok(catalog_get(c, 1, &info));
	ck_assert(!info.complete && info.superseded);
	ck_assert_int_eq(info.record.complete, RECORD_COMPLETE);
	epoch_info_free(&info);
	unit_error(catalog_get(c, 4, &info), -ENOENT);
	catalog_close(c);
}
END_TEST

START_TEST(what_a_callback_returns_ends_the_walk)
{
	struct seen seen = {.stop_with = -EIO};
	struct catalog *c;

	made_epoch(&made, complete_record());
	made_epoch(&made, complete_record());
	c = catalog_at("memory:t");
	unit_error(catalog_each(c, see, &seen), -EIO);
	ck_assert_uint_eq(seen.count, 1);
	catalog_close(c);
}
END_TEST

START_TEST(damaged_and_dropped_epochs_are_left_out)
{
	struct seen seen = {.count = 0};
	struct epoch_info info;
	struct catalog *c;
	char key[KEY_MAX];

	for (int i = 0; i < 3; i++)
		made_epoch(&made, complete_record());
	epoch_key(1, key);
	unit_ok(remote_put(made.f.remote, key, "{}", 2));
	unit_ok(records_drop(made.f.remote, 2, NULL));
	c = catalog_at("memory:t");
	unit_ok(catalog_each(c, see, &seen));
	ck_assert_uint_eq(seen.count, 1);
	ck_assert_uint_eq(seen.numbers[0], 3);
	unit_error(catalog_get(c, 1, &info), -EBADMSG);
	unit_error(catalog_get(c, 2, &info), -ENOENT);
	catalog_close(c);
}
END_TEST

static void resolves(struct catalog *c, const char *name, uint64_t number)
{
	uint64_t found = 0;
	int error = catalog_resolve(c, name, &found);

	ck_assert_msg(!error && found == number, "%s: %d, %d", name, error, (int)found);
}

START_TEST(epochs_have_all_their_names)
{
	struct epoch_record old = complete_record(), step = complete_record(),
			    torn = {.complete = RECORD_INCOMPLETE};
	struct catalog *c;
	uint64_t number;

	old.sealed_ns = clock_wall_ns() - 3 * 3600 * NS_PER_S;
	step.has_step = true;
	step.step = 500;
	made_epoch(&made, old);
	made_epoch(&made, step);
	made_epoch(&made, torn);
	c = catalog_at("memory:t");
	unit_ok(catalog_tag(c, "best", 1, false));
	resolves(c, "2", 2);
	resolves(c, "000002", 2);
	resolves(c, "step=500", 2);
	resolves(c, "latest", 2);
	resolves(c, "current", 3);
	resolves(c, "best", 1);
	resolves(c, "@2h", 1);
	unit_error(catalog_resolve(c, "4", &number), -ENOENT);
	unit_error(catalog_resolve(c, "step=501", &number), -ENOENT);
	unit_error(catalog_resolve(c, "@1d", &number), -ENOENT);
	unit_error(catalog_resolve(c, "worst", &number), -ENOENT);
	unit_error(catalog_resolve(c, "../best", &number), -EINVAL);
	unit_error(catalog_resolve(c, "", &number), -EINVAL);
	catalog_close(c);
}
END_TEST

START_TEST(a_volume_without_epochs_has_no_names)
{
	struct seen seen = {.count = 0};
	struct catalog *c = catalog_at("memory:t");
	uint64_t number;

	unit_ok(catalog_each(c, see, &seen));
	ck_assert_uint_eq(seen.count, 0);
	unit_error(catalog_resolve(c, "latest", &number), -ENOENT);
	unit_error(catalog_resolve(c, "current", &number), -ENOENT);
	catalog_close(c);
}
END_TEST

/* ---- trees ---- */

START_TEST(a_tree_comes_back)
{
	cleanup_tree struct tree *tree = NULL;
	struct tree_entry e;
	struct catalog *c;
	uint32_t id;

	made_epoch(&made, complete_record());
	c = catalog_at("memory:t");
	unit_ok(catalog_tree(c, 1, &tree));
	unit_ok(tree_resolve(tree, "file", &id));
	tree_get(tree, id, &e);
	ck_assert_uint_eq(e.size, 4);
	tree_unref(steal_ptr(tree));
	unit_error(catalog_tree(c, 2, &tree), -ENOENT);
	catalog_close(c);
}
END_TEST

START_TEST(a_damaged_tree_is_no_tree)
{
	cleanup_free uint8_t *text = random_content(3000, 7);
	struct tree *tree = NULL;
	struct catalog *c;

	made_begin(&made);
	made_add(&made, 1, "file",
		 (struct tree_entry){.content = TREE_INLINE, .size = 3000, .u.inline_data = text});
	made_end(&made, complete_record());
	damage_content(made.f.remote, text, 3000);
	c = catalog_at("memory:t");
	unit_error(catalog_tree(c, 1, &tree), -EBADMSG);
	ck_assert_ptr_null(tree);
	catalog_close(c);
}
END_TEST

/* ---- tags ---- */

static int count_tag(void *arg, const char *name, uint64_t number)
{
	ck_assert_str_eq(name, "the best");
	ck_assert_uint_eq(number, 2);
	++*(int *)arg;
	return 0;
}

START_TEST(tags_are_put_moved_and_removed)
{
	struct catalog *c;
	uint64_t number;
	int count = 0;

	made_epoch(&made, complete_record());
	made_epoch(&made, complete_record());
	c = catalog_at("memory:t");
	unit_ok(catalog_tag(c, "the best", 1, false));
	unit_error(catalog_tag(c, "the best", 2, false), -EEXIST);
	resolves(c, "the best", 1);
	unit_ok(catalog_tag(c, "the best", 2, true));
	unit_ok(catalog_tag_each(c, count_tag, &count));
	ck_assert_int_eq(count, 1);
	unit_ok(catalog_untag(c, "the best"));
	unit_error(catalog_untag(c, "the best"), -ENOENT);
	unit_error(catalog_resolve(c, "the best", &number), -ENOENT);
	catalog_close(c);
}
END_TEST

static int stop_walk(void *arg, const char *name, uint64_t number)
{
	(void)arg;
	(void)name;
	(void)number;
	return 17;
}

START_TEST(tags_need_a_name_and_an_epoch)
{
	struct catalog *c;

	made_epoch(&made, complete_record());
	c = catalog_at("memory:t");
	unit_error(catalog_tag(c, "12", 1, false), -EINVAL);
	unit_error(catalog_tag(c, "latest", 1, false), -EINVAL);
	unit_error(catalog_tag(c, "a/b", 1, false), -EINVAL);
	unit_error(catalog_tag(c, "best", 2, false), -ENOENT);
	unit_error(catalog_untag(c, "a/b"), -ENOENT);
	unit_ok(catalog_tag(c, "a", 1, false));
	ck_assert_int_eq(catalog_tag_each(c, stop_walk, NULL), 17);
	catalog_close(c);
}
END_TEST

START_TEST(a_remote_that_takes_no_tags_says_so)
{
	struct catalog *c;

	made_epoch(&made, complete_record());
	c = catalog_at("fault+memory:t?put.denied=1");
	unit_error(catalog_tag(c, "best", 1, false), -EACCES);
	catalog_close(c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admin_catalog");
	TCase *opening = unit_case(s, "opening"), *epochs = unit_case(s, "epochs"),
	      *trees = unit_case(s, "trees"), *tags = unit_case(s, "tags");

	tcase_add_checked_fixture(opening, setup, teardown);
	tcase_add_checked_fixture(epochs, setup, teardown);
	tcase_add_checked_fixture(trees, setup, teardown);
	tcase_add_checked_fixture(tags, setup, teardown);
	tcase_add_test(opening, opening_a_volume_gives_its_uuid);
	tcase_add_test(opening, a_missing_directory_is_not_made);
	tcase_add_test(opening, an_empty_directory_is_no_volume_and_stays_empty);
	tcase_add_test(opening, other_files_are_no_volume);
	tcase_add_test(opening, a_damaged_volume_object_is_told);
	tcase_add_test(opening, a_newer_format_asks_for_an_upgrade);
	tcase_add_test(opening, none_and_unknown_remotes_are_refused);
	tcase_add_test(opening, a_remote_that_denies_is_not_allowed);
	tcase_add_test(opening, a_remote_that_does_not_answer_is_unreachable);
	tcase_add_test(opening, a_remote_that_answers_late_is_waited_for);
	tcase_add_test(epochs, epochs_come_in_order_and_a_continued_one_is_not_complete);
	tcase_add_test(epochs, what_a_callback_returns_ends_the_walk);
	tcase_add_test(epochs, damaged_and_dropped_epochs_are_left_out);
	tcase_add_test(epochs, epochs_have_all_their_names);
	tcase_add_test(epochs, a_volume_without_epochs_has_no_names);
	tcase_add_test(trees, a_tree_comes_back);
	tcase_add_test(trees, a_damaged_tree_is_no_tree);
	tcase_add_test(tags, tags_are_put_moved_and_removed);
	tcase_add_test(tags, tags_need_a_name_and_an_epoch);
	tcase_add_test(tags, a_remote_that_takes_no_tags_says_so);
	return unit_run(s);
}
