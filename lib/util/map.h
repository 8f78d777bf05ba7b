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

struct map_link *map_find(const struct map *m, uint64_t hash);
struct map_link *map_find_next(const struct map_link *l);

/* All items, in no order: the one after this, or the first after NULL; NULL at the end. Meanwhile nothing is added; the next one is asked for
 * before an item is removed. */
struct map_link *map_next(const struct map *m, const struct map_link *l);

/* Forgets all items, which stay the caller's. The map may be used again. */
void map_free(struct map *m);

#endif
