/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a remote: tags, keys, lists of garbage collection, summaries, parts of nodes, the lease; and records that are missing. */
#include "lib/admin/catalog_fsck.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/key_slot.h"
#include "lib/meta/lease.h"
#include "lib/meta/records.h"
#include "lib/upload/nodes.h"
#include "lib/util/cleanup.h"

static int compare_numbers(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

const uint64_t *fsck_find_epoch(const struct fsck *f, uint64_t number)
{
	return f->epoch_count ? bsearch(&number, f->epochs, f->epoch_count, sizeof(number),
					compare_numbers)
			      : NULL;
}

/* ---- records that are missing ---- */

static bool is_missing(const struct fsck *f, uint64_t number)
{
	for (size_t at = 0; at < f->missing.len; at += sizeof(number))
		if (!memcmp(f->missing.data + at, &number, sizeof(number)))
			return true;
	return false;
}

static int note_missing(struct fsck *f, uint64_t number)
{
	if (!is_missing(f, number) && number && number <= INT64_MAX)
		buf_put(&f->missing, &number, sizeof(number));
	return buf_error(&f->missing);
}

/* Each epoch names the one before it; and what was dropped has left a tombstone. */
static int check_parents(struct fsck *f)
{
	int error = 0;

	for (size_t i = 0; i < f->epoch_count && !error; i++)
		if (f->parents[i] < f->epochs[i] && !fsck_find_epoch(f, f->parents[i]))
			error = note_missing(f, f->parents[i]);
	return error;
}

/* Whether a tree that a record names, or that of a dropped epoch, begins with this chunk. */
static bool is_head(void *arg, const struct hash *chunk)
{
	const struct fsck *f = arg;

	for (size_t at = 0; at < f->heads.len; at += sizeof(*chunk))
		if (!memcmp(f->heads.data + at, chunk, sizeof(*chunk)))
			return true;
	return false;
}

/* What is to be said of an epoch whose index and tree are there, and whose record was not when they were listed. */
static int tell_without_record(struct fsck *f, uint64_t epoch, bool held)
{
	char key[KEY_MAX], where[64];
	uint64_t size;
	int error;

	epoch_key(epoch, key);
	snprintf(where, sizeof(where), "epoch %" PRIu64, epoch);
	if (held) {
		/* A writer may have put it meanwhile. */
		error = remote_size(f->remote, key, &size);
		if (error != -ENOENT)
			return fsck_fatal(error) ? error : 0;
		fsck_unsure(f, key, where,
			    "its record is not there, though its index and its tree are: who has "
			    "the lease is about to put it, or it is missing");
	} else if (f->dropped && f->gc_lists.count) {
		fsck_unsure(f, key, where,
			    "its record may be missing: its index has a tree that no record "
			    "names, of a dropped epoch perhaps");
	} else {
		fsck_problem(f, key, where,
			     "its record is missing, though its index and its tree are there");
	}
	return 0;
}

/*
 * Of the newest epochs no other names the record. But an index object says of which epoch it is, and where it came with
 * a tree that no record has, the record was the next object to be put: it is missing, unless a writer is between the two.
 * Early uploads leave index objects without a tree, repairs and collections those with trees that records have; but
 * what a collection has written may have the tree of an epoch that was dropped since.
 */
static int check_newest(struct fsck *f, bool held)
{
	char key[KEY_MAX];
	uint64_t epoch;
	int error = 0;

	for (size_t i = 0; !error && store_fsck_index_epoch(f->store, i, key, &epoch); i++) {
		bool has_tree = false;

		if (!epoch || nodes_is_part(epoch) || fsck_find_epoch(f, epoch))
			continue;
		/* That one is told of by itself. */
		if (held && is_missing(f, epoch))
			continue;
		error = store_fsck_has_tree(f->store, i, is_head, f, &has_tree);
		if (!error && has_tree)
			error = tell_without_record(f, epoch, held);
	}
	return error;
}

/* Beside a writer the drop of one that was never uploaded may be on its way. */
static void tell_missing(struct fsck *f, bool held)
{
	for (size_t at = 0; at < f->missing.len; at += sizeof(uint64_t)) {
		char key[KEY_MAX], where[64];
		uint64_t number;

		memcpy(&number, f->missing.data + at, sizeof(number));
		epoch_key(number, key);
		snprintf(where, sizeof(where), "epoch %" PRIu64, number);
		if (held)
			fsck_unsure(f, key, where, "is not there; its drop may be on its way");
		else
			fsck_problem(f, key, where, "is missing: another object names it");
	}
}

/* ---- tags ---- */

static int check_tag(struct fsck *f, const char *key)
{
	char name[TAG_NAME_MAX + 1], where[TAG_NAME_MAX + 8], text[STORE_FSCK_TEXT];
	cleanup_buf struct buf data = {0};
	uint64_t number;
	int error = remote_get(f->remote, key, 0, TAG_TEXT_MAX + 1, &data);

	if (error == -ENOENT || fsck_fatal(error))
		return error == -ENOENT ? 0 : error;
	if (tag_key_parse(key, name))
		return 0;
	if (!error)
		error = tag_text_parse(data.data, data.len, &number);
	snprintf(where, sizeof(where), "tag %s", name);
	if (error) {
		fsck_problem(f, key, where, fsck_wrong(error, text));
	} else if (!fsck_find_epoch(f, number)) {
		snprintf(text, sizeof(text), "names epoch %" PRIu64 ", which is not there", number);
		fsck_problem(f, key, where, text);
		return note_missing(f, number);
	}
	return 0;
}

/* ---- keys of an encrypted volume ---- */

static int check_slot(struct fsck *f, const char *key)
{
	cleanup_buf struct buf data = {0};
	char text[STORE_FSCK_TEXT];
	struct key_slot slot;
	int error = remote_get(f->remote, key, 0, KEY_SLOT_ENCODED_MAX + 1, &data);

	if (error == -ENOENT || fsck_fatal(error))
		return error == -ENOENT ? 0 : error;
	if (!error)
		error = key_slot_decode(data.data, data.len, &slot);
	if (error == -ENOMEM)
		return error;
	if (error)
		fsck_problem(f, key, "", fsck_wrong(error, text));
	else if (f->has_info && strcmp(slot.uuid, f->info.uuid) != 0)
		f->totals.foreign++;
	return 0;
}

/* ---- garbage collection ---- */

/* Whether a later list is in force: then this one is history, whatever it says. */
static bool is_history(const struct fsck *f, const char *key)
{
	uint64_t own, other;

	if (gc_key_parse(key, &own))
		return false;
	for (size_t i = 0; i < f->gc_lists.count; i++)
		if (!gc_key_parse(f->gc_lists.keys[i], &other) && other > own)
			return true;
	return false;
}

static int check_gc_list(struct fsck *f, const char *key)
{
	cleanup_gc_list struct gc_list list = {0};
	cleanup_buf struct buf data = {0};
	char text[STORE_FSCK_TEXT];
	uint64_t generation;
	int error = remote_get(f->remote, key, 0, GC_LIST_ENCODED_MAX + 1, &data);

	if (error == -ENOENT || fsck_fatal(error))
		return error == -ENOENT ? 0 : error;
	if (!error)
		error = gc_list_decode(data.data, data.len, &list);
	if (!error && !gc_key_parse(key, &generation) && list.generation != generation)
		error = -EBADMSG;
	if (error == -ENOMEM)
		return error;
	if (error && is_history(f, key)) {
		fsck_note(f, key, "", "is damaged, and nothing is lost: a later list is in force");
		return 0;
	}
	if (error) {
		fsck_problem(f, key, "", fsck_wrong(error, text));
		return 0;
	}
	if (list.generation < f->gc_list.generation)
		return 0;
	gc_list_free(&f->gc_list);
	f->gc_list = list;
	list = (struct gc_list){0};
	f->totals.condemned = 0;
	for (size_t i = 0; i < f->gc_list.count; i++)
		f->totals.condemned += f->gc_list.items[i].generation != 0;
	return 0;
}

bool fsck_condemned(const struct fsck *f, const char *key)
{
	uint64_t number = 0;
	struct hash id;

	if (pack_key_parse(key, &id) && index_key_parse(key, &number, &id))
		return false;
	for (size_t i = 0; i < f->gc_list.count; i++) {
		const struct gc_item *item = &f->gc_list.items[i];

		if (item->generation && item->index == number && hash_equal(&item->id, &id))
			return true;
	}
	return false;
}

/* ---- summaries ---- */

/* What a summary says of an epoch must be what the epoch's own record says. */
static int check_copy(void *arg, uint64_t number, const char *text)
{
	static const struct hash none;
	struct fsck *f = arg;
	const uint64_t *epoch = fsck_find_epoch(f, number);
	const struct hash *tree = epoch ? &f->trees[epoch - f->epochs] : &none;
	cleanup_record struct epoch_record record = {0};
	char key[KEY_MAX], where[64];
	int error = record_decode(text, strlen(text), &record);

	if (error == -ENOMEM)
		return error;
	if (!epoch)
		return note_missing(f, number);
	/* Dropped, or its own record is damaged: nothing to compare with. */
	if (hash_equal(tree, &none) || (!error && hash_equal(tree, &record.tree_hash)))
		return 0;
	summary_key((number + SUMMARY_EVERY - 1) / SUMMARY_EVERY * SUMMARY_EVERY, key);
	snprintf(where, sizeof(where), "epoch %" PRIu64, number);
	fsck_problem(f, key, where, "says otherwise than the epoch's record");
	return 0;
}

static int check_summary(struct fsck *f, const char *key)
{
	uint64_t last;
	int error = summary_key_parse(key, &last);

	if (!error)
		error = summary_read(f->remote, last, check_copy, f);
	if (error == -EBADMSG) {
		fsck_note(f, key, "", "is damaged, and nothing is lost: it is a copy of records");
		error = 0;
	}
	return error == -ENOENT ? 0 : error;
}

/* ---- parts of nodes, and the lease ---- */

static int check_part(struct fsck *f, const char *key)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_buf struct buf data = {0};
	char node[NODE_NAME_MAX + 1], where[160], text[STORE_FSCK_TEXT];
	uint64_t generation, sequence;
	int error = remote_get(f->remote, key, 0, RECORD_ENCODED_MAX + 1, &data);

	if (error == -ENOENT || fsck_fatal(error))
		return error == -ENOENT ? 0 : error;
	if (!error)
		error = record_decode(data.data, data.len, &record);
	if (error == -ENOMEM || part_key_parse(key, &generation, &sequence, node))
		return error == -ENOMEM ? error : 0;
	if (!error && (!record.part.node || strcmp(record.part.node, node) != 0 ||
		       record.part.sequence != sequence || record.generation != generation))
		error = -EBADMSG;
	if (!error)
		return 0;
	snprintf(where, sizeof(where), "part %" PRIu64 " of node %s", sequence, node);
	fsck_problem(f, key, where, fsck_wrong(error, text));
	return 0;
}

