/* SPDX-License-Identifier: Apache-2.0 */
/* Records as JSON: one table of members, in the order in which they are written; that of a part of a node, too. */
#include "lib/format/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/chunk.h"
#include "lib/format/names.h"
#include "lib/format/pack.h"
#include "lib/format/record_doubt.h"
#include "lib/format/wire.h"
#include "lib/util/parse.h"

#define RECORD_FORMAT 1

/*
 * A member. `put` gives the value to write in *ret_value, or leaves it NULL where the member is to
 * be left out: 0, -EINVAL or -ENOMEM. `get` takes a value that is there: 0, -EBADMSG or -ENOMEM.
 */
struct member {
	const char *key;
	int (*put)(const struct member *m, const struct epoch_record *r, json_t **ret_value);
	int (*get)(const struct member *m, const json_t *value, struct epoch_record *r);
	size_t offset;
	size_t count_offset; /* of a list */
	bool required;
};

#define FIELD(type, r, m)	((type *)((char *)(r) + (m)->offset))
#define CONST_FIELD(type, r, m) ((type const *)((const char *)(r) + (m)->offset))

static int made(json_t *value, json_t **ret_value)
{
	if (!value)
		return -ENOMEM;
	*ret_value = value;
	return 0;
}

/* ---- numbers */

static int put_count(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	uint64_t value = *CONST_FIELD(uint64_t, r, m);

	return value > INT64_MAX ? -EINVAL : made(json_integer((json_int_t)value), ret_value);
}

/* A number of which 0 means that there is none. */
static int put_number(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	return *CONST_FIELD(uint64_t, r, m) ? put_count(m, r, ret_value) : 0;
}

static int get_number(const struct member *m, const json_t *value, struct epoch_record *r)
{
	return json_wire_u64(value, FIELD(uint64_t, r, m));
}

static int put_step(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	return r->has_step ? put_count(m, r, ret_value) : 0;
}

static int get_step(const struct member *m, const json_t *value, struct epoch_record *r)
{
	r->has_step = true;
	return get_number(m, value, r);
}

static int put_time(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	int64_t ns = *CONST_FIELD(int64_t, r, m);
	char text[FORMAT_MAX];

	if (ns <= 0)
		return ns ? -EINVAL : 0;
	format_time(ns, text);
	return made(json_string(text), ret_value);
}

static int get_time(const struct member *m, const json_t *value, struct epoch_record *r)
{
	return json_wire_time(value, FIELD(int64_t, r, m));
}

/* ---- text */

static int put_text(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	const char *text = *CONST_FIELD(char *, r, m);

	return text && *text ? made(json_wire_text(text, RECORD_TEXT_MAX), ret_value) : 0;
}

static int get_string(const json_t *value, char **ret_text)
{
	char *text;

	if (!json_is_string(value) || json_string_length(value) > RECORD_TEXT_MAX)
		return -EBADMSG;
	text = strdup(json_string_value(value));
	if (!text)
		return -ENOMEM;
	*ret_text = text;
	return 0;
}

static int get_text(const struct member *m, const json_t *value, struct epoch_record *r)
{
	return get_string(value, FIELD(char *, r, m));
}

static int put_volume(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	cleanup_json json_t *text = json_stringn_nocheck(r->volume, strnlen(r->volume, 36));
	char checked[37];

	(void)m;
	if (!text)
		return -ENOMEM;
	if (json_wire_uuid(text, checked) < 0)
		return -EINVAL;
	return made(steal_ptr(text), ret_value);
}

static int get_volume(const struct member *m, const json_t *value, struct epoch_record *r)
{
	(void)m;
	return json_wire_uuid(value, r->volume);
}

/* ---- names of states */

static int put_complete(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	(void)m;
	switch (r->complete) {
	case RECORD_COMPLETE:
		return made(json_true(), ret_value);
	case RECORD_INCOMPLETE:
		return made(json_false(), ret_value);
	case RECORD_UNKNOWN:
		return made(json_string("unknown"), ret_value);
	}
	return -EINVAL;
}

static int get_complete(const struct member *m, const json_t *value, struct epoch_record *r)
{
	const char *text = json_string_value(value);

	(void)m;
	if (json_is_boolean(value))
		r->complete = json_is_true(value) ? RECORD_COMPLETE : RECORD_INCOMPLETE;
	else if (text && !strcmp(text, "unknown"))
		r->complete = RECORD_UNKNOWN;
	else
		return -EBADMSG;
	return 0;
}

static int put_trigger(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	(void)m;
	return made(json_string(record_trigger_name(r->trigger)), ret_value);
}

static int get_trigger(const struct member *m, const json_t *value, struct epoch_record *r)
{
	(void)m;
	if (!json_is_string(value))
		return -EBADMSG;
	r->trigger = record_trigger_parse(json_string_value(value));
	return 0;
}

