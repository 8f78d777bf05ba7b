/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying an epoch: several files at once, each read whole and its tail checked. */
#include "lib/admin/verify.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/admin/catalog_internal.h"
#include "lib/format/databases.h"
#include "lib/format/tails.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"
#include "lib/util/thread.h"

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
	uint32_t *folders; /* directories that a database may be in */
	uint32_t folder_count;
	atomic_uint next; /* of `files`, then of `folders` */

	/* Guards what follows and the calls of `how`. */
	struct mutex lock;
	struct catalog_progress progress;
	struct verify_totals totals;
	int error; /* what ended it */
};

/* ---- one content ---- */

struct checked_content {
	struct verifying *v;
	const struct tree_entry *entry;
	struct recipe recipe;
	struct content_window head, tail;
	struct store_failure failure;
	atomic_ullong counted; /* bytes that progress knows of */
};

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
	struct checked_content *c = arg;
	const struct recipe_segment *segment = &c->recipe.segments[number];

	if (len != segment->length)
		return -EBADMSG;
	content_window_put(&c->head, segment->offset, plain, len);
	content_window_put(&c->tail, segment->offset, plain, len);
	atomic_fetch_add(&c->counted, len);
	advance(c->v, 0, len);
	return 0;
}

static int read_whole(struct checked_content *c)
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

static bool read_window(const struct content_window *w, void *data, size_t len, uint64_t offset)
{
	if (offset < w->from || offset - w->from > w->len || len > w->len - (offset - w->from))
		return false;
	memcpy(data, w->data + (offset - w->from), len);
	return true;
}

/* For a tail_source: from what was kept, else from the remote once more. */
static ssize_t read_again(void *arg, void *data, size_t len, uint64_t offset)
{
	struct checked_content *c = arg;
	uint64_t size = c->entry->size;

	if (offset >= size)
		return 0;
	if (len > size - offset)
		len = (size_t)(size - offset);
	if (!len || read_window(&c->head, data, len, offset) ||
	    read_window(&c->tail, data, len, offset))
		return (ssize_t)len;
	return catalog_read_part(c->v->catalog, c->entry, &c->recipe, data, len, offset,
				 &c->failure);
}

enum found {
	FOUND_DAMAGE,
	FOUND_TORN,	/* by its tail, or at the seal */
	FOUND_DATABASE, /* that is not whole */
};

static int check_tail(const struct tail_source *source, const struct tree_entry *e,
		      const char **ret_torn, enum found *ret_found)
{
	/* Of an empty file the name alone says it, which it may have got since; the seal's word counts. */
	int result = e->size ? tail_check_source(source, e->size, e->name, ret_torn) : 0;

	*ret_found = result || e->flags & TREE_TORN ? FOUND_TORN : FOUND_DATABASE;
	return result ? result : lmdb_check(source, e->size, ret_torn);
}

/* 0 with what is wrong or NULL, or the error that ends all. `text` is for what is put together. */
static int check_content(struct checked_content *c, char *text, size_t text_len,
			 const char **ret_what, enum found *ret_found)
{
	const struct tail_source source = {.read = read_again, .arg = c};
	const char *torn = NULL;
	int error = read_whole(c), result = 0;

	*ret_what = NULL;
	if (!error && !(c->entry->flags & TREE_LOG))
		result = check_tail(&source, c->entry, &torn, ret_found);
	if (result < 0)
		error = result;
	if (error) {
		error = catalog_errno(c->v->catalog, error);
		if (error != -EBADMSG)
			return error;
		snprintf(text, text_len, "its data is damaged or missing in the remote%s%s",
			 c->failure.pack[0] ? ", in pack " : "", c->failure.pack);
		*ret_what = text;
		*ret_found = FOUND_DAMAGE;
	} else if (result) {
		snprintf(text, text_len, "torn: %s", torn);
		*ret_what = text;
	} else if (c->entry->flags & TREE_TORN) {
		*ret_found = FOUND_TORN;
		*ret_what = "torn: found so when the epoch was sealed";
	}
	return 0;
}

