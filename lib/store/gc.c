/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection: what is there, and what is live. */
#include "lib/store/gc_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

/* ---- the index of the store that reads trees and recipes, and writes packs ---- */

struct gc_row *gc_first_row(const struct store_gc *g, const struct hash *chunk)
{
	uint32_t i = hash_index_find(&g->rows_by_chunk, g->rows, sizeof(*g->rows), chunk);

	return i == HASH_INDEX_NONE ? NULL : &g->rows[i];
}

/* The share of it that is live, in 1/1024; 0 for one that is to go. */
static uint64_t rank_of(const struct gc_pack *p)
{
	if (p->generation || (p->rewrite && !p->stays))
		return 0;
	return 1 + (p->all ? p->live * 1024 / p->all : 0);
}

struct gc_row *gc_best_row(const struct store_gc *g, struct gc_row *first)
{
	struct gc_row *best = NULL;

	for (struct gc_row *row = first; row;
	     row = row->next == ROW_NONE ? NULL : &g->rows[row->next]) {
		if (!gc_row_usable(g, row))
			continue;
		if (!best || rank_of(&g->packs[row->pack]) > rank_of(&g->packs[best->pack]))
			best = row;
	}
	return best;
}

static int index_get(void *arg, const struct hash *chunk, struct store_place *ret_place)
{
	struct store_gc *g = arg;
	struct gc_row *first, *row;

	SCOPED_LOCK(&g->lock);
	first = gc_first_row(g, chunk);
	row = first ? gc_best_row(g, first) : NULL;
	if (!row)
		return -ENOENT;
	if (g->marking)
		atomic_store_explicit(&first->live, true, memory_order_relaxed);
	*ret_place = (struct store_place){g->packs[row->pack].id, row->offset, row->stored_len,
					  row->plain_len};
	return 0;
}

static void note_written(struct store_gc *g, const struct store_place *place)
{
	uint32_t i = hash_index_find(&g->packs_by_id, g->packs, sizeof(*g->packs), &place->pack);
	uint64_t end = (uint64_t)place->offset + place->stored_len;

	g->packs[i].there = g->packs[i].written = true;
	if (g->packs[i].size < end)
		g->packs[i].size = end;
}

/* The new packs of a batch. */
static int index_put(void *arg, const char *key, const struct hash *chunks,
		     const struct store_place *places, size_t count)
{
	struct store_gc *g = arg;
	uint64_t number;
	struct hash id;
	int error = index_key_parse(key, &number, &id);

	SCOPED_LOCK(&g->lock);
	if (!error)
		error = gc_add_object(g, number, &id, 0);
	for (size_t i = 0; i < count && !error; i++) {
		error = gc_add_row(g, &chunks[i], &places[i]);
		if (!error)
			note_written(g, &places[i]);
	}
	if (!error)
		g->objects[g->object_count - 1].written = true;
	return error;
}

static bool index_loaded(void *arg, const char *key)
{
	(void)arg, (void)key;
	return true;
}

static int index_forget_pack(void *arg, const struct hash *pack)
{
	(void)arg, (void)pack;
	return 0;
}

/* Nothing is cached: all levels of a recipe are to be marked. */
static int recipe_get(void *arg, const struct hash *recipe, struct buf *out)
{
	(void)arg, (void)recipe, (void)out;
	return -ENOENT;
}

static int recipe_put(void *arg, const struct hash *recipe, const void *data, size_t len)
{
	(void)arg, (void)recipe, (void)data, (void)len;
	return 0;
}

/* ---- making and ending ---- */

int store_gc_new(struct remote *remote, const struct store_gc_terms *terms,
		 struct store_gc **ret_gc)
{
	struct store_gc *g = calloc(1, sizeof(*g));
	const struct store_index index = {.arg = g,
					  .get = index_get,
					  .put = index_put,
					  .loaded = index_loaded,
					  .forget_pack = index_forget_pack,
					  .recipe_get = recipe_get,
					  .recipe_put = recipe_put};
	int error;

	if (!g)
		return -ENOMEM;
	g->remote = remote;
	g->terms = *terms;
	g->marking = true;
	mutex_init(&g->lock, LOCK_STORE_GC);
	error = store_open(remote, &index, terms->readers, &g->store);
	if (!error && terms->readers)
		error = store_set_readers(g->store, terms->readers);
	if (error) {
		store_gc_free(g);
		return error;
	}
	*ret_gc = g;
	return 0;
}

void store_gc_free(struct store_gc *g)
{
	if (!g)
		return;
	store_close(g->store);
	free(g->packs);
	free(g->objects);
	free(g->rows);
	free(g->listed);
	hash_index_free(&g->packs_by_id);
	hash_index_free(&g->objects_by_id);
	hash_index_free(&g->rows_by_chunk);
	mutex_destroy(&g->lock);
	free(g);
}

