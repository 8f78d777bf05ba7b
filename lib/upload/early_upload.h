/* SPDX-License-Identifier: Apache-2.0 */
/* Large contents go to the remote once they are closed, before an epoch is sealed that has them. Private to the uploader. */
#ifndef EPOCHFS_UPLOAD_EARLY_UPLOAD_H
#define EPOCHFS_UPLOAD_EARLY_UPLOAD_H

#include "lib/format/names.h"
#include "lib/store/store.h"
#include "lib/cache/context.h"

/*
 * Between a close and the seal the network would stand idle: `settle`, and all the time in which the other files of the checkpoint
 * are written. So the uploader's thread, when no epoch waits, stores what was closed last, each content in a batch of its own, with
 * its index object. The epoch that has it then names its recipe and its index object, and neither reads nor hashes it again.
 *
 * What is replaced before it is sealed stays in the remote, named by no epoch, until garbage collection takes it; and so does what a
 * collection takes before the seal: the epoch's upload looks (store_batch_keep), and stores it again.
 *
 * Only whole new contents of options.upload_ahead bytes and more: logs and files that are changed in place are closed again and again.
 * What was stored is known in memory only. After a restart the epoch's upload hashes it once more, and finds its chunks in the index.
 *
 * Threads: early_upload_note from any thread, all else from the uploader's. Its lock is a leaf.
 */
struct early_upload;

/* What was stored of a version. */
struct early_upload_content {
	uint64_t version;
	struct hash recipe;
	uint64_t holes;		 /* bytes in its runs of zeros */
	char index_key[KEY_MAX]; /* "" where all of it was there already */
	uint64_t bytes_new, bytes_stored;
};

/* 0 or -ENOMEM. */
int early_upload_new(struct early_upload **ret_ahead);
/* NULL is allowed. */
void early_upload_free(struct early_upload *a);

/* A version was closed that may be worth it. The latest are remembered, some hundred. */
void early_upload_note(struct early_upload *a, uint64_t version);

/*
 * Stores the next one. 1: done, or let go; 0: none waits. -ECANCELED: stopped, -ESTALE: the lease is lost; other errors cost only the
 * head start, and are logged.
 */
int early_upload_store(struct early_upload *a, struct volume *vol, struct remote *remote,
		       struct store *store);

/* What was stored of this version, or NULL; valid until the next call of this thread. */
const struct early_upload_content *early_upload_find(const struct early_upload *a,
						     uint64_t version);
/*
 * The record of an epoch that has the version counts as its own what was stored of it, and names its index object; once: a later try
 * finds that in the record. To be called before store_batch_flush. 0 or -ENOMEM.
 */
int early_upload_count(const struct early_upload *a, uint64_t version, struct epoch_record *record);
/* An epoch that has it is durable. */
void early_upload_forget(struct early_upload *a, uint64_t version);

#endif
