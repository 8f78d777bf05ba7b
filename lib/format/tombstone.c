/* SPDX-License-Identifier: Apache-2.0 */
/* Tombstones of dropped epochs. */
#include "lib/format/tombstone.h"

#include <errno.h>
#include <string.h>

#include "lib/format/json_wire.h"
#include "lib/format/record.h"
#include "lib/util/parse.h"

#define TOMBSTONE_FORMAT 1
/* Who reads a record reads so much. */
#define TOMBSTONE_MAX RECORD_ENCODED_MAX

int tombstone_encode(uint64_t number, int64_t dropped_ns, const char *record, struct buf *out)
{
	cleanup_json json_t *object = NULL;
	char when[FORMAT_MAX];

	if (number < 1 || number > INT64_MAX || dropped_ns < 0)
		return -EINVAL;
	format_time(dropped_ns, when);
	object = json_pack("{s:i, s:I, s:s}", "format", TOMBSTONE_FORMAT, "epoch",
			   (json_int_t)number, "dropped", when);
	if (object && record && json_object_set_new(object, "record", json_string(record)))
		return -ENOMEM;
	return object ? json_wire_print(object, TOMBSTONE_MAX, out) : -ENOMEM;
}

int tombstone_decode(const void *data, size_t len, uint64_t *ret_number)
{
	return tombstone_decode_record(data, len, ret_number, NULL);
}

int tombstone_decode_record(const void *data, size_t len, uint64_t *ret_number, char **ret_record)
{
	const char *record;
	cleanup_json json_t *object = NULL;
	uint64_t number;
	int64_t dropped_ns;
	int error = json_wire_parse(data, len, TOMBSTONE_MAX, TOMBSTONE_FORMAT, &object);

	if (error)
		return error;
	if (json_wire_u64(json_object_get(object, "epoch"), &number) < 0 || !number ||
	    json_wire_time(json_object_get(object, "dropped"), &dropped_ns) < 0)
		return -EBADMSG;
	record = json_string_value(json_object_get(object, "record"));
	if (ret_record) {
		*ret_record = record ? strdup(record) : NULL;
		if (record && !*ret_record)
			return -ENOMEM;
	}
	*ret_number = number;
	return 0;
}
