/* SPDX-License-Identifier: Apache-2.0 */
/* A read-only volume follows its remote. */
#include "lib/epochs/follow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cache/contents.h"
#include "lib/cache/reclaim.h"
#include "lib/epochs/adopt.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/rollback.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"
#include "lib/meta/listing.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"

/* Of one that is to be looked at again. */
#define SIZE_UNKNOWN UINT64_MAX

struct follower {
	struct volume *vol;
	void (*pass_of_node)(struct volume *vol);
	struct background background;
	/* Of the thread alone. */
	struct buf seen; /* struct epoch_object each, ascending: all that the last pass had read */
	struct buf listed;  /* of the pass under way */
	struct buf dropped; /* uint64_t each: the tombstones that it has read */
	uint64_t
		again; /* a dropped epoch that stays until the live tree stands on another; 0: none */
	uint64_t damaged; /* the newest epoch whose tree could not be had, and was told of */

	/* Guarded by its background lock. */
	int error;	      /* of the last pass */
	int64_t refreshed_ns; /* wall clock: begin of the last pass that went well */
};

/* ---- epochs ---- */

static int compare_objects(const void *a, const void *b)
{
	const struct epoch_object *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static struct epoch_object *find_object(const struct buf *list, uint64_t number)
{
	const struct epoch_object wanted = {.number = number};

	return list->len ? bsearch(&wanted, list->data, list->len / sizeof(wanted), sizeof(wanted),
				   compare_objects)
			 : NULL;
}

/* Whether the row says just that. */
static bool has_row(struct volume *vol, uint64_t number, uint64_t size)
{
	struct state_epoch row;
	bool same;

	SCOPED_LOCK(&vol->lock);
	if (state_epoch_get(vol->state, number, &row) != 0)
		return false;
	same = row.state == EPOCH_DROPPED ||
	       (row.state == EPOCH_DURABLE && row.record && strlen(row.record) == size);
	state_epoch_free(&row);
	return same;
}

/* Dropped, by this machine too, and the remote knows it. */
static bool is_dropped_here(struct volume *vol, uint64_t number)
{
	const struct epoch_index *x;
	struct state_epoch row;
	bool dropped;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	if (!x || epoch_index_find(x, number) || state_epoch_get(vol->state, number, &row) != 0)
		return false;
	dropped = row.state == EPOCH_DROPPED && !row.remote_delete_pending;
	state_epoch_free(&row);
	return dropped;
}

/* What we dropped ourselves may be there again before its tombstone was ever seen: an object of the same size. */
static bool is_news(void *arg, uint64_t number, uint64_t size)
{
	struct follower *f = arg;
	const struct epoch_object *seen = find_object(&f->seen, number);
	const bool same = seen && seen->size == size;
	const struct epoch_object now = {number, size, same && seen->tombstone};

	buf_put(&f->listed, &now, sizeof(now));
	if (!seen)
		return !has_row(f->vol, number, size);
	return !same || (!seen->tombstone && is_dropped_here(f->vol, number));
}

/* Brings what is in memory up to date with the row: 1 where the epoch is dropped, and was not before. */
static int show_epoch_locked(struct volume *vol, const struct record_found *found)
{
	struct epoch_index *x = epochs_index_locked(vol);
	struct state_epoch row;
	int error = state_epoch_get(vol->state, found->number, &row);

	if (error || !x)
		return error == -ENOENT ? 0 : error ? error : -EIO;
	epoch_index_supersede(x, found->continues, found->continues_from, found->number);
	if (row.state == EPOCH_DURABLE && found->record)
		epochs_index_put_locked(vol, found->record, row.superseded);
	else if (row.state == EPOCH_DROPPED && epoch_index_find(x, found->number))
		error = 1;
	if (error)
		epoch_index_remove(x, found->number);
	state_epoch_free(&row);
	return error;
}

int follow_record(struct volume *vol, const struct record_found *found)
{
	int error = adopt_record(vol, found);

	if (error || !vol->sealer)
		return error;
	mutex_lock(&vol->lock);
	error = show_epoch_locked(vol, found);
	mutex_unlock(&vol->lock);
	if (error == 1) {
		log_info("epoch %" PRIu64 " was dropped elsewhere", found->number);
		volume_epoch_dropped(vol, found->number);
		error = 0;
	}
	return error;
}

int follow_note_tombstone(struct volume *vol, const struct record_found *found)
{
	const struct epoch_object o = {found->number, strlen(found->text), true};

	buf_put(&vol->tombstones, &o, sizeof(o));
	return buf_error(&vol->tombstones);
}

static int take_newer(void *arg, const struct record_found *found)
{
	return follow_record(arg, found);
}

int follow_newer(struct volume *vol, struct remote *remote)
{
	return records_each(remote, nodes_highest(vol), take_newer, vol);
}

static int take_epoch(void *arg, const struct record_found *found)
{
	struct follower *f = arg;
	struct volume *vol = f->vol;
	int error = follow_record(vol, found);

	if (error)
		return error;
	if (found->dropped)
		buf_put(&f->dropped, &found->number, sizeof(found->number));
	SCOPED_LOCK(&vol->lock);
	if (found->dropped && found->number == vol->current_epoch)
		f->again = found->number;
	return 0;
}

static void mark_tombstones(struct follower *f)
{
	for (size_t at = 0; at < f->dropped.len; at += sizeof(uint64_t)) {
		struct epoch_object *o;
		uint64_t number;

		memcpy(&number, f->dropped.data + at, sizeof(number));
		o = find_object(&f->listed, number);
		if (o)
			o->tombstone = true;
	}
}

static int follow_epochs(struct follower *f)
{
	struct epoch_object *again;
	int error;

	buf_reset(&f->listed);
	buf_reset(&f->dropped);
	f->again = 0;
	error = records_each_wanted(f->vol->remote, is_news, f, take_epoch, f);
	if (!error)
		error = buf_error(&f->listed);
	if (!error)
		error = buf_error(&f->dropped);
	if (error)
		return error;
	if (f->listed.len)
		qsort(f->listed.data, f->listed.len / sizeof(struct epoch_object),
		      sizeof(struct epoch_object), compare_objects);
	mark_tombstones(f);
	again = f->again ? find_object(&f->listed, f->again) : NULL;
	if (again)
		again->size = SIZE_UNKNOWN;
	buf_reset(&f->seen);
	buf_put(&f->seen, f->listed.data, f->listed.len);
	return buf_error(&f->seen);
}

/* ---- the live tree ---- */

/* The newest epoch, where the live tree is to follow; 0: it stays. */
static uint64_t next_tree_locked(struct volume *vol)
{
	const struct epoch_index *x = epochs_index_locked(vol);
	uint64_t newest = x ? epoch_index_newest(x) : 0;

	if (newest <= vol->current_epoch || state_epoch_pending_in(vol->state, 0, 0) ||
	    sealer_left_changes_locked(vol) != 0)
		return 0;
	return newest;
}

static int apply_locked(struct volume *vol, uint64_t number, const struct tree *tree,
			struct rollback_notice *notice)
{
	uint64_t next = vol->next_epoch;
	int error = state_begin(vol->state);

	if (error)
		return error;
	/* What comes was born in that epoch, and what goes was in none from then on. */
	vol->next_epoch = number;
	error = rollback_apply_locked(vol, number, tree, ROLLBACK_NEW_FILES, notice);
	if (!error)
		error = state_set_meta_u64(vol->state, "current", number);
	error = state_end(vol->state, error);
	vol->next_epoch = next > number ? next : number + 1;
	if (!error)
		vol->current_epoch = number;
	return error;
}

static void tell_damaged(struct follower *f, uint64_t number, int error)
{
	if (f->damaged != number)
		log_error("epoch %" PRIu64
			  ": its tree cannot be read (%s): the live tree stays on the "
			  "one before; epochfs fsck says more",
			  number, strerror(-error));
	f->damaged = number;
}

static int follow_tree(struct follower *f)
{
	cleanup_tree struct tree *tree = NULL;
	struct rollback_notice notice = {0};
	struct volume *vol = f->vol;
	uint64_t number;
	int error;

	mutex_lock(&vol->lock);
	number = next_tree_locked(vol);
	mutex_unlock(&vol->lock);
	if (!number)
		return 0;
	error = epochs_tree(vol, number, &tree);
	if (error == -EBADMSG || error == -EIO)
		tell_damaged(f, number, error);
	if (error)
		return error;
	mutex_lock(&vol->lock);
	error = apply_locked(vol, number, tree, &notice);
	mutex_unlock(&vol->lock);
	rollback_notice_tell(vol, &notice);
	if (error)
		return error;
	contents_learn(vol);
	versions_reclaim(vol);
	log_info("the live tree follows to epoch %" PRIu64, number);
	return 0;
}

/* ---- the thread ---- */

static void pass(struct follower *f)
{
	int64_t began_ns = clock_wall_ns();
	int error = follow_epochs(f);
	bool first;

	if (!error)
		error = adopt_tags(f->vol);
	if (!error && f->vol->options.read_only)
		error = follow_tree(f);
	if (!error && nodes_is_set(f->vol))
		f->pass_of_node(f->vol);
	mutex_lock(&f->background.lock);
	first = error && !f->error && !f->background.stops;
	f->error = error;
	if (!error)
		f->refreshed_ns = began_ns;
	mutex_unlock(&f->background.lock);
	if (first)
		log_warn("what is new in %s cannot be read: %s; it is tried again",
			 remote_name(f->vol->remote), strerror(-error));
}

static void *run(void *arg)
{
	struct follower *f = arg;

	while (background_next_until(&f->background, clock_mono_ns() + f->vol->options.refresh_ns))
		pass(f);
	return NULL;
}

int follower_start(struct volume *vol, void (*pass_of_node)(struct volume *vol))
{
	struct follower *f;
	int error;

	if ((!vol->options.read_only && !nodes_is_set(vol)) || vol->options.at_epoch ||
	    vol->local_only)
		return 0;
	f = calloc(1, sizeof(*f));
	if (!f)
		return -ENOMEM;
	error = background_init(&f->background, LOCK_FOLLOWER);
	if (error) {
		free(f);
		return error;
	}
	f->vol = vol;
	f->pass_of_node = pass_of_node;
	f->seen = vol->tombstones;
	vol->tombstones = (struct buf){0};
	f->refreshed_ns = clock_wall_ns();
	error = background_start(&f->background, run, f);
	if (error) {
		background_destroy(&f->background);
		buf_free(&f->seen);
		free(f);
		return error;
	}
	vol->follower = f;
	return 0;
}

void follower_stop(struct volume *vol)
{
	struct follower *f = vol->follower;

	background_tell_stop(&f->background);
	remote_cancel(vol->remote);
	background_join(&f->background);
	remote_resume(vol->remote);
	vol->follower = NULL;
	buf_free(&f->seen);
	buf_free(&f->listed);
	buf_free(&f->dropped);
	background_destroy(&f->background);
	free(f);
}

int follower_status(struct volume *vol, json_t *status)
{
	struct follower *f = vol->follower;
	json_t *follow;

	if (!f)
		return 0;
	SCOPED_LOCK(&f->background.lock);
	follow = json_pack("{s:I}", "refreshed_ns", (json_int_t)f->refreshed_ns);
	if (f->error)
		json_object_set_new(follow, "error", listing_string(strerror(-f->error)));
	return json_object_set_new(status, "follow", follow) ? -ENOMEM : 0;
}
