/* SPDX-License-Identifier: Apache-2.0 */
/* The node table: two hash tables over the same nodes, by id and by key. */
#include "fs/node_private.h"

#include <errno.h>
#include <stdlib.h>
#include "lib/format/tree.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

/* Live files hash by inode alone, so that all bodies of one are found together. */
static uint64_t hash_key(unsigned kind, uint64_t a, uint64_t b)
{
	uint64_t h = a * UINT64_C(0x9e3779b97f4a7c15) + kind;

	if (kind != NODE_LIVE)
		h += b * UINT64_C(0xc2b2ae3d27d4eb4f);
	return h ^ h >> 32;
}

static struct node *node_by_key(struct map_link *l)
{
	return l ? map_item(l, struct node, by_key) : NULL;
}

static struct node *next_of_hash_locked(const struct node *n)
{
	return node_by_key(map_find_next(&n->by_key));
}

struct node *nodes_find_locked(const struct nodes *t, uint64_t id)
{
	return node_by_id(map_find(&t->by_id, id));
}

static struct node *find_key_locked(const struct nodes *t, const struct node_key *key)
{
	struct node *n = node_by_key(map_find(&t->by_key, hash_key(key->kind, key->a, key->b)));

	while (n && (n->unlisted || n->kind != key->kind || n->a != key->a || n->b != key->b ||
		     n->view != key->view))
		n = next_of_hash_locked(n);
	return n;
}

/* The next node from this one on that stands for this body of a live file: there may be several (nodes_move). */
static struct node *of_body_locked(struct node *n, uint64_t ino, uint64_t body)
{
	while (n && (n->kind != NODE_LIVE || n->a != ino || n->b != body))
		n = next_of_hash_locked(n);
	return n;
}

/* The first node with the hash of a live file. */
static struct node *first_of_ino_locked(const struct nodes *t, uint64_t ino)
{
	return node_by_key(map_find(&t->by_key, hash_key(NODE_LIVE, ino, 0)));
}

static struct node *first_of_body_locked(const struct nodes *t, uint64_t ino, uint64_t body)
{
	return of_body_locked(first_of_ino_locked(t, ino), ino, body);
}

int nodes_insert_locked(struct nodes *t, struct node *n)
{
	int error = map_add(&t->by_id, &n->by_id, n->id);

	if (error)
		return error;
	error = map_add(&t->by_key, &n->by_key, hash_key(n->kind, n->a, n->b));
	if (error)
		map_remove(&t->by_id, &n->by_id);
	return error;
}

static struct node *add_locked(struct nodes *t, const struct node_key *key)
{
	struct node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->id = ++t->last_id;
	n->kind = (uint8_t)key->kind;
	n->a = key->a;
	n->b = key->b;
	n->view = key->view;
	n->cached = true; /* it has nothing of it yet */
	if (nodes_insert_locked(t, n) < 0) {
		free(n);
		return NULL;
	}
	node_row_add_locked(t, n);
	return n;
}

void nodes_remove_locked(struct nodes *t, struct node *n)
{
	map_remove(&t->by_id, &n->by_id);
	map_remove(&t->by_key, &n->by_key);
	node_row_remove_locked(t, n);
	free(n);
}

/* What is left to do after the lock is dropped. */
struct rest {
	struct tree *tree; /* of an epoch: freeing a large one takes a while */
	bool released;	   /* a live file's content was held for nodes that are gone */
	uint64_t ino, body;
};

static void rest_done(struct nodes *t, struct rest *rest)
{
	tree_unref(rest->tree);
	if (rest->released && t->gone)
		t->gone(t->gone_arg, rest->ino, rest->body);
}

/* Whether the volume keeps this body for a node. */
static bool is_held_locked(const struct nodes *t, uint64_t ino, uint64_t body)
{
	const struct node *n = first_of_body_locked(t, ino, body);

	while (n && !n->held)
		n = of_body_locked(next_of_hash_locked(n), ino, body);
	return n != NULL;
}

