/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a sealed epoch: counts, what changed against its parent, the step label. */
#include "lib/volume/seal.h"

#include <errno.h>
#include <pwd.h>
#include <string.h>
#include "lib/format/tree_diff.h"
#include "lib/util/log.h"
#include "lib/volume/trees.h"

struct difference {
	const struct rules *rules;
	struct epoch_record *record;
	struct step_votes votes;
};

static int count_change(const struct tree_change *c, void *arg)
{
	struct difference *d = arg;

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
static int empty_tree(const struct tree *tree, struct tree **ret_tree)
{
	cleanup_tree_writer struct tree_writer *w = NULL;
	cleanup_buf struct buf data = {0};
	struct tree_entry root;
	int error = tree_writer_new(&data, 0, &w);
	size_t len;
	void *bytes;

	tree_get(tree, 0, &root);
	if (!error)
		error = tree_writer_add(w, &root);
	if (!error)
		error = tree_writer_finish(w);
	if (error)
		return error;
	bytes = buf_steal(&data, &len);
	error = tree_decode(bytes, len, 0, ret_tree);
	if (error)
		free(bytes);
	return error;
}

static int compare(struct volume *vol, uint64_t parent, struct tree *tree, struct difference *d)
{
	cleanup_tree struct tree *before = NULL;
	int error = trees_load(vol, parent, &before);

	/* What is not here (never, but after damage) is not worth waiting for the remote. */
	if (error)
		error = empty_tree(tree, &before);
	return error ? error : tree_diff(before, tree, count_change, d);
}

static int set_text(char **ret_text, const char *text)
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
		return set_text(&r->user, entry.pw_name);
	snprintf(number, sizeof(number), "%u", (unsigned)getuid());
	return set_text(&r->user, number);
}

static int set_texts(const struct volume *vol, const struct seal_job *job, struct epoch_record *r)
{
	int error = set_text(&r->message, job->message ? job->message : vol->options.message);

	if (!error)
		error = set_text(&r->host, vol->node_name);
	if (!error)
		error = set_text(&r->run_id, vol->run_id);
	return error ? error : set_user(r);
}

static int set_complete(const struct seal_job *job, struct freeze_result const *frozen,
			struct epoch_record *r)
{
	cleanup_buf struct buf reason = {0};

	r->complete = job->pending.unknown ? RECORD_UNKNOWN : RECORD_COMPLETE;
	if (!job->pending.reason && !frozen->reason.len)
		return 0;
	r->complete = RECORD_INCOMPLETE;
	if (job->pending.reason)
		buf_printf(&reason, "%s", job->pending.reason);
	if (frozen->reason.len)
		buf_printf(&reason, "%s%.*s", reason.len ? "; " : "", (int)frozen->reason.len,
			   (const char *)frozen->reason.data);
	return buf_error(&reason) ? -ENOMEM : set_text(&r->reason, buf_str(&reason));
}

static int set_step(const struct seal_job *job, const struct step_votes *votes,
		    struct epoch_record *r)
{
	const struct step_candidate *winner = step_votes_winner(votes);

	if (job->has_step) {
		r->has_step = true;
		r->step = job->step;
		return 0;
	}
	if (!winner || job->restores)
		return 0;
	r->has_step = true;
	r->step = winner->step;
	return set_text(&r->step_name, winner->name);
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
	struct difference d = {.rules = vol->sealer->rules, .record = &r};
	int error;

	memcpy(r.volume, vol->uuid, sizeof(r.volume));
	if (job->pending.content_ns > job->pending.opened_mono_ns)
		r.save_ns = (uint64_t)(job->pending.content_ns - job->pending.opened_mono_ns);
	set_counts(tree, &r);
	error = compare(vol, job->parent, tree, &d);
	if (!error)
		error = set_texts(vol, job, &r);
	if (!error)
		error = set_complete(job, frozen, &r);
	if (!error)
		error = set_step(job, &d.votes, &r);
	step_votes_free(&d.votes);
	if (error)
		return error;
	*ret_record = r;
	r = (struct epoch_record){0};
	return 0;
}
