/* SPDX-License-Identifier: Apache-2.0 */
/* Rollback: a new epoch with an old one's tree, which the live tree then equals. */
#include "lib/epochs/rollback.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "lib/cache/reclaim.h"
#include "lib/cache/trees.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/seal.h"
#include "lib/live/body.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* Tries until nothing came between: a write, or the upload that makes the old epoch durable. */
#define TRIES 8

/* One that is asked for, or that comes by itself. */
struct target {
	uint64_t number;
	bool keep_logs;
};

/* What it has. */
struct source {
	struct tree *tree;
	struct record_doubt *doubts; /* beside those of its record */
	size_t doubt_count;
};

static void source_free(struct source *from)
{
	tree_unref(from->tree);
	record_doubts_free(from->doubts, from->doubt_count);
}

static int apply_in_transaction(struct volume *vol, const struct target *to,
				const struct source *from, struct rollback_notice *notice)
{
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = rollback_apply_locked(vol, to->number, from->tree, to->keep_logs, notice);
	/* Should the daemon end before the new epoch has begun, the next mount seals it. */
	if (!error)
		error = state_set_meta_u64(vol->state, "unsealed", UNSEALED_OPENS);
	if (!error)
		error = doubts_of_epoch_locked(vol, to->number);
	if (!error)
		error = doubts_add_locked(vol, from->doubts, from->doubt_count);
	return state_end(vol->state, error);
}

/* What is pending becomes an epoch first, whole, before anything is taken back: a crash in between
 * loses nothing. */
static int seal_pending(struct volume *vol)
{
	struct seal_how how = {.trigger = RECORD_TRIGGER_ROLLBACK};
	uint64_t number = INT64_MAX;
	int error = 0;

	mutex_lock(&vol->lock);
	if (seal_needed_locked(vol))
		error = seal_begin_locked(vol, &how, &number);
	mutex_unlock(&vol->lock);
	return error ? error : seal_finish_until(vol, number);
}

/*
 * Nothing is pending any more, so a killed writer, whose file is undone or in torn/, is none of what the new epoch holds:
 * that is as complete as the one whose tree it is.
 */
static void take_completeness_locked(struct volume *vol, const struct epoch_brief *old)
{
	struct pending *p = &vol->sealer->pending;
	char reason[80];

	free(steal_ptr(p->reason));
	p->killed = false;
	p->unknown = old->unknown;
	if (!old->unknown && !epoch_brief_complete(old)) {
		snprintf(reason, sizeof(reason),
			 "it restores epoch %" PRIu64 ", which is not complete", old->number);
		pending_add_reason(p, reason);
	}
}

/* -ESTALE: try again. */
static int rollback_locked(struct volume *vol, const struct target *to, const struct source *from,
			   bool last_try, struct rollback_notice *notice, uint64_t *ret_new)
{
	struct seal_how how = {.trigger = RECORD_TRIGGER_ROLLBACK};
	const struct epoch_index *x = epochs_index_locked(vol);
	const struct epoch_brief *old = x ? epoch_index_find(x, to->number) : NULL;
	uint64_t pending;
	int error = old ? 0 : -ENOENT;

	/* Somebody goes on writing: what came since belongs to an epoch, too. */
	if (!error && seal_needed_locked(vol))
		error = last_try ? seal_begin_locked(vol, &how, &pending) : -ESTALE;
	if (!error) {
		bodies_keep_names_locked(vol, to->keep_logs);
		error = apply_in_transaction(vol, to, from, notice);
	}
	if (error)
		return error;
	FAULT_POINT("rollback.applied");
	bodies_tear_writers_locked(vol);
	vol->sealer->pending.opens = true;
	take_completeness_locked(vol, old);
	how.restores = to->number;
	how.has_step = old->has_step;
	how.step = old->step;
	return seal_begin_locked(vol, &how, ret_new);
}

static int try_rollback(struct volume *vol, const struct target *to, bool last_try,
			uint64_t *ret_new)
{
	CLEANUP(source_free) struct source from = {0};
	struct rollback_notice notice = {0};
	int error = seal_pending(vol);

	if (!error)
		error = epochs_tree(vol, to->number, &from.tree);
	if (!error)
		error = rollback_half(vol, to->number, from.tree, &from.doubts, &from.doubt_count);
	if (error)
		return error;
	mutex_lock(&vol->lock);
	error = rollback_locked(vol, to, &from, last_try, &notice, ret_new);
	mutex_unlock(&vol->lock);
	rollback_notice_tell(vol, &notice);
	return error;
}

static int roll_back(struct volume *vol, const struct target *to, uint64_t *ret_new)
{
	uint64_t new_number = 0;
	int error = -ESTALE;

	for (int i = 1; error == -ESTALE && i <= TRIES; i++)
		error = try_rollback(vol, to, i == TRIES, &new_number);
	if (!error)
		error = seal_finish_until(vol, new_number);
	versions_reclaim(vol);
	if (error) {
		log_error("cannot roll back to epoch %" PRIu64 ": %s", to->number,
			  strerror(-error));
		return error == -ESTALE ? -EIO : error;
	}
	log_info("rolled back to epoch %" PRIu64 ": epoch %" PRIu64 " has its tree", to->number,
		 new_number);
	*ret_new = new_number;
	return 0;
}

int epochs_rollback(struct volume *vol, uint64_t number, uint64_t *ret_new)
{
	const struct target to = {.number = number};
	struct epoch_info info;
	int error;

	if (vol->options.read_only)
		return -EROFS;
	if (nodes_is_set(vol))
		return -EOPNOTSUPP;
	error = epochs_get(vol, number, &info); /* before anything is sealed for it */
	if (error)
		return error;
	epoch_info_free(&info);
	error = bodies_finish_closes(vol);
	return error ? error : roll_back(vol, &to, ret_new);
}

/* What the live tree stands on, where that is not complete, and where it can go back to. */
static void look_back(struct volume *vol, struct resumed *done)
{
	const struct epoch_index *x;
	const struct epoch_brief *e;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	e = x ? epoch_index_find(x, vol->current_epoch) : NULL;
	if (!e || e->unknown || epoch_brief_complete(e))
		return;
	done->left = e->number;
	/* Where its writers could not be seen, an epoch may hold a whole save: better than to go back past it. */
	done->to = epoch_index_whole(x);
}

int epochs_go_back(struct volume *vol, struct resumed *ret_done)
{
	struct target to = {.keep_logs = true};
	int error = seal_pending(vol);

	*ret_done = (struct resumed){0};
	if (error)
		return error;
	look_back(vol, ret_done);
	to.number = ret_done->to;
	FAULT_POINT("resume.sealed");
	return to.number ? roll_back(vol, &to, &ret_done->as) : 0;
}
