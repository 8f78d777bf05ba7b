/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow, and sets of numbers in them. */
#include "lib/util/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAP 4

int array_reserve(void **items, size_t *cap, size_t count, size_t size)
{
	size_t more = *cap ? *cap * 2 : FIRST_CAP;
	void *grown;

	if (count < *cap)
		return 0;
	grown = reallocarray(*items, more, size);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	*cap = more;
	return 0;
}

/* ---- which bytes of something were written ---- */

/* The first that ends at or behind it. */
static size_t find(const struct spans *s, uint64_t from)
{
	size_t low = 0, high = s->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (s->v[mid].to < from)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static void insert(struct spans *s, size_t at, uint64_t from, uint64_t to)
{
	void *v = s->v;

	if (s->count == SPANS_MAX || array_reserve(&v, &s->cap, s->count, sizeof(*s->v)))
		return;
	s->v = v;
	memmove(s->v + at + 1, s->v + at, (s->count - at) * sizeof(*s->v));
	s->v[at] = (struct span){from, to};
	s->count++;
}

void spans_add(struct spans *s, uint64_t from, uint64_t to)
{
	size_t at = find(s, from), end = at;

	if (from >= to)
		return;
	for (; end < s->count && s->v[end].from <= to; end++) {
		if (s->v[end].from < from)
			from = s->v[end].from;
		if (s->v[end].to > to)
			to = s->v[end].to;
	}
	if (end == at) {
		insert(s, at, from, to);
		return;
	}
	s->v[at] = (struct span){from, to};
	memmove(s->v + at + 1, s->v + end, (s->count - end) * sizeof(*s->v));
	s->count -= end - at - 1;
}

bool spans_reach(const struct spans *s, uint64_t to)
{
	return !to || (s->count && !s->v[0].from && s->v[0].to >= to);
}

void spans_free(struct spans *s)
{
	free(s->v);
	*s = (struct spans){0};
}
