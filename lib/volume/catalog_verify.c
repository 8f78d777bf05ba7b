/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying an epoch: several files at once, each read whole and its tail checked. */
#include "lib/volume/verify.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/util/cleanup.h"
#include "lib/util/thread.h"
#include "lib/volume/catalog_internal.h"
#include "lib/volume/tails.h"

#define THREADS_MAX 256
/* What is kept of each content while it goes by: where the checks of tails look, mostly. */
#define HEAD_LEN ((size_t)TREE_INLINE_MAX)
#define TAIL_LEN ((size_t)128 << 10)

struct verifying {
	struct catalog *catalog;
	const struct verify *how;
	struct tree *tree;
	uint32_t *files; /* the regular files, each by its first name */
	uint32_t file_count;
	atomic_uint next; /* of `files` */

	/* Guards what follows and the calls of `how`. */
	pthread_mutex_t lock;
	struct catalog_progress progress;
	struct verify_totals totals;
	int error; /* what ended it */
};

/* ---- one content ---- */

/* Bytes [from, from + len) of a content. */
struct window {
	uint64_t from;
	size_t len;
	uint8_t *data;
};

struct content {
	struct verifying *v;
	const struct tree_entry *entry;
	struct recipe recipe;
	struct window head, tail;
	struct store_failure failure;
	atomic_ullong counted; /* bytes that progress knows of */
};

/* Part of a content on its way into a window. */
struct fetching {
	const struct content *content;
	const struct window *window;
};

static void copy_overlap(const struct window *w, uint64_t offset, const void *data, size_t len)
{
	uint64_t from = offset > w->from ? offset : w->from;
	uint64_t end = w->from + w->len, data_end = offset + len;

	if (data_end < end)
		end = data_end;
	if (from < end)
		memcpy(w->data + (from - w->from), (const uint8_t *)data + (from - offset),
		       (size_t)(end - from));
}

static void advance(struct verifying *v, uint64_t files, uint64_t bytes)
{
	SCOPED_LOCK(&v->lock);
	v->progress.files += files;
	v->progress.bytes += bytes;
	if (v->how->progress)
		v->how->progress(v->how->arg, &v->progress);
}

static int on_segment(void *arg, size_t number, const void *plain, size_t len)
{
	struct content *c = arg;
	const struct recipe_segment *segment = &c->recipe.segments[number];

	if (len != segment->length)
		return -EBADMSG;
	copy_overlap(&c->head, segment->offset, plain, len);
	copy_overlap(&c->tail, segment->offset, plain, len);
	atomic_fetch_add(&c->counted, len);
	advance(c->v, 0, len);
	return 0;
}

static int read_whole(struct content *c)
{
	struct store *store = c->v->catalog->store;
	int error;

	if (c->entry->content == TREE_INLINE)
		memcpy(c->head.data, c->entry->u.inline_data, c->head.len);
	if (c->entry->content != TREE_RECIPE)
		return 0;
	error = store_get_recipe(store, &c->entry->u.recipe, &c->recipe, &c->failure);
	if (!error && c->recipe.size != c->entry->size)
		return -EBADMSG;
	if (!error)
		error = store_get_segments(store, &c->recipe, 0, c->recipe.count, on_segment, c,
					   &c->failure);
	return error;
}

/* ---- its tail ---- */

static bool read_window(const struct window *w, void *data, size_t len, uint64_t offset)
{
	if (offset < w->from || offset - w->from > w->len || len > w->len - (offset - w->from))
		return false;
	memcpy(data, w->data + (offset - w->from), len);
	return true;
}

static int on_fetched(void *arg, size_t number, const void *plain, size_t len)
{
	const struct fetching *f = arg;

	copy_overlap(f->window, f->content->recipe.segments[number].offset, plain, len);
	return 0;
}

/* For a tail_source: from what was kept, else from the remote once more. */
static ssize_t read_again(void *arg, void *data, size_t len, uint64_t offset)
{
	struct content *c = arg;
	uint64_t size = c->entry->size;
	struct window window;
	struct fetching fetching = {.content = c, .window = &window};
	size_t first, last;
	int error;

	if (offset >= size)
		return 0;
	if (len > size - offset)
		len = (size_t)(size - offset);
	if (!len || read_window(&c->head, data, len, offset) ||
	    read_window(&c->tail, data, len, offset))
		return (ssize_t)len;
	window = (struct window){.from = offset, .len = len, .data = data};
	memset(data, 0, len);
	if (!c->recipe.count)
		return (ssize_t)len;
	first = recipe_find(&c->recipe, offset);
	last = recipe_find(&c->recipe, offset + len - 1);
	error = store_get_segments(c->v->catalog->store, &c->recipe, first, last - first + 1,
				   on_fetched, &fetching, &c->failure);
	return error ? error : (ssize_t)len;
}

