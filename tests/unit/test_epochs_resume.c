/* SPDX-License-Identifier: Apache-2.0 */
/* -o resume: what the live tree goes back to after a killed or torn save, and what stays. */
#include "lib/epochs/resume.h"
#include "tests/unit/resume_unit.h"

static uint32_t root_links(void)
{
	struct state_file f;

	SCOPED_LOCK(&u.vol->lock);
	unit_ok(state_file_get(u.vol->state, ROOT_INO, &f));
	return f.nlink;
}

START_TEST(half_a_save)
{
	json_t *o, *resumed;

	save_both();
	save("a", "a2");
	kill_writer(begin_save("b"));
	went_back_from(2);
	eu_epoch_holds(2, "a", "a2");
	eu_epoch_holds(2, "b", "b1");
	o = status();
	resumed = json_object_get(o, "resumed");
	ck_assert_int_eq(json_integer_value(json_object_get(resumed, "left")), 2);
	ck_assert_int_eq(json_integer_value(json_object_get(resumed, "to")), 1);
	ck_assert_int_eq(json_integer_value(json_object_get(resumed, "epoch")), 3);
	ck_assert_ptr_nonnull(strstr(json_string_value(json_object_get(resumed, "why")),
				     "b: its writer was killed"));
	ck_assert_str_eq(json_string_value(json_object_get(resumed, "to_undo")),
			 "epochfs rollback DIRECTORY 2");
	ck_assert_ptr_null(json_object_get(o, "doubts"));
	json_decref(o);
	/* The next save is as any. */
	save("a", "a3");
	save("b", "b3");
	ck_assert_uint_eq(eu_seal(), 4);
	ck_assert_uint_eq(epochs_latest(u.vol), 4);
}
END_TEST

START_TEST(new_files_go)
{
	save_both();
	eu_mkdir("checkpoint-2");
	save("checkpoint-2/model", "m");
	save("checkpoint-2/train.log", "l");
	kill_writer(begin_save("checkpoint-2/optimizer"));
	went_back_from(2);
	ck_assert(!eu_there("checkpoint-2"));
	eu_epoch_holds(2, "checkpoint-2/model", "m");
	eu_epoch_holds(2, "checkpoint-2/train.log", "l");
}
END_TEST

/* Killed in its first file: the tree is as it was, but for the directory. */
START_TEST(an_empty_directory_goes)
{
	eu_mkdir("runs");
	eu_mkdir("runs/checkpoint-1");
	save_both();
	eu_mkdir("runs/checkpoint-2");
	eu_mkdir("runs/checkpoint-2/global_step2");
	eu_mkdir("runs/empty");
	kill_writer(begin_save("runs/checkpoint-2/global_step2/model"));
	ck_assert(!eu_there("runs/checkpoint-2"));
	kill_writer(begin_save("runs/checkpoint-1/model"));
	kill_writer(begin_save("runs/empty/model"));
	ck_assert(eu_there("runs/checkpoint-1") && eu_there("runs/empty"));
	ck_assert_uint_eq(eu_count(), 1);
	eu_mkdir("checkpoint-3");
	eu_options.resume = RESUME_OFF;
	eu_remount();
	kill_writer(begin_save("checkpoint-3/model"));
	ck_assert(eu_there("checkpoint-3"));
	eu_options.resume = RESUME_ALWAYS;
	eu_remount();
	ck_assert(!eu_there("checkpoint-3"));
}
END_TEST

START_TEST(nothing_happens_where_nothing_is_in_doubt)
{
	struct handle *h;
	json_t *o;

	save_both();
	/* Without companions. */
	kill_writer(begin_save("b"));
	eu_live_holds("b", "b1");
	/* Under a temporary name. */
	eu_mkdir("_checkpoint");
	save("_checkpoint/model", "m");
	kill_writer(begin_save("_checkpoint/optimizer"));
	/* A log. */
	h = eu_open("train.log", O_WRONLY | O_CREAT | O_APPEND);
	vu_write(h, "line", 0);
	kill_writer(h);
	mutex_lock(&u.vol->lock);
	ck_assert_uint_eq(u.vol->next_epoch, 2);
	mutex_unlock(&u.vol->lock);
	eu_live_holds("_checkpoint/model", "m");
	eu_live_holds("train.log", "line");
	eu_remount();
	ck_assert_uint_eq(eu_count(), 1);
	o = status();
	ck_assert_ptr_null(json_object_get(o, "resumed"));
	json_decref(o);
}
END_TEST

