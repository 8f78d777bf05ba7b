/* SPDX-License-Identifier: Apache-2.0 */
/* From frames to packs in the remote. */
#include "lib/store/batch_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/chunk.h"
#include "lib/format/index.h"
#include "lib/format/names.h"
#include "lib/format/pack.h"
#include "lib/store/hash_index.h"
#include "lib/store/store.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* What a pack may grow beyond its length: a chunk, and its table. */
#define PACK_SPARE ((size_t)2 << 20)

/* A pack on its way: being filled, then being put. */
struct open_pack {
	struct pool_task task;
	struct packer *owner;
	struct buf data;
	struct pack_table table;
	struct hash id;
};

/* A closed pack; its chunks are entries [first, first + count). */
struct closed_pack {
	struct hash id;
	size_t first;
	size_t count;
};

struct packer {
	struct remote *remote;
	struct pool *putters;
	struct trust *trust;
	size_t pack_len;
	uint64_t generation; /* of garbage collection */

	/* Only the adding thread's: */
	struct open_pack *current;

	/* Guards what follows; nothing is locked under it. `changed` tells of under_way and error. */
	struct mutex lock;
	pthread_cond_t changed;
	int error;
	unsigned under_way; /* packs in memory */
	uint64_t stored;
	struct pack_entry *entries; /* of all packs, in the order of packs and offsets */
	size_t count, cap;
	struct hash_index by_hash;
	struct closed_pack *packs;
	size_t pack_count, pack_cap;
	size_t current_first; /* the first entry of the pack being filled */
	/* Buffers of packs that were put, for the next ones: fresh memory costs a page fault every 4 KiB. */
	struct buf spare[PACKER_PACKS];
	unsigned spare_count;
};

int packer_new(struct remote *remote, struct pool *putters, struct trust *trust, size_t pack_len,
	       struct packer **ret_packer)
{
	struct packer *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	p->remote = remote;
	p->putters = putters;
	p->trust = trust;
	p->pack_len = pack_len;
	p->generation = trust_generation(trust);
	mutex_init(&p->lock, LOCK_STORE_PACKER);
	pthread_cond_init(&p->changed, NULL);
	*ret_packer = p;
	return 0;
}

static void open_pack_free(struct open_pack *o)
{
	if (!o)
		return;
	buf_free(&o->data);
	pack_table_free(&o->table);
	free(o);
}

/* The same, but its buffer is kept for another pack. */
static void open_pack_recycle_locked(struct packer *p, struct open_pack *o)
{
	if (p->spare_count < PACKER_PACKS) {
		p->spare[p->spare_count] = o->data;
		p->spare[p->spare_count++].len = 0;
		o->data = (struct buf){0};
	}
	open_pack_free(o);
}

static struct buf spare_take(struct packer *p)
{
	SCOPED_LOCK(&p->lock);
	return p->spare_count ? p->spare[--p->spare_count] : (struct buf){0};
}

void packer_free(struct packer *p)
{
	if (!p)
		return;
	mutex_lock(&p->lock);
	while (p->under_way > (p->current ? 1u : 0u))
		cond_wait(&p->changed, &p->lock);
	mutex_unlock(&p->lock);
	open_pack_free(p->current);
	while (p->spare_count)
		buf_free(&p->spare[--p->spare_count]);
	free(p->entries);
	free(p->packs);
	hash_index_free(&p->by_hash);
	pthread_cond_destroy(&p->changed);
	mutex_destroy(&p->lock);
	free(p);
}

void packer_fail(struct packer *p, int error)
{
	SCOPED_LOCK(&p->lock);
	if (!p->error)
		p->error = error;
	pthread_cond_broadcast(&p->changed);
}

bool packer_has(struct packer *p, const struct hash *chunk)
{
	SCOPED_LOCK(&p->lock);
	return hash_index_find(&p->by_hash, p->entries, sizeof(*p->entries), chunk) !=
	       HASH_INDEX_NONE;
}

uint64_t packer_stored(struct packer *p)
{
	SCOPED_LOCK(&p->lock);
	return p->stored;
}

/* ---- putting ---- */

