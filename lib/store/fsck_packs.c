/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a remote: the packs' tables, and their chunks. */
#include "lib/store/fsck_impl.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/format/pack.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"

#define READ_TRIES 3
/* Of a pack's end so much is read at first: the table of nearly all packs. */
#define TAIL_LEN ((uint64_t)16 << 10)

/* ---- one pack's table ---- */

static int get_span(struct store_fsck *f, const char *key, uint64_t offset, uint64_t len,
		    struct buf *out)
{
	int error;

	buf_reset(out);
	error = remote_get(f->remote, key, offset, len, out);
	if (!error && out->len != len)
		error = -EBADMSG;
	return error;
}

static int get_table(struct store_fsck *f, const struct fsck_pack *p, struct pack_table *ret_table)
{
	uint64_t tail = p->size < TAIL_LEN ? p->size : TAIL_LEN;
	cleanup_buf struct buf data = {0};
	struct pack_footer footer;
	struct hash id;
	char key[KEY_MAX];
	int error;

	pack_key(&p->id, key);
	if (p->size < PACK_FOOTER_LEN)
		return -EBADMSG;
	error = get_span(f, key, p->size - tail, tail, &data);
	if (!error)
		error = pack_footer_decode(data.data + tail - PACK_FOOTER_LEN, p->size, &footer);
	if (error)
		return error;
	if (p->size - footer.table_offset > tail) {
		tail = p->size - footer.table_offset;
		error = get_span(f, key, footer.table_offset, tail, &data);
		if (error)
			return error;
	}
	error = pack_table_decode(&footer, data.data + (tail - (p->size - footer.table_offset)),
				  ret_table);
	if (!error)
		error = pack_table_id(ret_table, &id);
	if (!error && !hash_equal(&id, &p->id)) {
		pack_table_free(ret_table);
		error = -EBADMSG;
	}
	return error;
}

static int get_table_stubbornly(struct store_fsck *f, const struct fsck_pack *p,
				struct pack_table *ret_table)
{
	int error = -EBADMSG;

	for (int tries = 0; error == -EBADMSG && tries < READ_TRIES; tries++)
		error = get_table(f, p, ret_table);
	return error;
}

/* ---- the index against the table ---- */

static struct fsck_row *row_at(const struct store_fsck *f, const struct fsck_pack *p, size_t i)
{
	return &f->rows[f->by_place[p->first_row + i]];
}

