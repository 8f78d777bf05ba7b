/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing two trees, directory by directory. */
#include "lib/format/tree_diff.h"

#include <errno.h>
#include <string.h>

#include "lib/format/tree_wire.h"

struct diff {
	const struct tree *a;
	const struct tree *b;
	tree_change_fn fn;
	void *arg;
	struct buf path; /* of the directory that is compared, then of the entry */
};

bool tree_same_content(const struct tree_entry *a, const struct tree_entry *b)
{
	if (a->type != b->type || a->size != b->size)
		return false;
	switch (a->type) {
	case TREE_SYMLINK:
		return !strcmp(a->u.target, b->u.target);
	case TREE_CHAR:
	case TREE_BLOCK:
		return a->rdev_major == b->rdev_major && a->rdev_minor == b->rdev_minor;
	case TREE_REGULAR:
		break;
	default:
		return true;
	}
	if (a->content != b->content)
		return (a->content == TREE_LOCAL || b->content == TREE_LOCAL) &&
		       a->mtime_ns == b->mtime_ns;
	switch (a->content) {
	case TREE_INLINE:
		return !memcmp(a->u.inline_data, b->u.inline_data, (size_t)a->size);
	case TREE_RECIPE:
		return hash_equal(&a->u.recipe, &b->u.recipe);
	case TREE_LOCAL:
		return a->u.version == b->u.version;
	default:
		return true;
	}
}

static bool same_but_mtime(const struct tree_entry *a, const struct tree_entry *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->flags == b->flags &&
	       a->xattrs_len == b->xattrs_len &&
	       (!a->xattrs_len || !memcmp(a->xattrs, b->xattrs, a->xattrs_len));
}

bool tree_same_meta(const struct tree_entry *a, const struct tree_entry *b)
{
	return a->mtime_ns == b->mtime_ns && same_but_mtime(a, b);
}

bool tree_change_counts(const struct tree_change *change)
{
	return change->kind != TREE_CHANGED || change->new_entry->type != TREE_DIR ||
	       !same_but_mtime(change->old_entry, change->new_entry);
}

/* Appends a name to the path: the length to go back to. */
static size_t path_push(struct diff *d, const struct tree_entry *e)
{
	size_t len = d->path.len;

	if (len)
		buf_put_u8(&d->path, '/');
	buf_put(&d->path, e->name, e->name_len);
	return len;
}

static int report(struct diff *d, struct tree_change *change)
{
	change->path = buf_str(&d->path);
	if (d->path.failed)
		return -ENOMEM;
	return d->fn(change, d->arg);
}

/* One entry that only one of the trees has. */
static int report_one(struct diff *d, enum tree_change_kind kind, uint32_t id)
{
	bool added = kind == TREE_ADDED;
	struct tree_entry e;

	tree_get(added ? d->b : d->a, id, &e);
	return report(d, &(struct tree_change){
				 .kind = kind,
				 .old_id = added ? TREE_NONE : id,
				 .new_id = added ? id : TREE_NONE,
				 .old_entry = added ? NULL : &e,
				 .new_entry = added ? &e : NULL,
			 });
}

/* One entry that both have, of one type. */
static int report_both(struct diff *d, const struct tree_entry *old_entry, uint32_t old_id,
		       const struct tree_entry *new_entry, uint32_t new_id)
{
	struct tree_change change = {
		.kind = TREE_CHANGED,
		.content = !tree_same_content(old_entry, new_entry),
		.meta = !tree_same_meta(old_entry, new_entry),
		.old_id = old_id,
		.new_id = new_id,
		.old_entry = old_entry,
		.new_entry = new_entry,
	};

	return change.content || change.meta ? report(d, &change) : 0;
}

/*
 * An entry and all below it, which only one of the trees has. They stand one after another in it:
 * the subtree ends where the depth is no longer greater.
 */
static int report_subtree(struct diff *d, enum tree_change_kind kind, uint32_t top)
{
	const struct tree *t = kind == TREE_ADDED ? d->b : d->a;
	struct tree_entry e;
	uint32_t top_depth;
	size_t parent_len = d->path.len;
	int result = 0;

	tree_get(t, top, &e);
	top_depth = e.depth;
	for (uint32_t id = top; id < tree_count(t) && !result; id++) {
		tree_get(t, id, &e);
		if (id != top && e.depth <= top_depth)
			break;
		d->path.len = 0;
		if (tree_path(t, id, &d->path) < 0)
			return -ENOMEM;
		result = report_one(d, kind, id);
	}
	d->path.len = parent_len;
	return result;
}

static int diff_dirs(struct diff *d, uint32_t old_dir, uint32_t new_dir);

/* Two entries of the same name: whether a pair of directories must be gone into. */
static int diff_pair(struct diff *d, uint32_t old_id, uint32_t new_id, bool *ret_dirs)
{
	struct tree_entry old_entry, new_entry;
	size_t len;
	int result;

	*ret_dirs = false;
	tree_get(d->a, old_id, &old_entry);
	tree_get(d->b, new_id, &new_entry);
	if (old_entry.type != new_entry.type) {
		result = report_subtree(d, TREE_REMOVED, old_id);
		return result ? result : report_subtree(d, TREE_ADDED, new_id);
	}
	len = path_push(d, &new_entry);
	result = report_both(d, &old_entry, old_id, &new_entry, new_id);
	*ret_dirs = new_entry.type == TREE_DIR;
	if (!*ret_dirs)
		d->path.len = len;
	return result;
}

/* Bytewise order of the names of two entries. */
static int compare_names(const struct diff *d, uint32_t old_id, uint32_t new_id)
{
	struct tree_entry old_entry, new_entry;

	tree_get(d->a, old_id, &old_entry);
	tree_get(d->b, new_id, &new_entry);
	return tree_name_compare(old_entry.name, old_entry.name_len, new_entry.name,
				 new_entry.name_len);
}

static int diff_dirs(struct diff *d, uint32_t old_dir, uint32_t new_dir)
{
	uint32_t old_count, new_count, i = 0, j = 0;
	const uint32_t *old_ids = tree_children(d->a, old_dir, &old_count);
	const uint32_t *new_ids = tree_children(d->b, new_dir, &new_count);
	size_t len = d->path.len;
	int result = 0;

	while ((i < old_count || j < new_count) && !result) {
		bool dirs = false;
		int order = i == old_count   ? 1
			    : j == new_count ? -1
					     : compare_names(d, old_ids[i], new_ids[j]);

		if (order < 0) {
			result = report_subtree(d, TREE_REMOVED, old_ids[i++]);
		} else if (order > 0) {
			result = report_subtree(d, TREE_ADDED, new_ids[j++]);
		} else {
			result = diff_pair(d, old_ids[i], new_ids[j], &dirs);
			if (dirs && !result)
				result = diff_dirs(d, old_ids[i], new_ids[j]);
			d->path.len = len;
			i++;
			j++;
		}
	}
	return result;
}

int tree_diff(const struct tree *a, const struct tree *b, tree_change_fn fn, void *arg)
{
	struct diff d = {.a = a, .b = b, .fn = fn, .arg = arg};
	struct tree_entry old_root, new_root;
	int result;

	tree_get(a, 0, &old_root);
	tree_get(b, 0, &new_root);
	result = report_both(&d, &old_root, 0, &new_root, 0);
	if (!result)
		result = diff_dirs(&d, 0, 0);
	buf_free(&d.path);
	return result;
}
