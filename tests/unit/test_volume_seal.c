/* SPDX-License-Identifier: Apache-2.0 */
/* When an epoch is sealed, and what is in it (contract 1.2 and 1.3). */
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

/* ---- at once: renames, markers, closes ---- */

static void check_sealed(uint64_t number, enum record_trigger trigger)
{
	struct epoch_info info;

	unit_ok(seal_finish_until(u.vol, number));
	ck_assert_uint_eq(eu_count(), number);
	info = eu_info(number);
	ck_assert_int_eq(info.record.trigger, trigger);
	epoch_info_free(&info);
}

static void check_not_sealed(uint64_t newest)
{
	unit_ok(seal_finish_until(u.vol, INT64_MAX));
	ck_assert_uint_eq(eu_count(), newest);
	ck_assert_int_eq(eu_look().verdict, SETTLE_WAIT);
}

START_TEST(a_directory_made_final_seals)
{
	struct epoch_info info;

	eu_mkdir("tmp-checkpoint-500");
	eu_save("tmp-checkpoint-500/model", "m");
	eu_rename("tmp-checkpoint-500", "checkpoint-500");
	eu_save("after", "a");
	check_sealed(1, RECORD_TRIGGER_RENAME);
	eu_epoch_holds(1, "checkpoint-500/model", "m");
	ck_assert(!eu_has(1, "after"));
	info = eu_info(1);
	ck_assert(info.record.has_step);
	ck_assert_uint_eq(info.record.step, 500);
	ck_assert_str_eq(info.record.step_name, "checkpoint-500");
	epoch_info_free(&info);
}
END_TEST

START_TEST(a_file_made_final_seals)
{
	eu_mkdir("step-7");
	eu_save("step-7/__0_0.distcp", "d");
	eu_save("step-7/.metadata.tmp", "m");
	eu_rename("step-7/.metadata.tmp", "step-7/.metadata");
	check_sealed(1, RECORD_TRIGGER_RENAME);
}
END_TEST

START_TEST(a_rename_inside_a_temporary_directory_seals_nothing)
{
	eu_mkdir("7.orbax-checkpoint-tmp-1");
	eu_save("7.orbax-checkpoint-tmp-1/x.tmp", "x");
	eu_rename("7.orbax-checkpoint-tmp-1/x.tmp", "7.orbax-checkpoint-tmp-1/x");
	check_not_sealed(0);
	eu_rename("7.orbax-checkpoint-tmp-1", "7");
	check_sealed(1, RECORD_TRIGGER_RENAME);
}
END_TEST

START_TEST(a_rename_waits_for_other_new_files)
{
	struct handle *other = eu_open("other", O_WRONLY | O_CREAT | O_TRUNC);

	eu_save("a.tmp", "a");
	eu_rename("a.tmp", "a");
	check_not_sealed(0);
	vu_close(other);
	check_not_sealed(0);
	eu_save("b.tmp", "b");
	eu_rename("b.tmp", "b");
	check_sealed(1, RECORD_TRIGGER_RENAME);
	eu_epoch_holds(1, "other", "");
}
END_TEST

/* A configuration is saved between the model and the optimizer. */
START_TEST(a_rename_does_not_wait_for_logs_and_edits)
{
	struct handle *log = eu_open("a.log", O_WRONLY | O_CREAT | O_APPEND), *edit;

	eu_save("db", "data");
	eu_seal();
	edit = eu_open("db", O_RDWR);
	vu_write(edit, "DATA", 0);
	eu_save("a.tmp", "a");
	eu_rename("a.tmp", "a");
	check_sealed(2, RECORD_TRIGGER_RENAME);
	vu_close(log);
	vu_close(edit);
}
END_TEST

START_TEST(a_rename_waits_for_other_temporary_names)
{
	eu_save("a.tmp1", "a");
	eu_save("b.tmp1", "b");
	eu_rename("a.tmp1", "a");
	check_not_sealed(0);
	eu_rename("b.tmp1", "b");
	check_sealed(1, RECORD_TRIGGER_RENAME);
}
END_TEST

START_TEST(a_rename_of_old_content_seals_nothing)
{
	eu_save("a.tmp", "a");
	eu_seal();
	eu_rename("a.tmp", "a");
	check_not_sealed(1);
}
END_TEST