static const struct pack_entry *entry_at(const struct pack_table *t, uint32_t offset)
{
	size_t low = 0, high = t->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->entries[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < t->count && t->entries[low].offset == offset ? &t->entries[low] : NULL;
}

static void compare_with_table(struct store_fsck *f, struct fsck_pack *p,
			       const struct pack_table *t)
{
	for (size_t i = 0; i < p->row_count; i++) {
		struct fsck_row *row = row_at(f, p, i);
		const struct pack_entry *e = entry_at(t, row->offset);

		if (e && hash_equal(&e->hash, &row->chunk) && e->stored_len == row->stored_len &&
		    e->plain_len == row->plain_len)
			continue;
		row->bad = true;
		p->unlike = true;
	}
}

/* Without a table: what lies beyond the pack's end is not there. */
static void compare_with_length(struct store_fsck *f, struct fsck_pack *p)
{
	for (size_t i = 0; i < p->row_count; i++) {
		struct fsck_row *row = row_at(f, p, i);

		if ((uint64_t)row->offset + row->stored_len <= p->size)
			continue;
		row->bad = true;
		p->cut = true;
	}
}

static void mark_all_bad(struct store_fsck *f, struct fsck_pack *p)
{
	for (size_t i = 0; i < p->row_count; i++)
		row_at(f, p, i)->bad = true;
}

/* Reads the table and holds the rows against it. ret_table is empty where the table is damaged. */
static int check_table(struct store_fsck *f, struct fsck_pack *p, struct pack_table *ret_table)
{
	int error = p->missing ? 0 : get_table_stubbornly(f, p, ret_table);

	if (fsck_ends(error))
		return error;
	if (error == -ENOENT)
		p->missing = true; /* gone since it was listed */
	if (p->missing || (error && error != -EBADMSG)) {
		p->error = p->missing ? 0 : error;
		mark_all_bad(f, p);
	} else if (error) {
		p->table_damaged = true;
		compare_with_length(f, p);
	} else {
		compare_with_table(f, p, ret_table);
	}
	return 0;
}

static int table_round(void *arg, size_t i)
{
	cleanup_pack_table struct pack_table table = {0};
	struct store_fsck *f = arg;
	int error = check_table(f, &f->packs[i], &table);

	if (!error)
		fsck_done(f, 0);
	return error;
}

/* ---- one pack's chunks ---- */

static struct wanted want(const struct fsck_pack *p, const struct hash *chunk, uint32_t offset,
			  uint32_t stored_len, uint32_t plain_len)
{
	return (struct wanted){.hash = *chunk,
			       .state = WANTED_PLACED,
			       .place = {p->id, offset, stored_len, plain_len}};
}

static int nothing_to_do(void *arg, size_t number, const void *plain, size_t len)
{
	(void)arg, (void)number, (void)plain, (void)len;
	return 0;
}

static void note_damage(struct fsck_pack *p, uint32_t offset)
{
	if (!p->damaged || offset < p->damaged_at)
		p->damaged_at = offset;
	p->damaged++;
}

/* Rows that lie where a chunk is damaged. */
static void mark_bad_at(struct store_fsck *f, struct fsck_pack *p, uint32_t offset)
{
	for (size_t i = 0; i < p->row_count; i++)
		if (row_at(f, p, i)->offset == offset)
			row_at(f, p, i)->bad = true;
}

/* By the table where there is one, else by the index. */
static size_t want_all(struct store_fsck *f, const struct fsck_pack *p, const struct pack_table *t,
		       struct wanted *wanted)
{
	size_t n = 0;

	for (size_t i = 0; i < t->count; i++) {
		const struct pack_entry *e = &t->entries[i];

		wanted[n++] = want(p, &e->hash, e->offset, e->stored_len, e->plain_len);
	}
	for (size_t i = 0; !t->count && i < p->row_count; i++) {
		const struct fsck_row *row = row_at(f, p, i);

		if (!row->bad)
			wanted[n++] =
				want(p, &row->chunk, row->offset, row->stored_len, row->plain_len);
	}
	return n;
}

static int check_header(struct store_fsck *f, struct fsck_pack *p)
{
	cleanup_buf struct buf head = {0};
	char key[KEY_MAX];
	int error;

	pack_key(&p->id, key);
	error = get_span(f, key, 0, PACK_HEADER_LEN, &head);
	if (!error)
		error = pack_header_check(head.data);
	if (error == -EBADMSG)
		note_damage(p, 0);
	return fsck_ends(error) ? error : 0;
}

static bool is_named(const struct store_fsck *f, const struct fsck_pack *p, uint32_t offset)
{
	size_t low = 0, high = p->row_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (row_at(f, p, middle)->offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low < p->row_count && row_at(f, p, low)->offset == offset && !row_at(f, p, low)->bad;
}

/* What was read and is right, and only the pack's table says where it lies. */
static int note_loose(struct store_fsck *f, struct fsck_pack *p, const struct wanted *wanted,
		      size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct store_place *at = &wanted[i].place;
		int error;

		if (wanted[i].state != WANTED_DONE || is_named(f, p, at->offset))
			continue;
		error = array_reserve((void **)&f->loose, &f->loose_cap, f->loose_count,
				      sizeof(*f->loose));
		if (error)
			return error;
		f->loose[f->loose_count++] = (struct fsck_row){.chunk = wanted[i].hash,
							       .pack = (uint32_t)(p - f->packs),
							       .offset = at->offset,
							       .stored_len = at->stored_len,
							       .plain_len = at->plain_len,
							       .loose = true};
	}
	return 0;
}

static int read_chunks(struct store_fsck *f, struct fsck_pack *p, const struct pack_table *t)
{
	size_t n = t->count ? t->count : p->row_count;
	cleanup_free struct wanted *wanted = calloc(n + 1, sizeof(*wanted));
	int error;

	if (!wanted)
		return -ENOMEM;
	n = want_all(f, p, t, wanted);
	error = store_chunks_read_placed(f->store, wanted, n, nothing_to_do, NULL);
	if (fsck_ends(error))
		return error;
	p->error = error;
	if (error)
		mark_all_bad(f, p);
	for (size_t i = 0; !error && i < n; i++) {
		if (wanted[i].state == WANTED_DONE)
			continue;
		note_damage(p, wanted[i].place.offset);
		mark_bad_at(f, p, wanted[i].place.offset);
	}
	return error ? 0 : note_loose(f, p, wanted, n);
}

static int read_pack(struct store_fsck *f, struct fsck_pack *p)
{
	cleanup_pack_table struct pack_table table = {0};
	int error = check_table(f, p, &table);

	if (!error && !p->missing && !p->error)
		error = check_header(f, p);
	if (!error && !p->missing && !p->error)
		error = read_chunks(f, p, &table);
	if (!error)
		fsck_done(f, p->size);
	return error;
}

int fsck_read_packs(struct store_fsck *f, bool read_data)
{
	int error = 0;

	if (!read_data)
		return pool_run(f->store->readers, f->pack_count, table_round, f);
	/* One after another: the ranges of each are read at once. */
	for (size_t i = 0; i < f->pack_count && !error; i++)
		error = read_pack(f, &f->packs[i]);
	return error;
}
