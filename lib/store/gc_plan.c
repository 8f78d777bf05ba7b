/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection: what goes and what stays, and the deleting. */
#include "lib/store/gc_impl.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/remote/remote.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"
#include "lib/util/log.h"

/* Copies that are checked together. */
#define WINDOW 4096
/* Keys that are deleted in one request. */
#define DELETE_KEYS 1000

/* ---- homes ---- */

static bool is_live(const struct gc_row *first)
{
	return atomic_load_explicit(&first->live, memory_order_relaxed);
}

/* Calls fn for the first row of each live chunk. */
static int each_live(struct store_gc *g,
		     int (*fn)(struct store_gc *g, struct gc_row *first, void *arg), void *arg)
{
	int error = 0;

	for (size_t i = 0; i < g->row_count && !error; i++)
		if (is_live(&g->rows[i]))
			error = fn(g, &g->rows[i], arg);
	return error;
}

static struct gc_row *next_row(const struct store_gc *g, const struct gc_row *row)
{
	return row->next == ROW_NONE ? NULL : &g->rows[row->next];
}

static int add_live_bytes(struct store_gc *g, struct gc_row *first, void *arg)
{
	(void)arg;
	for (struct gc_row *row = first; row; row = next_row(g, row))
		if (gc_row_usable(g, row))
			g->packs[row->pack].live += row->stored_len;
	return 0;
}

static void measure_packs(struct store_gc *g)
{
	for (size_t i = 0; i < g->pack_count; i++)
		g->packs[i].all = g->packs[i].live = 0;
	for (size_t i = 0; i < g->row_count; i++)
		g->packs[g->rows[i].pack].all += g->rows[i].stored_len;
	each_live(g, add_live_bytes, NULL);
}

/* -EIO: no copy is left. */
static int choose_home(struct store_gc *g, struct gc_row *first, void *arg)
{
	struct gc_row *best = gc_best_row(g, first);

	(void)arg;
	for (struct gc_row *row = first; row; row = next_row(g, row))
		row->home = row == best;
	if (!best)
		return -EIO;
	g->packs[best->pack].home += best->stored_len;
	return 0;
}

bool gc_pack_kept(const struct gc_pack *p)
{
	return p->home && (!p->rewrite || p->stays);
}

int gc_settle_packs(struct store_gc *g)
{
	int error;

	for (size_t i = 0; i < g->pack_count; i++)
		g->packs[i].home = 0;
	error = each_live(g, choose_home, NULL);
	for (size_t i = 0; i < g->pack_count; i++) {
		struct gc_pack *p = &g->packs[i];

		if (p->home)
			p->generation = 0; /* an epoch came to name it before its writer knew */
		p->condemn =
			p->there && p->named && !p->written && !p->generation && !gc_pack_kept(p);
	}
	return error;
}

/* ---- copies that are given up ---- */

struct checking {
	struct wanted *wanted;
	size_t count;
};

/* Whether a copy in a pack that is not condemned depends on what is at home being right. */
static bool gives_up_a_copy(const struct store_gc *g, struct gc_row *first)
{
	for (struct gc_row *row = first; row; row = next_row(g, row))
		if (!row->home && gc_row_usable(g, row) && !g->packs[row->pack].generation)
			return true;
	return false;
}

static int want_unchecked(struct store_gc *g, struct gc_row *first, void *arg)
{
	struct checking *c = arg;
	struct gc_row *home = gc_best_row(g, first);

	if (!home || home->checked || !gives_up_a_copy(g, first) || c->count == WINDOW)
		return 0;
	c->wanted[c->count++] = (struct wanted){.hash = home->chunk,
						.number = (size_t)(home - g->rows),
						.state = WANTED_PLACED,
						.place = {g->packs[home->pack].id, home->offset,
							  home->stored_len, home->plain_len}};
	return 0;
}

static int nothing_to_do(void *arg, size_t number, const void *plain, size_t len)
{
	(void)arg, (void)number, (void)plain, (void)len;
	return 0;
}

