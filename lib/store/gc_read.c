/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection: reading what is there, what was condemned before, and which index objects stay. */
#include "lib/store/gc_impl.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/format/index.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"

#define READ_TRIES 3
/* Index objects that are merged by another collection while we read are listed again. */
#define LISTINGS_MAX 5

/* ---- reading index objects ---- */

static int get_object(struct store_gc *g, const struct gc_object *o, struct buf *out)
{
	char key[KEY_MAX];
	int error = -EBADMSG;

	index_key(o->number, &o->id, key);
	for (int tries = 0; error == -EBADMSG && tries < READ_TRIES; tries++) {
		struct hash hash;

		buf_reset(out);
		error = remote_get(g->remote, key, 0, REMOTE_TO_END, out);
		if (error)
			break;
		hash_of(out->data, out->len, &hash);
		if (!hash_equal(&hash, &o->id))
			error = -EBADMSG;
	}
	return error;
}

/* Of an object that turns out malformed, nothing is taken: so it is read through once before. */
static int add_rows(struct store_gc *g, const struct buf *data)
{
	for (int pass = 0; pass < 2; pass++) {
		struct index_reader reader;
		struct store_place place;
		struct pack_entry e;
		int got, error = index_reader_init(&reader, data->data, data->len);

		if (error)
			return error;
		while ((got = index_reader_next(&reader, &place.pack, &e)) > 0) {
			place.offset = e.offset;
			place.stored_len = e.stored_len;
			place.plain_len = e.plain_len;
			error = pass ? gc_add_row(g, &e.hash, &place) : 0;
			if (error)
				return error;
		}
		if (got)
			return got;
	}
	return 0;
}

struct listing {
	struct store_gc *g;
	struct gc_object *objects;
	size_t count, cap;
};

static int note_object(void *arg, const char *key, uint64_t size)
{
	struct listing *l = arg;
	struct gc_object o = {.size = size};
	int error;

	if (index_key_parse(key, &o.number, &o.id))
		return 0;
	error = array_reserve((void **)&l->objects, &l->cap, l->count, sizeof(o));
	if (!error)
		l->objects[l->count++] = o;
	return error;
}

static int compare_objects(const void *a, const void *b)
{
	const struct gc_object *x = a, *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return hash_compare(&x->id, &y->id);
}

static struct gc_object *find_object(const struct store_gc *g, uint64_t number,
				     const struct hash *id)
{
	uint32_t i = hash_index_find(&g->objects_by_id, g->objects, sizeof(*g->objects), id);

	if (i == HASH_INDEX_NONE || g->objects[i].number == number)
		return i == HASH_INDEX_NONE ? NULL : &g->objects[i];
	/* The same bytes under several numbers. */
	for (size_t k = 0; k < g->object_count; k++)
		if (g->objects[k].number == number && hash_equal(&g->objects[k].id, id))
			return &g->objects[k];
	return NULL;
}

/* -EAGAIN: one is gone since it was listed; what took its place is in a new listing. */
static int read_objects(struct store_gc *g, const struct listing *l)
{
	bool again = false;
	uint64_t done = 0, total = 0;

	for (size_t i = 0; i < l->count; i++)
		total += l->objects[i].size;
	for (size_t i = 0; i < l->count; i++) {
		const struct gc_object *o = &l->objects[i];
		cleanup_buf struct buf data = {0};
		int error;

		done += o->size;
		if (find_object(g, o->number, &o->id))
			continue;
		error = get_object(g, o, &data);
		again |= error == -ENOENT;
		if (error == -ENOENT)
			continue;
		if (error && error != -EBADMSG && error != -EPROTONOSUPPORT && error != -EFBIG)
			return error;
		if (gc_add_object(g, o->number, &o->id, o->size))
			return -ENOMEM;
		if (!error)
			error = add_rows(g, &data);
		if (error == -ENOMEM)
			return error;
		g->objects[g->object_count - 1].error = error;
		gc_progress(g, "index", done, total);
	}
	return again ? -EAGAIN : 0;
}

static int list_objects(struct store_gc *g)
{
	int error = -EAGAIN;

	for (int i = 0; error == -EAGAIN && i < LISTINGS_MAX; i++) {
		struct listing l = {.g = g};

		error = remote_list(g->remote, PREFIX_INDEX, note_object, &l);
		if (!error && l.count)
			qsort(l.objects, l.count, sizeof(*l.objects), compare_objects);
		if (!error)
			error = read_objects(g, &l);
		free(l.objects);
	}
	return error == -EAGAIN ? 0 : error;
}

/* ---- packs, and what was condemned ---- */

