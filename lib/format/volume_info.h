/* SPDX-License-Identifier: Apache-2.0 */
/* The volume's own object, epochfs.json. */
#ifndef EPOCHFS_FORMAT_VOLUME_INFO_H
#define EPOCHFS_FORMAT_VOLUME_INFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/*
 * One JSON object, written once when the volume is made:
 *
 *   "format"   1: the version of every format of this volume
 *   "uuid"     36 characters, lower case
 *   "hash"     "sha256"; "hmac-sha256" of an encrypted volume
 *   "chunker"  { "algorithm": "gear64", "min", "average", "max" }: bytes, multiples of 8, rising,
 *              at most CHUNK_PLAIN_MAX; all writers cut alike, else nothing would be found twice
 *   "created"  RFC 3339
 *
 * and of an encrypted volume
 *
 *   "encryption" { "cipher": "aes-256-gcm", "segment": 32768, "check" }: how objects are encrypted, and the HMAC that
 *              shows that who wrote this had the master key (64 hex digits; remote/encrypt.h): of the text of this object without
 *              "check" and without keys that are not listed here
 *
 * Unknown keys are ignored.
 */
#define VOLUME_FORMAT		1
#define VOLUME_SEGMENT		32768 /* plain bytes that are encrypted together */
#define VOLUME_INFO_ENCODED_MAX (64u << 10)

struct volume_info {
	char uuid[37];
	uint32_t chunk_min;
	uint32_t chunk_avg;
	uint32_t chunk_max;
	int64_t created_ns;
	bool encrypted;
	struct hash check; /* of an encrypted volume */
};

/* A new volume: random UUID, the default chunker (64 KiB, 256 KiB, 1 MiB), created now. 0 or
 * -errno of the random source. */
int volume_info_make(struct volume_info *ret_info);
/* Appends the JSON text to `out`: 0, -EINVAL, -ENOMEM. */
int volume_info_encode(const struct volume_info *v, struct buf *out);
/* The same without the check: what the check is made of. */
int volume_info_unchecked(const struct volume_info *v, struct buf *out);
/* 0; -EBADMSG: this is not a volume; -EPROTONOSUPPORT: a newer format, or a hash or chunker that
 * this program does not know; -ENOMEM. */
int volume_info_decode(const void *data, size_t len, struct volume_info *ret_info);

#endif
