/* SPDX-License-Identifier: Apache-2.0 */
/* Tombstones of dropped epochs. */
#include "lib/format/tombstone.h"

#include <errno.h>

#include "lib/format/json_wire.h"
#include "lib/util/parse.h"

#define TOMBSTONE_FORMAT 1
#define TOMBSTONE_MAX	 4096

int tombstone_encode(uint64_t number, int64_t dropped_ns, struct buf *out)
{
	cleanup_json json_t *object = NULL;
	char when[FORMAT_MAX];

	if (number < 1 || number > INT64_MAX || dropped_ns < 0)
		return -EINVAL;
	format_time(dropped_ns, when);
	object = json_pack("{s:i, s:I, s:s}", "format", TOMBSTONE_FORMAT, "epoch",
			   (json_int_t)number, "dropped", when);
	return object ? json_wire_print(object, TOMBSTONE_MAX, out) : -ENOMEM;
}

int tombstone_decode(const void *data, size_t len, uint64_t *ret_number)
{
	cleanup_json json_t *object = NULL;
	uint64_t number;
	int64_t dropped_ns;
	int error = json_wire_parse(data, len, TOMBSTONE_MAX, TOMBSTONE_FORMAT, &object);

	if (error)
		return error;
	if (json_wire_u64(json_object_get(object, "epoch"), &number) < 0 || !number ||
	    json_wire_time(json_object_get(object, "dropped"), &dropped_ns) < 0)
		return -EBADMSG;
	*ret_number = number;
	return 0;
}