static int note_pack(void *arg, const char *key, uint64_t size)
{
	struct store_gc *g = arg;
	struct hash id;
	uint32_t i;
	int error;

	if (pack_key_parse(key, &id))
		return 0;
	error = gc_pack_number(g, &id, &i);
	if (error)
		return error;
	g->packs[i].there = true;
	g->packs[i].size = size;
	return 0;
}

/* A time that has not come yet is another clock's: the grace begins now. */
static int64_t not_after(int64_t since_ns, int64_t now_ns)
{
	return since_ns > now_ns ? now_ns : since_ns;
}

static void note_item(struct store_gc *g, const struct gc_item *item)
{
	int64_t since_ns = not_after(item->since_ns, g->terms.now_ns);
	struct gc_object *o;
	uint32_t i;

	if (!item->index) {
		i = hash_index_find(&g->packs_by_id, g->packs, sizeof(*g->packs), &item->id);
		if (i == HASH_INDEX_NONE || g->packs[i].generation)
			return;
		g->packs[i].generation = item->generation;
		g->packs[i].since_ns = since_ns;
		return;
	}
	o = find_object(g, item->index, &item->id);
	if (o && !o->generation) {
		o->generation = item->generation;
		o->since_ns = since_ns;
	}
}

static void sum_up(struct store_gc *g)
{
	struct store_gc_count *c = &g->totals.before;

	for (size_t i = 0; i < g->pack_count; i++) {
		c->packs += g->packs[i].there;
		c->bytes += g->packs[i].there ? g->packs[i].size : 0;
	}
	for (size_t i = 0; i < g->object_count; i++) {
		c->indexes++;
		c->bytes += g->objects[i].size;
	}
}

/* Index objects before packs: a pack that one names was put before it, and so is listed. */
int store_gc_read(struct store_gc *g)
{
	int error = list_objects(g);

	if (!error)
		error = remote_list(g->remote, PREFIX_PACKS, note_pack, g);
	if (error)
		return error;
	for (size_t i = 0; i < g->terms.old->count; i++)
		note_item(g, &g->terms.old->items[i]);
	sum_up(g);
	return 0;
}

bool store_gc_damaged(const struct store_gc *g, char ret_key[KEY_MAX])
{
	for (size_t i = 0; i < g->object_count; i++) {
		const struct gc_object *o = &g->objects[i];

		if (!o->error || o->generation)
			continue;
		index_key(o->number, &o->id, ret_key);
		return true;
	}
	return false;
}

/* ---- Garbage collection: index objects that are merged. ---- */

/* ---- which stay ---- */

/* Whether all packs that it names are kept. One that names nothing is of no use. */
static bool is_sound(const struct store_gc *g, const struct gc_object *o)
{
	for (size_t i = o->first; i < o->first + o->count; i++)
		if (!gc_pack_kept(&g->packs[g->rows[g->listed[i]].pack]))
			return false;
	return o->count && !o->error && !o->generation;
}

static bool is_small(const struct gc_object *o)
{
	return o->fresh && !o->written && o->count < GC_SMALL_ROWS;
}

static void choose_fresh(struct store_gc *g)
{
	size_t small = 0;

	for (size_t i = 0; i < g->object_count; i++) {
		g->objects[i].fresh = is_sound(g, &g->objects[i]);
		small += is_small(&g->objects[i]);
	}
	for (size_t i = 0; i < g->object_count && small >= GC_SMALL_COUNT; i++)
		if (is_small(&g->objects[i]))
			g->objects[i].fresh = false;
}

void gc_plan_indexes(struct store_gc *g)
{
	for (size_t i = 0; i < g->row_count; i++)
		g->rows[i].covered = false;
	choose_fresh(g);
	for (size_t i = 0; i < g->object_count; i++) {
		struct gc_object *o = &g->objects[i];

		for (size_t k = o->first; o->fresh && k < o->first + o->count; k++)
			g->rows[g->listed[k]].covered = true;
		o->condemn = !o->fresh && !o->generation && !o->written;
	}
	for (size_t i = 0; i < g->row_count; i++) {
		const struct gc_row *row = &g->rows[i];
		struct gc_pack *p = &g->packs[row->pack];

		p->to_index |= row->home && !row->covered && gc_pack_kept(p);
	}
}

/* ---- new ones ---- */

uint64_t gc_next_number(const struct store_gc *g)
{
	uint64_t highest = g->terms.number;

	for (size_t i = 0; i < g->object_count; i++)
		if (g->objects[i].number > highest)
			highest = g->objects[i].number;
	return highest < INT64_MAX ? highest + 1 : highest;
}

static int compare_rows(const void *a, const void *b, void *arg)
{
	const struct store_gc *g = arg;
	const struct gc_row *x = &g->rows[*(const uint32_t *)a];
	const struct gc_row *y = &g->rows[*(const uint32_t *)b];

	if (x->pack != y->pack)
		return x->pack < y->pack ? -1 : 1;
	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return (int)y->home - (int)x->home;
}

