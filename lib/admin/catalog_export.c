/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring an epoch, or a path in it, without a mount: what is restored, in which order, how it goes. */
#include "lib/admin/catalog_export.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "lib/format/xattrs.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* ---- how it goes ---- */

void export_failed_quietly(struct export *x, uint32_t id, int error)
{
	export_set_state(x, id, EXPORT_FAILED);
	SCOPED_LOCK(&x->lock);
	x->failed++;
	if (!x->first_error)
		x->first_error = error;
}

void export_failed(struct export *x, uint32_t id, int error, const char *why)
{
	cleanup_buf struct buf path = {0};

	export_failed_quietly(x, id, error);
	if (!why)
		why = error == -EEXIST ? "something is there already" : strerror(-error);
	tree_path(x->tree, id, &path);
	log_error("epoch %" PRIu64 ": %s: not restored: %s", x->number, buf_str(&path), why);
}

void export_advance(struct export *x, uint64_t files, uint64_t bytes)
{
	SCOPED_LOCK(&x->lock);
	x->progress.files += files;
	x->progress.bytes += bytes;
	if (x->how->progress)
		x->how->progress(x->how->arg, &x->progress);
}

/* ---- what is restored ---- */

/* The entries of `top` and of all below it lie together. */
static uint32_t end_of(const struct tree *t, uint32_t top)
{
	struct tree_entry first, e;
	uint32_t id = top + 1;

	tree_get(t, top, &first);
	for (; id < tree_count(t); id++) {
		tree_get(t, id, &e);
		if (e.depth <= first.depth)
			break;
	}
	return id;
}

static uint64_t highest_group(const struct export *x)
{
	uint64_t highest = 0;

	for (uint32_t id = x->top; id < x->end; id++) {
		struct tree_entry e;

		tree_get(x->tree, id, &e);
		if (e.group > highest)
			highest = e.group;
	}
	return highest;
}

static int allocate(struct export *x)
{
	uint64_t groups = highest_group(x) + 1;

	x->state = calloc(x->end - x->top, sizeof(*x->state));
	x->files = calloc(x->end - x->top, sizeof(*x->files));
	x->first_of_group = malloc(groups * sizeof(*x->first_of_group));
	if (!x->state || !x->files || !x->first_of_group)
		return -ENOMEM;
	for (uint64_t i = 0; i < groups; i++)
		x->first_of_group[i] = TREE_NONE;
	return 0;
}

static void add_to_plan(struct export *x, uint32_t id)
{
	struct tree_entry e;

	tree_get(x->tree, id, &e);
	if (e.group && x->first_of_group[e.group] != TREE_NONE)
		return;
	if (e.group)
		x->first_of_group[e.group] = id;
	if (e.type != TREE_REGULAR)
		return;
	x->files[x->file_count++] = id;
	x->progress.files_total++;
	x->progress.bytes_total += e.size;
}

static int plan(struct export *x)
{
	int error = tree_resolve(x->tree, x->how->path, &x->top);

	if (error)
		return error == -ENOTDIR ? -ENOENT : error;
	x->end = end_of(x->tree, x->top);
	error = allocate(x);
	for (uint32_t id = x->top; !error && id < x->end; id++)
		add_to_plan(x, id);
	return error;
}

/* ---- directories ---- */

