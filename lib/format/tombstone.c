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

static int put_number(json_t *object, const char *key, uint64_t number)
{
	return number && json_object_set_new(object, key, json_integer((json_int_t)number))
		       ? -ENOMEM
		       : 0;
}

static int put_rest(json_t *object, const struct tombstone *t, const char *record)
{
	if (put_number(object, "continues", t->continues) < 0 ||
	    put_number(object, "continues_from", t->continues_from) < 0)
		return -ENOMEM;
	return record && json_object_set_new(object, "record", json_string(record)) ? -ENOMEM : 0;
}

int tombstone_encode(const struct tombstone *t, const char *record, struct buf *out)
{
	cleanup_json json_t *object = NULL;
	char when[FORMAT_MAX];
	int error;

	if (t->number < 1 || t->number > INT64_MAX || t->dropped_ns < 0 ||
	    t->continues > INT64_MAX || t->continues_from > INT64_MAX)
		return -EINVAL;
	format_time(t->dropped_ns, when);
	object = json_pack("{s:i, s:I, s:s}", "format", TOMBSTONE_FORMAT, "epoch",
			   (json_int_t)t->number, "dropped", when);
	error = object ? put_rest(object, t, record) : -ENOMEM;
	return error ? error : json_wire_print(object, TOMBSTONE_MAX, out);
}

static int get_number(const json_t *object, const char *key, uint64_t *ret_number)
{
	const json_t *value = json_object_get(object, key);

	return value && json_wire_u64(value, ret_number) < 0 ? -EBADMSG : 0;
}

/* Of tombstones from before there was "continues", or "continues_from", the record tells. */
static int get_continues(const json_t *object, const char *record, struct tombstone *t)
{
	cleanup_record struct epoch_record r = {0};

	if (get_number(object, "continues", &t->continues) < 0 ||
	    get_number(object, "continues_from", &t->continues_from) < 0)
		return -EBADMSG;
	if (t->continues_from || !record || record_decode(record, strlen(record), &r) != 0)
		return 0;
	if (!t->continues)
		t->continues = r.continues;
	if (t->continues == r.continues)
		t->continues_from = r.continues_from;
	return 0;
}

int tombstone_decode(const void *data, size_t len, struct tombstone *ret_tombstone)
{
	return tombstone_decode_record(data, len, ret_tombstone, NULL);
}

int tombstone_decode_record(const void *data, size_t len, struct tombstone *ret_tombstone,
			    char **ret_record)
{
	const char *record;
	cleanup_json json_t *object = NULL;
	struct tombstone t = {0};
	int error = json_wire_parse(data, len, TOMBSTONE_MAX, TOMBSTONE_FORMAT, &object);

	if (error)
		return error;
	if (json_wire_u64(json_object_get(object, "epoch"), &t.number) < 0 || !t.number ||
	    json_wire_time(json_object_get(object, "dropped"), &t.dropped_ns) < 0)
		return -EBADMSG;
	record = json_string_value(json_object_get(object, "record"));
	error = get_continues(object, record, &t);
	if (error)
		return error;
	if (ret_record) {
		*ret_record = record ? strdup(record) : NULL;
		if (record && !*ret_record)
			return -ENOMEM;
	}
	*ret_tombstone = t;
	return 0;
}
