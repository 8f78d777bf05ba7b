/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing entries of trees, for the merge. Pure. Private to nodes_merge*.c. */
#ifndef EPOCHFS_META_NODES_MERGE_ENTRY_H
#define EPOCHFS_META_NODES_MERGE_ENTRY_H

#include "lib/meta/nodes_merge.h"

/* What a node did to a path, against its base; the greater, the more it says. */
enum merge_change {
	MERGE_NOTHING,
	MERGE_REMOVED,
	MERGE_ATTRIBUTES, /* of what was there */
	MERGE_CONTENT,	  /* made, another type, or other content */
};

/* Of a tree that may be NULL, and a directory that may be TREE_NONE or something else. */
uint32_t merge_lookup(const struct tree *t, uint32_t dir, const char *name);
bool merge_is_dir(const struct tree *t, uint32_t id);
/* The same type and the same bytes (target, device); directories are the same. */
bool merge_same_content(const struct tree_entry *a, const struct tree_entry *b);
/* What was done to make `e` of the base's entry (TREE_NONE: there was none). */
enum merge_change merge_compare(const struct tree *base, uint32_t id, const struct tree_entry *e);
/*
 * Files with several names of which not all are in the base with that content: true for the identity. Then
 * all their names are taken from this tree together. NULL where there is no file with several names.
 */
int merge_relinked(const struct tree *t, const struct tree *base, bool **ret_relinked);
/*
 * The next name of a directory in all parts, in their order: false at the end. `dirs` is its number in each part, `at`
 * counts in each part's children; ret_name takes TREE_NAME_MAX + 1 bytes.
 */
bool merge_next_name(const struct nodes_tree *parts, size_t count, const uint32_t *dirs,
		     uint32_t *at, char *ret_name);

#endif
