/* SPDX-License-Identifier: Apache-2.0 */
/* The member of a record that names files which may not be whole. */
#include "lib/format/record_doubt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/wire.h"
#include "lib/util/hash.h"
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

/* json_string refuses it. */
static bool is_utf8(const char *text)
{
	cleanup_json json_t *value = json_string(text);

	return value != NULL;
}

/* NULL: memory has ended. */
static json_t *bytes_json(const char *text)
{
	size_t len = strlen(text);
	cleanup_free char *hex = malloc(2 * len + 1);

	if (!hex)
		return NULL;
	hex_encode(text, len, hex);
	return json_string(hex);
}

/* What is too long for that is kept as text alone. */
static bool needs_bytes(const char *text)
{
	return !is_utf8(text) && 2 * strlen(text) <= RECORD_TEXT_MAX;
}

/* Of bytes that are not UTF-8 there are U+FFFD, and their hex beside it. */
static size_t text_size(const char *text)
{
	size_t size = 0;

	for (; text && *text; text++) {
		unsigned char c = (unsigned char)*text;

		size += c < ' ' ? 6 : c >= 0x80 ? 5 : c == '"' || c == '\\' ? 2 : 1;
	}
	return size;
}

/* With the indentation, quotes and commas around it. */
size_t record_companion_size(const char *path)
{
	return 16 + text_size(path);
}

size_t record_doubt_size(const struct record_doubt *d)
{
	size_t size = 384 + text_size(d->path) + text_size(d->kind) + text_size(d->why);

	for (size_t i = 0; i < d->companion_count; i++)
		size += record_companion_size(d->companions[i]);
	return size;
}

static int set_path(json_t *object, const struct record_doubt *d)
{
	int error = set_text(object, "path", d->path);

	if (error || !needs_bytes(d->path))
		return error;
	return set(object, "path_bytes", bytes_json(d->path));
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

static int set_list(json_t *object, const char *key, json_t **list)
{
	return json_array_size(*list) ? set(object, key, steal_ptr(*list)) : 0;
}

static int set_companions(json_t *object, const struct record_doubt *d)
{
	cleanup_json json_t *texts = json_array(), *bytes = json_array();
	int error;

	if (d->companion_count > RECORD_LIST_MAX)
		return -EINVAL;
	for (size_t i = 0; i < d->companion_count; i++) {
		const char *path = d->companions[i];
		bool hex = needs_bytes(path);

		if (json_array_append_new(hex ? bytes : texts,
					  hex ? bytes_json(path)
					      : json_wire_text(path, RECORD_TEXT_MAX)) < 0)
			return -ENOMEM;
	}
	error = set_list(object, "companions", &texts);
	return error ? error : set_list(object, "companions_bytes", &bytes);
}

static int doubt_json(const struct record_doubt *d, json_t **ret_value)
{
	cleanup_json json_t *object = json_object();
	int error = d->path && *d->path ? 0 : -EINVAL;

	if (!error)
		error = set_path(object, d);
	if (!error)
		error = set_text(object, "kind", d->kind);
	if (!error)
		error = set_text(object, "why", d->why);
	if (!error)
		error = set_since(object, d);
	if (!error && d->counts)
		error = set(object, "counts", json_true());
	if (!error && d->alone)
		error = set(object, "alone", json_true());
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

/* From hex. */
static int get_bytes(const json_t *value, char **ret_text)
{
	size_t len = json_is_string(value) ? json_string_length(value) / 2 : 0;
	cleanup_free char *text = calloc(len + 1, 1);

	if (!text)
		return -ENOMEM;
	if (!len || json_string_length(value) > RECORD_TEXT_MAX || json_string_length(value) % 2 ||
	    hex_decode(json_string_value(value), len, text) < 0 || strlen(text) != len)
		return -EBADMSG;
	free(*ret_text);
	*ret_text = steal_ptr(text);
	return 0;
}

/* One that may be missing. */
static int get_text_of(const json_t *object, const char *key, char **ret_text)
{
	const json_t *value = json_object_get(object, key);

	return value ? get_text(value, ret_text) : 0;
}

static int get_companions(const json_t *object, struct record_doubt *d)
{
	const json_t *texts = json_object_get(object, "companions");
	const json_t *bytes = json_object_get(object, "companions_bytes");
	size_t count = json_array_size(texts), more = json_array_size(bytes);
	int error = 0;

	if ((texts && !json_is_array(texts)) || (bytes && !json_is_array(bytes)) ||
	    count > RECORD_LIST_MAX || more > RECORD_LIST_MAX - count)
		return -EBADMSG;
	if (!texts && !bytes)
		return 0;
	d->companions = calloc(count + more + 1, sizeof(*d->companions));
	if (!d->companions)
		return -ENOMEM;
	d->companion_count = count + more;
	for (size_t i = 0; i < count && !error; i++)
		error = get_text(json_array_get(texts, i), &d->companions[i]);
	for (size_t i = 0; i < more && !error; i++)
		error = get_bytes(json_array_get(bytes, i), &d->companions[count + i]);
	return error;
}

static int doubt_from(const json_t *value, struct record_doubt *d)
{
	const json_t *since = json_object_get(value, "since"), *at = json_object_get(value, "at");
	const json_t *counts = json_object_get(value, "counts");
	const json_t *alone = json_object_get(value, "alone");
	const json_t *bytes = json_object_get(value, "path_bytes");
	int error = get_text(json_object_get(value, "path"), &d->path);

	if (!error && bytes)
		error = get_bytes(bytes, &d->path);
	if (!error)
		error = get_text_of(value, "kind", &d->kind);
	if (!error)
		error = get_text_of(value, "why", &d->why);
	if (!error &&
	    ((since && json_wire_u64(since, &d->since) < 0) ||
	     (at && json_wire_time(at, &d->at_ns) < 0) || (counts && !json_is_boolean(counts)) ||
	     (alone && !json_is_boolean(alone)) || !*d->path))
		error = -EBADMSG;
	d->counts = json_is_true(counts);
	d->alone = json_is_true(alone);
	return error ? error : get_companions(value, d);
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
