/* SPDX-License-Identifier: Apache-2.0 */
/* Starting threads that no signal disturbs. */
#ifndef EPOCHFS_UTIL_THREAD_H
#define EPOCHFS_UTIL_THREAD_H

#include <pthread.h>

/*
 * pthread_create with all signals blocked in the new thread: a signal that is sent to the process
 * reaches the thread that waits for it, and does not end the process because some other thread had
 * it unblocked. `attr` may be NULL. 0 or -errno.
 */
int thread_start(pthread_t *ret_thread, const pthread_attr_t *attr, void *(*main)(void *),
		 void *arg);

#endif
