/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of volume_open. Private to volume.c and those that say so. */
#ifndef EPOCHFS_VOLUME_OPEN_STEPS_H
#define EPOCHFS_VOLUME_OPEN_STEPS_H

#include "lib/meta/opening.h"
#include "lib/volume/internal.h"

/* All give 0 or -errno, and where they fail, a line for the user (opening.h). */

/*
 * Opens the remote (vol->remote retries for `patience`), finds the volume there, or makes it where the
 * remote is empty: sets vol->uuid, local_only. `none` takes its uuid from the cache directory.
 */
int connect_volume(struct volume *vol, struct opening_message *m);

/* The directory of all caches: the option's, or the user's own (XDG base directories). In `out`. */
int cache_root(const struct volume_options *o, struct buf *out, struct opening_message *m);
/* Warns where the directory lies on a network file system, and names places that are faster. */
void cache_warn_of_network(int fd, const char *path);
/* Makes, locks and opens cache-dir/<uuid>/ and what is in it: sets the descriptors, and the path in
 * `out`. */
int cache_open(struct volume *vol, struct buf *out, struct opening_message *m);
/* Makes and opens objects/ and trees/ in it: 0 or -errno. */
int cache_open_parts(struct volume *vol);

/* The cache directory and the local state in it: checked where that is worth its time, made anew
 * where it is damaged (rebuild.h). (open_state.c) */
int open_state(struct volume *vol, struct opening_message *m);
/* Closes the local state, where it is open, and notes how. */
void leave_state(struct volume *vol);

/*
 * The same volume for who puts epochs into it without a mount (import.h): remote (a new volume is made where it is empty), a local state
 * of its own in cache-dir/<uuid>/import/, lease, store, announcements; no live tree. The errors and the message of volume_open; volume_close ends it.
 */
int volume_open_for_import(const struct volume_options *options, struct volume **ret_volume,
			   char **ret_message);

#endif
