/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of items that the caller owns and that have a link in them. */
#include "lib/util/map.h"

#include <errno.h>
#include <stdlib.h>
#include "lib/util/hash.h"

#define FIRST_BUCKETS 64

uint64_t map_hash(uint64_t number)
{
	uint64_t h = number * UINT64_C(0x9e3779b97f4a7c15);

	return h ^ h >> 32;
}

uint64_t map_hash_text(uint64_t begin, const char *text)
{
	uint64_t h = FNV1A_BEGIN ^ begin;

	for (; *text; text++)
		h = fnv1a(h, (uint8_t)*text);
	return h ^ h >> 32;
}

static struct map_link **bucket_of(const struct map *m, uint64_t hash)
{
	return &m->buckets[hash & (m->bucket_count - 1)];
}

static void push(struct map *m, struct map_link *l)
{
	struct map_link **bucket = bucket_of(m, l->hash);

	l->next = *bucket;
	*bucket = l;
}

/* Doubles the table when it is full. */
static void widen(struct map *m)
{
	struct map wider = {.bucket_count = m->bucket_count ? 2 * m->bucket_count : FIRST_BUCKETS};

	if (m->count < m->bucket_count)
		return;
	wider.buckets = calloc(wider.bucket_count, sizeof(struct map_link *));
	if (!wider.buckets)
		return;
	for (size_t i = 0; i < m->bucket_count; i++) {
		struct map_link *reversed = NULL, *next;

		/* What was added last stays first among its like. */
		for (struct map_link *l = m->buckets[i]; l; l = next) {
			next = l->next;
			l->next = reversed;
			reversed = l;
		}
		for (; reversed; reversed = next) {
			next = reversed->next;
			push(&wider, reversed);
		}
	}
	free(m->buckets);
	m->buckets = wider.buckets;
	m->bucket_count = wider.bucket_count;
}

int map_add(struct map *m, struct map_link *l, uint64_t hash)
{
	widen(m);
	if (!m->bucket_count)
		return -ENOMEM;
	l->hash = hash;
	push(m, l);
	m->count++;
	return 0;
}

void map_remove(struct map *m, struct map_link *l)
{
	struct map_link **at = bucket_of(m, l->hash);

	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	m->count--;
}

static struct map_link *first_of(struct map_link *l, uint64_t hash)
{
	while (l && l->hash != hash)
		l = l->next;
	return l;
}

struct map_link *map_find(const struct map *m, uint64_t hash)
{
	return m->bucket_count ? first_of(*bucket_of(m, hash), hash) : NULL;
}

struct map_link *map_find_next(const struct map_link *l)
{
	return first_of(l->next, l->hash);
}

struct map_link *map_next(const struct map *m, const struct map_link *l)
{
	size_t i = l ? (l->hash & (m->bucket_count - 1)) + 1 : 0;

	if (l && l->next)
		return l->next;
	while (i < m->bucket_count && !m->buckets[i])
		i++;
	return i < m->bucket_count ? m->buckets[i] : NULL;
}

void map_free(struct map *m)
{
	free(m->buckets);
	*m = (struct map){0};
}
