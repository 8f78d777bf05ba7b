/* SPDX-License-Identifier: Apache-2.0 */
/* The evictor: keeps cache_size and min_free by removing local copies of durable content, least
 * recently used first. Private to lib/volume. */
#ifndef EPOCHFS_VOLUME_EVICT_H
#define EPOCHFS_VOLUME_EVICT_H

#include <jansson.h>
#include "lib/volume/internal.h"

/*
 * Content that is only here, staged or closed but not durable, is never touched, nor what somebody
 * has open. A thread looks every few seconds and when it is kicked, so that writers by passthrough,
 * whom the daemon does not see, find room ahead of them. Who writes waits for room
 * (volume_reserve); who reads what the remote has does not: what he has open may take more than the
 * limits where nothing else can go, and goes when he closes.
 */
int evictor_start(struct volume *vol);
void evictor_stop(struct volume *vol);
/* Content came in or became durable. Any thread, lock held or not. */
void evictor_kick(struct volume *vol);
/* Evicts what it takes for `bytes` more, and gives by how many bytes the limits are still passed.
 * Without locks. */
uint64_t evictor_make_room(struct volume *vol, uint64_t bytes);
/* Whether a writer whom the daemon does not see may begin: some times the room that the evictor keeps
 * ahead is there, or is now made. Without locks. */
bool evictor_keeps_ahead(struct volume *vol);
/* "cache": {"bytes","dirty_bytes","free_bytes"[,"limit_bytes"]} for status. */
int evictor_status(struct volume *vol, json_t *status);

#endif
