/* SPDX-License-Identifier: Apache-2.0 */
/* What epochs need of a remote. */
#include "lib/meta/collection.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/format/recipe.h"
#include "lib/format/record.h"
#include "lib/format/tree.h"
#include "lib/meta/nodes_decide.h"
#include "lib/meta/records.h"
#include "lib/store/hash_index.h"
#include "lib/store/pool.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

struct needed {
	struct hash recipe; /* first: found by hash_index */
	uint64_t epoch;	    /* one that needs it, for the line that tells of damage */
};

struct marking {
	struct remote *remote;
	struct store_gc *gc;
	struct pool *pool;
	unsigned readers;
	struct gc_records *records;
	const char **parts; /* keys */
	void (*progress)(void *arg, const char *phase, uint64_t done, uint64_t total);
	void *arg;
	struct buf *why;

	struct mutex lock; /* guards what follows, `why` and the calls of progress */
	struct needed *needed;
	size_t needed_count, needed_cap;
	struct hash_index needed_index;
	struct hash *trees; /* that were marked: the same tree is often there more than once */
	size_t tree_count;
	struct hash_index trees_index;
	bool *alive; /* of each record */
	uint64_t done, total;
};

/* ---- the records ---- */

void gc_records_free(struct gc_records *r)
{
	buf_free(&r->numbers);
	remote_keys_free(&r->parts);
}

static size_t record_count(const struct gc_records *r)
{
	return r->numbers.len / sizeof(uint64_t);
}

static uint64_t record_at(const struct gc_records *r, size_t i)
{
	uint64_t number;

	memcpy(&number, r->numbers.data + i * sizeof(number), sizeof(number));
	return number;
}

static int compare_numbers(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

bool gc_records_has(const struct gc_records *r, uint64_t number)
{
	return r->numbers.len &&
	       bsearch(&number, r->numbers.data, record_count(r), sizeof(number), compare_numbers);
}

static int note_record(void *arg, const char *key, uint64_t size)
{
	struct gc_records *r = arg;
	uint64_t number;

	(void)size;
	if (epoch_key_parse(key, &number))
		return 0;
	if (number > r->highest)
		r->highest = number;
	buf_put(&r->numbers, &number, sizeof(number));
	return buf_error(&r->numbers);
}

static int note_part(void *arg, const char *key, uint64_t size)
{
	char node[NODE_NAME_MAX + 1];
	uint64_t generation, sequence;
	struct gc_records *r = arg;

	(void)size;
	if (part_key_parse(key, &generation, &sequence, node))
		return 0;
	return remote_keys_add(&r->parts, key);
}

/* Parts first: one that is gone by now has become an epoch before. */
int gc_records_list(struct remote *remote, struct gc_records *ret_records)
{
	int error = remote_list(remote, PREFIX_PARTS, note_part, ret_records);

	if (!error)
		error = remote_list(remote, PREFIX_EPOCHS, note_record, ret_records);

	if (!error && ret_records->numbers.len)
		qsort(ret_records->numbers.data, record_count(ret_records), sizeof(uint64_t),
		      compare_numbers);
	return error;
}

/* ---- telling what is wrong ---- */

static void advance(struct marking *m)
{
	SCOPED_LOCK(&m->lock);
	m->done++;
	if (m->progress)
		m->progress(m->arg, "marking", m->done, m->total);
}

/* Only what is damaged or missing has a line of its own; the first one counts. Gives the error. */
static int tell(struct marking *m, int error, uint64_t epoch, const char *path, const char *what,
		const struct store_failure *failure)
{
	if (error != -EBADMSG && error != -EIO && error != -ENOENT && error != -EPROTONOSUPPORT)
		return error;
	SCOPED_LOCK(&m->lock);
	if (m->why->len)
		return error;
	if (nodes_is_part(epoch))
		buf_printf(m->why, "a node's part of an epoch");
	else
		buf_printf(m->why, "epoch %" PRIu64, epoch);
	buf_printf(m->why, "%s%s: %s%s%s", *path ? ": " : "", path, what,
		   failure && failure->pack[0] ? ": pack " : "", failure ? failure->pack : "");
	return error;
}

/* ---- recipes ---- */

static int mark_segments(struct marking *m, const struct recipe *r, struct store_failure *failure)
{
	int error = 0;

	for (size_t i = 0; i < r->count && !error; i++)
		if (!r->segments[i].zero)
			error = store_gc_mark(m->gc, &r->segments[i].hash,
					      (uint32_t)r->segments[i].length, failure);
	return error;
}

/* The path of a content in an epoch, for people; empty where it cannot be found. */
static void find_path(struct marking *m, uint64_t epoch, const struct hash *recipe, struct buf *out)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_tree_reader struct tree_reader *reader = NULL;
	cleanup_buf struct buf data = {0};
	struct tree_entry e;

	if (records_get(m->remote, epoch, &record, NULL) ||
	    store_get_tree(store_gc_store(m->gc), &record, &data) ||
	    tree_reader_new(data.data, data.len, 0, &reader))
		return;
	while (tree_reader_next(reader, &e) > 0) {
		if (e.content != TREE_RECIPE || !hash_equal(&e.u.recipe, recipe))
			continue;
		buf_printf(out, "%s", tree_reader_path(reader));
		return;
	}
}

