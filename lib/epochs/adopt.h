/* SPDX-License-Identifier: Apache-2.0 */
/* What the remote knows and this machine does not: epochs, tags, and the live tree of a new cache.
 * For lib/ alone. */
#ifndef EPOCHFS_EPOCHS_ADOPT_H
#define EPOCHFS_EPOCHS_ADOPT_H

#include "lib/cache/context.h"
#include "lib/format/tree.h"
#include "lib/meta/opening.h"
#include "lib/meta/records.h"

/* Puts together what is left of parts of several nodes: nodes_complete (nodes.h). */
typedef int adopt_complete_fn(struct volume *vol, struct remote *remote, struct store *store);
/*
 * At volume_open, after recovery and before the threads start; vol->store is open.
 *   - Rows for all epochs of the remote that have none here; those that another machine dropped are
 *     dropped here. Numbers go on above the highest that was ever used.
 *   - Tags become those of the remote, but for changes of this machine that it has not seen.
 *   - Where the local state is new, or stands unchanged on an epoch that is older than the newest in
 *     the remote (another machine wrote meanwhile), the live tree becomes that of the newest epoch.
 *     Its files' bytes stay in the remote until they are read, unless they are cached here.
 *   - Work that is only here is never touched: then the other machine's epochs are listed, and a line
 *     in the log says that the two have diverged.
 * After reading only records, tags and one tree. Nothing for remote `none`. 0 or -errno: that of the
 * remote, or -EBADMSG with a line for the user where the newest tree is damaged; a mount of one past
 * epoch does without it.
 */
int adopt_remote(struct volume *vol, adopt_complete_fn *complete, struct opening_message *m);

/*
 * The parts of it that an open volume repeats (follow.h). A record gets a row where it has none here, and
 * the epoch that it continues is marked; a tombstone drops the epoch, unless the live tree stands on it.
 * What is in memory (epoch index, trees) is the caller's to bring up to date.
 */
int adopt_record(struct volume *vol, const struct record_found *found);
int adopt_tags(struct volume *vol);

/* ---- The live tree rebuilt from an epoch's tree. ---- */

/* What earlier epochs tell of the tree that is adopted. */
struct adopt_before {
	/* The tree from before the save of which it may be half: the directories that it lacks count as made by epoch `half`. */
	const struct tree *save; /* NULL: they count as made long ago */
	uint64_t half;
	/* The newest complete epoch, where the adopted one is not: what it has the same content of was saved by then. */
	const struct tree *whole; /* NULL: all counts as saved by the adopted one */
	uint64_t whole_number;
};

/*
 * Replaces all files and names of the live tree by those of this durable epoch, in one transaction, and makes it the current one. Nothing may be open.
 * The versions that the old files had stay as cache where they are durable. (adopt_tree.c)
 */
int adopt_tree(struct volume *vol, uint64_t number, const struct tree *tree,
	       const struct adopt_before *before);

#endif