/* ---- the tree */

static json_t *hash_json(const struct hash *hash)
{
	char hex[HASH_HEX];

	hash_to_hex(hash, hex);
	return json_string(hex);
}

static int get_hash(const json_t *value, struct hash *ret_hash)
{
	const char *hex = json_string_value(value);

	return hex && hash_from_hex(hex, ret_hash) == 0 ? 0 : -EBADMSG;
}

static bool chunk_valid(const struct record_chunk *c, size_t pack_count)
{
	if (c->length < 1 || c->length > CHUNK_PLAIN_MAX)
		return false;
	return c->pack == RECORD_NO_PACK ||
	       (c->pack < pack_count && c->offset >= PACK_HEADER_LEN && c->stored_len >= 1 &&
		c->stored_len <= CHUNK_FRAME_MAX && c->offset <= PACK_LEN_MAX - c->stored_len);
}

/* The chunks fit the tree's size and the list of packs. */
static bool tree_valid(const struct epoch_record *r)
{
	uint64_t sum = 0;

	if (r->chunk_count > RECORD_LIST_MAX)
		return false;
	for (size_t i = 0; i < r->chunk_count; i++) {
		if (!chunk_valid(&r->chunks[i], r->pack_count))
			return false;
		sum += r->chunks[i].length;
	}
	return !r->chunk_count || sum == r->tree_size;
}

static json_t *chunk_json(const struct record_chunk *c)
{
	if (c->pack == RECORD_NO_PACK)
		return json_pack("{s:o, s:I}", "hash", hash_json(&c->hash), "length",
				 (json_int_t)c->length);
	return json_pack("{s:o, s:I, s:I, s:I, s:I}", "hash", hash_json(&c->hash), "length",
			 (json_int_t)c->length, "pack", (json_int_t)c->pack, "offset",
			 (json_int_t)c->offset, "stored", (json_int_t)c->stored_len);
}

static int put_tree(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	cleanup_json json_t *chunks = NULL;

	(void)m;
	if (!tree_valid(r) || r->tree_size > INT64_MAX)
		return -EINVAL;
	if (!r->tree_size)
		return 0;
	chunks = json_array();
	for (size_t i = 0; i < r->chunk_count; i++)
		if (json_array_append_new(chunks, chunk_json(&r->chunks[i])) < 0)
			return -ENOMEM;
	return made(json_pack("{s:o, s:I, s:O}", "hash", hash_json(&r->tree_hash), "size",
			      (json_int_t)r->tree_size, "chunks", chunks),
		    ret_value);
}

static int get_chunk(const json_t *value, struct record_chunk *ret_chunk)
{
	struct record_chunk c = {.pack = RECORD_NO_PACK};
	const json_t *pack = json_object_get(value, "pack");

	if (get_hash(json_object_get(value, "hash"), &c.hash) < 0 ||
	    json_wire_u32(json_object_get(value, "length"), 1, CHUNK_PLAIN_MAX, &c.length) < 0)
		return -EBADMSG;
	if (pack &&
	    (json_wire_u32(pack, 0, RECORD_LIST_MAX, &c.pack) < 0 ||
	     json_wire_u32(json_object_get(value, "offset"), 0, PACK_LEN_MAX, &c.offset) < 0 ||
	     json_wire_u32(json_object_get(value, "stored"), 1, CHUNK_FRAME_MAX, &c.stored_len) <
		     0))
		return -EBADMSG;
	*ret_chunk = c;
	return 0;
}

/* A list of at most RECORD_LIST_MAX members, and memory for as many. */
static int get_list(const json_t *value, size_t size, void **ret_items, size_t *ret_count)
{
	size_t count = json_array_size(value);

	if (!json_is_array(value) || count > RECORD_LIST_MAX)
		return -EBADMSG;
	if (!count)
		return 0;
	*ret_items = calloc(count, size);
	if (!*ret_items)
		return -ENOMEM;
	*ret_count = count;
	return 0;
}

static int get_tree(const struct member *m, const json_t *value, struct epoch_record *r)
{
	const json_t *chunks = json_object_get(value, "chunks");
	void *items = NULL;
	int error;

	(void)m;
	if (get_hash(json_object_get(value, "hash"), &r->tree_hash) < 0 ||
	    json_wire_u64(json_object_get(value, "size"), &r->tree_size) < 0 || !r->tree_size)
		return -EBADMSG;
	error = get_list(chunks, sizeof(*r->chunks), &items, &r->chunk_count);
	r->chunks = items;
	for (size_t i = 0; i < r->chunk_count && !error; i++)
		error = get_chunk(json_array_get(chunks, i), &r->chunks[i]);
	return error;
}

/* ---- lists */

