/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree rebuilt from an epoch's tree. */
#include "lib/epochs/adopt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "lib/cache/reclaim.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/format/tree_diff.h"
#include "lib/format/xattrs.h"
#include "lib/live/bodies.h"
#include "lib/util/lock.h"

/* A directory of the tree before may have been made by any earlier epoch: the first stands for it. */
#define BORN_LONG_AGO 1

struct adopting {
	struct volume *vol;
	const struct tree *tree;
	uint64_t number;
	const struct adopt_before *before;
	uint64_t *inos; /* of each entry */
	/* Of each entry: which it is in the trees before, or TREE_NONE. */
	uint32_t *save_ids, *whole_ids;
};

/* ---- the old tree ---- */

struct found_name {
	struct found_name *next;
	uint64_t ino;
	bool is_directory;
	char name[];
};

static int collect_name(void *arg, const struct state_name *n, const char *name,
			const struct state_file *f)
{
	struct found_name **list = arg, *item = malloc(sizeof(*item) + strlen(name) + 1);

	if (!item)
		return -ENOMEM;
	item->next = *list;
	item->ino = n->ino;
	item->is_directory = f && S_ISDIR(f->mode);
	memcpy(item->name, name, strlen(name) + 1);
	*list = item;
	return 0;
}

static int forget_file_locked(struct volume *vol, uint64_t ino)
{
	struct state_file f;
	int error = state_file_get(vol->state, ino, &f);

	if (error)
		return error == -ENOENT ? 0 : error;
	if (f.nlink > 1 && !S_ISDIR(f.mode)) {
		f.nlink--;
		return state_file_set(vol->state, &f);
	}
	error = state_file_remove(vol->state, ino);
	return error ? error : version_died_locked(vol, f.closed);
}

static int forget_below_locked(struct volume *vol, uint64_t dir)
{
	struct found_name *list = NULL, *item;
	int error = state_dir_list(vol->state, dir, 0, collect_name, &list);

	while ((item = list)) {
		list = item->next;
		if (!error && item->is_directory)
			error = forget_below_locked(vol, item->ino);
		if (!error)
			error = state_name_remove(vol->state, dir, item->name);
		if (!error)
			error = forget_file_locked(vol, item->ino);
		free(item);
	}
	return error;
}

/* ---- the new one ---- */

static uint32_t mode_of(const struct tree_entry *e)
{
	static const uint32_t types[] = {
		[TREE_DIR] = S_IFDIR,	[TREE_REGULAR] = S_IFREG, [TREE_SYMLINK] = S_IFLNK,
		[TREE_FIFO] = S_IFIFO,	[TREE_SOCKET] = S_IFSOCK, [TREE_CHAR] = S_IFCHR,
		[TREE_BLOCK] = S_IFBLK,
	};

	return types[e->type] | e->mode;
}

/* The epoch that had this content before, for who asks what was saved since (doubts.h); 0: none is known. */
static uint64_t saved_in(const struct adopting *a, uint32_t id, const struct tree_entry *e)
{
	const struct adopt_before *b = a->before;
	struct tree_entry before;

	if (!b->whole || a->whole_ids[id] == TREE_NONE)
		return 0;
	tree_get(b->whole, a->whole_ids[id], &before);
	return before.type == TREE_REGULAR && tree_same_content(&before, e) ? b->whole_number : 0;
}

/* A copy that is cached here becomes the file's: 1, or 0 where there is none. */
static int take_cached_locked(struct adopting *a, uint32_t id, const struct tree_entry *e,
			      struct state_file *f)
{
	struct state_version v;
	int error = e->content != TREE_RECIPE
			    ? -ENOENT
			    : state_version_by_recipe(a->vol->state, &e->u.recipe, e->size, &v);

	if (error)
		return error == -ENOENT ? 0 : error;
	if (v.kind != VERSION_CACHE)
		return 0;
	v.kind = VERSION_NEW;
	v.ino = f->ino;
	v.body = f->body;
	v.born = a->number;
	v.saved = saved_in(a, id, e);
	v.torn = (e->flags & TREE_TORN) != 0;
	f->live = f->closed = v.id;
	error = state_version_set(a->vol->state, &v);
	return error ? error : 1;
}

static int add_content_locked(struct adopting *a, uint32_t id, const struct tree_entry *e,
			      struct state_file *f)
{
	struct state_version v = {
		.ino = f->ino,
		.body = f->body,
		.state = VERSION_DURABLE,
		.kind = VERSION_NEW,
		.size = e->size,
		.born = a->number,
		.saved = saved_in(a, id, e),
		.torn = (e->flags & TREE_TORN) != 0,
		.has_recipe = e->content == TREE_RECIPE,
		.holes = e->holes,
		.local_whole = e->size == 0,
		.used_ns = clock_wall_ns(),
	};
	int error = take_cached_locked(a, id, e, f);
	uint64_t version;

	if (error)
		return error < 0 ? error : 0;
	if (e->content == TREE_LOCAL)
		return -EBADMSG;
	if (v.has_recipe)
		v.recipe = e->u.recipe;
	error = state_version_new(a->vol->state, &v, &version);
	if (!error && e->content == TREE_INLINE)
		error = state_inline_set(a->vol->state, version, e->u.inline_data, e->size);
	f->live = f->closed = version;
	return error;
}

