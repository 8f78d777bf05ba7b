/* SPDX-License-Identifier: Apache-2.0 */
/* What a store has learnt of its packs: which are there, and which chunks in them are damaged. */
#ifndef EPOCHFS_STORE_TRUST_H
#define EPOCHFS_STORE_TRUST_H

#include <stdbool.h>
#include "lib/util/hash.h"

/*
 * The index says where a chunk should lie; whoever deduplicates against it builds a new epoch on
 * that. So a pack is looked for once before it is built on, and a chunk that was found damaged is
 * stored anew. Kept in memory only. Thread-safe.
 */
struct trust;

int trust_new(struct trust **ret_trust); /* 0 or -ENOMEM */
void trust_free(struct trust *t);	 /* NULL is allowed */

/* The pack was seen in the remote now. Believed for TRUST_PACK_NS. */
#define TRUST_PACK_NS (INT64_C(3600) * 1000000000)
void trust_pack_seen(struct trust *t, const struct hash *pack);
void trust_pack_lost(struct trust *t, const struct hash *pack);
bool trust_pack(struct trust *t, const struct hash *pack);

/* In this pack the chunk is damaged. */
void trust_chunk_damaged(struct trust *t, const struct hash *chunk, const struct hash *pack);
bool trust_chunk(struct trust *t, const struct hash *chunk, const struct hash *pack);

#endif
