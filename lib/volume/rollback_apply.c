/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making the live tree equal a tree, in three passes: match what is at the same path, remove what
 * is not in the tree, make what is missing or differs. Content is let go before any is taken, so
 * that a version may move from one file to another.
 */
#include "lib/volume/rollback.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "lib/format/xattrs.h"
#include "lib/util/clock.h"
#include "lib/volume/body.h"

/* A file with several names, and what of the tree it is. */
struct claim {
	uint64_t ino;
	uint32_t identity;
};

struct apply {
	struct volume *vol;
	const struct tree *tree;
	struct rollback_notice *notice;
	int64_t now_ns;
	uint64_t *ino;	    /* of each identity; 0: none yet */
	bool *present;	    /* entry: its name leads to that file already */
	bool *finished;	    /* identity: its file is as the tree says */
	struct buf claims;  /* struct claim */
	struct buf removed; /* struct removal, each followed by its name with NUL, padded to 8 */
};

struct removal {
	uint64_t parent, ino;
	uint32_t mode, name_room;
};

static void notice_name(struct apply *a, uint64_t parent, const char *name)
{
	buf_put_u64(&a->notice->names, parent);
	buf_put(&a->notice->names, name, strlen(name) + 1);
}

static void notice_file(struct apply *a, uint64_t ino)
{
	buf_put_u64(&a->notice->files, ino);
}

static uint32_t mode_of_entry(const struct tree_entry *e)
{
	static const uint32_t type[] = {
		[TREE_DIR] = S_IFDIR,	[TREE_REGULAR] = S_IFREG, [TREE_SYMLINK] = S_IFLNK,
		[TREE_FIFO] = S_IFIFO,	[TREE_SOCKET] = S_IFSOCK, [TREE_CHAR] = S_IFCHR,
		[TREE_BLOCK] = S_IFBLK,
	};

	return type[e->type] | e->mode;
}

static uint32_t rdev_of_entry(const struct tree_entry *e)
{
	return e->type == TREE_CHAR || e->type == TREE_BLOCK
		       ? (uint32_t)makedev(e->rdev_major, e->rdev_minor)
		       : 0;
}

/* ---- pass 1: what is at the same path ---- */

struct live_name {
	struct state_file file;
	uint64_t covered;
	char name[256];
};

static int collect_name(void *arg, const struct state_name *n, const char *name,
			const struct state_file *f)
{
	struct buf *list = arg;
	struct live_name one = {.covered = n->covered};

	if (!f)
		return 0;
	one.file = *f;
	snprintf(one.name, sizeof(one.name), "%s", name);
	buf_put(list, &one, sizeof(one));
	return buf_error(list);
}

static int note_removal(struct apply *a, uint64_t parent, const struct live_name *n)
{
	static const char padding[8];
	size_t len = strlen(n->name) + 1, room = (len + 7) & ~(size_t)7;
	struct removal r = {parent, n->file.ino, n->file.mode, (uint32_t)room};

	buf_put(&a->removed, &r, sizeof(r));
	buf_put(&a->removed, n->name, len);
	buf_put(&a->removed, padding, room - len);
	return buf_error(&a->removed);
}

static bool same_target(struct apply *a, const struct state_file *f, const struct tree_entry *e)
{
	cleanup_buf struct buf target = {0};

	return state_symlink_get(a->vol->state, f->ino, &target) == 0 &&
	       strcmp(buf_str(&target), e->u.target) == 0;
}

/* Can this live file become that entry without being made anew? */
static bool is_same_kind(struct apply *a, const struct state_file *f, const struct tree_entry *e)
{
	if ((f->mode & S_IFMT) != (mode_of_entry(e) & S_IFMT))
		return false;
	if (e->type == TREE_SYMLINK)
		return same_target(a, f, e);
	return e->type == TREE_REGULAR || f->rdev == rdev_of_entry(e);
}

/* One file cannot be two of the tree's, nor one of the tree's two files. */
static bool claim(struct apply *a, const struct state_file *f, uint32_t identity)
{
	const struct claim *claims = (const struct claim *)a->claims.data;
	struct claim mine = {f->ino, identity};

	if (a->ino[identity])
		return a->ino[identity] == f->ino;
	if (!S_ISDIR(f->mode) && f->nlink > 1) {
		for (size_t i = 0; i < a->claims.len / sizeof(*claims); i++)
			if (claims[i].ino == f->ino)
				return false;
		buf_put(&a->claims, &mine, sizeof(mine));
	}
	a->ino[identity] = f->ino;
	return true;
}

