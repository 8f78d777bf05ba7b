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

int trust_new(struct trust **ret_trust); /* one reference: 0 or -ENOMEM */
struct trust *trust_ref(struct trust *t);
void trust_unref(struct trust *t); /* NULL is allowed */

enum trust_pack { TRUST_UNKNOWN, TRUST_SEEN, TRUST_LOST };
/* Believed for so long after it was noted. */
#define TRUST_SEEN_NS (INT64_C(3600) * 1000000000)
#define TRUST_LOST_NS (INT64_C(60) * 1000000000)
void trust_note_pack(struct trust *t, const struct hash *pack, enum trust_pack what);
enum trust_pack trust_of_pack(struct trust *t, const struct hash *pack);

/* In this pack the chunk is damaged. */
void trust_note_damage(struct trust *t, const struct hash *chunk, const struct hash *pack);
bool trust_is_damaged(struct trust *t, const struct hash *chunk, const struct hash *pack);

#endif
