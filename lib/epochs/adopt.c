/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs and tags of the remote, taken into the local state, and which of them the live tree becomes. */
#include "lib/epochs/adopt.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cache/trees.h"
#include "lib/epochs/announce.h"
#include "lib/epochs/follow.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"
#include "lib/format/names.h"
#include "lib/meta/records.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

struct adoption {
	struct volume *vol;
	uint64_t newest;      /* with a record that is whole, in the remote and here; 0: none */
	uint64_t passed_over; /* one that was newer: a part of what several nodes saved */
	uint64_t highest;     /* of any number, tombstones and damaged ones too */
};

/* ---- epochs ---- */

static int new_epoch_locked(struct volume *vol, const struct record_found *found)
{
	struct state_epoch row = {
		.number = found->number,
		.state = found->record ? EPOCH_DURABLE : EPOCH_DROPPED,
		.record = found->record ? (char *)(uintptr_t)found->text : NULL,
	};

	int error;

	/* A tree of this number that was made here and never became an epoch. */
	trees_remove(vol, found->number);
	error = state_epoch_set(vol->state, &row);
	/* Of several nodes, each tells of the epochs that they made together. */
	if (!error && found->record && nodes_has_begun_locked(vol))
		error = announce_locked(vol, ANNOUNCE_DURABLE, &row);
	return error;
}

/* Another machine dropped it. */
static int drop_locked(struct volume *vol, uint64_t number, bool superseded)
{
	struct state_epoch row = {
		.number = number, .state = EPOCH_DROPPED, .superseded = superseded};
	int error;

	trees_remove(vol, number);
	error = state_epoch_set(vol->state, &row);
	return error ? error : announce_locked(vol, ANNOUNCE_DROPPED, &row);
}

/* Also in the remote, as far as is known here. */
static bool is_dropped(const struct state_epoch *row)
{
	return row->state == EPOCH_DROPPED && !row->remote_delete_pending;
}

/*
 * Whether the epoch, which was dropped, is there again: by its own object, for a summary may still have what was dropped since. An error counts as
 * no: it is asked again next time.
 */
static bool is_back(struct volume *vol, const struct record_found *found)
{
	cleanup_record struct epoch_record there = {0};
	struct state_epoch row;
	bool dropped = false;

	mutex_lock(&vol->lock);
	if (state_epoch_get(vol->state, found->number, &row) == 0) {
		dropped = is_dropped(&row);
		state_epoch_free(&row);
	}
	mutex_unlock(&vol->lock);
	return !dropped || records_get(vol->remote, found->number, &there, NULL) == 0;
}

/* Somebody brought back what was dropped. */
static int revive_locked(struct volume *vol, struct state_epoch *row,
			 const struct record_found *found)
{
	struct state_epoch back = {.number = found->number,
				   .state = EPOCH_DURABLE,
				   .record = (char *)(uintptr_t)found->text,
				   .superseded = row->superseded};
	int error = state_epoch_set(vol->state, &back);

	return error ? error : announce_locked(vol, ANNOUNCE_UNDROPPED, &back);
}

/* With the lock, in a transaction. */
static int adopt_epoch_locked(struct volume *vol, const struct record_found *found)
{
	struct state_epoch row;
	enum epoch_state state;
	bool known, superseded;
	int error = state_epoch_get(vol->state, found->number, &row);

	if (error && error != -ENOENT)
		return error;
	known = !error;
	state = known ? row.state : EPOCH_DURABLE;
	superseded = known && row.superseded;
	if (!known)
		error = new_epoch_locked(vol, found);
	else if (found->record && is_dropped(&row))
		error = revive_locked(vol, &row, found);
	if (known)
		state_epoch_free(&row);
	/* What the live tree stands on stays listed for as long as it does. */
	if (!error && found->dropped && state == EPOCH_DURABLE &&
	    found->number != vol->current_epoch)
		error = drop_locked(vol, found->number, superseded);
	return error;
}

int adopt_record(struct volume *vol, const struct record_found *found)
{
	int error = nodes_note_record(vol, found);

	if (error)
		return error;
	/* A damaged record is no tombstone: its epoch may be repaired, so no row of ours hides it. */
	if ((!found->record && !found->dropped) || (found->record && !is_back(vol, found)))
		return 0;
	SCOPED_LOCK(&vol->lock);
	error = state_begin(vol->state);
	if (error)
		return error;
	error = adopt_epoch_locked(vol, found);
	if (!error && found->continues)
		error = epochs_supersede_locked(vol, found->continues, found->continues_from,
						found->number);
	return state_end(vol->state, error);
}

