/* SPDX-License-Identifier: Apache-2.0 */
/* What an epoch's record says of its tree and of who made it, and whether it is complete. */
#include "lib/epochs/record_fill.h"

#include <errno.h>
#include <pwd.h>
#include <string.h>

#include "lib/cache/trees.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/seal.h"
#include "lib/format/tree_diff.h"
#include "lib/meta/record_metadata.h"
#include "lib/util/lock.h"

struct difference {
	const struct rules *rules;
	struct epoch_record *record;
	struct step_votes votes;
	uint64_t inline_new;
};

/* Content that the tree holds itself, and that it did not hold before under this name. */
static void count_inline(struct difference *d, const struct tree_change *c)
{
	if (c->kind != TREE_REMOVED && (c->kind == TREE_ADDED || c->content) &&
	    c->new_entry->content == TREE_INLINE)
		d->inline_new += c->new_entry->size;
}

static int count_change(const struct tree_change *c, void *arg)
{
	struct difference *d = arg;

	count_inline(d, c);
	if (!tree_change_counts(c))
		return 0;
	if (c->kind == TREE_ADDED)
		d->record->added++;
	else if (c->kind == TREE_REMOVED)
		d->record->removed++;
	else
		d->record->changed++;
	if (c->kind == TREE_REMOVED || (c->kind == TREE_CHANGED && !c->content) ||
	    c->new_entry->type != TREE_REGULAR || (c->new_entry->flags & TREE_LOG))
		return 0;
	return step_votes_add(&d->votes, d->rules, c->path);
}

/* For the first epoch: a tree with the same root and nothing else, so that everything is added. */
int tree_empty_like(const struct tree *tree, struct tree **ret_tree)
{
	struct tree_entry root;

	tree_get(tree, 0, &root);
	return tree_of_root(&root, ret_tree);
}

static int compare(const struct record_source *from, struct difference *d)
{
	cleanup_tree struct tree *empty = NULL;
	int error = from->before ? 0 : tree_empty_like(from->tree, &empty);

	return error ? error
		     : tree_diff(from->before ? from->before : empty, from->tree, count_change, d);
}

int record_set_text(char **ret_text, const char *text)
{
	if (!text || !*text)
		return 0;
	*ret_text = strdup(text);
	return *ret_text ? 0 : -ENOMEM;
}

static int set_user(struct epoch_record *r)
{
	struct passwd entry, *found = NULL;
	char text[1024], number[16];

	if (getpwuid_r(getuid(), &entry, text, sizeof(text), &found) == 0 && found)
		return record_set_text(&r->user, entry.pw_name);
	snprintf(number, sizeof(number), "%u", (unsigned)getuid());
	return record_set_text(&r->user, number);
}

static int set_texts(const struct record_source *from, struct epoch_record *r)
{
	const struct volume *vol = from->vol;
	int error =
		record_set_text(&r->message, from->message ? from->message : vol->options.message);

	if (!error)
		error = record_set_text(&r->host, vol->node_name);
	if (!error)
		error = record_set_text(&r->run_id, vol->run_id);
	if (!error)
		error = record_set_text(&r->db_type, vol->options.db_type);
	if (!error)
		error = metadata_set(r, from->metadata);
	return error ? error : set_user(r);
}

static int set_step(const struct record_source *from, const struct step_votes *votes,
		    struct epoch_record *r)
{
	const struct step_candidate *winner = step_votes_winner(votes);

	if (from->has_step) {
		r->has_step = true;
		r->step = from->step;
		return 0;
	}
	if (!winner || r->restores)
		return 0;
	r->has_step = true;
	r->step = winner->step;
	return record_set_text(&r->step_name, winner->name);
}

static void set_counts(const struct tree *tree, struct epoch_record *r)
{
	struct tree_counts counts;

	tree_get_counts(tree, &counts);
	r->files = counts.files;
	r->directories = counts.directories;
	r->symlinks = counts.symlinks;
	r->specials = counts.specials;
	r->bytes = counts.bytes;
}

int record_fill(const struct record_source *from, struct epoch_record *r, uint64_t *ret_inline_new)
{
	struct difference d = {.rules = from->rules, .record = r};
	int error;

	memcpy(r->volume, from->vol->uuid, sizeof(r->volume));
	set_counts(from->tree, r);
	error = compare(from, &d);
	if (!error)
		error = set_texts(from, r);
	if (!error)
		error = set_step(from, &d.votes, r);
	step_votes_free(&d.votes);
	if (!error && ret_inline_new)
		*ret_inline_new = d.inline_new;
	return error;
}

bool record_continues(bool both_have_steps, bool same_step, bool in_chain)
{
	return both_have_steps ? same_step : !in_chain;
}

/* ---- The record of a sealed epoch. ---- */

