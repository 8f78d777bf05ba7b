/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing tags and drops to the remote. */
#include "lib/upload/upload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/epochs/holder.h"
#include "lib/epochs/seal.h"
#include "lib/format/names.h"
#include "lib/meta/records.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* A row of changes asks once a second whether they are ours to make. */
#define CONFIRMED_NS (1 * NS_PER_S)
/* So many drops, then the next epoch: a long row of them must not keep what was saved from being safe. */
#define DROPS_AT_ONCE 8

/* Numbers or names are collected under the lock, and worked off without it. */
struct change {
	char *tag; /* NULL: a drop */
	uint64_t number;
	char *record; /* of a drop: the epoch as it was here, or NULL */
};

struct changes {
	struct change *list;
	size_t count, cap;
};

static void changes_free(struct changes *c)
{
	for (size_t i = 0; i < c->count; i++) {
		free(c->list[i].tag);
		free(c->list[i].record);
	}
	free(c->list);
}

static int add_change(struct changes *c, const char *tag, uint64_t number, const char *record)
{
	char *tag_copy = tag ? strdup(tag) : NULL, *record_copied = record ? strdup(record) : NULL;

	if (c->count == c->cap) {
		size_t cap = c->cap ? 2 * c->cap : 16;
		struct change *grown = realloc(c->list, cap * sizeof(*grown));

		if (grown) {
			c->list = grown;
			c->cap = cap;
		}
	}
	if (c->count == c->cap || (tag && !tag_copy) || (record && !record_copied)) {
		free(tag_copy);
		free(record_copied);
		return -ENOMEM;
	}
	c->list[c->count++] = (struct change){tag_copy, number, record_copied};
	return 0;
}

static int collect_drop(void *arg, const struct state_epoch *e)
{
	return e->state == EPOCH_DROPPED ? add_change(arg, NULL, e->number, e->record) : 0;
}

static int collect_tag(void *arg, const char *name, uint64_t number)
{
	return add_change(arg, name, number, NULL);
}

static int forget_drop(struct volume *vol, uint64_t number)
{
	struct state_epoch row;
	int error;

	mutex_lock(&vol->lock);
	error = state_epoch_get(vol->state, number, &row);
	if (!error) {
		row.remote_delete_pending = false;
		free(row.record);
		row.record = NULL;
		error = state_epoch_set(vol->state, &row);
		state_epoch_free(&row);
	}
	mutex_unlock(&vol->lock);
	return error;
}

static bool is_durable(struct volume *vol, uint64_t number)
{
	struct state_epoch row;
	bool durable = false;

	mutex_lock(&vol->lock);
	if (state_epoch_get(vol->state, number, &row) == 0) {
		durable = row.state == EPOCH_DURABLE;
		state_epoch_free(&row);
	}
	mutex_unlock(&vol->lock);
	return durable;
}

static int put_tag(struct volume *vol, struct remote *remote, const struct change *c)
{
	char key[KEY_MAX], text[TAG_TEXT_MAX];
	int error = tag_key(c->tag, key);

	if (error || (c->number && !is_durable(vol, c->number)))
		return 0;
	tag_text(c->number, text);
	error = c->number ? remote_put(remote, key, text, strlen(text))
			  : remote_delete(remote, key);
	if (error)
		return error;
	mutex_lock(&vol->lock);
	error = state_tag_synced(vol->state, c->tag, c->number);
	mutex_unlock(&vol->lock);
	return error;
}

static int put_drop(struct volume *vol, struct remote *remote, const struct change *c)
{
	int error = records_drop(remote, c->number, c->record);

	if (error == -EEXIST) {
		log_error("epoch %" PRIu64 " was dropped here, but in the remote this number is "
			  "another writer's: that one stays",
			  c->number);
		error = 0;
	}
	if (!error)
		error = forget_drop(vol, c->number);
	if (!error)
		collector_kick(vol);
	return error;
}

/* The number of the newest epoch that is complete and durable; 0: none. */
static int newest_durable_locked(struct volume *vol, uint64_t pending, uint64_t *ret_number)
{
	const struct epoch_index *x = epochs_index_locked(vol);

	if (!x)
		return -EIO;
	*ret_number = 0;
	for (size_t i = x->count; i-- > 0;)
		if (x->epochs[i].number < pending && epoch_brief_complete(&x->epochs[i])) {
			*ret_number = x->epochs[i].number;
			break;
		}
	return 0;
}

/* Whether a rollback is among the epochs that wait. */
static bool rollback_waits_locked(struct volume *vol, uint64_t pending)
{
	const struct epoch_index *x = epochs_index_locked(vol);

	for (size_t i = x ? x->count : 0; i-- > 0 && x->epochs[i].number >= pending;)
		if (x->epochs[i].trigger == RECORD_TRIGGER_ROLLBACK)
			return true;
	return false;
}

/*
 * What may go to the remote now: tags first, so that none names a tombstone. While epochs wait for
 * their upload, a drop that is newer than the newest whole epoch there waits for them: the remote is never without one.
 * While a rollback waits, every drop does: what it brought back may be in the remote for the sake of the
 * epoch alone that it brought it back from, and be evicted here.
 */
static int collect_locked(struct volume *vol, struct changes *ret_changes)
{
	uint64_t pending = UINT64_MAX, newest = 0;
	bool hold = false;
	int error = state_epoch_first_pending(vol->state, &pending);
	size_t kept;

	if (error == -ENOENT)
		newest = UINT64_MAX;
	else if (!error)
		error = newest_durable_locked(vol, pending, &newest);
	if (error && error != -ENOENT)
		return error;
	hold = !error && rollback_waits_locked(vol, pending);
	error = state_tag_each_unsynced(vol->state, collect_tag, ret_changes);
	if (!error)
		error = state_epoch_each_delete(vol->state, collect_drop, ret_changes);
	kept = 0;
	for (size_t i = 0; i < ret_changes->count; i++) {
		struct change *c = &ret_changes->list[i];

		if (c->tag || (!hold && c->number < newest))
			ret_changes->list[kept++] = *c;
		else
			free(c->record);
	}
	ret_changes->count = kept;
	return error;
}

int upload_changes(struct volume *vol, struct remote *remote, bool *ret_more)
{
	struct changes changes = {0};
	unsigned drops = 0;
	size_t i;
	int error;

	mutex_lock(&vol->lock);
	error = collect_locked(vol, &changes);
	mutex_unlock(&vol->lock);
	for (i = 0; !error && i < changes.count && drops < DROPS_AT_ONCE; i++) {
		const struct change *c = &changes.list[i];

		error = holder_confirm(vol, remote, CONFIRMED_NS);
		if (error)
			break;
		error = c->tag ? put_tag(vol, remote, c) : put_drop(vol, remote, c);
		drops += !c->tag;
	}
	if (!error)
		*ret_more = i < changes.count;
	changes_free(&changes);
	return error;
}
