/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which epochs go, and dropping them.
 *
 * The option keep: a thread that drops the epochs which the policy (retention_policy.h) lets go, once at the beginning and
 * whenever an epoch has become durable (without a remote: was sealed). For lib/ alone.
 *
 * Of several nodes (nodes.h), the one that has completed an epoch does it, for all: after that, and never before. Their tags are read
 * from the remote first, and what one of their live trees began from stays.
 *
 * Each is dropped as epochs_drop does it, so whatever a kill cuts off, the next mount goes on with. A volume that
 * is read-only, or has lost its lease to another writer, drops nothing.
 */
#ifndef EPOCHFS_EPOCHS_RETENTION_H
#define EPOCHFS_EPOCHS_RETENTION_H

#include <jansson.h>
#include "lib/cache/context.h"
#include "lib/meta/opening.h"

/* Before the uploader and the sealer run. A wrong policy is -EINVAL with a line for the user. Makes nothing without the
 * option. */
int retention_start(struct volume *vol, struct opening_message *m);
/* The thread begins. After everything else has been started. */
int retention_run(struct volume *vol);
/* Ends the thread; before the uploader ends. What others kick after that is nobody's. */
void retention_stop(struct volume *vol);
/* After everybody who kicks has ended. */
void retention_free(struct volume *vol);
/* An epoch of one writer has become durable. Any thread, lock held or not. */
void retention_kick(struct volume *vol);
/* This one of several nodes has put an epoch together. Likewise. */
void retention_completed(struct volume *vol);
/* Adds "retention": the policy, what was dropped, and whether it is at work; nothing without the option. */
int retention_status(struct volume *vol, json_t *status);

/* The first epoch that a later one may continue yet by the time (`recent`, retention_policy.h); 0: none. Whatever the policy. */
uint64_t retention_recent_from_locked(struct volume *vol);

/* ---- dropping epochs of an open volume: what epochs_drop (epochs.h) does, in parts (drop.c) ---- */

/*
 * Here and at once, in one transaction with its announcement: the row becomes a tombstone, .epochs no longer has the
 * name, the local tree goes. The remote learns of it from the uploader (upload.h). Content that is
 * open stays readable: what is local stays while it is open, the rest comes from packs, which only the
 * garbage collection removes.
 * 0, -ENOENT, -EROFS, or -EBUSY: it is tagged, current or the newest complete one.
 */
int drop_epoch(struct volume *vol, uint64_t number);
/* Why that was -EBUSY, in one line; appends. */
void drop_refusal(struct volume *vol, uint64_t number, struct buf *out);
/* After any number of them: frees their content here, and lets the uploader know. */
void drop_finish(struct volume *vol);

#endif
