/* SPDX-License-Identifier: Apache-2.0 */
/* What a volume's epochs hold, and what they take in the remote. */
#ifndef EPOCHFS_EPOCHS_USAGE_H
#define EPOCHFS_EPOCHS_USAGE_H

#include <jansson.h>
#include "lib/store/store.h"
#include "lib/cache/context.h"

/*
 * live      of the newest epoch that is durable, which the live tree stands on or is about to
 * retained  of all durable epochs together
 *   bytes         the sizes of their files
 *   stored        what they take in the remote, each chunk counted once (store/store.h)
 * packs     what all packs take; `unused` of it is of no epoch: dropped ones', until the garbage collection, and that of
 *           an upload under way
 *
 * The sizes come from the records. To know what is stored, every tree and recipe is read: a mount reads those that it has
 * here (it has all of what it wrote itself), and keeps what it found until the epochs change, and then for twenty times as long as
 * it took. What it has not is read from the remote only where a person asks for that, as are the packs listed.
 */
struct usage {
	uint64_t live_epoch; /* 0: there is none */
	uint64_t live_bytes, live_stored;
	uint64_t epochs, bytes, stored;
	bool live_counted, counted; /* live_stored, and stored, are known */
	int64_t counted_ns;	    /* wall clock; 0: just now, from the records */
	bool listed;		    /* what follows is known */
	uint64_t packs, pack_bytes, pack_unused;
};

/* "live": {epoch, bytes, bytes_stored}, "retained": {epochs, bytes, bytes_stored, counted_ns}, "packs": {count, bytes, bytes_unused};
 * keys of what is not known are left out. NULL: no memory. */
json_t *usage_json(const struct usage *u);
/* Adds a durable epoch's figures, the newest first; `set` (may be NULL) has its chunks by now. */
void usage_add(struct usage *u, const struct epoch_record *record, const struct store_usage *set);
/* Lists the packs, after `stored` is known. The remote's errors. */
int usage_list_packs(struct remote *remote, struct usage *u);

/* Of an open volume. `read`: also what is not here. -EINTR; or, with `read`, the remote's errors, -EIO for what is damaged. Any
 * thread, without locks. */
struct usage_cache;
int usage_cache_new(struct usage_cache **ret_cache);
void usage_cache_free(struct usage_cache *c); /* NULL is allowed */
int volume_usage(struct volume *vol, bool read, interrupted_fn interrupted, void *arg,
		 struct usage *ret_usage);

#endif
