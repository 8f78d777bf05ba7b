/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The node table: which node id of the kernel stands for what.
 *
 * A node is known while the kernel has looked it up (it says so by FORGET) or something pins it: an
 * open file, or for the root of an epoch the nodes inside it. Node ids rise and are never used
 * again. A request names only nodes that the kernel knows, so a pointer from nodes_find is good
 * until the request is answered.
 *
 * Under a supervisor the nodes are kept in a table (table.h), too, by which a worker that comes after this one knows
 * them. Not kept are those of tags, whose numbers are this process's own: the kernel hears ESTALE and looks
 * again.
 *
 * Lock: the nodes have one, held for hash lookups only. It comes after the volume's lock (readdir
 * adds nodes with that held), so nothing of lib/volume is called under it.
 */
#ifndef EPOCHFS_FS_NODE_H
#define EPOCHFS_FS_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/map.h"

enum node_kind {
	NODE_LIVE,    /* a: inode, b: body */
	NODE_EPOCH,   /* a: epoch, b: entry of its tree; entry 0 is the epoch's directory */
	NODE_MADE,    /* a: epoch; the directory that mkdir of a tag seems to make */
	NODE_SPECIAL, /* a: enum special; b: of a symlink as below */
	NODE_NUMBER,  /* a: epoch; the symlink `42` */
	/* What a symlink leads to does not change, the kernel keeps it (FUSE_CAP_CACHE_SYMLINKS): b is the epoch. */
	NODE_TAG,  /* a: id of the name (epochs_dir.h); the symlink of a tag, or a temporary one */
	NODE_TORN, /* a: id of the torn file */
	NODE_STEP, /* a: step; the symlink `step=500` */
};

/* What there is once in .epochs. */
enum special {
	SPECIAL_EPOCHS = 1, /* .epochs itself */
	SPECIAL_TORN,
	SPECIAL_CONTROL,
	SPECIAL_LATEST,
	SPECIAL_CURRENT,
};

struct node_key {
	enum node_kind kind;
	uint64_t a, b;
	uint32_t view; /* of .epochs, and of the directories in it: epochs_dir.h */
};

/* Who does the I/O of a node's open files: one mode at a time (passthrough.h). */
enum node_io {
	IO_NONE, /* not open */
	IO_PASSTHROUGH,
	IO_ORDINARY,
};

struct grant;
struct table;
struct table_node;
struct tree;

struct node {
	struct map_link by_id, by_key; /* of struct nodes */
	uint64_t id;
	uint64_t a, b; /* b of live files: nodes_move changes it; without the lock by node_body */
	uint64_t lookups; /* the kernel's count */
	union {
		struct tree *tree; /* of NODE_EPOCH with b == 0, once somebody looked in */
		struct node *root; /* of other NODE_EPOCH: the node of entry 0, pinned */
		/* of live files: uid << 32 | gid, as stat last showed them; atomic */
		uint64_t owner;
	};
	struct table_node *row; /* what a later worker finds it by; NULL: nothing */
	uint32_t pins;
	uint32_t opens;	     /* of the I/O mode */
	int32_t backing_id;  /* with IO_PASSTHROUGH */
	struct grant *grant; /* the same; NULL where it came back and the volume has none */
	uint32_t view;
	uint16_t mode;	  /* of live files: as stat last showed it; atomic */
	uint8_t kind;	  /* enum node_kind */
	uint8_t io;	  /* enum node_io */
	bool io_changing; /* one open decides the mode, or moves the node; others wait */
	bool cached;	  /* what the kernel's page cache has of it is right */
	bool held;	  /* the volume keeps its content (nodes_hold) */
	bool unlisted;	  /* nodes_move gave another node its key: no longer found by it */
	bool moved;	  /* its content was another's before (nodes_move); atomic */
};

/* The content that the node of a live file stands for, now: who acts on it is told by the volume where that has changed. */
static inline uint64_t node_body(const struct node *n)
{
	return __atomic_load_n(&n->b, __ATOMIC_RELAXED);
}

