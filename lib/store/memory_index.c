/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk index in memory. */
#include "lib/store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/store/hash_index.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

/* Recipes are kept up to so many bytes, then all are forgotten. */
#define RECIPES_MAX ((size_t)64 << 20)

struct chunk {
	struct hash hash;
	uint32_t pack; /* in `packs`, or PACK_NONE where it was forgotten */
	uint32_t offset;
	uint32_t stored_len;
	uint32_t plain_len;
};
#define PACK_NONE UINT32_MAX

struct cached {
	struct hash hash;
	uint8_t *data;
	size_t len;
};

struct name {
	struct hash hash; /* of the key */
};

/* An array whose elements begin with a hash, and its index. */
struct table {
	void *items;
	size_t size; /* of an element */
	size_t count, cap;
	struct hash_index index;
};

struct memory_index {
	struct mutex lock; /* guards all; nothing is locked under it */
	struct table chunks, packs, loaded, recipes;
	size_t recipe_bytes;
};

/* ---- tables ---- */

static void table_free(struct table *t)
{
	free(t->items);
	hash_index_free(&t->index);
	*t = (struct table){.size = t->size};
}

static void *table_at(const struct table *t, uint32_t i)
{
	return (uint8_t *)t->items + t->size * i;
}

static uint32_t table_find(const struct table *t, const struct hash *hash)
{
	return hash_index_find(&t->index, t->items, t->size, hash);
}

/* The element with this hash, made (zero but for it) where it is not there; NULL: no memory. */
static void *table_add(struct table *t, const struct hash *hash)
{
	uint32_t i = table_find(t, hash);
	uint8_t *item;

	if (i != HASH_INDEX_NONE)
		return table_at(t, i);
	if (t->count == t->cap) {
		size_t cap = t->cap ? 2 * t->cap : 64;
		void *items = reallocarray(t->items, cap, t->size);

		if (!items)
			return NULL;
		t->items = items;
		t->cap = cap;
	}
	item = table_at(t, (uint32_t)t->count);
	memset(item, 0, t->size);
	memcpy(item, hash, sizeof(*hash));
	if (hash_index_add(&t->index, t->items, t->size, (uint32_t)t->count) < 0)
		return NULL;
	t->count++;
	return item;
}

/* ---- chunks ---- */

static int index_get(void *arg, const struct hash *hash, struct store_place *ret_place)
{
	struct memory_index *m = arg;
	const struct chunk *c;
	uint32_t i;

	SCOPED_LOCK(&m->lock);
	i = table_find(&m->chunks, hash);
	if (i == HASH_INDEX_NONE)
		return -ENOENT;
	c = table_at(&m->chunks, i);
	if (c->pack == PACK_NONE)
		return -ENOENT;
	*ret_place = (struct store_place){*(struct hash *)table_at(&m->packs, c->pack), c->offset,
					  c->stored_len, c->plain_len};
	return 0;
}

static int put_locked(struct memory_index *m, const struct hash *hash,
		      const struct store_place *place)
{
	struct chunk *c;

	if (!table_add(&m->packs, &place->pack))
		return -ENOMEM;
	c = table_add(&m->chunks, hash);
	if (!c)
		return -ENOMEM;
	c->pack = table_find(&m->packs, &place->pack);
	c->offset = place->offset;
	c->stored_len = place->stored_len;
	c->plain_len = place->plain_len;
	return 0;
}

static int index_put(void *arg, const char *key, const struct hash *chunks,
		     const struct store_place *places, size_t count)
{
	struct memory_index *m = arg;
	struct hash name;
	int error = 0;

	hash_of(key, strlen(key), &name);
	SCOPED_LOCK(&m->lock);
	for (size_t i = 0; i < count && !error; i++)
		error = put_locked(m, &chunks[i], &places[i]);
	if (!error && !table_add(&m->loaded, &name))
		error = -ENOMEM;
	return error;
}

static bool index_loaded(void *arg, const char *key)
{
	struct memory_index *m = arg;
	struct hash name;

	hash_of(key, strlen(key), &name);
	SCOPED_LOCK(&m->lock);
	return table_find(&m->loaded, &name) != HASH_INDEX_NONE;
}

static int index_forget_pack(void *arg, const struct hash *pack)
{
	struct memory_index *m = arg;
	uint32_t number;

	SCOPED_LOCK(&m->lock);
	number = table_find(&m->packs, pack);
	for (size_t i = 0; i < m->chunks.count && number != HASH_INDEX_NONE; i++) {
		struct chunk *c = table_at(&m->chunks, (uint32_t)i);

		if (c->pack == number)
			c->pack = PACK_NONE;
	}
	return 0;
}

/* ---- recipes ---- */

static int recipe_get(void *arg, const struct hash *hash, struct buf *out)
{
	struct memory_index *m = arg;
	const struct cached *c;
	uint32_t i;

	SCOPED_LOCK(&m->lock);
	i = table_find(&m->recipes, hash);
	if (i == HASH_INDEX_NONE)
		return -ENOENT;
	c = table_at(&m->recipes, i);
	buf_put(out, c->data, c->len);
	return buf_error(out);
}

static void forget_recipes_locked(struct memory_index *m)
{
	for (size_t i = 0; i < m->recipes.count; i++)
		free(((struct cached *)table_at(&m->recipes, (uint32_t)i))->data);
	table_free(&m->recipes);
	m->recipe_bytes = 0;
}

static int recipe_put(void *arg, const struct hash *hash, const void *data, size_t len)
{
	struct memory_index *m = arg;
	cleanup_free uint8_t *copy = malloc(len + 1);
	struct cached *c;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, data, len);
	SCOPED_LOCK(&m->lock);
	if (m->recipe_bytes + len > RECIPES_MAX)
		forget_recipes_locked(m);
	c = table_add(&m->recipes, hash);
	if (!c)
		return -ENOMEM;
	m->recipe_bytes += len - c->len;
	free(c->data);
	c->data = steal_ptr(copy);
	c->len = len;
	return 0;
}

/* ---- making and ending ---- */

int store_memory_index_new(struct store_index *ret_index)
{
	struct memory_index *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	mutex_init(&m->lock, LOCK_MEMORY_INDEX);
	m->chunks.size = sizeof(struct chunk);
	m->packs.size = sizeof(struct hash);
	m->loaded.size = sizeof(struct name);
	m->recipes.size = sizeof(struct cached);
	*ret_index = (struct store_index){
		.arg = m,
		.get = index_get,
		.put = index_put,
		.loaded = index_loaded,
		.forget_pack = index_forget_pack,
		.recipe_get = recipe_get,
		.recipe_put = recipe_put,
	};
	return 0;
}

void store_memory_index_free(struct store_index *index)
{
	struct memory_index *m = index->arg;

	if (!m)
		return;
	forget_recipes_locked(m);
	table_free(&m->chunks);
	table_free(&m->packs);
	table_free(&m->loaded);
	mutex_destroy(&m->lock);
	free(m);
	*index = (struct store_index){0};
}
