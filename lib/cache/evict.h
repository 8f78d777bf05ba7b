/* SPDX-License-Identifier: Apache-2.0 */
/* The evictor, and the room that the disk has. The evictor keeps cache_size and min_free by removing local copies of durable content, least
 * recently used first. For lib/ alone. */
#ifndef EPOCHFS_CACHE_EVICT_H
#define EPOCHFS_CACHE_EVICT_H

#include <jansson.h>
#include <stdint.h>
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

/* ---- whether the disk has room for one more write (evict.c) ---- */

/*
 * Whether the cache's disk has room for one more write. No room is less than what one write takes: file systems write what fits
 * and refuse the rest. XFS may refuse a buffered write with almost 4 MiB left. On ext2 to ext4 what is kept for root counts as room
 * where this process is given some of it, since the kernel writes with its rights. A quota for a project shows in what is free; those
 * for users do not hold for root.
 */
struct disk_room {
	uint64_t
		left; /* bytes; 0: a write may be refused; UINT64_MAX also where it cannot be told */
	int64_t at_ns; /* wall clock: it was so then */
};

/* Any thread, any lock held. */
struct disk_room disk_room(struct volume *vol);
/* Space is freed now: remembers, for those who write by passthrough (cramped.h), whether there was none. Any thread, any lock held. */
void disk_note(struct volume *vol);

#endif
