/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline from chunks to packs. */
#include "lib/store/batch_impl.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/format/names.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* Items that an encoder works on at once. */
#define ITEMS_TAKEN 4
/* Items for each encoder: those that it works on, and some so that feeding and placing do not stall it. */
#define ITEMS_EACH (ITEMS_TAKEN + 2)
/* An item that a long recipe made larger gives its memory back. */
#define ITEM_KEEP ((size_t)2 << 20)

int batch_error(struct store_batch *b)
{
	SCOPED_LOCK(&b->lock);
	return b->error;
}

void batch_fail(struct store_batch *b, int error)
{
	mutex_lock(&b->lock);
	if (!b->error)
		b->error = error;
	pthread_cond_broadcast(&b->changed);
	mutex_unlock(&b->lock);
	packer_fail(b->packer, error);
}

/* ---- encoding ---- */

/* Whether the pack is in the remote and long enough for the chunk. */
static int look_for_pack(struct store *s, const struct store_place *place, bool *ret_there)
{
	char key[KEY_MAX];
	uint64_t size;
	int error;

	pack_key(&place->pack, key);
	error = remote_size(s->remote, key, &size);
	if (error && error != -ENOENT)
		return error;
	*ret_there = !error && size >= (uint64_t)place->offset + place->stored_len;
	if (*ret_there)
		return 0;
	/* A remote that is not mounted looks as if all packs were gone. */
	if (remote_size(s->remote, KEY_VOLUME, &size) == -ENOENT) {
		log_error("%s: %s and %s are gone: is the remote the right one, and mounted?",
			  remote_name(s->remote), KEY_VOLUME, key);
		return -EIO;
	}
	/* After a garbage collection that is nothing to wonder at. */
	log_write(trust_generation(s->trust) ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN,
		  "%s: %s is missing or cut; what comes again of it is stored again",
		  remote_name(s->remote), key);
	return 0;
}

/* The same, but the remote is asked only where it was not lately. */
static int trust_place(struct store *s, const struct store_place *place, bool *ret_there)
{
	enum trust_pack trust = trust_of_pack(s->trust, &place->pack);
	int error = 0;

	*ret_there = trust == TRUST_SEEN;
	if (trust == TRUST_UNKNOWN) {
		error = look_for_pack(s, place, ret_there);
		if (!error)
			trust_note_pack(s->trust, &place->pack,
					*ret_there ? TRUST_SEEN : TRUST_LOST);
	}
	return error;
}

/* Whether a chunk need not be stored: the index names a place, and nothing speaks against it. */
static int look_up(struct store *s, const struct hash *chunk, bool *ret_known)
{
	struct store_place place;
	int error = s->index.get(s->index.arg, chunk, &place);

	*ret_known = false;
	if (error)
		return error == -ENOENT ? 0 : error;
	if (trust_is_damaged(s->trust, chunk, &place.pack) ||
	    trust_is_condemned(s->trust, &place.pack))
		return 0;
	return trust_place(s, &place, ret_known);
}

int batch_knows(struct store_batch *b, const struct hash *chunk, bool *ret_known)
{
	*ret_known = packer_has(b->packer, chunk);
	return *ret_known ? 0 : look_up(b->store, chunk, ret_known);
}

/* Makes the frame of an item that was hashed. */
static int encode(struct store_batch *b, struct item *it)
{
	struct filter *filter;
	bool known = false;
	int error = batch_knows(b, &it->hash, &known);

	if (error || known)
		return error;
	error = store_filter_take(b->store, &filter);
	if (error)
		return error;
	error = filter_encode_head(filter, it->plain.data, it->plain.len, &it->frame, &it->raw);
	store_filter_give(b->store, filter);
	return error;
}

/* ---- placing ---- */

static int list_in_recipe(struct batch_content *c, const struct item *it)
{
	int error = recipe_add_zeros(&c->recipe, it->zeros_before);

	return error ? error : recipe_add_chunk(&c->recipe, &it->hash, (uint32_t)it->plain.len);
}

/* In the order of feeding, one at a time. */
static int place(struct store_batch *b, struct item *it)
{
	struct frame_parts frame = {.head = it->frame.data, .head_len = it->frame.len};
	struct batch_content *c = it->content;
	int error;

	if (c && !c->error)
		c->error = list_in_recipe(c, it);
	/* It may have come before since it was looked up. */
	if (!it->frame.len || packer_has(b->packer, &it->hash))
		return 0;
	if (it->raw) {
		frame.rest = it->plain.data;
		frame.rest_len = it->plain.len;
	}
	error = packer_add(b->packer, &it->hash, &frame, (uint32_t)it->plain.len);
	if (!error && c && c->counted) {
		SCOPED_LOCK(&b->lock);
		b->fresh += it->plain.len;
	}
	return error;
}

static void give_memory_back(struct item *it)
{
	if (it->plain.cap > ITEM_KEEP)
		buf_free(&it->plain);
	if (it->frame.cap > ITEM_KEEP)
		buf_free(&it->frame);
}

static bool is_over(const struct item *it)
{
	return it->done && it->began;
}

static void drain_locked(struct store_batch *b)
{
	if (b->draining)
		return;
	b->draining = true;
	while (b->head < b->tail && is_over(&b->items[b->head % b->item_count])) {
		struct item *it = &b->items[b->head % b->item_count];
		int error = b->error;

		mutex_unlock(&b->lock);
		if (!error) {
			error = place(b, it);
			if (error)
				batch_fail(b, error);
		}
		give_memory_back(it);
		mutex_lock(&b->lock);
		it->done = it->began = false;
		if (it->content)
			it->content->drained++;
		b->head++;
		pthread_cond_broadcast(&b->changed);
	}
	b->draining = false;
	pthread_cond_broadcast(&b->changed);
}

