/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of a file, once its reader is seen to read all of it. */
#include "lib/cache/content_private.h"

#include <errno.h>

#include "lib/util/log.h"

/* A file is prefetched that takes no more than this part of the cache: more would drop what has not
 * been read yet. */
#define ROOM_PART 2

struct prefetching {
	struct content *c; /* a reference */
	uint64_t from;
	unsigned long drops;
};

/* Nobody reads it any more, or there was no room for it after all. */
static bool is_over(void *arg)
{
	const struct prefetching *p = arg;

	return atomic_load(&p->c->refs) <= atomic_load(&p->c->threads) ||
	       atomic_load(&p->c->fetch.drops) != p->drops;
}

static void *run(void *arg)
{
	struct prefetching *p = arg;
	struct content *c = p->c;
	int error = content_fetch(c, p->from, UINT64_MAX, is_over, p);

	if (!error)
		error = content_fetch(c, 0, p->from, is_over, p);
	/* It goes on where somebody came after the last had left. */
	if (error == -EINTR && atomic_load(&c->fetch.drops) == p->drops) {
		SCOPED_LOCK(&c->fetch.lock);
		c->fetch.prefetched = false;
	}
	free(p);
	fetch_thread_ends(c);
	return NULL;
}

static bool has_room(const struct content *c)
{
	uint64_t limit = c->vol->options.cache_size;

	return !limit || c->size <= limit / ROOM_PART;
}

static bool is_first(struct content *c)
{
	SCOPED_LOCK(&c->fetch.lock);

	if (c->fetch.prefetched || fetch_whole(&c->fetch))
		return false;
	c->fetch.prefetched = true;
	return true;
}

void prefetch(struct content *c, uint64_t from)
{
	struct prefetching *p;

	if (!has_room(c) || !is_first(c))
		return;
	p = malloc(sizeof(*p));
	if (p)
		*p = (struct prefetching){c, from, atomic_load(&c->fetch.drops)};
	if (!p || fetch_thread_start(c, run, p)) {
		free(p); /* the reader gets his bytes as before */
		log_debug("no thread for prefetching");
	}
}