/* 0 with what is wrong or NULL, or the error that ends all. `text` is for what is put together. */
static int check_content(struct content *c, char *text, size_t text_len, const char **ret_what)
{
	const struct tail_source source = {.read = read_again, .arg = c};
	const char *torn = NULL;
	int error = read_whole(c), result = 0;

	*ret_what = NULL;
	if (!error && !(c->entry->flags & TREE_LOG))
		result = tail_check_source(&source, c->entry->size, c->entry->name, &torn);
	if (result < 0)
		error = result;
	if (error) {
		error = catalog_errno(c->v->catalog, error);
		if (error != -EBADMSG)
			return error;
		snprintf(text, text_len, "its data is damaged or missing in the remote%s%s",
			 c->failure.pack[0] ? ", in pack " : "", c->failure.pack);
		*ret_what = text;
	} else if (result) {
		snprintf(text, text_len, "torn: %s", torn);
		*ret_what = text;
	} else if (c->entry->flags & TREE_TORN) {
		*ret_what = "torn: found so when the epoch was sealed";
	}
	return 0;
}

/* ---- all ---- */

static void set_window(struct window *w, uint64_t size, size_t len, bool at_end)
{
	w->len = size < len ? (size_t)size : len;
	w->from = at_end ? size - w->len : 0;
	memset(w->data, 0, w->len);
}

static void count_one(struct verifying *v, uint32_t id, uint64_t size, const char *what)
{
	cleanup_buf struct buf path = {0};

	if (what)
		tree_path(v->tree, id, &path);
	SCOPED_LOCK(&v->lock);
	v->totals.files++;
	v->totals.bytes += size;
	v->totals.damaged += what != NULL;
	if (what)
		v->how->problem(v->how->arg, buf_str(&path), what);
}

static int verify_one(struct verifying *v, uint32_t id, uint8_t *space)
{
	char text[192];
	struct tree_entry e;
	struct content c = {.v = v, .entry = &e, .head.data = space, .tail.data = space + HEAD_LEN};
	const char *what;
	int error;

	tree_get(v->tree, id, &e);
	set_window(&c.head, e.size, HEAD_LEN, false);
	set_window(&c.tail, e.size, TAIL_LEN, true);
	error = check_content(&c, text, sizeof(text), &what);
	recipe_free(&c.recipe);
	if (error)
		return error;
	count_one(v, id, e.size, what);
	advance(v, 1, e.size - atomic_load(&c.counted));
	return 0;
}

static bool ended(struct verifying *v)
{
	SCOPED_LOCK(&v->lock);
	return v->error != 0;
}

static void *verify_files(void *arg)
{
	struct verifying *v = arg;
	cleanup_free uint8_t *space = malloc(HEAD_LEN + TAIL_LEN);
	int error = space ? 0 : -ENOMEM;

	while (!error && !ended(v)) {
		unsigned i = atomic_fetch_add(&v->next, 1);

		if (i >= v->file_count)
			return NULL;
		error = verify_one(v, v->files[i], space);
	}
	SCOPED_LOCK(&v->lock);
	if (!v->error)
		v->error = error;
	return NULL;
}

/* The caller is one of the threads. */
static void verify_all(struct verifying *v)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned wanted = cores < 1 ? 1 : cores > THREADS_MAX ? THREADS_MAX : (unsigned)cores;
	pthread_t threads[THREADS_MAX];
	unsigned started = 0;

	if (wanted > v->file_count)
		wanted = v->file_count;
	while (started + 1 < wanted && thread_start(&threads[started], NULL, verify_files, v) == 0)
		started++;
	verify_files(v);
	while (started)
		pthread_join(threads[--started], NULL);
}

/* Groups are numbered by their first names, ascending: a greater number is met for the first time. */
static int plan(struct verifying *v)
{
	uint32_t count = tree_count(v->tree);
	uint64_t groups = 0;

	v->files = calloc(count, sizeof(*v->files));
	if (!v->files)
		return -ENOMEM;
	for (uint32_t id = 0; id < count; id++) {
		struct tree_entry e;

		tree_get(v->tree, id, &e);
		if (e.type != TREE_REGULAR || (e.group && e.group <= groups))
			continue;
		if (e.group)
			groups = e.group;
		v->files[v->file_count++] = id;
		v->progress.files_total++;
		v->progress.bytes_total += e.size;
	}
	return 0;
}

int catalog_verify(struct catalog *c, uint64_t number, const struct verify *how,
		   struct verify_totals *ret_totals)
{
	struct verifying v = {.catalog = c, .how = how};
	int error = catalog_tree(c, number, &v.tree);

	if (error)
		return error;
	pthread_mutex_init(&v.lock, NULL);
	v.error = plan(&v);
	if (!v.error)
		verify_all(&v);
	if (!v.error)
		*ret_totals = v.totals;
	free(v.files);
	tree_unref(v.tree);
	pthread_mutex_destroy(&v.lock);
	return v.error;
}
