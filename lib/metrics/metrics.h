/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics of an open volume. */
#ifndef EPOCHFS_METRICS_METRICS_H
#define EPOCHFS_METRICS_METRICS_H

#include "lib/metrics/text.h"
#include "lib/util/buf.h"

struct volume;

/*
 * Appends all metrics; epochfs-integrations(7), WATCHING lists them. Numbers are copied under the volume's lock, for microseconds, and become
 * text without it. No name of a file, no path and nothing of the remote's URL is among them. 0 or -ENOMEM; on failure what `out` holds is of
 * no use. Any thread, no locks.
 */
int metrics_put(struct volume *vol, enum metrics_format format, struct buf *out);

#endif
