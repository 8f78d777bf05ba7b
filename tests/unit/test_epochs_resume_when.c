/* SPDX-License-Identifier: Apache-2.0 */
/* -o resume: when the live tree goes back. It waits for other writers, tries again what failed, and survives a
 * crash. */
#include <inttypes.h>
#include "lib/epochs/resume.h"
#include "lib/util/process.h"
#include "tests/unit/resume_unit.h"

static void hide_tree(uint64_t number)
{
	char name[32];

	snprintf(name, sizeof(name), "%020" PRIu64, number);
	ck_assert_int_eq(linkat(u.vol->trees_fd, name, u.vol->trees_fd, "hidden", 0), 0);
	unit_ok(trees_remove(u.vol, number));
}

static void show_tree(uint64_t number)
{
	char name[32];

	snprintf(name, sizeof(name), "%020" PRIu64, number);
	ck_assert_int_eq(renameat(u.vol->trees_fd, "hidden", u.vol->trees_fd, name), 0);
}

/* As if `settle` had passed. */
static void become_quiet(void)
{
	SCOPED_LOCK(&u.vol->lock);
	u.vol->sealer->pending.activity_ns -= EU_LONG;
	u.vol->resume->retry_ns = clock_mono_ns();
	sealer_wake_locked(u.vol);
}

static void save_as(const char *path, const char *text, pid_t pid)
{
	eu_save_as(path, text, strlen(text), pid);
}

/* It is not to miss the directory that it has just made. */
START_TEST(a_save_between_two_of_its_files_is_waited_for)
{
	save_both();
	eu_mkdir("checkpoint-7");
	eu_save("checkpoint-7/model", "m");
	save("a", "a2");
	kill_writer(begin_save("b"));
	eu_save("checkpoint-7/optimizer", "o");
	ck_assert(eu_there("checkpoint-7/model"));
	ck_assert_uint_eq(eu_count(), 1);
	become_quiet();
	unit_until(epochs_current(u.vol) == 3);
	went_back_from(2);
	eu_epoch_holds(2, "checkpoint-7/optimizer", "o");
}
END_TEST

START_TEST(who_lives_may_go_on_with_the_same_save)
{
	pid_t other = begin_process();

	save_both();
	save_as("c", "c2", other);
	kill_writer(begin_save("b"));
	ck_assert(eu_there("c"));
	ck_assert_uint_eq(eu_count(), 1);
	end_process(other);
	unit_until(epochs_current(u.vol) == 3);
	went_back_from(2);
	eu_epoch_holds(2, "c", "c2");
}
END_TEST

/* A trainer that is started next must not meet the half: the last one's other saves are not waited for. */
START_TEST(a_process_that_has_ended_is_not_waited_for)
{
	save_both();
	save("step=5.ckpt", "m");
	save("a", "a2");
	kill_writer(begin_save("b"));
	went_back_from(2);
}
END_TEST

START_TEST(who_has_closed_a_torn_file_may_save_it_again)
{
	pid_t trainer = begin_process();

	save_both();
	save_as("a", "a2", trainer);
	eu_save_as("model.pt", "PK\3\4 and no more", 15, trainer);
	become_quiet();
	/* An epoch has the half meanwhile. */
	ck_assert_uint_eq(eu_seal(), 2);
	ck_assert(!is_complete(2));
	eu_live_holds("a", "a2");
	if (_i) {
		end_process(trainer);
		unit_until(epochs_current(u.vol) == 3);
		went_back_from(2);
		return;
	}
	save_as("model.pt", "whole", trainer);
	end_process(trainer);
	ck_assert_uint_eq(eu_seal(), 3);
	ck_assert(is_complete(3));
	eu_live_holds("a", "a2");
}
END_TEST

START_TEST(what_comes_of_the_save_after_it_was_taken_back)
{
	pid_t other = begin_process(), next;

	save_as("d", "d1", other);
	save_both();
	save("a", "a2");
	kill_writer(begin_save("b"));
	went_back_from(2);
	/* Whoever is started now begins with the whole save. */
	next = begin_process();
	save_as("c", "c2", other);
	ck_assert_uint_eq(eu_seal(), 4);
	ck_assert(!is_complete(4));
	end_process(other);
	unit_until(epochs_current(u.vol) == 5);
	ck_assert(!eu_there("c"));
	went_back(4, 3);
	save_as("a", "a5", next);
	ck_assert_uint_eq(eu_seal(), 6);
	ck_assert(is_complete(6));
	end_process(next);
}
END_TEST

START_TEST(it_waits_for_other_writers)
{
	struct handle *rank1, *other, *log;

	save_both();
	eu_mkdir("checkpoint-7");
	other = begin_save("checkpoint-7/model");
	log = eu_open("metrics.jsonl", O_WRONLY | O_CREAT | O_APPEND);
	vu_write(log, "{}", 0);
	save("a", "a2");
	rank1 = begin_save("c");
	kill_writer(begin_save("b"));
	eu_live_holds("a", "a2");
	ck_assert_uint_eq(eu_count(), 1);
	vu_close(rank1);
	/* Somebody else's save is under way: nothing of it goes nowhere. */
	eu_live_holds("a", "a2");
	vu_write(other, " and more", 4);
	vu_close(other);
	ck_assert(eu_there("checkpoint-7/model"));
	become_quiet();
	unit_until(epochs_current(u.vol) == 3);
	went_back_from(2);
	ck_assert(!eu_there("c"));
	eu_epoch_holds(2, "c", "half");
	eu_epoch_holds(2, "checkpoint-7/model", "half and more");
	ck_assert(!eu_there("checkpoint-7"));
	/* The log is as it was. */
	vu_write(log, "{}", 2);
	vu_close(log);
	eu_live_holds("metrics.jsonl", "{}{}");
}
END_TEST

