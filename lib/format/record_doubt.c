/* SPDX-License-Identifier: Apache-2.0 */
/* The member of a record that names files which may not be whole. */
#include "lib/format/record_doubt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/json_wire.h"
#include "lib/util/parse.h"

/* ---- to JSON */

static int set(json_t *object, const char *key, json_t *value)
{
	return json_object_set_new(object, key, value) ? -ENOMEM : 0;
}

static int set_text(json_t *object, const char *key, const char *text)
{
	return text && *text ? set(object, key, json_wire_text(text, RECORD_TEXT_MAX)) : 0;
}

static int set_since(json_t *object, const struct record_doubt *d)
{
	char text[FORMAT_MAX];
	int error = 0;

	if (d->since > INT64_MAX || d->at_ns < 0)
		return -EINVAL;
	if (d->since)
		error = set(object, "since", json_integer((json_int_t)d->since));
	if (error || !d->at_ns)
		return error;
	format_time(d->at_ns, text);
	return set(object, "at", json_string(text));
}

static int set_companions(json_t *object, const struct record_doubt *d)
{
	cleanup_json json_t *list = NULL;

	if (d->companion_count > RECORD_LIST_MAX)
		return -EINVAL;
	if (!d->companion_count)
		return 0;
	list = json_array();
	for (size_t i = 0; i < d->companion_count; i++)
		if (json_array_append_new(list, json_wire_text(d->companions[i], RECORD_TEXT_MAX)) <
		    0)
			return -ENOMEM;
	return set(object, "companions", steal_ptr(list));
}

static int doubt_json(const struct record_doubt *d, json_t **ret_value)
{
	cleanup_json json_t *object = json_object();
	int error = d->path && *d->path ? 0 : -EINVAL;

	if (!error)
		error = set_text(object, "path", d->path);
	if (!error)
		error = set_text(object, "kind", d->kind);
	if (!error)
		error = set_text(object, "why", d->why);
	if (!error)
		error = set_since(object, d);
	if (!error && d->counts)
		error = set(object, "counts", json_true());
	if (!error)
		error = set_companions(object, d);
	if (!error)
		*ret_value = steal_ptr(object);
	return error;
}

int record_doubts_json(const struct record_doubt *doubts, size_t count, json_t **ret_value)
{
	cleanup_json json_t *list = json_array();

	if (count > RECORD_LIST_MAX)
		return -EINVAL;
	for (size_t i = 0; i < count; i++) {
		json_t *value = NULL;
		int error = doubt_json(&doubts[i], &value);

		if (error)
			return error;
		if (json_array_append_new(list, value) < 0)
			return -ENOMEM;
	}
	*ret_value = steal_ptr(list);
	return 0;
}

/* ---- from JSON */

static int get_text(const json_t *value, char **ret_text)
{
	if (!json_is_string(value) || json_string_length(value) > RECORD_TEXT_MAX ||
	    strlen(json_string_value(value)) != json_string_length(value))
		return -EBADMSG;
	*ret_text = strdup(json_string_value(value));
	return *ret_text ? 0 : -ENOMEM;
}

/* One that may be missing. */
static int get_text_of(const json_t *object, const char *key, char **ret_text)
{
	const json_t *value = json_object_get(object, key);

	return value ? get_text(value, ret_text) : 0;
}

static int get_companions(const json_t *list, struct record_doubt *d)
{
	size_t count = json_array_size(list);
	int error = 0;

	if (!list)
		return 0;
	if (!json_is_array(list) || count > RECORD_LIST_MAX)
		return -EBADMSG;
	d->companions = calloc(count + 1, sizeof(*d->companions));
	if (!d->companions)
		return -ENOMEM;
	d->companion_count = count;
	for (size_t i = 0; i < count && !error; i++)
		error = get_text(json_array_get(list, i), &d->companions[i]);
	return error;
}

static int doubt_from(const json_t *value, struct record_doubt *d)
{
	const json_t *since = json_object_get(value, "since"), *at = json_object_get(value, "at");
	const json_t *counts = json_object_get(value, "counts");
	int error = get_text(json_object_get(value, "path"), &d->path);

	if (!error)
		error = get_text_of(value, "kind", &d->kind);
	if (!error)
		error = get_text_of(value, "why", &d->why);
	if (!error && ((since && json_wire_u64(since, &d->since) < 0) ||
		       (at && json_wire_time(at, &d->at_ns) < 0) ||
		       (counts && !json_is_boolean(counts)) || !*d->path))
		error = -EBADMSG;
	d->counts = json_is_true(counts);
	return error ? error : get_companions(json_object_get(value, "companions"), d);
}

int record_doubts_from(const json_t *value, struct record_doubt **ret_doubts, size_t *ret_count)
{
	size_t count = json_array_size(value);
	int error = 0;

	if (!json_is_array(value) || count > RECORD_LIST_MAX)
		return -EBADMSG;
	if (!count)
		return 0;
	*ret_doubts = calloc(count, sizeof(**ret_doubts));
	if (!*ret_doubts)
		return -ENOMEM;
	*ret_count = count;
	for (size_t i = 0; i < count && !error; i++)
		error = doubt_from(json_array_get(value, i), &(*ret_doubts)[i]);
	return error;
}