/*
 * An epoch of several nodes that has not the files of all, or came when a later attempt had gone on. Nodes begin from the
 * newest complete one, and so does a mount alone: nothing in such a tree is in doubt, so its next epoch would be complete.
 */
static bool is_part_of_an_attempt(const struct epoch_record *r)
{
	bool doubtful = false;

	for (size_t i = 0; i < r->doubt_count; i++)
		doubtful = doubtful || r->doubts[i].counts;
	return r->nodes && r->complete == RECORD_INCOMPLETE &&
	       (r->part_count < r->nodes || !doubtful);
}

static int adopt_epoch(void *arg, const struct record_found *found)
{
	struct adoption *a = arg;
	struct state_epoch row;
	int error = adopt_record(a->vol, found);

	if (found->number > a->highest)
		a->highest = found->number;
	if (found->dropped && !error)
		error = follow_note_tombstone(a->vol, found);
	if (error || !found->record)
		return error;
	SCOPED_LOCK(&a->vol->lock);
	error = state_epoch_get(a->vol->state, found->number, &row);
	if (error)
		return error;
	if (row.state == EPOCH_DURABLE && !a->vol->options.read_only &&
	    is_part_of_an_attempt(found->record))
		a->passed_over = found->number;
	else if (row.state == EPOCH_DURABLE)
		a->newest = found->number;
	state_epoch_free(&row);
	return 0;
}

static int set_next_epoch(struct volume *vol, uint64_t highest, struct opening_message *m)
{
	int error = 0;

	if (highest >= INT64_MAX)
		return opening_fail(
			m, -EBADMSG,
			"%s: an epoch has the last number that there is: see epochfs fsck",
			remote_name(vol->remote));
	mutex_lock(&vol->lock);
	if (highest >= vol->next_epoch) {
		error = state_set_meta_u64(vol->state, "next_epoch", highest + 1);
		if (!error)
			vol->next_epoch = highest + 1;
	}
	mutex_unlock(&vol->lock);
	return error;
}

/* ---- tags ---- */

struct remote_tag {
	char name[TAG_NAME_MAX + 1];
	uint64_t number; /* 0: damaged, so what is here stays */
};

static int collect_tag(void *arg, const char *name, uint64_t number)
{
	struct remote_tag tag = {.number = number};
	struct buf *tags = arg;

	snprintf(tag.name, sizeof(tag.name), "%s", name);
	buf_put(tags, &tag, sizeof(tag));
	return buf_error(tags);
}

static bool has_tag(const struct buf *tags, const char *name)
{
	const struct remote_tag *t = (const struct remote_tag *)tags->data;

	for (size_t i = 0; i < tags->len / sizeof(*t); i++)
		if (!strcmp(t[i].name, name))
			return true;
	return false;
}

static int set_tag_locked(struct volume *vol, const char *name, uint64_t number)
{
	int error = number ? state_tag_set(vol->state, name, number)
			   : state_tag_remove(vol->state, name);

	return error ? error : state_tag_synced(vol->state, name, number);
}

/* `ours` are changes that the remote has not seen. */
static int adopt_tags_locked(struct volume *vol, const struct buf *there, const struct buf *here,
			     const struct buf *ours)
{
	const struct remote_tag *t = (const struct remote_tag *)there->data;
	const struct remote_tag *h = (const struct remote_tag *)here->data;
	uint64_t number;
	int error = 0;

	for (size_t i = 0; !error && i < there->len / sizeof(*t); i++)
		if (t[i].number && !has_tag(ours, t[i].name) &&
		    (state_tag_get(vol->state, t[i].name, &number) || number != t[i].number))
			error = set_tag_locked(vol, t[i].name, t[i].number);
	for (size_t i = 0; !error && i < here->len / sizeof(*h); i++)
		if (!has_tag(ours, h[i].name) && !has_tag(there, h[i].name))
			error = set_tag_locked(vol, h[i].name, 0);
	return error;
}

