/* SPDX-License-Identifier: Apache-2.0 */
/* A limit in bytes a second that any number of transfers of a remote share. Private to lib/remote and lib/net. */
#ifndef EPOCHFS_REMOTE_RATE_H
#define EPOCHFS_REMOTE_RATE_H

#include <stddef.h>
#include <stdint.h>
#include "lib/util/lock.h"

struct remote;

/*
 * A token bucket, kept as the moment at which all bytes taken so far have been paid for. Who takes
 * more than is there goes into debt, and waits before it moves the bytes; so each transfer gets its
 * turn in the order of asking. What was not used is saved up for a tenth of a second, no longer.
 */
struct rate {
	uint64_t rate; /* bytes a second; 0: no limit; never changed */
	struct mutex lock;
	int64_t paid_at_ns; /* monotonic; guarded by `lock` */
};

void rate_init(struct rate *r, uint64_t rate);
void rate_destroy(struct rate *r);
/* Takes `bytes` at the time `now_ns`: how long to wait before they are moved, in ns. */
int64_t rate_take(struct rate *r, size_t bytes, int64_t now_ns);
/* How many of `bytes` to take at once, so that nobody waits much longer than a tenth of a second
 * for one piece. At least 1. */
size_t rate_piece(const struct rate *r, size_t bytes);
/* Waits until `bytes` may be moved, in as many steps as there are pieces: 0, or -ECANCELED once `remote` is cancelled. For who
 * cannot move a part of them. */
int rate_wait(struct rate *r, struct remote *remote, size_t bytes);

#endif
