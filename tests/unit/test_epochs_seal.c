/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing: what an epoch holds, and what opens one. */
#include "tests/unit/epochs_unit.h"

/* ---- what is in an epoch ---- */

START_TEST(a_commit_holds_the_tree_as_it_is_closed)
{
	struct epochs_seal how = {
		.trigger = "commit", .message = "hello", .has_step = true, .step = 12};
	struct epoch_info info;
	uint64_t number;

	eu_mkdir("d");
	eu_save("a", "one");
	eu_save("d/b", "two!");
	eu_symlink("l", "d/b");
	unit_ok(epochs_seal(u.vol, &how, &number));
	ck_assert_uint_eq(number, 1);
	eu_save("a", "changed");
	eu_epoch_holds(1, "a", "one");
	eu_epoch_holds(1, "d/b", "two!");
	eu_live_holds("a", "changed");

	info = eu_info(1);
	ck_assert_int_eq(info.state, EPOCH_SEALED);
	ck_assert(info.complete);
	ck_assert_uint_eq(info.record.files, 2);
	ck_assert_uint_eq(info.record.directories, 2);
	ck_assert_uint_eq(info.record.symlinks, 1);
	ck_assert_uint_eq(info.record.bytes, 7);
	ck_assert_uint_eq(info.record.bytes_new, 7);
	ck_assert_uint_eq(info.record.added, 4);
	ck_assert_uint_eq(info.record.parent, 0);
	ck_assert_int_eq(info.record.trigger, RECORD_TRIGGER_COMMIT);
	ck_assert(info.record.has_step);
	ck_assert_uint_eq(info.record.step, 12);
	ck_assert_str_eq(info.record.message, "hello");
	ck_assert_str_eq(info.record.host, "testnode");
	ck_assert_str_eq(info.record.run_id, "run7");
	ck_assert_str_eq(info.record.volume, volume_uuid(u.vol));
	ck_assert_int_gt(info.record.opened_ns, 0);
	ck_assert_int_ge(info.record.sealed_ns, info.record.opened_ns);
	epoch_info_free(&info);
}
END_TEST

START_TEST(counts_are_against_the_parent)
{
	struct epoch_info info;

	eu_save("same", "s");
	eu_save("change", "c");
	eu_save("gone", "g");
	eu_seal();
	eu_save("change", "longer");
	eu_save("new", "n");
	eu_unlink("gone");
	ck_assert_uint_eq(eu_seal(), 2);
	info = eu_info(2);
	ck_assert_uint_eq(info.record.parent, 1);
	ck_assert_uint_eq(info.record.added, 1);
	ck_assert_uint_eq(info.record.changed, 1);
	ck_assert_uint_eq(info.record.removed, 1);
	ck_assert_uint_eq(info.record.bytes, 8);
	ck_assert_uint_eq(info.record.bytes_new, 7);
	epoch_info_free(&info);
	eu_epoch_holds(1, "gone", "g");
	ck_assert(!eu_has(2, "gone"));
}
END_TEST

START_TEST(attributes_links_and_xattrs_are_in_the_tree)
{
	struct live_change change = {.set = LIVE_SET_MODE | LIVE_SET_MTIME,
				     .mode = 0640,
				     .mtime_ns = INT64_C(1234567890123456789)};
	cleanup_tree struct tree *tree = NULL;
	struct tree_entry a, b, l;
	const void *value;
	struct live_attr attr;
	struct epoch_info info;
	size_t len;

	eu_save("a", "one");
	eu_link("a", "b");
	eu_symlink("l", "some/where");
	unit_ok(live_setattr(u.vol, eu_ino("a"), 0, &change, &attr));
	unit_ok(live_setxattr(u.vol, eu_ino("a"), "user.x", "y", 1, 0));
	eu_seal();
	unit_ok(epochs_tree(u.vol, 1, &tree));
	ck_assert(eu_find(tree, "a", &a) && eu_find(tree, "b", &b) && eu_find(tree, "l", &l));
	ck_assert_uint_eq(a.mode, 0640);
	ck_assert_int_eq(a.mtime_ns, INT64_C(1234567890123456789));
	ck_assert_uint_ne(a.group, 0);
	ck_assert_uint_eq(a.group, b.group);
	unit_ok(xattrs_get(a.xattrs, a.xattrs_len, "user.x", &value, &len));
	unit_same_bytes(value, len, "y", 1);
	ck_assert_int_eq(l.type, TREE_SYMLINK);
	ck_assert_str_eq(l.u.target, "some/where");
	info = eu_info(1);
	ck_assert_uint_eq(info.record.files, 1);
	ck_assert_uint_eq(info.record.bytes_new, 3);
	epoch_info_free(&info);
}
END_TEST

