/* SPDX-License-Identifier: Apache-2.0 */
/* A background thread: rounds by kicks and by times, kicks in a round, and its end. */
#include "lib/util/thread.h"

#include <sched.h>
#include <stdatomic.h>
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define SOON  (20 * NS_PER_MS)
#define NEVER (1000 * NS_PER_S)

struct counter {
	struct background background;
	unsigned rounds;   /* guarded by its background lock */
	int64_t until_ns;  /* from a round to the next; 0: when kicked */
	atomic_bool holds; /* a round lasts until it is to end */
};

static bool next(struct counter *c)
{
	return c->until_ns ? background_next_until(&c->background, clock_mono_ns() + c->until_ns)
			   : background_next(&c->background);
}

static void *count(void *arg)
{
	struct counter *c = arg;

	while (next(c)) {
		mutex_lock(&c->background.lock);
		c->rounds++;
		pthread_cond_broadcast(&c->background.wake);
		mutex_unlock(&c->background.lock);
		while (atomic_load(&c->holds) && !background_stops(&c->background))
			sched_yield();
	}
	return NULL;
}

static void begin(struct counter *c)
{
	unit_ok(background_init(&c->background, LOCK_EVICTOR));
	unit_ok(background_start(&c->background, count, c));
}

static void end(struct counter *c)
{
	background_stop(&c->background);
	ck_assert(!c->background.runs);
	background_stop(&c->background);
	background_destroy(&c->background);
}

/* The rounds there were once there are so many, or after the time. */
static unsigned rounds_after(struct counter *c, unsigned at_least, int64_t ns)
{
	int64_t deadline = clock_mono_ns() + ns;

	SCOPED_LOCK(&c->background.lock);
	while (c->rounds < at_least &&
	       cond_wait_until(&c->background.wake, &c->background.lock, deadline) != -ETIMEDOUT)
		;
	return c->rounds;
}

START_TEST(a_kick_is_a_round)
{
	struct counter c = {0};

	begin(&c);
	ck_assert_uint_eq(rounds_after(&c, 1, SOON), 0);
	for (unsigned i = 1; i <= 3; i++) {
		background_kick(&c.background);
		ck_assert_uint_eq(rounds_after(&c, i, NEVER), i);
	}
	ck_assert_uint_eq(rounds_after(&c, 4, SOON), 3);
	end(&c);
}
END_TEST

START_TEST(kicks_in_a_round_are_one_round_more)
{
	struct counter c = {.holds = true};

	begin(&c);
	background_kick(&c.background);
	ck_assert_uint_eq(rounds_after(&c, 1, NEVER), 1);
	for (int i = 0; i < 3; i++)
		background_kick(&c.background);
	atomic_store(&c.holds, false);
	ck_assert_uint_eq(rounds_after(&c, 2, NEVER), 2);
	ck_assert_uint_eq(rounds_after(&c, 3, SOON), 2);
	end(&c);
}
END_TEST

START_TEST(a_round_begins_when_it_is_due)
{
	struct counter c = {.until_ns = SOON};
	int64_t began = clock_mono_ns();

	begin(&c);
	ck_assert_uint_eq(rounds_after(&c, 2, NEVER), 2);
	ck_assert_int_ge(clock_mono_ns() - began, 2 * SOON);
	end(&c);
}
END_TEST

START_TEST(the_earlier_time_counts_and_once)
{
	struct counter c = {0};
	int64_t now;

	begin(&c);
	mutex_lock(&c.background.lock);
	now = clock_mono_ns();
	background_due_locked(&c.background, now + NEVER);
	background_due_locked(&c.background, now + SOON);
	background_due_locked(&c.background, now + NEVER);
	mutex_unlock(&c.background.lock);
	ck_assert_uint_eq(rounds_after(&c, 1, NEVER / 10), 1);
	ck_assert_int_ge(clock_mono_ns(), now + SOON);
	ck_assert_uint_eq(rounds_after(&c, 2, 2 * SOON), 1);
	end(&c);
}
END_TEST

START_TEST(a_kick_comes_before_the_time)
{
	struct counter c = {.until_ns = NEVER};

	begin(&c);
	background_kick(&c.background);
	ck_assert_uint_eq(rounds_after(&c, 1, NEVER / 10), 1);
	end(&c);
}
END_TEST

START_TEST(it_ends_in_a_round)
{
	struct counter c = {.holds = true};

	begin(&c);
	background_kick(&c.background);
	ck_assert_uint_eq(rounds_after(&c, 1, NEVER), 1);
	background_kick(&c.background);
	background_tell_stop(&c.background);
	background_join(&c.background);
	ck_assert_uint_eq(c.rounds, 1);
	end(&c);
}
END_TEST

START_TEST(one_that_never_ran_is_stopped)
{
	struct counter c = {0};

	unit_ok(background_init(&c.background, LOCK_EVICTOR));
	end(&c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_background");
	TCase *t = unit_case(s, "background");

	tcase_add_test(t, a_kick_is_a_round);
	tcase_add_test(t, kicks_in_a_round_are_one_round_more);
	tcase_add_test(t, a_round_begins_when_it_is_due);
	tcase_add_test(t, the_earlier_time_counts_and_once);
	tcase_add_test(t, a_kick_comes_before_the_time);
	tcase_add_test(t, it_ends_in_a_round);
	tcase_add_test(t, one_that_never_ran_is_stopped);
	return unit_run(s);
}
