/* SPDX-License-Identifier: Apache-2.0 */
/* Records in memory: free, copy, names of triggers; tombstones. */
#include "lib/format/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/format/wire.h"
#include "lib/util/parse.h"

static void free_list(char **list, size_t count)
{
	for (size_t i = 0; list && i < count; i++)
		free(list[i]);
	free(list);
}

static void free_doubt(struct record_doubt *d)
{
	free(d->path);
	free(d->why);
	free(d->kind);
	free_list(d->companions, d->companion_count);
}

void record_doubts_free(struct record_doubt *doubts, size_t count)
{
	for (size_t i = 0; doubts && i < count; i++)
		free_doubt(&doubts[i]);
	free(doubts);
}

void record_doubt_drop_last(struct epoch_record *r)
{
	struct record_doubt *last = &r->doubts[--r->doubt_count];

	free_doubt(last);
	*last = (struct record_doubt){0};
}

void record_free(struct epoch_record *r)
{
	free(r->reason);
	record_doubts_free(r->doubts, r->doubt_count);
	free(r->newest);
	free(r->renames);
	free(r->rule);
	free(r->saves);
	free(r->step_name);
	free(r->message);
	free(r->host);
	free(r->run_id);
	free(r->user);
	free(r->chunks);
	free(r->packs);
	free_list(r->indexes, r->index_count);
	free(r->part.node);
	for (size_t i = 0; r->parts && i < r->part_count; i++)
		free(r->parts[i].node);
	free(r->parts);
	free_list(r->missing, r->missing_count);
	free_list(r->conflicts, r->conflict_count);
	free(r->db_type);
	free(r->db_prefix);
	free(r->path_type);
	free(r->path_prefix);
	free_list(r->node_names, r->node_count);
	*r = (struct epoch_record){0};
}

static void copy_text(const char *from, char **ret_to, int *error)
{
	*ret_to = from ? strdup(from) : NULL;
	if (from && !*ret_to)
		*error = -ENOMEM;
}

/* NULL and an error where there is no memory. */
static void *copy_array(const void *from, size_t count, size_t size, int *error)
{
	void *to;

	if (!count)
		return NULL;
	to = calloc(count, size);
	if (to)
		memcpy(to, from, count * size);
	else
		*error = -ENOMEM;
	return to;
}

static char **copy_list(char *const *from, size_t count, int *error)
{
	char **to = count ? calloc(count, sizeof(*to)) : NULL;

	if (count && !to)
		*error = -ENOMEM;
	for (size_t i = 0; to && i < count; i++)
		copy_text(from[i], &to[i], error);
	return to;
}

int record_doubt_copy(const struct record_doubt *d, struct record_doubt *ret_copy)
{
	int error = 0;

	*ret_copy = *d;
	copy_text(d->path, &ret_copy->path, &error);
	copy_text(d->why, &ret_copy->why, &error);
	copy_text(d->kind, &ret_copy->kind, &error);
	ret_copy->companions = copy_list(d->companions, d->companion_count, &error);
	return error;
}

static struct record_doubt *copy_doubts(const struct record_doubt *from, size_t count, int *error)
{
	struct record_doubt *to = copy_array(from, count, sizeof(*from), error);

	for (size_t i = 0; to && i < count; i++)
		if (record_doubt_copy(&from[i], &to[i]))
			*error = -ENOMEM;
	return to;
}

