/* SPDX-License-Identifier: Apache-2.0 */
/* Reading index objects: those that the caller's index lacks, or all of them in search of a chunk. */
#include "lib/store/store_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/index.h"
#include "lib/format/names.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* Read together: so many objects, or so many bytes of them. */
#define WINDOW_OBJECTS 16
#define WINDOW_BYTES   (UINT64_C(8) << 20)
/* An object that came damaged is read again: the damage may be of the way here. */
#define READ_TRIES 3
/* Reading all index objects is dear on a large volume: what took longer than SCAN_CHEAP_NS is not
 * repeated by itself before SCAN_REST times that has passed. */
#define SCAN_CHEAP_NS NS_PER_S
#define SCAN_REST     10
/* What is listed and gone when it is read was merged with others: what took its place is in a new listing. */
#define LISTINGS_MAX 5

/* ---- the keys ---- */

struct object {
	char key[KEY_MAX];
	struct hash id;
	uint64_t size;
	struct index_row *rows;
	size_t count;
	bool missing; /* or damaged */
	bool gone;    /* since it was listed */
};

struct objects {
	struct object *items;
	size_t count, cap;
};

static void objects_free(struct objects *o)
{
	for (size_t i = 0; i < o->count; i++)
		free(o->items[i].rows);
	free(o->items);
}
#define cleanup_objects CLEANUP(objects_free)

static int note_object(void *arg, const char *key, uint64_t size)
{
	struct objects *o = arg;
	struct object *item;
	uint64_t epoch;
	struct hash id;

	if (index_key_parse(key, &epoch, &id))
		return 0;
	if (array_reserve((void **)&o->items, &o->cap, o->count, sizeof(*o->items)))
		return -ENOMEM;
	item = &o->items[o->count++];
	*item = (struct object){.id = id, .size = size};
	strcpy(item->key, key); /* index_key_parse knows its length */
	return 0;
}

static int compare_objects(const void *a, const void *b)
{
	return strcmp(((const struct object *)a)->key, ((const struct object *)b)->key);
}

/* All index objects, in the order of epochs; only the new ones where asked for. */
static int list_objects(struct store *s, bool only_new, struct objects *ret_objects)
{
	const struct store_index *index = &s->index;
	size_t kept = 0;
	int error = remote_list(s->remote, PREFIX_INDEX, note_object, ret_objects);

	if (error)
		return error;
	for (size_t i = 0; i < ret_objects->count; i++)
		if (!only_new || !index->loaded(index->arg, ret_objects->items[i].key))
			ret_objects->items[kept++] = ret_objects->items[i];
	ret_objects->count = kept;
	if (kept)
		qsort(ret_objects->items, kept, sizeof(ret_objects->items[0]), compare_objects);
	return 0;
}

/* ---- the objects ---- */

static int decode_rows(const struct buf *data, struct object *o)
{
	struct index_reader reader;
	struct pack_entry e;
	struct hash pack;
	size_t cap = 0;
	int got, error = index_reader_init(&reader, data->data, data->len);

	if (error)
		return error;
	while ((got = index_reader_next(&reader, &pack, &e)) > 0) {
		if (o->count == cap) {
			struct index_row *rows;

			cap = cap ? 2 * cap : 64;
			rows = reallocarray(o->rows, cap, sizeof(*rows));
			if (!rows)
				return -ENOMEM;
			o->rows = rows;
		}
		o->rows[o->count++] =
			(struct index_row){e.hash, {pack, e.offset, e.stored_len, e.plain_len}};
	}
	return got;
}

static int read_object(struct store *s, struct object *o)
{
	cleanup_buf struct buf data = {0};
	struct hash hash;
	int error = remote_get(s->remote, o->key, 0, REMOTE_TO_END, &data);

	if (error)
		return error;
	hash_of(data.data, data.len, &hash);
	if (!hash_equal(&hash, &o->id))
		return -EBADMSG;
	o->count = 0;
	return decode_rows(&data, o);
}

