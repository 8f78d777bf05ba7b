/* SPDX-License-Identifier: Apache-2.0 */
/* What a metadata writer says of a checkpoint. */
#include "lib/meta/record_metadata.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/cleanup.h"

static const struct text_field {
	const char *key;
	size_t at; /* of a char * in the record */
} texts[] = {
	{"db_type", offsetof(struct epoch_record, db_type)},
	{"db_prefix", offsetof(struct epoch_record, db_prefix)},
	{"path_type", offsetof(struct epoch_record, path_type)},
	{"path_prefix", offsetof(struct epoch_record, path_prefix)},
};
#define TEXT_COUNT (sizeof(texts) / sizeof(texts[0]))
#define NAMES	   "node_names"

static void decref(json_t **j)
{
	json_decref(*j);
}

static char **field(struct epoch_record *r, const struct text_field *f)
{
	return (char **)((char *)r + f->at);
}

static bool is_text(const char *key)
{
	for (size_t i = 0; i < TEXT_COUNT; i++)
		if (!strcmp(key, texts[i].key))
			return true;
	return false;
}

static bool fits(const json_t *value)
{
	return json_is_string(value) && json_string_length(value) > 0 &&
	       json_string_length(value) <= RECORD_TEXT_MAX;
}

static bool names_fit(const json_t *names)
{
	json_t *name;
	size_t i;

	if (!json_is_array(names) || json_array_size(names) > METADATA_NAMES_MAX)
		return false;
	json_array_foreach(names, i, name)
	{
		if (!fits(name))
			return false;
	}
	return true;
}

bool metadata_valid(const json_t *object)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return false;
	json_object_foreach((json_t *)(uintptr_t)object, key, value)
	{
		if (!strcmp(key, NAMES) ? !names_fit(value) : !is_text(key) || !fits(value))
			return false;
	}
	return true;
}

/* ---- into a record ---- */

static int replace_text(char **field, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

static void free_names(char **names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(names[i]);
	free(names);
}

static int replace_names(struct epoch_record *r, size_t count,
			 const char *(*get)(const void *, size_t), const void *from)
{
	char **names = calloc(count + 1, sizeof(*names));

	if (!names)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		names[i] = strdup(get(from, i));
		if (!names[i]) {
			free_names(names, count);
			return -ENOMEM;
		}
	}
	free_names(r->node_names, r->node_count);
	r->node_names = names;
	r->node_count = count;
	return 0;
}

static const char *name_in_array(const void *from, size_t i)
{
	return json_string_value(json_array_get(from, i));
}

static const char *name_in_record(const void *from, size_t i)
{
	return ((const struct epoch_record *)from)->node_names[i];
}

int metadata_set(struct epoch_record *r, const char *text)
{
	CLEANUP(decref) json_t *object = text ? json_loads(text, 0, NULL) : NULL;
	const json_t *names;
	int error = 0;

	if (!text)
		return 0;
	if (!object)
		return -ENOMEM;
	if (!metadata_valid(object))
		return -EINVAL;
	for (size_t i = 0; !error && i < TEXT_COUNT; i++) {
		const char *value = json_string_value(json_object_get(object, texts[i].key));

		if (value)
			error = replace_text(field(r, &texts[i]), value);
	}
	names = json_object_get(object, NAMES);
	if (!error && names)
		error = replace_names(r, json_array_size(names), name_in_array, names);
	return error;
}

static bool names_equal(const struct epoch_record *r, const json_t *names)
{
	if (json_array_size(names) != r->node_count)
		return false;
	for (size_t i = 0; i < r->node_count; i++)
		if (strcmp(name_in_array(names, i), r->node_names[i]) != 0)
			return false;
	return true;
}

bool metadata_said(const struct epoch_record *r, const char *text)
{
	CLEANUP(decref) json_t *object = text ? json_loads(text, 0, NULL) : NULL;
	const json_t *names = json_object_get(object, NAMES);

	if (!metadata_valid(object))
		return !text;
	for (size_t i = 0; i < TEXT_COUNT; i++) {
		const char *value = json_string_value(json_object_get(object, texts[i].key));
		const char *said = *field((struct epoch_record *)(uintptr_t)r, &texts[i]);

		if (value && (!said || strcmp(said, value) != 0))
			return false;
	}
	return !names || names_equal(r, names);
}

int metadata_take(struct epoch_record *r, const struct epoch_record *part)
{
	int error = 0;

	for (size_t i = 0; !error && i < TEXT_COUNT; i++) {
		const char *value = *field((struct epoch_record *)(uintptr_t)part, &texts[i]);

		if (value && !*field(r, &texts[i]))
			error = replace_text(field(r, &texts[i]), value);
	}
	if (!error && part->node_count)
		error = replace_names(r, part->node_count, name_in_record, part);
	return error;
}