/* How long the kernel may take the attributes of a node for right. */
static inline double node_attr_timeout(const struct node *n, double timeout)
{
	/*
	 * Linux takes new ones for valid a moment before it has set the size (fuse_change_attributes), and who asks in it is shown the old size: of
	 * content that an open has left behind already. Never valid, they are asked for. So they must be, too, where the kernel writes by the other
	 * node of that body, of which nobody tells this one.
	 */
	return __atomic_load_n(&n->moved, __ATOMIC_RELAXED) ? 0 : timeout;
}

struct nodes;

/* `table` (NULL: none) keeps the nodes for the next worker; those that are in it already come back, open by
 * nobody yet (nodes_io_revive). It stays mapped for as long as the nodes. */
int nodes_new(const struct node_key *root, const struct table *table, struct nodes **ret_nodes);
void nodes_free(struct nodes *t);
/* How many there are. */
size_t nodes_count(struct nodes *t);

/* The node of this id: NULL where there is none. */
struct node *nodes_find(struct nodes *t, uint64_t id);
/* The id of the node of this key, if it is known; 0 if not. */
uint64_t nodes_id_of(struct nodes *t, const struct node_key *key);
/*
 * Finds or makes the node of this key and counts a lookup: NULL without memory. A NODE_EPOCH inside
 * an epoch needs the node of the epoch's directory in `root`.
 */
struct node *nodes_lookup(struct nodes *t, const struct node_key *key, struct node *root);
void nodes_forget(struct nodes *t, uint64_t id, uint64_t count);
/* The ids of all nodes of a live file, whatever body: at most `max`, and the count. */
size_t nodes_of_file(struct nodes *t, uint64_t ino, uint64_t *ids, size_t max);

/*
 * Whether the kernel may open the live file, with this body, by a node. Where that is so, `gone` is called when the last such node goes, or
 * stands for another body: once, without the lock. (volume_set_known)
 */
bool nodes_hold(struct nodes *t, uint64_t ino, uint64_t body);
/* Set before the first nodes_hold. */
void nodes_set_gone(struct nodes *t, void (*gone)(void *arg, uint64_t ino, uint64_t body),
		    void *arg);
/*
 * Makes the node of a live file stand for this body of it from now on: the next lookup of the one before gives a fresh node. Where a node of the
 * new key is there, both are. 1: it was moved, and whoever opens it waits until nodes_moved says that the kernel was told; 0: it stood for that
 * body already; -EBUSY where somebody has the node open.
 */
int nodes_move(struct nodes *t, struct node *n, uint64_t body);
void nodes_moved(struct nodes *t, struct node *n);

/* Remembers what stat last showed of a live file. */
void node_note(struct node *n, uint16_t mode, uint64_t owner);

void nodes_pin(struct nodes *t, struct node *n);
void nodes_unpin(struct nodes *t, struct node *n);

/* The tree of an epoch's directory: NULL while it has none. It stays as long as the node. */
struct tree *nodes_tree(struct nodes *t, struct node *root);
/* Gives it this tree, whose reference it takes, or drops that where it has one; the one it has. */
struct tree *nodes_set_tree(struct nodes *t, struct node *root, struct tree *tree);

/*
 * The I/O mode. begin counts an open and waits for others that decide: then this thread may read
 * and set io, backing_id, grant and cached of the node, until end. close takes an open back; where it
 * was the last of a passthrough node, `ret_backing_id` and `ret_grant` are what to give back, else 0 and NULL.
 */
void nodes_io_begin(struct nodes *t, struct node *n);
void nodes_io_end(struct nodes *t, struct node *n);
void nodes_io_close(struct nodes *t, struct node *n, int32_t *ret_backing_id,
		    struct grant **ret_grant);
/* One open more of a node that came back, in the mode that it had. */
void nodes_io_revive(struct nodes *t, struct node *n);
/* After all of them: a node that nobody has open has no mode. `unused` is notified of backing ids that such a one
 * had, with the lock. */
void nodes_io_revived(struct nodes *t, void (*unused)(void *arg, int32_t backing_id), void *arg);

#endif
