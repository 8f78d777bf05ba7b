/* SPDX-License-Identifier: Apache-2.0 */
/* Rolling the live tree back to an epoch (contract 1.1). */
#include <pthread.h>
#include "lib/format/tree_diff.h"
#include "lib/cache/torn.h"
#include "tests/unit/epochs_unit.h"

/* The trees of two epochs are equal. */
static int differs(const struct tree_change *c, void *arg)
{
	(void)arg;
	if (!*c->path)
		return 0;
	ck_abort_msg("%s differs", c->path);
	return 1;
}

static void check_same_trees(uint64_t a, uint64_t b)
{
	cleanup_tree struct tree *ta = NULL, *tb = NULL;

	unit_ok(epochs_tree(u.vol, a, &ta));
	unit_ok(epochs_tree(u.vol, b, &tb));
	unit_ok(tree_diff(ta, tb, differs, NULL));
	ck_assert_uint_eq(tree_count(ta), tree_count(tb));
}

static void make_first_epoch(void)
{
	struct live_change change = {.set = LIVE_SET_MODE, .mode = 0600};
	struct live_attr attr;

	eu_mkdir("d");
	eu_mkdir("d/e");
	eu_save("same", "same");
	eu_save("changed", "first");
	eu_save("d/removed", "removed");
	eu_save("d/e/deep", "deep");
	eu_save("moved", "moved");
	eu_save("empty", "");
	eu_symlink("link", "same");
	eu_symlink("link2", "same");
	eu_save("hard", "hard");
	eu_link("hard", "d/hard");
	eu_save("type", "a file");
	unit_ok(live_setattr(u.vol, eu_ino("changed"), 0, &change, &attr));
	unit_ok(live_setxattr(u.vol, eu_ino("changed"), "user.a", "1", 1, 0));
	unit_ok(live_setxattr(u.vol, eu_ino("d"), "user.d", "2", 1, 0));
}

static void change_everything(void)
{
	struct live_change change = {.set = LIVE_SET_MODE, .mode = 0644};
	struct live_attr attr;

	eu_save("changed", "the second");
	unit_ok(live_setattr(u.vol, eu_ino("changed"), 0, &change, &attr));
	unit_ok(live_removexattr(u.vol, eu_ino("changed"), "user.a"));
	unit_ok(live_setxattr(u.vol, eu_ino("changed"), "user.b", "3", 1, 0));
	eu_unlink("d/removed");
	eu_unlink("d/e/deep");
	unit_ok(live_rmdir(u.vol, eu_ino("d"), "e"));
	eu_rename("moved", "d/moved");
	eu_unlink("link");
	eu_symlink("link", "elsewhere");
	eu_unlink("d/hard");
	eu_save("d/hard", "another");
	eu_unlink("type");
	eu_mkdir("type");
	eu_save("type/x", "x");
	eu_save("new", "new");
	eu_mkdir("n");
	eu_mkdir("n/n");
	eu_save("n/n/n", "n");
	eu_save("empty", "no more");
}

static void check_first_epoch(void)
{
	struct live_attr hard, other;
	cleanup_buf struct buf value = {0};

	eu_live_holds("same", "same");
	eu_live_holds("changed", "first");
	eu_live_holds("d/removed", "removed");
	eu_live_holds("d/e/deep", "deep");
	eu_live_holds("moved", "moved");
	eu_live_holds("empty", "");
	eu_live_holds("d/hard", "hard");
	eu_live_holds("type", "a file");
	ck_assert(!eu_there("new"));
	ck_assert(!eu_there("n"));
	ck_assert(!eu_there("d/moved"));
	unit_ok(live_getattr(u.vol, eu_ino("hard"), 0, &hard));
	ck_assert_uint_eq(hard.nlink, 2);
	ck_assert_uint_eq(eu_ino("d/hard"), hard.ino);
	unit_ok(live_getattr(u.vol, eu_ino("d"), 0, &other));
	ck_assert_uint_eq(other.nlink, 3);
	unit_ok(live_readlink(u.vol, eu_ino("link"), &value));
	ck_assert_str_eq(buf_str(&value), "same");
	buf_reset(&value);
	unit_ok(live_getxattr(u.vol, eu_ino("changed"), "user.a", &value));
	unit_error(live_getxattr(u.vol, eu_ino("changed"), "user.b", &value), -ENODATA);
}