int record_copy(const struct epoch_record *r, struct epoch_record *ret_copy)
{
	struct epoch_record c = *r; /* numbers; every pointer is set again below */
	int error = 0;

	copy_text(r->reason, &c.reason, &error);
	c.doubts = copy_doubts(r->doubts, r->doubt_count, &error);
	copy_text(r->newest, &c.newest, &error);
	copy_text(r->renames, &c.renames, &error);
	copy_text(r->rule, &c.rule, &error);
	copy_text(r->saves, &c.saves, &error);
	copy_text(r->step_name, &c.step_name, &error);
	copy_text(r->message, &c.message, &error);
	copy_text(r->host, &c.host, &error);
	copy_text(r->run_id, &c.run_id, &error);
	copy_text(r->user, &c.user, &error);
	copy_text(r->db_type, &c.db_type, &error);
	copy_text(r->db_prefix, &c.db_prefix, &error);
	copy_text(r->path_type, &c.path_type, &error);
	copy_text(r->path_prefix, &c.path_prefix, &error);
	c.chunks = copy_array(r->chunks, r->chunk_count, sizeof(*r->chunks), &error);
	c.packs = copy_array(r->packs, r->pack_count, sizeof(*r->packs), &error);
	c.indexes = copy_list(r->indexes, r->index_count, &error);
	copy_text(r->part.node, &c.part.node, &error);
	c.parts = copy_array(r->parts, r->part_count, sizeof(*r->parts), &error);
	for (size_t i = 0; c.parts && i < c.part_count; i++)
		copy_text(r->parts[i].node, &c.parts[i].node, &error);
	c.missing = copy_list(r->missing, r->missing_count, &error);
	c.conflicts = copy_list(r->conflicts, r->conflict_count, &error);
	c.node_names = copy_list(r->node_names, r->node_count, &error);
	if (error)
		record_free(&c);
	else
		*ret_copy = c;
	return error;
}

static const char *const trigger_names[RECORD_TRIGGER_COUNT] = {
	[RECORD_TRIGGER_UNKNOWN] = "unknown",	[RECORD_TRIGGER_COMMIT] = "commit",
	[RECORD_TRIGGER_MKDIR] = "mkdir",	[RECORD_TRIGGER_SYNC] = "sync",
	[RECORD_TRIGGER_WAIT] = "wait",		[RECORD_TRIGGER_RENAME] = "rename",
	[RECORD_TRIGGER_MARKER] = "marker",	[RECORD_TRIGGER_QUIET] = "quiet",
	[RECORD_TRIGGER_CLOSE] = "close",	[RECORD_TRIGGER_KILLED] = "killed",
	[RECORD_TRIGGER_UMOUNT] = "umount",	[RECORD_TRIGGER_ROLLBACK] = "rollback",
	[RECORD_TRIGGER_RECOVERY] = "recovery", [RECORD_TRIGGER_IMPORT] = "import",
	[RECORD_TRIGGER_NEXT] = "next-save",
};

const char *record_trigger_name(enum record_trigger trigger)
{
	return trigger_names[trigger < RECORD_TRIGGER_COUNT ? trigger : RECORD_TRIGGER_UNKNOWN];
}

enum record_trigger record_trigger_parse(const char *name)
{
	for (unsigned int i = 0; i < RECORD_TRIGGER_COUNT; i++)
		if (!strcmp(trigger_names[i], name))
			return (enum record_trigger)i;
	return RECORD_TRIGGER_UNKNOWN;
}

bool record_trigger_automatic(enum record_trigger trigger)
{
	return trigger == RECORD_TRIGGER_QUIET || trigger == RECORD_TRIGGER_CLOSE ||
	       trigger == RECORD_TRIGGER_RENAME || trigger == RECORD_TRIGGER_MARKER ||
	       trigger == RECORD_TRIGGER_KILLED || trigger == RECORD_TRIGGER_RECOVERY;
}

bool record_trigger_by_hand(enum record_trigger trigger)
{
	return trigger == RECORD_TRIGGER_COMMIT || trigger == RECORD_TRIGGER_MKDIR ||
	       trigger == RECORD_TRIGGER_SYNC || trigger == RECORD_TRIGGER_WAIT ||
	       trigger == RECORD_TRIGGER_UMOUNT || trigger == RECORD_TRIGGER_ROLLBACK ||
	       trigger == RECORD_TRIGGER_IMPORT;
}

/* ---- tombstones of dropped epochs ---- */

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