static int set_complete(const struct seal_job *job, struct freeze_result const *frozen,
			const struct epoch_record *before, struct epoch_record *r)
{
	cleanup_buf struct buf reason = {0};

	r->complete = job->pending.unknown ? RECORD_UNKNOWN : RECORD_COMPLETE;
	if (!job->pending.reason && !frozen->reason.len && !doubts_counting(frozen->doubts))
		return 0;
	r->complete = RECORD_INCOMPLETE;
	r->doubted = !job->pending.reason && !frozen->reason.len;
	if (job->pending.reason)
		buf_printf(&reason, "%s", job->pending.reason);
	if (frozen->reason.len)
		buf_printf(&reason, "%s%.*s", reason.len ? "; " : "", (int)frozen->reason.len,
			   (const char *)frozen->reason.data);
	doubts_reason(frozen->doubts, before, &reason);
	return buf_error(&reason) ? -ENOMEM : record_set_text(&r->reason, buf_str(&reason));
}

/* Whether it is complete, and what is in doubt. */
static int set_doubts(struct volume *vol, const struct seal_job *job,
		      const struct freeze_result *frozen, struct epoch_record *r)
{
	cleanup_record struct epoch_record before = {0};
	size_t count;
	int error = 0;

	/* It says since when the doubts are. */
	doubts_list(frozen->doubts, &count);
	if (count)
		error = doubts_record_of(vol, job->restores ? job->restores : job->parent, &before);
	if (!error)
		error = set_complete(job, frozen, &before, r);
	if (!error)
		error = doubts_newest_to_record(frozen->doubts, vol->rules, r);
	return error || !count ? error : doubts_to_record(frozen->doubts, &before, r);
}

/* What the next machine is to know of how saves end. */
static int set_renames(struct volume *vol, struct epoch_record *r)
{
	char text[SEAL_RENAMES_TEXT];

	mutex_lock(&vol->lock);
	sealer_renames_text_locked(vol, text);
	mutex_unlock(&vol->lock);
	return text[0] ? record_set_text(&r->renames, text) : 0;
}

static bool tree_has_step(const struct rules *rules, const struct tree *tree, uint64_t step)
{
	for (uint32_t id = 0; id < tree_count(tree); id++) {
		cleanup_buf struct buf path = {0};
		struct step_place place;
		struct tree_entry e;

		tree_get(tree, id, &e);
		if (e.type == TREE_REGULAR && tree_path(tree, id, &path) == 0 &&
		    rules_step(rules, buf_str(&path), &place) && place.step == step)
			return true;
	}
	return false;
}

/* Epochs that are not complete are looked through for a step. */
#define STEP_LOOKS 100

/* Who states that the tree is whole means the last save, whose epochs were not complete, unless something has another step since. */
static int take_step(struct volume *vol, const struct seal_job *job, const struct tree *tree,
		     struct epoch_record *r)
{
	uint64_t number = job->parent;

	for (unsigned i = 0; job->whole && !r->has_step && number && i < STEP_LOOKS; i++) {
		cleanup_record struct epoch_record before = {0};
		int error = doubts_record_of(vol, number, &before);

		if (error || before.complete == RECORD_COMPLETE)
			return error;
		number = before.parent < number ? before.parent : 0;
		if (!before.has_step)
			continue;
		if (!tree_has_step(vol->rules, tree, before.step))
			return 0;
		r->has_step = true;
		r->step = before.step;
		return before.step_name ? record_set_text(&r->step_name, before.step_name) : 0;
	}
	return 0;
}

int seal_record(struct volume *vol, const struct seal_job *job, const struct freeze_result *frozen,
		struct tree *tree, struct epoch_record *ret_record)
{
	cleanup_record struct epoch_record r = {
		.number = job->number,
		.parent = job->parent,
		.trigger = job->trigger,
		.restores = job->restores,
		.opened_ns = job->pending.opened_ns ? job->pending.opened_ns : job->sealed_ns,
		.sealed_ns = job->sealed_ns,
		.bytes_new = frozen->bytes_new,
	};
	cleanup_tree struct tree *before = NULL;
	struct record_source from = {
		.vol = vol,
		.rules = vol->rules,
		.tree = tree,
		.message = job->message,
		.metadata = job->metadata,
		.has_step = job->has_step,
		.step = job->step,
	};
	int error;

	if (job->pending.content_ns > job->pending.opened_mono_ns)
		r.save_ns = (uint64_t)(job->pending.content_ns - job->pending.opened_mono_ns);
	/* What is not here (never, but after damage) is not worth waiting for the remote. */
	if (trees_load(vol, job->parent, &before) == 0)
		from.before = before;
	error = record_fill(&from, &r, NULL);
	if (!error)
		error = take_step(vol, job, tree, &r);
	if (!error)
		error = set_doubts(vol, job, frozen, &r);
	if (!error)
		error = set_renames(vol, &r);
	if (error)
		return error;
	*ret_record = r;
	r = (struct epoch_record){0};
	return 0;
}
