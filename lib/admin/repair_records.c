/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a remote: records and tombstones, tags, parts of nodes, summaries. */
#include "lib/admin/repair_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/record.h"
#include "lib/meta/records.h"
#include "lib/remote/remote.h"
#include "lib/upload/nodes.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"

/* ---- copies of records ---- */

static int note_copy(void *arg, uint64_t number, const char *text)
{
	struct repair *r = arg;
	int error =
		array_reserve((void **)&r->copies, &r->copy_cap, r->copy_count, sizeof(*r->copies));

	if (error)
		return error;
	r->copies[r->copy_count] = (struct repair_copy){number, strdup(text)};
	if (!r->copies[r->copy_count].text)
		return -ENOMEM;
	r->copy_count++;
	return 0;
}

/* Of this volume and this number. */
static bool is_ours(const struct repair *r, const char *text, uint64_t number)
{
	cleanup_record struct epoch_record record = {0};

	return record_decode(text, strlen(text), &record) == 0 && record.number == number &&
	       !strcmp(record.volume, r->info.uuid);
}

/* What a summary says of the epoch, or NULL. */
static const char *copy_of(const struct repair *r, uint64_t number)
{
	for (size_t i = 0; i < r->copy_count; i++)
		if (r->copies[i].number == number && is_ours(r, r->copies[i].text, number))
			return r->copies[i].text;
	return NULL;
}

/* ---- one record ---- */

enum found { FOUND_WHOLE, FOUND_MISSING, FOUND_DAMAGED };

struct record_repair {
	struct repair *r;
	uint64_t number;
	enum found found;
	struct epoch_record record; /* FOUND_WHOLE, and no tombstone: number is set */
	char *text;		    /* likewise */
};

static void record_repair_free(struct record_repair *m)
{
	record_free(&m->record);
	free(m->text);
}

static int look(struct record_repair *m)
{
	char key[KEY_MAX];
	uint64_t size;
	int error = records_get(m->r->remote, m->number, &m->record, &m->text);

	m->found = FOUND_WHOLE;
	if (!error && strcmp(m->record.volume, m->r->info.uuid) != 0)
		error = -EBADMSG;
	if (error == -EBADMSG)
		m->found = FOUND_DAMAGED;
	if (error != -ENOENT)
		return error == -EBADMSG || error == -EPROTONOSUPPORT ? 0 : error;
	/* A tombstone, or nothing. */
	epoch_key(m->number, key);
	error = remote_size(m->r->remote, key, &size);
	if (error == -ENOENT)
		m->found = FOUND_MISSING;
	return error == -ENOENT ? 0 : error;
}

static int put(struct record_repair *m, const char *text, const char *what)
{
	char key[KEY_MAX], where[64];
	int error = repair_confirm(m->r);

	epoch_key(m->number, key);
	snprintf(where, sizeof(where), "epoch %" PRIu64, m->number);
	if (!error && !m->r->how->dry_run)
		error = m->found == FOUND_MISSING
				? remote_put_if_absent(m->r->remote, key, text, strlen(text))
				: remote_put(m->r->remote, key, text, strlen(text));
	FAULT_POINT("repair.record");
	if (!error)
		repair_say(m->r, REPAIR_RESTORED, key, where, what);
	return error == -EEXIST ? 0 : error;
}

static int put_tombstone(struct record_repair *m)
{
	cleanup_buf struct buf text = {0};
	const struct tombstone t = {.number = m->number, .dropped_ns = clock_wall_ns()};
	int error = tombstone_encode(&t, NULL, &text);

	return error ? error
		     : put(m, buf_str(&text),
			   "the mark of a dropped epoch is restored from the cache");
}

static bool same_json(const char *a, const char *b)
{
	json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
	bool same = x && y && json_equal(x, y);

	json_decref(x);
	json_decref(y);
	return same;
}