/* An open file that was renamed over a committed one counts for nothing: the name is that one's. */
static int uncover(struct apply *a, uint64_t dir, struct live_name *n)
{
	struct state_file over = n->file;
	int error;

	if (!n->covered)
		return 0;
	error = state_file_get(a->vol->state, n->covered, &n->file);
	if (error)
		return error == -ENOENT ? 0 : error;
	error = state_name_set(a->vol->state, dir, n->name, n->covered, 0);
	notice_name(a, dir, n->name);
	over.nlink = over.nlink ? over.nlink - 1 : 0;
	if (error)
		return error;
	return over.nlink ? state_file_set(a->vol->state, &over)
			  : body_file_unlinked_locked(a->vol, &over);
}

static int match_dir(struct apply *a, uint64_t dir, uint32_t entry);

static int match_name(struct apply *a, uint64_t dir, uint32_t entry, struct live_name *n)
{
	uint32_t child = tree_lookup(a->tree, entry, n->name, strlen(n->name));
	struct tree_entry e;
	int error = uncover(a, dir, n);

	if (error)
		return error;
	if (child == TREE_NONE)
		return note_removal(a, dir, n);
	tree_get(a->tree, child, &e);
	if (!is_same_kind(a, &n->file, &e) || !claim(a, &n->file, tree_identity(a->tree, child)))
		return note_removal(a, dir, n);
	a->present[child] = true;
	return e.type == TREE_DIR ? match_dir(a, n->file.ino, child) : 0;
}

static int match_dir(struct apply *a, uint64_t dir, uint32_t entry)
{
	cleanup_buf struct buf list = {0};
	struct live_name *names;
	int error = state_dir_list(a->vol->state, dir, 0, collect_name, &list);

	names = (struct live_name *)list.data;
	for (size_t i = 0; !error && i < list.len / sizeof(*names); i++)
		error = match_name(a, dir, entry, &names[i]);
	return error ? error : buf_error(&a->claims);
}

/* ---- pass 2: what is not in the tree goes, and content that differs is let go ---- */

static int remove_one(struct apply *a, uint64_t parent, const char *name, uint64_t ino);

static int remove_below(struct apply *a, uint64_t dir)
{
	cleanup_buf struct buf list = {0};
	struct live_name *names;
	int error = state_dir_list(a->vol->state, dir, 0, collect_name, &list);

	names = (struct live_name *)list.data;
	for (size_t i = 0; !error && i < list.len / sizeof(*names); i++) {
		error = uncover(a, dir, &names[i]);
		if (!error)
			error = remove_one(a, dir, names[i].name, names[i].file.ino);
	}
	return error;
}

static int remove_one(struct apply *a, uint64_t parent, const char *name, uint64_t ino)
{
	struct volume *vol = a->vol;
	struct state_file f;
	int error = state_name_remove(vol->state, parent, name);

	if (!error)
		error = state_file_get(vol->state, ino, &f);
	if (error)
		return error;
	notice_name(a, parent, name);
	if (S_ISDIR(f.mode)) {
		error = remove_below(a, ino);
		return error ? error : state_file_remove(vol->state, ino);
	}
	f.nlink = f.nlink ? f.nlink - 1 : 0;
	f.ctime_ns = a->now_ns;
	return f.nlink ? state_file_set(vol->state, &f) : body_file_unlinked_locked(vol, &f);
}

static int remove_all(struct apply *a)
{
	for (size_t at = 0; at < a->removed.len;) {
		const struct removal *r = (const struct removal *)(a->removed.data + at);
		int error = remove_one(a, r->parent, (const char *)(r + 1), r->ino);

		if (error)
			return error;
		at += sizeof(*r) + r->name_room;
	}
	return 0;
}

static int same_inline(struct apply *a, const struct state_version *v, const struct tree_entry *e)
{
	cleanup_buf struct buf data = {0};
	int error = v->state == VERSION_DURABLE && !v->has_recipe
			    ? state_inline_get(a->vol->state, v->id, &data)
			    : -ENOENT;

	if (error)
		return error == -ENOENT ? 0 : error;
	return data.len == e->size && memcmp(data.data, e->u.inline_data, data.len) == 0;
}

/* 1: the file's closed content is the entry's. */
static int same_content(struct apply *a, const struct state_file *f, const struct tree_entry *e)
{
	struct state_version v;
	int error = f->closed ? state_version_get(a->vol->state, f->closed, &v) : -ENOENT;

	if (error)
		return error == -ENOENT ? 0 : error;
	if (v.size != e->size)
		return 0;
	switch (e->content) {
	case TREE_EMPTY:
		return 1;
	case TREE_INLINE:
		return same_inline(a, &v, e);
	case TREE_RECIPE:
		return v.has_recipe && hash_equal(&v.recipe, &e->u.recipe);
	case TREE_LOCAL:
		return v.id == e->u.version;
	}
	return 0;
}

/* Nothing is buried here: what dies may be what another file takes. */
static int version_dies(struct apply *a, uint64_t version)
{
	struct state_version v;
	int error = version ? state_version_get(a->vol->state, version, &v) : -ENOENT;

	if (error || v.died)
		return error == -ENOENT ? 0 : error;
	v.died = a->vol->next_epoch;
	return state_version_set(a->vol->state, &v);
}

