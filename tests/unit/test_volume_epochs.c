/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs by name, tags, drop, rollback, waiting (contract 1.1). */
#include <pthread.h>
#include "lib/format/tree_diff.h"
#include "tests/unit/epochs_unit.h"

/* ---- the index ---- */

static void index_add(struct epoch_index *x, uint64_t number, enum record_complete complete,
		      int64_t step, uint64_t continues)
{
	struct epoch_record r = {
		.number = number,
		.complete = complete,
		.has_step = step >= 0,
		.step = step >= 0 ? (uint64_t)step : 0,
		.continues = continues,
		.sealed_ns = (int64_t)number * 1000 * NS_PER_S,
	};

	unit_ok(epoch_index_add(x, &r, false));
}

START_TEST(the_index_finds_epochs)
{
	struct epoch_index x = {0};

	ck_assert_uint_eq(epoch_index_newest(&x), 0);
	ck_assert_uint_eq(epoch_index_latest(&x), 0);
	for (uint64_t n = 300; n >= 1; n--) /* any order */
		index_add(&x, n * 2, RECORD_COMPLETE, -1, 0);
	ck_assert_uint_eq(x.count, 300);
	ck_assert_uint_eq(epoch_index_newest(&x), 600);
	ck_assert_ptr_nonnull(epoch_index_find(&x, 42));
	ck_assert_ptr_null(epoch_index_find(&x, 43));
	ck_assert_uint_eq(epoch_index_after(&x, 0)->number, 2);
	ck_assert_uint_eq(epoch_index_after(&x, 42)->number, 44);
	ck_assert_uint_eq(epoch_index_after(&x, 43)->number, 44);
	ck_assert_ptr_null(epoch_index_after(&x, 600));
	ck_assert_ptr_null(epoch_index_after(&x, UINT64_MAX));
	epoch_index_remove(&x, 42);
	epoch_index_remove(&x, 42);
	ck_assert_uint_eq(x.count, 299);
	ck_assert_uint_eq(epoch_index_after(&x, 40)->number, 44);
	epoch_index_free(&x);
}
END_TEST

START_TEST(latest_is_the_newest_complete_one)
{
	struct epoch_index x = {0};

	index_add(&x, 1, RECORD_COMPLETE, -1, 0);
	index_add(&x, 2, RECORD_COMPLETE, -1, 0);
	index_add(&x, 3, RECORD_INCOMPLETE, -1, 0);
	index_add(&x, 4, RECORD_UNKNOWN, -1, 0);
	ck_assert_uint_eq(epoch_index_latest(&x), 2);
	index_add(&x, 5, RECORD_INCOMPLETE, -1, 2);
	ck_assert_uint_eq(epoch_index_latest(&x), 1);
	/* also where the one that is continued comes later */
	index_add(&x, 7, RECORD_COMPLETE, -1, 6);
	index_add(&x, 6, RECORD_COMPLETE, -1, 0);
	ck_assert(epoch_index_find(&x, 6)->superseded);
	epoch_index_free(&x);
}
END_TEST

START_TEST(names_of_epochs)
{
	static const struct {
		const char *text;
		int64_t want;
	} cases[] = {
		{"3", 3},
		{"000003", 3},
		{"9", -ENOENT},
		{"0", -ENOENT},
		{"latest", 4},
		{"step=100", 2},
		{"step=200", 5},
		{"step=7", -ENOENT},
		{"step=", -EINVAL},
		{"step=x", -EINVAL},
		{"@0", 5},
		{"@1000s", 4},
		{"@1", 4},
		{"@1h", 1},
		{"@2d", -ENOENT},
		{"@", -EINVAL},
		{"@x", -EINVAL},
		{"", -EINVAL},
		{"current", -EAGAIN},
		{"best", -EAGAIN},
		{"99999999999999999999999", -ENOENT},
	};
	struct epoch_index x = {0};

	index_add(&x, 1, RECORD_COMPLETE, 100, 0);
	index_add(&x, 2, RECORD_COMPLETE, 100, 0);
	index_add(&x, 3, RECORD_INCOMPLETE, 100, 0);
	index_add(&x, 4, RECORD_COMPLETE, -1, 0);
	index_add(&x, 5, RECORD_INCOMPLETE, 200, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint64_t number = 0;
		int error = epoch_index_resolve(&x, cases[i].text, 5000 * NS_PER_S, &number);

		ck_assert_msg((error ? error : (int64_t)number) == cases[i].want, "%s: %d %d",
			      cases[i].text, error, (int)number);
	}
	epoch_index_free(&x);
}
END_TEST

