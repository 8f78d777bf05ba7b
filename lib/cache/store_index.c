/* SPDX-License-Identifier: Apache-2.0 */
/* The chunk index of a mounted volume. */
#include "lib/cache/store_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

/* Rows that are put in one transaction: the lock is let go between them, so that writers wait for milliseconds at most. */
#define SLICE 512

static int index_get(void *arg, const struct hash *chunk, struct store_place *ret_place)
{
	struct volume *vol = arg;
	struct state_chunk row;
	int error;

	mutex_lock(&vol->lock);
	error = state_chunk_get(vol->state, chunk, &row);
	mutex_unlock(&vol->lock);
	if (error)
		return error;
	*ret_place = (struct store_place){.pack = row.pack,
					  .offset = (uint32_t)row.offset,
					  .stored_len = row.stored_len,
					  .plain_len = row.plain_len};
	return 0;
}

struct placed {
	const struct hash *chunk;
	const struct store_place *place;
};

static int by_hash(const void *a, const void *b)
{
	const struct placed *x = a, *y = b;

	return memcmp(x->chunk->bytes, y->chunk->bytes, sizeof(x->chunk->bytes));
}

static int put_slice_locked(struct volume *vol, const struct placed *rows, size_t count)
{
	int error = state_begin(vol->state);

	if (error)
		return error;
	for (size_t i = 0; !error && i < count; i++) {
		struct state_chunk row = {.pack = rows[i].place->pack,
					  .offset = rows[i].place->offset,
					  .stored_len = rows[i].place->stored_len,
					  .plain_len = rows[i].place->plain_len};

		error = state_chunk_put(vol->state, rows[i].chunk, &row);
	}
	return state_end(vol->state, error);
}

static int index_put(void *arg, const char *index_key, const struct hash *chunks,
		     const struct store_place *places, size_t count)
{
	cleanup_free struct placed *rows = calloc(count + 1, sizeof(*rows));
	struct volume *vol = arg;
	int error = 0;

	if (!rows)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		rows[i] = (struct placed){&chunks[i], &places[i]};
	/* In the order of the table's key: in any other, each row of a slice dirties a page of its own,
	 * and the journal takes some 4 KiB a chunk. */
	qsort(rows, count, sizeof(*rows), by_hash);
	for (size_t i = 0; !error && i < count; i += SLICE) {
		mutex_lock(&vol->lock);
		error = put_slice_locked(vol, rows + i, count - i < SLICE ? count - i : SLICE);
		mutex_unlock(&vol->lock);
	}
	if (error)
		return error;
	mutex_lock(&vol->lock);
	error = state_index_mark_loaded(vol->state, index_key);
	mutex_unlock(&vol->lock);
	return error;
}

static bool index_loaded(void *arg, const char *index_key)
{
	struct volume *vol = arg;
	bool loaded;

	mutex_lock(&vol->lock);
	loaded = state_index_loaded(vol->state, index_key);
	mutex_unlock(&vol->lock);
	return loaded;
}

static int index_forget_pack(void *arg, const struct hash *pack)
{
	struct volume *vol = arg;
	int error;

	mutex_lock(&vol->lock);
	error = state_chunk_forget_pack(vol->state, pack);
	mutex_unlock(&vol->lock);
	return error;
}

static int index_recipe_get(void *arg, const struct hash *recipe, struct buf *out)
{
	struct volume *vol = arg;
	int error;

	mutex_lock(&vol->lock);
	error = state_recipe_get(vol->state, recipe, out);
	mutex_unlock(&vol->lock);
	return error;
}

static int index_recipe_put(void *arg, const struct hash *recipe, const void *data, size_t len)
{
	struct volume *vol = arg;
	int error;

	mutex_lock(&vol->lock);
	error = state_recipe_put(vol->state, recipe, data, len);
	mutex_unlock(&vol->lock);
	return error;
}

struct store_index volume_store_index(struct volume *vol)
{
	return (struct store_index){
		.arg = vol,
		.get = index_get,
		.put = index_put,
		.loaded = index_loaded,
		.forget_pack = index_forget_pack,
		.recipe_get = index_recipe_get,
		.recipe_put = index_recipe_put,
	};
}