static int let_go(struct apply *a, uint32_t identity)
{
	struct tree_entry e;
	struct state_file f;
	int same, error;

	tree_get(a->tree, identity, &e);
	if (e.type != TREE_REGULAR || !a->ino[identity])
		return 0;
	error = state_file_get(a->vol->state, a->ino[identity], &f);
	if (error)
		return error;
	same = same_content(a, &f, &e);
	if (same < 0)
		return same;
	if (same && f.live == f.closed)
		return 0;
	body_orphan_locked(a->vol, f.ino);
	f.body = body_new_id(a->vol);
	f.live = f.closed;
	notice_file(a, f.ino);
	if (!same) {
		error = version_dies(a, f.closed);
		f.live = f.closed = 0;
	}
	return error ? error : state_file_set(a->vol->state, &f);
}

/* ---- pass 3: what is missing is made ---- */

/* A version that nothing shows: dead, or a cached copy. It may live again. */
static bool is_free(const struct state_version *v)
{
	return v->state != VERSION_STAGED && (v->died || v->kind == VERSION_CACHE);
}

static int revive(struct apply *a, struct state_version *v, const struct state_file *f)
{
	if (v->kind == VERSION_CACHE) {
		v->kind = VERSION_EDIT;
		v->born = a->vol->next_epoch;
	}
	v->ino = f->ino;
	v->body = f->body;
	v->died = 0;
	return state_version_set(a->vol->state, v);
}

static int take_local(struct apply *a, const struct tree_entry *e, struct state_file *f)
{
	struct state_version v;
	int error = state_version_get(a->vol->state, e->u.version, &v);

	if (error == -ENOENT || (!error && !is_free(&v)))
		return -ESTALE;
	if (!error)
		error = revive(a, &v, f);
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
		.has_recipe = e->content == TREE_RECIPE,
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
	int error = state_version_by_recipe(a->vol->state, &e->u.recipe, &v);

	if (error && error != -ENOENT)
		return error;
	if (error || !is_free(&v))
		return new_version(a, e, f);
	error = revive(a, &v, f);
	f->closed = v.id;
	return error;
}

static int take_content(struct apply *a, const struct tree_entry *e, struct state_file *f)
{
	int error;

	f->body = body_new_id(a->vol);
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
	f->nlink = tree_nlink(a->tree, id);
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
static int make_file(struct apply *a, uint32_t id, const struct tree_entry *e, uint64_t parent)
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

static int make_dir(struct apply *a, uint32_t dir)
{
	uint64_t parent = a->ino[dir];
	uint32_t count;
	const uint32_t *children = tree_children(a->tree, dir, &count);

	for (uint32_t i = 0; i < count; i++) {
		uint32_t child = children[i];
		struct tree_entry e;
		int error;

		tree_get(a->tree, child, &e);
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

/* ---- all of it ---- */

static int apply_passes(struct apply *a)
{
	struct tree_entry root;
	int error;

	a->ino[0] = ROOT_INO;
	error = match_dir(a, ROOT_INO, 0);
	for (uint32_t id = 0; !error && id < tree_count(a->tree); id++)
		if (tree_identity(a->tree, id) == id)
			error = let_go(a, id);
	if (!error)
		error = remove_all(a);
	if (error)
		return error;
	tree_get(a->tree, 0, &root);
	error = make_file(a, 0, &root, ROOT_INO);
	if (!error)
		error = make_dir(a, 0);
	return error ? error : buf_error(&a->notice->names);
}

int rollback_apply_locked(struct volume *vol, const struct tree *tree,
			  struct rollback_notice *notice)
{
	uint32_t count = tree_count(tree);
	struct apply a = {
		.vol = vol,
		.tree = tree,
		.notice = notice,
		.now_ns = clock_wall_ns(),
		.ino = calloc(count, sizeof(*a.ino)),
		.present = calloc(count, sizeof(*a.present)),
		.finished = calloc(count, sizeof(*a.finished)),
	};
	int error = a.ino && a.present && a.finished ? 0 : -ENOMEM;

	if (!error)
		error = apply_passes(&a);
	free(a.ino);
	free(a.present);
	free(a.finished);
	buf_free(&a.claims);
	buf_free(&a.removed);
	return error;
}

void rollback_notice_tell(struct volume *vol, struct rollback_notice *notice)
{
	struct reader r = reader_of(notice->names.data, notice->names.len);

	while (reader_left(&r)) {
		uint64_t parent = reader_u64(&r);
		const char *name = (const char *)r.p;

		reader_skip(&r, strlen(name) + 1);
		volume_entry_changed(vol, parent, name);
	}
	r = reader_of(notice->files.data, notice->files.len);
	while (reader_left(&r))
		volume_file_changed(vol, reader_u64(&r));
	buf_free(&notice->names);
	buf_free(&notice->files);
}