/* Whether the remote has this very pack already, as far as its length and its table tell. */
static bool is_there(struct packer *p, const char *key, const struct open_pack *o)
{
	size_t tail = o->table.count * PACK_ROW_LEN + PACK_FOOTER_LEN;
	cleanup_buf struct buf found = {0};
	uint64_t size;

	if (remote_size(p->remote, key, &size) || size != o->data.len)
		return false;
	if (remote_get(p->remote, key, size - tail, tail, &found) || found.len != tail)
		return false;
	return !memcmp(found.data, o->data.data + o->data.len - tail, tail);
}

static int put_pack(struct packer *p, struct open_pack *o)
{
	char key[KEY_MAX];
	int error;

	pack_key(&o->id, key);
	if (is_there(p, key, o)) {
		log_debug("%s is there already", key);
		return 0;
	}
	error = remote_put(p->remote, key, o->data.data, o->data.len);
	if (!error)
		FAULT_POINT("store.pack_put");
	return error;
}

static void put_task(struct pool_task *t)
{
	struct open_pack *o = (struct open_pack *)t;
	struct packer *p = o->owner;
	uint64_t len = o->data.len;
	bool failed;
	int error = 0;

	mutex_lock(&p->lock);
	failed = p->error;
	mutex_unlock(&p->lock);
	if (!failed)
		error = put_pack(p, o);
	if (!failed && !error)
		trust_note_pack(p->trust, &o->id, TRUST_SEEN);
	mutex_lock(&p->lock);
	open_pack_recycle_locked(p, o);
	if (!failed && !error)
		p->stored += len;
	if (error && !p->error)
		p->error = error;
	p->under_way--;
	pthread_cond_broadcast(&p->changed);
	mutex_unlock(&p->lock);
}

/* ---- filling ---- */

static int close_locked(struct packer *p, const struct hash *id)
{
	size_t cap = p->pack_cap ? p->pack_cap * 2 : 16;
	struct closed_pack *packs;

	if (p->pack_count == p->pack_cap) {
		packs = reallocarray(p->packs, cap, sizeof(*packs));
		if (!packs)
			return -ENOMEM;
		p->packs = packs;
		p->pack_cap = cap;
	}
	p->packs[p->pack_count++] = (struct closed_pack){
		.id = *id, .first = p->current_first, .count = p->count - p->current_first};
	p->current_first = p->count;
	return 0;
}

/* The pack's last frame says the generation: see batch_impl.h. */
static int add_generation(const struct packer *p, struct open_pack *o)
{
	struct chunk_header h = {.codec = CHUNK_CODEC_RAW, .word = 1, .planes = 1, .raw_mask = 1};
	size_t start = o->data.len;
	struct hash hash;
	char text[64];
	int error;

	if (!p->generation)
		return 0;
	h.plain_len =
		(uint32_t)snprintf(text, sizeof(text), "epochfs gc %" PRIu64 "\n", p->generation);
	h.plane_len[0] = h.plain_len;
	error = chunk_frame_encode(&h, text, &o->data);
	if (error)
		return error;
	remote_address(p->remote, text, h.plain_len, &hash);
	return pack_table_add(&o->table, &hash, (uint32_t)(o->data.len - start), h.plain_len);
}

static int close_current(struct packer *p)
{
	struct open_pack *o = p->current;
	int error = add_generation(p, o);

	if (!error)
		error = pack_finish(&o->table, &o->data);

	if (!error)
		error = pack_table_id(&o->table, &o->id);
	if (!error) {
		SCOPED_LOCK(&p->lock);
		error = close_locked(p, &o->id);
	}
	if (error) {
		packer_fail(p, error);
		return error;
	}
	p->current = NULL;
	pool_submit(p->putters, &o->task);
	return 0;
}

static int wait_for_room(struct packer *p)
{
	SCOPED_LOCK(&p->lock);
	while (!p->error && p->under_way >= PACKER_PACKS)
		cond_wait(&p->changed, &p->lock);
	if (!p->error)
		p->under_way++;
	return p->error;
}

