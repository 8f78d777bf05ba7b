/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of epochs: their local files trees/<number>, and the decoded trees that are shared. */
#ifndef EPOCHFS_CACHE_TREES_H
#define EPOCHFS_CACHE_TREES_H

#include "lib/cache/context.h"
#include "lib/format/record.h"

/*
 * For lib/ alone. trees/<20 digits> holds the tree of that epoch in the format of
 * lib/format/tree.h. Until the epoch is durable it may name local versions; then it is replaced by
 * the final one, which names recipes only. Both list the same entries in the same order, so entry
 * numbers stay. A local file of a durable epoch is a cache: it may be removed, and is fetched again.
 *
 * Threads: all functions may be called from any thread, with the volume's lock held or not; they
 * take only their own lock, never over I/O. trees_load reads a file, trees_fetch may ask the remote:
 * call them without the volume's lock.
 */
int trees_new(struct trees **ret_trees);
void trees_free(struct trees *t); /* NULL is allowed */

/*
 * Makes these bytes (of malloc; taken over in any case) the tree of the epoch: the file is replaced
 * atomically, and who asks from now on gets the new one. It is not fsynced: after a power loss the
 * tree's own checksum tells. `flags`: TREE_ALLOW_LOCAL or, for what comes from the remote, 0. ret_tree
 * (may be NULL) gets a reference. -EBADMSG where the bytes are no tree.
 */
int trees_store(struct volume *vol, uint64_t number, void *data, size_t len, unsigned flags,
		struct tree **ret_tree);
/* From memory or the local file: -ENOENT where there is none, -EBADMSG where it is damaged. */
int trees_load(struct volume *vol, uint64_t number, struct tree **ret_tree);
/* The same, and where it is not here or damaged, from the remote by this record, checked; then it is
 * stored here. -ENOENT where the epoch is not durable, or the errors of the remote. */
int trees_fetch(struct volume *vol, uint64_t number, const struct epoch_record *record,
		struct tree **ret_tree);
/* Forgets the tree and removes its file; a missing one is no error. */
int trees_remove(struct volume *vol, uint64_t number);

#endif
