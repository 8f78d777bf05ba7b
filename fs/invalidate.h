/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the kernel what changed though it did not ask for it. Private to fs/. */
#ifndef EPOCHFS_FS_INVALIDATE_H
#define EPOCHFS_FS_INVALIDATE_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/fs.h"

/* One thing to tell: a name in a directory, or (name "") a file's attributes and content; or an
 * epoch that is gone from .epochs. */
struct invalidation {
	struct invalidation *next;
	uint64_t ino;	/* of the live tree */
	uint64_t epoch; /* not 0: this, by its name, and no inode */
	char name[];
};

/* The kernel is to look `.epochs` up again, which may be another view now (epochs_dir.h). May block on the lock of the root. */
void invalidate_view(struct fs_mount *m);
/*
 * Content was changed through the node, `len` bytes from `offset` on (0: to the end): where another node stands for the
 * same body, the kernel drops what it has of that one. Before the answer. May block on locks of the kernel, but on none
 * that a change through this node holds.
 */
void invalidate_twin(struct fs_mount *m, const struct node *n, off_t offset, off_t len);
/*
 * The file was changed through this node of it: the kernel drops what it has of the attributes by its other nodes, which stand for
 * content that was replaced, or for what replaced it. `content`: what they show may have changed, too, as in invalidate_twin.
 */
void invalidate_others(struct fs_mount *m, const struct node *n, bool content);
/* The volume's events come here from now on. */
void invalidate_start(struct fs_mount *m);
void invalidate_stop(struct fs_mount *m);
/* Tells the kernel, in order, and frees them. May block on locks of the kernel. */
void invalidate_run(struct fs_mount *m, struct invalidation *list);

#endif
