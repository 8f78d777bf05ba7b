/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a remote: packs, index objects, trees and contents, and condemning what was replaced. */
#include "lib/admin/repair_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/meta/collection.h"
#include "lib/meta/records.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/hash.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

/* ---- what is had from elsewhere ---- */

/* Another record of the epoch names a tree that is there: that was the right one. */
static int take_other(struct repair *r, const struct epoch_record *record, struct buf *out)
{
	char key[KEY_MAX], where[64];
	const char *text;
	int error = repair_other_record(r, record, out, &text);

	if (!error)
		error = repair_confirm(r);
	if (!error && !r->how->dry_run) {
		epoch_key(record->number, key);
		error = remote_put(r->remote, key, text, strlen(text));
	}
	if (error)
		return error;
	epoch_key(record->number, key);
	snprintf(where, sizeof(where), "epoch %" PRIu64, record->number);
	repair_say(r, REPAIR_RESTORED, key, where,
		   "its record was altered; restored from a summary, whose tree is there");
	return 0;
}

static int tree_from_elsewhere(void *arg, const struct epoch_record *record, struct buf *out)
{
	struct repair *r = arg;
	int error = r->source ? repair_source_tree(r->source, r->remote, record, out) : -ENOENT;

	return error == -ENOENT ? take_other(r, record, out) : error;
}

static bool content_from_elsewhere(void *arg, const struct hash *recipe, uint64_t size)
{
	struct repair *r = arg;
	cleanup_close int fd = r->source ? repair_source_content(r->source, recipe, size) : -1;

	return fd >= 0;
}

/* ---- storing again ---- */

static int put_tree(struct repair *r, struct store_batch *batch, uint64_t number)
{
	cleanup_record struct epoch_record record = {0}, scratch = {0};
	cleanup_buf struct buf data = {0};
	int error = records_get(r->remote, number, &record, NULL);

	if (!error)
		error = store_get_tree(store_fsck_store(r->fsck.store), &record, &data);
	if (error == -EIO)
		error = tree_from_elsewhere(r, &record, &data);
	if (error)
		return fsck_fatal(error) ? error : 0;
	return store_put_tree(batch, data.data, data.len, &scratch);
}

static int put_trees(struct repair *r, struct store_batch *batch)
{
	const struct buf *numbers = &r->trees;
	int error = 0;

	for (size_t at = 0; at < numbers->len && !error; at += sizeof(uint64_t)) {
		uint64_t number;

		memcpy(&number, numbers->data + at, sizeof(number));
		error = put_tree(r, batch, number);
	}
	return error;
}

/* The same content has the same recipe. */
static int put_local(struct repair *r, struct store_batch *batch, const struct fsck_recipe *recipe)
{
	struct hash again;
	cleanup_close int fd =
		r->source ? repair_source_content(r->source, &recipe->hash, recipe->claimed) : -1;
	int error = fd < 0 ? -ENOENT : store_put_fd(batch, fd, recipe->claimed, &again, NULL);

	if (!error && !hash_equal(&again, &recipe->hash)) {
		log_warn("a content in the cache is not what an epoch names; it is not taken");
		error = -ENODATA;
	}
	return error;
}

static int put_content(struct repair *r, struct store_batch *batch,
		       const struct fsck_recipe *recipe)
{
	int error = fsck_readable(recipe) ? -ENOENT : put_local(r, batch, recipe);

	/* What is sound in packs that go is kept in any case. */
	if (error && !store_batch_error(batch))
		error = store_batch_keep(batch, &recipe->hash);
	if (error == -EIO && fsck_readable(recipe) && !store_batch_error(batch))
		error = put_local(r, batch, recipe);
	return store_batch_error(batch);
}

static int put_contents(struct repair *r, struct store_batch *batch)
{
	struct fsck *f = &r->fsck;
	int error = put_trees(r, batch);

	for (size_t i = 0; i < f->recipe_count && !error; i++)
		if (f->recipes[i].moves || !fsck_readable(&f->recipes[i]))
			error = put_content(r, batch, &f->recipes[i]);
	return error;
}

static uint64_t highest_epoch(const struct fsck *f)
{
	return f->epoch_count ? f->epochs[f->epoch_count - 1] : 0;
}

static int store_again(struct repair *r)
{
	cleanup_record struct epoch_record none = {0};
	struct store_batch *batch = NULL;
	struct store_stats stats = {0};
	int error = store_fsck_batch(r->fsck.store, highest_epoch(&r->fsck), &batch);

	if (!error)
		error = put_contents(r, batch);
	if (!error)
		error = repair_confirm(r);
	if (!error)
		error = store_batch_finish(batch, &none, &stats);
	FAULT_POINT("repair.stored");
	store_batch_free(batch);
	if (!error)
		error = store_fsck_read_back(r->fsck.store);
	if (!error)
		r->totals.bytes_stored += stats.stored;
	return error;
}

