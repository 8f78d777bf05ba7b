/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling the kernel what changed though it did not ask for it. Private to fs/.
 *
 * A notice of content returns once the kernel has dropped the pages. It waits for those that are being read or written, so for answers of ours: to
 * READ, to WRITE of pages (a mapping's stores), and to SETATTR of a size, under which the kernel holds back WRITEs of pages of that file. (And to
 * write(2) through the cache: but only a node without a cache tells its twin.)
 * (A notice of attributes waits for nothing; that of a name for who has its directory locked, and is sent after the answer.) No
 * notice waits for one that waits for it, because
 *   - it is sent without a lock of ours (but see passthrough.c), by a thread that does not read requests meanwhile and does not count
 *     among those that may (loop_kernel_begin): what it waits for is read and answered by others;
 *   - no READ sends one before its answer, and of WRITEs of pages and SETATTRs only one at a time does: others that come meanwhile
 *     send theirs after the answer, when nothing of the kernel waits for them. All others may wait before their answer, for no
 *     notice waits for them;
 *   - a rollback and what else the volume tells of sends none: it gives a file other content as another body, which has another node.
 * So it lasts as long as the longest of these answers: of a READ of what is not here, until the remote has answered or who reads has been
 * killed (read_interrupted).
 */
#ifndef EPOCHFS_FS_INVALIDATE_H
#define EPOCHFS_FS_INVALIDATE_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/fs.h"

/* One thing to tell: a name in a directory, or (name "") a file's attributes; or an
 * epoch that is gone from .epochs; or content of one node. */
struct invalidation {
	struct invalidation *next;
	uint64_t node; /* not 0: this, and its bytes from offset on, len of them (0: to the end) */
	off_t offset, len;
	uint64_t ino;	/* of the live tree */
	uint64_t epoch; /* not 0: this, by its name, and no inode */
	char name[];
};

/* The kernel is to look `.epochs` up again, which may be another view now (epochs_dir.h). May block on the lock of the root. */
void invalidate_view(struct fs_mount *m);
/*
 * Content was changed through the node, `len` bytes from `offset` on (0: to the end): where another node stands for the
 * same body, the kernel drops what it has of that one. Before the answer, but where `who` says otherwise.
 */
enum teller {
	TELLER_ANY,
	TELLER_AWAITED, /* a WRITE of pages, or SETATTR of a size: one at a time before its answer, as above */
};
void invalidate_twin(struct fs_mount *m, const struct node *n, off_t offset, off_t len,
		     enum teller who);
/*
 * The file was changed through this node of it: the kernel drops what it has of the attributes by its other nodes, which stand for
 * content that was replaced, or for what replaced it. `content`: what they show may have changed, too, as in invalidate_twin by an awaited one.
 */
void invalidate_others(struct fs_mount *m, const struct node *n, bool content);
/* The volume's events come here from now on. */
void invalidate_start(struct fs_mount *m);
void invalidate_stop(struct fs_mount *m);
/* Tells the kernel, in order, and frees them. May block on locks of the kernel. */
void invalidate_run(struct fs_mount *m, struct invalidation *list);

#endif
