/* SPDX-License-Identifier: Apache-2.0 */
/* The evictor: keeps cache_size and min_free by removing local copies of durable content, least
 * recently used first. For lib/ alone. */
#ifndef EPOCHFS_CACHE_EVICT_H
#define EPOCHFS_CACHE_EVICT_H

#include <jansson.h>
#include "lib/cache/context.h"

/*
 * The order is that of state_version_each_evictable (lib/state/state_versions.c): by when it was last opened, oldest first.
 *
 * Content that is only here, staged or closed but not durable, is never touched, nor what somebody
 * has open. A thread looks every few seconds and when it is kicked, so that writers by passthrough,
 * whom the daemon does not see, find room ahead of them. Who writes waits for room
 * (volume_reserve); who reads what the remote has does not: what he has open may take more than the
 * limits where nothing else can go, and goes when he closes.
 */
int evictor_start(struct volume *vol);
void evictor_stop(struct volume *vol);
/* Content came in or became durable. Any thread, lock held or not. */
void evictor_kick(struct volume *vol);
/* Evicts what it takes for `bytes` more, and gives by how many bytes the limits are still passed.
 * Without locks. */
uint64_t evictor_make_room(struct volume *vol, uint64_t bytes);
/* Whether a writer whom the daemon does not see may begin: some times the room that the evictor keeps
 * ahead is there, or is now made. Without locks. */
bool evictor_keeps_ahead(struct volume *vol);
/* "cache": {"bytes","dirty_bytes","free_bytes"[,"limit_bytes"]} for status. */
int evictor_status(struct volume *vol, json_t *status);

/* Room for `bytes` more in the cache's file system, min_free kept: evicts where that can be enough, waits as
 * full=wait says. 0, -EINTR, or -ENOSPC, at once where it would not fit though nothing else were there. (evict.c) */
int volume_reserve(struct volume *vol, uint64_t bytes, interrupted_fn interrupted, void *arg);
/*
 * A name or an attribute is to be made, which takes space in the state only. The first, without the
 * lock, evicts where the disk is so full that this is needed, and waits for nothing; the second,
 * with it or without, is 0, or -ENOSPC where only what makes space is done (reserve.h). (evict.c)
 */
void volume_make_room_for_names(struct volume *vol);
int volume_room_for_names(const struct volume *vol);

#endif
