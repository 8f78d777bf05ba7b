/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches on a pool of threads: what somebody waits for goes before what is read ahead. */
#include "lib/cache/content_private.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/*
 * A fetch takes a thread for as long as it waits for the store, whose own readers are what bounds the requests to the
 * remote. So there is a thread for each reader that a mount can have waiting at once; what is read ahead has as many
 * as keep these readers busy, and not more, for in the store all fetches take turns.
 */
#define THREADS_WAITED_FOR 64
#define THREADS_LATER	   16
#define THREADS_IDLE_NS	   (10 * NS_PER_S)

int fetch_pool_new(struct pool **ret_pool)
{
	return pool_new_on_demand(THREADS_WAITED_FOR + THREADS_LATER, THREADS_LATER,
				  THREADS_IDLE_NS, ret_pool);
}

/* ---- who has the content ---- */

void contents_job_begins(struct contents *all)
{
	SCOPED_LOCK(&all->lock);
	all->jobs++;
}

void contents_job_ends(struct contents *all)
{
	SCOPED_LOCK(&all->lock);

	if (--all->jobs == 0)
		pthread_cond_broadcast(&all->idle);
}

static void take_content(struct content *c)
{
	SCOPED_LOCK(&c->vol->contents->lock);
	c->refs++;
	c->jobs++;
	c->vol->contents->jobs++;
}

static void give_content(struct content *c)
{
	struct contents *all = c->vol->contents;

	mutex_lock(&all->lock);
	c->jobs--;
	mutex_unlock(&all->lock);
	content_put(c);
	contents_job_ends(all);
}

/* Nobody reads it any more. */
static bool is_left(struct content *c)
{
	SCOPED_LOCK(&c->vol->contents->lock);
	return c->refs <= c->jobs;
}

/* ---- one job ---- */

static void prefetch_goes_on(struct content *c, int error);

static void unlink_job_locked(struct fetch *f, const struct fetch_job *j)
{
	struct fetch_job **p = &f->jobs;

	while (*p != j)
		p = &(*p)->next;
	*p = j->next;
}

/* Nobody brings any more what is still COMING of these. */
static void unclaim_locked(struct fetch *f, size_t first, size_t count, enum segment_state state)
{
	for (size_t i = first; i < first + count; i++)
		if (f->state[i] == SEGMENT_COMING)
			f->state[i] = state;
	pthread_cond_broadcast(&f->changed);
}

static void end_job_locked(struct fetch *f, const struct fetch_job *j, enum segment_state missing)
{
	unlink_job_locked(f, j);
	unclaim_locked(f, j->first, j->count, missing);
}

static int bring(struct fetch_job *j)
{
	struct content *c = j->c;
	struct fetch *f = &c->fetch;
	/* It waited for its turn while the last reader left. One who came this moment asks again. */
	bool dropped = j->count && is_left(c);
	int error = 0;

	if (!j->count)
		fetch_bring_recipe(c);
	else if (!dropped)
		error = fetch_bring(c, j->first, j->count, &j->waits);
	SCOPED_LOCK(&f->lock);
	end_job_locked(f, j, dropped ? SEGMENT_MISSING : SEGMENT_FAILED);
	if (error)
		f->error = error;
	return error;
}

static void run_job(struct pool_task *t)
{
	struct fetch_job *j = (struct fetch_job *)t;
	struct content *c = j->c;
	int error = bring(j);

	if (j->of_rest)
		prefetch_goes_on(c, error);
	fetch_note_whole(c);
	free(j);
	give_content(c);
}

/* For one that somebody waits for: whether the lock was dropped, since the caller had to run it himself. */
static bool offer_now_locked(struct fetch_job *j)
{
	struct content *c = j->c;

	if (!pool_offer(c->vol->contents->pool, &j->task, POOL_NOW))
		return false;
	mutex_unlock(&c->fetch.lock);
	run_job(&j->task);
	mutex_lock(&c->fetch.lock);
	return true;
}