static void unhold_locked(const struct nodes *t, struct node *n, struct rest *rest)
{
	if (!n->held)
		return;
	n->held = false;
	if (is_held_locked(t, n->a, n->b))
		return;
	rest->released = true;
	rest->ino = n->a;
	rest->body = n->b;
}

/* Frees the node if nobody knows it, and then perhaps the root of its epoch. */
static void drop_locked(struct nodes *t, struct node *n, struct rest *rest)
{
	while (n && !n->lookups && !n->pins && n->id != NODE_ROOT_ID) {
		struct node *root = NULL;

		if (node_is_epoch_root(n)) {
			rest->tree = n->tree;
		} else if (n->kind == NODE_EPOCH) {
			root = n->root;
			root->pins--;
		}
		unhold_locked(t, n, rest);
		nodes_remove_locked(t, n);
		n = root;
	}
}

static int nodes_fill(struct nodes *t, const struct node_key *root)
{
	struct node *n;
	int r = 0;

	SCOPED_LOCK(&t->lock);
	if (t->table)
		r = nodes_revive_locked(t);
	if (r < 0 || nodes_find_locked(t, NODE_ROOT_ID))
		return r;
	n = add_locked(t, root);
	if (!n)
		return -ENOMEM;
	node_set_lookups_locked(n, 1);
	return 0;
}

int nodes_new(const struct node_key *root, const struct table *table, struct nodes **ret_nodes)
{
	struct nodes *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	mutex_init(&t->lock, LOCK_FS_NODES);
	pthread_cond_init(&t->io_changed, NULL);
	t->table = table;
	t->rows.max = TABLE_NODES;
	r = nodes_fill(t, root);
	if (r < 0) {
		nodes_free(t);
		return r;
	}
	*ret_nodes = t;
	return 0;
}

void nodes_free(struct nodes *t)
{
	if (!t)
		return;
	for (struct map_link *l = map_next(&t->by_id, NULL), *next; l; l = next) {
		struct node *n = node_by_id(l);

		next = map_next(&t->by_id, l);
		if (node_is_epoch_root(n))
			tree_unref(n->tree);
		free(n);
	}
	map_free(&t->by_id);
	map_free(&t->by_key);
	table_rows_free(&t->rows);
	pthread_cond_destroy(&t->io_changed);
	mutex_destroy(&t->lock);
	free(t);
}

size_t nodes_count(struct nodes *t)
{
	SCOPED_LOCK(&t->lock);
	return t->by_id.count;
}

struct node *nodes_find(struct nodes *t, uint64_t id)
{
	SCOPED_LOCK(&t->lock);
	return nodes_find_locked(t, id);
}

uint64_t nodes_id_of(struct nodes *t, const struct node_key *key)
{
	SCOPED_LOCK(&t->lock);
	const struct node *n = find_key_locked(t, key);

	return n ? n->id : 0;
}

struct node *nodes_lookup(struct nodes *t, const struct node_key *key, struct node *root)
{
	SCOPED_LOCK(&t->lock);
	struct node *n = find_key_locked(t, key);

	if (!n) {
		n = add_locked(t, key);
		if (!n)
			return NULL;
		if (n->kind == NODE_EPOCH && !node_is_epoch_root(n))
			node_set_root_locked(n, root);
	}
	node_set_lookups_locked(n, n->lookups + 1);
	return n;
}

void nodes_forget(struct nodes *t, uint64_t id, uint64_t count)
{
	struct rest rest = {0};
	struct node *n;

	mutex_lock(&t->lock);
	n = nodes_find_locked(t, id);
	if (n) {
		node_set_lookups_locked(n, n->lookups - (count < n->lookups ? count : n->lookups));
		drop_locked(t, n, &rest);
	}
	mutex_unlock(&t->lock);
	rest_done(t, &rest);
}

size_t nodes_of_file(struct nodes *t, uint64_t ino, uint64_t *ids, size_t max)
{
	size_t count = 0;

	SCOPED_LOCK(&t->lock);
	for (const struct node *n = first_of_ino_locked(t, ino); n && count < max;
	     n = next_of_hash_locked(n)) {
		if (n->kind == NODE_LIVE && n->a == ino)
			ids[count++] = n->id;
	}
	return count;
}

