/* SPDX-License-Identifier: Apache-2.0 */
/* A system that gives no more threads. */
#ifndef EPOCHFS_TESTS_NO_THREADS_H
#define EPOCHFS_TESTS_NO_THREADS_H

#include <pthread.h>
#include "tests/unit/unit.h"

/* More than a process can map. */
#define NO_THREADS_STACK ((size_t)1 << 56)

/* Whether a thread can be made from now on by whoever says nothing of its stack, as lib/util/thread.h does. */
__attribute__((unused)) static void no_threads(bool none)
{
	static size_t usual;
	pthread_attr_t attr;

	ck_assert_int_eq(pthread_getattr_default_np(&attr), 0);
	if (!usual)
		ck_assert_int_eq(pthread_attr_getstacksize(&attr, &usual), 0);
	ck_assert_int_eq(pthread_attr_setstacksize(&attr, none ? NO_THREADS_STACK : usual), 0);
	ck_assert_int_eq(pthread_setattr_default_np(&attr), 0);
	pthread_attr_destroy(&attr);
}

#endif