/* A record that is whole but not what it was: of the same sealing, by what no accident changes in both. */
static bool is_altered(const struct record_repair *m, const char *local)
{
	cleanup_record struct epoch_record record = {0};

	if (!m->text || same_json(m->text, local) ||
	    record_decode(local, strlen(local), &record) != 0)
		return false;
	return records_same_epoch(&record, &m->record) ||
	       hash_equal(&record.tree_hash, &m->record.tree_hash);
}

static void tell_gone(struct record_repair *m)
{
	char key[KEY_MAX], where[64];

	epoch_key(m->number, key);
	snprintf(where, sizeof(where), "epoch %" PRIu64, m->number);
	repair_say(m->r, REPAIR_GONE, key, where,
		   m->found == FOUND_MISSING ? "its record is missing, and there is no copy"
					     : "its record is damaged, and there is no copy");
	if (m->found == FOUND_DAMAGED)
		repair_note_gone(m->r, m->number);
}

/* `named`: something says that there is, or was, such an epoch. */
static int repair_record(struct repair *r, uint64_t number, bool named)
{
	CLEANUP(record_repair_free) struct record_repair m = {.r = r, .number = number};
	cleanup_free char *local = NULL;
	const char *copy = copy_of(r, number);
	bool dropped = false;
	int error = look(&m);

	if (error)
		return error;
	if (r->source && repair_source_record(r->source, number, &local, &dropped) == -ENOENT)
		local = NULL;
	if (local && !is_ours(r, local, number)) {
		free(local);
		local = NULL;
	}
	if (m.found == FOUND_WHOLE)
		return local && is_altered(&m, local)
			       ? put(&m, local, "its record was altered; restored from the cache")
			       : 0;
	if (dropped)
		return put_tombstone(&m);
	if (local)
		return put(&m, local, "its record is restored from the cache");
	if (copy)
		return put(&m, copy, "its record is restored from a summary");
	if (m.found == FOUND_DAMAGED || named)
		tell_gone(&m);
	return 0;
}

/* ---- all records ---- */

static int note_epoch(void *arg, const char *key, uint64_t size)
{
	uint64_t number;

	(void)size;
	if (!epoch_key_parse(key, &number))
		buf_put(arg, &number, sizeof(number));
	return buf_error(arg);
}

