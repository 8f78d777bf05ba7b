/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A damaged local state is moved aside and rebuilt from the remote; the work that only this machine
 * has comes back into the live tree as far as its rows can be read. Private to lib/volume.
 *
 * What was there goes to damaged/ in the cache directory: objects/, trees/, and last state.db with its
 * journal. While that is under way the folder is called damaged.moving/, so a crash in between is
 * finished by the next mount. The rest is done when the volume has adopted the newest epoch: files whose
 * current content was closed here, or was being written and survives a kill, and is not in the remote,
 * are copied to their paths, and the folder gets its lasting name, damaged-<UTC time>/. Until then each
 * mount does it (again). Copies of what the remote has are removed from it. All else stays there for
 * the user: content that no readable row names, that only epochs which were not uploaded hold, or that a
 * killed writer left.
 *
 * Lost are epochs that were not uploaded, as epochs, and the names, removals and attributes changed
 * since the newest that was.
 */
#ifndef EPOCHFS_VOLUME_REBUILD_H
#define EPOCHFS_VOLUME_REBUILD_H

#include "lib/cache/context.h"

/* Before the state is opened: finishes a move that was cut off, and sees whether something is to be
 * recovered (vol->rebuilt). 0 or -errno. */
int rebuild_resume(struct volume *vol);
/* Moves what is there aside, and says why in the log: 0, vol->rebuilt is set and the folders are new and
 * empty; or -errno. The state must be closed. */
int rebuild_begin(struct volume *vol, const char *why);
/* Where vol->rebuilt is set, once the live tree is there and nothing serves it yet. What cannot be
 * recovered is told and no error. 0 or -errno. */
int rebuild_recover(struct volume *vol);

#endif