START_TEST(a_plain_rename_seals_nothing)
{
	eu_save("a", "a");
	eu_rename("a", "b");
	check_not_sealed(0);
	eu_rename("b", "b.tmp");
	check_not_sealed(0);
}
END_TEST

static void restart_with_marker(const char *glob)
{
	eu_options.marker.pattern[0] = glob;
	eu_options.marker.count = 1;
	eu_remount();
}

START_TEST(a_marker_seals)
{
	struct handle *h;

	restart_with_marker("DONE");
	eu_save("a", "a");
	eu_save("DONE", "");
	check_sealed(1, RECORD_TRIGGER_MARKER);
	eu_save("b", "b");
	eu_save("x", "");
	eu_rename("x", "DONE");
	check_sealed(2, RECORD_TRIGGER_MARKER);
	h = eu_open("c", O_WRONLY | O_CREAT | O_TRUNC);
	eu_save("DONE", "");
	check_not_sealed(2);
	vu_close(h);
}
END_TEST

START_TEST(a_marker_by_path)
{
	restart_with_marker("run/*/latest");
	eu_mkdir("run");
	eu_mkdir("run/1");
	eu_save("latest", "x");
	check_not_sealed(0);
	eu_save("run/1/latest", "x");
	check_sealed(1, RECORD_TRIGGER_MARKER);
}
END_TEST

START_TEST(settle_zero_seals_at_each_close)
{
	struct handle *h;

	eu_options.settle_ns = 0;
	eu_remount();
	eu_mkdir("d");
	eu_save("d/a", "1");
	eu_save("d/b", "2");
	check_sealed(2, RECORD_TRIGGER_CLOSE);
	ck_assert(!eu_has(1, "d/b"));
	h = eu_open("d/c", O_WRONLY | O_CREAT | O_TRUNC);
	eu_save("d/d", "4");
	unit_ok(seal_finish_until(u.vol, INT64_MAX));
	ck_assert_uint_eq(eu_count(), 2);
	vu_close(h);
	check_sealed(3, RECORD_TRIGGER_CLOSE);
	eu_symlink("last", "d/d");
	eu_wait_for_epoch(4);
	ck_assert(eu_has(4, "last"));
}
END_TEST

/* ---- quiet ---- */

START_TEST(quiet_seals_by_itself)
{
	struct epoch_info info;

	eu_options.settle_ns = NS_PER_MS;
	eu_remount();
	eu_save("epoch=3-step=400.ckpt", "c");
	eu_wait_for_epoch(1);
	info = eu_info(1);
	ck_assert_int_eq(info.record.trigger, RECORD_TRIGGER_QUIET);
	ck_assert_uint_eq(info.record.step, 400);
	epoch_info_free(&info);
}
END_TEST

START_TEST(unfinished_work_holds_quiet_up)
{
	struct handle *h;
	struct settle_answer a;

	eu_save("a", "a");
	h = eu_open("b", O_WRONLY | O_CREAT | O_TRUNC);
	vu_write(h, "b", 0);
	a = eu_look();
	ck_assert_int_eq(a.verdict, SETTLE_WAIT);
	ck_assert_int_eq(a.hold, SETTLE_HOLD_WRITER);
	vu_close(h);
	ck_assert_int_eq(eu_look().hold, SETTLE_HOLD_QUIET);
	eu_seal();

	/* Open since before the last epoch, logs and edits hold nothing up. */
	h = eu_open("c", O_WRONLY | O_CREAT | O_TRUNC);
	eu_seal();
	eu_save("d", "d");
	ck_assert_int_eq(eu_look().hold, SETTLE_HOLD_QUIET);
	vu_close(h);
	h = eu_open("a", O_RDWR);
	vu_write(h, "A", 0);
	ck_assert_int_eq(eu_look().hold, SETTLE_HOLD_QUIET);
	vu_close(h);
	h = eu_open("x.jsonl", O_WRONLY | O_CREAT);
	vu_write(h, "{}", 0);
	ck_assert_int_eq(eu_look().hold, SETTLE_HOLD_QUIET);
	vu_close(h);
}
END_TEST