/* It is as good as it was: nothing that others wrote since is taken away. */
START_TEST(a_database_that_a_killed_writer_left)
{
	struct handle *h;

	save_bytes("runs.db", "SQLite format 3\0 rows", 21);
	save_both();
	save("a", "a2");
	h = eu_open("runs.db", O_RDWR);
	vu_write(h, "ROWS", 17);
	kill_writer(h);
	ck_assert_uint_eq(eu_count(), 1);
	eu_live_holds("a", "a2");
	ck_assert_uint_eq(eu_seal(), 2);
	ck_assert(!is_complete(2));
	eu_remount();
	eu_live_holds("a", "a2");
}
END_TEST

/* Nobody saw its writers end: it may be good, and what is in doubt is not. */
START_TEST(an_epoch_of_which_it_is_not_known_is_good_enough)
{
	struct epoch_info info;

	save_both();
	save("a", "a2");
	mutex_lock(&u.vol->lock);
	sealer_unknown_locked(u.vol);
	mutex_unlock(&u.vol->lock);
	ck_assert_uint_eq(eu_seal(), 2);
	info = eu_info(2);
	ck_assert_int_eq(info.record.complete, RECORD_UNKNOWN);
	epoch_info_free(&info);
	save_bytes("model.pt", "PK\3\4 and no more", 15);
	unit_until(epochs_current(u.vol) == 4);
	info = eu_info(4);
	ck_assert_uint_eq(info.record.restores, 2);
	epoch_info_free(&info);
	eu_live_holds("a", "a2");
	ck_assert(!eu_there("model.pt"));
	ck_assert_uint_eq(epochs_latest(u.vol), 1);
}
END_TEST

/* Ctrl-C in the middle of a save: closed in good order. */
START_TEST(a_torn_file)
{
	save_both();
	save("a", "a2");
	save_bytes("model.pt", "PK\3\4 and no more", 15);
	unit_until(epochs_current(u.vol) == 3);
	went_back_from(2);
	ck_assert(!eu_there("model.pt"));
	ck_assert(eu_has(2, "model.pt"));
}
END_TEST

/* A writer that changed it in place. */
START_TEST(a_file_changed_in_place)
{
	pid_t pid = begin_process();
	struct handle *h;

	save_both();
	h = eu_open_as("a", O_RDWR, pid);
	vu_write(h, "X", 0);
	end_process(pid);
	kill_writer(h);
	went_back_from(2);
	eu_epoch_holds(2, "a", "X1");
}
END_TEST

START_TEST(logs_stay)
{
	struct handle *log;

	save("old.log", "one");
	save("gone.csv", "x");
	eu_mkdir("runs");
	save("runs/1.log", "one");
	save_both();
	save("old.log", "one and two");
	eu_unlink("gone.csv");
	save("runs/1.log", "one and two");
	save("runs/best", "no log");
	eu_mkdir("new");
	eu_mkdir("new/deep");
	eu_mkdir("new/empty");
	save("new/deep/events.out.tfevents.1", "event");
	save("new/deep/model", "m");
	eu_mkdir("plain");
	save("plain/model", "m");
	log = eu_open("train.log", O_WRONLY | O_CREAT | O_APPEND);
	vu_write(log, "line 1, ", 0);
	save("a", "a2");
	kill_writer(begin_save("b"));
	went_back_from(2);
	eu_live_holds("old.log", "one and two");
	eu_live_holds("runs/1.log", "one and two");
	eu_live_holds("new/deep/events.out.tfevents.1", "event");
	ck_assert(!eu_there("gone.csv") && !eu_there("runs/best"));
	ck_assert(!eu_there("new/deep/model") && !eu_there("new/empty") && !eu_there("plain"));
	ck_assert_uint_eq(vu_file(&u, "new").nlink, 3);
	ck_assert_uint_eq(root_links(), 4);
	vu_write(log, "line 2", 8);
	vu_close(log);
	eu_live_holds("train.log", "line 1, line 2");
	/* The epoch that was made has them as they stood. */
	eu_epoch_holds(3, "old.log", "one and two");
	eu_epoch_holds(3, "train.log", "line 1, ");
	/* A directory comes back with what was in it. */
	eu_unlink("runs/1.log");
	unit_ok(live_rmdir(u.vol, ROOT_INO, "runs"));
	save("a", "a4");
	kill_writer(begin_save("b"));
	eu_live_holds("runs/1.log", "one and two");
}
END_TEST

