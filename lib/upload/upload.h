/* SPDX-License-Identifier: Apache-2.0 */
/* The uploader: one thread makes sealed epochs durable in order (store's threads do the work), and
 * brings tags and drops to the remote. For lib/ alone. */
#ifndef EPOCHFS_UPLOAD_UPLOAD_H
#define EPOCHFS_UPLOAD_UPLOAD_H

#include <jansson.h>
#include "lib/cache/context.h"
#include "lib/cache/uploads.h"

int uploader_start(struct volume *vol);
/* Cancels waits at the remote, ends the thread; what is unfinished goes on at the next mount. */
void uploader_stop(struct volume *vol);
/* What vol->uploads is; does nothing before uploader_start. */
extern const struct upload_ops uploader_ops;
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
/* Keys for `status`: what is pending, since when, what failed and why. Adds to the object. */
int uploader_status(struct volume *vol, json_t *status);

/* ---- Bringing tags and drops to the remote. Private to the uploader. ---- */

/* Tags and drops that the remote has not seen, but not so many that an epoch would wait for long: ret_more says whether some are
 * left. A tag of an epoch that is not durable yet waits for it, and a drop for what makes it bearable. 0 or the remote's -errno;
 * -ESTALE: the lease is lost. */
int upload_changes(struct volume *vol, struct remote *remote, bool *ret_more);

#endif
