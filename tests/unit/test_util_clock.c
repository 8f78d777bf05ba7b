/* SPDX-License-Identifier: Apache-2.0 */
/* Times, and waits on a condition with a deadline. */
#include "lib/util/clock.h"

#include "lib/util/cleanup.h"
#include "tests/unit/unit.h"

START_TEST(timespec_comes_back_with_nanoseconds_in_range)
{
	static const struct {
		int64_t ns;
		time_t s;
		long rest;
	} cases[] = {{0, 0, 0},
		     {1, 0, 1},
		     {-1, -1, 999999999},
		     {-1000000000, -1, 0},
		     {-1000000001, -2, 999999999},
		     {1763719800123456789, 1763719800, 123456789},
		     {INT64_MAX, 9223372036, 854775807}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct timespec ts = clock_timespec(cases[i].ns);

		ck_assert_int_eq(ts.tv_sec, cases[i].s);
		ck_assert_int_eq(ts.tv_nsec, cases[i].rest);
		ck_assert_int_eq(clock_ns(ts), cases[i].ns);
	}
}
END_TEST

START_TEST(monotonic_never_steps_back)
{
	int64_t last = clock_mono_ns();

	for (int i = 0; i < 100000; i++) {
		int64_t now = clock_mono_ns();

		ck_assert_int_ge(now, last);
		last = now;
	}
}
END_TEST

START_TEST(wall_clock_is_the_wall_clock)
{
	int64_t before = (int64_t)time(NULL), now = clock_wall_ns(), after;

	/* time() may lag by a tick. */
	after = (int64_t)time(NULL) + 1;
	ck_assert_int_ge(now / NS_PER_S, before);
	ck_assert_int_le(now / NS_PER_S, after);
}
END_TEST

struct bell {
	struct mutex lock;
	pthread_cond_t cond;
	int rung; /* under lock */
};

static void *ring(void *arg)
{
	struct bell *bell = arg;
	SCOPED_LOCK(&bell->lock);

	bell->rung = 1;
	pthread_cond_signal(&bell->cond);
	return NULL;
}

START_TEST(wait_ends_at_its_deadline_not_before)
{
	struct bell bell = {.lock = MUTEX_INITIALIZER(LOCK_TEST)};
	int64_t deadline = clock_mono_ns() + 20 * NS_PER_MS;
	int error = 0;

	unit_ok(cond_init_mono(&bell.cond));
	mutex_lock(&bell.lock);
	while (!error) /* a spurious wakeup is allowed */
		error = cond_wait_until(&bell.cond, &bell.lock, deadline);
	mutex_unlock(&bell.lock);
	unit_error(error, -ETIMEDOUT);
	ck_assert_int_ge(clock_mono_ns(), deadline);
	pthread_cond_destroy(&bell.cond);
}
END_TEST

START_TEST(wait_for_the_past_times_out_at_once)
{
	struct bell bell = {.lock = MUTEX_INITIALIZER(LOCK_TEST)};

	unit_ok(cond_init_mono(&bell.cond));
	mutex_lock(&bell.lock);
	unit_error(cond_wait_until(&bell.cond, &bell.lock, 0), -ETIMEDOUT);
	unit_error(cond_wait_until(&bell.cond, &bell.lock, -1), -ETIMEDOUT);
	mutex_unlock(&bell.lock);
	pthread_cond_destroy(&bell.cond);
}
END_TEST

START_TEST(wait_ends_when_woken)
{
	struct bell bell = {.lock = MUTEX_INITIALIZER(LOCK_TEST)};
	int64_t deadline = clock_mono_ns() + 600 * NS_PER_S;
	pthread_t thread;

	unit_ok(cond_init_mono(&bell.cond));
	mutex_lock(&bell.lock);
	ck_assert_int_eq(pthread_create(&thread, NULL, ring, &bell), 0);
	while (!bell.rung)
		unit_ok(cond_wait_until(&bell.cond, &bell.lock, deadline));
	mutex_unlock(&bell.lock);
	pthread_join(thread, NULL);
	pthread_cond_destroy(&bell.cond);
}
END_TEST

START_TEST(scoped_lock_ends_with_its_scope)
{
	struct mutex lock = MUTEX_INITIALIZER(LOCK_TEST);

	{
		SCOPED_LOCK(&lock);
		ck_assert_int_eq(pthread_mutex_trylock(&lock.own), EBUSY);
	}
	ck_assert_int_eq(pthread_mutex_trylock(&lock.own), 0);
	pthread_mutex_unlock(&lock.own);
}
END_TEST

/* 64 s where 60 was the limit: it was only looked at before doubling. */
START_TEST(a_pause_grows_to_its_limit_and_no_further)
{
	static const int64_t wanted[] = {1, 2, 4, 8, 16, 32, 60, 60};
	int64_t pause_ns = 0;

	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		pause_ns = clock_backoff(pause_ns, NS_PER_S, 60 * NS_PER_S);
		ck_assert_int_eq(pause_ns, wanted[i] * NS_PER_S);
	}
	ck_assert_int_eq(clock_backoff(0, 5, 3), 3);
	ck_assert_int_eq(clock_backoff(INT64_MAX / 2, 1, INT64_MAX), INT64_MAX);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_clock");
	TCase *t = unit_case(s, "clock");

	tcase_add_test(t, timespec_comes_back_with_nanoseconds_in_range);
	tcase_add_test(t, monotonic_never_steps_back);
	tcase_add_test(t, wall_clock_is_the_wall_clock);

	t = unit_case(s, "wait");
	tcase_add_test(t, wait_ends_at_its_deadline_not_before);
	tcase_add_test(t, wait_for_the_past_times_out_at_once);
	tcase_add_test(t, wait_ends_when_woken);
	tcase_add_test(t, scoped_lock_ends_with_its_scope);
	tcase_add_test(t, a_pause_grows_to_its_limit_and_no_further);
	return unit_run(s);
}
