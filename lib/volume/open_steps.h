/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of volume_open. Private to volume.c and those that say so. */
#ifndef EPOCHFS_VOLUME_OPEN_STEPS_H
#define EPOCHFS_VOLUME_OPEN_STEPS_H

#include "lib/meta/opening.h"
#include "lib/cache/context.h"

/* All give 0 or -errno, and where they fail, a line for the user (opening.h). */

/*
 * Opens the remote (vol->remote retries for `patience`), finds the volume there, or makes it where the
 * remote is empty: sets vol->uuid, local_only. `none` takes its uuid from the cache directory.
 */
int connect_volume(struct volume *vol, struct opening_message *m);

/* The cache directory and the local state in it: checked where that is worth its time, rebuilt
 * where it is damaged (recovery.h). (open_state.c) */
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
