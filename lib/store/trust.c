/* SPDX-License-Identifier: Apache-2.0 */
/* What a store has learnt of its packs. */
#include "lib/store/trust.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/store/hash_index.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"

/* Beyond this no more is noted: that costs a look at a pack, or trusts a damaged chunk. */
#define NOTES_MAX (1u << 20)

struct pack_note {
	struct hash pack;
	enum trust_pack what;
	int64_t until_ns;
	int64_t gone_ns; /* when a reader first found it gone; 0: none did */
};

/* The pack in which the chunk is damaged. */
struct chunk_note {
	struct hash chunk;
	struct hash pack;
};

struct trust {
	atomic_uint refs;
	struct mutex lock; /* guards all; nothing is locked under it */
	struct pack_note *packs;
	size_t packs_cap;
	struct hash_index packs_index;
	struct chunk_note *chunks;
	size_t chunks_cap;
	struct hash_index chunks_index;
	uint64_t generation;
	struct hash *condemned;
	struct hash_index condemned_index;
};

int trust_new(struct trust **ret_trust)
{
	struct trust *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->refs = 1;
	mutex_init(&t->lock, LOCK_STORE_TRUST);
	*ret_trust = t;
	return 0;
}

struct trust *trust_ref(struct trust *t)
{
	atomic_fetch_add(&t->refs, 1);
	return t;
}

void trust_unref(struct trust *t)
{
	if (!t || atomic_fetch_sub(&t->refs, 1) > 1)
		return;
	hash_index_free(&t->packs_index);
	hash_index_free(&t->chunks_index);
	hash_index_free(&t->condemned_index);
	free(t->condemned);
	free(t->packs);
	free(t->chunks);
	mutex_destroy(&t->lock);
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

/* The note on this pack, made where there is none; NULL: no room. */
static struct pack_note *note_of_locked(struct trust *t, const struct hash *pack)
{
	uint32_t i = hash_index_find(&t->packs_index, t->packs, sizeof(*t->packs), pack);
	size_t count = t->packs_index.count;

	if (i != HASH_INDEX_NONE)
		return &t->packs[i];
	if (reserve((void **)&t->packs, &t->packs_cap, count, sizeof(*t->packs)) < 0)
		return NULL;
	t->packs[count] = (struct pack_note){.pack = *pack};
	if (hash_index_add(&t->packs_index, t->packs, sizeof(*t->packs), (uint32_t)count) < 0)
		return NULL;
	return &t->packs[count];
}

void trust_note_pack(struct trust *t, const struct hash *pack, enum trust_pack what)
{
	struct pack_note *note;

	SCOPED_LOCK(&t->lock);
	note = note_of_locked(t, pack);
	if (!note)
		return;
	note->what = what;
	note->until_ns = clock_mono_ns() + (what == TRUST_SEEN ? TRUST_SEEN_NS : TRUST_LOST_NS);
	if (what == TRUST_SEEN)
		note->gone_ns = 0;
}

int64_t trust_note_gone(struct trust *t, const struct hash *pack)
{
	struct pack_note *note;

	SCOPED_LOCK(&t->lock);
	note = note_of_locked(t, pack);
	if (!note)
		return 0;
	note->what = TRUST_UNKNOWN;
	if (!note->gone_ns)
		note->gone_ns = clock_mono_ns();
	return note->gone_ns;
}

enum trust_pack trust_of_pack(struct trust *t, const struct hash *pack)
{
	uint32_t i;

	SCOPED_LOCK(&t->lock);
	i = hash_index_find(&t->packs_index, t->packs, sizeof(*t->packs), pack);
	if (i == HASH_INDEX_NONE || clock_mono_ns() > t->packs[i].until_ns)
		return TRUST_UNKNOWN;
	return t->packs[i].what;
}

/* ---- garbage collection ---- */

int trust_condemn(struct trust *t, uint64_t generation, const struct hash *packs, size_t count)
{
	cleanup_free struct hash *copy = calloc(count + 1, sizeof(*copy));
	struct hash_index index = {0};
	size_t n = 0;
	int error = copy ? 0 : -ENOMEM;

	for (size_t i = 0; i < count && !error; i++) {
		if (hash_index_find(&index, copy, sizeof(*copy), &packs[i]) != HASH_INDEX_NONE)
			continue;
		copy[n] = packs[i];
		error = hash_index_add(&index, copy, sizeof(*copy), (uint32_t)n++);
	}
	if (error) {
		hash_index_free(&index);
		return error;
	}
	SCOPED_LOCK(&t->lock);
	free(t->condemned);
	hash_index_free(&t->condemned_index);
	t->condemned = steal_ptr(copy);
	t->condemned_index = index;
	t->generation = generation;
	for (size_t i = 0; i < t->packs_index.count; i++)
		t->packs[i].what = TRUST_UNKNOWN;
	return 0;
}

bool trust_is_condemned(struct trust *t, const struct hash *pack)
{
	SCOPED_LOCK(&t->lock);
	return hash_index_find(&t->condemned_index, t->condemned, sizeof(*t->condemned), pack) !=
	       HASH_INDEX_NONE;
}

uint64_t trust_generation(struct trust *t)
{
	SCOPED_LOCK(&t->lock);
	return t->generation;
}

/* ---- damage ---- */

void trust_note_damage(struct trust *t, const struct hash *chunk, const struct hash *pack)
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

bool trust_is_damaged(struct trust *t, const struct hash *chunk, const struct hash *pack)
{
	uint32_t i;

	SCOPED_LOCK(&t->lock);
	i = hash_index_find(&t->chunks_index, t->chunks, sizeof(*t->chunks), chunk);
	return i != HASH_INDEX_NONE && hash_equal(&t->chunks[i].pack, pack);
}
