/* SPDX-License-Identifier: Apache-2.0 */
/* Times and waits with a deadline. */
#include "lib/util/clock.h"

#include <errno.h>
#include "lib/util/lock.h"

static int64_t now_of(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return clock_ns(ts);
}

int64_t clock_wall_ns(void)
{
	return now_of(CLOCK_REALTIME);
}

int64_t clock_mono_ns(void)
{
	return now_of(CLOCK_MONOTONIC);
}

struct timespec clock_timespec(int64_t ns)
{
	struct timespec ts = {.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};

	if (ts.tv_nsec < 0) {
		ts.tv_sec--;
		ts.tv_nsec += NS_PER_S;
	}
	return ts;
}

int64_t clock_ns(struct timespec ts)
{
	return (int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64_t clock_backoff(int64_t pause_ns, int64_t first_ns, int64_t longest_ns)
{
	if (!pause_ns)
		return first_ns < longest_ns ? first_ns : longest_ns;
	return pause_ns < longest_ns / 2 ? 2 * pause_ns : longest_ns;
}

int cond_init_mono(pthread_cond_t *cond)
{
	pthread_condattr_t attr;
	int error = pthread_condattr_init(&attr);

	if (error)
		return -error;
	error = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	if (!error)
		error = pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
	return -error;
}

int cond_wait_until_at(pthread_cond_t *cond, struct mutex *m, int64_t deadline_ns, const char *file,
		       int line)
{
	struct timespec ts = clock_timespec(deadline_ns);

	(void)file, (void)line;
	lock_check_wait(m, m->rank, file, line);
	return -pthread_cond_timedwait(cond, &m->own, &ts);
}
