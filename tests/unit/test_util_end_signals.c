/* SPDX-License-Identifier: Apache-2.0 */
/* What asks a process to end, and what hurries it. */
#include "lib/util/end_signals.h"

#include <unistd.h>
#include "tests/unit/unit.h"

#define GRACE_NS (5 * NS_PER_S)

START_TEST(the_first_begins_the_grace_and_only_a_second_sigint_ends_it)
{
	static const struct {
		int first, second;
		bool terminal;
		int64_t apart_ns;
		bool hurry;
	} cases[] = {
		/* Slurm, timeout(1). */
		{SIGTERM, SIGTERM, false, 14 * NS_PER_MS, false},
		{SIGTERM, SIGTERM, false, 14 * NS_PER_S, false},
		{SIGINT, SIGINT, false, 0, false},
		{SIGHUP, SIGHUP, false, 0, false},
		{SIGTERM, SIGHUP, false, 0, false},
		{SIGINT, SIGTERM, false, NS_PER_S, false},
		{SIGUSR1, SIGTERM, false, 0, false},
		/* A person. */
		{SIGINT, SIGINT, true, 0, true},
		{SIGINT, SIGINT, false, END_SIGNALS_APART_NS, true},
		{SIGTERM, SIGINT, false, 0, true},
		{SIGHUP, SIGINT, true, 0, true},
		{SIGUSR1, SIGINT, false, 0, true},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct end_request r = {0};

		ck_assert_int_eq(end_request_deadline(&r, GRACE_NS), INT64_MAX);
		end_request_note(&r, cases[i].first, cases[i].terminal, 7);
		ck_assert_int_eq(end_request_deadline(&r, GRACE_NS), 7 + GRACE_NS);
		ck_assert_int_eq(end_request_deadline(&r, INT64_MAX), INT64_MAX);
		end_request_note(&r, cases[i].second, cases[i].terminal, 7 + cases[i].apart_ns);
		ck_assert_msg(r.hurry == cases[i].hurry, "case %zu", i);
		ck_assert_int_eq(r.first, cases[i].first);
		ck_assert_int_eq(end_request_deadline(&r, GRACE_NS),
				 cases[i].hurry ? 0 : 7 + GRACE_NS);
	}
}
END_TEST

START_TEST(a_descriptor_takes_what_came)
{
	int fd = end_signals_open();
	struct end_request r = {0};

	ck_assert_int_ge(fd, 0);
	end_signals_take(fd, &r);
	ck_assert_int_eq(r.first, 0);
	kill(getpid(), SIGUSR1);
	end_signals_take(fd, &r);
	ck_assert_int_eq(r.first, 0);
	kill(getpid(), SIGTERM);
	end_signals_take(fd, &r);
	ck_assert_int_eq(r.first, SIGTERM);
	kill(getpid(), SIGTERM);
	end_signals_take(fd, &r);
	ck_assert(!r.hurry);
	kill(getpid(), SIGINT);
	end_signals_take(fd, &r);
	ck_assert(r.hurry);
	close(fd);
}
END_TEST

START_TEST(once_the_grace_is_over_a_signal_ends_the_process)
{
	struct end_request r = {0};
	int fd = end_signals_open();

	kill(getpid(), SIGTERM);
	end_signals_take(fd, &r);
	end_signals_leave(&r, INT64_MAX);
	kill(getpid(), SIGTERM);
	end_signals_leave(&r, INT64_MAX);
	end_signals_leave(&r, 0);
	_exit(0);
}
END_TEST

START_TEST(what_hurries_ends_the_process)
{
	const struct end_request r = {.first = SIGTERM, .hurry = true};

	end_signals_leave(&r, INT64_MAX);
	_exit(0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_end_signals");
	TCase *t = unit_case(s, "rule");

	tcase_add_test(t, the_first_begins_the_grace_and_only_a_second_sigint_ends_it);
	tcase_add_test(t, a_descriptor_takes_what_came);
	tcase_add_test_raise_signal(t, once_the_grace_is_over_a_signal_ends_the_process, SIGTERM);
	tcase_add_exit_test(t, what_hurries_ends_the_process, 128 + SIGINT);
	return unit_run(s);
}
