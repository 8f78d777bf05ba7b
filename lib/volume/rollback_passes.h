/* SPDX-License-Identifier: Apache-2.0 */
/* What the passes of a rollback share. Private to rollback_*.c. */
#ifndef EPOCHFS_VOLUME_ROLLBACK_PASSES_H
#define EPOCHFS_VOLUME_ROLLBACK_PASSES_H

#include "lib/volume/rollback.h"

struct apply {
	struct volume *vol;
	const struct tree *tree;
	struct rollback_notice *notice;
	int64_t now_ns;
	uint64_t *ino;	    /* of each identity; 0: none yet */
	bool *present;	    /* entry: its name leads to that file already */
	bool *let_go;	    /* identity: its content went, or its writers' did */
	bool *finished;	    /* identity: its file is as the tree says */
	struct buf claims;  /* of pass 1 */
	struct buf removed; /* what pass 2 removes */
};

/* Remembers what the kernel must be told. */
void notice_name(struct apply *a, uint64_t parent, const char *name);
void notice_file(struct apply *a, uint64_t ino);
/* Mode with the type, and the device, as a live file has them. */
uint32_t mode_of_entry(const struct tree_entry *e);
uint32_t rdev_of_entry(const struct tree_entry *e);

/* ---- rollback_make.c: pass 3 ---- */

/* The file of an entry below the directory `parent`: made, or made equal. */
int make_file(struct apply *a, uint32_t id, const struct tree_entry *e, uint64_t parent);
/* Everything below a directory of the tree, whose file is there. */
int make_dir(struct apply *a, uint32_t dir);

#endif
