/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes that the kernel refused by itself. Where it works on a backing file (passthrough), a write that finds no space on the cache's
 * disk is told to the program alone, and a program may ignore it and close what is half. Nothing of the file shows it
 * later. So the disk is looked at: a write is refused only when it has no room, and whoever writes then is `cramped` (body.h), until its
 * content is cut to nothing or closed.
 *
 * - Looks are made when a writer begins, at each close of one, and by a thread while there is one: the less is free, the
 *   oftener, so that the disk cannot fall from what is free to nothing between two looks.
 * - Before epochfs itself frees space (the evictor, deferred work, torn/, a truncation), disk_note looks, and giving up a part of
 *   the reserve says that the disk is full: room that we make ourselves hides nothing.
 * - Who tried no write while there was no room was refused none: the kernel sets the ctime of a file before it looks for
 *   space, so one older than the last look that found room clears the writer. A save that ended before the disk became full, or
 *   whose writer only computes meanwhile, stays whole.
 *
 * Not seen: a disk that was full for less than the time between two looks, where another process freed the space. Blamed without need: a
 * writer whose last bytes just fitted, or who waited for space in the daemon (O_DIRECT, O_SYNC: fs/passthrough.h). Its close() says ENOSPC,
 * so it is told.
 */
#ifndef EPOCHFS_LIVE_CRAMPED_H
#define EPOCHFS_LIVE_CRAMPED_H

#include "lib/cache/context.h"

int cramped_new(struct volume *vol);
int cramped_start(struct volume *vol);
void cramped_stop(struct volume *vol);
void cramped_free(struct volume *vol);

/* Looks now: a writer by passthrough will begin, or is closed and must know. Without the volume's lock. */
void cramped_look(struct volume *vol);
/* A writer by passthrough begins: the thread looks until he is closed. */
void cramped_begins_locked(struct volume *vol);

#endif