START_TEST(without_a_complete_epoch_it_stays)
{
	json_t *o;

	save("a", "a1");
	kill_writer(begin_save("b"));
	eu_live_holds("a", "a1");
	ck_assert(!eu_there("b"));
	ck_assert_uint_eq(epochs_latest(u.vol), 0);
	o = status();
	ck_assert_ptr_nonnull(json_object_get(o, "resumed"));
	ck_assert_ptr_null(json_object_get(json_object_get(o, "resumed"), "to_undo"));
	json_decref(o);
}
END_TEST

START_TEST(without_the_option_nothing)
{
	struct resumed done;

	save_both();
	save("a", "a2");
	kill_writer(begin_save("b"));
	eu_live_holds("a", "a2");
	ck_assert_uint_eq(eu_count(), 1);
	/* But for who asks. */
	unit_ok(resume_now(u.vol, &done));
	ck_assert_uint_eq(done.left, 2);
	ck_assert_uint_eq(done.to, 1);
	ck_assert_uint_eq(done.as, 3);
	went_back_from(2);
	unit_ok(resume_now(u.vol, &done));
	ck_assert_uint_eq(done.as, 3);
	ck_assert_uint_eq(eu_count(), 3);
	save("a", "a4");
	unit_ok(resume_now(u.vol, &done));
	ck_assert_uint_eq(done.as, 3);
	save("b", "b4");
	ck_assert_uint_eq(eu_seal(), 4);
	unit_ok(resume_now(u.vol, &done));
	ck_assert_uint_eq(done.left + done.to + done.as, 0);
}
END_TEST

/* It is undone by a rollback by hand, and that counts until something changes. */
START_TEST(what_was_undone_by_hand_stays)
{
	uint64_t number;

	save_both();
	save("a", "a2");
	kill_writer(begin_save("b"));
	unit_ok(epochs_rollback(u.vol, 2, &number));
	eu_live_holds("a", "a2");
	eu_remount();
	eu_live_holds("a", "a2");
	ck_assert_uint_eq(eu_count(), 4);
	save("notes", "x");
	eu_remount();
	went_back(5, 3);
	ck_assert(!eu_there("notes"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_resume");
	TCase *t = resume_case(s, "resume");

	tcase_add_test(t, half_a_save);
	tcase_add_test(t, new_files_go);
	tcase_add_test(t, an_empty_directory_goes);
	tcase_add_test(t, nothing_happens_where_nothing_is_in_doubt);
	tcase_add_test(t, a_database_that_a_killed_writer_left);
	tcase_add_test(t, an_epoch_of_which_it_is_not_known_is_good_enough);
	tcase_add_test(t, a_torn_file);
	tcase_add_test(t, a_file_changed_in_place);
	tcase_add_test(t, logs_stay);
	tcase_add_test(t, without_a_complete_epoch_it_stays);
	tcase_add_test(t, what_was_undone_by_hand_stays);
	t = eu_case(s, "off");
	tcase_add_test(t, without_the_option_nothing);
	return unit_run(s);
}
