/* SPDX-License-Identifier: Apache-2.0 */
/* The uploader: one thread makes sealed epochs durable in order (store's threads do the work), and
 * brings tags and drops to the remote. Private to lib/volume. */
#ifndef EPOCHFS_VOLUME_UPLOAD_H
#define EPOCHFS_VOLUME_UPLOAD_H

#include <jansson.h>
#include "lib/volume/internal.h"

int uploader_start(struct volume *vol);
/* Cancels waits at the remote, ends the thread; what is unfinished goes on at the next mount. */
void uploader_stop(struct volume *vol);
/* There is work: an epoch was sealed, a tag changed, an epoch was dropped. Any thread, lock held or
 * not. */
void uploader_kick(struct volume *vol);
/*
 * Runs something in the uploader's thread, between two epochs, and waits for it: its result; -EINTR where that came first, and it may be run nevertheless; -ESTALE
 * where another writer is there; -ECANCELED where the thread ends. The remote retries for ever. `c` is taken over, and freed by its own function.
 */
struct upload_call {
	int (*run)(struct upload_call *c, struct remote *remote, struct store *store);
	void (*free)(struct upload_call *c);
	struct upload_call *next; /* the uploader's, as what follows */
	int error;
	bool done, abandoned;
};
int uploader_call(struct volume *vol, struct upload_call *c, interrupted_fn interrupted, void *arg);
/* A version was closed that is no log and no edit in place. Any thread, lock held or not. */
void uploader_closed(struct volume *vol, uint64_t version, uint64_t size);
/* Another writer is there: nothing is uploaded any more by this mount. Any thread, lock held or not. */
bool uploader_gave_up(struct volume *vol);
/* Keys for `status`: what is pending, since when, what failed and why. Adds to the object. */
int uploader_status(struct volume *vol, json_t *status);

#endif