START_TEST(only_closed_content_enters)
{
	struct handle *fresh, *replaced, *edited;

	eu_save("replaced", "old");
	eu_save("edited", "first");
	fresh = eu_open("fresh", O_WRONLY | O_CREAT | O_TRUNC);
	vu_write(fresh, "half", 0);
	replaced = eu_open("replaced", O_WRONLY | O_TRUNC);
	vu_write(replaced, "ne", 0);
	edited = eu_open("edited", O_RDWR);
	vu_write(edited, "FIRST", 0);
	ck_assert_uint_eq(eu_seal(), 1);
	vu_close(fresh);
	vu_close(replaced);
	vu_close(edited);
	ck_assert(!eu_has(1, "fresh"));
	eu_epoch_holds(1, "replaced", "old");
	eu_epoch_holds(1, "edited", "first");
	ck_assert_uint_eq(eu_seal(), 2);
	eu_epoch_holds(2, "fresh", "half");
	eu_epoch_holds(2, "replaced", "ne");
	eu_epoch_holds(2, "edited", "FIRST");
	eu_epoch_holds(1, "edited", "first");
}
END_TEST

START_TEST(a_covered_file_is_in_the_epoch)
{
	struct handle *h;

	eu_save("a", "whole");
	h = eu_open("a.new", O_WRONLY | O_CREAT | O_TRUNC);
	vu_write(h, "hal", 0);
	eu_rename("a.new", "a");
	ck_assert_uint_eq(eu_seal(), 1);
	eu_epoch_holds(1, "a", "whole");
	vu_close(h);
	ck_assert_uint_eq(eu_seal(), 2);
	eu_epoch_holds(2, "a", "hal");
	eu_epoch_holds(1, "a", "whole");
}
END_TEST

START_TEST(an_open_log_is_taken_as_it_stands)
{
	struct handle *log = eu_open("train.log", O_WRONLY | O_CREAT | O_APPEND);
	cleanup_tree struct tree *tree = NULL;
	struct tree_entry e;

	vu_write(log, "one\n", 0);
	eu_save("model", "m");
	ck_assert_uint_eq(eu_seal(), 1);
	vu_write(log, "two\n", 4);
	/* It has grown: that is worth an epoch where somebody asks for one. */
	ck_assert_uint_eq(eu_seal(), 2);
	vu_write(log, "three\n", 8);
	eu_epoch_holds(1, "train.log", "one\n");
	eu_epoch_holds(2, "train.log", "one\ntwo\n");
	unit_ok(epochs_tree(u.vol, 2, &tree));
	ck_assert(eu_find(tree, "train.log", &e));
	ck_assert(e.flags & TREE_LOG);
	vu_close(log);
	ck_assert_uint_eq(eu_seal(), 3);
	eu_epoch_holds(3, "train.log", "one\ntwo\nthree\n");
	eu_epoch_holds(1, "train.log", "one\n");
}
END_TEST

/* A zip's first bytes without its directory. */
START_TEST(a_torn_file_makes_the_epoch_incomplete)
{
	cleanup_tree struct tree *tree = NULL;
	struct epoch_info info;
	struct tree_entry e;

	eu_save("ok", "x");
	eu_seal();
	eu_save_bytes("model.pt", "PK\3\4 and no more", 15);
	ck_assert_uint_eq(eu_seal(), 2);
	info = eu_info(2);
	ck_assert(!info.complete);
	ck_assert_int_eq(info.record.complete, RECORD_INCOMPLETE);
	ck_assert_ptr_nonnull(strstr(info.record.reason, "model.pt"));
	epoch_info_free(&info);
	unit_ok(epochs_tree(u.vol, 2, &tree));
	ck_assert(eu_find(tree, "model.pt", &e));
	ck_assert(e.flags & TREE_TORN);
	ck_assert_uint_eq(epochs_latest(u.vol), 1);

	/* Later epochs that did not change it are no better, and the mark stays. */
	eu_save("ok", "y");
	ck_assert_uint_eq(eu_seal(), 3);
	ck_assert_uint_eq(epochs_latest(u.vol), 1);
	tree_unref(tree);
	unit_ok(epochs_tree(u.vol, 3, &tree));
	ck_assert(eu_find(tree, "model.pt", &e));
	ck_assert(e.flags & TREE_TORN);
}
END_TEST

