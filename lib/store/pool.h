/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads: single tasks, and loops whose rounds are shared out. */
#ifndef EPOCHFS_STORE_POOL_H
#define EPOCHFS_STORE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Threads, of which there are two ways to have some; both serve tasks and loops in turn: each
 * loop gets one round, then the next loop, so that a long one does not hold up a short one. All
 * signals are blocked in the threads. Every call is for any thread, but pool_new and pool_free.
 */
struct pool;

enum pool_priority {
	POOL_ORDINARY,
	POOL_GIVES_WAY, /* thread_give_way(): what it runs must keep its rule about locks */
};

/* A fixed number of threads. 0, -ENOMEM, or -EAGAIN where not even one thread can be had; fewer than asked for will do. */
int pool_new(unsigned threads, enum pool_priority priority, struct pool **ret_pool);

/*
 * Threads that are made as tasks come (pool_offer), `threads` at most, and end when they had nothing to do for `idle_ns`
 * (nanoseconds). Of these no more than `later` at once, which is less, run what can wait: so that what cannot never waits for it. 0 or
 * -ENOMEM.
 */
int pool_new_on_demand(unsigned threads, unsigned later, int64_t idle_ns, struct pool **ret_pool);

/* Runs the tasks that are left, and ends the threads: none is there any more when it returns. No loop may be under
 * way. NULL is allowed. */
void pool_free(struct pool *p);

/* A task is part of a struct of the caller's. Set `run` and zero the rest. */
struct pool_task {
	/* Called once; the pool does not touch the task after the call begins. */
	void (*run)(struct pool_task *t);
	/* The pool's. */
	struct pool_queue *queue; /* where it waits; NULL: nowhere */
	struct pool_task *next, **at;
};

/* For a pool of pool_new. */
void pool_submit(struct pool *p, struct pool_task *t);

enum pool_when {
	POOL_NOW,   /* somebody waits for it: it goes before all that can wait */
	POOL_LATER, /* it can wait */
};

/*
 * For a pool of pool_new_on_demand. 0, or -EAGAIN where the system gives no thread, and those that are there would not do either: there is none, or
 * for POOL_NOW none that does not run what can wait. Then the task is the caller's as before.
 */
int pool_offer(struct pool *p, struct pool_task *t, enum pool_when when);

/* Takes a task back that has not begun: whether it was so. The caller must know that the task is there still. */
bool pool_withdraw(struct pool *p, struct pool_task *t);

/*
 * Calls fn(arg, i) for each i < count, on the pool's threads, in rising order but many at once, and
 * waits. The first error ends it: rounds that have begun are waited for, others not begun. Not to
 * be called from a thread of the same pool. For a pool of pool_new.
 */
typedef int (*pool_fn)(void *arg, size_t i);
int pool_run(struct pool *p, size_t count, pool_fn fn, void *arg);
/* As long as *waits is false, nobody waits for what it does: all loops that somebody waits for go before it. It may become true while the loop is
 * under way, from any thread. NULL: somebody waits. */
int pool_run_ahead(struct pool *p, size_t count, pool_fn fn, void *arg, const atomic_bool *waits);

#endif
