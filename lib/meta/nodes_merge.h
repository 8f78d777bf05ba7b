/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trees of the nodes of a set, merged into one. Pure: no I/O, no locks.
 *
 * Each node's tree is compared with the one that its live tree began from (its base), so that what it
 * only inherited is no opinion of its own. Of each path:
 *   - What one node changed, made or removed is so. Content that one changed wins over its removal by
 *     another, and that over a change of attributes alone; a directory that one removed stays
 *     for what others changed below it.
 *   - The same content from several nodes is no conflict: it is there once, with the attributes that the first
 *     of them gave it.
 *   - Different contents (or types) of one path are all kept: that of the first node under the name, the others
 *     as NAME.NODE (NAME.NODE.2 where that is taken), and `conflicts` says so.
 *   - Directories are merged. Mode and owner are those of the first node that changed them, mtime is the latest.
 *   - What nobody changed is as in the newest base.
 * Hard links stay within what comes of one node.
 */
#ifndef EPOCHFS_META_NODES_MERGE_H
#define EPOCHFS_META_NODES_MERGE_H

#include "lib/format/tree.h"

struct nodes_tree {
	const char *node;
	const struct tree *tree;
	const struct tree *base; /* NULL: nothing was there */
	uint64_t base_number;
};

#define NODES_CONFLICTS_MAX 64

struct nodes_merged {
	struct buf tree; /* encoded */
	char *conflicts[NODES_CONFLICTS_MAX +
			1]; /* one line each; the last may say how many more */
	size_t conflict_count;
};
void nodes_merged_free(struct nodes_merged *m);
#define cleanup_nodes_merged CLEANUP(nodes_merged_free)

/* `parts` in the order of the nodes; none names local versions. 0, -EFBIG, -ENOMEM. */
int nodes_merge(const struct nodes_tree *parts, size_t count, struct nodes_merged *ret_merged);

#endif
