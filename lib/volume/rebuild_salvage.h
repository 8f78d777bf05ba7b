/* SPDX-License-Identifier: Apache-2.0 */
/* What rows of a damaged state say of the objects beside it, and bringing files back. Private to
 * rebuild.c. */
#ifndef EPOCHFS_VOLUME_REBUILD_SALVAGE_H
#define EPOCHFS_VOLUME_REBUILD_SALVAGE_H

#include "lib/cache/context.h"

struct salvage {
	struct volume *vol;
	struct state *old; /* NULL: nothing of it can be read */
	int objects_fd;	   /* the objects beside it */
	uint64_t *ids;	   /* theirs, ascending */
	size_t count, cap;
	uint64_t *needless; /* ids of those that were recovered, or that the remote has */
	size_t needless_count;
	size_t recovered; /* files that are in the live tree again */
	size_t kept;	  /* objects that stay where they are */
};

/* Copies into the live tree what belongs there. `dirfd` is the folder with state.db and objects/. 0 or
 * -errno; what cannot be read or copied is kept, and counted. */
int salvage(struct salvage *s, int dirfd);
/* Removes the objects that nobody needs any more. */
void salvage_remove_needless(const struct salvage *s);
void salvage_free(struct salvage *s);

#endif
