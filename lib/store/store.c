/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a content store. */
#include "lib/store/store_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

static unsigned default_threads(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	return cores < 1 ? 1 : (unsigned)cores;
}

static int open_pools(struct store *s)
{
	unsigned readers = s->threads < STORE_READERS_MIN ? STORE_READERS_MIN : s->threads;
	int error = trust_new(&s->trust);

	if (!error)
		error = pool_new(s->threads, POOL_GIVES_WAY, &s->encoders);
	if (!error)
		error = pool_new(STORE_PUTTERS, POOL_GIVES_WAY, &s->putters);
	if (!error)
		error = pool_new(readers, POOL_ORDINARY, &s->readers);
	return error;
}

int store_open(struct remote *remote, const struct store_index *index, unsigned threads,
	       struct store **ret_store)
{
	struct store *s = calloc(1, sizeof(*s));
	int error;

	if (!s)
		return -ENOMEM;
	s->remote = remote;
	s->index = *index;
	s->pack_len = STORE_PACK_LEN;
	s->threads = threads ? threads : default_threads();
	if (s->threads > STORE_THREADS_MAX)
		s->threads = STORE_THREADS_MAX;
	mutex_init(&s->lock, LOCK_STORE);
	pthread_cond_init(&s->scan_ended, NULL);
	error = open_pools(s);
	if (error) {
		store_close(s);
		return error;
	}
	*ret_store = s;
	return 0;
}

int store_set_readers(struct store *s, unsigned count)
{
	struct pool *readers;
	int error;

	if (count < STORE_READERS_MIN)
		count = STORE_READERS_MIN;
	error = pool_new(count < STORE_READERS_MAX ? count : STORE_READERS_MAX, POOL_ORDINARY,
			 &readers);
	if (error)
		return error;
	pool_free(s->readers);
	s->readers = readers;
	return 0;
}

void store_close(struct store *s)
{
	if (!s)
		return;
	pool_free(s->encoders);
	pool_free(s->putters);
	pool_free(s->readers);
	trust_unref(s->trust);
	for (unsigned i = 0; i < s->filter_count; i++)
		filter_free(s->filters[i]);
	pthread_cond_destroy(&s->scan_ended);
	mutex_destroy(&s->lock);
	free(s);
}

void store_learn_with(struct store *s, struct store *other)
{
	trust_unref(s->trust);
	s->trust = trust_ref(other->trust);
}

int store_filter_take(struct store *s, struct filter **ret_filter)
{
	mutex_lock(&s->lock);
	if (s->filter_count) {
		*ret_filter = s->filters[--s->filter_count];
		mutex_unlock(&s->lock);
		return 0;
	}
	mutex_unlock(&s->lock);
	return filter_new(ret_filter);
}

void store_filter_give(struct store *s, struct filter *f)
{
	mutex_lock(&s->lock);
	if (s->filter_count < sizeof(s->filters) / sizeof(s->filters[0])) {
		s->filters[s->filter_count++] = f;
		f = NULL;
	}
	mutex_unlock(&s->lock);
	filter_free(f);
}