static int put_packs(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	cleanup_json json_t *list = NULL;

	(void)m;
	if (r->pack_count > RECORD_LIST_MAX)
		return -EINVAL;
	if (!r->pack_count)
		return 0;
	list = json_array();
	for (size_t i = 0; i < r->pack_count; i++)
		if (json_array_append_new(list, hash_json(&r->packs[i])) < 0)
			return -ENOMEM;
	return made(steal_ptr(list), ret_value);
}

static int get_packs(const struct member *m, const json_t *value, struct epoch_record *r)
{
	void *items = NULL;
	int error = get_list(value, sizeof(*r->packs), &items, &r->pack_count);

	(void)m;
	r->packs = items;
	for (size_t i = 0; i < r->pack_count && !error; i++)
		error = get_hash(json_array_get(value, i), &r->packs[i]);
	return error;
}

static int put_texts(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	char *const *texts = *CONST_FIELD(char **, r, m);
	size_t count = *(const size_t *)((const char *)r + m->count_offset);
	cleanup_json json_t *list = NULL;

	if (count > RECORD_LIST_MAX)
		return -EINVAL;
	if (!count)
		return 0;
	list = json_array();
	for (size_t i = 0; i < count; i++)
		if (json_array_append_new(list, json_wire_text(texts[i], RECORD_TEXT_MAX)) < 0)
			return -ENOMEM;
	return made(steal_ptr(list), ret_value);
}

static int get_texts(const struct member *m, const json_t *value, struct epoch_record *r)
{
	size_t *count = (size_t *)((char *)r + m->count_offset);
	char ***texts = FIELD(char **, r, m);
	void *items = NULL;
	int error = get_list(value, sizeof(**texts), &items, count);

	*texts = items;
	for (size_t i = 0; i < *count && !error; i++)
		error = get_string(json_array_get(value, i), &(*texts)[i]);
	return error;
}

static bool indexes_valid(const struct epoch_record *r)
{
	struct hash id;
	uint64_t epoch;

	for (size_t i = 0; i < r->index_count; i++)
		if (index_key_parse(r->indexes[i], &epoch, &id) < 0)
			return false;
	return true;
}

static int put_indexes(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	return indexes_valid(r) ? put_texts(m, r, ret_value) : -EINVAL;
}

static int get_indexes(const struct member *m, const json_t *value, struct epoch_record *r)
{
	int error = get_texts(m, value, r);

	return error ? error : indexes_valid(r) ? 0 : -EBADMSG;
}

/* ---- files in doubt */

static int put_doubts(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	(void)m;
	return r->doubt_count ? record_doubts_json(r->doubts, r->doubt_count, ret_value) : 0;
}

static int get_doubts(const struct member *m, const json_t *value, struct epoch_record *r)
{
	(void)m;
	return record_doubts_from(value, &r->doubts, &r->doubt_count);
}

static int put_doubted(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	(void)m;
	return r->doubted ? made(json_true(), ret_value) : 0;
}

static int get_doubted(const struct member *m, const json_t *value, struct epoch_record *r)
{
	(void)m;
	r->doubted = json_is_true(value);
	return json_is_boolean(value) ? 0 : -EBADMSG;
}

/* ---- parts of a node set */

static int put_part(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	(void)m;
	return r->part.node ? record_part_json(&r->part, ret_value) : 0;
}

static int get_part(const struct member *m, const json_t *value, struct epoch_record *r)
{
	(void)m;
	return record_part_from(value, &r->part);
}

static int put_parts(const struct member *m, const struct epoch_record *r, json_t **ret_value)
{
	(void)m;
	return r->part_count ? record_parts_json(r->parts, r->part_count, ret_value) : 0;
}

static int get_parts(const struct member *m, const json_t *value, struct epoch_record *r)
{
	(void)m;
	return record_parts_from(value, &r->parts, &r->part_count);
}

/* ---- the table */

#define AT(field) offsetof(struct epoch_record, field)

