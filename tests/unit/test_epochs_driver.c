/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of a volume where the rules of saves decide (driver.h). */
#include "tests/unit/epochs_unit.h"

#include <signal.h>
#include <sys/wait.h>
#include "lib/epochs/rollback.h"
#include "lib/epochs/writers.h"
#include "lib/live/observer.h"

static void start(void)
{
	eu_prepare();
	eu_options.by_saves = true;
	eu_options.resume = RESUME_KNOWN;
	eu_mount();
}

static void start_remote(void)
{
	eu_prepare();
	free(u.remote);
	u.remote = unit_dir();
	eu_options.by_saves = true;
	eu_options.resume = RESUME_KNOWN;
	eu_mount();
}

static void end_well(int signal)
{
	(void)signal;
	_exit(0);
}

/* A program that saves. */
static pid_t trainer_new(void)
{
	pid_t pid = fork();

	if (!pid) {
		/* Nothing of the volume is kept open, its lock least of all. */
		close_range(0, ~0u, 0);
		signal(SIGTERM, end_well);
		for (;;)
			pause();
	}
	ck_assert_int_gt(pid, 0);
	return pid;
}

static void trainer_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static void save(pid_t pid, const char *path, const char *text)
{
	eu_save_as(path, text, strlen(text), pid);
}

/* Two saves of two files each, as epochs 1 and 2. */
static void save_two(pid_t pid)
{
	for (int i = 1; i <= 2; i++) {
		char path[64];

		snprintf(path, sizeof(path), "step-%d", i);
		eu_mkdir(path);
		snprintf(path, sizeof(path), "step-%d/model", i);
		save(pid, path, "model");
		snprintf(path, sizeof(path), "step-%d/optimizer", i);
		save(pid, path, "optimizer");
		ck_assert_uint_eq(eu_seal(), (uint64_t)i);
	}
	ck_assert_uint_eq(epochs_latest(u.vol), 2);
}

static void save_half(pid_t pid)
{
	eu_mkdir("step-3");
	save(pid, "step-3/model", "model");
}

static enum record_complete complete(uint64_t number)
{
	struct epoch_info info = eu_info(number);
	enum record_complete complete = info.record.complete;

	epoch_info_free(&info);
	return complete;
}

static enum epoch_state state_of(uint64_t number)
{
	struct epoch_info info = eu_info(number);
	enum epoch_state state = info.state;

	epoch_info_free(&info);
	return state;
}

static void reason_is(uint64_t number, const char *rule, const char *reason)
{
	struct epoch_info info = eu_info(number);

	ck_assert_pstr_eq(info.record.rule, rule);
	ck_assert_pstr_eq(info.record.reason, reason);
	epoch_info_free(&info);
}

/* As somebody who was just started opens the root. */
static void look_in(void)
{
	pid_t pid = trainer_new();

	if (u.vol->observer->before_reading(u.vol, ROOT_INO, O_RDONLY, pid))
		u.vol->observer->for_reader(u.vol, ROOT_INO, O_RDONLY, pid);
	trainer_kill(pid);
}

#define LACKS "step-3 has no optimizer, which the saves before it had"

START_TEST(killed_between_two_files)
{
	pid_t pid = trainer_new();

	save_two(pid);
	save_half(pid);
	trainer_kill(pid);
	look_in();
	ck_assert(!eu_there("step-3") && eu_there("step-2/optimizer"));
	ck_assert_int_eq(complete(3), RECORD_INCOMPLETE);
	reason_is(3, "J4", LACKS);
	ck_assert(eu_has(3, "step-3/model"));
	ck_assert_int_eq(complete(4), RECORD_COMPLETE);
	ck_assert_uint_eq(epochs_latest(u.vol), 4);
}
END_TEST

