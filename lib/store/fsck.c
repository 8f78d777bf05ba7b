/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a remote: what is there, index objects, which chunks can be had. */
#include "lib/store/fsck_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/index.h"
#include "lib/format/tree.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"
#include "lib/util/text.h"

#define READ_TRIES 3

/* ---- making and ending ---- */

int store_fsck_new(struct remote *remote, struct store_fsck **ret_fsck)
{
	struct store_fsck *f = calloc(1, sizeof(*f));
	struct store_index index;
	int error;

	if (!f)
		return -ENOMEM;
	f->remote = remote;
	index = fsck_index(f);
	mutex_init(&f->lock, LOCK_STORE_FSCK);
	error = store_open(remote, &index, 0, &f->store);
	if (error) {
		store_fsck_free(f);
		return error;
	}
	f->store->check_frames = true;
	*ret_fsck = f;
	return 0;
}

void store_fsck_free(struct store_fsck *f)
{
	if (!f)
		return;
	store_close(f->store);
	free(f->packs);
	free(f->objects);
	free(f->rows);
	free(f->by_place);
	free(f->loose);
	hash_index_free(&f->packs_by_id);
	hash_index_free(&f->rows_by_chunk);
	mutex_destroy(&f->lock);
	free(f);
}

struct store *store_fsck_store(struct store_fsck *f)
{
	return f->store;
}

bool fsck_ends(int error)
{
	return error == -ENOMEM || error == -ECANCELED || error == -ECONNREFUSED ||
	       error == -ETIMEDOUT;
}

void fsck_done(struct store_fsck *f, uint64_t bytes)
{
	SCOPED_LOCK(&f->lock);
	f->done_objects++;
	f->done_bytes += bytes;
	if (f->progress)
		f->progress(f->arg, f->done_objects, f->done_bytes);
}

/* ---- what is there ---- */

static int add_pack(struct store_fsck *f, const struct hash *id, uint64_t size, bool missing)
{
	struct fsck_pack *p;
	int error = array_reserve((void **)&f->packs, &f->pack_cap, f->pack_count, sizeof(*p));

	if (error)
		return error;
	p = &f->packs[f->pack_count];
	*p = (struct fsck_pack){.id = *id, .size = size, .missing = missing};
	error = hash_index_add(&f->packs_by_id, f->packs, sizeof(*p), (uint32_t)f->pack_count);
	if (!error)
		f->pack_count++;
	return error;
}

int fsck_pack_number(struct store_fsck *f, const struct hash *id, uint32_t *ret_number)
{
	uint32_t i = hash_index_find(&f->packs_by_id, f->packs, sizeof(*f->packs), id);
	int error = 0;

	if (i == HASH_INDEX_NONE) {
		i = (uint32_t)f->pack_count;
		error = add_pack(f, id, 0, true);
	}
	if (!error)
		*ret_number = i;
	return error;
}

int store_fsck_note(struct store_fsck *f, const char *key, uint64_t size)
{
	struct fsck_object object = {.size = size};
	struct hash id;
	uint64_t epoch;
	int error;

	if (!pack_key_parse(key, &id)) {
		error = add_pack(f, &id, size, false);
		return error ? error : 1;
	}
	if (index_key_parse(key, &epoch, &object.id))
		return 0;
	strcpy(object.key, key); /* index_key_parse knows its length */
	error = array_reserve((void **)&f->objects, &f->object_cap, f->object_count,
			      sizeof(object));
	if (error)
		return error;
	f->objects[f->object_count++] = object;
	return 1;
}

void store_fsck_size(const struct store_fsck *f, bool read_data, uint64_t *ret_objects,
		     uint64_t *ret_bytes)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < f->object_count; i++)
		bytes += f->objects[i].size;
	for (size_t i = 0; read_data && i < f->pack_count; i++)
		bytes += f->packs[i].size;
	*ret_objects = f->object_count + f->pack_count;
	*ret_bytes = bytes;
}

/* ---- index objects ---- */

static int get_object(struct store_fsck *f, const struct fsck_object *o, struct buf *out)
{
	int error = -EBADMSG;

	for (int tries = 0; error == -EBADMSG && tries < READ_TRIES; tries++) {
		struct hash hash;

		buf_reset(out);
		error = remote_get(f->remote, o->key, 0, REMOTE_TO_END, out);
		if (error)
			break;
		hash_of(out->data, out->len, &hash);
		if (!hash_equal(&hash, &o->id))
			error = -EBADMSG;
	}
	return error;
}

