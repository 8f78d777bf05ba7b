/* SPDX-License-Identifier: Apache-2.0 */
/* What the JSON formats share: parsing within bounds, members of checked types, clean text. */
#ifndef EPOCHFS_FORMAT_JSON_WIRE_H
#define EPOCHFS_FORMAT_JSON_WIRE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

/* For lib/format only. */
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