static int note_summary(void *arg, const char *key, uint64_t size)
{
	struct repair *r = arg;
	uint64_t last;
	int error;

	(void)size;
	if (summary_key_parse(key, &last))
		return 0;
	error = summary_read(r->remote, last, note_copy, r);
	return error == -ENOENT || error == -EBADMSG ? 0 : error;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

static uint64_t number_at(const struct buf *numbers, size_t i)
{
	uint64_t n;

	memcpy(&n, numbers->data + i * sizeof(n), sizeof(n));
	return n;
}

/* Those that the remote lists, that summaries have, and that this machine saw there. */
static int all_numbers(struct repair *r, struct buf *out)
{
	int error = remote_list(r->remote, PREFIX_EPOCHS, note_epoch, out);

	for (size_t i = 0; i < r->copy_count; i++)
		buf_put(out, &r->copies[i].number, sizeof(r->copies[i].number));
	if (!error && r->source)
		error = repair_source_epochs(r->source, out);
	if (!error)
		error = buf_error(out);
	if (!error && out->len)
		qsort(out->data, out->len / sizeof(uint64_t), sizeof(uint64_t), compare_numbers);
	return error;
}

/* Epochs that another names as the one before it, and of which nothing is there. */
static int repair_parents(struct repair *r)
{
	cleanup_buf struct buf numbers = {0};
	int error = remote_list(r->remote, PREFIX_EPOCHS, note_epoch, &numbers);

	for (size_t i = 0; !error && i < numbers.len / sizeof(uint64_t); i++) {
		cleanup_record struct epoch_record record = {0};

		error = records_get(r->remote, number_at(&numbers, i), &record, NULL);
		if (error == -ENOENT || error == -EBADMSG || error == -EPROTONOSUPPORT)
			error = 0;
		else if (!error && record.parent && record.parent < record.number)
			error = repair_record(r, record.parent, true);
	}
	return error;
}

static int repair_each_record(struct repair *r)
{
	cleanup_buf struct buf numbers = {0};
	uint64_t last = 0;
	int error = all_numbers(r, &numbers);

	for (size_t i = 0; !error && i < numbers.len / sizeof(uint64_t); i++) {
		uint64_t number = number_at(&numbers, i);

		if (number == last || nodes_is_part(number))
			continue;
		last = number;
		error = repair_record(r, number, false);
	}
	return error ? error : repair_parents(r);
}

int repair_other_record(struct repair *r, const struct epoch_record *record, struct buf *tree,
			const char **ret_text)
{
	cleanup_record struct epoch_record other = {0};
	const char *copy = copy_of(r, record->number);
	int error;

	if (!copy || record_decode(copy, strlen(copy), &other) != 0 ||
	    hash_equal(&other.tree_hash, &record->tree_hash))
		return -ENOENT;
	error = store_get_tree(store_fsck_store(r->fsck.store), &other, tree);
	if (error)
		return fsck_fatal(error) ? error : -ENOENT;
	*ret_text = copy;
	return 0;
}

/* ---- tags ---- */

static bool has_epoch(struct repair *r, uint64_t number)
{
	char key[KEY_MAX];
	uint64_t size;

	if (!number || number > INT64_MAX)
		return false;
	epoch_key(number, key);
	/* A dry run has restored nothing. */
	return remote_size(r->remote, key, &size) == 0 ||
	       (r->how->dry_run && copy_of(r, number) != NULL);
}

static int set_tag(struct repair *r, const char *key, const char *where, uint64_t number)
{
	char text[TAG_TEXT_MAX], what[STORE_FSCK_TEXT];
	int error = repair_confirm(r);

	tag_text(number, text);
	if (!error && !r->how->dry_run)
		error = remote_put(r->remote, key, text, strlen(text));
	if (error)
		return error;
	snprintf(what, sizeof(what), "names epoch %" PRIu64 " again, as the cache knows", number);
	repair_say(r, REPAIR_RESTORED, key, where, what);
	return 0;
}

static int remove_tag(struct repair *r, const char *key, const char *where, const char *why)
{
	cleanup_buf struct buf what = {0};
	int error = repair_confirm(r);

	if (!error && !r->how->dry_run)
		error = remote_delete(r->remote, key);
	if (error)
		return error;
	buf_printf(&what, "%s; the tag is removed: set it again", why);
	repair_say(r, REPAIR_GONE, key, where, buf_str(&what));
	return 0;
}

static int repair_tag(void *arg, const char *key, uint64_t size)
{
	struct repair *r = arg;
	cleanup_buf struct buf text = {0};
	char name[TAG_NAME_MAX + 1], where[TAG_NAME_MAX + 8], why[STORE_FSCK_TEXT];
	uint64_t number = 0, local = 0;
	int error;

	(void)size;
	if (tag_key_parse(key, name))
		return 0;
	error = remote_get(r->remote, key, 0, TAG_TEXT_MAX + 1, &text);
	if (error)
		return error == -ENOENT ? 0 : error;
	snprintf(where, sizeof(where), "tag %s", name);
	if (tag_text_parse(text.data, text.len, &number) == 0 && number && !has_epoch(r, number))
		error = repair_record(r, number, true);
	if (error || has_epoch(r, number))
		return error;
	if (r->source && repair_source_tag(r->source, name, &local) == 0 && has_epoch(r, local))
		return set_tag(r, key, where, local);
	if (number)
		snprintf(why, sizeof(why), "named epoch %" PRIu64 ", which is not there", number);
	else
		snprintf(why, sizeof(why), "is damaged, and there is no copy");
	return remove_tag(r, key, where, why);
}

/* ---- parts of nodes ---- */

static bool is_part(const struct epoch_record *record, uint64_t generation, uint64_t sequence,
		    const char *node)
{
	return record->part.node && !strcmp(record->part.node, node) &&
	       record->part.sequence == sequence && record->generation == generation;
}

/* What the node itself still knows of it, or NULL. */
static char *local_part(struct repair *r, uint64_t generation, uint64_t sequence, const char *node)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_free char *text = NULL;
	bool dropped;

	if (!r->source || sequence >= NODES_FIRST ||
	    repair_source_record(r->source, NODES_FIRST + sequence, &text, &dropped) || !text ||
	    record_decode(text, strlen(text), &record) != 0 ||
	    !is_part(&record, generation, sequence, node))
		return NULL;
	return steal_ptr(text);
}

