/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sealer: notices what happens in the live tree, decides when an epoch is whole (contract 1.3),
 * and seals it. The rules themselves (temporary names, markers, step labels, logs) are pure
 * functions in names.h, the decision in settle.h, so that they are tested without a clock. Private
 * to lib/volume.
 */
#ifndef EPOCHFS_VOLUME_SEALER_H
#define EPOCHFS_VOLUME_SEALER_H

#include "lib/volume/internal.h"

enum activity {
	ACTIVITY_CREATE, /* a name was made (file, directory, symlink, link): opens an epoch */
	ACTIVITY_CLOSE,	 /* new content was committed: opens an epoch */
	ACTIVITY_RENAME, /* opens an epoch */
	ACTIVITY_WRITE,	 /* a write was seen: restarts the quiet, opens none */
	ACTIVITY_REMOVE, /* rides in the next epoch; commit and unmount seal it */
	ACTIVITY_ATTR,	 /* chmod, utimens, xattr: likewise, and does not restart the quiet */
};

int sealer_start(struct volume *vol, bool recovered_killed);
/* Stops the thread; seals nothing. */
void sealer_stop(struct volume *vol);

/*
 * With the lock held, in or after the transaction of the change. `name` is the name made, removed
 * or closed (old_name: of a rename; else NULL); NULL where there is none. A rename that makes a
 * temporary name final, and a marker closed or renamed into place, seal here and now: the snapshot
 * begins before this returns, so that what follows belongs to the next epoch.
 */
void sealer_note_locked(struct volume *vol, enum activity what, uint64_t parent,
			const char *old_name, const char *name, uint64_t ino);
/* A writer was killed, or something of the like: the next epoch is complete=false with this reason,
 * and is sealed by quiet. */
void sealer_incomplete_locked(struct volume *vol, const char *reason);
/* A request came without a pid from a writer: the next epoch is complete=unknown. */
void sealer_unknown_locked(struct volume *vol);
/* Whether the file name is that of a log (options' globs and the built-in ones). */
bool sealer_is_log(const struct volume *vol, const char *name);

#endif
