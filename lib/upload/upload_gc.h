/* SPDX-License-Identifier: Apache-2.0 */
/* An upload beside garbage collection: what a writer owes by the protocol of collection.h. Private to the uploader. */
#ifndef EPOCHFS_UPLOAD_UPLOAD_GC_H
#define EPOCHFS_UPLOAD_UPLOAD_GC_H

#include "lib/format/record.h"
#include "lib/store/store.h"
#include "lib/cache/context.h"

/* `heed`: before a batch begins. The remote's errors; -EBADMSG: the list is damaged, which a collection puts right. */
int upload_gc_heed(struct remote *remote, struct store *store);

struct upload_gc {
	struct volume *
		vol; /* NULL: an epoch of the past, which is kept from all that was ever condemned */
	struct remote *remote;
	struct store *store;
	struct epoch_record *record; /* whose tree was stored */
	const struct buf *tree;	     /* its bytes */
	/* A descriptor (the caller's own from then on) of the local content with this recipe and size, or -errno. */
	int (*local)(void *arg, const struct hash *recipe, uint64_t size);
	void *arg;
	uint64_t index_number; /* of the index objects that come of it; 0: the record's */
	bool begun;	       /* at first false; then */
	uint64_t heeded;       /* the generation up to which this epoch was kept */
	uint64_t lost; /* contents that can be had from nowhere any more, as the last look found */
};

/*
 * `keep`, before the record is put (`guarded` false), and once more after it: returns when all that the epoch names is in
 * packs that are not condemned by any list that is there. Not guarded by its record, an epoch may be condemned again as fast as it is stored, where
 * collections without a grace follow one another: then it returns after some rounds, and the time after the record counts.
 * What can be had from nowhere any more is logged.
 */
int upload_gc_keep(struct upload_gc *u, bool guarded);

#endif
