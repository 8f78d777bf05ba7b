/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the cache's disk has room for one more write. No room is less than what one write takes: file systems write what fits
 * and refuse the rest. XFS may refuse a buffered write with almost 4 MiB left. On ext2 to ext4 what is kept for root counts as room
 * where this process is given some of it, since the kernel writes with its rights. A quota for a project shows in what is free; those
 * for users do not hold for root.
 */
#ifndef EPOCHFS_CACHE_DISK_ROOM_H
#define EPOCHFS_CACHE_DISK_ROOM_H

#include <stdint.h>

struct volume;

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
