/* SPDX-License-Identifier: Apache-2.0 */
/* The member of a record that says which part of which node it is. */
#include "lib/format/record_part.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/json_wire.h"
#include "lib/format/names.h"

static int add_number(json_t *object, const char *key, uint64_t value)
{
	return json_object_set_new(object, key, json_integer((json_int_t)value)) ? -ENOMEM : 0;
}

int record_part_json(const struct record_part *p, json_t **ret_value)
{
	cleanup_json json_t *object = NULL;
	int error = 0;

	if (!p->node || !node_name_valid(p->node) || !p->sequence || p->sequence > INT64_MAX ||
	    p->base > INT64_MAX || p->after > INT64_MAX || p->count > INT64_MAX)
		return -EINVAL;
	object = json_pack("{s:s, s:I}", "node", p->node, "sequence", (json_int_t)p->sequence);
	if (!object)
		return -ENOMEM;
	if (p->base)
		error = add_number(object, "base", p->base);
	if (!error && p->has_after)
		error = add_number(object, "after", p->after);
	if (!error && p->count)
		error = add_number(object, "count", p->count);
	if (!error)
		*ret_value = steal_ptr(object);
	return error;
}

/* One that may be missing, and is 0 then. */
static int get_number(const json_t *object, const char *key, uint64_t *ret_value)
{
	const json_t *value = json_object_get(object, key);

	return value ? json_wire_u64(value, ret_value) : 0;
}

int record_part_from(const json_t *value, struct record_part *p)
{
	const json_t *node = json_object_get(value, "node");

	if (get_number(value, "sequence", &p->sequence) < 0 || !p->sequence ||
	    get_number(value, "base", &p->base) < 0 || get_number(value, "after", &p->after) < 0 ||
	    get_number(value, "count", &p->count) < 0 || !json_is_string(node) ||
	    !node_name_valid(json_string_value(node)) ||
	    strlen(json_string_value(node)) != json_string_length(node))
		return -EBADMSG;
	p->has_after = json_object_get(value, "after") != NULL;
	p->node = strdup(json_string_value(node));
	return p->node ? 0 : -ENOMEM;
}

int record_parts_json(const struct record_part *parts, size_t count, json_t **ret_value)
{
	cleanup_json json_t *list = json_array();

	if (count > RECORD_LIST_MAX)
		return -EINVAL;
	for (size_t i = 0; i < count; i++) {
		json_t *part = NULL;
		int error = record_part_json(&parts[i], &part);

		if (error)
			return error;
		if (json_array_append_new(list, part) < 0)
			return -ENOMEM;
	}
	*ret_value = steal_ptr(list);
	return 0;
}

int record_parts_from(const json_t *value, struct record_part **ret_parts, size_t *ret_count)
{
	size_t count = json_array_size(value);
	int error = 0;

	if (!json_is_array(value) || count > RECORD_LIST_MAX)
		return -EBADMSG;
	if (!count)
		return 0;
	*ret_parts = calloc(count, sizeof(**ret_parts));
	if (!*ret_parts)
		return -ENOMEM;
	*ret_count = count;
	for (size_t i = 0; i < count && !error; i++)
		error = record_part_from(json_array_get(value, i), &(*ret_parts)[i]);
	return error;
}
