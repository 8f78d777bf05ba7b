/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of epochs: local files, and a small cache of decoded trees. */
#include "lib/cache/trees.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "lib/cache/cache_dir.h"
#include "lib/state/reserve.h"
#include "lib/store/store.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"

/* At most so many trees stay decoded, and at most so many bytes of encodings (but the last used
 * one stays in any case). */
#define CACHED_TREES 16
#define CACHED_BYTES (24u << 20)

struct cached {
	uint64_t number; /* 0: free */
	struct tree *tree;
	size_t bytes;
	uint64_t used; /* rises */
};

struct trees {
	struct mutex lock; /* guards all below; never held over I/O */
	struct cached cached[CACHED_TREES];
	size_t bytes;
	uint64_t clock;
	/* Rises with every change of a file, so that a load that began before does not put an old
	 * tree over a new one. */
	uint64_t changes;
};

int trees_new(struct trees **ret_trees)
{
	struct trees *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	mutex_init(&t->lock, LOCK_TREES);
	*ret_trees = t;
	return 0;
}

static void cached_drop(struct trees *t, struct cached *c)
{
	t->bytes -= c->bytes;
	tree_unref(c->tree);
	*c = (struct cached){0};
}

void trees_free(struct trees *t)
{
	if (!t)
		return;
	for (unsigned i = 0; i < CACHED_TREES; i++)
		if (t->cached[i].number)
			cached_drop(t, &t->cached[i]);
	mutex_destroy(&t->lock);
	free(t);
}

static struct cached *cached_find(struct trees *t, uint64_t number)
{
	for (unsigned i = 0; i < CACHED_TREES; i++)
		if (t->cached[i].number == number)
			return &t->cached[i];
	return NULL;
}

static struct cached *cached_oldest(struct trees *t)
{
	struct cached *oldest = NULL;

	for (unsigned i = 0; i < CACHED_TREES; i++) {
		struct cached *c = &t->cached[i];

		if (c->number && (!oldest || c->used < oldest->used))
			oldest = c;
	}
	return oldest;
}

/* Takes a reference of its own. */
static void cached_put(struct trees *t, uint64_t number, struct tree *tree)
{
	struct cached *c = cached_find(t, number);
	size_t bytes;

	tree_data(tree, &bytes);
	if (c)
		cached_drop(t, c);
	while ((c = cached_oldest(t)) && (t->bytes + bytes > CACHED_BYTES || !cached_find(t, 0)))
		cached_drop(t, c);
	c = cached_find(t, 0);
	*c = (struct cached){number, tree_ref(tree), bytes, ++t->clock};
	t->bytes += bytes;
}

#define TREE_FILE_MAX 32

static void tree_file(uint64_t number, char ret_name[TREE_FILE_MAX])
{
	snprintf(ret_name, TREE_FILE_MAX, "%020" PRIu64, number);
}

/* Without fsync: io_replace_file would wait for all that the journal has to write. */
static int replace_quickly(int dirfd, const char *name, const void *data, size_t len)
{
	char temporary[TREE_FILE_MAX + 8];
	cleanup_close int fd = -1;
	int error;

	snprintf(temporary, sizeof(temporary), "%s.tmp", name);
	fd = openat(dirfd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	error = io_write_full(fd, data, len);
	if (!error && renameat(dirfd, temporary, dirfd, name) < 0)
		error = -errno;
	if (error)
		unlinkat(dirfd, temporary, 0);
	return error;
}

int trees_store(struct volume *vol, uint64_t number, void *data, size_t len, unsigned flags,
		struct tree **ret_tree)
{
	cleanup_tree struct tree *tree = NULL;
	struct trees *t = vol->trees;
	char name[TREE_FILE_MAX];
	int error = tree_decode(data, len, flags, &tree);

	if (error) {
		free(data);
		return error;
	}
	tree_file(number, name);
	do
		error = replace_quickly(vol->trees_fd, name, data, len);
	while (reserve_is_for(error) && reserve_give(state_reserve(vol->state), len));
	if (error)
		return cache_errno(vol, error);
	mutex_lock(&t->lock);
	t->changes++;
	cached_put(t, number, tree);
	mutex_unlock(&t->lock);
	if (ret_tree)
		*ret_tree = steal_ptr(tree);
	return 0;
}

/* A reference, or NULL; `ret_changes` is what cached_put may be compared with later. */
static struct tree *cached_get(struct trees *t, uint64_t number, uint64_t *ret_changes)
{
	struct tree *tree = NULL;
	struct cached *c;

	mutex_lock(&t->lock);
	*ret_changes = t->changes;
	c = cached_find(t, number);
	if (c) {
		c->used = ++t->clock;
		tree = tree_ref(c->tree);
	}
	mutex_unlock(&t->lock);
	return tree;
}

int trees_load(struct volume *vol, uint64_t number, struct tree **ret_tree)
{
	struct trees *t = vol->trees;
	cleanup_buf struct buf data = {0};
	struct tree *tree;
	uint64_t changes;
	char name[TREE_FILE_MAX];
	size_t len;
	void *bytes;
	int error;

	if (!number)
		return -ENOENT;
	tree = cached_get(t, number, &changes);
	if (tree) {
		*ret_tree = tree;
		return 0;
	}
	tree_file(number, name);
	error = io_read_file(vol->trees_fd, name, TREE_ENCODED_MAX, &data);
	if (error)
		return error;
	bytes = buf_steal(&data, &len);
	error = tree_decode(bytes, len, TREE_ALLOW_LOCAL, &tree);
	if (error) {
		free(bytes);
		return error;
	}
	mutex_lock(&t->lock);
	if (t->changes == changes)
		cached_put(t, number, tree);
	mutex_unlock(&t->lock);
	*ret_tree = tree;
	return 0;
}

int trees_fetch(struct volume *vol, uint64_t number, const struct epoch_record *record,
		struct tree **ret_tree)
{
	cleanup_buf struct buf data = {0};
	int error = trees_load(vol, number, ret_tree);
	size_t len;
	void *bytes;

	if (error != -ENOENT && error != -EBADMSG)
		return error;
	if (!record->chunk_count || !vol->store)
		return error;
	error = store_get_tree(vol->store, record, &data);
	if (error)
		return error;
	bytes = buf_steal(&data, &len);
	return trees_store(vol, number, bytes, len, 0, ret_tree);
}

int trees_remove(struct volume *vol, uint64_t number)
{
	struct trees *t = vol->trees;
	struct cached *c;
	char name[TREE_FILE_MAX];

	mutex_lock(&t->lock);
	t->changes++;
	c = cached_find(t, number);
	if (c && number)
		cached_drop(t, c);
	mutex_unlock(&t->lock);
	tree_file(number, name);
	if (unlinkat(vol->trees_fd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	return 0;
}