static void roll_back_and_forth(void)
{
	struct epoch_info info;
	uint64_t same, number;

	make_first_epoch();
	eu_seal();
	same = eu_ino("same");
	change_everything();
	unit_ok(epochs_rollback(u.vol, 1, &number));
	/* What was pending is epoch 2, what came back epoch 3. */
	ck_assert_uint_eq(number, 3);
	ck_assert_uint_eq(epochs_current(u.vol), 3);
	check_first_epoch();
	check_same_trees(1, 3);
	ck_assert_uint_eq(eu_ino("same"), same);
	info = eu_info(3);
	ck_assert_uint_eq(info.record.restores, 1);
	ck_assert_int_eq(info.record.trigger, RECORD_TRIGGER_ROLLBACK);
	ck_assert_uint_eq(info.record.bytes_new, 0);
	epoch_info_free(&info);
	/* It can be undone. */
	unit_ok(epochs_rollback(u.vol, 2, &number));
	ck_assert_uint_eq(number, 4);
	check_same_trees(2, 4);
	eu_live_holds("changed", "the second");
	eu_live_holds("n/n/n", "n");
	eu_live_holds("d/moved", "moved");
	/* And is as any live tree. */
	eu_save("changed", "the third");
	ck_assert_uint_eq(eu_seal(), 5);
	eu_epoch_holds(2, "changed", "the second");
	eu_epoch_holds(4, "changed", "the second");
	eu_epoch_holds(1, "changed", "first");
	eu_remount();
	eu_live_holds("changed", "the third");
	eu_live_holds("d/moved", "moved");
	check_same_trees(1, 3);
	check_same_trees(2, 4);
}

START_TEST(rollback_restores_everything)
{
	roll_back_and_forth();
}
END_TEST

START_TEST(rollback_of_durable_epochs)
{
	uint64_t number;

	roll_back_and_forth();
	unit_ok(epochs_wait(u.vol, 0, -1, NULL, NULL));
	unit_ok(epochs_rollback(u.vol, 1, &number));
	check_first_epoch();
	check_same_trees(1, number);
	unit_ok(epochs_wait(u.vol, 0, -1, NULL, NULL));
	unit_ok(epochs_rollback(u.vol, 2, &number));
	check_same_trees(2, number);
	eu_live_holds("n/n/n", "n");
}
END_TEST

START_TEST(rollback_to_what_is_there_already)
{
	uint64_t number;

	make_first_epoch();
	eu_seal();
	unit_ok(epochs_rollback(u.vol, 1, &number));
	ck_assert_uint_eq(number, 2);
	check_same_trees(1, 2);
	check_first_epoch();
	unit_error(epochs_rollback(u.vol, 9, &number), -ENOENT);
}
END_TEST

/* Contents that changed places: a version may move from one file to another. */
START_TEST(rollback_of_an_exchange)
{
	uint64_t number;

	eu_save("a", "was a");
	eu_save("b", "was b");
	eu_save("c", "was c");
	eu_seal();
	unit_ok(live_rename(u.vol, ROOT_INO, "a", ROOT_INO, "b", RENAME_EXCHANGE, NULL));
	eu_rename("c", "d");
	eu_save("c", "another c");
	unit_ok(epochs_rollback(u.vol, 1, &number));
	eu_live_holds("a", "was a");
	eu_live_holds("b", "was b");
	eu_live_holds("c", "was c");
	ck_assert(!eu_there("d"));
	check_same_trees(1, number);
	unit_ok(epochs_rollback(u.vol, 2, &number));
	eu_live_holds("a", "was b");
	eu_live_holds("b", "was a");
	eu_live_holds("c", "another c");
	eu_live_holds("d", "was c");
}
END_TEST