/* 1: there is more to check; 0: all is. */
static int check_some(struct store_gc *g, struct checking *c)
{
	bool damaged = false;
	int error;

	c->count = 0;
	each_live(g, want_unchecked, c);
	if (!c->count)
		return 0;
	error = store_chunks_read_placed(g->store, c->wanted, c->count, nothing_to_do, NULL);
	if (error)
		return error;
	for (size_t i = 0; i < c->count; i++) {
		struct gc_row *row = &g->rows[c->wanted[i].number];

		row->checked = c->wanted[i].state == WANTED_DONE;
		row->bad = !row->checked;
		damaged |= row->bad;
	}
	error = damaged ? gc_settle_packs(g) : 0;
	return error ? error : 1;
}

int gc_check_copies(struct store_gc *g)
{
	cleanup_free struct wanted *wanted = calloc(WINDOW, sizeof(*wanted));
	struct checking c = {.wanted = wanted};
	int more = wanted ? 1 : -ENOMEM;

	while (more > 0)
		more = check_some(g, &c);
	return more;
}

/* ---- all ---- */

static void choose_rewrites(struct store_gc *g)
{
	for (size_t i = 0; i < g->pack_count; i++) {
		struct gc_pack *p = &g->packs[i];

		p->rewrite = p->home && p->home * 100 < p->all * g->terms.keep_percent;
		if (!p->rewrite)
			continue;
		g->totals.rewritten.packs++;
		g->totals.rewritten.bytes += p->size;
	}
}

static int add_home_bytes(struct store_gc *g, struct gc_row *first, void *arg)
{
	const struct gc_row *home = gc_best_row(g, first);

	(void)arg;
	g->totals.live_bytes += home ? home->stored_len : 0;
	return 0;
}

int store_gc_plan(struct store_gc *g)
{
	int error;

	g->marking = false;
	measure_packs(g);
	error = gc_settle_packs(g);
	if (!error)
		error = gc_check_copies(g);
	if (error)
		return error;
	choose_rewrites(g);
	each_live(g, add_home_bytes, NULL);
	/* A dry run tells what would be, as if the new packs were there. */
	if (g->terms.dry_run) {
		error = gc_settle_packs(g);
		gc_plan_indexes(g);
	}
	return error;
}

/* ---- deleting ---- */

static bool is_due(const struct store_gc *g, uint64_t generation, int64_t since_ns)
{
	return generation && g->terms.now_ns - since_ns >= g->terms.grace_ns;
}

static bool pack_goes(const struct store_gc *g, const struct gc_pack *p)
{
	return p->there && !p->home && is_due(g, p->generation, p->since_ns);
}

static bool index_goes(const struct store_gc *g, const struct gc_object *o)
{
	return is_due(g, o->generation, o->since_ns);
}

static int delete_keys(struct store_gc *g, struct remote_keys *keys, bool last,
		       int (*confirm)(void *arg), void *arg)
{
	int error = 0;

	if (!keys->count || (!last && keys->count < DELETE_KEYS))
		return 0;
	error = confirm(arg);
	if (!error)
		error = remote_keys_delete(g->remote, keys);
	remote_keys_free(keys);
	*keys = (struct remote_keys){0};
	FAULT_POINT("gc.deleted");
	return error;
}

int store_gc_delete(struct store_gc *g, int (*confirm)(void *arg), void *arg)
{
	cleanup_remote_keys struct remote_keys keys = {0};
	char key[KEY_MAX];
	int error = 0;

	for (size_t i = 0; i < g->object_count && !error; i++) {
		struct gc_object *o = &g->objects[i];

		if (!index_goes(g, o))
			continue;
		index_key(o->number, &o->id, key);
		error = remote_keys_add(&keys, key);
		if (!error)
			error = delete_keys(g, &keys, false, confirm, arg);
		o->deleted = !error;
	}
	if (!error)
		error = delete_keys(g, &keys, true, confirm, arg);
	for (size_t i = 0; i < g->pack_count && !error; i++) {
		struct gc_pack *p = &g->packs[i];

		if (!pack_goes(g, p))
			continue;
		pack_key(&p->id, key);
		error = remote_keys_add(&keys, key);
		if (!error)
			error = delete_keys(g, &keys, false, confirm, arg);
		p->deleted = !error;
		gc_progress(g, "deleting", i, g->pack_count);
	}
	return error ? error : delete_keys(g, &keys, true, confirm, arg);
}

