/* SPDX-License-Identifier: Apache-2.0 */
/* Finds entries of an array by the hash that each begins with. */
#ifndef EPOCHFS_STORE_HASH_INDEX_H
#define EPOCHFS_STORE_HASH_INDEX_H

#include <stddef.h>
#include <stdint.h>
#include "lib/util/hash.h"

/*
 * The caller keeps an array of structs whose first member is a `struct hash`; the index holds their
 * numbers only (about 8 bytes an entry). Where slots lie depends on a random seed, since the hashes
 * may be chosen by an attacker. Zero-initialise. Not thread-safe.
 */
struct hash_index {
	uint32_t *slots; /* number + 1; 0: free */
	size_t cap;	 /* a power of two */
	size_t count;
	uint64_t seed[4];
};

#define HASH_INDEX_NONE UINT32_MAX

void hash_index_free(struct hash_index *ix);
/* The number of the entry with this hash, or HASH_INDEX_NONE. */
uint32_t hash_index_find(const struct hash_index *ix, const void *entries, size_t entry_size,
			 const struct hash *hash);
/* Adds entry `number`, whose hash must not be there yet: 0, -ENOMEM, or -EFBIG. */
int hash_index_add(struct hash_index *ix, const void *entries, size_t entry_size, uint32_t number);

#endif
