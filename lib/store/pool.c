/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads. */
#include "lib/store/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/thread.h"

/* A loop in progress; it lies on the stack of pool_run. It is queued while next < count. */
struct loop {
	pool_fn fn;
	void *arg;
	size_t count;
	size_t next;	/* the round to begin next */
	size_t running; /* rounds that have begun and not ended */
	int error;
	const atomic_bool *waits; /* as pool_run_ahead has it */
	pthread_cond_t ended;
	struct loop *after;
};

/* Tasks that wait, the first to come first. */
struct pool_queue {
	struct pool_task *first, **last;
	size_t count;
};

struct pool {
	/* Guards all that follows, the loops, and tasks while they wait. Nothing is locked or called under it, but a thread started. */
	struct mutex lock;
	pthread_cond_t work;  /* there is some, or it stops */
	pthread_cond_t empty; /* the last thread ended */
	struct pool_queue now, later;
	struct loop *loops, **last_loop;
	bool stop;
	enum pool_priority priority;
	unsigned count, max;	/* threads */
	unsigned busy;		/* of these, with a task */
	unsigned running_later; /* of these, with one that could wait ... */
	unsigned later_max;	/* ... and how many may have */
	int64_t idle_ns;	/* of pool_new_on_demand; 0: the threads stay */
	bool has_ended;		/* a thread ended and is not joined: */
	pthread_t last_ended;	/* each joins the one that ended before it, so it is one at most */
};

/* ---- tasks ---- */

static void push_task_locked(struct pool_queue *q, struct pool_task *t)
{
	t->queue = q;
	t->next = NULL;
	t->at = q->last;
	*q->last = t;
	q->last = &t->next;
	q->count++;
}

static void unlink_task_locked(struct pool_task *t)
{
	struct pool_queue *q = t->queue;

	*t->at = t->next;
	if (t->next)
		t->next->at = t->at;
	else
		q->last = t->at;
	t->queue = NULL;
	q->count--;
}

static void run_task_locked(struct pool *p, struct pool_task *t)
{
	unlink_task_locked(t);
	p->busy++;
	mutex_unlock(&p->lock);
	t->run(t);
	mutex_lock(&p->lock);
	p->busy--;
}

static bool may_run_later_locked(const struct pool *p)
{
	return p->later.first && p->running_later < p->later_max;
}

static void run_later_locked(struct pool *p)
{
	p->running_later++;
	run_task_locked(p, p->later.first);
	p->running_later--;
	/* This thread may turn to another kind of work: then one that has none goes on here. */
	if (p->later.first)
		pthread_cond_signal(&p->work);
}

/* ---- loops ---- */

static void push_loop_locked(struct pool *p, struct loop *l)
{
	l->after = NULL;
	*p->last_loop = l;
	p->last_loop = &l->after;
}

static void unlink_loop_locked(struct pool *p, struct loop *l)
{
	struct loop **at = &p->loops;

	while (*at != l)
		at = &(*at)->after;
	*at = l->after;
	if (!*at)
		p->last_loop = at;
}

/* No round of the loop begins any more. */
static void fail_loop_locked(struct pool *p, struct loop *l, int error)
{
	if (!l->error)
		l->error = error;
	if (l->next < l->count) {
		unlink_loop_locked(p, l);
		l->next = l->count;
	}
}

/* The one whose turn it is. They are not many: each has a thread that waits for it. */
static struct loop *next_loop_locked(const struct pool *p)
{
	struct loop *l = p->loops;

	while (l && l->waits && !atomic_load(l->waits))
		l = l->after;
	return l ? l : p->loops;
}

static void run_round_locked(struct pool *p)
{
	struct loop *l = next_loop_locked(p);
	size_t i = l->next;
	int error;

	unlink_loop_locked(p, l);
	l->next++;
	l->running++;
	if (l->next < l->count)
		push_loop_locked(p, l);
	mutex_unlock(&p->lock);
	error = l->fn(l->arg, i);
	mutex_lock(&p->lock);
	l->running--;
	if (error)
		fail_loop_locked(p, l, error);
	if (l->next == l->count && !l->running)
		pthread_cond_signal(&l->ended);
}

/* ---- threads ---- */

/* False: the thread is to end. */
static bool wait_for_work_locked(struct pool *p)
{
	if (p->stop)
		return false;
	if (!p->idle_ns) {
		cond_wait(&p->work, &p->lock);
		return true;
	}
	/* Work that came at the last moment is taken still. */
	return cond_wait_until(&p->work, &p->lock, clock_mono_ns() + p->idle_ns) != -ETIMEDOUT ||
	       p->now.first || may_run_later_locked(p);
}