int fsck_add_row(struct store_fsck *f, const struct fsck_row *row)
{
	uint32_t i, number = (uint32_t)f->row_count;
	int error = array_reserve((void **)&f->rows, &f->row_cap, f->row_count, sizeof(*row));

	if (error || f->row_count >= ROW_NONE - 1)
		return error ? error : -ENOMEM;
	i = hash_index_find(&f->rows_by_chunk, f->rows, sizeof(*row), &row->chunk);
	f->rows[number] = *row;
	f->rows[number].next = i == HASH_INDEX_NONE ? ROW_NONE : f->rows[i].next;
	if (i != HASH_INDEX_NONE)
		f->rows[i].next = number;
	else
		error = hash_index_add(&f->rows_by_chunk, f->rows, sizeof(*row), number);
	if (!error)
		f->row_count++;
	return error;
}

static int add_row(struct store_fsck *f, const struct hash *pack, const struct pack_entry *e)
{
	struct fsck_row row = {.chunk = e->hash,
			       .offset = e->offset,
			       .stored_len = e->stored_len,
			       .plain_len = e->plain_len};
	int error = fsck_pack_number(f, pack, &row.pack);

	return error ? error : fsck_add_row(f, &row);
}

/* Of an object that turns out damaged, nothing is taken: so it is read through once before. */
static int add_rows(struct store_fsck *f, const struct buf *data)
{
	for (int pass = 0; pass < 2; pass++) {
		struct index_reader reader;
		struct pack_entry e;
		struct hash pack;
		int got, error = index_reader_init(&reader, data->data, data->len);

		if (error)
			return error;
		while ((got = index_reader_next(&reader, &pack, &e)) > 0) {
			error = pass ? add_row(f, &pack, &e) : 0;
			if (error)
				return error;
		}
		if (got)
			return got;
	}
	return 0;
}

static int read_objects(struct store_fsck *f)
{
	for (size_t i = 0; i < f->object_count; i++) {
		struct fsck_object *o = &f->objects[i];
		cleanup_buf struct buf data = {0};
		int error = get_object(f, o, &data);

		o->first_row = f->row_count;
		if (!error)
			error = add_rows(f, &data);
		if (fsck_ends(error))
			return error;
		/* Merged with others since it was listed: these had been put before. */
		o->error = error == -ENOENT ? 0 : error;
		o->row_count = f->row_count - o->first_row;
		fsck_done(f, o->size);
	}
	return 0;
}

/* ---- all ---- */

