/* SPDX-License-Identifier: Apache-2.0 */
/* What a store has learnt of its packs: which are there, which are condemned, and which chunks in them are damaged. */
#ifndef EPOCHFS_STORE_TRUST_H
#define EPOCHFS_STORE_TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/hash.h"

/*
 * The index says where a chunk should lie; whoever deduplicates against it builds a new epoch on
 * that. So a pack is looked for once before it is built on, and a chunk that was found damaged is
 * stored again. Kept in memory only. Thread-safe.
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

/*
 * A reader found that the pack is gone: gives the time (monotonic) at which this was first found. An index that was
 * read after that has been asked already.
 */
int64_t trust_note_gone(struct trust *t, const struct hash *pack);

/*
 * What garbage collection has condemned, as of `generation` (store.h, store_heed); replaces what was told before, and
 * forgets which packs were seen. 0 or -ENOMEM, and then nothing has changed.
 */
int trust_condemn(struct trust *t, uint64_t generation, const struct hash *packs, size_t count);
bool trust_is_condemned(struct trust *t, const struct hash *pack);
/* 0: nothing was condemned yet. */
uint64_t trust_generation(struct trust *t);

/* In this pack the chunk is damaged. */
void trust_note_damage(struct trust *t, const struct hash *chunk, const struct hash *pack);
bool trust_is_damaged(struct trust *t, const struct hash *chunk, const struct hash *pack);

#endif
