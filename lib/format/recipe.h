/* SPDX-License-Identifier: Apache-2.0 */
/* The recipe: how a content is put together from chunks and runs of zeros. */
#ifndef EPOCHFS_FORMAT_RECIPE_H
#define EPOCHFS_FORMAT_RECIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/format/chunk.h"
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/*
 *   recipe  = "EFR" version level size count segment{count}
 *   version = u8, 1
 *   level   = u8, 0 or 1
 *   size    = varint, the content's length: the sum of the segments' lengths, at most INT64_MAX
 *   count   = varint, number of segments
 *   segment = varint (length * 2): a chunk of that plain length, then its hash (32 bytes)
 *           | varint (length * 2 + 1): a run of zeros, a hole
 *
 * Lengths are at least 1; a chunk's is at most CHUNK_PLAIN_MAX; two runs of zeros never follow one
 * another. So one cut of one content has exactly one recipe.
 *
 * A recipe is stored as a chunk, and its address, the hash of the bytes above, is what a tree's
 * entry names. It depends on the content alone: a recipe carries no hint of where chunks lie,
 * because packs may be rewritten and addresses must not change. A mount without a cache finds
 * chunks by the index objects, and the tree itself by hints in the epoch's record (record.h).
 *
 * Where the encoding is longer than CHUNK_PLAIN_MAX, it is cut into chunks itself, and a recipe of
 * level 1 lists these (no runs of zeros, size = length of the encoding of the level-0 recipe). That
 * one always fits a chunk, since an encoding has at most RECIPE_ENCODED_MAX bytes.
 */
#define RECIPE_SEGMENTS_MAX (8u << 20)
#define RECIPE_ENCODED_MAX  (512u << 20)

struct recipe_segment {
	uint64_t offset; /* in the content */
	uint64_t length;
	bool zero;
	struct hash hash; /* of the chunk; all zero where `zero` */
};

/* Zero-initialise, fill with recipe_add_*, free with recipe_free or mark `cleanup_recipe`. */
struct recipe {
	uint8_t level;
	uint64_t size;
	struct recipe_segment *segments;
	size_t count;
	size_t cap;
};

void recipe_free(struct recipe *r);
#define cleanup_recipe CLEANUP(recipe_free)

/* Appends a chunk of `len` plain bytes: 0, -EINVAL (length), -EFBIG (size or count), -ENOMEM. */
int recipe_add_chunk(struct recipe *r, const struct hash *hash, uint32_t len);
/* Appends zeros, joined to a run of zeros before them; 0 bytes are nothing. Errors as above. */
int recipe_add_zeros(struct recipe *r, uint64_t len);

/* How many bytes are zeros in runs, which take no space. */
uint64_t recipe_holes(const struct recipe *r);

/* The segment that holds the byte at `offset`, or r->count where that is at or past the end. */
size_t recipe_find(const struct recipe *r, uint64_t offset);

/* Appends the encoding to `out`: 0, -ENOMEM, or -EINVAL for a level-1 recipe with zeros. */
int recipe_encode(const struct recipe *r, struct buf *out);
/* The bytes must be exactly one recipe: 0, -EBADMSG, -EPROTONOSUPPORT, -ENOMEM. */
int recipe_decode(const void *data, size_t len, struct recipe *ret_recipe);

#endif