/* ---- listing and names ---- */

static int count_numbers(void *arg, uint64_t number, int64_t sealed_ns)
{
	uint64_t *sum = arg;

	ck_assert_int_gt(sealed_ns, 0);
	*sum = *sum * 10 + number;
	return 0;
}

static int count_infos(void *arg, const struct epoch_info *e)
{
	uint64_t *sum = arg;

	ck_assert_uint_eq(e->number, e->record.number);
	*sum = *sum * 10 + e->number;
	return e->number == 3 ? 7 : 0;
}

static void seal_three(void)
{
	eu_save("step-1", "one");
	eu_seal();
	eu_save("step-2", "two");
	eu_seal();
	eu_save("step-3", "three");
	ck_assert_uint_eq(eu_seal(), 3);
}

START_TEST(listing)
{
	struct epoch_info info;
	uint64_t sum = 0;
	int64_t ns;

	seal_three();
	unit_ok(epochs_numbers(u.vol, 0, count_numbers, &sum));
	ck_assert_uint_eq(sum, 123);
	sum = 0;
	unit_ok(epochs_numbers(u.vol, 1, count_numbers, &sum));
	ck_assert_uint_eq(sum, 23);
	sum = 0;
	ck_assert_int_eq(epochs_each(u.vol, count_infos, &sum), 7);
	ck_assert_uint_eq(sum, 123);
	unit_error(epochs_get(u.vol, 4, &info), -ENOENT);
	unit_error(epochs_get(u.vol, 0, &info), -ENOENT);
	unit_error(epochs_sealed_ns(u.vol, 4, &ns), -ENOENT);
	ck_assert_uint_eq(epochs_latest(u.vol), 3);
	ck_assert_uint_eq(epochs_current(u.vol), 3);
	eu_remount();
	ck_assert_uint_eq(epochs_latest(u.vol), 3);
	ck_assert_uint_eq(epochs_current(u.vol), 3);
}
END_TEST

START_TEST(resolving)
{
	uint64_t number;

	seal_three();
	unit_ok(epochs_tag(u.vol, "best", 2, false));
	unit_ok(epochs_resolve(u.vol, "best", &number));
	ck_assert_uint_eq(number, 2);
	unit_ok(epochs_resolve(u.vol, "current", &number));
	ck_assert_uint_eq(number, 3);
	unit_ok(epochs_resolve(u.vol, "latest", &number));
	ck_assert_uint_eq(number, 3);
	unit_ok(epochs_resolve(u.vol, "step=1", &number));
	ck_assert_uint_eq(number, 1);
	unit_ok(epochs_resolve(u.vol, "000002", &number));
	ck_assert_uint_eq(number, 2);
	unit_error(epochs_resolve(u.vol, "worst", &number), -ENOENT);
	unit_error(epochs_resolve(u.vol, "a/b", &number), -EINVAL);
	unit_error(epochs_resolve(u.vol, ".hidden", &number), -EINVAL);
}
END_TEST

static int join_tags(void *arg, const char *name, uint64_t number)
{
	buf_printf(arg, "%s=%d ", name, (int)number);
	return 0;
}

