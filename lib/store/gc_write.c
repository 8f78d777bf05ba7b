/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection: packs that are mostly dead are rewritten. */
#include "lib/store/gc_impl.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/store/batch_impl.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"
#include "lib/util/log.h"

/* Chunks that are read together, and kept until they are fed in their order: the same packs come of it when a run that
 * was killed is done again. */
#define WINDOW 16
/* What was written is read back in portions of so many chunks. */
#define CHECK_WINDOW 4096

struct rewriting {
	struct store_gc *g;
	struct store_batch *batch;
	uint32_t *rows; /* at home in packs to be rewritten, by pack and offset */
	size_t count;
	struct buf pieces[WINDOW];
	uint64_t done, total;
};

static void rewriting_free(struct rewriting *r)
{
	store_batch_free(r->batch);
	free(r->rows);
	for (size_t i = 0; i < WINDOW; i++)
		buf_free(&r->pieces[i]);
}

static int keep_piece(void *arg, size_t number, const void *plain, size_t len)
{
	struct rewriting *r = arg;

	buf_put(&r->pieces[number], plain, len);
	return buf_error(&r->pieces[number]);
}

static struct wanted want(const struct store_gc *g, const struct gc_row *row, size_t number)
{
	return (struct wanted){
		.hash = row->chunk,
		.number = number,
		.state = WANTED_PLACED,
		.place = {g->packs[row->pack].id, row->offset, row->stored_len, row->plain_len}};
}

/* The batch's threads may be looking for a chunk in it. */
static void leave(struct store_gc *g, struct gc_pack *p)
{
	SCOPED_LOCK(&g->lock);
	p->stays = true;
}

/* Reads up to WINDOW chunks from `at` on and feeds them. */
static int rewrite_some(struct rewriting *r, size_t at, size_t n)
{
	struct store_gc *g = r->g;
	struct wanted wanted[WINDOW];
	int error;

	for (size_t i = 0; i < n; i++) {
		buf_reset(&r->pieces[i]);
		wanted[i] = want(g, &g->rows[r->rows[at + i]], i);
	}
	error = store_chunks_read_placed(g->store, wanted, n, keep_piece, r);
	for (size_t i = 0; i < n && !error; i++) {
		struct gc_pack *p = &g->packs[g->rows[r->rows[at + i]].pack];

		r->done += wanted[i].place.stored_len;
		if (wanted[i].state == WANTED_DONE)
			error = batch_feed(r->batch, NULL, r->pieces[i].data, r->pieces[i].len);
		else
			leave(g, p);
	}
	gc_progress(g, "rewriting", r->done, r->total);
	return error;
}

static int compare_rows(const void *a, const void *b, void *arg)
{
	const struct store_gc *g = arg;
	const struct gc_row *x = &g->rows[*(const uint32_t *)a];
	const struct gc_row *y = &g->rows[*(const uint32_t *)b];

	if (x->pack != y->pack)
		return hash_compare(&g->packs[x->pack].id, &g->packs[y->pack].id);
	return (x->offset > y->offset) - (x->offset < y->offset);
}

static int collect(struct rewriting *r)
{
	struct store_gc *g = r->g;

	r->rows = calloc(g->row_count + 1, sizeof(*r->rows));
	if (!r->rows)
		return -ENOMEM;
	for (size_t i = 0; i < g->row_count; i++) {
		if (!g->rows[i].home || !g->packs[g->rows[i].pack].rewrite)
			continue;
		r->rows[r->count++] = (uint32_t)i;
		r->total += g->rows[i].stored_len;
	}
	if (r->count)
		qsort_r(r->rows, r->count, sizeof(*r->rows), compare_rows, g);
	return 0;
}

/* Nothing new is built on what goes: the batch takes it as condemned. */
static int heed(struct store_gc *g, uint64_t generation)
{
	cleanup_free struct hash *packs = calloc(g->pack_count + 1, sizeof(*packs));
	size_t n = 0;

	if (!packs)
		return -ENOMEM;
	for (size_t i = 0; i < g->pack_count; i++)
		if (!gc_pack_kept(&g->packs[i]))
			packs[n++] = g->packs[i].id;
	return store_heed(g->store, generation, packs, n);
}

static int nothing_to_do(void *arg, size_t number, const void *plain, size_t len)
{
	(void)arg, (void)number, (void)plain, (void)len;
	return 0;
}

/* What was written must be there before anything is condemned for it. */
static int read_back(struct store_gc *g)
{
	cleanup_free struct wanted *wanted = calloc(CHECK_WINDOW, sizeof(*wanted));
	size_t n = 0;
	int error = wanted ? 0 : -ENOMEM;

	for (size_t i = 0; i <= g->row_count && !error; i++) {
		if (i < g->row_count && g->packs[g->rows[i].pack].written)
			wanted[n++] = want(g, &g->rows[i], i);
		if (!n || (n < CHECK_WINDOW && i < g->row_count))
			continue;
		error = store_chunks_read_placed(g->store, wanted, n, nothing_to_do, NULL);
		for (size_t k = 0; k < n && !error; k++) {
			g->rows[wanted[k].number].checked = wanted[k].state == WANTED_DONE;
			error = wanted[k].state == WANTED_DONE ? 0 : -EIO;
		}
		n = 0;
	}
	return error;
}

static int rewrite_all(struct rewriting *r)
{
	cleanup_record struct epoch_record none = {0};
	struct store_gc *g = r->g;
	struct store_stats stats = {0};
	int error = store_batch_begin(g->store, gc_next_number(g), &r->batch);

	for (size_t at = 0; at < r->count && !error; at += WINDOW)
		error = rewrite_some(r, at, r->count - at < WINDOW ? r->count - at : WINDOW);
	if (!error)
		error = store_batch_finish(r->batch, &none, &stats);
	FAULT_POINT("gc.rewritten");
	if (error)
		return error;
	g->totals.written.bytes += stats.stored;
	g->totals.written.indexes += none.index_count;
	return read_back(g);
}

static void count_written(struct store_gc *g)
{
	for (size_t i = 0; i < g->pack_count; i++) {
		struct gc_pack *p = &g->packs[i];

		g->totals.written.packs += p->written;
		/* Whatever is still at home here found no other place. */
		p->stays |= p->rewrite && p->home;
		if (!p->rewrite || !p->stays)
			continue;
		g->totals.rewritten.packs--;
		g->totals.rewritten.bytes -= p->size;
		log_warn(
			"%s: a pack that is mostly dead has damaged chunks and stays as it is: see "
			"epochfs fsck --read-data",
			remote_name(g->remote));
	}
}

int store_gc_write(struct store_gc *g, uint64_t generation)
{
	CLEANUP(rewriting_free) struct rewriting r = {.g = g};
	int error = collect(&r);

	if (!error && r.count) {
		error = heed(g, generation);
		if (!error)
			error = rewrite_all(&r);
		if (!error)
			error = gc_settle_packs(g);
		if (!error)
			error = gc_check_copies(g);
		count_written(g);
		if (!error)
			error = gc_settle_packs(g);
	}
	return error ? error : gc_write_indexes(g);
}
