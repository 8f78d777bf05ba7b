/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table of items that the caller owns and that have a link in them. */
#ifndef EPOCHFS_UTIL_MAP_H
#define EPOCHFS_UTIL_MAP_H

#include <stddef.h>
#include <stdint.h>

/*
 * An item is found by the hash of its key; which of those with the same hash it is, the caller sees:
 *
 *	for (struct map_link *l = map_find(m, hash); l; l = map_find_next(l))
 *		if (map_item(l, struct thing, link)->key == key)
 *
 * What was added last comes first. Not thread-safe. A map is zero-initialised.
 */
struct map_link {
	struct map_link *next; /* in its bucket */
	uint64_t hash;
};

struct map {
	struct map_link **buckets; /* NULL: nothing was added yet */
	size_t bucket_count;	   /* a power of two */
	size_t count;
	unsigned held; /* map_hold */
};

/* The item whose member `member` the link is. */
#define map_item(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* Of a number, and of a text that follows what hashed to `begin` (0: nothing does). Stable in this process only. */
uint64_t map_hash(uint64_t number);
uint64_t map_hash_text(uint64_t begin, const char *text);

/* 0, or -ENOMEM where there is no table at all. Where there is no memory for a wider one its chains grow longer. */
int map_add(struct map *m, struct map_link *l, uint64_t hash);
/* An item that is in it. */
void map_remove(struct map *m, struct map_link *l);
/* It has another hash from now on. */
void map_move(struct map *m, struct map_link *l, uint64_t hash);

static inline struct map_link *map_first_of(struct map_link *l, uint64_t hash)
{
	while (l && l->hash != hash)
		l = l->next;
	return l;
}

static inline struct map_link *map_find(const struct map *m, uint64_t hash)
{
	return m->bucket_count ? map_first_of(m->buckets[hash & (m->bucket_count - 1)], hash)
			       : NULL;
}

static inline struct map_link *map_find_next(const struct map_link *l)
{
	return map_first_of(l->next, l->hash);
}

/* All items, in no order: the one after this, or the first after NULL; NULL at the end. Meanwhile nothing is added, but between map_hold and map_unhold;
 * the next one is asked for before an item is removed. */
struct map_link *map_next(const struct map *m, const struct map_link *l);
/* Until it is let go as often, the table gets no wider: what is added while somebody goes through all is met or not, and he meets all others once. */
static inline void map_hold(struct map *m)
{
	m->held++;
}

static inline void map_unhold(struct map *m)
{
	m->held--;
}

/*
 * The items of one bucket, `next` by `next`: for who goes through all a few at a time, with any calls in between. A wider table has what was
 * in bucket i in that one and in some that were not there before, so who goes on at the next bucket misses nobody. NULL: none.
 */
static inline struct map_link *map_bucket(const struct map *m, size_t i)
{
	return i < m->bucket_count ? m->buckets[i] : NULL;
}

/* Forgets all items, which stay the caller's. The map may be used again. */
void map_free(struct map *m);

#endif
