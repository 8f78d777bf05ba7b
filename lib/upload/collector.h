/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Garbage collection by a mount: with the option keep (and without gc=off) a thread collects what dropped epochs leave in the remote, so
 * that space comes back by itself. For lib/ alone.
 *
 * It is the collection of collection.h, in the background: a while after the volume was opened, after a drop has reached the remote, and when the grace of what is
 * condemned is over. Drops that follow one another share one; between two of them is a 24th of the grace, at most an hour, and four times
 * what the last one took. It works for a quarter of the time at the lowest priority, with few
 * connections, and asks before each change whether the lease is ours. What fails is tried again; what a kill cuts off, the next one goes on with.
 * Of several nodes, each that drops collects: who finds another at work leaves it the field.
 */
#ifndef EPOCHFS_UPLOAD_COLLECTOR_H
#define EPOCHFS_UPLOAD_COLLECTOR_H

#include <jansson.h>
#include "lib/meta/opening.h"
#include "lib/cache/context.h"

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

#endif
