/* SPDX-License-Identifier: Apache-2.0 */
/* What a mounted volume does with the remote: uploading, collecting garbage, bringing dropped epochs back. For lib/ alone. */
#ifndef EPOCHFS_UPLOAD_UPLOAD_H
#define EPOCHFS_UPLOAD_UPLOAD_H

#include <jansson.h>
#include "lib/cache/context.h"
#include "lib/cache/uploads.h"
#include "lib/format/record.h"
#include "lib/meta/opening.h"
#include "lib/store/store.h"
#include "lib/util/buf.h"
#include "lib/util/clock.h"

/* ---- the uploader (upload.c) ---- */

/* One thread makes sealed epochs durable in order (store's threads do the work), and brings tags and drops to the remote. */

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

/* How uploading goes. */
struct uploader_health {
	int64_t failing_since_ns; /* wall clock: the first failure since the last success; 0: it goes well */
	uint64_t
		retries; /* attempts at the remote that were repeated, since the volume was opened */
	bool conflict;	 /* another writer is there: nothing is uploaded any more */
};
/* All 0 where nothing is uploaded. */
void uploader_get_health(struct volume *vol, struct uploader_health *ret_health);

/* ---- Bringing tags and drops to the remote. Private to the uploader. ---- */

/* Tags and drops that the remote has not seen, but not so many that an epoch would wait for long: ret_more says whether some are
 * left. A tag of an epoch that is not durable yet waits for it, and a drop for what makes it bearable. 0 or the remote's -errno;
 * -ESTALE: the lease is lost. */
int upload_changes(struct volume *vol, struct remote *remote, bool *ret_more);

/* ---- garbage collection by a mount (collector.c) ---- */

/*
 * Garbage collection by a mount: with the option keep (and without gc=off) a thread collects what dropped epochs leave in the remote, so
 * that space comes back by itself.
 *
 * It is the collection of collection.h, in the background: a while after the volume was opened, after a drop has reached the remote, and when the grace of what is
 * condemned is over. Drops that follow one another share one; between two of them is a 24th of the grace, at most an hour, and four times
 * what the last one took. It works for a quarter of the time at the lowest priority, with few
 * connections, and asks before each change whether the lease is ours. What fails is tried again; what a kill cuts off, the next one goes on with.
 * Of several nodes, each that drops collects: who finds another at work leaves it the field.
 */

/* Before those who kick run. Makes nothing without keep, with gc=off, for a volume that is read-only or has no remote. */
int collector_start(struct volume *vol);
/* The thread begins. After everything that it asks for has been started. */
int collector_run(struct volume *vol);
/* Ends the thread, in the middle of a collection too. Before the lease is given back. */
void collector_stop(struct volume *vol);
/* After everybody who kicks has ended. */
void collector_free(struct volume *vol);
/* A drop is in the remote. Any thread, lock held or not. */
void collector_kick(struct volume *vol);
/* Adds "gc": whether it runs, what the last one did, when the next one is; nothing where there is none. */
int collector_status(struct volume *vol, json_t *status);

/* ---- bringing a dropped epoch back (undrop.c) ---- */

/* Bringing a dropped epoch back in the remote, under its number. Of a mount: epochs_undrop; without one: catalog_undrop. */

/*
 * The tombstone has the record (format/record.h), and what the record names is in the remote until garbage collection has condemned it and the
 * grace has passed since. Bringing it back is writing an epoch, with what a writer owes by the protocol of collection.h: what lies in packs that
 * are condemned or gone is stored again, the record takes the tombstone's place, and all is looked after once more. So a collection beside
 * it takes nothing away, whenever it began; and where something is gone already, the tombstone stays, or comes back.
 *
 * Only the holder of the lease does it, as a tombstone is put without a condition. Killed anywhere, the epoch is either dropped still or there
 * again; a second call does what is left.
 */
struct undrop {
	struct remote *remote;
	struct store *store;
	uint64_t newest; /* the highest number in use: index objects that come of it get this one */
	/* Asked right before the record is put: whether the lease is ours. */
	int (*confirm)(void *arg);
	/* As in upload_epoch.h. */
	int (*local)(void *arg, const struct hash *recipe, uint64_t size);
	void *arg;
};

/*
 * Appends the record's text as it is in the remote then. 0, also where the epoch is there already; -ENOENT: there never was such an epoch; -ENODATA: it cannot
 * be brought back, because it was dropped before it was in the remote, or by a version that kept no record, or because what it needs is gone;
 * -EBADMSG: its tombstone is damaged; what `confirm` gave; or the remote's. Blocks; no locks.
 */
int undrop_run(const struct undrop *u, uint64_t number, struct buf *ret_json);

/* ---- of an open volume ---- */

/*
 * Brings a dropped epoch back under its number, with this tag, which keeps a policy from dropping it once more: in the remote, by the uploader's thread, and
 * then here. 0, also where it is there already; -ENOENT: there never was such an epoch; -ENODATA: its content is gone, here and in the remote (undrop_refusal of catalog.h says
 * why); -EEXIST: the tag is another's; -EINVAL: it cannot be a tag; -EOPNOTSUPP: the volume has no remote; -EROFS; -EINTR: it may be done
 * nevertheless; -ESTALE: another has taken the lease.
 */
int epochs_undrop(struct volume *vol, uint64_t number, const char *tag, interrupted_fn interrupted,
		  void *arg);

#endif