/* ---- the list that follows ---- */

struct composing {
	struct store_gc *g;
	struct gc_list *list;
	uint64_t generation;
	bool full; /* the rest is for the next pass */
	bool condemned;
};

/* `now`: condemned by this pass. */
static int add_item(struct composing *c, const struct hash *id, uint64_t index, uint64_t generation,
		    int64_t since_ns, bool now)
{
	struct gc_item item = {*id, index, now ? c->generation : generation,
			       now ? c->g->terms.now_ns : since_ns};
	int error = c->full ? -EFBIG : gc_list_add(c->list, &item);

	c->full = error == -EFBIG;
	if (!error)
		c->condemned |= now;
	return c->full ? 0 : error;
}

static int add_pack_item(struct composing *c, struct gc_pack *p)
{
	const struct store_gc_terms *t = &c->g->terms;
	bool unnamed = !p->named && !p->generation && !p->written;

	if (!p->there || p->deleted)
		return 0;
	if (unnamed) {
		if (!p->since_ns)
			p->since_ns = t->now_ns;
		p->condemn = t->now_ns - p->since_ns >= t->grace_ns;
	}
	if (!p->generation && !p->condemn && !unnamed)
		return 0;
	return add_item(c, &p->id, 0, p->generation, p->since_ns, p->condemn);
}

int store_gc_list(struct store_gc *g, uint64_t generation, struct gc_list *list, bool *ret_news,
		  bool *ret_condemned)
{
	struct composing c = {.g = g, .list = list, .generation = generation};
	int error = 0;

	for (size_t i = 0; i < g->pack_count && !error; i++)
		error = add_pack_item(&c, &g->packs[i]);
	for (size_t i = 0; i < g->object_count && !error; i++) {
		struct gc_object *o = &g->objects[i];

		if (!o->deleted && (o->generation || o->condemn))
			error = add_item(&c, &o->id, o->number, o->generation, o->since_ns,
					 o->condemn);
	}
	if (error)
		return error;
	*ret_news = !gc_list_same(list, g->terms.old);
	*ret_condemned = c.condemned;
	return 0;
}

/* ---- totals ---- */

static void count(struct store_gc_count *c, bool is_pack, uint64_t bytes)
{
	c->packs += is_pack;
	c->indexes += !is_pack;
	c->bytes += bytes;
}

/* Of one object: condemned now, deleted now (in a dry run: would be), or waiting for the grace. */
static void count_state(const struct store_gc *g, struct store_gc_totals *t, bool is_pack,
			uint64_t bytes, bool condemn, bool goes, int64_t since_ns)
{
	int64_t next_ns = (condemn ? g->terms.now_ns : since_ns) + g->terms.grace_ns;

	if (condemn)
		count(&t->condemned, is_pack, bytes);
	if (goes) {
		count(&t->deleted, is_pack, bytes);
		return;
	}
	count(&t->waiting, is_pack, bytes);
	if (!t->next_ns || next_ns < t->next_ns)
		t->next_ns = next_ns;
}

void store_gc_get_totals(const struct store_gc *g, struct store_gc_totals *ret_totals)
{
	struct store_gc_totals t = g->totals;
	bool dry = g->terms.dry_run;

	for (size_t i = 0; i < g->pack_count; i++) {
		const struct gc_pack *p = &g->packs[i];

		if (p->condemn || (p->generation && p->there))
			count_state(g, &t, true, p->size, p->condemn,
				    dry ? pack_goes(g, p) : p->deleted, p->since_ns);
		else if (p->there && !p->named && !p->written)
			count(&t.unnamed, true, p->size);
	}
	for (size_t i = 0; i < g->object_count; i++) {
		const struct gc_object *o = &g->objects[i];

		if (o->condemn || o->generation)
			count_state(g, &t, false, o->size, o->condemn,
				    dry ? index_goes(g, o) : o->deleted, o->since_ns);
	}
	*ret_totals = t;
}
