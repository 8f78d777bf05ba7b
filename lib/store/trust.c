/* SPDX-License-Identifier: Apache-2.0 */
/* What a store has learnt of its packs. */
#include "lib/store/trust.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/store/hash_index.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"

/* Beyond this no more is noted: it costs a second copy of a chunk, or a look at a pack, no more. */
#define NOTES_MAX (1u << 20)

/* A pack: when it was seen last (0: it is lost). A chunk: the pack in which it is damaged. */
struct pack_note {
	struct hash pack;
	int64_t seen_ns;
};

struct chunk_note {
	struct hash chunk;
	struct hash pack;
};

struct trust {
	pthread_mutex_t lock; /* guards all; nothing is locked under it */
	struct pack_note *packs;
	size_t packs_cap;
	struct hash_index packs_index;
	struct chunk_note *chunks;
	size_t chunks_cap;
	struct hash_index chunks_index;
};

int trust_new(struct trust **ret_trust)
{
	struct trust *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	pthread_mutex_init(&t->lock, NULL);
	*ret_trust = t;
	return 0;
}

void trust_free(struct trust *t)
{
	if (!t)
		return;
	hash_index_free(&t->packs_index);
	hash_index_free(&t->chunks_index);
	free(t->packs);
	free(t->chunks);
	pthread_mutex_destroy(&t->lock);
	free(t);
}

/* Room for one more item in the array: 0 or -ENOMEM. */
static int reserve(void **items, size_t *cap, size_t count, size_t size)
{
	size_t more = *cap ? *cap * 2 : 64;
	void *grown;

	if (count >= NOTES_MAX)
		return -ENOMEM;
	if (count < *cap)
		return 0;
	grown = reallocarray(*items, more, size);
	if (!grown)
		return -ENOMEM;
	*items = grown;
	*cap = more;
	return 0;
}

static void note_pack(struct trust *t, const struct hash *pack, int64_t seen_ns)
{
	size_t count;
	uint32_t i;

	SCOPED_LOCK(&t->lock);
	i = hash_index_find(&t->packs_index, t->packs, sizeof(*t->packs), pack);
	if (i != HASH_INDEX_NONE) {
		t->packs[i].seen_ns = seen_ns;
		return;
	}
	count = t->packs_index.count;
	if (reserve((void **)&t->packs, &t->packs_cap, count, sizeof(*t->packs)) < 0)
		return;
	t->packs[count] = (struct pack_note){.pack = *pack, .seen_ns = seen_ns};
	hash_index_add(&t->packs_index, t->packs, sizeof(*t->packs), (uint32_t)count);
}

void trust_pack_seen(struct trust *t, const struct hash *pack)
{
	note_pack(t, pack, clock_mono_ns());
}

void trust_pack_lost(struct trust *t, const struct hash *pack)
{
	note_pack(t, pack, 0);
}

bool trust_pack(struct trust *t, const struct hash *pack)
{
	uint32_t i;

	SCOPED_LOCK(&t->lock);
	i = hash_index_find(&t->packs_index, t->packs, sizeof(*t->packs), pack);
	return i != HASH_INDEX_NONE && t->packs[i].seen_ns &&
	       clock_mono_ns() - t->packs[i].seen_ns < TRUST_PACK_NS;
}

void trust_chunk_damaged(struct trust *t, const struct hash *chunk, const struct hash *pack)
{
	size_t count;
	uint32_t i;

	SCOPED_LOCK(&t->lock);
	i = hash_index_find(&t->chunks_index, t->chunks, sizeof(*t->chunks), chunk);
	if (i != HASH_INDEX_NONE) {
		t->chunks[i].pack = *pack;
		return;
	}
	count = t->chunks_index.count;
	if (reserve((void **)&t->chunks, &t->chunks_cap, count, sizeof(*t->chunks)) < 0)
		return;
	t->chunks[count] = (struct chunk_note){.chunk = *chunk, .pack = *pack};
	hash_index_add(&t->chunks_index, t->chunks, sizeof(*t->chunks), (uint32_t)count);
}

bool trust_chunk(struct trust *t, const struct hash *chunk, const struct hash *pack)
{
	uint32_t i;

	SCOPED_LOCK(&t->lock);
	i = hash_index_find(&t->chunks_index, t->chunks, sizeof(*t->chunks), chunk);
	return i == HASH_INDEX_NONE || !hash_equal(&t->chunks[i].pack, pack);
}
