/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A read-only volume follows its remote: what a writer elsewhere adds and drops appears here. Private to
 * lib/volume.
 *
 * Every options.refresh_ns a thread lists the epochs' objects, reads those that are new or have another size
 * (a tombstone never has that of the record whose place it took), and all tags; then the live tree is made equal to the newest
 * epoch's, as a rollback does it: in one transaction, files that are equal stay what they are, one with other
 * content is another file (rollback.h), and who has the old one open keeps it. The kernel is notified of each name and file that changed, and of
 * each epoch that is gone.
 *
 * A node of a set (nodes.h) follows in the same way, but for its live tree, which is its own.
 *
 * Local state that is not in the remote (the cache was a writer's, which was not uploaded) is never touched:
 * then only epochs and tags follow.
 */
#ifndef EPOCHFS_EPOCHS_FOLLOW_H
#define EPOCHFS_EPOCHS_FOLLOW_H

#include <jansson.h>
#include "lib/meta/records.h"
#include "lib/cache/context.h"

/* An epoch's object as it was listed. */
struct epoch_object {
	uint64_t number, size;
	bool tombstone; /* it was read, and is one */
};

/* A tombstone that was read while the volume was opened: one that is another object by the follower's first look is news. Ascending. -ENOMEM. */
int follow_note_tombstone(struct volume *vol, const struct record_found *found);
/* The last step of volume_open. Does nothing for a volume that one machine alone writes to, is local, or shows one past
 * epoch. A node of a set calls `pass_of_node` after each look that went well. 0 or -errno. */
int follower_start(struct volume *vol, void (*pass_of_node)(struct volume *vol));
/* Before anything else is closed; cancels what waits at the remote. */
void follower_stop(struct volume *vol);
/*
 * A record of the remote: its row, and what is in memory; who mounted is told. Before the sealer is there,
 * its row alone. Any thread, without locks. (Of a node of a set, too.)
 */
int follow_record(struct volume *vol, const struct record_found *found);
/* All records above the highest that is known (nodes.h). */
int follow_newer(struct volume *vol, struct remote *remote);
/* "follow" for `status`: when it was last up to date, and what is wrong since. */
int follower_status(struct volume *vol, json_t *status);

#endif