/* A database that is held open for writing all the time. */
START_TEST(who_has_written_nothing_elsewhere_is_not_waited_for)
{
	struct handle *idle;

	eu_mkdir("checkpoint-1");
	save("checkpoint-1/notes", "x");
	save_both();
	idle = eu_open("checkpoint-1/notes", O_RDWR);
	save("a", "a2");
	kill_writer(begin_save("b"));
	went_back_from(2);
	vu_close(idle);
}
END_TEST

static bool status_tells_an_error(void)
{
	json_t *o = status();
	bool tells = json_object_get(json_object_get(o, "resumed"), "error") != NULL;

	json_decref(o);
	return tells;
}

/* The tree of epoch 1 cannot be read for a while. */
START_TEST(what_fails_is_tried_again)
{
	json_t *o, *resumed;

	save_both();
	hide_tree(1);
	save("a", "a2");
	kill_writer(begin_save("b"));
	eu_live_holds("a", "a2");
	o = status();
	resumed = json_object_get(o, "resumed");
	ck_assert_ptr_nonnull(json_object_get(resumed, "error"));
	ck_assert_ptr_null(json_object_get(resumed, "to_undo"));
	json_decref(o);
	show_tree(1);
	unit_until(epochs_current(u.vol) == 3 && !status_tells_an_error());
	went_back_from(2);
	o = status();
	resumed = json_object_get(o, "resumed");
	ck_assert_int_eq(json_integer_value(json_object_get(resumed, "left")), 2);
	json_decref(o);
}
END_TEST

/* Also where an epoch was sealed of it already. */
START_TEST(when_the_volume_is_opened)
{
	save_both();
	save("a", "a2");
	kill_writer(begin_save("b"));
	if (_i)
		ck_assert_uint_eq(eu_seal(), 2);
	eu_options.resume = RESUME_ALWAYS;
	eu_remount();
	went_back_from(2);
}
END_TEST

START_TEST(a_torn_file_when_the_volume_is_opened)
{
	save_both();
	save_bytes("a", "PK\3\4 and no more", 15);
	eu_options.resume = RESUME_ALWAYS;
	eu_remount();
	went_back_from(2);
}
END_TEST

/* ---- crashes ---- */

static const char *const fault_names[] = {"resume.begin",  "seal.begun:2",     "seal.rows:2",
					  "resume.sealed", "rollback.applied", "seal.begun:3",
					  "seal.frozen:3", "seal.rows:3",      "resume.end"};

static void go_back_and_die(const char *point)
{
	setenv("EPOCHFS_FAULT", point, 1);
	eu_mount();
	save_both();
	save("a", "a2");
	kill_writer(begin_save("b"));
	_exit(0);
}

START_TEST(a_crash_while_it_goes_back)
{
	pid_t child = fork();
	uint64_t count;
	int status;

	ck_assert_int_ge(child, 0);
	if (!child)
		go_back_and_die(fault_names[_i]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSIGNALED(status), "%s is not reached: %x", fault_names[_i],
		      (unsigned)status);
	eu_mount();
	eu_live_holds("a", "a1");
	eu_live_holds("b", "b1");
	eu_epoch_holds(2, "a", "a2");
	ck_assert(!is_complete(2));
	eu_seal();
	count = eu_count();
	ck_assert_uint_eq(count, 3);
	ck_assert_uint_eq(epochs_latest(u.vol), 3);
	/* Once is enough. */
	eu_remount();
	ck_assert_uint_eq(eu_count(), 3);
	eu_live_holds("a", "a1");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_resume_when");
	TCase *t = resume_case(s, "resume");

	tcase_add_test(t, a_save_between_two_of_its_files_is_waited_for);
	tcase_add_test(t, a_process_that_has_ended_is_not_waited_for);
	tcase_add_test(t, who_lives_may_go_on_with_the_same_save);
	tcase_add_loop_test(t, who_has_closed_a_torn_file_may_save_it_again, 0, 2);
	tcase_add_test(t, what_comes_of_the_save_after_it_was_taken_back);
	tcase_add_test(t, it_waits_for_other_writers);
	tcase_add_test(t, who_has_written_nothing_elsewhere_is_not_waited_for);
	tcase_add_test(t, what_fails_is_tried_again);
	t = eu_case(s, "off");
	tcase_add_loop_test(t, when_the_volume_is_opened, 0, 2);
	tcase_add_test(t, a_torn_file_when_the_volume_is_opened);
	t = unit_case(s, "crashes");
	tcase_add_checked_fixture(t, prepare, eu_stop);
	tcase_add_loop_test(t, a_crash_while_it_goes_back, 0,
			    sizeof(fault_names) / sizeof(*fault_names));
	return unit_run(s);
}
