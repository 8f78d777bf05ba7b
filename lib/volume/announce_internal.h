/* SPDX-License-Identifier: Apache-2.0 */
/* What announce*.c share. Private to them. */
#ifndef EPOCHFS_VOLUME_ANNOUNCE_INTERNAL_H
#define EPOCHFS_VOLUME_ANNOUNCE_INTERNAL_H

#include "lib/volume/announce.h"

/* The numbers are those of the queues in the state. */
enum {
	SINK_PROGRAM,
	SINK_DB,
	SINK_COUNT,
};

/* The JSON text (announce.h); free it. */
int announce_text(const struct volume *vol, enum announce_event event,
		  const struct state_epoch *row, char **ret_text);
/* There is something new in a queue. */
void announcer_kick_locked(struct volume *vol);

#endif
