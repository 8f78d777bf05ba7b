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
#include "lib/epochs/record_fill.h"
#include "lib/epochs/seal.h"
#include "lib/format/tree_diff.h"
#include "lib/live/body.h"
#include "lib/meta/doubts.h"
#include "lib/meta/partial_save.h"
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
	error = rollback_apply_locked(vol, to->number, from->tree,
				      to->keep_logs ? ROLLBACK_KEEP_LOGS : ROLLBACK_ALL, notice);
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

	doubts_look_at_temporaries(vol);
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

/* ---- to an epoch that is not complete, though no file of it is in doubt: its tree may be half of a save ---- */

struct finding {
	struct volume *vol;
	const struct epoch_info *info; /* of the epoch that is restored */
	const struct tree *tree;       /* its tree */
	struct partial_save *half;
};

/* ---- the epochs around it ---- */

/* The epoch at the end of those that continue this one, or the half that it has, one by one; 0: none is left. */
static uint64_t end_of_save(struct volume *vol, uint64_t number)
{
	const struct epoch_index *x;
	const struct epoch_brief *e;
	uint64_t end = 0, half;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	e = x ? epoch_index_find(x, number) : NULL;
	half = e && e->half && !e->continues ? e->half : number;
	for (size_t i = 0; x && i < x->count; i++)
		if (x->epochs[i].number > number && x->epochs[i].continues == (end ? end : half))
			end = x->epochs[i].number;
	return end;
}

/* The newest complete one from before that save: those that it continues are not. 0: there is none. */
static uint64_t before_save(struct volume *vol, uint64_t number)
{
	const struct epoch_index *x;
	uint64_t before = 0;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	for (size_t i = 0; x && i < x->count && x->epochs[i].number < number; i++)
		if (epoch_brief_complete(&x->epochs[i]))
			before = x->epochs[i].number;
	return before;
}

/* NULL where it is not to be had: then it tells nothing. -ENOMEM. */
static int tree_of(struct volume *vol, uint64_t number, struct tree **ret_tree)
{
	int error = number ? epochs_tree(vol, number, ret_tree) : 0;

	if (error && error != -ENOMEM)
		log_warn("epoch %" PRIu64 ": what a save has changed since cannot be told: %s",
			 number, strerror(-error));
	return error == -ENOMEM ? error : 0;
}

/* ---- what the save had changed, and the rest of it ---- */

static bool is_file(const struct finding *f, const struct tree_entry *e)
{
	return e && e->type == TREE_REGULAR && !(e->flags & TREE_LOG) &&
	       !rules_log(f->vol->rules, e->name, NULL);
}

static int note_changed(const struct tree_change *c, void *arg)
{
	const struct finding *f = arg;

	if (!is_file(f, c->new_entry) || (c->kind == TREE_CHANGED && !c->content))
		return 0;
	return partial_save_add_changed(f->half, c->path, c->new_entry->mtime_ns);
}

static int note_rest(const struct tree_change *c, void *arg)
{
	const struct finding *f = arg;

	if (!is_file(f, c->new_entry) || c->kind != TREE_ADDED)
		return 0;
	return partial_save_add_rest(f->half, c->path, c->new_entry->mtime_ns);
}

static int find_changed(const struct finding *f)
{
	cleanup_tree struct tree *before = NULL;
	int error = tree_of(f->vol, before_save(f->vol, f->info->number), &before);

	if (!error && !before)
		error = tree_empty_like(f->tree, &before);
	return error ? error : tree_diff(before, f->tree, note_changed, (void *)(uintptr_t)f);
}

static bool is_in_doubt(const struct epoch_record *r, const char *path)
{
	for (size_t i = 0; i < r->doubt_count; i++)
		if (!strcmp(r->doubts[i].path, path))
			return true;
	return false;
}

/* Of a file whose writer was killed then, the tree at the end of that save says nothing. */
static int find_killed(const struct finding *f, uint64_t end)
{
	struct epoch_info info = {0};
	int error = epochs_get(f->vol, end, &info);

	for (size_t i = 0; !error && i < info.record.doubt_count; i++) {
		const struct record_doubt *d = &info.record.doubts[i];

		if (doubt_kind_parse(d->kind) == DOUBT_UNDONE &&
		    !is_in_doubt(&f->info->record, d->path))
			error = partial_save_add_rest(f->half, d->path, INT64_MAX);
	}
	epoch_info_free(&info);
	return error == -ENOMEM ? error : 0;
}

static int find_rest(const struct finding *f)
{
	uint64_t end = end_of_save(f->vol, f->info->number);
	cleanup_tree struct tree *rest = NULL;
	int error = tree_of(f->vol, end, &rest);

	if (!error && rest)
		error = tree_diff(f->tree, rest, note_rest, (void *)(uintptr_t)f);
	return !error && end ? find_killed(f, end) : error;
}

/* ---- all of it ---- */

/* Of an epoch that a rollback made, the record names what the tree has in doubt. */
static bool is_half(const struct epoch_info *info)
{
	if (info->record.restores)
		return false;
	if (info->superseded)
		return true;
	for (size_t i = 0; i < info->record.doubt_count; i++)
		if (info->record.doubts[i].counts)
			return false;
	return info->record.complete == RECORD_INCOMPLETE;
}

int rollback_half(struct volume *vol, uint64_t number, const struct tree *tree,
		  struct record_doubt **ret_doubts, size_t *ret_count)
{
	cleanup_partial_save struct partial_save *half = NULL;
	struct epoch_info info = {0};
	struct finding f = {.vol = vol, .info = &info, .tree = tree};
	int error = epochs_get(vol, number, &info);

	if (!error && is_half(&info)) {
		error = partial_save_new(vol->rules, &half);
		f.half = half;
		if (!error)
			error = find_changed(&f);
		if (!error && info.superseded)
			error = find_rest(&f);
		if (!error)
			error = partial_save_doubts(half, number, ret_doubts, ret_count);
	}
	epoch_info_free(&info);
	return error;
}