static void serve_locked(struct pool *p)
{
	do {
		while (p->now.first || p->loops || may_run_later_locked(p)) {
			if (p->now.first)
				run_task_locked(p, p->now.first);
			else if (p->loops)
				run_round_locked(p);
			else
				run_later_locked(p);
		}
	} while (wait_for_work_locked(p));
}

static void *worker(void *arg)
{
	struct pool *p = arg;
	pthread_t before = 0;
	bool joins;

	if (p->priority == POOL_GIVES_WAY)
		thread_give_way();
	mutex_lock(&p->lock);
	serve_locked(p);
	joins = p->has_ended;
	if (joins)
		before = p->last_ended;
	p->has_ended = true;
	p->last_ended = pthread_self();
	if (--p->count == 0)
		pthread_cond_signal(&p->empty);
	mutex_unlock(&p->lock);
	if (joins)
		pthread_join(before, NULL);
	return NULL;
}

static int start_thread_locked(struct pool *p)
{
	pthread_t thread;
	int error = thread_start(&thread, NULL, worker, p);

	if (!error)
		p->count++;
	return error;
}

static int pool_alloc(unsigned threads, struct pool **ret_pool)
{
	struct pool *p = calloc(1, sizeof(*p));

	if (!p || cond_init_mono(&p->work)) {
		free(p);
		return -ENOMEM;
	}
	pthread_cond_init(&p->empty, NULL);
	mutex_init(&p->lock, LOCK_STORE_POOL);
	p->max = threads;
	p->now.last = &p->now.first;
	p->later.last = &p->later.first;
	p->last_loop = &p->loops;
	*ret_pool = p;
	return 0;
}

int pool_new(unsigned threads, enum pool_priority priority, struct pool **ret_pool)
{
	struct pool *p;
	int error = pool_alloc(threads, &p);

	if (error)
		return error;
	p->priority = priority;
	mutex_lock(&p->lock);
	while (p->count < threads && !start_thread_locked(p))
		;
	mutex_unlock(&p->lock);
	if (!p->count) {
		pool_free(p);
		return -EAGAIN;
	}
	*ret_pool = p;
	return 0;
}

int pool_new_on_demand(unsigned threads, unsigned later, int64_t idle_ns, struct pool **ret_pool)
{
	int error = pool_alloc(threads, ret_pool);

	if (!error) {
		(*ret_pool)->later_max = later;
		(*ret_pool)->idle_ns = idle_ns;
	}
	return error;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	while (p->count)
		cond_wait(&p->empty, &p->lock);
	mutex_unlock(&p->lock);
	if (p->has_ended)
		pthread_join(p->last_ended, NULL);
	pthread_cond_destroy(&p->empty);
	pthread_cond_destroy(&p->work);
	mutex_destroy(&p->lock);
	free(p);
}

/* ---- giving it work ---- */

void pool_submit(struct pool *p, struct pool_task *t)
{
	SCOPED_LOCK(&p->lock);
	push_task_locked(&p->now, t);
	pthread_cond_signal(&p->work);
}

/* How many of the tasks that wait a thread could begin, if there were enough. */
static size_t ready_locked(const struct pool *p)
{
	size_t later = p->later_max - p->running_later;

	return p->now.count + (p->later.count < later ? p->later.count : later);
}

int pool_offer(struct pool *p, struct pool_task *t, enum pool_when when)
{
	SCOPED_LOCK(&p->lock);

	push_task_locked(when == POOL_NOW ? &p->now : &p->later, t);
	if (p->count - p->busy < ready_locked(p) && p->count < p->max && start_thread_locked(p) &&
	    p->count == (when == POOL_NOW ? p->running_later : 0)) {
		unlink_task_locked(t);
		return -EAGAIN;
	}
	pthread_cond_signal(&p->work);
	return 0;
}

bool pool_withdraw(struct pool *p, struct pool_task *t)
{
	SCOPED_LOCK(&p->lock);

	if (!t->queue)
		return false;
	unlink_task_locked(t);
	return true;
}

int pool_run(struct pool *p, size_t count, pool_fn fn, void *arg)
{
	return pool_run_ahead(p, count, fn, arg, NULL);
}

int pool_run_ahead(struct pool *p, size_t count, pool_fn fn, void *arg, const atomic_bool *waits)
{
	struct loop l = {.fn = fn, .arg = arg, .count = count, .waits = waits};

	if (!count)
		return 0;
	pthread_cond_init(&l.ended, NULL);
	mutex_lock(&p->lock);
	push_loop_locked(p, &l);
	/* Not more than there is work for: who reads small files waits for one chunk at a time. */
	for (size_t i = 0; i < count && i < p->count; i++)
		pthread_cond_signal(&p->work);
	while (l.next < l.count || l.running)
		cond_wait(&l.ended, &p->lock);
	mutex_unlock(&p->lock);
	pthread_cond_destroy(&l.ended);
	return l.error;
}
