/* SPDX-License-Identifier: Apache-2.0 */
/* The files whose content was closed since the last epoch: how many bytes, and how often. */
#ifndef EPOCHFS_VOLUME_CHANGED_H
#define EPOCHFS_VOLUME_CHANGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Tells where one save ends and the next begins (sealer_before.c). Private to lib/volume; in memory only, guarded by the
 * volume's lock. Zero-initialise, free with changed_clear.
 */
struct changed_file {
	struct changed_file *next;
	struct changed_file *next_again, **link_again; /* of those that were closed twice or more */
	uint64_t ino, size;
	uint64_t count; /* how often it was closed, or replaced by another */
};

/* Beyond this many it is not known any more which. */
#define CHANGED_MAX 131072

struct changed {
	struct changed_file **buckets;
	size_t bucket_count, count;
	struct changed_file *again;
	uint64_t bytes; /* of all */
	bool overflow;	/* some are not in it: too many, or no memory for them */
};

void changed_clear(struct changed *c);
/* NULL: it is not known to have changed. */
const struct changed_file *changed_find(const struct changed *c, uint64_t ino);
/* The file was closed with so much in it. */
void changed_add(struct changed *c, uint64_t ino, uint64_t size);
void changed_remove(struct changed *c, uint64_t ino);
/* The file takes the place of another, which may have changed as well: it counts as closed once more than that. */
void changed_replaces(struct changed *c, uint64_t ino, uint64_t replaced);
/* Whether some file was closed exactly once more than `count`: what begins a save is written before the rest of it. */
bool changed_any_ahead(const struct changed *c, uint64_t count);

#endif
