/* SPDX-License-Identifier: Apache-2.0 */
/* What node.c (the nodes) and node_rows.c (their rows in the table that outlives the worker) share. */
#ifndef EPOCHFS_FS_NODE_PRIVATE_H
#define EPOCHFS_FS_NODE_PRIVATE_H

#include <pthread.h>
#include "fs/node.h"
#include "fs/table.h"
#include "lib/util/lock.h"

#define NODE_ROOT_ID 1

struct nodes {
	struct mutex lock;
	pthread_cond_t io_changed;
	/* All below is guarded by lock. */
	struct map by_id;  /* ids are counted up: each is its own hash */
	struct map by_key; /* those of one inode together */
	uint64_t last_id;
	const struct table *table;
	void (*gone)(void *arg, uint64_t ino,
		     uint64_t body); /* nodes_set_gone; with its argument */
	void *gone_arg;
	struct table_rows rows;
};

static inline bool node_is_epoch_root(const struct node *n)
{
	return n->kind == NODE_EPOCH && n->b == 0;
}

static inline struct node *node_by_id(struct map_link *l)
{
	return l ? map_item(l, struct node, by_id) : NULL;
}

/* ---- node.c ---- */
struct node *nodes_find_locked(const struct nodes *t, uint64_t id);
/* Into both tables: 0 or -ENOMEM. */
int nodes_insert_locked(struct nodes *t, struct node *n);
/* Out of them, with its row; frees it. */
void nodes_remove_locked(struct nodes *t, struct node *n);

/* ---- node_rows.c: each does nothing for the table where there is none ---- */
void node_row_add_locked(struct nodes *t, struct node *n);
void node_row_remove_locked(struct nodes *t, struct node *n);
void node_set_lookups_locked(struct node *n, uint64_t lookups);
/* Pins the root. */
void node_set_root_locked(struct node *n, struct node *root);
void node_note_io_locked(struct node *n);
/* Body, whether it is found by key, and whether it had another. */
void node_note_key_locked(struct node *n);
/* All nodes that the table has. */
int nodes_revive_locked(struct nodes *t);

#endif
