/* SPDX-License-Identifier: Apache-2.0 */
/* Making one sealed epoch durable. Private to the uploader. */
#ifndef EPOCHFS_UPLOAD_UPLOAD_EPOCH_H
#define EPOCHFS_UPLOAD_UPLOAD_EPOCH_H

#include "lib/cache/context.h"
#include "lib/format/record.h"
#include "lib/store/store.h"
#include "lib/upload/early_upload.h"
#include "lib/util/lock.h"

/* What small files may take in one tree: beyond that they are stored as large ones are. A tree is in
 * memory as a whole, here and wherever it is read. */
#define UPLOAD_INLINE_BYTES_MAX (UINT64_C(16) << 20)

/* What an upload under way tells `status`; its own lock, a leaf. */
struct upload_progress {
	struct mutex lock;
	uint64_t epoch;		   /* 0: none under way */
	uint64_t total;		   /* bytes that are to be looked at */
	struct store_batch *batch; /* while there is one */
};

/*
 * Puts what the epoch's local versions hold, then the tree, the index object and, create-if-absent, the record. Then marks versions and
 * epoch durable. Repeating it after any failure or crash is safe: what is in the remote already is not put again, and a record of our own is
 * taken as ours.
 *   -EEXIST     another writer has put an epoch of this number: nothing of ours is lost, nothing is overwritten
 *   -ESTALE     the lease is lost: likewise
 *   -ECANCELED  stopped; else -errno of the remote or the local disk
 */
int upload_epoch(struct volume *vol, struct remote *remote, struct store *store, uint64_t number,
		 struct early_upload *ahead, struct upload_progress *progress);

/* ---- the record ---- */

/*
 * Makes the epoch exist: its record, with the time of now as `durable`, is created in the remote,
 * and `json` is its text. A record of our own that is there already is taken, with its text.
 * -EEXIST: the number is another writer's; else 0 or -errno of the remote.
 */
int upload_record_put(struct remote *remote, struct epoch_record *record, struct buf *json);
/*
 * What this try has stored goes into the epoch's row: a later try finds it stored already, and the
 * record is to say what the epoch has added.
 */
int upload_record_remember(struct volume *vol, const struct epoch_record *record);
/* The epoch is durable, with this text as its record: marked so in its row, announced, and told to who waits. */
int upload_record_durable(struct volume *vol, uint64_t number, const char *json);

/* ---- beside garbage collection ---- */

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