static int name_packs(struct repair *r)
{
	char key[KEY_MAX] = PREFIX_INDEX, what[STORE_FSCK_TEXT];
	size_t packs = 0;
	int error = 0;

	if (r->how->dry_run) {
		packs = store_fsck_unnamed(r->fsck.store);
	} else {
		error = repair_confirm(r);
		if (!error)
			error = store_fsck_name(r->fsck.store, highest_epoch(&r->fsck), key,
						&packs);
	}
	if (error || !packs)
		return error;
	snprintf(what, sizeof(what), "%zu pack%s that no index object named %s named again", packs,
		 plural(packs), plural_of(packs, "is", "are"));
	repair_say(r, REPAIR_RESTORED, key, "", what);
	return 0;
}

/* ---- what came of it ---- */

struct hits {
	struct fsck_hit *items;
	size_t count;
};

static void hits_free(struct hits *h)
{
	for (size_t i = 0; i < h->count; i++) {
		free(h->items[i].path);
		free(h->items[i].key);
	}
	free(h->items);
}

/* Those that were before the repair. */
static struct hits take_hits(struct fsck *f)
{
	struct hits h = {f->hits, f->hit_count};

	hash_index_free(&f->hits_by_id);
	f->hits_by_id = (struct hash_index){0};
	f->hits = NULL;
	f->hit_count = f->hit_cap = 0;
	return h;
}

static void tell_hit(struct repair *r, const struct fsck_hit *h, enum repair_outcome outcome)
{
	char key[KEY_MAX], text[STORE_FSCK_TEXT];
	cleanup_buf struct buf where = {0}, what = {0};

	fsck_hit_text(&r->fsck, h, key, &where, text);
	buf_printf(&what, "%s; %s", text,
		   outcome == REPAIR_GONE ? "it can be had from nowhere" : "restored");
	repair_say(r, outcome, key, buf_str(&where), buf_str(&what));
}

static void tell_hits(struct repair *r, const struct hits *before)
{
	struct fsck *f = &r->fsck;

	for (size_t i = 0; i < before->count; i++) {
		const struct fsck_hit *h = &before->items[i];

		if (hash_index_find(&f->hits_by_id, f->hits, sizeof(*h), &h->id) == HASH_INDEX_NONE)
			tell_hit(r, h, REPAIR_RESTORED);
	}
	for (size_t i = 0; i < f->hit_count; i++) {
		tell_hit(r, &f->hits[i], REPAIR_GONE);
		repair_note_gone(r, f->hits[i].first);
		repair_note_gone(r, f->hits[i].last);
	}
}

/* ---- one pass ---- */

static int look_at_list(struct repair *r)
{
	cleanup_gc_list struct gc_list list = {0};
	int error = gc_lists_look(r->remote, &list);

	r->list_damaged = error == -EBADMSG;
	r->generation = error && error != -EBADMSG ? 0 : list.generation;
	if (!error) {
		r->fsck.gc_list = list;
		list = (struct gc_list){0};
	}
	return error == -ENOENT || r->list_damaged ? 0 : error;
}

static int repair_packs(struct repair *r)
{
	const struct gc_list *list = &r->fsck.gc_list;
	cleanup_free struct hash *condemned = calloc(list->count + 1, sizeof(*condemned));
	size_t n = 0;

	if (!condemned)
		return -ENOMEM;
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].generation && !list->items[i].index)
			condemned[n++] = list->items[i].id;
	/* Ids of packs that no collection has condemned, nor will. */
	return store_fsck_mend(r->fsck.store, r->generation + 1, condemned, n);
}

static int write_all(struct repair *r)
{
	int error = name_packs(r);

	r->trees = r->fsck.moving;
	r->fsck.moving = (struct buf){0};
	return error || r->how->dry_run ? error : store_again(r);
}

static int judge_again(struct repair *r)
{
	if (!r->how->dry_run)
		r->fsck.tree = NULL;
	else
		r->fsck.content = content_from_elsewhere;
	return fsck_records_again(&r->fsck);
}

static int pass(struct repair *r)
{
	CLEANUP(hits_free) struct hits before = {0};
	struct fsck *f = &r->fsck;
	int error = look_at_list(r);

	if (!error)
		error = fsck_open(f, r->message);
	if (!error)
		error = fsck_read(f);
	if (!error)
		error = repair_packs(r);
	if (!error)
		error = fsck_records(f);
	if (error)
		return error;
	before = take_hits(f);
	error = write_all(r);
	if (!error)
		error = judge_again(r);
	if (!error)
		error = repair_condemn(r);
	if (!error)
		tell_hits(r, &before);
	return error;
}