static int compare_rows(const void *a, const void *b, void *arg)
{
	const struct store_fsck *f = arg;
	const struct fsck_row *x = &f->rows[*(const uint32_t *)a];
	const struct fsck_row *y = &f->rows[*(const uint32_t *)b];

	if (x->pack != y->pack)
		return x->pack < y->pack ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

static int sort_by_place(struct store_fsck *f)
{
	f->by_place = calloc(f->row_count + 1, sizeof(*f->by_place));
	if (!f->by_place)
		return -ENOMEM;
	for (size_t i = 0; i < f->row_count; i++)
		f->by_place[i] = (uint32_t)i;
	qsort_r(f->by_place, f->row_count, sizeof(*f->by_place), compare_rows, f);
	for (size_t i = 0; i < f->row_count; i++) {
		struct fsck_pack *p = &f->packs[f->rows[f->by_place[i]].pack];

		if (!p->row_count++)
			p->first_row = i;
	}
	return 0;
}

int store_fsck_read(struct store_fsck *f, bool read_data, store_fsck_progress progress, void *arg)
{
	int error;

	f->progress = progress;
	f->arg = arg;
	error = read_objects(f);
	if (!error)
		error = sort_by_place(f);
	return error ? error : fsck_read_packs(f, read_data);
}

/* ---- what came of it ---- */

bool store_fsck_pack(const struct store_fsck *f, size_t pack, char ret_key[KEY_MAX],
		     char ret_text[STORE_FSCK_TEXT])
{
	const struct fsck_pack *p = &f->packs[pack];

	pack_key(&p->id, ret_key);
	/* What an old index object names may have gone since, unless somebody needs it. */
	if (p->missing && !atomic_load(&p->needed))
		return false;
	if (p->missing)
		snprintf(ret_text, STORE_FSCK_TEXT, "is missing");
	else if (p->error)
		snprintf(ret_text, STORE_FSCK_TEXT, "cannot be read: %s", strerror(-p->error));
	else if (p->damaged)
		snprintf(ret_text, STORE_FSCK_TEXT,
			 "%" PRIu32 " damaged chunk%s, the first at byte %" PRIu32, p->damaged,
			 plural(p->damaged), p->damaged_at);
	else if (p->cut)
		snprintf(ret_text, STORE_FSCK_TEXT, "is cut off");
	else if (p->table_damaged)
		snprintf(ret_text, STORE_FSCK_TEXT, "its table is damaged");
	else if (p->unlike)
		snprintf(ret_text, STORE_FSCK_TEXT, "holds other chunks than the index says");
	else
		return false;
	return true;
}

bool store_fsck_needed(const struct store_fsck *f, size_t pack)
{
	return atomic_load(&f->packs[pack].needed);
}

bool store_fsck_index(const struct store_fsck *f, size_t object, char ret_key[KEY_MAX],
		      char ret_text[STORE_FSCK_TEXT])
{
	const struct fsck_object *o = &f->objects[object];

	strcpy(ret_key, o->key);
	if (!o->error)
		return false;
	if (o->error == -EBADMSG)
		snprintf(ret_text, STORE_FSCK_TEXT, "is damaged");
	else if (o->error == -EPROTONOSUPPORT)
		snprintf(ret_text, STORE_FSCK_TEXT, "is of a newer version of epochfs");
	else
		snprintf(ret_text, STORE_FSCK_TEXT, "cannot be read: %s", strerror(-o->error));
	return true;
}

bool store_fsck_has_index(const struct store_fsck *f, const char *key)
{
	for (size_t i = 0; i < f->object_count; i++)
		if (!strcmp(f->objects[i].key, key))
			return true;
	return false;
}

static bool object_needed(const struct store_fsck *f, const struct fsck_object *o)
{
	for (size_t i = o->first_row; i < o->first_row + o->row_count; i++)
		if (atomic_load(&f->packs[f->rows[i].pack].needed))
			return true;
	return o->error != 0;
}

void store_fsck_get_totals(const struct store_fsck *f, struct store_fsck_totals *ret_totals)
{
	struct store_fsck_totals t = {.packs = f->pack_count,
				      .index_objects = f->object_count,
				      .chunks = f->rows_by_chunk.count};

	for (size_t i = 0; i < f->pack_count; i++) {
		t.packs_there += !f->packs[i].missing;
		t.bytes += f->packs[i].size;
		t.orphans += !f->packs[i].missing && !atomic_load(&f->packs[i].needed);
	}
	for (size_t i = 0; i < f->object_count; i++) {
		t.bytes += f->objects[i].size;
		t.orphans += !object_needed(f, &f->objects[i]);
	}
	*ret_totals = t;
}

/* ---- Verifying a remote: index objects that came with the tree of an epoch. ---- */

/* A batch stores the tree last: its first chunk is among this many of the last ones. */
#define LAST_CHUNKS 64

static int look(void *arg, size_t segment, const void *plain, size_t len)
{
	bool *begins = arg;

	(void)segment;
	*begins = tree_begins(plain, len);
	return 0;
}

/* Whether the chunk is the beginning of a tree. What cannot be read is not: it is reported elsewhere. */
static int begins_tree(struct store_fsck *f, const struct fsck_row *row, bool *ret_begins)
{
	cleanup_recipe struct recipe one = {0};
	struct store_failure failure = {0};
	struct fsck_pack *p = &f->packs[row->pack];
	bool needed = atomic_load(&p->needed);
	int error = recipe_add_chunk(&one, &row->chunk, row->plain_len);

	*ret_begins = false;
	if (!error)
		error = store_get_segments(f->store, &one, 0, 1, look, ret_begins, &failure);
	/* To be looked at is not to be needed. */
	atomic_store(&p->needed, needed);
	return error && fsck_ends(error) ? error : 0;
}

int store_fsck_has_tree(struct store_fsck *f, size_t object,
			bool (*known)(void *arg, const struct hash *chunk), void *arg,
			bool *ret_has)
{
	const struct fsck_object *o = &f->objects[object];
	size_t last = o->row_count < LAST_CHUNKS ? o->row_count : LAST_CHUNKS;

	*ret_has = false;
	for (size_t i = 1; i <= last && !*ret_has; i++) {
		const struct fsck_row *row = &f->rows[o->first_row + o->row_count - i];
		int error = 0;

		if (!row->bad && !known(arg, &row->chunk))
			error = begins_tree(f, row, ret_has);
		if (error)
			return error;
	}
	return 0;
}

bool store_fsck_index_epoch(const struct store_fsck *f, size_t object, char ret_key[KEY_MAX],
			    uint64_t *ret_epoch)
{
	struct hash id;

	if (object >= f->object_count)
		return false;
	strcpy(ret_key, f->objects[object].key);
	if (index_key_parse(ret_key, ret_epoch, &id))
		*ret_epoch = 0;
	return true;
}
