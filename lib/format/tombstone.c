/* SPDX-License-Identifier: Apache-2.0 */
/* Tombstones of dropped epochs. */
#include "lib/format/tombstone.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>

#include "lib/util/parse.h"

#define TOMBSTONE_MAX 4096

int tombstone_encode(uint64_t number, int64_t dropped_ns, struct buf *out)
{
	char when[FORMAT_MAX];

	format_time(dropped_ns, when);
	buf_printf(out, "{\n  \"format\": 1,\n  \"epoch\": %llu,\n  \"dropped\": \"%s\"\n}\n",
		   (unsigned long long)number, when);
	return buf_error(out);
}

int tombstone_decode(const void *data, size_t len, uint64_t *ret_number)
{
	json_t *object =
		len > TOMBSTONE_MAX ? NULL : json_loadb(data, len, JSON_REJECT_DUPLICATES, NULL);
	json_int_t number = json_integer_value(json_object_get(object, "epoch"));
	bool good = json_is_string(json_object_get(object, "dropped")) && number > 0;

	json_decref(object);
	if (!good)
		return -EBADMSG;
	*ret_number = (uint64_t)number;
	return 0;
}