/* Reading the recipe marks what it is itself made of, on all levels. */
static int mark_recipe(void *arg, size_t i)
{
	struct marking *m = arg;
	const struct needed *n = &m->needed[i];
	cleanup_recipe struct recipe recipe = {0};
	cleanup_buf struct buf path = {0};
	struct store_failure failure = {0};
	int error = store_gc_mark(m->gc, &n->recipe, 0, &failure);

	if (!error)
		error = store_get_recipe(store_gc_store(m->gc), &n->recipe, &recipe, &failure);
	if (!error)
		error = mark_segments(m, &recipe, &failure);
	if (error == -EIO || error == -ENOENT)
		find_path(m, n->epoch, &n->recipe, &path);
	advance(m);
	return error ? tell(m, error, n->epoch, buf_str(&path), "its content is damaged or missing",
			    &failure)
		     : 0;
}

/* ---- trees ---- */

static int need_locked(struct marking *m, const struct hash *recipe, uint64_t epoch)
{
	uint32_t i = hash_index_find(&m->needed_index, m->needed, sizeof(*m->needed), recipe);
	int error;

	if (i != HASH_INDEX_NONE)
		return 0;
	if (array_reserve((void **)&m->needed, &m->needed_cap, m->needed_count, sizeof(*m->needed)))
		return -ENOMEM;
	m->needed[m->needed_count] = (struct needed){*recipe, epoch};
	error = hash_index_add(&m->needed_index, m->needed, sizeof(*m->needed),
			       (uint32_t)m->needed_count);
	if (!error)
		m->needed_count++;
	return error;
}

static int walk_tree(struct marking *m, uint64_t epoch, const struct buf *data)
{
	cleanup_tree_reader struct tree_reader *reader = NULL;
	struct tree_entry e;
	int got, error = tree_reader_new(data->data, data->len, 0, &reader);

	if (error)
		return error;
	while ((got = tree_reader_next(reader, &e)) > 0) {
		if (e.content != TREE_RECIPE)
			continue;
		SCOPED_LOCK(&m->lock);
		error = need_locked(m, &e.u.recipe, epoch);
		if (error)
			return error;
	}
	return got;
}

/* Whether another record named this very tree, which then is marked by who came first. */
static int claim_tree(struct marking *m, const struct hash *tree)
{
	int error;

	SCOPED_LOCK(&m->lock);
	if (hash_index_find(&m->trees_index, m->trees, sizeof(*tree), tree) != HASH_INDEX_NONE)
		return 0;
	m->trees[m->tree_count] = *tree;
	error = hash_index_add(&m->trees_index, m->trees, sizeof(*tree), (uint32_t)m->tree_count);
	if (!error)
		m->tree_count++;
	return error ? error : 1;
}