static const struct member members[] = {
	{"epoch", put_count, get_number, AT(number), 0, true},
	{"parent", put_number, get_number, AT(parent), 0, false},
	{"volume", put_volume, get_volume, 0, 0, true},
	{"complete", put_complete, get_complete, 0, 0, true},
	{"reason", put_text, get_text, AT(reason), 0, false},
	{"doubts", put_doubts, get_doubts, 0, 0, false},
	{"newest", put_text, get_text, AT(newest), 0, false},
	{"doubted", put_doubted, get_doubted, 0, 0, false},
	{"continues", put_number, get_number, AT(continues), 0, false},
	{"continues_from", put_number, get_number, AT(continues_from), 0, false},
	{"half", put_number, get_number, AT(half), 0, false},
	{"renames", put_text, get_text, AT(renames), 0, false},
	{"rule", put_text, get_text, AT(rule), 0, false},
	{"saves", put_text, get_text, AT(saves), 0, false},
	{"restores", put_number, get_number, AT(restores), 0, false},
	{"trigger", put_trigger, get_trigger, 0, 0, false},
	{"step", put_step, get_step, AT(step), 0, false},
	{"step_name", put_text, get_text, AT(step_name), 0, false},
	{"message", put_text, get_text, AT(message), 0, false},
	{"host", put_text, get_text, AT(host), 0, false},
	{"run_id", put_text, get_text, AT(run_id), 0, false},
	{"user", put_text, get_text, AT(user), 0, false},
	{"opened", put_time, get_time, AT(opened_ns), 0, false},
	{"sealed", put_time, get_time, AT(sealed_ns), 0, false},
	{"durable", put_time, get_time, AT(durable_ns), 0, false},
	{"save_ns", put_number, get_number, AT(save_ns), 0, false},
	{"files", put_count, get_number, AT(files), 0, false},
	{"directories", put_count, get_number, AT(directories), 0, false},
	{"symlinks", put_number, get_number, AT(symlinks), 0, false},
	{"specials", put_number, get_number, AT(specials), 0, false},
	{"added", put_count, get_number, AT(added), 0, false},
	{"changed", put_count, get_number, AT(changed), 0, false},
	{"removed", put_count, get_number, AT(removed), 0, false},
	{"bytes", put_count, get_number, AT(bytes), 0, false},
	{"bytes_new", put_count, get_number, AT(bytes_new), 0, false},
	{"bytes_stored", put_count, get_number, AT(bytes_stored), 0, false},
	{"tree", put_tree, get_tree, 0, 0, false},
	{"packs", put_packs, get_packs, 0, 0, false},
	{"indexes", put_indexes, get_indexes, AT(indexes), AT(index_count), false},
	{"generation", put_number, get_number, AT(generation), 0, false},
	{"nodes", put_number, get_number, AT(nodes), 0, false},
	{"part", put_part, get_part, 0, 0, false},
	{"parts", put_parts, get_parts, 0, 0, false},
	{"missing", put_texts, get_texts, AT(missing), AT(missing_count), false},
	{"conflicts", put_texts, get_texts, AT(conflicts), AT(conflict_count), false},
	{"db_type", put_text, get_text, AT(db_type), 0, false},
	{"db_prefix", put_text, get_text, AT(db_prefix), 0, false},
	{"path_type", put_text, get_text, AT(path_type), 0, false},
	{"path_prefix", put_text, get_text, AT(path_prefix), 0, false},
	{"node_names", put_texts, get_texts, AT(node_names), AT(node_count), false},
};

#define MEMBER_COUNT (sizeof(members) / sizeof(members[0]))

int record_encode(const struct epoch_record *r, struct buf *out)
{
	cleanup_json json_t *object = json_pack("{s:i}", "format", RECORD_FORMAT);

	if (!r->number)
		return -EINVAL;
	for (size_t i = 0; i < MEMBER_COUNT; i++) {
		json_t *value = NULL;
		int error = members[i].put(&members[i], r, &value);

		if (error)
			return error;
		if (value && json_object_set_new(object, members[i].key, value) < 0)
			return -ENOMEM;
	}
	return json_wire_print(object, RECORD_ENCODED_MAX, out);
}

int record_decode(const void *data, size_t len, struct epoch_record *ret_record)
{
	cleanup_record struct epoch_record r = {0};
	cleanup_json json_t *object = NULL;
	int error = json_wire_parse(data, len, RECORD_ENCODED_MAX, RECORD_FORMAT, &object);

	if (error)
		return error;
	for (size_t i = 0; i < MEMBER_COUNT; i++) {
		const json_t *value = json_object_get(object, members[i].key);

		if (!value && members[i].required)
			return -EBADMSG;
		error = value ? members[i].get(&members[i], value, &r) : 0;
		if (error)
			return error;
	}
	if (!r.number || !tree_valid(&r))
		return -EBADMSG;
	*ret_record = r;
	r = (struct epoch_record){0};
	return 0;
}

/* ---- The member of a record that says which part of which node it is. ---- */

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
static int optional_number(const json_t *object, const char *key, uint64_t *ret_value)
{
	const json_t *value = json_object_get(object, key);

	return value ? json_wire_u64(value, ret_value) : 0;
}

int record_part_from(const json_t *value, struct record_part *p)
{
	const json_t *node = json_object_get(value, "node");

	if (optional_number(value, "sequence", &p->sequence) < 0 || !p->sequence ||
	    optional_number(value, "base", &p->base) < 0 ||
	    optional_number(value, "after", &p->after) < 0 ||
	    optional_number(value, "count", &p->count) < 0 || !json_is_string(node) ||
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
