/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a remote: where chunks lie, by what was read of it, and which packs somebody needs. */
#include "lib/store/fsck_impl.h"

#include <errno.h>

#include "lib/util/cleanup.h"

/* ---- places ---- */

static int rank_of(const struct store_fsck *f, const struct fsck_row *row)
{
	if (row->bad)
		return 0;
	if (f->packs[row->pack].goes)
		return 1;
	return row->loose ? 2 : 3;
}

/* The best place of a chunk: one that is sound, in a pack that stays, and that an index object names. */
static const struct fsck_row *best_row(const struct store_fsck *f, const struct hash *chunk)
{
	uint32_t i = hash_index_find(&f->rows_by_chunk, f->rows, sizeof(*f->rows), chunk);
	const struct fsck_row *best = NULL;
	int best_rank = -1;

	for (; i != HASH_INDEX_NONE && i != ROW_NONE; i = f->rows[i].next) {
		int rank = rank_of(f, &f->rows[i]);

		if (rank <= best_rank)
			continue;
		best = &f->rows[i];
		best_rank = rank;
	}
	return best;
}

/* Somebody needs the chunk: its packs are needed, and those that go are wanted where none that stays has it. The one that
 * has it is to be named where no index object does. */
static void note_need(struct store_fsck *f, const struct hash *chunk, const struct fsck_row *best)
{
	uint32_t i = hash_index_find(&f->rows_by_chunk, f->rows, sizeof(*f->rows), chunk);
	bool settled = best && rank_of(f, best) > 1;

	for (; i != HASH_INDEX_NONE && i != ROW_NONE; i = f->rows[i].next) {
		struct fsck_pack *p = &f->packs[f->rows[i].pack];

		if (!settled || !f->rows[i].bad)
			atomic_store(&p->needed, true);
		if (!settled && p->goes)
			atomic_store(&p->wanted, true);
	}
	if (settled && best->loose)
		atomic_store(&f->packs[best->pack].unnamed, true);
}

/* ---- the index of the store that reads trees and recipes, and when it is repaired, puts ---- */

static int index_get(void *arg, const struct hash *chunk, struct store_place *ret_place)
{
	struct store_fsck *f = arg;
	const struct fsck_row *row = best_row(f, chunk);

	if (!row)
		return -ENOENT;
	if (f->repairing)
		note_need(f, chunk, row);
	else
		atomic_store(&f->packs[row->pack].needed, true);
	/* What is bad is stored again. */
	if (f->repairing && row->bad)
		return -ENOENT;
	*ret_place = (struct store_place){f->packs[row->pack].id, row->offset, row->stored_len,
					  row->plain_len};
	return 0;
}

/* All that there is was read; what comes is of our own batch. */
static int index_put(void *arg, const char *key, const struct hash *chunks,
		     const struct store_place *places, size_t count)
{
	struct store_fsck *f = arg;
	int error = 0;

	(void)key;
	for (size_t i = 0; i < count && !error; i++) {
		struct fsck_row row = {.chunk = chunks[i],
				       .offset = places[i].offset,
				       .stored_len = places[i].stored_len,
				       .plain_len = places[i].plain_len};

		error = fsck_pack_number(f, &places[i].pack, &row.pack);
		if (error)
			break;
		f->packs[row.pack].missing = false;
		f->packs[row.pack].written = true;
		error = fsck_add_row(f, &row);
	}
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

/* Nothing is cached: what lies in the remote is to be checked. */
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

struct store_index fsck_index(struct store_fsck *f)
{
	return (struct store_index){.arg = f,
				    .get = index_get,
				    .put = index_put,
				    .loaded = index_loaded,
				    .forget_pack = index_forget_pack,
				    .recipe_get = recipe_get,
				    .recipe_put = recipe_put};
}

/* ---- who needs what ---- */

bool store_fsck_settled(const struct store_fsck *f, const struct hash *chunk)
{
	const struct fsck_row *best = best_row(f, chunk);

	return best && rank_of(f, best) > 1;
}

bool store_fsck_find(struct store_fsck *f, const struct hash *chunk, uint32_t plain_len,
		     size_t *ret_pack)
{
	uint32_t i = hash_index_find(&f->rows_by_chunk, f->rows, sizeof(*f->rows), chunk);
	bool found = false;

	*ret_pack = STORE_FSCK_NONE;
	if (f->repairing)
		note_need(f, chunk, best_row(f, chunk));
	for (uint32_t k = i; k != HASH_INDEX_NONE && k != ROW_NONE; k = f->rows[k].next) {
		const struct fsck_row *row = &f->rows[k];

		found |= !row->bad && (!plain_len || plain_len == row->plain_len);
		*ret_pack = row->pack;
	}
	/* Where it is had, nobody misses it elsewhere. */
	for (; i != HASH_INDEX_NONE && i != ROW_NONE; i = f->rows[i].next)
		if (!found || !f->rows[i].bad)
			atomic_store(&f->packs[f->rows[i].pack].needed, true);
	return found;
}
