/* SPDX-License-Identifier: Apache-2.0 */
/* Making one sealed epoch durable. Private to the uploader. */
#ifndef EPOCHFS_UPLOAD_UPLOAD_EPOCH_H
#define EPOCHFS_UPLOAD_UPLOAD_EPOCH_H

#include "lib/cache/context.h"
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

#endif
