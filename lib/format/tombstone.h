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
 *   { "format": 1, "epoch": N, "dropped": TIME, "continues": N, "continues_from": N, "record": TEXT }
 *
 * "continues" and "continues_from", which may be missing, are as in the record that was there: the epochs that this one continued are
 * half of a save all the same. Older tombstones have the second in the record alone.
 * "record", which may be missing, is the text of the record that was there, so that the epoch can be brought back while the garbage
 * collection has not deleted what it names. So a tombstone that has one is longer than the record, and who remembers
 * the sizes of objects sees that the record is gone.
 *
 * It keeps the number taken, on every machine, so that create-if-absent refuses it for ever.
 * record_decode refuses a tombstone (-EBADMSG), and tombstone_decode a record.
 */

struct tombstone {
	uint64_t number;
	int64_t dropped_ns;		    /* wall clock */
	uint64_t continues, continues_from; /* 0: none, as in the record */
};

/* Appends the text: 0, -EINVAL, -ENOMEM, or -EFBIG where the record is too long. `record`: NUL-terminated, or NULL. */
int tombstone_encode(const struct tombstone *t, const char *record, struct buf *out);
/* 0; -EBADMSG where these bytes are no tombstone, -EPROTONOSUPPORT for a newer format. */
int tombstone_decode(const void *data, size_t len, struct tombstone *ret_tombstone);
/* The same, and the record, which is the caller's to decode and to free: NULL where there is none. What the epoch continued is also
 * told where the record alone says that. */
int tombstone_decode_record(const void *data, size_t len, struct tombstone *ret_tombstone,
			    char **ret_record);

#endif