struct store *store_gc_store(struct store_gc *g)
{
	return g->store;
}

void gc_progress(struct store_gc *g, const char *phase, uint64_t done, uint64_t total)
{
	SCOPED_LOCK(&g->lock);
	if (g->terms.progress)
		g->terms.progress(g->terms.arg, phase, done, total);
}

/* ---- what is there ---- */

int gc_pack_number(struct store_gc *g, const struct hash *id, uint32_t *ret_number)
{
	uint32_t i = hash_index_find(&g->packs_by_id, g->packs, sizeof(*g->packs), id);
	int error = 0;

	if (i == HASH_INDEX_NONE) {
		i = (uint32_t)g->pack_count;
		error = array_reserve((void **)&g->packs, &g->pack_cap, g->pack_count,
				      sizeof(*g->packs));
		if (error)
			return error;
		g->packs[i] = (struct gc_pack){.id = *id};
		error = hash_index_add(&g->packs_by_id, g->packs, sizeof(*g->packs), i);
		if (!error)
			g->pack_count++;
	}
	if (!error)
		*ret_number = i;
	return error;
}

int gc_add_object(struct store_gc *g, uint64_t number, const struct hash *id, uint64_t size)
{
	uint32_t i = (uint32_t)g->object_count;
	int error = array_reserve((void **)&g->objects, &g->object_cap, i, sizeof(*g->objects));

	if (error)
		return error;
	g->objects[i] = (struct gc_object){
		.id = *id, .number = number, .size = size, .first = g->listed_count};
	/* The same bytes under another number: either will do for what is asked by the id. */
	if (hash_index_find(&g->objects_by_id, g->objects, sizeof(*g->objects), id) ==
	    HASH_INDEX_NONE)
		error = hash_index_add(&g->objects_by_id, g->objects, sizeof(*g->objects), i);
	if (!error)
		g->object_count++;
	return error;
}

static bool same_place(const struct store_gc *g, const struct gc_row *row,
		       const struct store_place *place)
{
	return row->offset == place->offset && row->stored_len == place->stored_len &&
	       row->plain_len == place->plain_len &&
	       hash_equal(&g->packs[row->pack].id, &place->pack);
}

static int new_row(struct store_gc *g, const struct hash *chunk, const struct store_place *place,
		   uint32_t *ret_number)
{
	struct gc_row row = {.chunk = *chunk,
			     .offset = place->offset,
			     .stored_len = place->stored_len,
			     .plain_len = place->plain_len,
			     .next = ROW_NONE};
	uint32_t number = (uint32_t)g->row_count;
	int error = gc_pack_number(g, &place->pack, &row.pack);

	if (!error)
		error = array_reserve((void **)&g->rows, &g->row_cap, g->row_count, sizeof(row));
	if (error || g->row_count >= ROW_NONE - 1)
		return error ? error : -ENOMEM;
	g->packs[row.pack].named = true;
	memcpy(&g->rows[number], &row, sizeof(row));
	*ret_number = number;
	return 0;
}

int gc_add_row(struct store_gc *g, const struct hash *chunk, const struct store_place *place)
{
	struct gc_row *row = gc_first_row(g, chunk);
	bool first = !row;
	uint32_t number = ROW_NONE, last = ROW_NONE;
	int error = 0;

	for (; row && number == ROW_NONE;
	     row = row->next == ROW_NONE ? NULL : &g->rows[row->next]) {
		last = (uint32_t)(row - g->rows);
		if (same_place(g, row, place))
			number = last;
	}
	if (number == ROW_NONE) {
		error = new_row(g, chunk, place, &number);
		if (!error && first)
			error = hash_index_add(&g->rows_by_chunk, g->rows, sizeof(*g->rows),
					       number);
		else if (!error)
			g->rows[last].next = number;
		if (!error)
			g->row_count++;
	}
	if (!error)
		error = array_reserve((void **)&g->listed, &g->listed_cap, g->listed_count,
				      sizeof(*g->listed));
	if (error)
		return error;
	g->listed[g->listed_count++] = number;
	g->objects[g->object_count - 1].count++;
	return 0;
}

/* ---- marking ---- */

int store_gc_mark(struct store_gc *g, const struct hash *chunk, uint32_t plain_len,
		  struct store_failure *failure)
{
	struct gc_row *first = gc_first_row(g, chunk), *row;

	failure->pack[0] = '\0';
	if (!first)
		return -ENOENT;
	row = gc_best_row(g, first);
	if (!row || (plain_len && row->plain_len != plain_len)) {
		hash_to_hex(&g->packs[first->pack].id, failure->pack);
		return -EIO;
	}
	atomic_store_explicit(&first->live, true, memory_order_relaxed);
	return 0;
}
