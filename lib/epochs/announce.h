/* SPDX-License-Identifier: Apache-2.0 */
/* Telling others of epochs: a program, and a table in an SQLite database. For lib/ alone. */
#ifndef EPOCHFS_EPOCHS_ANNOUNCE_H
#define EPOCHFS_EPOCHS_ANNOUNCE_H

#include <jansson.h>
#include "lib/meta/opening.h"
#include "lib/cache/context.h"

/*
 * An epoch is announced once it is sealed and once more when it is durable, to each sink that the
 * options name: a program and a database (announce_internal.h), which also learns of
 * drops. What is announced is a JSON object, made when it happens: the epoch as `show --json` has it
 * (listing.h), and
 *   "event"       "sealed", "durable" or (database only) "dropped" or "undropped"
 *   "mountpoint"  absent for a volume without one
 *   "remote"      the printable name, without secrets
 *   "tree_hash"   once it is durable
 * One that is dropped has "event", "epoch", "volume" and "dropped" (the time) alone, one that is brought back "undropped".
 *
 * It waits in a queue in the state, one for each sink, that is written in the transaction that makes
 * the event true: no crash parts the two. Each sink has a thread, which tells one after the other and
 * takes it from the queue once the sink has it; where that fails, the same one is tried again after
 * 1 s, 2 s, ... 60 s, for ever and across mounts. So all come, in order, at least once: what was told
 * when a crash came is told again. Nobody waits for a sink but the end of the mount, a little
 * (announcer_drain).
 *
 * A database that this volume did not have at its last mount first gets every epoch that is there. A
 * mount without a program leaves what waits for one to the next mount with one.
 */
enum announce_event {
	ANNOUNCE_SEALED,
	ANNOUNCE_DURABLE,
	ANNOUNCE_DROPPED,
	ANNOUNCE_UNDROPPED,
};

/* Queues it; nothing where no sink wants it. `row` with its record, but for a drop. In the caller's
 * transaction, with the lock. Also before announcer_start. */
int announce_locked(struct volume *vol, enum announce_event event, const struct state_epoch *row);

/* Before anything seals or uploads. A wrong program or path fails with a line for the user. A
 * read-only volume announces nothing. */
int announcer_start(struct volume *vol, struct opening_message *m);
/* What is being told is cut off, and told again at the next mount. */
void announcer_stop(struct volume *vol);
/* Waits until all that waits is told: at most 10 s, and for no sink that has just failed. */
void announcer_drain(struct volume *vol, interrupted_fn interrupted, void *arg);
/* Adds "announce" where there is a sink: what waits, what failed, since when. */
int announcer_status(struct volume *vol, json_t *status);

#endif
