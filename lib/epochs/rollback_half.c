/* SPDX-License-Identifier: Apache-2.0 */
/* Rollback to an epoch that is not complete, though no file of it is in doubt: its tree may be half of a save. */
#include "lib/epochs/rollback.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include "lib/epochs/epochs.h"
#include "lib/epochs/record_fill.h"
#include "lib/epochs/seal.h"
#include "lib/format/tree_diff.h"
#include "lib/meta/doubts.h"
#include "lib/meta/partial_save.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

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
