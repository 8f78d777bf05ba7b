/* SPDX-License-Identifier: Apache-2.0 */
/* Counting what epochs take. */
#include "lib/store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/format/pack.h"
#include "lib/util/cleanup.h"

#define BITS_MIN 10

struct store_usage {
	struct store_index index;
	struct store *store;
	/* Open addressing; 0 is a free slot. Chunks and recipes share it: a recipe is a chunk too. */
	uint64_t *slots;
	size_t count;
	unsigned bits;	 /* 1 << bits slots; 0: none yet */
	uint64_t factor; /* random: the hashes may be chosen by an attacker */
	uint64_t bytes;
};

int store_usage_new(const struct store_index *index, struct store *store,
		    struct store_usage **ret_usage)
{
	struct store_usage *u = calloc(1, sizeof(*u));
	int error;

	if (!u)
		return -ENOMEM;
	if (getrandom(&u->factor, sizeof(u->factor), 0) != sizeof(u->factor)) {
		free(u);
		return -EIO;
	}
	u->factor |= 1;
	u->index = *index;
	u->store = store;
	error = store ? store_index_refresh(store) : 0;
	if (error)
		store_usage_free(u);
	else
		*ret_usage = u;
	return error;
}

void store_usage_free(struct store_usage *u)
{
	if (!u)
		return;
	free(u->slots);
	free(u);
}

uint64_t store_usage_bytes(const struct store_usage *u)
{
	return u->bytes;
}

/* ---- the set ---- */

static uint64_t key_of(const struct hash *h)
{
	uint64_t key;

	memcpy(&key, h->bytes, sizeof(key));
	return key ? key : 1;
}

static uint64_t *slot_of(uint64_t *slots, unsigned bits, uint64_t factor, uint64_t key)
{
	size_t i = (size_t)(key * factor >> (64 - bits));

	while (slots[i] && slots[i] != key)
		i = (i + 1) & (((size_t)1 << bits) - 1);
	return &slots[i];
}

static int grow(struct store_usage *u)
{
	unsigned bits = u->bits ? u->bits + 1 : BITS_MIN;
	uint64_t *slots = calloc((size_t)1 << bits, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t i = 0; u->bits && i < (size_t)1 << u->bits; i++)
		if (u->slots[i])
			*slot_of(slots, bits, u->factor, u->slots[i]) = u->slots[i];
	free(u->slots);
	u->slots = slots;
	u->bits = bits;
	return 0;
}

/* 1: it was not there before. */
static int set_add(struct store_usage *u, const struct hash *h)
{
	uint64_t key = key_of(h), *slot;
	int error = !u->bits || 2 * u->count >= (size_t)1 << u->bits ? grow(u) : 0;

	if (error)
		return error;
	slot = slot_of(u->slots, u->bits, u->factor, key);
	if (*slot)
		return 0;
	*slot = key;
	u->count++;
	return 1;
}

/* ---- chunks ---- */

/* 1: it was not there before. */
static int add_chunk(struct store_usage *u, const struct hash *h)
{
	struct store_place place;
	int fresh = set_add(u, h), error;

	if (fresh <= 0)
		return fresh;
	error = u->index.get(u->index.arg, h, &place);
	if (error == -ENOENT)
		return u->store ? 1 : -ENODATA;
	if (error)
		return error;
	u->bytes += place.stored_len + PACK_ROW_LEN;
	return 1;
}

static int add_segments(struct store_usage *u, const struct recipe *r)
{
	int result = 0;

	for (size_t i = 0; result >= 0 && i < r->count; i++)
		if (!r->segments[i].zero)
			result = add_chunk(u, &r->segments[i].hash);
	return result < 0 ? result : 0;
}

/* The encoding of a long recipe is chunks too; it is in the index once it has been read. */
static int add_encoding(struct store_usage *u, const struct hash *h)
{
	cleanup_recipe struct recipe top = {0};
	cleanup_buf struct buf data = {0};
	int error = u->index.recipe_get(u->index.arg, h, &data);

	if (error)
		return error == -ENOENT ? 0 : error;
	error = recipe_decode(data.data, data.len, &top);
	if (error)
		return error == -ENOMEM ? error : -EIO;
	return top.level ? add_segments(u, &top) : 0;
}

static int add_recipe(struct store_usage *u, const struct hash *h)
{
	cleanup_recipe struct recipe r = {0};
	int fresh = add_chunk(u, h), error;

	if (fresh <= 0)
		return fresh;
	error = u->store ? store_get_recipe(u->store, h, &r, NULL)
			 : store_known_recipe(&u->index, h, &r);
	if (!error)
		error = add_encoding(u, h);
	return error ? error : add_segments(u, &r);
}

int store_usage_add(struct store_usage *u, const struct epoch_record *record,
		    const struct tree *tree)
{
	int result = 0;

	for (size_t i = 0; result >= 0 && i < record->chunk_count; i++)
		result = add_chunk(u, &record->chunks[i].hash);
	for (uint32_t id = 0; result >= 0 && id < tree_count(tree); id++) {
		struct tree_entry e;

		tree_get(tree, id, &e);
		if (e.type == TREE_REGULAR && e.content == TREE_RECIPE &&
		    tree_identity(tree, id) == id)
			result = add_recipe(u, &e.u.recipe);
	}
	return result < 0 ? result : 0;
}
