/* SPDX-License-Identifier: Apache-2.0 */
/* An open-addressed table of entry numbers. */
#include "lib/store/hash_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CAP_MIN ((size_t)64)

void hash_index_free(struct hash_index *ix)
{
	free(ix->slots);
	*ix = (struct hash_index){0};
}

static const struct hash *hash_at(const void *entries, size_t entry_size, uint32_t number)
{
	return (const struct hash *)((const uint8_t *)entries + entry_size * number);
}

__extension__ typedef unsigned __int128 uint128;

static uint64_t fold(uint64_t a, uint64_t b)
{
	uint128 product = (uint128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* The slot that holds the hash, or the free one where it belongs. */
static size_t slot_of(const struct hash_index *ix, const void *entries, size_t entry_size,
		      const struct hash *hash)
{
	uint64_t w[4];
	size_t at;

	memcpy(w, hash->bytes, sizeof(w));
	at = (size_t)(fold(w[0] ^ ix->seed[0], w[1] ^ ix->seed[1]) ^
		      fold(w[2] ^ ix->seed[2], w[3] ^ ix->seed[3]));
	for (;; at++) {
		uint32_t slot = ix->slots[at & (ix->cap - 1)];

		if (!slot || hash_equal(hash_at(entries, entry_size, slot - 1), hash))
			return at & (ix->cap - 1);
	}
}

uint32_t hash_index_find(const struct hash_index *ix, const void *entries, size_t entry_size,
			 const struct hash *hash)
{
	if (!ix->count)
		return HASH_INDEX_NONE;
	/* A free slot holds 0, and 0 - 1 is HASH_INDEX_NONE. */
	return ix->slots[slot_of(ix, entries, entry_size, hash)] - 1;
}

static int grow(struct hash_index *ix, const void *entries, size_t entry_size)
{
	struct hash_index larger = *ix;

	larger.cap = ix->cap ? ix->cap * 2 : CAP_MIN;
	if (!ix->cap && random_bytes(larger.seed, sizeof(larger.seed)) < 0)
		return -ENOMEM;
	larger.slots = calloc(larger.cap, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (size_t i = 0; i < ix->cap; i++) {
		uint32_t slot = ix->slots[i];

		if (slot)
			larger.slots[slot_of(&larger, entries, entry_size,
					     hash_at(entries, entry_size, slot - 1))] = slot;
	}
	free(ix->slots);
	*ix = larger;
	return 0;
}

int hash_index_add(struct hash_index *ix, const void *entries, size_t entry_size, uint32_t number)
{
	if (number >= HASH_INDEX_NONE - 1)
		return -EFBIG;
	if (ix->count + ix->count / 2 >= ix->cap && grow(ix, entries, entry_size) < 0)
		return -ENOMEM;
	ix->slots[slot_of(ix, entries, entry_size, hash_at(entries, entry_size, number))] =
		number + 1;
	ix->count++;
	return 0;
}
