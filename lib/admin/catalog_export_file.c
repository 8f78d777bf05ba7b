/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring: regular files, several at once. */
#include "lib/admin/catalog_export.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/util/io.h"
#include "lib/util/thread.h"

#define THREADS_MAX 256

/* One file's content on its way. The store's threads call the sink, several at once. */
struct filling {
	struct export *x;
	int fd;
	const struct recipe *recipe;
	atomic_int write_error; /* of this machine's disk, where an error is not the remote's */
	atomic_ullong written;
};

static int write_segment(void *arg, size_t number, const void *plain, size_t len)
{
	struct filling *f = arg;
	const struct recipe_segment *segment = &f->recipe->segments[number];
	int error = len == segment->length ? io_pwrite_full(f->fd, plain, len, segment->offset)
					   : -EBADMSG;

	if (error) {
		atomic_store(&f->write_error, error);
		return error;
	}
	atomic_fetch_add(&f->written, len);
	export_advance(f->x, 0, len);
	return 0;
}

/* A line for a person, where the error's own is not enough. */
struct reason {
	char text[160];
};

static int explain(const struct filling *f, int error, const struct store_failure *failure,
		   struct reason *why)
{
	int write_error = atomic_load(&f->write_error);

	if (!error || write_error)
		return write_error;
	error = catalog_errno(f->x->catalog, error);
	if (error == -EBADMSG && failure->pack[0])
		snprintf(why->text, sizeof(why->text),
			 "its data is damaged or missing in the remote, in pack %s", failure->pack);
	else if (error == -EBADMSG)
		snprintf(why->text, sizeof(why->text),
			 "its data is damaged or missing in the remote");
	else if (error == -EHOSTUNREACH)
		snprintf(why->text, sizeof(why->text),
			 "the remote does not answer; no further file is tried");
	return error;
}

static int fill_from_store(struct filling *f, const struct tree_entry *e, struct reason *why)
{
	struct store *store = f->x->catalog->store;
	cleanup_recipe struct recipe recipe = {0};
	struct store_failure failure = {.pack = ""};
	int error = store_get_recipe(store, &e->u.recipe, &recipe, &failure);

	if (!error && recipe.size != e->size) {
		snprintf(why->text, sizeof(why->text),
			 "its recipe is of another size: the tree is damaged");
		return -EBADMSG;
	}
	f->recipe = &recipe;
	/* Runs of zeros stay the holes that ftruncate made. */
	if (!error)
		error = store_get_segments(store, &recipe, 0, recipe.count, write_segment, f,
					   &failure);
	return explain(f, error, &failure, why);
}

static int fill(struct export *x, int fd, const struct tree_entry *e, struct reason *why)
{
	struct filling f = {.x = x, .fd = fd};
	int error = 0;

	if (ftruncate(fd, (off_t)e->size))
		return -errno;
	if (e->content == TREE_INLINE)
		error = io_pwrite_full(fd, e->u.inline_data, e->size, 0);
	else if (e->content == TREE_RECIPE)
		error = fill_from_store(&f, e, why);
	if (!error)
		export_advance(x, 1, e->size - atomic_load(&f.written));
	return error;
}

static int restore_file(struct export *x, int dir, const struct tree_entry *e, struct reason *why)
{
	struct export_file f;
	int error = export_check_free(x, dir, e->name);

	if (!error && export_keep(x, dir, e))
		return 0;
	if (!error)
		error = export_file_new(dir, &f);
	if (error)
		return error;
	error = fill(x, f.fd, e, why);
	if (!error)
		error = export_attr_fd(x, f.fd, e);
	if (!error)
		return export_file_publish(x, dir, &f, e->name);
	export_file_drop(dir, &f);
	return error;
}

static void restore_one(struct export *x, uint32_t id, struct export_cursor *cursor)
{
	struct reason why = {.text = ""};
	struct tree_entry e;
	int dir, error;

	if (export_lies_below_failure(x, id)) {
		export_failed_quietly(x, id, -EEXIST);
		return;
	}
	tree_get(x->tree, id, &e);
	error = export_parent_fd(x, id, cursor, &dir);
	if (!error)
		error = restore_file(x, dir, &e, &why);
	if (!error) {
		export_set_state(x, id, EXPORT_DONE);
		return;
	}
	if (error == -EHOSTUNREACH)
		atomic_store(&x->stopped, true);
	export_failed(x, id, error, why.text[0] ? why.text : NULL);
}

static void *restore_files(void *arg)
{
	struct export *x = arg;
	cleanup_cursor struct export_cursor cursor = EXPORT_CURSOR;

	for (;;) {
		unsigned i = atomic_fetch_add(&x->next, 1);

		if (i >= x->file_count)
			return NULL;
		if (atomic_load(&x->stopped))
			export_failed_quietly(x, x->files[i], -EHOSTUNREACH);
		else
			restore_one(x, x->files[i], &cursor);
	}
}

static unsigned thread_count(const struct export *x)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = x->how->threads;

	if (!count)
		count = cores < 1 ? 1 : (unsigned)cores;
	if (count > x->file_count)
		count = x->file_count;
	return count < THREADS_MAX ? count : THREADS_MAX;
}

/* The caller is one of the threads. */
void export_files(struct export *x)
{
	unsigned wanted = thread_count(x), started = 0;
	pthread_t threads[THREADS_MAX];

	while (started + 1 < wanted && thread_start(&threads[started], NULL, restore_files, x) == 0)
		started++;
	restore_files(x);
	while (started)
		pthread_join(threads[--started], NULL);
}