int adopt_tags(struct volume *vol)
{
	cleanup_buf struct buf there = {0}, here = {0}, ours = {0};
	int error = records_tags(vol->remote, collect_tag, &there);
	SCOPED_LOCK(&vol->lock);

	if (!error)
		error = state_tag_each(vol->state, collect_tag, &here);
	if (!error)
		error = state_tag_each_unsynced(vol->state, collect_tag, &ours);
	if (!error)
		error = state_begin(vol->state);
	return error ? error : state_end(vol->state, adopt_tags_locked(vol, &there, &here, &ours));
}

/* ---- the live tree ---- */

static int record_of(struct volume *vol, uint64_t number, struct epoch_record *ret_record)
{
	struct state_epoch row;
	int error;

	mutex_lock(&vol->lock);
	error = state_epoch_get(vol->state, number, &row);
	mutex_unlock(&vol->lock);
	if (error)
		return error;
	error = row.record ? record_decode(row.record, strlen(row.record), ret_record) : -EBADMSG;
	state_epoch_free(&row);
	return error;
}

/* The live tree stays as it is here. What has no number yet will be an epoch after all others. */
static int part(struct adoption *a, const char *host, bool pending, bool unsealed)
{
	int error = 0;

	log_error("epoch %" PRIu64
		  " in the remote is from %s, and this machine has work of its own: "
		  "the live tree stays as it is here%s",
		  a->newest, host ? host : "another machine",
		  pending ? ", but its epochs cannot be uploaded; export what you need, then mount "
			    "with another cache-dir"
			  : " and becomes the next epoch");
	/* By its number alone it would look older than the epochs that came. */
	if (unsealed) {
		SCOPED_LOCK(&a->vol->lock);
		error = state_set_meta_u64(a->vol->state, "unsealed", UNSEALED_OPENS);
	}
	return error;
}

static int damaged_tree(struct adoption *a, int error, struct opening_message *m)
{
	struct volume *vol = a->vol;
	struct remote_state remote = {0};

	remote_get_state(vol->remote, &remote);
	if (error == -EIO && remote.failures)
		return error;
	if (error != -EIO && error != -EBADMSG && error != -ENOENT)
		return error;
	log_error("epoch %" PRIu64 ": its tree is damaged or missing in the remote", a->newest);
	/* Then nobody sees the live tree. */
	if (vol->options.at_epoch)
		return 0;
	return opening_fail(m, -EBADMSG,
			    "%s: the tree of epoch %" PRIu64 ", the newest, is damaged or missing: "
			    "see epochfs fsck; an older epoch can be mounted with -o ro,epoch=N",
			    remote_name(vol->remote), a->newest);
}

struct earlier {
	uint64_t half;	/* the epoch whose half of a save the newest has: itself, or before it */
	uint64_t save;	/* the one before that save; 0: none, or it is no half */
	uint64_t whole; /* the newest complete one, where the newest is not complete; 0: none */
};

/* The newest that is left from before this number; 0: none. */
static uint64_t before_dropped(const struct epoch_index *x, uint64_t number)
{
	uint64_t before = 0;

	for (size_t i = 0; i < x->count && x->epochs[i].number < number; i++)
		before = x->epochs[i].number;
	return before;
}

/* Where the newest was sealed by itself, it may be half of a save. */
static int find_earlier(struct volume *vol, uint64_t newest, struct earlier *ret)
{
	CLEANUP(epoch_index_free) struct epoch_index x = {0};
	const struct epoch_brief *e;
	int error;

	*ret = (struct earlier){.half = newest};
	mutex_lock(&vol->lock);
	error = epochs_index_load_locked(vol, &x);
	mutex_unlock(&vol->lock);
	e = error ? NULL : epoch_index_find(&x, newest);
	if (!e)
		return error;
	if (!epoch_brief_complete(e))
		ret->whole = epoch_index_latest(&x);
	ret->half = epoch_index_same_half(&x, newest);
	if (ret->half != newest && !epoch_index_find(&x, ret->half))
		ret->save = before_dropped(&x, ret->half);
	e = epoch_index_find(&x, ret->half);
	if (!e || !e->has_step || record_trigger_by_hand(e->trigger))
		return 0;
	/* Downwards only: a record that was made to lead in a circle ends it. */
	for (uint64_t number = e->number; e; e = epoch_index_find(&x, number)) {
		ret->save = e->parent;
		if (!e->continues || e->continues >= number)
			break;
		number = e->continues;
	}
	return 0;
}