START_TEST(temporary_names_hold_quiet_up)
{
	eu_options.settle_ns = NS_PER_S;
	eu_remount();
	eu_mkdir("_checkpoint");
	eu_save("_checkpoint/a", "a");
	ck_assert_int_eq(eu_look().hold, SETTLE_HOLD_TEMPORARY);
	eu_rename("_checkpoint/a", "a");
	unit_ok(live_rmdir(u.vol, ROOT_INO, "_checkpoint"));
	ck_assert_int_ne(eu_look().hold, SETTLE_HOLD_TEMPORARY);
	/* One that an epoch has holds the next one up no more. */
	eu_mkdir("tmp-old");
	eu_seal();
	eu_save("b", "b");
	ck_assert_int_ne(eu_look().hold, SETTLE_HOLD_TEMPORARY);
}
END_TEST

/* ---- killed writers ---- */

static void kill_new(const char *path)
{
	struct handle *h = eu_open(path, O_WRONLY | O_CREAT | O_TRUNC);

	vu_write(h, "half", 0);
	h->killed = true;
	handle_release(h, false);
}

/* A file that is new is killed beside what was sealed by quiet. It is of that save, which was sealed too early, where it belongs
 * to its step, or comes soon to its directory. */
static const struct beside {
	const char *dir, *killed;
	bool later, doubtful;
} besides[] = {
	{"checkpoint-1", "checkpoint-1/optimizer", true, true},
	{"checkpoint-1", "checkpoint-1/more/rank1", true, true},
	{"run", "run/optimizer", false, true},
	{"run", "run/notes", true, false},
	{"run", "run/more/figure", false, false},
};

START_TEST(a_killed_file_beside_what_was_sealed)
{
	const struct beside *b = &besides[_i];
	struct epoch_info info;
	char path[64];

	eu_mkdir(b->dir);
	snprintf(path, sizeof(path), "%s/model", b->dir);
	eu_save(path, "m");
	ck_assert_uint_eq(eu_seal_by("quiet"), 1);
	mutex_lock(&u.vol->lock);
	u.vol->sealer->last.begun_ns -= b->later ? 2 * u.vol->options.patience_ns : 0;
	mutex_unlock(&u.vol->lock);
	snprintf(path, sizeof(path), "%s/more", b->dir);
	eu_mkdir(path);
	kill_new(b->killed);
	ck_assert_uint_eq(eu_seal(), 2);
	info = eu_info(2);
	ck_assert_int_eq(info.complete, !b->doubtful);
	ck_assert_uint_eq(info.record.doubt_count, b->doubtful);
	epoch_info_free(&info);
}
END_TEST

START_TEST(after_a_kill_the_epoch_is_incomplete)
{
	struct epoch_info info;

	eu_save("a", "a");
	eu_seal();
	eu_save("b", "b");
	mutex_lock(&u.vol->lock);
	sealer_incomplete_locked(u.vol, "c: its writer was killed");
	sealer_incomplete_locked(u.vol, "d: its writer was killed");
	mutex_unlock(&u.vol->lock);
	ck_assert_uint_eq(eu_seal(), 2);
	info = eu_info(2);
	ck_assert(!info.complete);
	ck_assert_str_eq(info.record.reason, "c: its writer was killed; d: its writer was killed");
	epoch_info_free(&info);
	ck_assert_uint_eq(epochs_latest(u.vol), 1);
	eu_save("b", "bb");
	eu_seal();
	ck_assert_uint_eq(epochs_latest(u.vol), 3);
}
END_TEST

START_TEST(a_kill_that_left_nothing_is_forgotten)
{
	int64_t deadline = clock_mono_ns() + 50 * NS_PER_S;
	bool forgotten = false;

	eu_save("a", "a");
	eu_seal();
	eu_options.settle_ns = NS_PER_MS;
	eu_remount();
	mutex_lock(&u.vol->lock);
	sealer_incomplete_locked(u.vol, "c: its writer was killed");
	mutex_unlock(&u.vol->lock);
	while (!forgotten) {
		ck_assert(clock_mono_ns() < deadline);
		usleep(1000);
		mutex_lock(&u.vol->lock);
		forgotten = !u.vol->sealer->pending.reason;
		mutex_unlock(&u.vol->lock);
	}
	eu_save("b", "b");
	eu_wait_for_epoch(2);
	ck_assert_uint_eq(epochs_latest(u.vol), 2);
}
END_TEST

START_TEST(a_writer_without_a_pid_makes_it_unknown)
{
	struct epoch_info info;

	eu_save("a", "a");
	mutex_lock(&u.vol->lock);
	sealer_unknown_locked(u.vol);
	mutex_unlock(&u.vol->lock);
	eu_seal();
	info = eu_info(1);
	ck_assert_int_eq(info.record.complete, RECORD_UNKNOWN);
	ck_assert(!info.complete);
	epoch_info_free(&info);
}
END_TEST

