/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a remote: packs that no index object names are named again, and what lies in damaged ones can be stored again. */
#include "lib/store/fsck_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/index.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"

/* What was written is read back in portions of so many chunks. */
#define CHECK_WINDOW 4096

/* ---- what goes ---- */

static bool is_damaged(const struct fsck_pack *p)
{
	return !p->missing && !p->error && (p->damaged || p->cut || p->table_damaged || p->unlike);
}

static int heed(struct store_fsck *f, uint64_t generation)
{
	cleanup_free struct hash *packs = calloc(f->pack_count + 1, sizeof(*packs));
	size_t n = 0;

	if (!packs)
		return -ENOMEM;
	for (size_t i = 0; i < f->pack_count; i++)
		if (f->packs[i].goes)
			packs[n++] = f->packs[i].id;
	return store_heed(f->store, generation, packs, n);
}

int store_fsck_mend(struct store_fsck *f, uint64_t generation, const struct hash *condemned,
		    size_t count)
{
	int error = 0;

	for (size_t i = 0; i < f->pack_count; i++)
		f->packs[i].goes = is_damaged(&f->packs[i]);
	for (size_t i = 0; i < count; i++) {
		uint32_t k = hash_index_find(&f->packs_by_id, f->packs, sizeof(*f->packs),
					     &condemned[i]);

		if (k != HASH_INDEX_NONE)
			f->packs[k].goes = true;
	}
	for (size_t i = 0; i < f->loose_count && !error; i++)
		error = fsck_add_row(f, &f->loose[i]);
	f->loose_count = 0;
	f->repairing = true;
	if (!error)
		error = heed(f, generation);
	return error ? error : store_look_at_packs(f->store);
}

void store_fsck_forget_needs(struct store_fsck *f)
{
	for (size_t i = 0; i < f->pack_count; i++) {
		atomic_store(&f->packs[i].needed, false);
		atomic_store(&f->packs[i].wanted, false);
	}
}

int store_fsck_each_going(const struct store_fsck *f,
			  int (*fn)(void *arg, const struct hash *id, const char *key,
				    const char *text, bool wanted),
			  void *arg)
{
	for (size_t i = 0; i < f->pack_count; i++) {
		const struct fsck_pack *p = &f->packs[i];
		char key[KEY_MAX], text[STORE_FSCK_TEXT];
		int result;

		if (!is_damaged(p) || !store_fsck_pack(f, i, key, text))
			continue;
		result = fn(arg, &p->id, key, text, atomic_load(&p->wanted));
		if (result)
			return result;
	}
	return 0;
}

int store_fsck_each_bad_index(const struct store_fsck *f,
			      int (*fn)(void *arg, const char *key, const char *text), void *arg)
{
	for (size_t i = 0; i < f->object_count; i++) {
		char key[KEY_MAX], text[STORE_FSCK_TEXT];
		int result;

		if (f->objects[i].error != -EBADMSG || !store_fsck_index(f, i, key, text))
			continue;
		result = fn(arg, key, text);
		if (result)
			return result;
	}
	return 0;
}

/* ---- index objects ---- */

static uint64_t next_number(const struct store_fsck *f, uint64_t number)
{
	for (size_t i = 0; i < f->object_count; i++) {
		struct hash id;
		uint64_t n;

		if (!index_key_parse(f->objects[i].key, &n, &id) && n > number)
			number = n;
	}
	return number < INT64_MAX ? number + 1 : number;
}

static int compare_loose(const void *a, const void *b)
{
	const struct fsck_row *x = a, *y = b;

	if (x->pack != y->pack)
		return x->pack < y->pack ? -1 : 1;
	return (x->offset > y->offset) - (x->offset < y->offset);
}