static int count_torn(void *arg, const char *name, uint64_t id, uint64_t size, int64_t mtime_ns)
{
	(void)name;
	(void)id;
	(void)size;
	(void)mtime_ns;
	++*(int *)arg;
	return 0;
}

/* Nobody knows which file is not whole: what was saved last is in doubt, until it is saved again. */
START_TEST(what_is_not_complete_for_another_reason_stays_in_doubt)
{
	struct epoch_info info;
	uint64_t number;

	eu_save("a", "a1");
	eu_save("b", "b1");
	eu_seal();
	mutex_lock(&u.vol->lock);
	sealer_incomplete_locked(u.vol, "recovered from a damaged local state");
	mutex_unlock(&u.vol->lock);
	eu_save("b", "b2");
	ck_assert_uint_eq(eu_seal(), 2);
	unit_ok(epochs_rollback(u.vol, 1, &number));
	unit_ok(epochs_rollback(u.vol, 2, &number));
	eu_save("notes", "x");
	ck_assert_uint_eq(eu_seal(), 5);
	info = eu_info(5);
	ck_assert(!info.complete);
	ck_assert_uint_eq(info.record.doubt_count, 1);
	ck_assert_str_eq(info.record.doubts[0].path, "b");
	ck_assert_str_eq(info.record.doubts[0].why, "epoch 2, which was restored, is not complete");
	epoch_info_free(&info);
	eu_save("b", "b3");
	ck_assert_uint_eq(eu_seal(), 6);
	info = eu_info(6);
	ck_assert(info.complete && !info.record.doubt_count);
	epoch_info_free(&info);
}
END_TEST

START_TEST(open_files_across_a_rollback)
{
	struct handle *reader, *edit, *fresh, *replaced;
	uint64_t number;
	int torn = 0;

	eu_save("read", "old");
	eu_save("edited", "first");
	eu_save("replaced", "whole");
	eu_seal();
	eu_save("read", "newer");
	reader = eu_open("read", O_RDONLY);
	edit = eu_open("edited", O_RDWR);
	vu_write(edit, "FIRST", 0);
	fresh = eu_open("fresh", O_WRONLY | O_CREAT | O_TRUNC);
	vu_write(fresh, "half", 0);
	replaced = eu_open("replaced", O_WRONLY | O_TRUNC);
	vu_write(replaced, "ha", 0);
	unit_ok(epochs_rollback(u.vol, 1, &number));
	/* Handles keep what they have. */
	vu_handle_holds(reader, "newer");
	vu_write(edit, "SECOND", 0);
	vu_write(fresh, "half of it", 0);
	vu_handle_holds(edit, "SECOND");
	eu_live_holds("read", "old");
	eu_live_holds("edited", "first");
	eu_live_holds("replaced", "whole");
	ck_assert(!eu_there("fresh"));
	handle_release(reader, false);
	vu_close(edit);
	vu_close(fresh);
	vu_close(replaced);
	eu_live_holds("edited", "first");
	eu_live_holds("replaced", "whole");
	ck_assert(!eu_there("fresh"));
	unit_ok(torn_each(u.vol, count_torn, &torn));
	ck_assert_int_eq(torn, 3);
	ck_assert_uint_eq(eu_seal(), number);
	check_same_trees(1, number);
}
END_TEST

START_TEST(a_covered_file_comes_back)
{
	struct handle *h;
	uint64_t number;

	eu_save("a", "whole");
	eu_seal();
	h = eu_open("a.new", O_WRONLY | O_CREAT | O_TRUNC);
	vu_write(h, "hal", 0);
	eu_rename("a.new", "a");
	unit_ok(epochs_rollback(u.vol, 1, &number));
	eu_live_holds("a", "whole");
	vu_close(h);
	eu_live_holds("a", "whole");
	check_same_trees(1, number);
}
END_TEST

struct tellings {
	unsigned entries, files;
};

static void told_entry(void *arg, uint64_t parent, const char *name)
{
	struct tellings *t = arg;

	ck_assert_uint_ne(parent, 0);
	ck_assert_str_ne(name, "same");
	t->entries++;
}