/* One that is linked; else it is the caller's as before. */
static int offer_locked(struct fetch_job *j)
{
	struct fetch *f = &j->c->fetch;
	int error;

	j->next = f->jobs;
	f->jobs = j;
	if (j->waits) {
		offer_now_locked(j);
		return 0;
	}
	error = pool_offer(j->c->vol->contents->pool, &j->task, POOL_LATER);
	if (error)
		end_job_locked(f, j, SEGMENT_MISSING);
	return error;
}

int fetch_start_locked(struct content *c, size_t first, size_t count, enum pool_when when,
		       bool of_rest)
{
	struct fetch *f = &c->fetch;
	struct fetch_job *j = malloc(sizeof(*j));
	int error;

	if (!j) {
		unclaim_locked(f, first, count, SEGMENT_MISSING);
		return -ENOMEM;
	}
	*j = (struct fetch_job){.task.run = run_job,
				.c = c,
				.first = first,
				.count = count,
				.waits = when == POOL_NOW,
				.of_rest = of_rest};
	mutex_unlock(&f->lock);
	take_content(c);
	mutex_lock(&f->lock);
	error = offer_locked(j);
	if (!error)
		return 0;
	mutex_unlock(&f->lock);
	free(j);
	give_content(c);
	mutex_lock(&f->lock);
	return error;
}

bool fetch_hurry_locked(struct content *c, size_t first, size_t last)
{
	struct pool *pool = c->vol->contents->pool;

	for (struct fetch_job *j = c->fetch.jobs; j; j = j->next) {
		if (j->waits || j->first > last || j->first + j->count <= first)
			continue;
		j->waits = true;
		if (pool_withdraw(pool, &j->task) && offer_now_locked(j))
			return true;
	}
	return false;
}

/* ---- The rest of a file, once its reader is seen to read all of it. ---- */

/* A file is prefetched that takes no more than this part of the cache: more would drop what has not
 * been read yet. */
#define ROOM_PART 2

static bool has_room(const struct content *c)
{
	uint64_t limit = c->vol->options.cache_size;

	return !limit || c->size <= limit / ROOM_PART;
}

/* Starts as many of its jobs as there may be: each that ends starts the next, and none waits for another. */
static void start_rest_locked(struct content *c)
{
	struct fetch *f = &c->fetch;
	struct fetch_rest *r = &f->rest;

	while (r->left && r->jobs < FETCH_SPANS) {
		size_t first = r->next, to_end = f->recipe.count - first;
		size_t most = r->left < to_end ? r->left : to_end;
		size_t count = fetch_claim_locked(c, first, first + most - 1);
		size_t passed = count ? count : 1;

		r->left -= passed;
		r->next = first + passed < f->recipe.count ? first + passed : 0;
		if (!count)
			continue;
		r->jobs++;
		if (fetch_start_locked(c, first, count, POOL_LATER, true)) {
			/* The reader gets his bytes as before. */
			log_debug("no thread for prefetching");
			r->jobs--;
			r->left = 0;
		}
	}
}

/* One of its jobs ended. */
static void prefetch_goes_on(struct content *c, int error)
{
	struct fetch *f = &c->fetch;
	bool left = is_left(c);
	SCOPED_LOCK(&f->lock);

	f->rest.jobs--;
	if (error || atomic_load(&f->drops) != f->rest.drops) {
		/* There was no room for it after all, say. */
		f->rest.left = 0;
	} else if (left) {
		/* It goes on where somebody comes after the last had left. */
		f->rest.left = 0;
		f->prefetched = false;
	}
	start_rest_locked(c);
}

void prefetch(struct content *c, uint64_t from)
{
	struct fetch *f = &c->fetch;

	if (!has_room(c))
		return;
	SCOPED_LOCK(&f->lock);
	if (f->prefetched || fetch_whole(f))
		return;
	f->prefetched = true;
	f->rest.next = from < c->size ? recipe_find(&f->recipe, from) : 0;
	f->rest.left = f->recipe.count;
	f->rest.drops = atomic_load(&f->drops);
	start_rest_locked(c);
}
