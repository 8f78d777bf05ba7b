/* SPDX-License-Identifier: Apache-2.0 */
/* Times: wall clock and monotonic, in nanoseconds, and waiting on a condition with a deadline. */
#ifndef EPOCHFS_UTIL_CLOCK_H
#define EPOCHFS_UTIL_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include "lib/util/lock.h"

#define NS_PER_S  INT64_C(1000000000)
#define NS_PER_MS INT64_C(1000000)

/* Nanoseconds since 1970 (CLOCK_REALTIME), for what people see and what is stored. */
int64_t clock_wall_ns(void);
/* Nanoseconds that never step back (CLOCK_MONOTONIC), for intervals and deadlines. */
int64_t clock_mono_ns(void);
struct timespec clock_timespec(int64_t ns);
int64_t clock_ns(struct timespec ts);
/* The pause after one of `pause_ns` (0: there was none yet): `first_ns`, then twice as long each time, and never
 * above `longest_ns`. */
int64_t clock_backoff(int64_t pause_ns, int64_t first_ns, int64_t longest_ns);

/* A condition variable whose waits are measured by CLOCK_MONOTONIC: 0 or -errno. */
int cond_init_mono(pthread_cond_t *cond) __attribute__((warn_unused_result));
/* Waits, with the mutex held, until woken or until clock_mono_ns() is `deadline_ns`: 0 or
 * -ETIMEDOUT. The condition must come from cond_init_mono. */
#define cond_wait_until(cond, m, deadline_ns)                                                      \
	cond_wait_until_at((cond), (m), (deadline_ns), __FILE__, __LINE__)
int cond_wait_until_at(pthread_cond_t *cond, struct mutex *m, int64_t deadline_ns, const char *file,
		       int line);

/* Polled while an operation waits (remote fetch, full cache); true ends it with -EINTR. May be NULL. */
typedef bool (*interrupted_fn)(void *arg);

#endif
