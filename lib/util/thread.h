/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that no signal disturbs, their priority and their memory, and those that do the same job again and again. */
#ifndef EPOCHFS_UTIL_THREAD_H
#define EPOCHFS_UTIL_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "lib/util/lock.h"

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

/* ---- a thread that does the same job again and again ---- */

/*
 * Lies in a struct of its owner's, whose thread reads
 *
 *	while (background_next(&x->background))
 *		do_one_round(x);
 *
 * The owner may let `lock` guard fields of its own, and wait on `wake` with it; whoever changes what
 * somebody waits for wakes all. background_start, background_stop, background_join and background_destroy are for one
 * thread at a time, every other call is for any.
 */
struct background {
	struct mutex lock; /* guards all below, but for `thread` and `runs` */
	pthread_cond_t wake;
	bool kicked; /* the next round begins at once */
	bool busy;   /* a round is under way */
	bool stops;  /* it is to end */
	int64_t due_ns; /* monotonic: when the next round begins, kicked or not; INT64_MAX: only when kicked */
	pthread_t thread;
	bool runs;
};

/* 0 or -errno, after which there is nothing to destroy. */
int background_init(struct background *b, enum lock_rank rank);
/* It does not run. */
void background_destroy(struct background *b);

/* Starts its thread, as thread_start does. 0 or -errno. */
int background_start(struct background *b, void *(*run)(void *), void *arg);

/* In its thread: the round before is over; waits for the next. False: it is to end. The round begins
 * without a kick and without a time for the next one. */
bool background_next(struct background *b);
/* In its thread: as background_next, and the wait ends at due_ns (monotonic). */
bool background_next_until(struct background *b, int64_t due_ns);

void background_kick(struct background *b);
/* With the lock held: the next round begins at due_ns or before. */
void background_due_locked(struct background *b, int64_t due_ns);
/* Whether it is to end: for long rounds. */
bool background_stops(struct background *b);

/* Tells its thread to end, and waits for that; nothing where it does not run. */
void background_stop(struct background *b);
/* The two halves of it, for an owner that has to interrupt a round in between. */
void background_tell_stop(struct background *b);
void background_join(struct background *b);

/* ---- malloc in a daemon of many threads ---- */

/*
 * For the whole process, before its threads start. glibc gives every thread an arena of its own,
 * and each keeps what it once had; and it learns to take larger and larger blocks from there. After
 * this there are few arenas, and large blocks are mapped, so that freeing them frees them. Does
 * nothing with another malloc.
 */
void memory_set_up(void);
/* After a job that took a lot: gives back what is free in all arenas. Takes milliseconds where it is
 * much; any thread. */
void memory_give_back(void);

#endif
