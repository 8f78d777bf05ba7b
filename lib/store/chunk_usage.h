/* SPDX-License-Identifier: Apache-2.0 */
/* What epochs take in the remote: the bytes of all chunks that they need, each counted once. */
#ifndef EPOCHFS_STORE_CHUNK_USAGE_H
#define EPOCHFS_STORE_CHUNK_USAGE_H

#include "lib/format/tree.h"
#include "lib/store/store.h"

/*
 * A chunk counts with its frame and its row in the pack's table (pack.h). Those of an epoch are its tree's, its files' recipes',
 * and its files'. What no index names counts for nothing: it is not there. Small files lie in the tree.
 *
 * Chunks are told apart by 64 bits of their hash, 16 bytes of memory each: two of a thousand million would be one.
 * Not thread-safe.
 */
struct store_usage;

/*
 * `store` may be NULL: then only recipes are read that the index has, and an epoch that needs another is -ENODATA. With one, the
 * index is refreshed first, with the errors of that. Both outlive the usage.
 */
int store_usage_new(const struct store_index *index, struct store *store,
		    struct store_usage **ret_usage);
void store_usage_free(struct store_usage *u); /* NULL is allowed */
/* Adds an epoch: 0; -ENODATA; -EIO where a recipe is damaged or missing; or that of the remote. After a failure the sums are of
 * no use. */
int store_usage_add(struct store_usage *u, const struct epoch_record *record,
		    const struct tree *tree);
/* Of all that was added. */
uint64_t store_usage_bytes(const struct store_usage *u);

#endif
