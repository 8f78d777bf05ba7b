/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of nodes in the table that outlives the worker, and nodes that come back from it. */
#include "fs/node_private.h"

#include <errno.h>
#include <stdlib.h>
#include "lib/util/cleanup.h"

/* ---- rows ---- */

/* Where there is no row for it, the kernel hears ESTALE after a restart: no other node may have its id, under which the kernel keeps what
 * a symlink says. */
void node_row_add_locked(struct nodes *t, struct node *n)
{
	struct table_node *row;
	uint32_t i;

	if (!t->table)
		return;
	t->table->start->last_id = n->id;
	if (n->kind == NODE_TAG || table_row_take(&t->rows, &i) < 0)
		return;
	if (t->rows.used > t->table->start->nodes)
		t->table->start->nodes = t->rows.used;
	row = n->row = &t->table->nodes[i];
	row->a = n->a;
	row->b = n->b;
	row->root = 0;
	row->lookups = 0;
	row->owner = 0;
	row->backing_id = 0;
	row->view = n->view;
	row->mode = 0;
	row->kind = n->kind;
	row->io = IO_NONE;
	row->unlisted = row->moved = false;
	table_publish(&row->id, n->id);
}

void node_row_remove_locked(struct nodes *t, struct node *n)
{
	if (!n->row)
		return;
	table_publish(&n->row->id, 0);
	table_row_give(&t->rows, (uint32_t)(n->row - t->table->nodes));
	n->row = NULL;
}

void node_set_lookups_locked(struct node *n, uint64_t lookups)
{
	n->lookups = lookups;
	if (n->row)
		n->row->lookups = lookups;
}

void node_set_root_locked(struct node *n, struct node *root)
{
	n->root = root;
	root->pins++;
	if (n->row)
		n->row->root = root->id;
}

void node_note_io_locked(struct node *n)
{
	if (!n->row)
		return;
	n->row->io = n->io;
	n->row->backing_id = n->backing_id;
}

void node_note_key_locked(struct node *n)
{
	if (!n->row)
		return;
	n->row->unlisted = n->unlisted;
	n->row->moved = n->moved;
	n->row->b = n->b;
}

void node_note(struct node *n, uint16_t mode, uint64_t owner)
{
	__atomic_store_n(&n->mode, mode, __ATOMIC_RELAXED);
	__atomic_store_n(&n->owner, owner, __ATOMIC_RELAXED);
	if (n->row) {
		__atomic_store_n(&n->row->mode, mode, __ATOMIC_RELAXED);
		__atomic_store_n(&n->row->owner, owner, __ATOMIC_RELAXED);
	}
}

/* ---- nodes that come back ---- */

static int revive_one_locked(struct nodes *t, struct table_node *row)
{
	struct node *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->row = row;
	n->id = row->id;
	n->a = row->a;
	n->b = row->b;
	n->lookups = row->lookups;
	n->backing_id = row->backing_id;
	n->view = row->view;
	n->mode = row->mode;
	n->kind = row->kind;
	if (n->kind == NODE_LIVE)
		n->owner = row->owner;
	n->io = row->io;
	n->cached = n->io == IO_ORDINARY;
	n->unlisted = row->unlisted;
	n->moved = row->moved;
	if (nodes_insert_locked(t, n) == 0)
		return 0;
	free(n);
	return -ENOMEM;
}

/* What is inside an epoch hangs on the node of the epoch's directory. */
static void revive_roots_locked(struct nodes *t)
{
	for (uint32_t i = 0; i < t->table->start->nodes; i++) {
		const struct table_node *row = &t->table->nodes[i];
		struct node *n = row->id ? nodes_find_locked(t, row->id) : NULL, *root;

		if (!n || n->kind != NODE_EPOCH || node_is_epoch_root(n))
			continue;
		root = nodes_find_locked(t, row->root);
		if (root && node_is_epoch_root(root))
			node_set_root_locked(n, root);
		else /* the worker died before it had said which: the kernel does not know it yet */
			nodes_remove_locked(t, n);
	}
}

int nodes_revive_locked(struct nodes *t)
{
	int r = 0;

	t->last_id = t->table->start->last_id;
	t->rows.used = t->table->start->nodes;
	for (uint32_t i = 0; r == 0 && i < t->rows.used; i++) {
		struct table_node *row = &t->table->nodes[i];

		if (row->id == 0)
			table_row_give(&t->rows, i);
		else
			r = revive_one_locked(t, row);
		if (row->id > t->last_id)
			t->last_id = row->id;
	}
	if (r == 0)
		revive_roots_locked(t);
	return r;
}

void nodes_io_revive(struct nodes *t, struct node *n)
{
	SCOPED_LOCK(&t->lock);
	n->opens++;
}

void nodes_io_revived(struct nodes *t, void (*unused)(void *arg, int32_t backing_id), void *arg)
{
	SCOPED_LOCK(&t->lock);
	for (struct map_link *l = map_next(&t->by_id, NULL); l; l = map_next(&t->by_id, l)) {
		struct node *n = node_by_id(l);

		if (n->opens || n->io == IO_NONE)
			continue;
		if (n->io == IO_PASSTHROUGH)
			unused(arg, n->backing_id);
		n->io = IO_NONE;
		n->backing_id = 0;
		node_note_io_locked(n);
	}
}