static int mark_tree(struct marking *m, const struct epoch_record *record)
{
	struct store_failure failure = {0};
	cleanup_buf struct buf data = {0};
	int error = 0, first = claim_tree(m, &record->tree_hash);

	for (size_t i = 0; i < record->chunk_count && !error; i++)
		error = store_gc_mark(m->gc, &record->chunks[i].hash, record->chunks[i].length,
				      &failure);
	if (error || first <= 0)
		return error ? tell(m, error, record->number, "", "its tree is damaged or missing",
				    &failure)
			     : first;
	error = store_get_tree(store_gc_store(m->gc), record, &data);
	if (!error)
		error = walk_tree(m, record->number, &data);
	return tell(m, error, record->number, "", "its tree is damaged or missing", NULL);
}

static int mark_record(void *arg, size_t i)
{
	struct marking *m = arg;
	uint64_t number = record_at(m->records, i);
	cleanup_record struct epoch_record record = {0};
	int error = records_get(m->remote, number, &record, NULL);

	advance(m);
	if (error == -ENOENT)
		return 0;
	if (error)
		return tell(m, error, number, "",
			    error == -EPROTONOSUPPORT
				    ? "its record is of a newer version of epochfs"
				    : "its record is damaged",
			    NULL);
	m->alive[i] = true;
	return mark_tree(m, &record);
}

static int mark_part(void *arg, size_t i)
{
	struct marking *m = arg;
	cleanup_record struct epoch_record record = {0};
	cleanup_buf struct buf text = {0};
	int error = remote_get(m->remote, m->parts[i], 0, RECORD_ENCODED_MAX + 1, &text);

	advance(m);
	if (error == -ENOENT)
		return 0; /* it has become an epoch's */
	if (!error)
		error = record_decode(text.data, text.len, &record);
	return error ? tell(m, error, NODES_FIRST, m->parts[i], "its record cannot be read", NULL)
		     : mark_tree(m, &record);
}

static int mark_parts(struct marking *m)
{
	const struct remote_keys *keys = &m->records->parts;
	const char *key = (const char *)keys->text.data;
	int error;

	m->parts = calloc(keys->count + 1, sizeof(*m->parts));
	if (!m->parts)
		return -ENOMEM;
	for (size_t i = 0; i < keys->count; i++, key += strlen(key) + 1)
		m->parts[i] = key;
	error = pool_run(m->pool, keys->count, mark_part, m);
	free(m->parts);
	return error;
}

/* ---- all ---- */

static void keep_alive(struct marking *m)
{
	size_t count = record_count(m->records);
	uint64_t number;

	m->records->numbers.len = 0;
	for (size_t i = 0; i < count; i++) {
		if (!m->alive[i])
			continue;
		number = record_at(m->records, i);
		memcpy(m->records->numbers.data + m->records->numbers.len, &number, sizeof(number));
		m->records->numbers.len += sizeof(number);
		m->records->live++;
	}
}

static int mark_all(struct marking *m)
{
	size_t count = record_count(m->records);
	int error = pool_new(m->readers, POOL_ORDINARY, &m->pool);

	m->alive = calloc(count + 1, sizeof(*m->alive));
	m->trees = calloc(count + m->records->parts.count + 1, sizeof(*m->trees));
	if (!error && (!m->alive || !m->trees))
		error = -ENOMEM;
	m->total = count + m->records->parts.count;
	if (!error)
		error = pool_run(m->pool, count, mark_record, m);
	if (!error)
		error = mark_parts(m);
	m->total += m->needed_count;
	if (!error)
		error = pool_run(m->pool, m->needed_count, mark_recipe, m);
	if (!error)
		keep_alive(m);
	return error;
}

int gc_mark(struct remote *remote, struct store_gc *g, struct gc_records *r, unsigned readers,
	    void (*progress)(void *arg, const char *phase, uint64_t done, uint64_t total),
	    void *arg, struct buf *why)
{
	struct marking m = {.remote = remote,
			    .gc = g,
			    .records = r,
			    .readers = readers,
			    .progress = progress,
			    .arg = arg,
			    .why = why,
			    .lock = MUTEX_INITIALIZER(LOCK_GC_MARK)};
	int error = mark_all(&m);

	pool_free(m.pool);
	free(m.needed);
	free(m.trees);
	free(m.alive);
	hash_index_free(&m.needed_index);
	hash_index_free(&m.trees_index);
	return error && why->len ? -EBADMSG : error;
}