/* The rows of all packs that are to be named, by pack and offset: their number in *ret_count. */
static uint32_t *collect_rows(const struct store_gc *g, size_t *ret_count)
{
	uint32_t *numbers = calloc(g->row_count + 1, sizeof(*numbers));
	size_t n = 0;

	for (size_t i = 0; numbers && i < g->row_count; i++)
		if (g->packs[g->rows[i].pack].to_index && gc_row_usable(g, &g->rows[i]))
			numbers[n++] = (uint32_t)i;
	if (n)
		qsort_r(numbers, n, sizeof(*numbers), compare_rows, (void *)(uintptr_t)g);
	*ret_count = n;
	return numbers;
}

/* One index object in the making. */
struct merging {
	struct store_gc *g;
	struct index_pack *packs;
	struct pack_entry *entries;
	uint32_t *places; /* rows, as entries */
	size_t pack_count, count;
	uint64_t number;
};

/* What two index objects say otherwise of the same bytes: only what is at home there counts. */
static bool overlaps(const struct merging *m, const struct index_pack *p, const struct gc_row *row)
{
	const struct pack_entry *last = p->count ? &m->entries[m->count - 1] : NULL;

	return last && (uint64_t)last->offset + last->stored_len > row->offset;
}

/* Adds the rows of one pack, `n` of them. */
static void add_pack(struct merging *m, const uint32_t *numbers, size_t n)
{
	struct store_gc *g = m->g;
	struct index_pack *p = &m->packs[m->pack_count++];

	*p = (struct index_pack){.id = g->packs[g->rows[numbers[0]].pack].id,
				 .entries = m->entries + m->count};
	for (size_t i = 0; i < n; i++) {
		const struct gc_row *row = &g->rows[numbers[i]];

		if (overlaps(m, p, row)) {
			if (!row->home || g->rows[m->places[m->count - 1]].home)
				continue;
			m->count--;
			p->count--;
		}
		m->places[m->count] = numbers[i];
		m->entries[m->count++] = (struct pack_entry){row->chunk, row->offset,
							     row->stored_len, row->plain_len};
		p->count++;
	}
}

static int put_index(struct merging *m)
{
	struct store_gc *g = m->g;
	cleanup_buf struct buf data = {0};
	struct hash id;
	char key[KEY_MAX];
	int error = index_encode(m->packs, m->pack_count, &data);

	if (error)
		return error == -EINVAL ? -EIO : error;
	hash_of(data.data, data.len, &id);
	index_key(m->number, &id, key);
	error = remote_put(g->remote, key, data.data, data.len);
	FAULT_POINT("gc.index_put");
	if (!error)
		error = gc_add_object(g, m->number, &id, data.len);
	if (error)
		return error;
	g->objects[g->object_count - 1].written = true;
	g->totals.written.indexes++;
	g->totals.written.bytes += data.len;
	for (size_t i = 0; i < m->count; i++)
		g->rows[m->places[i]].covered = true;
	m->pack_count = m->count = 0;
	return 0;
}

static size_t rows_of_pack(const struct store_gc *g, const uint32_t *numbers, size_t count)
{
	size_t n = 1;

	while (n < count && g->rows[numbers[n]].pack == g->rows[numbers[0]].pack)
		n++;
	return n;
}

static int merge(struct merging *m, const uint32_t *numbers, size_t count)
{
	int error = 0;

	for (size_t at = 0, n; at < count && !error; at += n) {
		n = rows_of_pack(m->g, numbers + at, count - at);
		add_pack(m, numbers + at, n);
		if (m->count >= GC_INDEX_ROWS)
			error = put_index(m);
	}
	return !error && m->pack_count ? put_index(m) : error;
}

/* Whether each home is named by an index object that stays: else nothing may be condemned. */
static int check_covered(const struct store_gc *g)
{
	for (size_t i = 0; i < g->row_count; i++)
		if (g->rows[i].home && !g->rows[i].covered)
			return -EIO;
	return 0;
}

int gc_write_indexes(struct store_gc *g)
{
	struct merging m = {.g = g, .number = gc_next_number(g)};
	cleanup_free uint32_t *numbers = NULL, *places = NULL;
	cleanup_free struct pack_entry *entries = NULL;
	cleanup_free struct index_pack *packs = NULL;
	size_t count = 0;
	int error;

	gc_plan_indexes(g);
	numbers = collect_rows(g, &count);
	m.packs = packs = calloc(g->pack_count + 1, sizeof(*packs));
	m.entries = entries = calloc(count + 1, sizeof(*entries));
	m.places = places = calloc(count + 1, sizeof(*places));
	if (!numbers || !packs || !entries || !places)
		return -ENOMEM;
	error = merge(&m, numbers, count);
	return error ? error : check_covered(g);
}