struct window {
	struct store *s;
	struct object *items;
};

static int read_round(void *arg, size_t i)
{
	const struct window *w = arg;
	struct object *o = &w->items[i];
	int error = -EBADMSG;

	for (int tries = 0; error == -EBADMSG && tries < READ_TRIES; tries++)
		error = read_object(w->s, o);
	if (error != -EBADMSG && error != -EPROTONOSUPPORT && error != -ENOENT && error != -EFBIG)
		return error;
	o->gone = error == -ENOENT;
	if (!o->gone)
		log_warn("%s: %s is damaged or of a newer version and is left out",
			 remote_name(w->s->remote), o->key);
	o->missing = true;
	return 0;
}

static size_t window_len(const struct object *items, size_t count)
{
	uint64_t bytes = 0;
	size_t n = 0;

	while (n < count && n < WINDOW_OBJECTS && (!n || bytes + items[n].size <= WINDOW_BYTES))
		bytes += items[n++].size;
	return n;
}

/* Gives the rows of one object after another, in their order, to fn. */
static int read_objects(struct store *s, struct objects *o, index_rows_fn fn, void *arg)
{
	for (size_t at = 0, n; at < o->count; at += n) {
		struct window w = {s, o->items + at};
		int error;

		n = window_len(w.items, o->count - at);
		error = pool_run(s->readers, n, read_round, &w);
		for (size_t i = 0; i < n; i++) {
			struct object *item = &w.items[i];

			if (!error && !item->missing)
				error = fn(arg, item->key, item->rows, item->count);
			free(item->rows);
			item->rows = NULL;
		}
		if (error)
			return error;
	}
	return 0;
}

static bool any_gone(const struct objects *o)
{
	for (size_t i = 0; i < o->count; i++)
		if (o->items[i].gone)
			return true;
	return false;
}

/* Gives the rows of all objects, or of the new ones, and where some went meanwhile, of those that came for them. */
static int read_listed(struct store *s, bool only_new, index_rows_fn fn, void *arg)
{
	for (int i = 0; i < LISTINGS_MAX; i++) {
		cleanup_objects struct objects objects = {0};
		int error = list_objects(s, only_new, &objects);

		if (!error)
			error = read_objects(s, &objects, fn, arg);
		if (error || !any_gone(&objects))
			return error;
	}
	return 0;
}

/* ---- one at a time ---- */

/* Whether a scan that nobody asked for may begin; or none of its kind has begun since a pack was found gone. */
static bool rested_locked(const struct store *s, int64_t began_ns, int64_t gone_ns)
{
	if (gone_ns && began_ns <= gone_ns)
		return true;
	return s->scan_took_ns < SCAN_CHEAP_NS ||
	       clock_mono_ns() - s->scan_ended_ns > SCAN_REST * s->scan_took_ns;
}

static void scan_end(struct store *s, int64_t began_ns)
{
	SCOPED_LOCK(&s->lock);
	s->scanning = false;
	s->scan_ended_ns = clock_mono_ns();
	s->scan_took_ns = s->scan_ended_ns - began_ns;
	pthread_cond_broadcast(&s->scan_ended);
}

static void wait_for_scan_locked(struct store *s)
{
	while (s->scanning)
		cond_wait(&s->scan_ended, &s->lock);
}

/* ---- loading what is new ---- */

static int load_rows(void *arg, const char *key, const struct index_row *rows, size_t count)
{
	struct store *s = arg;
	cleanup_free struct hash *chunks = calloc(count + 1, sizeof(*chunks));
	cleanup_free struct store_place *places = calloc(count + 1, sizeof(*places));

	if (!chunks || !places)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		chunks[i] = rows[i].chunk;
		places[i] = rows[i].place;
	}
	return s->index.put(s->index.arg, key, chunks, places, count);
}

