/* SPDX-License-Identifier: Apache-2.0 */
/* After a crash or a power loss: epochs that were sealed and not durable, of which something is gone. */
#include "lib/volume/recovery.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include "lib/format/record.h"
#include "lib/util/log.h"
#include "lib/volume/announce.h"
#include "lib/volume/nodes.h"
#include "lib/volume/records.h"
#include "lib/volume/seal.h"
#include "lib/volume/trees.h"

/* Paths that a record names; the log names all. */
#define NAMED_MAX 3

struct number_list {
	uint64_t *number;
	size_t count, cap;
};

static int collect_pending(void *arg, const struct state_epoch *e)
{
	struct number_list *l = arg;

	if (e->state == EPOCH_DURABLE || e->state == EPOCH_DROPPED || !e->record)
		return 0;
	if (l->count == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 16;
		uint64_t *grown = realloc(l->number, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		l->number = grown;
		l->cap = cap;
	}
	l->number[l->count++] = e->number;
	return 0;
}

static const struct torn_version *find_torn(const struct recovery *r, uint64_t version)
{
	for (size_t i = 0; i < r->torn_count; i++)
		if (r->torn[i].version == version)
			return &r->torn[i];
	return NULL;
}

/* "PATH: why", of what is torn in this tree; a log is valid at every length. */
static int name_torn(const struct recovery *r, uint64_t number, const struct tree *tree,
		     struct buf *out)
{
	unsigned named = 0;

	for (uint32_t id = 0; id < tree_count(tree); id++) {
		cleanup_buf struct buf path = {0};
		const struct torn_version *torn;
		struct tree_entry e;

		tree_get(tree, id, &e);
		if (e.type != TREE_REGULAR || e.content != TREE_LOCAL ||
		    (e.flags & (TREE_LOG | TREE_TORN)) || tree_identity(tree, id) != id)
			continue;
		torn = find_torn(r, e.u.version);
		if (!torn)
			continue;
		if (tree_path(tree, id, &path))
			return -ENOMEM;
		log_error("epoch %" PRIu64 ": %s: %s since the machine last ran", number,
			  buf_str(&path), torn->why);
		if (named++ < NAMED_MAX)
			buf_printf(out, "%s%s: %s", out->len ? "; " : "", buf_str(&path),
				   torn->why);
	}
	return buf_error(out);
}

/* The record says that the epoch is not complete, and why. */
static int blame_locked(struct volume *vol, struct state_epoch *row, const struct buf *why)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_buf struct buf reason = {0}, json = {0};
	int error = record_decode(row->record, strlen(row->record), &record);

	if (error)
		return error;
	buf_printf(&reason, "%s%s%.*s", record.reason ? record.reason : "",
		   record.reason ? "; " : "", (int)why->len, (const char *)why->data);
	if (buf_error(&reason))
		return -ENOMEM;
	free(record.reason);
	record.reason = strdup(buf_str(&reason));
	record.complete = RECORD_INCOMPLETE;
	error = record.reason ? record_encode(&record, &json) : -ENOMEM;
	if (error)
		return error;
	free(row->record);
	row->record = strdup(buf_str(&json));
	return row->record ? state_epoch_set(vol->state, row) : -ENOMEM;
}

/* An epoch whose listing is gone is none: its number becomes a tombstone, and what it held is in the
 * live tree, which the next epoch takes. */
static int give_up_locked(struct volume *vol, struct recovery *r, struct state_epoch *row)
{
	int error;

	log_error("epoch %" PRIu64 ": its listing was not written out when the machine ended: it "
		  "is dropped, and what the live tree has goes into the next one",
		  row->number);
	free(steal_ptr(row->record));
	row->state = EPOCH_DROPPED;
	row->remote_delete_pending = true;
	r->killed = true;
	error = state_epoch_set(vol->state, row);
	if (!error)
		error = announce_locked(vol, ANNOUNCE_DROPPED, row);
	return error ? error : state_set_meta_u64(vol->state, "unsealed", UNSEALED_OPENS);
}

static int check_epoch_locked(struct volume *vol, struct recovery *r, uint64_t number)
{
	cleanup_tree struct tree *tree = NULL;
	cleanup_buf struct buf why = {0};
	struct state_epoch row;
	int error = trees_load(vol, number, &tree);
	bool gone = error == -ENOENT || error == -EBADMSG;

	if (!error)
		error = name_torn(r, number, tree, &why);
	if (error && !gone)
		return error;
	if (!gone && !why.len)
		return 0;
	error = state_epoch_get(vol->state, number, &row);
	if (error)
		return error;
	error = gone ? give_up_locked(vol, r, &row) : blame_locked(vol, &row, &why);
	state_epoch_free(&row);
	return error;
}

/* ---- what the remote has ---- */

static int take_record_locked(struct volume *vol, struct state_epoch *row, const char *text)
{
	int error = state_begin(vol->state);

	if (error)
		return error;
	free(row->record);
	free(steal_ptr(row->error));
	row->record = strdup(text);
	row->state = EPOCH_DURABLE;
	error = row->record ? state_epoch_set(vol->state, row) : -ENOMEM;
	if (!error)
		error = announce_locked(vol, ANNOUNCE_DURABLE, row);
	error = state_end(vol->state, error);
	/* It may name what is gone here; the remote's is fetched when it is looked into. */
	if (!error)
		trees_remove(vol, row->number);
	return error;
}

/* Takes over the record that the remote has of this epoch, if that is the one which was sealed here. Drops the lock while
 * it asks. */
static int settle_epoch_locked(struct volume *vol, uint64_t number, bool *ret_durable)
{
	cleanup_record struct epoch_record here = {0}, there = {0};
	struct state_epoch row;
	char *text = NULL;
	int error;

	*ret_durable = false;
	mutex_unlock(&vol->lock);
	error = records_get(vol->remote, number, &there, &text);
	mutex_lock(&vol->lock);
	if (error) /* a tombstone, or damaged: the uploader says what to do */
		return error == -ENOENT || error == -EBADMSG ? 0 : error;
	error = state_epoch_get(vol->state, number, &row);
	if (!error) {
		error = record_decode(row.record, strlen(row.record), &here);
		if (!error && records_same_epoch(&here, &there)) {
			error = take_record_locked(vol, &row, text);
			*ret_durable = !error;
		}
		state_epoch_free(&row);
	}
	free(text);
	return error;
}

int settle_epochs_locked(struct volume *vol, struct recovery *r)
{
	struct number_list pending = {0};
	bool durable = true;
	int error = state_epoch_each(vol->state, collect_pending, &pending);

	/* They are uploaded in their order. */
	for (size_t i = 0; !error && durable && i < pending.count; i++)
		if (!nodes_is_part(pending.number[i])) {
			error = settle_epoch_locked(vol, pending.number[i], &durable);
			r->settled = r->settled || durable;
		}
	free(pending.number);
	return error;
}

int check_epochs_locked(struct volume *vol, struct recovery *r)
{
	struct number_list pending = {0};
	int error = 0;

	if (r->torn_count || r->rebooted)
		error = state_epoch_each(vol->state, collect_pending, &pending);
	for (size_t i = 0; !error && i < pending.count; i++)
		error = check_epoch_locked(vol, r, pending.number[i]);
	free(pending.number);
	/* The live tree is no longer what the remote has of it. */
	if (!error && r->settled && r->torn_count)
		error = state_set_meta_u64(vol->state, "unsealed", UNSEALED_OPENS);
	return error;
}
