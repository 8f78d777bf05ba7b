/* SPDX-License-Identifier: Apache-2.0 */
/* The record of the epoch that is uploaded. Private to upload_epoch.c. */
#ifndef EPOCHFS_UPLOAD_UPLOAD_RECORD_H
#define EPOCHFS_UPLOAD_UPLOAD_RECORD_H

#include "lib/format/record.h"
#include "lib/cache/context.h"

/*
 * Makes the epoch exist: its record, with the time of now as `durable`, is created in the remote,
 * and `json` is its text. A record of our own that is there already is taken, with its text.
 * -EEXIST: the number is another writer's; else 0 or -errno of the remote.
 */
int upload_record_put(struct remote *remote, struct epoch_record *record, struct buf *json);
/*
 * What this try has stored goes into the epoch's row: a later try finds it stored already, and the
 * record is to say what the epoch has added.
 */
int upload_record_remember(struct volume *vol, const struct epoch_record *record);
/* The epoch is durable, with this text as its record: marked so in its row, announced, and told to who waits. */
int upload_record_durable(struct volume *vol, uint64_t number, const char *json);

#endif
