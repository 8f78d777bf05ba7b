/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing entries of trees, for the merge. */
#include "lib/meta/nodes_merge_entry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/cleanup.h"

uint32_t merge_lookup(const struct tree *t, uint32_t dir, const char *name)
{
	return t && dir != TREE_NONE ? tree_lookup(t, dir, name, strlen(name)) : TREE_NONE;
}

bool merge_is_dir(const struct tree *t, uint32_t id)
{
	struct tree_entry e;

	if (!t || id == TREE_NONE)
		return false;
	tree_get(t, id, &e);
	return e.type == TREE_DIR;
}

static bool same_file(const struct tree_entry *a, const struct tree_entry *b)
{
	if (a->size != b->size || a->content != b->content)
		return false;
	if (a->content == TREE_INLINE)
		return !memcmp(a->u.inline_data, b->u.inline_data, a->size);
	return a->content != TREE_RECIPE || hash_equal(&a->u.recipe, &b->u.recipe);
}

bool merge_same_content(const struct tree_entry *a, const struct tree_entry *b)
{
	if (a->type != b->type)
		return false;
	switch (a->type) {
	case TREE_REGULAR:
		return same_file(a, b);
	case TREE_SYMLINK:
		return !strcmp(a->u.target, b->u.target);
	case TREE_CHAR:
	case TREE_BLOCK:
		return a->rdev_major == b->rdev_major && a->rdev_minor == b->rdev_minor;
	default:
		return true;
	}
}

static bool same_attributes(const struct tree_entry *a, const struct tree_entry *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid &&
	       a->mtime_ns == b->mtime_ns && a->xattrs_len == b->xattrs_len &&
	       (!a->xattrs_len || !memcmp(a->xattrs, b->xattrs, a->xattrs_len));
}

enum merge_change merge_compare(const struct tree *base, uint32_t id, const struct tree_entry *e)
{
	struct tree_entry before;

	if (!base || id == TREE_NONE)
		return MERGE_CONTENT;
	tree_get(base, id, &before);
	if (!merge_same_content(&before, e))
		return MERGE_CONTENT;
	return same_attributes(&before, e) ? MERGE_NOTHING : MERGE_ATTRIBUTES;
}

/* Whether the base has this name with that content, of a file with as many names. */
static int in_base(const struct tree *t, const struct tree *base, uint32_t id, bool *ret_there)
{
	cleanup_buf struct buf path = {0};
	struct tree_entry e, before;
	uint32_t other;
	int error = tree_path(t, id, &path);

	*ret_there = false;
	if (error || !base || tree_resolve(base, buf_str(&path), &other) != 0)
		return error;
	tree_get(t, id, &e);
	tree_get(base, other, &before);
	*ret_there =
		merge_same_content(&before, &e) && tree_nlink(t, id) == tree_nlink(base, other);
	return 0;
}

int merge_relinked(const struct tree *t, const struct tree *base, bool **ret_relinked)
{
	cleanup_free bool *relinked = NULL;

	for (uint32_t id = 0; id < tree_count(t); id++) {
		struct tree_entry e;
		bool there;
		int error;

		tree_get(t, id, &e);
		if (!e.group)
			continue;
		if (!relinked)
			relinked = calloc(tree_count(t), sizeof(*relinked));
		if (!relinked)
			return -ENOMEM;
		error = in_base(t, base, id, &there);
		if (error)
			return error;
		relinked[tree_identity(t, id)] |= !there;
	}
	*ret_relinked = steal_ptr(relinked);
	return 0;
}

/* The children of one part's directory, from `at` on: false where there are none. */
static bool child_at(const struct nodes_tree *part, uint32_t dir, uint32_t at,
		     struct tree_entry *ret_entry)
{
	uint32_t count = 0;
	const uint32_t *children = dir == TREE_NONE ? NULL : tree_children(part->tree, dir, &count);

	if (at >= count)
		return false;
	tree_get(part->tree, children[at], ret_entry);
	return true;
}

bool merge_next_name(const struct nodes_tree *parts, size_t count, const uint32_t *dirs,
		     uint32_t *at, char *ret_name)
{
	struct tree_entry first = {0}, e;

	for (size_t i = 0; i < count; i++)
		if (child_at(&parts[i], dirs[i], at[i], &e) &&
		    (!first.name || strcmp(e.name, first.name) < 0))
			first = e;
	if (!first.name)
		return false;
	snprintf(ret_name, TREE_NAME_MAX + 1, "%s", first.name);
	for (size_t i = 0; i < count; i++)
		if (child_at(&parts[i], dirs[i], at[i], &e))
			at[i] += strcmp(e.name, ret_name) == 0;
	return true;
}
