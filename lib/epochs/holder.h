/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The right of an open volume to write to its remote: takes the lease (lease.h) at volume_open, renews
 * it in a thread of its own, and gives it back at volume_close. For lib/ alone.
 *
 * A read-only volume and one without a remote take none: then holder_confirm says yes.
 */
#ifndef EPOCHFS_EPOCHS_HOLDER_H
#define EPOCHFS_EPOCHS_HOLDER_H

#include <jansson.h>
#include "lib/meta/opening.h"
#include "lib/cache/context.h"

/* After the state is open, before anything of the remote is believed. Waits as lease_take does. 0 or
 * -errno, with a line for the user: -EBUSY where another writer is there. */
int holder_start(struct volume *vol, struct opening_message *m);
/* Ends the thread and releases the lease, or, where the remote is away or has not answered after 8 s,
 * leaves it to lapse. After the uploader. */
void holder_stop(struct volume *vol);

/*
 * Before something is written that others see: whether we are the holder still. Asks the remote unless
 * that was done less than `max_age_ns` ago. 0; -ESTALE: another has taken it, and it stays so; or the
 * remote's. Any thread, without locks.
 */
int holder_confirm(struct volume *vol, struct remote *remote, int64_t max_age_ns);
/* Whether it is known to be lost. Any thread, any lock. */
bool holder_lost(struct volume *vol);
/* Whether others count it as held: taken, not lost, and renewed within its time. False where there is none. Any thread, any lock. */
bool holder_holds(struct volume *vol);
/* The generation that is held; it rises where the node set goes on in another (nodes.h). Any thread, any
 * lock. 0: there is none. */
uint64_t holder_generation(struct volume *vol);
/* One line: who has it now, and what to do; appends. */
void holder_lost_text(struct volume *vol, struct buf *out);

/* "lease" for `status`: of the holder; adds nothing where there is none. */
int holder_status(struct volume *vol, json_t *status);

#endif
