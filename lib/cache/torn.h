/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .epochs/torn: the bytes of killed writers, the newest 16, and of these as many as TORN_BYTES hold beside the newest. They stay when the volume
 * is closed, until newer ones come or their space is needed.
 */
#ifndef EPOCHFS_CACHE_TORN_H
#define EPOCHFS_CACHE_TORN_H

#include "lib/cache/context.h"

#define TORN_MAX   16
#define TORN_BYTES (UINT64_C(4) << 30)

/* What the next process that serves the same mount goes on with (options.torn_record), kept right by plain stores: torn_ids(). All 0 for
 * the first one. The layout is known to two processes, perhaps of two releases: fs/table.h has its version. */
struct torn_record {
	uint64_t next, mounted;
};

/* Opens torn/, with what earlier mounts have left there. */
int torn_start(struct volume *vol);
void torn_stop(struct volume *vol);
/* Moves the backing file of a version there under "<number>-<name>" (bytes of `name` that are not
 * printable become '?'); where it is read still, it stays where it is, too, until the last reader goes. */
void torn_keep_locked(struct volume *vol, uint64_t version, const char *name, bool is_read);
/* Removes the oldest of them until they made so much room, or none is left: the bytes that went. */
uint64_t torn_reclaim(struct volume *vol, uint64_t wanted);

/* One of them; its name is "<id>-<file name>". Other than 0 ends the listing. */
typedef int (*torn_fn)(void *arg, const char *name, uint64_t id, uint64_t size, int64_t mtime_ns);

/* .epochs/torn, ascending ids: 0, or what `fn` returned. */
int torn_each(struct volume *vol, torn_fn fn, void *arg);
/* The same of a volume that nobody serves any more, by its cache directory; or -errno where that cannot be looked into. */
int torn_each_left(const char *cache, torn_fn fn, void *arg);
/* The id that the next one gets, and the one that the first of this mount got or gets, also where other processes served it before. */
void torn_ids(struct volume *vol, uint64_t *ret_next, uint64_t *ret_mounted);
/* A read-only descriptor, the caller's: -ENOENT. */
int torn_open(struct volume *vol, const char *name);

#endif