/* ---- continues ---- */

/* Seals as quiet would. */
static uint64_t seal_automatically(void)
{
	struct seal_how how = {.trigger = RECORD_TRIGGER_QUIET};
	uint64_t number;

	mutex_lock(&u.vol->lock);
	unit_ok(seal_begin_locked(u.vol, &how, &number));
	mutex_unlock(&u.vol->lock);
	unit_ok(seal_finish_until(u.vol, number));
	return number;
}

static uint64_t continues_of(uint64_t number)
{
	struct epoch_info info = eu_info(number);
	uint64_t continues = info.record.continues;

	epoch_info_free(&info);
	return continues;
}

START_TEST(names_under_its_directory_continue_an_epoch)
{
	struct epoch_info info;

	eu_mkdir("checkpoint-5");
	eu_save("checkpoint-5/model", "m");
	seal_automatically();
	ck_assert_uint_eq(epochs_latest(u.vol), 1);
	eu_mkdir("checkpoint-5/sub");
	eu_remount();
	eu_save("checkpoint-5/optimizer", "o");
	seal_automatically();
	ck_assert_uint_eq(continues_of(2), 1);
	info = eu_info(1);
	ck_assert(info.superseded);
	ck_assert(!info.complete);
	epoch_info_free(&info);
	ck_assert_uint_eq(epochs_latest(u.vol), 2);
	eu_remount();
	info = eu_info(1);
	ck_assert(info.superseded);
	epoch_info_free(&info);
	/* A third part: the same step says that it belongs to them. */
	eu_save("checkpoint-5/scheduler", "s");
	seal_automatically();
	ck_assert_uint_eq(continues_of(3), 2);
	/* And the next checkpoint does not. */
	eu_mkdir("checkpoint-6");
	eu_save("checkpoint-6/model", "m");
	seal_automatically();
	ck_assert_uint_eq(continues_of(4), 0);
	ck_assert_uint_eq(epochs_latest(u.vol), 4);
	info = eu_info(3);
	ck_assert(info.complete);
	epoch_info_free(&info);
}
END_TEST

START_TEST(steps_that_differ_are_two_checkpoints)
{
	eu_mkdir("ckpts");
	eu_save("ckpts/step-1.pt", "m");
	seal_automatically();
	eu_save("ckpts/step-2.pt", "m");
	seal_automatically();
	ck_assert_uint_eq(continues_of(2), 0);
	eu_save("ckpts/step-3.pt", "m");
	seal_automatically();
	ck_assert_uint_eq(continues_of(3), 0);
}
END_TEST

START_TEST(directories_of_earlier_epochs_and_commits_continue_nothing)
{
	eu_mkdir("d");
	eu_save("d/a", "a");
	seal_automatically();
	eu_save("other", "o");
	seal_automatically();
	ck_assert_uint_eq(continues_of(2), 0);
	eu_save("d/b", "b");
	seal_automatically();
	ck_assert_uint_eq(continues_of(3), 0);
	eu_mkdir("e");
	eu_save("e/a", "a");
	eu_seal();
	eu_save("e/b", "b");
	seal_automatically();
	ck_assert_uint_eq(continues_of(5), 0);
	/* The root is nobody's. */
	eu_save("at-the-root", "x");
	seal_automatically();
	ck_assert_uint_eq(continues_of(6), 0);
}
END_TEST

/* ---- failures and crashes ---- */

START_TEST(an_epoch_that_cannot_be_frozen_loses_nothing)
{
	struct epochs_seal how = {.trigger = "commit"};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), trees = u.vol->trees_fd;
	struct epoch_info info;
	uint64_t number = 99;

	eu_save("a", "a");
	u.vol->trees_fd = null;
	unit_error(epochs_seal(u.vol, &how, &number), -ENOTDIR);
	u.vol->trees_fd = trees;
	close(null);
	ck_assert_uint_eq(eu_count(), 0);
	ck_assert_uint_eq(epochs_current(u.vol), 0);
	/* Its number is lost, its content is not. */
	ck_assert_uint_eq(eu_seal(), 2);
	eu_epoch_holds(2, "a", "a");
	info = eu_info(2);
	ck_assert_uint_eq(info.record.bytes_new, 1);
	ck_assert_uint_eq(info.record.parent, 0);
	epoch_info_free(&info);
}
END_TEST

