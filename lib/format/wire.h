/* SPDX-License-Identifier: Apache-2.0 */
/* What the formats share. Binary ones: magic and version, shortest varints, texts, hashes. JSON: parsing within bounds,
 * members of checked types, clean text. */
#ifndef EPOCHFS_FORMAT_WIRE_H
#define EPOCHFS_FORMAT_WIRE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/hash.h"

/*
 * For lib/format only. The readers below set r->failed (lib/util/buf.h) where the bytes are
 * malformed, and are stricter than reader_varint: one value has one encoding.
 */

/* Three letters and the version: 0; -EBADMSG for other letters, -EPROTONOSUPPORT for a newer
 * version. */
int wire_magic(struct reader *r, const char magic[4], uint8_t version);
void wire_put_magic(struct buf *out, const char magic[4], uint8_t version);

/* A varint in its shortest form, at most `max`. */
uint64_t wire_varint(struct reader *r, uint64_t max);
/* A varint length of at most `max`, and that many bytes. NULL where it failed. */
const uint8_t *wire_bytes(struct reader *r, size_t max, size_t *ret_len);
/* A length of at most `max`, bytes without a NUL, and a NUL. NULL where it failed. */
const char *wire_text(struct reader *r, size_t max, size_t *ret_len);
void wire_put_text(struct buf *out, const char *text, size_t len);
void wire_hash(struct reader *r, struct hash *ret_hash);

/* Appends the CRC-32C of what `out` holds from `start` on. */
void wire_put_crc(struct buf *out, size_t start);
/* Takes the CRC off the end of the data and compares it: 0 and the length before it, or -EBADMSG. */
int wire_check_crc(const void *data, size_t len, size_t *ret_len);

/* ---- JSON ---- */

static inline void cleanup_json_fn(json_t **j)
{
	json_decref(*j);
}
#define cleanup_json CLEANUP(cleanup_json_fn)

/* One JSON object of at most `max` bytes, no key twice, whose "format" is at most `format`: 0,
 * -EBADMSG, -EPROTONOSUPPORT, -ENOMEM. */
int json_wire_parse(const void *data, size_t len, size_t max, int format, json_t **ret_object);
/* Appends the indented text and a newline: 0, -ENOMEM, or -EFBIG where that is above `max`. */
int json_wire_print(const json_t *object, size_t max, struct buf *out);

/* An integer from 0 to INT64_MAX: 0 or -EBADMSG. */
int json_wire_u64(const json_t *value, uint64_t *ret_value);
/* An integer from `min` to `max`: 0 or -EBADMSG. */
int json_wire_u32(const json_t *value, uint32_t min, uint32_t max, uint32_t *ret_value);
/* A string that is a time (parse_time) from 1970 on: 0 or -EBADMSG. */
int json_wire_time(const json_t *value, int64_t *ret_ns);
/* A UUID in lower case: 0 or -EBADMSG. */
int json_wire_uuid(const json_t *value, char ret_uuid[37]);

/* A string of the text: bytes that are not UTF-8 become U+FFFD, and what is above `max` bytes is
 * cut. NULL where there is no memory. */
json_t *json_wire_text(const char *text, size_t max);

#endif
