/* SPDX-License-Identifier: Apache-2.0 */
/* What recovery makes of files that were open when the daemon died: logs, torn saves, and which of two
 * writers closed last. */
#include "tests/unit/recover_unit.h"

static void write_log(void)
{
	struct handle *h = vu_open(&u, "train.log", O_WRONLY | O_CREAT | O_TRUNC);

	vu_write(h, "step 1\n", 0);
}

START_TEST(a_log_survives)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, write_log);
	mount_and_check();
	vu_holds(&u, "train.log", "step 1\n");
	vu_save(&u, "c", "c");
	ck_assert(next_epoch_is_complete());
}
END_TEST

/* However often the daemon starts before that epoch is sealed. */
START_TEST(an_open_file_makes_the_epoch_incomplete)
{
	daemon_dies(NULL, prepare);
	ck_assert(!was_said(daemon_dies("write.done", edit), SAID_END));
	mount_and_check();
	vu_holds(&u, "a", "THE old content");
	ck_assert(!next_epoch_is_complete());
	vu_save(&u, "a", "whole");
	ck_assert(next_epoch_is_complete());
}
END_TEST

static void kill_a_writer_alone(void)
{
	struct vu_child c = vu_child();
	struct handle *h = NULL;
	siginfo_t info;

	unit_ok(vu_open_as(&u, "a", O_WRONLY | O_TRUNC, c.pid, &h));
	vu_write(h, "half", 0);
	kill(c.pid, SIGKILL);
	waitid(P_PID, (id_t)c.pid, &info, WEXITED | WNOWAIT);
	unit_ok(handle_flush(h, c.pid, NULL, NULL));
	handle_release(h, false);
	vu_child_wait(&c);
}

static void kill_a_writer(void)
{
	vu_save(&u, "c", "closed in order");
	kill_a_writer_alone();
}

START_TEST(a_killed_writer_is_remembered)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, kill_a_writer);
	mount_and_check();
	vu_holds(&u, "a", "the old content");
	ck_assert(!next_epoch_is_complete());
}
END_TEST

/* The second save since the newest complete epoch, of two files: one is closed, and not committed yet. */
static void end_in_a_second_save(void)
{
	struct handle *a, *b;

	vu_save(&u, "b", "of the first save");
	a = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	b = vu_open(&u, "b", O_WRONLY | O_TRUNC);
	vu_write(a, "half", 0);
	vu_write(b, "of the second save", 0);
	unit_ok(handle_flush(b, getpid(), NULL, NULL));
}

/* The same, where the daemon had seen the kill, and the other file was closed after that. */
static void end_after_a_kill_in_a_second_save(void)
{
	struct handle *b;

	vu_save(&u, "b", "of the first save");
	b = vu_open(&u, "b", O_WRONLY | O_TRUNC);
	vu_write(b, "of the second save", 0);
	kill_a_writer_alone();
	unit_ok(handle_flush(b, getpid(), NULL, NULL));
}

START_TEST(what_was_closed_before_a_crash_is_not_saved_again_by_the_recovery)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, _i ? end_after_a_kill_in_a_second_save : end_in_a_second_save);
	mount_and_check();
	vu_holds(&u, "a", "the old content");
	vu_holds(&u, "b", "of the second save");
	ck_assert(!next_epoch_is_complete());
	ck_assert(!next_epoch_is_complete());
	vu_save(&u, "a", "of the second save");
	ck_assert(next_epoch_is_complete());
}
END_TEST

static void two_replacements(void)
{
	struct vu_child other = vu_child();
	struct handle *mine = vu_open(&u, "a", O_WRONLY | O_TRUNC), *theirs = NULL;

	unit_ok(vu_open_as(&u, "a", O_WRONLY | O_TRUNC, other.pid, &theirs));
	vu_write(mine, "closed last", 0);
	/* Written last, closed first: the times of the files do not tell the order of the closes. */
	for (int64_t start = clock_wall_ns(); clock_wall_ns() - start < 20 * NS_PER_MS;)
		vu_write(theirs, "closed first", 0);
	unit_ok(handle_flush(theirs, other.pid, NULL, NULL));
	unit_ok(handle_flush(mine, getpid(), NULL, NULL));
}

START_TEST(the_last_of_two_closes_wins_after_a_crash)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, two_replacements);
	mount_and_check();
	vu_holds(&u, "a", "closed last");
}
END_TEST

static void roll_back_under_writers(void)
{
	struct vu_child other = vu_child();
	struct handle *mine = vu_open(&u, "a", O_WRONLY | O_TRUNC), *theirs = NULL;
	uint64_t number;

	vu_write(mine, "of before", 0);
	unit_ok(handle_flush(mine, getpid(), NULL, NULL));
	vu_save(&u, "b", "the new content");
	unit_ok(vu_open_as(&u, "b", O_WRONLY | O_TRUNC, other.pid, &theirs));
	vu_write(theirs, "half", 0);
	unit_ok(epochs_rollback(u.vol, 1, &number));
}

/* Of a file that stays as it is and of one that gets its content back: what was open is of neither. */
START_TEST(what_was_open_at_a_rollback_replaces_nothing_after_a_crash)
{
	daemon_dies(NULL, prepare);
	daemon_dies(NULL, roll_back_under_writers);
	mount_and_check();
	vu_holds(&u, "a", "the old content");
	vu_holds(&u, "b", "of another file");
	ck_assert(next_epoch_is_complete());
}
END_TEST

int main(void)
{
	Suite *s = suite_create("volume_recover_open");
	TCase *t = recover_case(s, "open");

	vu_by_saves = false;
	tcase_add_test(t, a_log_survives);
	tcase_add_test(t, an_open_file_makes_the_epoch_incomplete);
	tcase_add_test(t, a_killed_writer_is_remembered);
	tcase_add_loop_test(t, what_was_closed_before_a_crash_is_not_saved_again_by_the_recovery, 0,
			    2);
	tcase_add_test(t, the_last_of_two_closes_wins_after_a_crash);
	tcase_add_test(t, what_was_open_at_a_rollback_replaces_nothing_after_a_crash);
	return unit_run(s);
}