START_TEST(a_pending_save_is_not_latest)
{
	pid_t pid = trainer_new();

	save_two(pid);
	save_half(pid);
	ck_assert_uint_eq(eu_seal(), 3);
	ck_assert_uint_eq(epochs_latest(u.vol), 2);
	reason_is(3, "J6", LACKS);
	look_in();
	ck_assert(eu_there("step-3"));
	save(pid, "step-3/optimizer", "optimizer");
	ck_assert_uint_eq(eu_seal(), 4);
	ck_assert_uint_eq(epochs_latest(u.vol), 4);
	ck_assert_int_eq(complete(3), RECORD_INCOMPLETE);
	trainer_kill(pid);
}
END_TEST

START_TEST(a_pending_save_is_whole_once_nothing_came)
{
	pid_t pid = trainer_new();

	eu_options.patience_ns = NS_PER_S / 5;
	eu_remount();
	save_two(pid);
	save_half(pid);
	ck_assert_uint_eq(eu_seal(), 3);
	unit_until(epochs_latest(u.vol) == 3);
	reason_is(3, "J7", NULL);
	trainer_kill(pid);
}
END_TEST

START_TEST(what_saves_have_is_known_after_a_remount)
{
	pid_t pid = trainer_new();

	save_two(pid);
	eu_remount();
	save_half(pid);
	ck_assert_uint_eq(eu_seal(), 3);
	reason_is(3, "J6", LACKS);
	trainer_kill(pid);
}
END_TEST

/* What was chosen stays, over a mount, too, and nothing is whole by it until a full save. */
START_TEST(somebody_goes_back_to_a_half_save)
{
	pid_t pid = trainer_new();
	uint64_t number;

	save_two(pid);
	save_half(pid);
	trainer_kill(pid);
	look_in();
	ck_assert_uint_eq(epochs_latest(u.vol), 4);
	unit_ok(epochs_rollback(u.vol, 3, &number));
	ck_assert_uint_eq(number, 5);
	eu_options.resume = RESUME_ALWAYS;
	eu_remount();
	look_in();
	ck_assert(eu_there("step-3/model"));
	pid = trainer_new();
	save(pid, "notes.txt", "restarted");
	ck_assert_uint_eq(eu_seal(), 6);
	reason_is(6, "J4", "what was gone back to is not whole");
	eu_mkdir("step-4");
	save(pid, "step-4/model", "model");
	save(pid, "step-4/optimizer", "optimizer");
	ck_assert_uint_eq(eu_seal(), 7);
	ck_assert_uint_eq(epochs_latest(u.vol), 7);
	trainer_kill(pid);
}
END_TEST

/* Of what came after the last epoch the next mount finds out that it is half. */
START_TEST(half_a_save_that_was_not_sealed_before_a_remount)
{
	pid_t pid = trainer_new();

	eu_options.resume = RESUME_ALWAYS;
	save_two(pid);
	save_half(pid);
	trainer_kill(pid);
	eu_remount();
	look_in();
	ck_assert(!eu_there("step-3") && eu_there("step-2/optimizer"));
	reason_is(3, "J4", LACKS);
}
END_TEST

START_TEST(a_pending_record_is_uploaded_for_who_waits)
{
	pid_t pid = trainer_new();

	save_two(pid);
	save_half(pid);
	ck_assert_uint_eq(eu_seal(), 3);
	unit_ok(epochs_wait(u.vol, 2, -1, NULL, NULL));
	usleep(200000);
	ck_assert_int_eq(state_of(3), EPOCH_SEALED);
	unit_ok(epochs_wait(u.vol, 3, -1, NULL, NULL));
	ck_assert_int_eq(complete(3), RECORD_INCOMPLETE);
	trainer_kill(pid);
}
END_TEST

/* Ctrl-C in torch.save: what begins as a zip, and ends nowhere. */
START_TEST(a_replacement_that_is_cut_off)
{
	static const char begin[] = "PK\003\004 begins, and is cut off";
	pid_t pid = trainer_new();

	save(pid, "model.pt", "whole, and no zip");
	ck_assert_uint_eq(eu_seal(), 1);
	save(pid, "model.pt", begin);
	eu_live_holds("model.pt", "whole, and no zip");
	/* A new one replaces nothing. */
	save(pid, "new.pt", begin);
	eu_live_holds("new.pt", begin);
	trainer_kill(pid);
}
END_TEST

