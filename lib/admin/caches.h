/* SPDX-License-Identifier: Apache-2.0 */
/* The caches of a machine, without their mounts: which volumes they belong to, what they take, and removing one. */
#ifndef EPOCHFS_ADMIN_CACHES_H
#define EPOCHFS_ADMIN_CACHES_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/state/shutdown_mark.h"
#include "lib/util/buf.h"

/* The cache directory of one volume, or of imports into it. Texts live as long as the call that gives them. */
struct cache_found {
	const char *uuid;
	const char *remote; /* as people may see it; "": an older epochfs has left no note of it */
	uint64_t bytes;	    /* that it takes on the disk */
	int64_t used_ns;    /* when it was opened or closed last */
	bool in_use;
	struct shutdown_mark_holder holder; /* where it is in use; it may be of an import */
	const char *
		only_here; /* what would be lost with it, in words; NULL: nothing. Not looked at while it is in use */
};
typedef int (*cache_found_fn)(void *arg, const struct cache_found *c);

/* Those below `root`, in no order. 0, what `fn` returned, or -errno (-ENOENT: there is no such directory). */
int caches_each(const char *root, cache_found_fn fn, void *arg);

/*
 * Removes one. -EBUSY: it is in use. -ENOTEMPTY: something is only there, which `why` gets, and not `force`. One that was killed in the middle leaves a
 * directory that the next one of the same volume removes.
 */
int cache_remove(const char *root, const char *uuid, bool force, struct buf *why);

#endif