static int check_lease(struct fsck *f, bool *ret_held)
{
	struct lease_info lease = {0};
	char key[KEY_MAX];
	int error = lease_look(f->remote, &lease);

	*ret_held = error ? error != -ENOENT : !lease.released || lease.pending;
	if (error == -EBADMSG) {
		lease_key(lease.generation, key);
		fsck_note(
			f, key, "",
			"is damaged, and nothing is lost: the next writer waits until it has lapsed");
	}
	return fsck_fatal(error) ? error : 0;
}

static int each(struct fsck *f, const struct fsck_keys *keys,
		int (*check)(struct fsck *f, const char *key))
{
	int error = 0;

	for (size_t i = 0; i < keys->count && !error; i++)
		error = check(f, keys->keys[i]);
	return error;
}

int fsck_meta(struct fsck *f)
{
	bool held = false;
	int error = each(f, &f->tags, check_tag);

	if (!error)
		error = each(f, &f->gc_lists, check_gc_list);
	if (!error)
		error = each(f, &f->slots, check_slot);
	if (!error)
		error = each(f, &f->summaries, check_summary);
	if (!error)
		error = each(f, &f->parts, check_part);
	if (!error)
		error = check_lease(f, &held);
	if (!error)
		error = check_parents(f);
	if (!error)
		error = check_newest(f, held);
	if (!error)
		tell_missing(f, held);
	return error;
}