/* The record of one that somebody waited for never changes: the same is made once more, as a whole. */
START_TEST(what_was_waited_for_and_is_whole_is_made_again)
{
	pid_t pid = trainer_new();

	eu_options.patience_ns = NS_PER_S;
	eu_remount();
	save_two(pid);
	save_half(pid);
	ck_assert_uint_eq(eu_seal(), 3);
	unit_ok(epochs_wait(u.vol, 3, -1, NULL, NULL));
	reason_is(3, "J6", LACKS);
	unit_until(epochs_latest(u.vol) == 4);
	reason_is(3, "J6", LACKS);
	reason_is(4, "J7", NULL);
	ck_assert(eu_has(4, "step-3/model"));
	trainer_kill(pid);
}
END_TEST

static void trainer_end(pid_t pid)
{
	kill(pid, SIGTERM);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* Who has ended well has saved what he meant to, and after the mount nothing follows. */
START_TEST(what_is_pending_at_the_end_of_the_mount)
{
	pid_t pid = trainer_new();

	save_two(pid);
	save_half(pid);
	ck_assert_uint_eq(eu_seal(), 3);
	if (_i)
		trainer_end(pid);
	unit_ok(volume_finish(u.vol, true, NULL, NULL));
	ck_assert_uint_eq(epochs_latest(u.vol), _i ? 3 : 2);
	reason_is(3, _i ? "J7" : "J6", _i ? NULL : LACKS);
	if (!_i)
		trainer_kill(pid);
}
END_TEST

START_TEST(each_process_has_a_number_of_its_own)
{
	pid_t one = trainer_new(), other = trainer_new();
	struct writers *w = writers_new();
	uint64_t number;
	unsigned status;
	bool known;

	ck_assert_ptr_nonnull(w);
	number = writers_number(w, one);
	ck_assert_uint_eq(number, (uint64_t)one);
	ck_assert_uint_eq(writers_number(w, one), number);
	ck_assert_uint_eq(writers_number(w, 0), 0);
	ck_assert_uint_eq(writers_number(w, other), (uint64_t)other);
	ck_assert_uint_eq(writers_ended(w, &known, &status), 0);
	kill(one, SIGKILL);
	unit_until(writers_ended(w, &known, &status) == number);
	ck_assert(known);
	ck_assert_uint_eq(status, 128 + SIGKILL);
	ck_assert(writers_any(w));
	trainer_kill(other);
	unit_until(writers_ended(w, &known, &status) == (uint64_t)other);
	ck_assert(!writers_any(w));
	/* The pid is not free yet, but what ended is not watched any more. */
	ck_assert_uint_ne(writers_number(w, one), number);
	waitpid(one, NULL, 0);
	writers_free(w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_driver");
	TCase *t = unit_case(s, "driver"), *remote = unit_case(s, "remote"),
	      *w = unit_case(s, "writers");

	tcase_add_checked_fixture(t, start, eu_stop);
	tcase_add_test(t, killed_between_two_files);
	tcase_add_test(t, a_pending_save_is_not_latest);
	tcase_add_test(t, a_pending_save_is_whole_once_nothing_came);
	tcase_add_test(t, what_saves_have_is_known_after_a_remount);
	tcase_add_test(t, somebody_goes_back_to_a_half_save);
	tcase_add_test(t, half_a_save_that_was_not_sealed_before_a_remount);
	tcase_add_test(t, a_replacement_that_is_cut_off);
	tcase_add_checked_fixture(remote, start_remote, eu_stop);
	tcase_add_test(remote, what_was_waited_for_and_is_whole_is_made_again);
	tcase_add_loop_test(remote, what_is_pending_at_the_end_of_the_mount, 0, 2);
	tcase_add_test(remote, a_pending_record_is_uploaded_for_who_waits);
	tcase_add_test(w, each_process_has_a_number_of_its_own);
	return unit_run(s);
}