/* ---- all ---- */

void verify_count(const struct verify *how, struct verify_totals *totals, const char *path,
		  bool torn)
{
	enum verify_torn means = torn && how->torn ? how->torn(how->arg, path) : VERIFY_DAMAGED;

	totals->older += means == VERIFY_OLDER;
	totals->settled += means == VERIFY_SETTLED;
	totals->damaged += means == VERIFY_DAMAGED;
}

void verify_count_database(const struct verify *how, struct verify_totals *totals)
{
	totals->damaged += how->deep;
	totals->databases += !how->deep;
}

static void set_window(struct content_window *w, uint64_t size, size_t len, bool at_end)
{
	w->len = size < len ? (size_t)size : len;
	w->from = at_end ? size - w->len : 0;
	memset(w->data, 0, w->len);
}

static void count_one(struct verifying *v, uint32_t id, uint64_t size, const char *what,
		      enum found found)
{
	cleanup_buf struct buf path = {0};

	if (what)
		tree_path(v->tree, id, &path);
	SCOPED_LOCK(&v->lock);
	v->totals.files++;
	v->totals.bytes += size;
	if (!what)
		return;
	if (found == FOUND_DATABASE)
		verify_count_database(v->how, &v->totals);
	else
		verify_count(v->how, &v->totals, buf_str(&path), found == FOUND_TORN);
	v->how->problem(v->how->arg, buf_str(&path), what);
}

static int verify_one(struct verifying *v, uint32_t id, uint8_t *space)
{
	char text[192];
	struct tree_entry e;
	struct checked_content c = {
		.v = v, .entry = &e, .head.data = space, .tail.data = space + HEAD_LEN};
	enum found found = FOUND_DAMAGE;
	const char *what;
	int error;

	tree_get(v->tree, id, &e);
	set_window(&c.head, e.size, HEAD_LEN, false);
	set_window(&c.tail, e.size, TAIL_LEN, true);
	error = check_content(&c, text, sizeof(text), &what, &found);
	recipe_free(&c.recipe);
	if (error)
		return error;
	count_one(v, id, e.size, what, found);
	advance(v, 1, e.size - atomic_load(&c.counted));
	return 0;
}

/* ---- databases, which are more than one file ---- */

struct folder {
	struct verifying *v;
	uint32_t id;
	struct store_failure failure;
};

/* 0 or -ENOENT. */
static int find_entry(const struct folder *f, const char *name, struct tree_entry *ret_entry)
{
	uint32_t id = tree_lookup(f->v->tree, f->id, name, strlen(name));

	if (id == TREE_NONE)
		return -ENOENT;
	tree_get(f->v->tree, id, ret_entry);
	return ret_entry->type == TREE_REGULAR ? 0 : -ENOENT;
}

static int folder_find(void *arg, const char *name, uint64_t *ret_size)
{
	struct tree_entry e;
	int error = find_entry(arg, name, &e);

	if (!error)
		*ret_size = e.size;
	return error;
}

static ssize_t folder_read(void *arg, const char *name, void *data, size_t len, uint64_t offset)
{
	struct folder *f = arg;
	struct catalog *c = f->v->catalog;
	struct recipe recipe = {0};
	struct tree_entry e;
	ssize_t got = find_entry(f, name, &e);

	if (!got && e.content == TREE_RECIPE)
		got = store_get_recipe(c->store, &e.u.recipe, &recipe, &f->failure);
	if (!got && e.content == TREE_RECIPE && recipe.size != e.size)
		got = -EBADMSG;
	if (!got)
		got = catalog_read_part(c, &e, &recipe, data, len, offset, &f->failure);
	recipe_free(&recipe);
	return got < 0 ? catalog_errno(c, (int)got) : got;
}

static void folder_problem(void *arg, const char *name, const char *what)
{
	const struct folder *f = arg;
	cleanup_buf struct buf path = {0};

	tree_path(f->v->tree, f->id, &path);
	buf_printf(&path, "%s%s", path.len ? "/" : "", name);
	SCOPED_LOCK(&f->v->lock);
	verify_count_database(f->v->how, &f->v->totals);
	f->v->how->problem(f->v->how->arg, buf_str(&path), what);
}