static void on_progress(void *arg, const struct catalog_progress *p)
{
	struct repair *r = arg;

	if (r->how->progress)
		r->how->progress(r->how->arg, p);
}

int repair_contents(struct repair *r)
{
	const struct catalog_fsck how = {.read_data = true, .progress = on_progress, .arg = r};
	int error;

	r->fsck = (struct fsck){.how = &how,
				.remote = remote_ref(r->remote),
				.tree = tree_from_elsewhere,
				.hook_arg = r};
	error = pass(r);
	fsck_free(&r->fsck);
	buf_free(&r->trees);
	r->fsck = (struct fsck){0};
	r->trees = (struct buf){0};
	return error;
}

/* Repairing a remote: what was replaced is condemned, by the protocol of collection.h. */

struct condemning {
	struct repair *r;
	struct gc_list list; /* that follows */
	int64_t now_ns;
	uint64_t fresh;
};

/* Not twice: what was only seen, or is condemned already, changes its row. */
static int add(struct condemning *c, const struct hash *id, uint64_t index)
{
	struct gc_item item = {
		.id = *id, .index = index, .generation = c->list.generation, .since_ns = c->now_ns};

	for (size_t i = 0; i < c->list.count; i++) {
		struct gc_item *old = &c->list.items[i];

		if (old->index != index || !hash_equal(&old->id, id))
			continue;
		if (old->generation)
			return 0;
		*old = item;
		c->fresh++;
		return 0;
	}
	c->fresh++;
	return gc_list_add(&c->list, &item);
}

static void tell(struct repair *r, const char *key, const char *text, const char *why)
{
	cleanup_buf struct buf what = {0};

	buf_printf(&what, "%s; %s", text, why);
	repair_say(r, REPAIR_NOTE, key, "", buf_str(&what));
}

static int add_pack(void *arg, const struct hash *id, const char *key, const char *text,
		    bool wanted)
{
	struct condemning *c = arg;
	uint64_t before = c->fresh;
	int error;

	error = add(c, id, 0);
	if (error || c->fresh == before)
		return error;
	/* While an epoch names what is gone, a collection takes it off its list and does not delete it. */
	if (wanted)
		tell(c->r, key, text,
		     "condemned, so that no writer builds on it; it stays while an epoch names it");
	else
		tell(c->r, key, text,
		     "what epochs need of it lies elsewhere: condemned, epochfs gc deletes it");
	return error;
}

static int add_index(void *arg, const char *key, const char *text)
{
	struct condemning *c = arg;
	uint64_t number, before = c->fresh;
	struct hash id;
	int error = index_key_parse(key, &number, &id);

	if (!error)
		error = add(c, &id, number);
	if (!error && c->fresh > before)
		tell(c->r, key, text,
		     "the tables of packs say what it said: condemned, epochfs gc deletes it");
	return error;
}

static int collect(struct condemning *c)
{
	struct repair *r = c->r;
	const struct gc_list *old = &r->fsck.gc_list;
	int error = 0;

	for (size_t i = 0; i < old->count && !error && !r->list_damaged; i++)
		error = gc_list_add(&c->list, &old->items[i]);
	c->list.generation = r->generation + 1;
	if (!error)
		error = store_fsck_each_going(r->fsck.store, add_pack, c);
	if (!error)
		error = store_fsck_each_bad_index(r->fsck.store, add_index, c);
	return error;
}

static int publish(struct condemning *c)
{
	struct gc_list *l = &c->list;
	int error = uuid_make(l->run);

	l->condemning = l->generation;
	l->published_ns = c->now_ns;
	if (gethostname(l->host, sizeof(l->host) - 1))
		l->host[0] = '\0';
	if (!error)
		error = repair_confirm(c->r);
	if (!error)
		error = gc_lists_publish(c->r->remote, l);
	FAULT_POINT("repair.condemned");
	return error;
}

static void condemning_free(struct condemning *c)
{
	gc_list_free(&c->list);
}

int repair_condemn(struct repair *r)
{
	CLEANUP(condemning_free) struct condemning c = {.r = r, .now_ns = clock_wall_ns()};
	char key[KEY_MAX];
	int error = collect(&c);

	if (error || (!c.fresh && !r->list_damaged))
		return error;
	if (!r->how->dry_run)
		error = publish(&c);
	if (error == -EOPNOTSUPP) {
		repair_say(
			r, REPAIR_NOTE, PREFIX_GC, "",
			"the remote cannot create an object only if it is absent: nothing is condemned");
		return 0;
	}
	if (error)
		return error;
	r->totals.condemned += c.fresh;
	if (r->list_damaged) {
		gc_key(r->generation, key);
		repair_say(
			r, REPAIR_RESTORED, key, "",
			"a new list takes its place; what it had condemned is condemned again by epochfs gc");
	}
	return 0;
}