START_TEST(many_files)
{
	struct epoch_info info;
	char path[64];

	for (int i = 0; i < 2000; i++) {
		if (i % 100 == 0) {
			snprintf(path, sizeof(path), "d%d", i / 100);
			eu_mkdir(path);
		}
		snprintf(path, sizeof(path), "d%d/f%d", i / 100, i);
		eu_save(path, "x");
	}
	eu_seal();
	eu_save("d5/f501", "yy");
	eu_seal();
	info = eu_info(2);
	ck_assert_uint_eq(info.record.files, 2000);
	ck_assert_uint_eq(info.record.changed, 1);
	ck_assert_uint_eq(info.record.added, 0);
	ck_assert_uint_eq(info.record.bytes_new, 2);
	epoch_info_free(&info);
	eu_epoch_holds(1, "d5/f501", "x");
}
END_TEST

/* ---- when there is something to seal ---- */

START_TEST(nothing_changed_gives_the_newest)
{
	struct epochs_seal how = {.trigger = "mkdir", .tag = "best"};
	uint64_t number;

	eu_save("a", "one");
	ck_assert_uint_eq(eu_seal(), 1);
	ck_assert_uint_eq(eu_seal(), 1);
	unit_ok(epochs_seal(u.vol, &how, &number));
	ck_assert_uint_eq(number, 1);
	unit_ok(epochs_tag_get(u.vol, "best", &number));
	ck_assert_uint_eq(number, 1);
	unit_error(epochs_seal(u.vol, &how, &number), -EEXIST);
	how.tag = "42";
	unit_error(epochs_seal(u.vol, &how, &number), -EINVAL);
	how.tag = "next";
	eu_save("a", "two");
	unit_ok(epochs_seal(u.vol, &how, &number));
	ck_assert_uint_eq(number, 2);
	unit_ok(epochs_tag_get(u.vol, "next", &number));
	ck_assert_uint_eq(number, 2);
}
END_TEST

START_TEST(an_empty_volume_is_sealed_on_request_only)
{
	struct epoch_info info;

	ck_assert_uint_eq(eu_seal_by("umount"), 0);
	ck_assert_uint_eq(eu_seal_by("wait"), 0);
	ck_assert_uint_eq(eu_seal_by("commit"), 1);
	info = eu_info(1);
	ck_assert_uint_eq(info.record.files, 0);
	ck_assert(info.complete);
	epoch_info_free(&info);
	ck_assert_uint_eq(epochs_current(u.vol), 1);
}
END_TEST

START_TEST(a_name_that_came_and_went_is_no_change)
{
	eu_save("a", "one");
	eu_seal();
	eu_save("a.lock", "");
	ck_assert_int_eq(eu_look().verdict, SETTLE_WAIT);
	eu_unlink("a.lock");
	ck_assert_int_eq(eu_look().verdict, SETTLE_IDLE);
	eu_mkdir("d");
	eu_save("d/x", "y");
	eu_unlink("d/x");
	unit_ok(live_rmdir(u.vol, ROOT_INO, "d"));
	ck_assert_int_eq(eu_look().verdict, SETTLE_IDLE);
	ck_assert_uint_eq(eu_seal(), 1);
}
END_TEST

START_TEST(removals_and_attributes_ride)
{
	struct live_change change = {.set = LIVE_SET_MODE, .mode = 0600};
	struct live_attr attr;

	eu_save("a", "one");
	eu_save("b", "two");
	eu_seal();
	eu_unlink("b");
	ck_assert_int_eq(eu_look().verdict, SETTLE_IDLE);
	ck_assert_uint_eq(eu_seal_by("umount"), 2);
	ck_assert(!eu_has(2, "b"));
	unit_ok(live_setattr(u.vol, eu_ino("a"), 0, &change, &attr));
	ck_assert_int_eq(eu_look().verdict, SETTLE_IDLE);
	ck_assert_uint_eq(eu_seal(), 3);
	ck_assert_uint_eq(eu_seal(), 3);
}
END_TEST

static void *cut_it(void *log)
{
	unit_ok(handle_truncate(log, 0, NULL, NULL));
	vu_write(log, "new\n", 0);
	return NULL;
}

