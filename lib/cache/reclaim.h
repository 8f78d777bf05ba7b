/* SPDX-License-Identifier: Apache-2.0 */
/* Versions that nothing needs any more, and their backing files: they are reclaimed. */
#ifndef EPOCHFS_CACHE_RECLAIM_H
#define EPOCHFS_CACHE_RECLAIM_H

#include <stdbool.h>
#include <stdint.h>

struct volume;

/*
 * A version that no file, no open handle, no content and no pending epoch needs is reclaimed: row and
 * backing file go, or where it is durable and local, it stays as cache for the evictor. Call after
 * `died` was set or an epoch became durable or was dropped. Cheap where nothing is dead. Without the lock.
 */
void versions_reclaim(struct volume *vol);
/* The same for one version, e.g. one whose `died` was just set. In the caller's transaction if there
 * is one: its backing file is only marked, and goes once that has ended (objects_delete_marked). With the lock. */
int version_reclaim_locked(struct volume *vol, uint64_t version);
/* Whether a file that is open, or a reader, needs its bytes here, or that cannot be told. With the lock. */
bool version_in_use_locked(struct volume *vol, uint64_t version);
/* The closed version `old` (0: none) is no longer what the file holds. In a transaction, with the lock. */
int version_died_locked(struct volume *vol, uint64_t old);

/* Deletes the backing files that were marked; by who needs the room, or vol->marked_wake wakes. Without the lock. */
void objects_delete_marked(struct volume *vol);

#endif