/* Begins an epoch, changes more, and dies before it is frozen. */
static void begin_and_die(void)
{
	struct seal_how how = {.trigger = RECORD_TRIGGER_COMMIT};
	uint64_t number;

	eu_mount();
	mutex_lock(&u.vol->sealer->finishing);
	eu_save("b", "in one");
	mutex_lock(&u.vol->lock);
	if (seal_begin_locked(u.vol, &how, &number) != 0 || number != 2)
		_exit(2);
	mutex_unlock(&u.vol->lock);
	eu_save("b", "in two");
	eu_save("c", "in two, too");
	_exit(0);
}

START_TEST(an_epoch_that_began_before_a_crash_is_begun_anew)
{
	struct state_version v;
	pid_t child;
	int status;

	eu_save("a", "a");
	eu_seal();
	volume_close(u.vol);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		begin_and_die();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	eu_mount();
	ck_assert_uint_eq(eu_count(), 1);
	ck_assert_uint_eq(epochs_current(u.vol), 1);
	ck_assert_int_eq(eu_look().verdict, SETTLE_WAIT);
	v = vu_version(&u, vu_file(&u, "b").closed);
	ck_assert_uint_eq(v.born, 2);
	ck_assert_uint_eq(eu_seal(), 2);
	eu_epoch_holds(2, "b", "in two");
	eu_epoch_holds(2, "c", "in two, too");
	eu_save("b", "later");
	versions_bury(u.vol);
	eu_epoch_holds(2, "b", "in two");
}
END_TEST

static const char *const fault_names[] = {"seal.begun", "seal.frozen", "seal.tree", "seal.rows"};

/* Seals twice, and dies in the middle of the second time. */
static void seal_and_die(const char *point)
{
	char fault[64];

	snprintf(fault, sizeof(fault), "%s:2", point);
	setenv("EPOCHFS_FAULT", fault, 1);
	eu_mount();
	eu_save("a", "a");
	eu_seal();
	eu_save("b", "two");
	eu_seal();
	_exit(0);
}

START_TEST(a_crash_while_sealing_loses_nothing)
{
	struct epoch_info info;
	pid_t child;
	int status;

	child = fork(); /* before a volume is opened here: fault points look once */
	ck_assert_int_ge(child, 0);
	if (!child)
		seal_and_die(fault_names[_i]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSIGNALED(status), "%s is not reached: %x", fault_names[_i],
		      (unsigned)status);
	eu_mount();
	eu_live_holds("b", "two");
	ck_assert_uint_eq(eu_seal(), 2);
	eu_epoch_holds(2, "a", "a");
	eu_epoch_holds(2, "b", "two");
	eu_save("b", "three");
	ck_assert_uint_eq(eu_seal(), 3);
	eu_epoch_holds(2, "b", "two");
	info = eu_info(3);
	ck_assert_uint_eq(info.record.parent, 2);
	epoch_info_free(&info);
	ck_assert_uint_eq(eu_count(), 3);
}
END_TEST

/* Rolls back, and dies when the live tree has changed and the epoch has not begun. */
static void roll_back_and_die(void)
{
	uint64_t number;

	setenv("EPOCHFS_FAULT", "rollback.applied", 1);
	eu_mount();
	eu_save("a", "one");
	eu_seal();
	eu_save("a", "two");
	epochs_rollback(u.vol, 1, &number);
	_exit(0);
}

START_TEST(a_crash_while_rolling_back_loses_nothing)
{
	pid_t child = fork();
	int status;

	ck_assert_int_ge(child, 0);
	if (!child)
		roll_back_and_die();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	eu_mount();
	/* The rollback is done, or was never begun. */
	eu_live_holds("a", "one");
	ck_assert_int_eq(eu_look().verdict, SETTLE_WAIT);
	eu_seal();
	eu_epoch_holds(epochs_current(u.vol), "a", "one");
	eu_epoch_holds(1, "a", "one");
	eu_epoch_holds(2, "a", "two");
}
END_TEST

/* Makes a file and dies without a word. */
static void save_and_die(void)
{
	eu_mount();
	eu_save("b", "two");
	_exit(0);
}

