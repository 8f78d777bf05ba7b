/* SPDX-License-Identifier: Apache-2.0 */
/* .epochs/torn: the bytes of killed writers, newest 16, until the next unmount or until their space is needed. */
#ifndef EPOCHFS_CACHE_TORN_H
#define EPOCHFS_CACHE_TORN_H

#include "lib/cache/context.h"

#define TORN_MAX 16

/* Opens torn/ (what an earlier mount left is kept only if that mount did not unmount in order). */
int torn_start(struct volume *vol);
/* At unmount in order: removes all. */
void torn_stop(struct volume *vol, bool in_order);
/* Moves the backing file of a version there under "<number>-<name>" (bytes of `name` that are not
 * printable become '?'); where it is read still, it stays where it is, too, until the last reader goes. */
void torn_keep_locked(struct volume *vol, uint64_t version, const char *name, bool is_read);
/* Removes the oldest of them until they made so much room, or none is left: the bytes that went. */
uint64_t torn_reclaim(struct volume *vol, uint64_t wanted);

/* .epochs/torn: bytes of killed writers, newest 16. Names are "<number>-<file name>". */
int torn_each(struct volume *vol,
	      int (*fn)(void *arg, const char *name, uint64_t id, uint64_t size, int64_t mtime_ns),
	      void *arg);
/* A read-only descriptor, the caller's: -ENOENT. */
int torn_open(struct volume *vol, const char *name);

#endif