/* Between the seal and the copy of the log. */
START_TEST(a_log_is_cut_once_the_epoch_has_it)
{
	struct handle *log = eu_open("train.log", O_WRONLY | O_CREAT | O_APPEND);
	struct seal_how how = {.trigger = RECORD_TRIGGER_COMMIT};
	pthread_t thread;
	uint64_t number;

	eu_save("a", "a");
	vu_write(log, "one\n", 0);
	mutex_lock(&u.vol->sealer->finishing);
	mutex_lock(&u.vol->lock);
	unit_ok(seal_begin_locked(u.vol, &how, &number));
	mutex_unlock(&u.vol->lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, cut_it, log), 0);
	usleep(30000);
	mutex_unlock(&u.vol->sealer->finishing);
	pthread_join(thread, NULL);
	unit_ok(seal_finish_until(u.vol, number));
	eu_epoch_holds(number, "train.log", "one\n");
	vu_close(log);
	eu_live_holds("train.log", "new\n");
}
END_TEST

static bool is_durable(uint64_t number)
{
	struct epoch_info info = eu_info(number);
	bool durable = info.state == EPOCH_DURABLE;

	epoch_info_free(&info);
	return durable;
}

/* The snapshot of the second epoch says where content was before the upload of the first, and the tree of the first where it is now. */
START_TEST(what_was_vouched_for_stays_so_while_it_is_uploaded)
{
	struct epochs_seal vouched = {.trigger = "commit", .whole = true};
	struct seal_how how = {.trigger = RECORD_TRIGGER_COMMIT};
	uint64_t number;

	eu_save("base.safetensors", "a placeholder, no tensors");
	unit_ok(epochs_seal(u.vol, &vouched, &number));
	eu_save("part", "2");
	mutex_lock(&u.vol->sealer->finishing);
	mutex_lock(&u.vol->lock);
	unit_ok(seal_begin_locked(u.vol, &how, &number));
	mutex_unlock(&u.vol->lock);
	unit_until(is_durable(1));
	mutex_unlock(&u.vol->sealer->finishing);
	unit_ok(seal_finish_until(u.vol, number));
	ck_assert_uint_eq(epochs_latest(u.vol), number);
}
END_TEST

START_TEST(a_log_opens_no_epoch)
{
	eu_save("a", "one");
	eu_seal();
	eu_save("metrics.csv", "1,2\n");
	ck_assert_int_eq(eu_look().verdict, SETTLE_IDLE);
	ck_assert_uint_eq(eu_seal(), 2);
	eu_epoch_holds(2, "metrics.csv", "1,2\n");
}
END_TEST

START_TEST(what_is_not_sealed_is_known_after_a_remount)
{
	eu_save("a", "one");
	eu_seal();
	eu_save("b", "two");
	eu_remount();
	ck_assert_int_eq(eu_look().verdict, SETTLE_WAIT);
	ck_assert_uint_eq(eu_seal(), 2);
	eu_unlink("b");
	eu_remount();
	ck_assert_int_eq(eu_look().verdict, SETTLE_IDLE);
	ck_assert_uint_eq(eu_seal(), 3);
	eu_remount();
	ck_assert_uint_eq(eu_seal(), 3);
	ck_assert_uint_eq(epochs_current(u.vol), 3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_seal");
	TCase *t = eu_case(s, "content");

	tcase_add_test(t, a_commit_holds_the_tree_as_it_is_closed);
	tcase_add_test(t, counts_are_against_the_parent);
	tcase_add_test(t, attributes_links_and_xattrs_are_in_the_tree);
	tcase_add_test(t, only_closed_content_enters);
	tcase_add_test(t, a_covered_file_is_in_the_epoch);
	tcase_add_test(t, an_open_log_is_taken_as_it_stands);
	tcase_add_test(t, a_torn_file_makes_the_epoch_incomplete);
	tcase_add_test(t, many_files);

	t = eu_remote_case(s, "uploads");
	tcase_add_test(t, what_was_vouched_for_stays_so_while_it_is_uploaded);

	t = eu_case(s, "changes");
	tcase_add_test(t, nothing_changed_gives_the_newest);
	tcase_add_test(t, an_empty_volume_is_sealed_on_request_only);
	tcase_add_test(t, a_name_that_came_and_went_is_no_change);
	tcase_add_test(t, removals_and_attributes_ride);
	tcase_add_test(t, a_log_is_cut_once_the_epoch_has_it);
	tcase_add_test(t, a_log_opens_no_epoch);
	tcase_add_test(t, what_is_not_sealed_is_known_after_a_remount);
	return unit_run(s);
}
