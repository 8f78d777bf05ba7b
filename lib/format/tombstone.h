/* SPDX-License-Identifier: Apache-2.0 */
/* The tombstone: what stays under an epoch's key when the epoch is dropped. */
#ifndef EPOCHFS_FORMAT_TOMBSTONE_H
#define EPOCHFS_FORMAT_TOMBSTONE_H

#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"

/*
 * A JSON object under the key of the epoch's record (names.h):
 *
 *   { "format": 1, "epoch": N, "dropped": TIME }
 *
 * It keeps the number taken, on every machine, so that create-if-absent refuses it for ever.
 * record_decode refuses a tombstone (-EBADMSG), and tombstone_decode a record.
 */

/* Appends the text: 0, -EINVAL or -ENOMEM. `dropped_ns`: wall clock. */
int tombstone_encode(uint64_t number, int64_t dropped_ns, struct buf *out);
/* 0; -EBADMSG where these bytes are no tombstone, -EPROTONOSUPPORT for a newer format. */
int tombstone_decode(const void *data, size_t len, uint64_t *ret_number);

#endif
