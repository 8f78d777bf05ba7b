/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs and tags of the remote, taken into the local state. */
#include "lib/volume/adopt.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "lib/util/log.h"
#include "lib/volume/adopt_tree.h"
#include "lib/volume/records.h"
#include "lib/volume/trees.h"

struct adoption {
	struct volume *vol;
	uint64_t newest;	    /* with a record that is whole; 0: none came */
	uint64_t highest;	    /* of any number, tombstones and damaged ones too */
	struct epoch_record record; /* of `newest` */
};

/* A row for an epoch that is new to this machine. With the lock, in a transaction. */
static int adopt_epoch_locked(struct adoption *a, const struct record_found *found)
{
	struct state_epoch row;
	int error = state_epoch_get(a->vol->state, found->number, &row);

	if (error == 0) {
		state_epoch_free(&row);
		return 0;
	}
	if (error != -ENOENT)
		return error;
	row = (struct state_epoch){
		.number = found->number,
		.state = found->record ? EPOCH_DURABLE : EPOCH_DROPPED,
		.record = found->record ? (char *)(uintptr_t)found->text : NULL,
	};
	error = state_epoch_set(a->vol->state, &row);
	if (error || !found->record || found->number < a->newest)
		return error;
	record_free(&a->record);
	a->newest = found->number;
	return record_copy(found->record, &a->record);
}

static int supersede_locked(struct volume *vol, uint64_t number)
{
	struct state_epoch row;
	int error = state_epoch_get(vol->state, number, &row);

	if (error)
		return error == -ENOENT ? 0 : error;
	row.superseded = true;
	error = state_epoch_set(vol->state, &row);
	state_epoch_free(&row);
	return error;
}

static int adopt_epoch(void *arg, const struct record_found *found)
{
	struct adoption *a = arg;
	int error;

	if (found->number > a->highest)
		a->highest = found->number;
	/* A damaged record is no tombstone: its epoch may be mended, so no row of ours hides it. */
	if (!found->record && !found->dropped)
		return 0;
	pthread_mutex_lock(&a->vol->lock);
	error = state_begin(a->vol->state);
	if (!error) {
		error = adopt_epoch_locked(a, found);
		if (!error && found->record && found->record->continues)
			error = supersede_locked(a->vol, found->record->continues);
		error = state_end(a->vol->state, error);
	}
	pthread_mutex_unlock(&a->vol->lock);
	return error;
}

static int adopt_tag(void *arg, const char *name, uint64_t number)
{
	struct volume *vol = arg;
	uint64_t here;
	int error = 0;

	pthread_mutex_lock(&vol->lock);
	if (state_tag_get(vol->state, name, &here) == -ENOENT) {
		error = state_tag_set(vol->state, name, number);
		if (!error)
			error = state_tag_synced(vol->state, name, number);
	}
	pthread_mutex_unlock(&vol->lock);
	return error;
}

/* Whether there is work that only this machine has: an epoch that is not durable, or changes since the last one. */
static bool has_own_work_locked(struct volume *vol)
{
	uint64_t number, unsealed = 0;

	if (state_epoch_first_pending(vol->state, &number) == 0)
		return true;
	return state_get_meta_u64(vol->state, "unsealed", &unsealed) == 0 && unsealed != 0;
}

static int follow_newest(struct adoption *a)
{
	struct volume *vol = a->vol;
	cleanup_tree struct tree *tree = NULL;
	uint64_t current;
	bool own_work;
	int error;

	pthread_mutex_lock(&vol->lock);
	current = vol->current_epoch;
	own_work = has_own_work_locked(vol);
	pthread_mutex_unlock(&vol->lock);
	if (!a->newest || a->newest <= current)
		return 0;
	if (own_work) {
		log_error(
			"the remote has epoch %" PRIu64
			" from %s, and this machine has work that is not uploaded: the live tree stays as it is "
			"here, and cannot be uploaded; export what you need, then mount with another cache-dir",
			a->newest, a->record.host ? a->record.host : "another machine");
		return 0;
	}
	error = trees_fetch(vol, a->newest, &a->record, &tree);
	if (error) {
		log_error("epoch %" PRIu64 ": its tree cannot be read from the remote: %s",
			  a->newest, strerror(-error));
		return error;
	}
	return adopt_tree(vol, a->newest, tree);
}

static int set_next_epoch(struct volume *vol, uint64_t highest)
{
	int error = 0;

	pthread_mutex_lock(&vol->lock);
	if (highest >= vol->next_epoch) {
		error = state_set_meta_u64(vol->state, "next_epoch", highest + 1);
		if (!error)
			vol->next_epoch = highest + 1;
	}
	pthread_mutex_unlock(&vol->lock);
	return error;
}

int adopt_remote(struct volume *vol)
{
	struct adoption a = {.vol = vol};
	int error;

	if (vol->local_only)
		return 0;
	error = records_each(vol->remote, 0, adopt_epoch, &a);
	if (!error)
		error = records_tags(vol->remote, adopt_tag, vol);
	if (!error)
		error = follow_newest(&a);
	/* Where our own work has the next numbers already, the uploader meets the conflict and says so. */
	if (!error)
		error = set_next_epoch(vol, a.highest);
	record_free(&a.record);
	return error;
}