static void told_file(void *arg, uint64_t ino)
{
	struct tellings *t = arg;

	ck_assert_uint_ne(ino, 0);
	t->files++;
}

START_TEST(the_mount_is_told)
{
	struct tellings told = {0};
	struct volume_events events = {
		.arg = &told, .entry_changed = told_entry, .file_changed = told_file};
	uint64_t number;

	eu_save("same", "same");
	eu_save("changed", "first");
	eu_save("removed", "r");
	eu_seal();
	eu_save("changed", "2");
	eu_unlink("removed");
	eu_save("added", "a");
	volume_set_events(u.vol, &events);
	unit_ok(epochs_rollback(u.vol, 1, &number));
	ck_assert_uint_eq(told.entries, 3); /* and the name of the one with other content */
	ck_assert_uint_ge(told.files, 2);   /* the changed one, and the directory */
	events = (struct volume_events){0};
	volume_set_events(u.vol, &events);
}
END_TEST

/* Writers, seals and rollbacks at the same time: nothing is lost or mixed. */
static void *write_all_the_time(void *arg)
{
	const char *path = arg;

	for (int i = 0; i < 200; i++) {
		struct live_caller who = vu_caller(1);
		struct handle *h = NULL;
		struct live_attr attr;

		if (live_lookup(u.vol, ROOT_INO, path, 1, &attr) == -ENOENT) {
			if (handle_create(u.vol, ROOT_INO, path, 0644, O_WRONLY, &who, &attr, &h))
				continue;
		} else if (handle_open(u.vol, attr.ino, attr.body, O_RDWR, &who, NULL, NULL, &h)) {
			continue;
		}
		handle_write(h, path, strlen(path), 0, NULL, NULL);
		handle_flush(h, 1, NULL, NULL);
		handle_release(h, false);
	}
	return NULL;
}

static void *seal_all_the_time(void *arg)
{
	(void)arg;
	for (int i = 0; i < 50; i++) {
		struct epochs_seal how = {.trigger = "commit"};
		uint64_t number;

		unit_ok(epochs_seal(u.vol, &how, &number));
		if (i % 10 == 5)
			unit_ok(epochs_rollback(u.vol, number, &number));
	}
	return NULL;
}

static int check_epoch(void *arg, const struct epoch_info *e)
{
	static const char *const names[] = {"writer-a", "writer-b"};
	cleanup_tree struct tree *tree = NULL;

	(void)arg;
	unit_ok(epochs_tree(u.vol, e->number, &tree));
	for (int i = 0; i < 2; i++) {
		struct tree_entry entry;

		if (eu_find(tree, names[i], &entry))
			eu_epoch_holds(e->number, names[i], names[i]);
	}
	return 0;
}

START_TEST(threads)
{
	pthread_t a, b, c;

	eu_save("writer-b", "writer-b");
	ck_assert_int_eq(pthread_create(&a, NULL, write_all_the_time, (void *)"writer-a"), 0);
	ck_assert_int_eq(pthread_create(&b, NULL, write_all_the_time, (void *)"writer-b"), 0);
	ck_assert_int_eq(pthread_create(&c, NULL, seal_all_the_time, NULL), 0);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	pthread_join(c, NULL);
	eu_seal();
	unit_ok(epochs_each(u.vol, check_epoch, NULL));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_rollback");
	TCase *t = eu_case(s, "rollback");

	tcase_add_test(t, rollback_restores_everything);
	tcase_add_test(t, rollback_to_what_is_there_already);
	tcase_add_test(t, rollback_of_an_exchange);
	tcase_add_test(t, what_is_not_complete_for_another_reason_stays_in_doubt);
	tcase_add_test(t, open_files_across_a_rollback);
	tcase_add_test(t, a_covered_file_comes_back);
	tcase_add_test(t, the_mount_is_told);
	tcase_add_test(t, threads);
	t = eu_remote_case(s, "remote");
	tcase_add_test(t, rollback_of_durable_epochs);
	return unit_run(s);
}