/* With `scanning` set. */
static int refresh(struct store *s, int64_t began_ns)
{
	int error = read_listed(s, true, load_rows, s);

	mutex_lock(&s->lock);
	s->refresh_error = error;
	mutex_unlock(&s->lock);
	scan_end(s, began_ns);
	return error;
}

uint64_t store_index_refreshes(struct store *s)
{
	SCOPED_LOCK(&s->lock);
	return s->refreshes;
}

static int64_t begin_refresh_locked(struct store *s)
{
	s->scanning = true;
	s->refreshes++;
	s->refresh_began_ns = clock_mono_ns();
	return s->refresh_began_ns;
}

int store_index_refresh_since(struct store *s, uint64_t refreshes, int64_t gone_ns)
{
	int64_t began_ns;

	mutex_lock(&s->lock);
	wait_for_scan_locked(s);
	if (s->refreshes > refreshes || !rested_locked(s, s->refresh_began_ns, gone_ns)) {
		int error = s->refreshes > refreshes ? s->refresh_error : 0;

		mutex_unlock(&s->lock);
		return error;
	}
	began_ns = begin_refresh_locked(s);
	mutex_unlock(&s->lock);
	return refresh(s, began_ns);
}

bool store_index_wait(struct store *s)
{
	bool scanning;
	SCOPED_LOCK(&s->lock);

	scanning = s->scanning;
	wait_for_scan_locked(s);
	return scanning;
}

int store_index_refresh(struct store *s)
{
	int64_t began_ns;

	mutex_lock(&s->lock);
	wait_for_scan_locked(s);
	began_ns = begin_refresh_locked(s);
	mutex_unlock(&s->lock);
	return refresh(s, began_ns);
}

/* ---- searching all ---- */

struct search {
	struct wanted **sorted; /* by hash */
	size_t count;
};

static int compare_wanted(const void *a, const void *b)
{
	const struct wanted *const *x = a, *const *y = b;

	return hash_compare(&(*x)->hash, &(*y)->hash);
}

/* The first of those that are not below the hash. */
static size_t lower_bound(const struct search *search, const struct hash *hash)
{
	size_t low = 0, high = search->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (hash_compare(&search->sorted[middle]->hash, hash) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Of several places the one in the newest object is taken, which comes last. */
static int match_rows(void *arg, const char *key, const struct index_row *rows, size_t count)
{
	struct search *search = arg;

	(void)key;
	for (size_t i = 0; i < count; i++) {
		const struct index_row *row = &rows[i];

		for (size_t at = lower_bound(search, &row->chunk); at < search->count; at++) {
			struct wanted *w = search->sorted[at];

			if (!hash_equal(&w->hash, &row->chunk))
				break;
			if (wanted_tried(w, &row->place))
				continue;
			w->place = row->place;
			w->state = WANTED_PLACED;
		}
	}
	return 0;
}

static int search_all(struct store *s, struct wanted *wanted, size_t count)
{
	cleanup_free struct wanted **sorted = calloc(count, sizeof(*sorted));
	struct search search = {.sorted = sorted};

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (wanted[i].state == WANTED_NOWHERE)
			sorted[search.count++] = &wanted[i];
	if (!search.count)
		return 0;
	qsort(sorted, search.count, sizeof(*sorted), compare_wanted);
	return read_listed(s, false, match_rows, &search);
}

int store_chunks_search(struct store *s, struct wanted *wanted, size_t count, int64_t gone_ns)
{
	int64_t began_ns;
	int error;

	mutex_lock(&s->lock);
	wait_for_scan_locked(s);
	if (!rested_locked(s, s->search_began_ns, gone_ns)) {
		mutex_unlock(&s->lock);
		return 0;
	}
	s->scanning = true;
	began_ns = s->search_began_ns = clock_mono_ns();
	mutex_unlock(&s->lock);
	error = search_all(s, wanted, count);
	scan_end(s, began_ns);
	return error;
}
