/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of items that the caller owns and that have a link in them. */
#include "lib/util/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/hash.h"

#define FIRST_BUCKETS 256

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

/* Those of a bucket whose hash has this bit go to another. All stay in their order: what was added last, first. */
static void split(struct map_link **bucket, struct map_link **with_bit, size_t bit)
{
	for (struct map_link *l = *bucket; l; l = l->next) {
		struct map_link ***end = l->hash & bit ? &with_bit : &bucket;

		**end = l;
		*end = &l->next;
	}
	*bucket = *with_bit = NULL;
}

/* Doubles the table. */
static void widen(struct map *m)
{
	size_t before = m->bucket_count, count = before ? 2 * before : FIRST_BUCKETS;
	struct map_link **wider = reallocarray(m->buckets, count, sizeof(*wider));

	if (!wider)
		return;
	m->buckets = wider;
	m->bucket_count = count;
	if (!before)
		memset(wider, 0, count * sizeof(*wider));
	for (size_t i = 0; i < before; i++)
		split(&wider[i], &wider[before + i], before);
}

int map_add(struct map *m, struct map_link *l, uint64_t hash)
{
	if (m->count >= m->bucket_count && !(m->held && m->bucket_count))
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

void map_move(struct map *m, struct map_link *l, uint64_t hash)
{
	map_remove(m, l);
	l->hash = hash;
	push(m, l);
	m->count++;
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
