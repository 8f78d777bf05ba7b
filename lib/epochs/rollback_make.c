/* SPDX-License-Identifier: Apache-2.0 */
/* Rollback, pass 3: files that are missing are made, and attributes, xattrs and content set. */
#include "lib/epochs/rollback_passes.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/format/xattrs.h"
#include "lib/util/clock.h"
#include "lib/live/body.h"

/* A version that nothing shows: dead, or a cached copy. It may live again. */
static bool is_free(const struct state_version *v)
{
	return v->state != VERSION_STAGED && (v->died || v->kind == VERSION_CACHE);
}

/* What was cached for a reader does not know; a power loss may have been noticed after the seal, and then the record names it. */
bool is_torn_there(const struct apply *a, const struct tree_entry *e, const struct state_version *v)
{
	return (e->flags & TREE_TORN) != 0 || (v->torn && !a->all_whole);
}

static int revive(struct apply *a, const struct tree_entry *e, struct state_version *v,
		  const struct state_file *f)
{
	if (v->kind == VERSION_CACHE) {
		v->kind = VERSION_EDIT;
		v->born = a->vol->next_epoch;
		v->saved = a->number;
	}
	v->ino = f->ino;
	v->body = f->body;
	v->died = 0;
	v->torn = is_torn_there(a, e, v);
	return state_version_set(a->vol->state, v);
}

static int take_local(struct apply *a, const struct tree_entry *e, struct state_file *f)
{
	struct state_version v;
	int error = state_version_get(a->vol->state, e->u.version, &v);

	if (error == -ENOENT || (!error && !is_free(&v)))
		return -ESTALE;
	if (!error)
		error = revive(a, e, &v, f);
	f->closed = v.id;
	return error;
}

static int new_version(struct apply *a, const struct tree_entry *e, struct state_file *f)
{
	struct state_version v = {
		.ino = f->ino,
		.body = f->body,
		.state = VERSION_DURABLE,
		.kind = VERSION_EDIT,
		.size = e->size,
		.born = a->vol->next_epoch,
		.saved = a->number,
		.has_recipe = e->content == TREE_RECIPE,
		.holes = e->holes,
		.torn = (e->flags & TREE_TORN) != 0,
		.used_ns = clock_wall_ns(),
	};
	int error;

	if (v.has_recipe)
		v.recipe = e->u.recipe;
	if (e->content == TREE_EMPTY) {
		v.state = VERSION_CLOSED;
		v.local_whole = true;
	}
	error = state_version_new(a->vol->state, &v, &f->closed);
	if (!error && e->content == TREE_INLINE)
		error = state_inline_set(a->vol->state, f->closed, e->u.inline_data, e->size);
	return error;
}

static int take_recipe(struct apply *a, const struct tree_entry *e, struct state_file *f)
{
	struct state_version v;
	int error = state_version_by_recipe(a->vol->state, &e->u.recipe, e->size, &v);

	if (error && error != -ENOENT)
		return error;
	if (error || !is_free(&v))
		return new_version(a, e, f);
	error = revive(a, e, &v, f);
	f->closed = v.id;
	return error;
}

static int take_content(struct apply *a, const struct tree_entry *e, struct state_file *f)
{
	int error;

	f->body = object_new_id(a->vol);
	if (e->content == TREE_LOCAL)
		error = take_local(a, e, f);
	else if (e->content == TREE_RECIPE)
		error = take_recipe(a, e, f);
	else
		error = new_version(a, e, f);
	f->live = f->closed;
	f->size = e->size;
	return error;
}

static int collect_xattr(void *arg, const char *name, const void *value, size_t len)
{
	return xattrs_set(arg, name, value, len);
}

