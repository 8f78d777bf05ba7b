/* SPDX-License-Identifier: Apache-2.0 */
/* An upload beside garbage collection. */
#include "lib/upload/upload_epoch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/format/tree.h"
#include "lib/meta/collection.h"
#include "lib/store/hash_index.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

/* Up to which generation all that this machine has made durable was looked after: in the state. */
#define META_HEEDED "gc_heeded"
/* Before the record. */
#define ROUNDS_MAX 3

/* An empty list where there is none. */
static int look(struct remote *remote, struct gc_list *ret_list)
{
	int error = gc_lists_look(remote, ret_list);

	if (error == -EBADMSG)
		log_error(
			"%s: the list of garbage collection %" PRIu64
			" is damaged, and nothing is uploaded until epochfs gc has made a new one",
			remote_name(remote), ret_list->generation);
	return error == -ENOENT ? 0 : error;
}

static int heed(struct store *store, const struct gc_list *list)
{
	cleanup_free struct hash *packs = calloc(list->count + 1, sizeof(*packs));
	size_t n = 0;

	if (!packs)
		return -ENOMEM;
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].generation && !list->items[i].index)
			packs[n++] = list->items[i].id;
	return store_heed(store, list->condemning, packs, n);
}

int upload_gc_heed(struct remote *remote, struct store *store)
{
	cleanup_gc_list struct gc_list list = {0};
	int error = look(remote, &list);

	if (error || list.condemning == store_heeded(store))
		return error;
	return heed(store, &list);
}

/* ---- keeping ---- */

struct keeping {
	const struct upload_gc *u;
	struct store_batch *batch;
	struct hash *seen; /* recipes that were kept */
	size_t count, cap;
	struct hash_index seen_index;
	uint64_t lost;
};

static void keeping_free(struct keeping *k)
{
	store_batch_free(k->batch);
	free(k->seen);
	hash_index_free(&k->seen_index);
}

/* 1: the first time; 0: again. */
static int note_seen(struct keeping *k, const struct hash *recipe)
{
	int error;

	if (hash_index_find(&k->seen_index, k->seen, sizeof(*k->seen), recipe) != HASH_INDEX_NONE)
		return 0;
	if (array_reserve((void **)&k->seen, &k->cap, k->count, sizeof(*k->seen)))
		return -ENOMEM;
	k->seen[k->count] = *recipe;
	error = hash_index_add(&k->seen_index, k->seen, sizeof(*k->seen), (uint32_t)k->count);
	if (error)
		return error;
	k->count++;
	return 1;
}

/* From the bytes that are here: the same content has the same recipe. */
static int store_local(struct keeping *k, const struct hash *recipe, uint64_t size)
{
	struct hash again;
	cleanup_close int fd = k->u->local(k->u->arg, recipe, size);
	int error = fd < 0 ? fd : store_put_fd(k->batch, fd, size, &again, NULL);

	return !error && !hash_equal(&again, recipe) ? -ENODATA : error;
}

static int keep_recipe(struct keeping *k, const struct hash *recipe, uint64_t size)
{
	int error, first = note_seen(k, recipe);

	if (first <= 0)
		return first;
	error = store_batch_keep(k->batch, recipe);
	if (error != -EIO || store_batch_error(k->batch))
		return error;
	error = store_local(k, recipe, size);
	if (store_batch_error(k->batch))
		return error;
	k->lost += error != 0;
	return 0;
}

static int keep_contents(struct keeping *k)
{
	cleanup_tree_reader struct tree_reader *reader = NULL;
	struct tree_entry e;
	int got, error = tree_reader_new(k->u->tree->data, k->u->tree->len, 0, &reader);

	if (error)
		return error;
	while ((got = tree_reader_next(reader, &e)) > 0) {
		error = e.content == TREE_RECIPE ? keep_recipe(k, &e.u.recipe, e.size) : 0;
		if (error)
			return error;
	}
	return got;
}

static int keep_all(struct upload_gc *u, const struct gc_list *list)
{
	CLEANUP(keeping_free) struct keeping k = {.u = u};
	struct epoch_record *record = u->record;
	uint64_t bytes_new = record->bytes_new;
	struct store_stats stats = {0};
	int error = heed(u->store, list);

	if (!error)
		error = store_look_at_packs(u->store);
	if (!error)
		error = store_batch_begin(
			u->store, u->index_number ? u->index_number : record->number, &k.batch);
	if (!error)
		error = keep_contents(&k);
	if (!error)
		error = store_put_tree(k.batch, u->tree->data, u->tree->len, record);
	if (!error)
		error = store_batch_finish(k.batch, record, &stats);
	FAULT_POINT("upload.kept");
	if (error)
		return error;
	record->bytes_new = bytes_new; /* what is stored again is not new */
	u->lost = k.lost;
	if (k.lost)
		log_error(
			"epoch %" PRIu64 ": %" PRIu64
			" of its contents %s gone from the remote, and not here either: see epochfs verify",
			record->number, k.lost, plural_of(k.lost, "is", "are"));
	log_write(stats.stored ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG,
		  "epoch %" PRIu64 ": garbage collection had condemned what it builds on: %" PRIu64
		  " byte%s %s stored again",
		  record->number, stats.stored, plural(stats.stored),
		  plural_of(stats.stored, "was", "were"));
	return 0;
}

/* ---- up to which list ---- */

static int begin(struct upload_gc *u)
{
	int error;

	u->begun = true;
	u->heeded = 0;
	if (!u->vol)
		return 0;
	SCOPED_LOCK(&u->vol->lock);
	error = state_get_meta_u64(u->vol->state, META_HEEDED, &u->heeded);
	return error == -ENOENT ? 0 : error;
}

static int remember(const struct upload_gc *u)
{
	SCOPED_LOCK(&u->vol->lock);
	return state_set_meta_u64(u->vol->state, META_HEEDED, u->heeded);
}

/* 1: something was condemned that is not heeded yet, and all was kept from it; 0: nothing was. */
static int keep_once(struct upload_gc *u)
{
	cleanup_gc_list struct gc_list list = {0};
	int error = look(u->remote, &list);

	if (error || list.condemning <= u->heeded)
		return error;
	error = keep_all(u, &list);
	if (error)
		return error;
	u->heeded = list.condemning;
	return 1;
}

int upload_gc_keep(struct upload_gc *u, bool guarded)
{
	int error = u->begun ? 0 : begin(u), more = 1;

	if (error)
		return error;
	for (int round = 0; more > 0 && (guarded || round < ROUNDS_MAX); round++)
		more = keep_once(u);
	if (more < 0)
		return more;
	return guarded && u->heeded && u->vol ? remember(u) : 0;
}