START_TEST(tags)
{
	cleanup_buf struct buf text = {0};
	uint64_t number;

	seal_three();
	unit_ok(epochs_tag(u.vol, "b", 2, false));
	unit_ok(epochs_tag(u.vol, "a", 1, false));
	unit_error(epochs_tag(u.vol, "a", 2, false), -EEXIST);
	unit_ok(epochs_tag(u.vol, "a", 3, true));
	unit_error(epochs_tag(u.vol, "latest", 3, true), -EINVAL);
	unit_error(epochs_tag(u.vol, "12", 3, true), -EINVAL);
	unit_error(epochs_tag(u.vol, "c", 9, false), -ENOENT);
	unit_ok(epochs_tag_each(u.vol, join_tags, &text));
	ck_assert_str_eq(buf_str(&text), "a=3 b=2 ");
	unit_ok(epochs_untag(u.vol, "b"));
	unit_error(epochs_untag(u.vol, "b"), -ENOENT);
	unit_error(epochs_tag_get(u.vol, "b", &number), -ENOENT);
	eu_remount();
	unit_ok(epochs_tag_get(u.vol, "a", &number));
	ck_assert_uint_eq(number, 3);
}
END_TEST

/* ---- drop ---- */

START_TEST(what_is_needed_is_not_dropped)
{
	seal_three();
	unit_ok(epochs_tag(u.vol, "keep", 1, false));
	unit_error(epochs_drop(u.vol, 1), -EBUSY);
	unit_error(epochs_drop(u.vol, 3), -EBUSY);
	unit_error(epochs_drop(u.vol, 9), -ENOENT);
	unit_ok(epochs_untag(u.vol, "keep"));
	unit_ok(epochs_drop(u.vol, 1));
	unit_error(epochs_drop(u.vol, 1), -ENOENT);
}
END_TEST

START_TEST(the_newest_complete_one_is_not_dropped)
{
	eu_save("a", "a");
	eu_seal();
	eu_save("a", "b");
	mutex_lock(&u.vol->lock);
	sealer_incomplete_locked(u.vol, "killed");
	mutex_unlock(&u.vol->lock);
	eu_seal();
	ck_assert_uint_eq(epochs_latest(u.vol), 1);
	ck_assert_uint_eq(epochs_current(u.vol), 2);
	unit_error(epochs_drop(u.vol, 1), -EBUSY);
	unit_error(epochs_drop(u.vol, 2), -EBUSY);
}
END_TEST

START_TEST(a_dropped_epoch_is_gone_and_its_number_too)
{
	uint64_t first, number;
	struct epoch_info info;
	struct tree *tree;

	eu_save("a", "only in one");
	first = vu_file(&u, "a").closed;
	eu_seal();
	eu_save("a", "in two");
	eu_seal();
	eu_epoch_holds(1, "a", "only in one");
	unit_ok(epochs_drop(u.vol, 1));
	unit_error(epochs_get(u.vol, 1, &info), -ENOENT);
	unit_error(epochs_tree(u.vol, 1, &tree), -ENOENT);
	unit_error(trees_load(u.vol, 1, &tree), -ENOENT);
	unit_error(epochs_resolve(u.vol, "1", &number), -ENOENT);
	unit_error(epochs_tag(u.vol, "x", 1, false), -ENOENT);
	/* Its content goes. */
	mutex_lock(&u.vol->lock);
	ck_assert(!state_version_exists(u.vol->state, first));
	mutex_unlock(&u.vol->lock);
	eu_remount();
	eu_save("a", "in three");
	ck_assert_uint_eq(eu_seal(), 3);
	eu_epoch_holds(2, "a", "in two");
}
END_TEST

/* ---- waiting ---- */

START_TEST(without_a_remote_sealed_is_done)
{
	eu_save("a", "a");
	unit_ok(epochs_wait(u.vol, 0, 0, NULL, NULL));
	ck_assert_uint_eq(eu_count(), 1);
	unit_ok(epochs_wait(u.vol, 1, 0, NULL, NULL));
	unit_error(epochs_wait(u.vol, 2, 0, NULL, NULL), -ENOENT);
}
END_TEST

START_TEST(an_empty_volume_has_nothing_to_wait_for)
{
	unit_ok(epochs_wait(u.vol, 0, 0, NULL, NULL));
	ck_assert_uint_eq(eu_count(), 0);
}
END_TEST

/* ---- with a remote ---- */

static void start_remote(void)
{
	eu_start();
	volume_close(u.vol);
	free(u.remote);
	u.remote = unit_dir();
	eu_mount();
}

