/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads. */
#include "lib/store/pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "lib/util/cleanup.h"
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
	pthread_cond_t ended;
	struct loop *after;
};

struct pool {
	/* Guards all that follows and the loops. Nothing is locked or called under it. */
	struct mutex lock;
	pthread_cond_t work;
	struct pool_task *tasks, **last_task;
	struct loop *loops, **last_loop;
	bool stop;
	enum pool_priority priority;
	unsigned count;
	pthread_t threads[];
};

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

static void run_task_locked(struct pool *p)
{
	struct pool_task *t = p->tasks;

	p->tasks = t->next;
	if (!p->tasks)
		p->last_task = &p->tasks;
	mutex_unlock(&p->lock);
	t->run(t);
	mutex_lock(&p->lock);
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

static void run_round_locked(struct pool *p)
{
	struct loop *l = p->loops;
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

static void *worker(void *arg)
{
	struct pool *p = arg;

	if (p->priority == POOL_GIVES_WAY)
		thread_give_way();
	SCOPED_LOCK(&p->lock);
	for (;;) {
		if (p->tasks)
			run_task_locked(p);
		else if (p->loops)
			run_round_locked(p);
		else if (p->stop)
			return NULL;
		else
			cond_wait(&p->work, &p->lock);
	}
}

static void start_threads(struct pool *p, unsigned count)
{
	while (p->count < count && !thread_start(&p->threads[p->count], NULL, worker, p))
		p->count++;
}

int pool_new(unsigned threads, enum pool_priority priority, struct pool **ret_pool)
{
	struct pool *p = calloc(1, sizeof(*p) + threads * sizeof(p->threads[0]));

	if (!p)
		return -ENOMEM;
	mutex_init(&p->lock, LOCK_STORE_POOL);
	pthread_cond_init(&p->work, NULL);
	p->priority = priority;
	p->last_task = &p->tasks;
	p->last_loop = &p->loops;
	start_threads(p, threads);
	if (!p->count) {
		pool_free(p);
		return -EAGAIN;
	}
	*ret_pool = p;
	return 0;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	mutex_unlock(&p->lock);
	for (unsigned i = 0; i < p->count; i++)
		pthread_join(p->threads[i], NULL);
	pthread_cond_destroy(&p->work);
	mutex_destroy(&p->lock);
	free(p);
}

void pool_submit(struct pool *p, struct pool_task *t)
{
	SCOPED_LOCK(&p->lock);
	t->next = NULL;
	*p->last_task = t;
	p->last_task = &t->next;
	pthread_cond_signal(&p->work);
}

int pool_run(struct pool *p, size_t count, pool_fn fn, void *arg)
{
	struct loop l = {.fn = fn, .arg = arg, .count = count};

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