static int add_xattrs_locked(struct adopting *a, const struct tree_entry *e, uint64_t ino)
{
	struct xattrs_iter it = xattrs_iter_of(e->xattrs, e->xattrs_len);
	const char *name;
	const void *value;
	size_t len;
	int error = 0;

	while (!error && xattrs_next(&it, &name, &value, &len))
		error = state_xattr_set(a->vol->state, ino, name, value, len);
	return error;
}

/* What is saved in a directory that the save of this epoch made continues it (sealer_continues.c). */
static uint64_t born_of(const struct adopting *a, uint32_t id)
{
	return a->before->save && a->save_ids[id] == TREE_NONE ? a->before->half : BORN_LONG_AGO;
}

static void find_in(const struct adopting *a, const struct tree *before, uint32_t *ids, uint32_t id,
		    const struct tree_entry *e)
{
	uint32_t dir = ids[tree_parent(a->tree, id)];

	if (!before)
		return;
	ids[id] = dir == TREE_NONE ? TREE_NONE : tree_lookup(before, dir, e->name, strlen(e->name));
}

static int add_file_locked(struct adopting *a, uint32_t id, const struct tree_entry *e)
{
	struct volume *vol = a->vol;
	struct state_file f = {
		.mode = mode_of(e),
		.uid = e->uid,
		.gid = e->gid,
		.rdev = (uint32_t)makedev(e->rdev_major, e->rdev_minor),
		.nlink = tree_nlink(a->tree, id),
		.size = e->type == TREE_DIR ? 4096 : e->size,
		.mtime_ns = e->mtime_ns,
		.ctime_ns = e->mtime_ns,
		.atime_ns = e->mtime_ns,
		.born = born_of(a, id),
		.parent = e->type == TREE_DIR ? a->inos[tree_parent(a->tree, id)] : 0,
	};
	int error = state_file_new(vol->state, &f, &a->inos[id]);

	f.ino = a->inos[id];
	if (!error && e->type == TREE_REGULAR) {
		f.body = object_new_id(vol);
		error = add_content_locked(a, id, e, &f);
		if (!error)
			error = state_file_set(vol->state, &f);
	}
	if (!error && e->type == TREE_SYMLINK)
		error = state_symlink_set(vol->state, f.ino, e->u.target, e->size);
	return error ? error : add_xattrs_locked(a, e, f.ino);
}

static int collect_xattr(void *arg, const char *name, const void *value, size_t len)
{
	return xattrs_set(arg, name, value, len);
}

static int clear_xattrs_locked(struct volume *vol, uint64_t ino)
{
	cleanup_buf struct buf old = {0};
	struct xattrs_iter it;
	const char *name;
	const void *value;
	size_t len;
	int error = state_xattr_list(vol->state, ino, collect_xattr, &old);

	it = xattrs_iter_of(old.data, old.len);
	while (!error && xattrs_next(&it, &name, &value, &len))
		error = state_xattr_remove(vol->state, ino, name);
	return error;
}

static int set_root_locked(struct adopting *a, const struct tree_entry *e)
{
	struct state_file root;
	int error = state_file_get(a->vol->state, ROOT_INO, &root);

	if (!error)
		error = clear_xattrs_locked(a->vol, ROOT_INO);
	if (error)
		return error;
	root.mode = S_IFDIR | e->mode;
	root.uid = e->uid;
	root.gid = e->gid;
	root.nlink = tree_nlink(a->tree, 0);
	root.mtime_ns = root.ctime_ns = e->mtime_ns;
	a->inos[0] = ROOT_INO;
	error = state_file_set(a->vol->state, &root);
	return error ? error : add_xattrs_locked(a, e, ROOT_INO);
}

static int add_entries_locked(struct adopting *a)
{
	int error = 0;

	for (uint32_t id = 0; !error && id < tree_count(a->tree); id++) {
		uint32_t same = tree_identity(a->tree, id);
		struct tree_entry e;

		tree_get(a->tree, id, &e);
		if (id == 0) {
			error = set_root_locked(a, &e);
			continue;
		}
		find_in(a, a->before->save, a->save_ids, id, &e);
		find_in(a, a->before->whole, a->whole_ids, id, &e);
		if (same != id)
			a->inos[id] = a->inos[same];
		else
			error = add_file_locked(a, id, &e);
		if (!error)
			error = state_name_add(a->vol->state, a->inos[tree_parent(a->tree, id)],
					       e.name, a->inos[id]);
	}
	return error;
}

int adopt_tree(struct volume *vol, uint64_t number, const struct tree *tree,
	       const struct adopt_before *before)
{
	cleanup_free uint64_t *inos = calloc(tree_count(tree), sizeof(*inos));
	cleanup_free uint32_t *save_ids = calloc(tree_count(tree), sizeof(*save_ids));
	cleanup_free uint32_t *whole_ids = calloc(tree_count(tree), sizeof(*whole_ids));
	struct adopting a = {vol, tree, number, before, inos, save_ids, whole_ids};
	int error;

	if (!inos || !save_ids || !whole_ids)
		return -ENOMEM;
	mutex_lock(&vol->lock);
	error = state_begin(vol->state);
	if (!error) {
		error = forget_below_locked(vol, ROOT_INO);
		if (!error)
			error = add_entries_locked(&a);
		if (!error)
			error = state_set_meta_u64(vol->state, "current", number);
		if (!error)
			error = doubts_of_epoch_locked(vol, number);
		error = state_end(vol->state, error);
	}
	if (!error)
		vol->current_epoch = number;
	mutex_unlock(&vol->lock);
	return error;
}
