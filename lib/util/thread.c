/* SPDX-License-Identifier: Apache-2.0 */
/* Starting threads that no signal disturbs, and their priority. */
#include "lib/util/thread.h"

#include <openssl/crypto.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NICE_MAX 19

int thread_start(pthread_t *ret_thread, const pthread_attr_t *attr, void *(*main)(void *),
		 void *arg)
{
	sigset_t all, before;
	int error;

	/* Else whichever thread hashes first reads libcrypto's configuration, and what libcrypto keeps for
	 * that thread was sometimes not freed at its end (OpenSSL 3.0; LeakSanitizer). */
	OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = -pthread_create(ret_thread, attr, main, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

void thread_give_way(void)
{
	/* A thread has its own nice value on Linux. To raise it is always allowed. */
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE_MAX);
}
