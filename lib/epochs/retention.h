/* SPDX-License-Identifier: Apache-2.0 */
/*
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
#include "lib/meta/opening.h"
#include "lib/cache/context.h"

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

#endif
