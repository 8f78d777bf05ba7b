/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between two trees. */
#ifndef EPOCHFS_FORMAT_TREE_DIFF_H
#define EPOCHFS_FORMAT_TREE_DIFF_H

#include <stdbool.h>
#include "lib/format/tree.h"

enum tree_change_kind {
	TREE_ADDED,
	TREE_CHANGED,
	TREE_REMOVED,
};

struct tree_change {
	enum tree_change_kind kind;
	bool content;	  /* TREE_CHANGED: content, target or device differs */
	bool meta;	  /* TREE_CHANGED: mode, owner, mtime, xattrs or flags differ */
	const char *path; /* from the root, without a leading '/'; "" for the root */
	uint32_t old_id;  /* in `a`; TREE_NONE where added */
	uint32_t new_id;  /* in `b`; TREE_NONE where removed */
	const struct tree_entry *old_entry; /* NULL where added */
	const struct tree_entry *new_entry; /* NULL where removed */
};

/* Not 0 ends the walk, and tree_diff gives it back. What the change points to lives until it
 * returns. */
typedef int (*tree_change_fn)(const struct tree_change *change, void *arg);

/*
 * Calls `fn` for each path that differs, directories before what is in them, in the order of trees;
 * everything in an added or removed directory has a call of its own, and a path whose type changed
 * is removed and then added. Contents are equal where bytes, recipe or version are; a version of
 * this machine (TREE_LOCAL) is compared with another kind of content by size and mtime. Which names
 * are hard links of one another is not compared. 0, -ENOMEM, or what `fn` gave.
 */
int tree_diff(const struct tree *a, const struct tree *b, tree_change_fn fn, void *arg);

/*
 * Is it a change that people count? All are, but that of a directory's mtime alone: it says that
 * something in the directory changed, and that has a call of its own.
 */
bool tree_change_counts(const struct tree_change *change);

/* Have two regular files, symlinks or devices the same content, by the rule above? */
bool tree_same_content(const struct tree_entry *a, const struct tree_entry *b);
/* Have they the same mode, owner, mtime, xattrs and flags? */
bool tree_same_meta(const struct tree_entry *a, const struct tree_entry *b);

#endif