static int replace_part(struct repair *r, const char *key, const char *text)
{
	int error = repair_confirm(r);

	if (error || r->how->dry_run)
		return error;
	return text ? remote_put(r->remote, key, text, strlen(text))
		    : remote_delete(r->remote, key);
}

/* One that nobody can read would keep collections from their work for ever. */
static int repair_part(void *arg, const char *key, uint64_t size)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_buf struct buf data = {0};
	cleanup_free char *local = NULL;
	struct repair *r = arg;
	char node[NODE_NAME_MAX + 1], where[160];
	uint64_t generation, sequence;
	int error;

	(void)size;
	if (part_key_parse(key, &generation, &sequence, node))
		return 0;
	error = remote_get(r->remote, key, 0, RECORD_ENCODED_MAX + 1, &data);
	if (error)
		return error == -ENOENT ? 0 : error;
	error = record_decode(data.data, data.len, &record);
	if (error == -ENOMEM || error == -EPROTONOSUPPORT)
		return error == -ENOMEM ? error : 0;
	if (!error && is_part(&record, generation, sequence, node))
		return 0;
	local = local_part(r, generation, sequence, node);
	error = replace_part(r, key, local);
	if (error)
		return error;
	snprintf(where, sizeof(where), "part %" PRIu64 " of node %s", sequence, node);
	repair_say(
		r, local ? REPAIR_RESTORED : REPAIR_GONE, key, where,
		local ? "restored from the cache of that node"
		      : "is damaged, and there is no copy; it is removed, its epoch goes without it");
	return 0;
}

/* ---- summaries ---- */

/* 1: it says otherwise than the record that is there. */
static int compare_copy(void *arg, uint64_t number, const char *text)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_free char *own = NULL;
	struct repair *r = arg;
	int error = records_get(r->remote, number, &record, &own);

	if (error == -ENOENT)
		return 1;
	if (error)
		return error == -EBADMSG || error == -EPROTONOSUPPORT ? 0 : error;
	return !same_json(text, own);
}

static int repair_summary(void *arg, const char *key, uint64_t size)
{
	struct repair *r = arg;
	uint64_t last;
	int error;

	(void)size;
	if (summary_key_parse(key, &last))
		return 0;
	error = summary_read(r->remote, last, compare_copy, r);
	if (error <= 0 && error != -EBADMSG)
		return error == -ENOENT ? 0 : error;
	error = repair_confirm(r);
	if (!error && !r->how->dry_run)
		error = remote_delete(r->remote, key);
	if (!error && !r->how->dry_run)
		error = records_summarize(r->remote, last);
	if (!error)
		repair_say(r, REPAIR_RESTORED, key, "", "the summary is rebuilt from records");
	return error;
}

int repair_summaries(struct repair *r)
{
	return remote_list(r->remote, PREFIX_SUMMARIES, repair_summary, r);
}

int repair_records(struct repair *r)
{
	int error = remote_list(r->remote, PREFIX_SUMMARIES, note_summary, r);

	if (!error)
		error = repair_each_record(r);
	if (!error)
		error = remote_list(r->remote, PREFIX_TAGS, repair_tag, r);
	return error ? error : remote_list(r->remote, PREFIX_PARTS, repair_part, r);
}