static int set_xattrs(struct apply *a, uint64_t ino, const struct tree_entry *e, bool *ret_changed)
{
	cleanup_buf struct buf live = {0};
	struct xattrs_iter it;
	const char *name;
	const void *value;
	size_t len;
	int error = state_xattr_list(a->vol->state, ino, collect_xattr, &live);

	if (error || (live.len == e->xattrs_len &&
		      (!live.len || memcmp(live.data, e->xattrs, live.len) == 0)))
		return error;
	*ret_changed = true;
	it = xattrs_iter_of(live.data, live.len);
	while (!error && xattrs_next(&it, &name, &value, &len))
		error = state_xattr_remove(a->vol->state, ino, name);
	it = xattrs_iter_of(e->xattrs, e->xattrs_len);
	while (!error && xattrs_next(&it, &name, &value, &len))
		error = state_xattr_set(a->vol->state, ino, name, value, len);
	return error;
}

/* Attributes as the tree says; true where any differed. */
static bool set_attributes(const struct apply *a, uint32_t id, const struct tree_entry *e,
			   uint64_t parent, struct state_file *f)
{
	struct state_file old = *f;

	f->mode = mode_of_entry(e);
	f->uid = e->uid;
	f->gid = e->gid;
	f->rdev = rdev_of_entry(e);
	f->nlink = tree_nlink(a->tree, id) + a->more_links[id];
	f->mtime_ns = e->mtime_ns;
	f->parent = e->type == TREE_DIR ? parent : 0;
	return f->mode != old.mode || f->uid != old.uid || f->gid != old.gid ||
	       f->rdev != old.rdev || f->nlink != old.nlink || f->mtime_ns != old.mtime_ns ||
	       f->parent != old.parent;
}

static int new_file(struct apply *a, uint32_t id, const struct tree_entry *e, struct state_file *f)
{
	int error;

	*f = (struct state_file){
		.mode = mode_of_entry(e),
		.size = e->type == TREE_DIR ? 4096 : e->size,
		.atime_ns = e->mtime_ns,
		.born = a->vol->next_epoch,
	};
	error = state_file_new(a->vol->state, f, &f->ino);
	if (!error && e->type == TREE_SYMLINK)
		error = state_symlink_set(a->vol->state, f->ino, e->u.target, e->size);
	a->ino[tree_identity(a->tree, id)] = f->ino;
	return error;
}

/* The file of an entry, made or made equal. */
int make_file(struct apply *a, uint32_t id, const struct tree_entry *e, uint64_t parent)
{
	uint32_t identity = tree_identity(a->tree, id);
	bool changed = false;
	struct state_file f;
	int error;

	if (a->finished[identity])
		return 0;
	a->finished[identity] = true;
	error = a->ino[identity] ? state_file_get(a->vol->state, a->ino[identity], &f)
				 : new_file(a, id, e, &f);
	if (!error && e->type == TREE_REGULAR && !f.closed) {
		error = take_content(a, e, &f);
		changed = true;
	}
	if (!error)
		error = set_xattrs(a, f.ino, e, &changed);
	if (error)
		return error;
	if (!set_attributes(a, id, e, parent, &f) && !changed)
		return 0;
	f.ctime_ns = a->now_ns;
	notice_file(a, f.ino);
	return state_file_set(a->vol->state, &f);
}

int make_dir(struct apply *a, uint32_t dir)
{
	uint64_t parent = a->ino[dir];
	uint32_t count;
	const uint32_t *children = tree_children(a->tree, dir, &count);

	for (uint32_t i = 0; i < count; i++) {
		uint32_t child = children[i];
		struct tree_entry e;
		int error;

		tree_get(a->tree, child, &e);
		/* Somebody removed it. */
		if (a->keep_logs && e.flags & TREE_LOG && !a->present[child] && a->present[dir])
			continue;
		error = make_file(a, child, &e, parent);
		if (!error && !a->present[child]) {
			error = state_name_add(a->vol->state, parent, e.name,
					       a->ino[tree_identity(a->tree, child)]);
			notice_name(a, parent, e.name);
		}
		if (!error && e.type == TREE_DIR)
			error = make_dir(a, child);
		if (error)
			return error;
	}
	return 0;
}
