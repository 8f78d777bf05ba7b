/* SPDX-License-Identifier: Apache-2.0 */
/* Starting threads that no signal disturbs, and their priority. */
#ifndef EPOCHFS_UTIL_THREAD_H
#define EPOCHFS_UTIL_THREAD_H

#include <pthread.h>

/*
 * pthread_create with all signals blocked in the new thread: a signal that is sent to the process
 * reaches the thread that waits for it, and does not end the process because some other thread had
 * it unblocked. libcrypto is ready before it begins. `attr` may be NULL. 0 or -errno.
 */
int thread_start(pthread_t *ret_thread, const pthread_attr_t *attr, void *(*main)(void *),
		 void *arg);

/*
 * The calling thread gives way to all that runs at an ordinary priority on its processor (nice 19: a
 * seventieth of its share), for good: without privileges nobody can take it back. For work that nobody
 * waits for at once. It must hold no lock that such a thread waits for: it may be taken off its
 * processor with it for a tenth of a second. The I/O priority follows the nice value (ioprio_set(2)).
 */
void thread_give_way(void);

#endif