START_TEST(waiting_ends_when_it_is_durable)
{
	struct epoch_info info;

	eu_save("a", "hello");
	unit_ok(epochs_wait(u.vol, 0, -1, NULL, NULL));
	info = eu_info(1);
	ck_assert_int_eq(info.state, EPOCH_DURABLE);
	ck_assert_int_gt(info.record.durable_ns, 0);
	epoch_info_free(&info);
	eu_epoch_holds(1, "a", "hello");
}
END_TEST

static bool say_yes(void *arg)
{
	(void)arg;
	return true;
}

START_TEST(waiting_ends_by_timeout_and_signal)
{
	cleanup_free char *dir = unit_dir(), *control = unit_path(dir, "faults");
	static const char faults[] = "put.error=1";
	char *url = NULL;

	volume_close(u.vol);
	ck_assert_int_gt(asprintf(&url, "fault+file://%s?control=%s", u.remote, control), 0);
	free(u.remote);
	u.remote = url;
	eu_mount();
	unit_ok(io_replace_file(AT_FDCWD, control, faults, strlen(faults)));
	eu_save("a", "hello");
	eu_seal();
	unit_error(epochs_wait(u.vol, 1, 0, NULL, NULL), -ETIMEDOUT);
	unit_error(epochs_wait(u.vol, 1, 100 * NS_PER_MS, NULL, NULL), -ETIMEDOUT);
	unit_error(epochs_wait(u.vol, 1, -1, say_yes, NULL), -EINTR);
	ck_assert_int_eq(unlink(control), 0);
	unit_ok(epochs_wait(u.vol, 1, -1, NULL, NULL));
}
END_TEST

START_TEST(a_dropped_epoch_of_the_remote_stays_dropped)
{
	struct epoch_info info;

	seal_three();
	unit_ok(epochs_wait(u.vol, 0, -1, NULL, NULL));
	unit_ok(epochs_drop(u.vol, 2));
	eu_remount();
	unit_error(epochs_get(u.vol, 2, &info), -ENOENT);
	eu_epoch_holds(1, "step-1", "one");
	eu_epoch_holds(3, "step-2", "two");
}
END_TEST

/* ---- rollback ---- */

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
	unit_ok(live_rename(u.vol, ROOT_INO, "a", ROOT_INO, "b", RENAME_EXCHANGE));
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
	Suite *s = suite_create("volume_epochs");
	TCase *t = unit_case(s, "index");

	tcase_add_test(t, the_index_finds_epochs);
	tcase_add_test(t, latest_is_the_newest_complete_one);
	tcase_add_test(t, names_of_epochs);

	t = unit_case(s, "epochs");
	tcase_add_checked_fixture(t, eu_start, eu_stop);
	tcase_add_test(t, listing);
	tcase_add_test(t, resolving);
	tcase_add_test(t, tags);
	tcase_add_test(t, what_is_needed_is_not_dropped);
	tcase_add_test(t, the_newest_complete_one_is_not_dropped);
	tcase_add_test(t, a_dropped_epoch_is_gone_and_its_number_too);
	tcase_add_test(t, without_a_remote_sealed_is_done);
	tcase_add_test(t, an_empty_volume_has_nothing_to_wait_for);

	t = unit_case(s, "rollback");
	tcase_add_checked_fixture(t, eu_start, eu_stop);
	tcase_add_test(t, rollback_restores_everything);
	tcase_add_test(t, rollback_to_what_is_there_already);
	tcase_add_test(t, rollback_of_an_exchange);
	tcase_add_test(t, open_files_across_a_rollback);
	tcase_add_test(t, a_covered_file_comes_back);
	tcase_add_test(t, the_mount_is_told);
	tcase_add_test(t, threads);

	t = unit_case(s, "remote");
	tcase_add_checked_fixture(t, start_remote, eu_stop);
	tcase_add_test(t, waiting_ends_when_it_is_durable);
	tcase_add_test(t, waiting_ends_by_timeout_and_signal);
	tcase_add_test(t, a_dropped_epoch_of_the_remote_stays_dropped);
	tcase_add_test(t, rollback_of_durable_epochs);
	return unit_run(s);
}
