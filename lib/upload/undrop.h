/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a dropped epoch back in the remote, under its number. Of a mount: epochs_undrop; without one: catalog_undrop. */
#ifndef EPOCHFS_UPLOAD_UNDROP_H
#define EPOCHFS_UPLOAD_UNDROP_H

#include "lib/format/record.h"
#include "lib/store/store.h"
#include "lib/util/buf.h"
#include "lib/util/clock.h"

struct volume;

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
