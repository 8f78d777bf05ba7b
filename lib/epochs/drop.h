/* SPDX-License-Identifier: Apache-2.0 */
/* Dropping epochs of an open volume: what epochs_drop (epochs.h) does, in parts. For lib/ alone. */
#ifndef EPOCHFS_EPOCHS_DROP_H
#define EPOCHFS_EPOCHS_DROP_H

#include "lib/cache/context.h"

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