static int verify_folder(struct verifying *v, uint32_t id)
{
	struct folder f = {.v = v, .id = id};
	const struct database_dir dir = {
		.find = folder_find, .read = folder_read, .problem = folder_problem, .arg = &f};

	return database_check_dir(&dir);
}

/* ---- all, several at once ---- */

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

		if (i >= v->file_count + v->folder_count)
			return NULL;
		error = i < v->file_count ? verify_one(v, v->files[i], space)
					  : verify_folder(v, v->folders[i - v->file_count]);
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

	if (wanted > v->file_count + v->folder_count)
		wanted = v->file_count + v->folder_count;
	while (started + 1 < wanted && thread_start(&threads[started], NULL, verify_files, v) == 0)
		started++;
	verify_files(v);
	while (started)
		pthread_join(threads[--started], NULL);
}

static bool may_hold_database(const struct tree *t, uint32_t dir)
{
	return tree_lookup(t, dir, "CURRENT", 7) != TREE_NONE ||
	       tree_lookup(t, dir, "data.mdb", 8) != TREE_NONE;
}

/* Groups are numbered by their first names, ascending: a greater number is met for the first time. */
static int plan(struct verifying *v)
{
	uint32_t count = tree_count(v->tree);
	uint64_t groups = 0;

	v->files = calloc(count, sizeof(*v->files));
	v->folders = calloc(count, sizeof(*v->folders));
	if (!v->files || !v->folders)
		return -ENOMEM;
	for (uint32_t id = 0; id < count; id++) {
		struct tree_entry e;

		tree_get(v->tree, id, &e);
		if (e.type == TREE_DIR && may_hold_database(v->tree, id))
			v->folders[v->folder_count++] = id;
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
	mutex_init(&v.lock, LOCK_VERIFY);
	v.error = plan(&v);
	if (!v.error)
		verify_all(&v);
	if (!v.error)
		*ret_totals = v.totals;
	free(v.files);
	free(v.folders);
	tree_unref(v.tree);
	mutex_destroy(&v.lock);
	return v.error;
}

/* ---- Reading a part of a content from the remote: the segments that it touches. ---- */

void content_window_put(const struct content_window *w, uint64_t offset, const void *data,
			size_t len)
{
	uint64_t from = offset > w->from ? offset : w->from;
	uint64_t end = w->from + w->len, data_end = offset + len;

	if (data_end < end)
		end = data_end;
	if (from < end)
		memcpy(w->data + (from - w->from), (const uint8_t *)data + (from - offset),
		       (size_t)(end - from));
}

struct fetching {
	const struct recipe *recipe;
	struct content_window window;
};

static int on_fetched(void *arg, size_t number, const void *plain, size_t len)
{
	const struct fetching *f = arg;

	content_window_put(&f->window, f->recipe->segments[number].offset, plain, len);
	return 0;
}

ssize_t catalog_read_part(struct catalog *c, const struct tree_entry *entry,
			  const struct recipe *recipe, void *data, size_t len, uint64_t offset,
			  struct store_failure *ret_failure)
{
	struct fetching f = {.recipe = recipe, .window = {.from = offset, .data = data}};
	size_t first, last;
	int error;

	if (offset >= entry->size)
		return 0;
	if (len > entry->size - offset)
		len = (size_t)(entry->size - offset);
	f.window.len = len;
	memset(data, 0, len);
	if (entry->content == TREE_INLINE)
		content_window_put(&f.window, 0, entry->u.inline_data, (size_t)entry->size);
	if (!len || entry->content != TREE_RECIPE || !recipe->count)
		return (ssize_t)len;
	first = recipe_find(recipe, offset);
	last = recipe_find(recipe, offset + len - 1);
	error = store_get_segments(c->store, recipe, first, last - first + 1, on_fetched, &f,
				   ret_failure);
	return error ? error : (ssize_t)len;
}
