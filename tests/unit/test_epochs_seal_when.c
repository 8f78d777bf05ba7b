/* SPDX-License-Identifier: Apache-2.0 */
/* When an epoch is sealed by itself, after a kill, and which one continues another. */
#include "tests/unit/epochs_unit.h"

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

START_TEST(a_rename_waits_for_a_file_that_is_being_replaced)
{
	struct handle *other;

	eu_save("other", "1");
	eu_save("a", "1");
	eu_seal();
	other = eu_open("other", O_WRONLY | O_TRUNC);
	eu_save("a.tmp", "2");
	eu_rename("a.tmp", "a");
	check_not_sealed(1);
	vu_write(other, "2", 0);
	vu_close(other);
	eu_save("b.tmp", "2");
	eu_rename("b.tmp", "b");
	check_sealed(2, RECORD_TRIGGER_RENAME);
	eu_epoch_holds(2, "other", "2");
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

/* With passthrough that is an edit, and where somebody reads the file it becomes another version of it. */
START_TEST(what_was_opened_and_not_written_is_no_companion)
{
	struct handle *reader, *h;
	struct content *c = NULL;
	struct epoch_info info;

	eu_save("a", "a");
	eu_seal();
	for (int i = 0; i < 2; i++) {
		reader = eu_open("a", O_RDONLY);
		unit_ok(body_content(u.vol, reader->body, &c));
		h = eu_open("a", O_RDWR);
		unit_ok(handle_join_grant(h, NULL, NULL));
		vu_close(h);
		content_put(c);
		handle_release(reader, false);
	}
	ck_assert_uint_eq(vu_version(&u, vu_file(&u, "a").closed).saved, 1);
	kill_new("b");
	eu_mkdir("d");
	ck_assert_uint_eq(eu_seal(), 2);
	info = eu_info(2);
	ck_assert(info.complete);
	epoch_info_free(&info);
	h = eu_open("a", O_RDWR);
	vu_write(h, "b", 0);
	vu_close(h);
	kill_new("b");
	eu_seal();
	ck_assert_uint_eq(epochs_latest(u.vol), 2);
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

int main(void)
{
	Suite *s = suite_create("epochs_seal_when");
	TCase *t = eu_case(s, "at once");

	tcase_add_test(t, a_directory_made_final_seals);
	tcase_add_test(t, a_file_made_final_seals);
	tcase_add_test(t, a_rename_inside_a_temporary_directory_seals_nothing);
	tcase_add_test(t, a_rename_waits_for_other_new_files);
	tcase_add_test(t, a_rename_waits_for_a_file_that_is_being_replaced);
	tcase_add_test(t, a_rename_does_not_wait_for_logs_and_edits);
	tcase_add_test(t, a_rename_waits_for_other_temporary_names);
	tcase_add_test(t, a_rename_of_old_content_seals_nothing);
	tcase_add_test(t, a_plain_rename_seals_nothing);
	tcase_add_test(t, a_marker_seals);
	tcase_add_test(t, a_marker_by_path);
	tcase_add_test(t, settle_zero_seals_at_each_close);

	t = eu_case(s, "quiet");
	tcase_add_test(t, quiet_seals_by_itself);
	tcase_add_test(t, unfinished_work_holds_quiet_up);
	tcase_add_test(t, temporary_names_hold_quiet_up);

	t = eu_case(s, "killed");
	tcase_add_loop_test(t, a_killed_file_beside_what_was_sealed, 0,
			    sizeof(besides) / sizeof(besides[0]));
	tcase_add_test(t, what_was_opened_and_not_written_is_no_companion);
	tcase_add_test(t, after_a_kill_the_epoch_is_incomplete);
	tcase_add_test(t, a_kill_that_left_nothing_is_forgotten);
	tcase_add_test(t, a_writer_without_a_pid_makes_it_unknown);

	t = eu_case(s, "continues");
	tcase_add_test(t, names_under_its_directory_continue_an_epoch);
	tcase_add_test(t, steps_that_differ_are_two_checkpoints);
	tcase_add_test(t, directories_of_earlier_epochs_and_commits_continue_nothing);
	return unit_run(s);
}
