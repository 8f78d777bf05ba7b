/* SPDX-License-Identifier: Apache-2.0 */
/* The names made since the last epoch: a hash table by file and name. */
#include "lib/epochs/fresh.h"

#include <stdlib.h>
#include <string.h>
#include "lib/util/hash.h"

#define FIRST_BUCKETS 256

/* Of the name, started by the file. */
static size_t hash_name(uint64_t ino, const char *name)
{
	uint64_t h = FNV1A_BEGIN ^ ino * UINT64_C(0x9e3779b97f4a7c15);

	for (; *name; name++)
		h = fnv1a(h, (uint8_t)*name);
	return (size_t)(h ^ h >> 32);
}

static struct fresh_name **bucket_of(const struct fresh *f, uint64_t ino, const char *name)
{
	return &f->buckets[hash_name(ino, name) & (f->bucket_count - 1)];
}

void fresh_clear(struct fresh *f)
{
	for (size_t i = 0; i < f->bucket_count; i++)
		for (struct fresh_name *n = f->buckets[i], *next; n; n = next) {
			next = n->next;
			free(n);
		}
	free(f->buckets);
	*f = (struct fresh){0};
}

bool fresh_any(const struct fresh *f)
{
	return f->count > 0 || f->overflow;
}

struct fresh_name *fresh_find(const struct fresh *f, uint64_t parent, const char *name,
			      uint64_t ino)
{
	if (!f->bucket_count)
		return NULL;
	for (struct fresh_name *n = *bucket_of(f, ino, name); n; n = n->next)
		if (n->ino == ino && (!parent || n->parent == parent) && strcmp(n->name, name) == 0)
			return n;
	return NULL;
}

/* Doubles the table when it is full. Where there is no memory, the chains grow longer. */
static void grow(struct fresh *f)
{
	size_t count = f->bucket_count ? 2 * f->bucket_count : FIRST_BUCKETS;
	struct fresh wider = {.bucket_count = count};

	if (f->count < f->bucket_count)
		return;
	wider.buckets = calloc(count, sizeof(*wider.buckets));
	if (!wider.buckets)
		return;
	for (size_t i = 0; i < f->bucket_count; i++)
		for (struct fresh_name *n = f->buckets[i], *next; n; n = next) {
			struct fresh_name **to = bucket_of(&wider, n->ino, n->name);

			next = n->next;
			n->next = *to;
			*to = n;
		}
	free(f->buckets);
	f->buckets = wider.buckets;
	f->bucket_count = count;
}

void fresh_add(struct fresh *f, uint64_t parent, const char *name, uint64_t ino, bool temporary,
	       int64_t now_ns)
{
	struct fresh_name *n = fresh_find(f, parent, name, ino), **bucket;
	size_t len = strlen(name);

	if (n) {
		n->changed_ns = now_ns;
		return;
	}
	grow(f);
	n = f->bucket_count && f->count < FRESH_MAX ? malloc(sizeof(*n) + len + 1) : NULL;
	if (!n) {
		f->overflow = true;
		return;
	}
	bucket = bucket_of(f, ino, name);
	*n = (struct fresh_name){
		.next = *bucket,
		.parent = parent,
		.ino = ino,
		.temporary = temporary,
		.changed_ns = now_ns,
	};
	memcpy(n->name, name, len + 1);
	*bucket = n;
	f->count++;
	if (temporary) {
		n->next_temporary = f->temporaries;
		f->temporaries = n;
	}
}

void fresh_remove(struct fresh *f, struct fresh_name *n)
{
	struct fresh_name **at = bucket_of(f, n->ino, n->name);

	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	if (n->temporary) {
		for (at = &f->temporaries; *at != n;)
			at = &(*at)->next_temporary;
		*at = n->next_temporary;
	}
	f->count--;
	free(n);
}