/*
 * Begins a task: takes the oldest items that no encoder has, some of them for each of the encoders, and at most
 * ITEMS_TAKEN. With none of them the batch may be gone as soon as this returns.
 */
static unsigned take_items(struct store_batch *b, struct item *own, struct item **ret_items)
{
	unsigned count = 0;
	uint64_t share;

	SCOPED_LOCK(&b->lock);
	own->began = true;
	share = (b->tail - b->taken + b->store->threads - 1) / b->store->threads;
	while (count < ITEMS_TAKEN && count < share)
		ret_items[count++] = &b->items[b->taken++ % b->item_count];
	drain_locked(b);
	return count;
}

static int encode_items(struct store_batch *b, struct item **items, unsigned count)
{
	struct hash_job jobs[ITEMS_TAKEN];
	int error = batch_error(b);

	for (unsigned i = 0; i < count; i++)
		buf_reset(&items[i]->frame);
	if (error)
		return error;
	for (unsigned i = 0; i < count; i++)
		jobs[i] = (struct hash_job){items[i]->plain.data, items[i]->plain.len,
					    &items[i]->hash};
	remote_address_many(b->store->remote, jobs, count);
	for (unsigned i = 0; i < count && !error; i++)
		error = encode(b, items[i]);
	return error;
}

/* One for each item that was fed, whichever it then works on. */
static void item_task(struct pool_task *t)
{
	struct item *own = (struct item *)t, *items[ITEMS_TAKEN];
	struct store_batch *b = own->batch;
	unsigned count = take_items(b, own, items);
	int error;

	if (!count)
		return;
	error = encode_items(b, items, count);
	if (error)
		batch_fail(b, error);
	SCOPED_LOCK(&b->lock);
	for (unsigned i = 0; i < count; i++)
		items[i]->done = true;
	drain_locked(b);
}

/* ---- feeding ---- */

static int free_item(struct store_batch *b, struct item **ret_item)
{
	SCOPED_LOCK(&b->lock);
	while (!b->error && b->tail - b->head == b->item_count)
		cond_wait(&b->changed, &b->lock);
	*ret_item = &b->items[b->tail % b->item_count];
	return b->error;
}

int batch_feed(struct store_batch *b, struct batch_content *c, const void *data, size_t len)
{
	struct item *it;
	int error = free_item(b, &it);

	if (error)
		return error;
	buf_reset(&it->plain);
	buf_put(&it->plain, data, len);
	error = buf_error(&it->plain);
	if (error)
		return error;
	it->content = c;
	it->zeros_before = 0;
	if (c) {
		it->zeros_before = c->zeros;
		c->zeros = 0;
		c->fed++;
	}
	mutex_lock(&b->lock);
	b->tail++;
	if (c && c->counted)
		b->plain += len;
	mutex_unlock(&b->lock);
	pool_submit(b->store->encoders, &it->task);
	return 0;
}

void batch_feed_zeros(struct store_batch *b, struct batch_content *c, uint64_t len)
{
	c->zeros += len;
	SCOPED_LOCK(&b->lock);
	b->plain += len;
}

void batch_wait(struct store_batch *b, struct batch_content *c)
{
	SCOPED_LOCK(&b->lock);
	while (c->drained < c->fed)
		cond_wait(&b->changed, &b->lock);
}

int batch_drain(struct store_batch *b)
{
	SCOPED_LOCK(&b->lock);
	while (b->head < b->tail || b->draining)
		cond_wait(&b->changed, &b->lock);
	return b->error;
}

/* ---- making and ending ---- */

int store_batch_begin(struct store *s, uint64_t epoch, struct store_batch **ret_batch)
{
	size_t count = (size_t)s->threads * ITEMS_EACH;
	struct store_batch *b;
	int error = 0;

	/* What is not in the index would be stored again. */
	if (!store_index_refreshes(s))
		error = store_index_refresh(s);
	if (error)
		return error;
	b = calloc(1, sizeof(*b) + count * sizeof(b->items[0]));
	if (!b)
		return -ENOMEM;
	error = packer_new(s->remote, s->putters, s->trust, s->pack_len, &b->packer);
	if (error) {
		free(b);
		return error;
	}
	b->store = s;
	b->epoch = epoch;
	mutex_init(&b->lock, LOCK_STORE_BATCH);
	pthread_cond_init(&b->changed, NULL);
	b->item_count = count;
	for (size_t i = 0; i < count; i++) {
		b->items[i].batch = b;
		b->items[i].task.run = item_task;
	}
	*ret_batch = b;
	return 0;
}

void store_batch_free(struct store_batch *b)
{
	if (!b)
		return;
	batch_fail(b, -ECANCELED);
	batch_drain(b);
	packer_free(b->packer);
	buf_free(&b->index);
	for (size_t i = 0; i < b->item_count; i++) {
		buf_free(&b->items[i].plain);
		buf_free(&b->items[i].frame);
	}
	pthread_cond_destroy(&b->changed);
	mutex_destroy(&b->lock);
	free(b);
}

int store_batch_error(struct store_batch *b)
{
	return batch_error(b);
}

void store_batch_progress(struct store_batch *b, struct store_stats *ret_stats)
{
	uint64_t packs = packer_stored(b->packer);

	SCOPED_LOCK(&b->lock);
	*ret_stats = (struct store_stats){
		.plain = b->plain, .fresh = b->fresh, .stored = packs + b->index_len};
}
