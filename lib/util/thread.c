/* SPDX-License-Identifier: Apache-2.0 */
/* Starting threads that no signal disturbs. */
#include "lib/util/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret_thread, const pthread_attr_t *attr, void *(*main)(void *),
		 void *arg)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = -pthread_create(ret_thread, attr, main, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}
