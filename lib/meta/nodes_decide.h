/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which parts of a node set belong together, what is to become of them (here), and how the trees of their nodes are merged (below). Pure: no
 * I/O, no locks, no clock.
 *
 * A **place** is what the parts of one checkpoint have in common: within a generation of the set, the
 * step; of what has no step, the step before it on that node and how many without one came since. So
 * nodes that count differently before a step agree again after it.
 *
 * A **group** is all parts of one place; of a node that sealed it again (continued it) the last one counts. It is
 *   merged   each part that counts is in an epoch already
 *   whole    every node of the set has a part there, and not all of them are in one epoch already
 *   closed   not whole, and it never will be: all its nodes have gone on to a place that is whole, or the
 *            generation is over
 *   waiting  neither
 * What is whole becomes an epoch; what is closed becomes one that is not complete.
 */
#ifndef EPOCHFS_META_NODES_DECIDE_H
#define EPOCHFS_META_NODES_DECIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/format/tree.h"

/* Local numbers of parts begin here; the sequence of a part is its number less NODES_FIRST. */
#define NODES_FIRST (UINT64_C(1) << 62)
static inline bool nodes_is_part(uint64_t number)
{
	return number >= NODES_FIRST;
}

struct nodes_place {
	uint64_t generation;
	bool has_step; /* then the others do not count */
	uint64_t step;
	bool has_after;
	uint64_t after, count;
};
bool nodes_place_equal(const struct nodes_place *a, const struct nodes_place *b);

struct nodes_part {
	struct nodes_place place;
	const char *node;
	uint64_t sequence;
	uint64_t nodes;	   /* of its set */
	uint64_t merged;   /* the newest epoch that has it; 0: none */
	int64_t sealed_ns; /* orders what nothing else does */
};

enum nodes_verdict {
	NODES_MERGED,
	NODES_WHOLE,
	NODES_CLOSED,
	NODES_WAITING,
};

struct nodes_group {
	enum nodes_verdict verdict;
	uint64_t nodes;	 /* of the set */
	uint64_t merged; /* the newest epoch of this place; 0: none. A further one continues it */
	size_t *parts;	 /* which count, by number in the list, in the order of the nodes' names */
	size_t count;
};

/*
 * All groups, older ones first: 0 or -ENOMEM. Generations below `open` are over. Free with nodes_groups_free.
 */
int nodes_groups(const struct nodes_part *parts, size_t count, uint64_t open,
		 struct nodes_group **ret_groups, size_t *ret_count);
void nodes_groups_free(struct nodes_group *groups, size_t count);

/* The order of nodes: by name, numbers in it by their value (node2 before node10). */
int nodes_compare_names(const char *a, const char *b);

/* ---- merging (nodes_merge.c) ---- */

/*
 * The trees of the nodes of a set, merged into one.
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
