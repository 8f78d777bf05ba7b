/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads: single tasks, and loops whose rounds are shared out. */
#ifndef EPOCHFS_STORE_POOL_H
#define EPOCHFS_STORE_POOL_H

#include <stddef.h>

/*
 * A fixed number of threads. Tasks and loops are served in turn: each
 * loop gets one round, then the next loop, so that a long one does not hold up a short one. All
 * signals are blocked in the threads.
 */
struct pool;

enum pool_priority {
	POOL_ORDINARY,
	POOL_GIVES_WAY, /* thread_give_way(): what it runs must keep its rule about locks */
};

/* 0, -ENOMEM, or -EAGAIN where not even one thread can be had; fewer than asked for will do. */
int pool_new(unsigned threads, enum pool_priority priority, struct pool **ret_pool);
/* Ends the threads. Nothing may be under way or waiting. NULL is allowed. */
void pool_free(struct pool *p);

/* A task is part of a struct of the caller's. */
struct pool_task {
	/* Called once; the pool does not touch the task after the call begins. */
	void (*run)(struct pool_task *t);
	struct pool_task *next; /* the pool's */
};
void pool_submit(struct pool *p, struct pool_task *t);

/*
 * Calls fn(arg, i) for each i < count, on the pool's threads, in rising order but many at once, and
 * waits. The first error ends it: rounds that have begun are waited for, others not begun. Not to
 * be called from a thread of the same pool.
 */
typedef int (*pool_fn)(void *arg, size_t i);
int pool_run(struct pool *p, size_t count, pool_fn fn, void *arg);

#endif