bool nodes_hold(struct nodes *t, uint64_t ino, uint64_t body)
{
	bool any = false;
	SCOPED_LOCK(&t->lock);

	for (struct node *n = t->gone ? first_of_body_locked(t, ino, body) : NULL; n;
	     n = of_body_locked(next_of_hash_locked(n), ino, body))
		n->held = any = true;
	return any;
}

void nodes_set_gone(struct nodes *t, void (*gone)(void *arg, uint64_t ino, uint64_t body),
		    void *arg)
{
	SCOPED_LOCK(&t->lock);
	t->gone = gone;
	t->gone_arg = arg;
}

int nodes_move(struct nodes *t, struct node *n, uint64_t body)
{
	const struct node_key key = {.kind = NODE_LIVE, .a = n->a, .b = body};
	struct rest rest = {0};

	mutex_lock(&t->lock);
	while (!n->opens && n->io_changing)
		cond_wait(&t->io_changed, &t->lock);
	if (n->opens || n->b == body) {
		int r = n->b == body ? 0 : -EBUSY;

		mutex_unlock(&t->lock);
		return r;
	}
	n->io_changing = true;
	unhold_locked(t, n, &rest);
	/* In the chain of its inode it stays. */
	n->unlisted = true;
	n->unlisted = find_key_locked(t, &key) != NULL;
	n->held = is_held_locked(t, n->a, body);
	__atomic_store_n(&n->moved, true, __ATOMIC_RELAXED);
	__atomic_store_n(&n->b, body, __ATOMIC_RELAXED);
	n->cached = false;
	node_note_key_locked(n);
	mutex_unlock(&t->lock);
	rest_done(t, &rest);
	return 1;
}

void nodes_moved(struct nodes *t, struct node *n)
{
	SCOPED_LOCK(&t->lock);
	n->io_changing = false;
	pthread_cond_broadcast(&t->io_changed);
}

void nodes_pin(struct nodes *t, struct node *n)
{
	SCOPED_LOCK(&t->lock);
	n->pins++;
}

void nodes_unpin(struct nodes *t, struct node *n)
{
	struct rest rest = {0};

	mutex_lock(&t->lock);
	n->pins--;
	drop_locked(t, n, &rest);
	mutex_unlock(&t->lock);
	rest_done(t, &rest);
}

struct tree *nodes_tree(struct nodes *t, struct node *root)
{
	SCOPED_LOCK(&t->lock);
	return root->tree;
}

struct tree *nodes_set_tree(struct nodes *t, struct node *root, struct tree *tree)
{
	struct tree *spare = NULL, *kept;

	mutex_lock(&t->lock);
	if (root->tree)
		spare = tree;
	else
		root->tree = tree;
	kept = root->tree;
	mutex_unlock(&t->lock);
	tree_unref(spare);
	return kept;
}

void nodes_io_begin(struct nodes *t, struct node *n)
{
	SCOPED_LOCK(&t->lock);
	n->opens++;
	while (n->io_changing)
		cond_wait(&t->io_changed, &t->lock);
	n->io_changing = true;
}

void nodes_io_end(struct nodes *t, struct node *n)
{
	SCOPED_LOCK(&t->lock);
	n->io_changing = false;
	node_note_io_locked(n);
	pthread_cond_broadcast(&t->io_changed);
}

void nodes_io_close(struct nodes *t, struct node *n, int32_t *ret_backing_id,
		    struct grant **ret_grant)
{
	SCOPED_LOCK(&t->lock);
	*ret_backing_id = 0;
	*ret_grant = NULL;
	while (n->io_changing)
		cond_wait(&t->io_changed, &t->lock);
	if (--n->opens)
		return;
	if (n->io == IO_PASSTHROUGH) {
		*ret_backing_id = n->backing_id;
		*ret_grant = steal_ptr(n->grant);
	}
	n->io = IO_NONE;
	n->backing_id = 0;
	node_note_io_locked(n);
}
