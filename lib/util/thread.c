/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that no signal disturbs, their priority and their memory, and those that do the same job again and again. */
#include "lib/util/thread.h"

#include <malloc.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"

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

/* ---- a thread that does the same job again and again ---- */

int background_init(struct background *b, enum lock_rank rank)
{
	int error;

	*b = (struct background){.due_ns = INT64_MAX};
	error = cond_init_mono(&b->wake);
	if (!error)
		mutex_init(&b->lock, rank);
	return error;
}

void background_destroy(struct background *b)
{
	pthread_cond_destroy(&b->wake);
	mutex_destroy(&b->lock);
}

int background_start(struct background *b, void *(*run)(void *), void *arg)
{
	int error = thread_start(&b->thread, NULL, run, arg);

	b->runs = !error;
	return error;
}

static bool next_locked(struct background *b)
{
	while (!b->stops && !b->kicked && clock_mono_ns() < b->due_ns) {
		if (b->due_ns == INT64_MAX)
			cond_wait(&b->wake, &b->lock);
		else
			cond_wait_until(&b->wake, &b->lock, b->due_ns);
	}
	b->kicked = false;
	b->due_ns = INT64_MAX;
	b->busy = true;
	return !b->stops;
}

bool background_next(struct background *b)
{
	SCOPED_LOCK(&b->lock);
	b->busy = false;
	return next_locked(b);
}

bool background_next_until(struct background *b, int64_t due_ns)
{
	SCOPED_LOCK(&b->lock);
	b->busy = false;
	background_due_locked(b, due_ns);
	return next_locked(b);
}

void background_kick(struct background *b)
{
	SCOPED_LOCK(&b->lock);
	b->kicked = true;
	pthread_cond_broadcast(&b->wake);
}

void background_due_locked(struct background *b, int64_t due_ns)
{
	if (due_ns >= b->due_ns)
		return;
	b->due_ns = due_ns;
	pthread_cond_broadcast(&b->wake);
}

bool background_stops(struct background *b)
{
	SCOPED_LOCK(&b->lock);
	return b->stops;
}

void background_tell_stop(struct background *b)
{
	SCOPED_LOCK(&b->lock);
	b->stops = true;
	pthread_cond_broadcast(&b->wake);
}

void background_join(struct background *b)
{
	if (!b->runs)
		return;
	pthread_join(b->thread, NULL);
	b->runs = false;
}

void background_stop(struct background *b)
{
	background_tell_stop(b);
	background_join(b);
}

/* ---- malloc in a daemon of many threads ---- */

#define ARENAS 4
/* Larger than the buffers of one chunk, which come and go all the time; smaller than packs and large
 * trees. */
#define MAPPED_MIN (4 << 20)
#define KEPT_MAX   (8 << 20)

void memory_set_up(void)
{
#ifdef __GLIBC__
	mallopt(M_ARENA_MAX, ARENAS);
	mallopt(M_MMAP_THRESHOLD, MAPPED_MIN);
	mallopt(M_TRIM_THRESHOLD, KEPT_MAX);
#endif
}

void memory_give_back(void)
{
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}
