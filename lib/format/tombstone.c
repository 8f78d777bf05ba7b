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

static int put_rest(json_t *object, uint64_t continues, const char *record)
{
	if (continues &&
	    json_object_set_new(object, "continues", json_integer((json_int_t)continues)))
		return -ENOMEM;
	return record && json_object_set_new(object, "record", json_string(record)) ? -ENOMEM : 0;
}

int tombstone_encode(uint64_t number, int64_t dropped_ns, uint64_t continues, const char *record,
		     struct buf *out)
{
	cleanup_json json_t *object = NULL;
	char when[FORMAT_MAX];
	int error;

	if (number < 1 || number > INT64_MAX || dropped_ns < 0 || continues > INT64_MAX)
		return -EINVAL;
	format_time(dropped_ns, when);
	object = json_pack("{s:i, s:I, s:s}", "format", TOMBSTONE_FORMAT, "epoch",
			   (json_int_t)number, "dropped", when);
	error = object ? put_rest(object, continues, record) : -ENOMEM;
	return error ? error : json_wire_print(object, TOMBSTONE_MAX, out);
}

/* Of tombstones from before there was "continues", the record tells. */
static int get_continues(const json_t *object, const char *record, uint64_t *ret_continues)
{
	cleanup_record struct epoch_record r = {0};
	const json_t *value = json_object_get(object, "continues");

	*ret_continues = 0;
	if (value)
		return json_wire_u64(value, ret_continues) < 0 ? -EBADMSG : 0;
	if (record && record_decode(record, strlen(record), &r) == 0)
		*ret_continues = r.continues;
	return 0;
}

int tombstone_decode(const void *data, size_t len, uint64_t *ret_number)
{
	uint64_t continues;

	return tombstone_decode_record(data, len, ret_number, &continues, NULL);
}

int tombstone_decode_record(const void *data, size_t len, uint64_t *ret_number,
			    uint64_t *ret_continues, char **ret_record)
{
	const char *record;
	cleanup_json json_t *object = NULL;
	uint64_t number, continues;
	int64_t dropped_ns;
	int error = json_wire_parse(data, len, TOMBSTONE_MAX, TOMBSTONE_FORMAT, &object);

	if (error)
		return error;
	if (json_wire_u64(json_object_get(object, "epoch"), &number) < 0 || !number ||
	    json_wire_time(json_object_get(object, "dropped"), &dropped_ns) < 0)
		return -EBADMSG;
	record = json_string_value(json_object_get(object, "record"));
	error = get_continues(object, record, &continues);
	if (error)
		return error;
	if (ret_record) {
		*ret_record = record ? strdup(record) : NULL;
		if (record && !*ret_record)
			return -ENOMEM;
	}
	*ret_number = number;
	*ret_continues = continues;
	return 0;
}