/* NULL where it is not to be had, as where it was dropped: then it tells nothing. */
static int fetch_earlier(struct volume *vol, uint64_t number, struct tree **ret_tree)
{
	cleanup_record struct epoch_record record = {0};
	int error = number ? record_of(vol, number, &record) : 0;

	if (error || !number)
		return error == -ENOMEM ? error : 0;
	error = trees_fetch(vol, number, &record, ret_tree);
	if (error && error != -ENOMEM)
		log_debug("epoch %" PRIu64 ": what was saved since cannot be told: %s", number,
			  strerror(-error));
	return error == -ENOMEM ? error : 0;
}

static int adopt_newest(struct volume *vol, uint64_t newest, const struct tree *tree)
{
	cleanup_tree struct tree *save = NULL, *whole = NULL;
	struct adopt_before before;
	struct earlier earlier;
	int error = find_earlier(vol, newest, &earlier);

	if (!error)
		error = fetch_earlier(vol, earlier.save, &save);
	if (!error)
		error = fetch_earlier(vol, earlier.whole, &whole);
	if (error)
		return error;
	before = (struct adopt_before){save, earlier.half, whole, earlier.whole};
	return adopt_tree(vol, newest, tree, &before);
}

static int follow_newest(struct adoption *a, struct opening_message *m)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_tree struct tree *tree = NULL;
	struct volume *vol = a->vol;
	uint64_t current;
	bool pending;
	int unsealed, error;

	mutex_lock(&vol->lock);
	current = vol->current_epoch;
	pending = state_epoch_pending_in(vol->state, 0, 0);
	unsealed = sealer_left_changes_locked(vol);
	mutex_unlock(&vol->lock);
	if (unsealed < 0)
		return unsealed;
	if (a->passed_over > a->newest && a->passed_over > current)
		log_warn(
			"epoch %" PRIu64
			" is not complete: several nodes wrote it, and it is passed over; the live "
			"tree goes on from epoch %" PRIu64,
			a->passed_over, a->newest > current ? a->newest : current);
	if (a->newest <= current)
		return 0;
	error = record_of(vol, a->newest, &record);
	if (error)
		return error;
	if (pending || unsealed)
		return part(a, record.host, pending, unsealed);
	error = trees_fetch(vol, a->newest, &record, &tree);
	if (error)
		return damaged_tree(a, error, m);
	error = adopt_newest(vol, a->newest, tree);
	if (error)
		return error;
	SCOPED_LOCK(&vol->lock);
	sealer_renames_adopt_locked(vol, record.renames);
	return 0;
}

static int note_durable(void *arg, const struct state_epoch *e)
{
	uint64_t *highest = arg;

	/* Numbers of parts of several nodes are none of epochs. */
	if (e->state == EPOCH_DURABLE && !nodes_is_part(e->number) && e->number > *highest)
		*highest = e->number;
	return 0;
}

/* Dropped epochs leave tombstones, so the numbers in a remote never go back by themselves. */
static int check_not_put_back(struct adoption *a)
{
	struct volume *vol = a->vol;
	uint64_t durable = 0;
	int error;

	mutex_lock(&vol->lock);
	error = state_epoch_each(vol->state, note_durable, &durable);
	mutex_unlock(&vol->lock);
	if (!error && durable > a->highest)
		log_error(
			"epoch %" PRIu64 " was in %s once, and now the last there is %" PRIu64
			": the remote was put back to an earlier state, or epochs were deleted in "
			"it; what is local is kept",
			durable, remote_name(vol->remote), a->highest);
	return error;
}

int adopt_remote(struct volume *vol, adopt_complete_fn *complete, struct opening_message *m)
{
	struct adoption a = {.vol = vol};
	uint64_t used = 0;
	int error;

	if (vol->local_only)
		return 0;
	error = records_each_used(vol->remote, 0, adopt_epoch, &a, &used);
	if (!error)
		error = check_not_put_back(&a);
	/* Parts that nobody put together any more, where all their nodes died. */
	if (!error && vol->nodes)
		error = complete(vol, vol->remote, vol->store);
	if (!error)
		error = records_each(vol->remote, a.highest, adopt_epoch, &a);
	if (!error)
		error = adopt_tags(vol);
	/* What a node of a set begins from is decided once it is open. */
	if (error || nodes_is_set(vol))
		return error;
	if (!error)
		error = follow_newest(&a, m);
	/* Where our own work has the next numbers already, the uploader meets the conflict and says so. */
	if (!error)
		error = set_next_epoch(vol, used > a.highest ? used : a.highest, m);
	return error;
}