static int open_current(struct packer *p)
{
	int error = wait_for_room(p);

	if (error)
		return error;
	p->current = calloc(1, sizeof(*p->current));
	if (p->current)
		p->current->data = spare_take(p);
	/* All at once, and so much that malloc maps it: freed, it is the system's again. */
	if (!p->current || buf_reserve(&p->current->data, p->pack_len + PACK_SPARE) < 0) {
		open_pack_free(p->current);
		p->current = NULL;
		mutex_lock(&p->lock);
		p->under_way--;
		mutex_unlock(&p->lock);
		packer_fail(p, -ENOMEM);
		return -ENOMEM;
	}
	p->current->owner = p;
	p->current->task.run = put_task;
	pack_begin(&p->current->data);
	return 0;
}

static int note_locked(struct packer *p, const struct pack_entry *e)
{
	size_t cap = p->cap ? p->cap * 2 : 256;
	struct pack_entry *entries;
	int error;

	if (p->count == p->cap) {
		entries = reallocarray(p->entries, cap, sizeof(*entries));
		if (!entries)
			return -ENOMEM;
		p->entries = entries;
		p->cap = cap;
	}
	p->entries[p->count] = *e;
	error = hash_index_add(&p->by_hash, p->entries, sizeof(*p->entries), (uint32_t)p->count);
	if (!error)
		p->count++;
	return error;
}

static int append(struct packer *p, const struct hash *chunk, const struct frame_parts *frame,
		  uint32_t plain_len)
{
	struct open_pack *o = p->current;
	int error;

	buf_put(&o->data, frame->head, frame->head_len);
	buf_put(&o->data, frame->rest, frame->rest_len);
	error = buf_error(&o->data);
	if (!error)
		error = pack_table_add(&o->table, chunk,
				       (uint32_t)(frame->head_len + frame->rest_len), plain_len);
	if (error)
		return error;
	SCOPED_LOCK(&p->lock);
	return note_locked(p, &o->table.entries[o->table.count - 1]);
}

int packer_add(struct packer *p, const struct hash *chunk, const struct frame_parts *frame,
	       uint32_t plain_len)
{
	int error = 0;

	if (!p->current)
		error = open_current(p);
	if (error)
		return error;
	error = append(p, chunk, frame, plain_len);
	if (error) {
		packer_fail(p, error);
		return error;
	}
	return p->current->data.len >= p->pack_len ? close_current(p) : 0;
}

int packer_flush(struct packer *p)
{
	int error = p->current ? close_current(p) : 0;

	if (error)
		return error;
	SCOPED_LOCK(&p->lock);
	while (p->under_way)
		cond_wait(&p->changed, &p->lock);
	return p->error;
}

/* ---- what came of it ---- */

static const struct closed_pack *pack_of(const struct packer *p, size_t entry)
{
	size_t low = 0, high = p->pack_count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (p->packs[middle].first <= entry)
			low = middle;
		else
			high = middle;
	}
	return &p->packs[low];
}

static struct store_place place_of(const struct packer *p, size_t entry)
{
	const struct pack_entry *e = &p->entries[entry];

	return (struct store_place){.pack = pack_of(p, entry)->id,
				    .offset = e->offset,
				    .stored_len = e->stored_len,
				    .plain_len = e->plain_len};
}

bool packer_place(struct packer *p, const struct hash *chunk, struct store_place *ret_place)
{
	uint32_t i;

	SCOPED_LOCK(&p->lock);
	i = hash_index_find(&p->by_hash, p->entries, sizeof(*p->entries), chunk);
	if (i == HASH_INDEX_NONE)
		return false;
	*ret_place = place_of(p, i);
	return true;
}

size_t packer_count(const struct packer *p)
{
	return p->count;
}

void packer_chunks(const struct packer *p, struct hash *ret_chunks, struct store_place *ret_places)
{
	for (size_t i = 0; i < p->count; i++) {
		ret_chunks[i] = p->entries[i].hash;
		ret_places[i] = place_of(p, i);
	}
}

int packer_index(const struct packer *p, struct buf *out)
{
	cleanup_free struct index_pack *packs = NULL;

	if (!p->pack_count)
		return -EINVAL;
	packs = calloc(p->pack_count, sizeof(*packs));
	if (!packs)
		return -ENOMEM;
	for (size_t i = 0; i < p->pack_count; i++)
		packs[i] = (struct index_pack){.id = p->packs[i].id,
					       .entries = p->entries + p->packs[i].first,
					       .count = p->packs[i].count};
	return index_encode(packs, p->pack_count, out);
}