START_TEST(changes_before_a_crash_are_sealed_after_it)
{
	struct epoch_info info;
	pid_t child;
	int status;

	eu_save("a", "a");
	eu_seal();
	volume_close(u.vol);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		save_and_die();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	eu_options.settle_ns = NS_PER_MS;
	eu_mount();
	eu_wait_for_epoch(2);
	info = eu_info(2);
	ck_assert_int_eq(info.record.trigger, RECORD_TRIGGER_RECOVERY);
	ck_assert(info.complete);
	epoch_info_free(&info);
	eu_epoch_holds(2, "b", "two");
}
END_TEST

static TCase *add_case(Suite *s, const char *name)
{
	TCase *t = unit_case(s, name);

	tcase_add_checked_fixture(t, eu_start, eu_stop);
	return t;
}

int main(void)
{
	Suite *s = suite_create("volume_seal");
	TCase *t = add_case(s, "content");

	tcase_add_test(t, a_commit_holds_the_tree_as_it_is_closed);
	tcase_add_test(t, counts_are_against_the_parent);
	tcase_add_test(t, attributes_links_and_xattrs_are_in_the_tree);
	tcase_add_test(t, only_closed_content_enters);
	tcase_add_test(t, a_covered_file_is_in_the_epoch);
	tcase_add_test(t, an_open_log_is_taken_as_it_stands);
	tcase_add_test(t, a_torn_file_makes_the_epoch_incomplete);
	tcase_add_test(t, many_files);

	t = add_case(s, "changes");
	tcase_add_test(t, nothing_changed_gives_the_newest);
	tcase_add_test(t, an_empty_volume_is_sealed_on_request_only);
	tcase_add_test(t, a_name_that_came_and_went_is_no_change);
	tcase_add_test(t, removals_and_attributes_ride);
	tcase_add_test(t, a_log_opens_no_epoch);
	tcase_add_test(t, what_is_not_sealed_is_known_after_a_remount);

	t = add_case(s, "at once");
	tcase_add_test(t, a_directory_made_final_seals);
	tcase_add_test(t, a_file_made_final_seals);
	tcase_add_test(t, a_rename_inside_a_temporary_directory_seals_nothing);
	tcase_add_test(t, a_rename_waits_for_other_new_files);
	tcase_add_test(t, a_rename_does_not_wait_for_logs_and_edits);
	tcase_add_test(t, a_rename_waits_for_other_temporary_names);
	tcase_add_test(t, a_rename_of_old_content_seals_nothing);
	tcase_add_test(t, a_plain_rename_seals_nothing);
	tcase_add_test(t, a_marker_seals);
	tcase_add_test(t, a_marker_by_path);
	tcase_add_test(t, settle_zero_seals_at_each_close);

	t = add_case(s, "quiet");
	tcase_add_test(t, quiet_seals_by_itself);
	tcase_add_test(t, unfinished_work_holds_quiet_up);
	tcase_add_test(t, temporary_names_hold_quiet_up);

	t = add_case(s, "killed");
	tcase_add_loop_test(t, a_killed_file_beside_what_was_sealed, 0,
			    sizeof(besides) / sizeof(besides[0]));
	tcase_add_test(t, after_a_kill_the_epoch_is_incomplete);
	tcase_add_test(t, a_kill_that_left_nothing_is_forgotten);
	tcase_add_test(t, a_writer_without_a_pid_makes_it_unknown);

	t = add_case(s, "continues");
	tcase_add_test(t, names_under_its_directory_continue_an_epoch);
	tcase_add_test(t, steps_that_differ_are_two_checkpoints);
	tcase_add_test(t, directories_of_earlier_epochs_and_commits_continue_nothing);

	t = add_case(s, "failures");
	tcase_add_test(t, an_epoch_that_cannot_be_frozen_loses_nothing);
	tcase_add_test(t, an_epoch_that_began_before_a_crash_is_begun_anew);
	tcase_add_test(t, changes_before_a_crash_are_sealed_after_it);

	t = unit_case(s, "crashes");
	tcase_add_checked_fixture(t, eu_prepare, eu_stop);
	tcase_add_loop_test(t, a_crash_while_sealing_loses_nothing, 0,
			    sizeof(fault_names) / sizeof(*fault_names));
	tcase_add_test(t, a_crash_while_rolling_back_loses_nothing);
	return unit_run(s);
}