/* The loose rows of packs that are to be named, by place; they are no longer loose. */
static size_t take_loose(struct store_fsck *f, struct fsck_row *rows)
{
	size_t n = 0;

	for (size_t i = 0; i < f->row_count; i++) {
		if (!f->rows[i].loose || !atomic_load(&f->packs[f->rows[i].pack].unnamed))
			continue;
		rows[n++] = f->rows[i];
		f->rows[i].loose = false;
	}
	if (n)
		qsort(rows, n, sizeof(*rows), compare_loose);
	return n;
}

static int encode(const struct store_fsck *f, const struct fsck_row *rows, size_t count,
		  struct buf *out, size_t *ret_packs)
{
	cleanup_free struct pack_entry *entries = calloc(count, sizeof(*entries));
	cleanup_free struct index_pack *packs = calloc(count, sizeof(*packs));
	size_t n = 0;

	if (!entries || !packs)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		entries[i] = (struct pack_entry){rows[i].chunk, rows[i].offset, rows[i].stored_len,
						 rows[i].plain_len};
		if (!i || rows[i].pack != rows[i - 1].pack)
			packs[n++] = (struct index_pack){f->packs[rows[i].pack].id, &entries[i], 0};
		packs[n - 1].count++;
	}
	*ret_packs = n;
	return index_encode(packs, n, out);
}

int store_fsck_name(struct store_fsck *f, uint64_t number, char ret_key[KEY_MAX], size_t *ret_packs)
{
	cleanup_free struct fsck_row *rows = calloc(f->row_count + 1, sizeof(*rows));
	cleanup_buf struct buf data = {0};
	size_t count, packs = 0;
	struct hash id;
	int error;

	if (!rows)
		return -ENOMEM;
	count = take_loose(f, rows);
	*ret_packs = 0;
	if (!count)
		return 0;
	error = encode(f, rows, count, &data, &packs);
	if (error)
		return error;
	hash_of(data.data, data.len, &id);
	index_key(next_number(f, number), &id, ret_key);
	error = remote_put(f->remote, ret_key, data.data, data.len);
	FAULT_POINT("repair.named");
	if (!error)
		*ret_packs = packs;
	return error;
}

size_t store_fsck_unnamed(const struct store_fsck *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->pack_count; i++)
		n += atomic_load(&f->packs[i].unnamed);
	return n;
}

int store_fsck_batch(struct store_fsck *f, uint64_t number, struct store_batch **ret_batch)
{
	return store_batch_begin(f->store, next_number(f, number), ret_batch);
}

/* ---- what was written ---- */

static int nothing_to_do(void *arg, size_t number, const void *plain, size_t len)
{
	(void)arg, (void)number, (void)plain, (void)len;
	return 0;
}

static int read_some(struct store_fsck *f, struct wanted *wanted, size_t count, bool *ret_bad)
{
	int error = store_chunks_read_placed(f->store, wanted, count, nothing_to_do, NULL);

	for (size_t i = 0; i < count && !error; i++) {
		if (wanted[i].state == WANTED_DONE)
			continue;
		f->rows[wanted[i].number].bad = true;
		*ret_bad = true;
	}
	return error;
}

int store_fsck_read_back(struct store_fsck *f)
{
	cleanup_free struct wanted *wanted = calloc(CHECK_WINDOW, sizeof(*wanted));
	bool bad = false;
	size_t n = 0;
	int error = wanted ? 0 : -ENOMEM;

	for (size_t i = 0; i < f->row_count && !error; i++) {
		const struct fsck_row *row = &f->rows[i];
		const struct fsck_pack *p = &f->packs[row->pack];

		if (!p->written)
			continue;
		wanted[n++] = (struct wanted){
			.hash = row->chunk,
			.number = i,
			.state = WANTED_PLACED,
			.place = {p->id, row->offset, row->stored_len, row->plain_len}};
		if (n < CHECK_WINDOW)
			continue;
		error = read_some(f, wanted, n, &bad);
		n = 0;
	}
	if (!error && n)
		error = read_some(f, wanted, n, &bad);
	return !error && bad ? -EIO : error;
}