/* One that is there is used; its mode may have come from an earlier run and forbid writing. */
static int use_directory(const struct export *x, int parent, const char *name, int *ret_fd)
{
	cleanup_close int fd = -1;
	struct stat st;
	int error = export_open_dir(parent, name, O_RDONLY, &fd);

	if (error)
		return error;
	if (x->how->force && fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700 &&
	    fchmod(fd, (st.st_mode & 07777) | 0700))
		return -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int make_directory(const struct export *x, uint32_t id, struct export_cursor *cursor)
{
	cleanup_close int fd = -1;
	struct tree_entry e;
	int parent, error = export_parent_fd(x, id, cursor, &parent);

	if (error)
		return error;
	tree_get(x->tree, id, &e);
	if (mkdirat(parent, e.name, 0700) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	error = use_directory(x, parent, e.name, &fd);
	if (!error)
		export_sweep(fd);
	return error;
}

/* Runs fn for each directory but the root, and marks what fails; deepest first if asked for. */
static void each_directory(struct export *x, bool deepest_first,
			   int (*fn)(const struct export *x, uint32_t id,
				     struct export_cursor *cursor))
{
	cleanup_cursor struct export_cursor cursor = EXPORT_CURSOR;
	uint32_t count = x->end - x->top;

	for (uint32_t i = 0; i < count; i++) {
		uint32_t id = deepest_first ? x->end - 1 - i : x->top + i;
		struct tree_entry e;
		int error;

		tree_get(x->tree, id, &e);
		if (e.type != TREE_DIR || !e.depth || export_state_of(x, id) == EXPORT_FAILED)
			continue;
		if (export_lies_below_failure(x, id)) {
			export_set_state(x, id, EXPORT_FAILED);
			continue;
		}
		error = fn(x, id, &cursor);
		if (error)
			export_failed(x, id, error, NULL);
		else
			export_set_state(x, id, EXPORT_DONE);
	}
}

static int finish_directory(const struct export *x, uint32_t id, struct export_cursor *cursor)
{
	cleanup_close int fd = -1;
	struct tree_entry e;
	int parent, error = export_parent_fd(x, id, cursor, &parent);

	tree_get(x->tree, id, &e);
	if (!error)
		error = export_open_dir(parent, e.name, O_RDONLY, &fd);
	return error ? error : export_attr_fd(x, fd, &e);
}

static bool is_empty(int dir)
{
	cleanup_closedir DIR *d = NULL;
	const char *name;

	return !io_opendir(dir, &d) && io_readdir(d, &name) == 0;
}

/* The caller's directory becomes the tree's root where nothing else was in it: it may be a home directory. */
static void finish_root(const struct export *x, bool was_empty)
{
	cleanup_close int fd = -1;
	struct tree_entry e;

	tree_get(x->tree, x->top, &e);
	if (e.depth || !was_empty)
		return;
	fd = openat(x->how->to_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || export_attr_fd(x, fd, &e))
		log_debug("the directory that is restored into keeps its own attributes");
}

/* ---- all ---- */

static uint64_t count_left_out(const struct export *x)
{
	uint64_t count = 0;
	struct tree_entry e;

	for (uint32_t id = x->top; !x->privileged && id < x->end; id++) {
		tree_get(x->tree, id, &e);
		count += export_lends_rights(&e);
	}
	return count;
}

static void restore(struct export *x)
{
	bool was_empty;

	export_sweep(x->how->to_fd);
	was_empty = is_empty(x->how->to_fd);
	export_advance(x, 0, 0);
	each_directory(x, false, make_directory);
	export_files(x);
	export_others(x);
	each_directory(x, true, finish_directory);
	finish_root(x, was_empty);
}

static void export_free(struct export *x)
{
	free(x->state);
	free(x->files);
	free(x->first_of_group);
	tree_unref(x->tree);
	mutex_destroy(&x->lock);
}

int catalog_export(struct catalog *c, uint64_t number, const struct catalog_export *how,
		   uint64_t *ret_failed)
{
	struct export x = {.catalog = c, .how = how, .number = number};
	int error = catalog_tree(c, number, &x.tree);

	*ret_failed = 0;
	if (error)
		return error;
	mutex_init(&x.lock, LOCK_EXPORT);
	x.owners = geteuid() == 0;
	x.privileged = x.owners && how->privileged;
	error = plan(&x);
	if (!error) {
		restore(&x);
		*ret_failed = x.failed;
		if (how->left_out)
			*how->left_out = count_left_out(&x);
		error = x.first_error;
	}
	export_free(&x);
	return error;
}

/* Restoring: files that are there already and whole, of an earlier run or of anybody, are not fetched again. */

/* Nobody else's, no name of something else, and nothing that the tree's has not. */
static bool may_be_kept(int fd, const struct tree_entry *e)
{
	char names[XATTR_LIST_MAX];
	const void *value;
	struct stat st;
	size_t value_len;
	ssize_t len;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != e->size ||
	    (st.st_uid != geteuid() && geteuid() != 0) ||
	    (st.st_nlink > 1 && (!e->group || geteuid() == 0)))
		return false;
	len = flistxattr(fd, names, sizeof(names));
	for (ssize_t at = 0; at < len; at += (ssize_t)strlen(names + at) + 1)
		if (!strncmp(names + at, "user.", 5) &&
		    xattrs_get(e->xattrs, e->xattrs_len, names + at, &value, &value_len) != 0)
			return false;
	return true;
}

static bool same_segment(const struct remote *r, int fd, const struct recipe_segment *s,
			 uint8_t *data)
{
	struct hash hash;

	if (!s->zero) {
		if (io_pread_full(fd, data, s->length, s->offset))
			return false;
		remote_address(r, data, s->length, &hash);
		return hash_equal(&hash, &s->hash);
	}
	for (uint64_t at = 0, n; at < s->length; at += n) {
		n = s->length - at < CHUNK_PLAIN_MAX ? s->length - at : CHUNK_PLAIN_MAX;
		if (io_pread_full(fd, data, n, s->offset + at) || data[0] ||
		    memcmp(data, data + 1, n - 1) != 0)
			return false;
	}
	return true;
}

static bool same_recipe(struct export *x, int fd, const struct tree_entry *e)
{
	cleanup_free uint8_t *data = malloc(CHUNK_PLAIN_MAX);
	cleanup_recipe struct recipe recipe = {0};

	/* Who restores it says what is wrong. */
	if (!data || store_get_recipe(x->catalog->store, &e->u.recipe, &recipe, NULL) ||
	    recipe.size != e->size)
		return false;
	for (size_t i = 0; i < recipe.count; i++)
		if (atomic_load(&x->stopped) ||
		    !same_segment(x->catalog->remote, fd, &recipe.segments[i], data))
			return false;
	return true;
}

static bool same_content(struct export *x, int fd, const struct tree_entry *e)
{
	char data[TREE_INLINE_MAX];

	if (e->content == TREE_EMPTY)
		return true;
	if (e->content == TREE_RECIPE)
		return same_recipe(x, fd, e);
	return !io_pread_full(fd, data, e->size, 0) && !memcmp(data, e->u.inline_data, e->size);
}

bool export_keep(struct export *x, int dir, const struct tree_entry *e)
{
	cleanup_close int fd = -1;

	if (!x->how->force)
		return false;
	fd = openat(dir, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || !may_be_kept(fd, e) || !same_content(x, fd, e) || export_attr_fd(x, fd, e))
		return false;
	export_advance(x, 1, e->size);
	return true;
}
