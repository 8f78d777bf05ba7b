/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of several nodes: putting them together. */
#include "lib/upload/nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cache/trees.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/follow.h"
#include "lib/epochs/holder.h"
#include "lib/epochs/retention.h"
#include "lib/format/names.h"
#include "lib/meta/nodes_decide.h"
#include "lib/remote/remote.h"
#include "lib/store/store.h"
#include "lib/upload/upload_epoch.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

struct making {
	struct volume *vol;
	struct remote *remote;
	struct store *store;
	const struct nodes_known **parts; /* of the group, in order; owned */
	struct nodes_tree *trees;	  /* owned, with their trees */
	size_t count;
	struct nodes_merged merged;
	struct store_batch *batch;
	struct epoch_record record;
};

static void making_free(struct making *k)
{
	for (size_t i = 0; k->trees && i < k->count; i++) {
		tree_unref((struct tree *)(uintptr_t)k->trees[i].tree);
		tree_unref((struct tree *)(uintptr_t)k->trees[i].base);
	}
	free(k->trees);
	free(k->parts);
	nodes_merged_free(&k->merged);
	store_batch_free(k->batch);
	record_free(&k->record);
}

/* ---- the tree ---- */

static int get_tree(struct making *k, const struct epoch_record *record, struct tree **ret_tree)
{
	cleanup_buf struct buf data = {0};
	int error = store_get_tree(k->store, record, &data);
	void *bytes;
	size_t len;

	if (error)
		return error;
	bytes = buf_steal(&data, &len);
	error = tree_decode(bytes, len, 0, ret_tree);
	if (error)
		free(bytes);
	return error;
}

/* NULL where the part began from nothing, or from what is gone: then nothing counts as inherited. */
static int get_base(struct making *k, uint64_t base, struct tree **ret_tree)
{
	struct epoch_info info;
	int error = base ? epochs_get(k->vol, base, &info) : -ENOENT;

	if (!error) {
		error = trees_fetch(k->vol, base, &info.record, ret_tree);
		epoch_info_free(&info);
	}
	if (error == -ENOENT)
		*ret_tree = NULL;
	return error == -ENOENT ? 0 : error;
}

static int load_trees(struct making *k)
{
	int error = 0;

	k->trees = calloc(k->count, sizeof(*k->trees));
	if (!k->trees)
		return -ENOMEM;
	for (size_t i = 0; !error && i < k->count; i++) {
		const struct epoch_record *r = &k->parts[i]->record;
		struct tree *tree = NULL, *base = NULL;

		error = get_tree(k, r, &tree);
		if (!error)
			error = get_base(k, r->part.base, &base);
		k->trees[i] = (struct nodes_tree){.node = r->part.node,
						  .tree = tree,
						  .base = base,
						  .base_number = r->part.base};
	}
	return error;
}

static int set_counts(struct making *k)
{
	struct tree_counts counts;
	struct tree *tree;
	void *copy = malloc(k->merged.tree.len);
	int error;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, k->merged.tree.data, k->merged.tree.len);
	error = tree_decode(copy, k->merged.tree.len, 0, &tree);
	if (error) {
		free(copy);
		return error;
	}
	tree_get_counts(tree, &counts);
	tree_unref(tree);
	k->record.files = counts.files;
	k->record.directories = counts.directories;
	k->record.symlinks = counts.symlinks;
	k->record.specials = counts.specials;
	k->record.bytes = counts.bytes;
	return 0;
}

/* What the store adds to the record is of the merged tree alone; the parts have said what is theirs. */
static int store_tree(struct making *k, uint64_t number)
{
	struct epoch_record *r = &k->record;
	uint64_t fresh = r->bytes_new, stored = r->bytes_stored;
	struct store_stats stats;
	int error = upload_gc_heed(k->remote, k->store);

	if (!error)
		error = store_batch_begin(k->store, number, &k->batch);
	if (!error)
		error = store_put_tree(k->batch, k->merged.tree.data, k->merged.tree.len, r);
	r->bytes_new = r->bytes_stored = 0;
	if (!error)
		error = store_batch_finish(k->batch, r, &stats);
	r->bytes_new = fresh;
	r->bytes_stored += stored;
	return error;
}

static void take_conflicts(struct making *k)
{
	struct epoch_record *r = &k->record;

	r->conflicts = calloc(k->merged.conflict_count + 1, sizeof(*r->conflicts));
	if (!r->conflicts)
		return;
	for (size_t i = 0; i < k->merged.conflict_count; i++)
		r->conflicts[i] = steal_ptr(k->merged.conflicts[i]);
	r->conflict_count = k->merged.conflict_count;
	k->merged.conflict_count = 0;
}

/* ---- the record ---- */

static void tell(const struct epoch_record *r)
{
	cleanup_buf struct buf names = {0};
	char step[32] = "";

	for (size_t i = 0; i < r->node_count; i++)
		buf_printf(&names, "%s%s", i ? " " : "", r->node_names[i]);
	if (r->has_step)
		snprintf(step, sizeof(step), ", step %" PRIu64, r->step);
	if (r->complete == RECORD_INCOMPLETE)
		log_warn("epoch %" PRIu64 " of nodes %s%s is not complete: %s", r->number,
			 buf_str(&names), step, r->reason ? r->reason : "?");
	else
		log_info("epoch %" PRIu64 " is complete: nodes %s%s", r->number, buf_str(&names),
			 step);
	for (size_t i = 0; i < r->conflict_count; i++)
		log_warn("epoch %" PRIu64 ": %s", r->number, r->conflicts[i]);
}

/* What other nodes have stored is not here. */
static int no_local(void *arg, const struct hash *recipe, uint64_t size)
{
	(void)arg, (void)recipe, (void)size;
	return -ENOENT;
}

static uint64_t since(const struct epoch_record *before, const struct record_doubt *d,
		      uint64_t number)
{
	for (size_t i = 0; i < before->doubt_count; i++)
		if (before->doubts[i].at_ns == d->at_ns && !strcmp(before->doubts[i].path, d->path))
			return before->doubts[i].since;
	return number;
}

/* What a node has in doubt since one of its parts is so since the epoch that had that, which may be an earlier one. */
static int name_since(struct making *k, uint64_t number, uint64_t parent)
{
	cleanup_record struct epoch_record before = {0};
	struct record_doubt *d = k->record.doubts;
	bool asked = false;

	for (size_t i = 0; i < k->record.doubt_count; i++) {
		if (!nodes_is_part(d[i].since))
			continue;
		if (!asked && parent && records_get(k->remote, parent, &before, NULL) == -ENOMEM)
			return -ENOMEM;
		asked = true;
		d[i].since = since(&before, &d[i], number);
	}
	return 0;
}

/* -EEXIST: another node was faster, or put another epoch. */
static int put_record(struct making *k, uint64_t number, uint64_t parent)
{
	struct upload_gc gc = {.vol = k->vol,
			       .remote = k->remote,
			       .store = k->store,
			       .record = &k->record,
			       .tree = &k->merged.tree,
			       .local = no_local};
	cleanup_buf struct buf json = {0};
	struct record_found found = {.number = number, .record = &k->record};
	char key[KEY_MAX];
	int error;

	k->record.number = number;
	k->record.parent = parent;
	error = name_since(k, number, parent);
	if (!error)
		error = upload_gc_keep(&gc, false);
	k->record.durable_ns = clock_wall_ns();
	if (!error)
		error = record_encode(&k->record, &json);
	if (!error)
		error = holder_confirm(k->vol, k->remote, 0);
	FAULT_POINT("nodes.tree");
	if (error)
		return error;
	epoch_key(number, key);
	error = remote_put_if_absent(k->remote, key, json.data, json.len);
	FAULT_POINT("nodes.record");
	if (!error)
		error = upload_gc_keep(&gc, true);
	if (error)
		return error;
	found.text = buf_str(&json);
	tell(&k->record);
	error = follow_record(k->vol, &found);
	if (error)
		return error;
	retention_completed(k->vol);
	error = records_summarize(k->remote, number);
	if (error)
		log_warn("the summary of epochs up to %" PRIu64 " was not written: %s", number,
			 strerror(-error));
	return 0;
}

/* ---- one epoch ---- */

static int fill_record(struct making *k, const struct nodes_part *parts,
		       const struct nodes_group *group, bool over)
{
	char **missing = NULL;
	size_t missing_count = 0;
	int error = 0;

	if (group->verdict == NODES_CLOSED)
		error = nodes_missing(k->vol->nodes, parts, group, &missing, &missing_count);
	if (!error)
		error = nodes_record(k->vol, k->parts, k->count, group, over, missing,
				     missing_count, &k->record);
	nodes_names_free(missing, missing_count);
	return error;
}

static int make_epoch(struct making *k, const struct nodes_part *parts,
		      const struct nodes_group *group)
{
	struct node_set *n = k->vol->nodes;
	uint64_t number, parent;
	bool over;
	int error;

	mutex_lock(&n->lock);
	number = n->highest + 1;
	parent = n->newest;
	over = parts[group->parts[0]].place.generation < n->complete_generation;
	mutex_unlock(&n->lock);
	k->parts = calloc(group->count, sizeof(*k->parts));
	if (!k->parts)
		return -ENOMEM;
	k->count = group->count;
	for (size_t i = 0; i < group->count; i++)
		k->parts[i] = &n->known[group->parts[i]];
	error = fill_record(k, parts, group, over);
	if (!error)
		error = load_trees(k);
	if (!error)
		error = nodes_merge(k->trees, k->count, &k->merged);
	if (!error)
		error = set_counts(k);
	if (!error)
		error = store_tree(k, number);
	if (error)
		return error;
	take_conflicts(k);
	return put_record(k, number, parent);
}

/* What no longer tells anything: epochs have it, and a later one of its node is complete, or a later attempt. */
static bool is_garbage(const struct node_set *n, const struct nodes_part *parts,
		       const struct nodes_group *groups, size_t count, const struct nodes_part *p)
{
	const struct nodes_group *own = NULL;

	for (size_t i = 0; i < count; i++)
		if (nodes_place_equal(&parts[groups[i].parts[0]].place, &p->place))
			own = &groups[i];
	if (!own || own->verdict != NODES_MERGED)
		return false;
	if (p->place.generation < n->complete_generation)
		return true;
	for (size_t i = 0; i < count; i++) {
		const struct nodes_group *g = &groups[i];

		if (g == own || g->verdict != NODES_MERGED || g->count < g->nodes ||
		    parts[g->parts[0]].place.generation != p->place.generation)
			continue;
		for (size_t k = 0; k < g->count; k++)
			if (!strcmp(parts[g->parts[k]].node, p->node) &&
			    parts[g->parts[k]].sequence > p->sequence)
				return true;
	}
	return false;
}

static int delete_garbage(struct node_set *n, struct remote *remote, const struct nodes_part *parts,
			  size_t part_count, const struct nodes_group *groups, size_t count)
{
	struct remote_keys old = {0};
	int error = 0;

	for (size_t i = 0; !error && i < part_count; i++) {
		const struct nodes_part *p = &parts[i];
		char key[KEY_MAX];

		if (!is_garbage(n, parts, groups, count, p))
			continue;
		part_key(p->place.generation, p->sequence, p->node, key);
		error = remote_keys_add(&old, key);
	}
	if (!error)
		error = remote_keys_delete(remote, &old);
	remote_keys_free(&old);
	return error;
}

/* ---- a pass ---- */

struct damage {
	struct nodes_place *places;
	size_t count;
};

static bool is_damaged(const struct damage *d, const struct nodes_place *place)
{
	for (size_t i = 0; i < d->count; i++)
		if (nodes_place_equal(&d->places[i], place))
			return true;
	return false;
}

static int note_damage(struct damage *d, const struct nodes_place *place, int error)
{
	struct nodes_place *grown = reallocarray(d->places, d->count + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	log_error("an epoch of several nodes (attempt %" PRIu64 ", %s %" PRIu64
		  ") cannot be put together: %s; its parts stay",
		  place->generation, place->has_step ? "step" : "part",
		  place->has_step ? place->step : place->count, strerror(-error));
	d->places = grown;
	grown[d->count++] = *place;
	return 0;
}

/* 1: something changed, look again. */
static int act(struct making *k, struct damage *d, const struct nodes_part *parts,
	       const struct nodes_group *groups, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct nodes_place *place = &parts[groups[i].parts[0]].place;
		int error;

		if (groups[i].verdict != NODES_WHOLE && groups[i].verdict != NODES_CLOSED)
			continue;
		if (is_damaged(d, place))
			continue;
		error = make_epoch(k, parts, &groups[i]);
		if (error == -EBADMSG || error == -EIO)
			error = note_damage(d, place, error);
		return error && error != -EEXIST ? error : 1;
	}
	return 0;
}

static int judge_and_act(struct making *k, struct damage *d)
{
	struct node_set *n = k->vol->nodes;
	cleanup_free struct nodes_part *parts = NULL;
	struct nodes_group *groups = NULL;
	size_t part_count = 0, count = 0;
	uint64_t open;
	int error = nodes_list(n, &parts, &part_count);

	if (!error)
		error = nodes_note_bases(n);
	mutex_lock(&n->lock);
	/* One writer alone: whatever set there was, it is over. */
	open = n->set ? n->complete_generation : UINT64_MAX;
	mutex_unlock(&n->lock);
	if (!error)
		error = nodes_groups(parts, part_count, open, &groups, &count);
	if (!error)
		error = nodes_publish(n, parts, groups, count);
	if (!error)
		error = act(k, d, parts, groups, count);
	if (!error)
		error = delete_garbage(n, k->remote, parts, part_count, groups, count);
	nodes_groups_free(groups, count);
	return error;
}

static int look_and_act(struct volume *vol, struct remote *remote, struct store *store,
			struct damage *d)
{
	CLEANUP(making_free) struct making k = {.vol = vol, .remote = remote, .store = store};
	struct node_set *n = vol->nodes;
	int error = nodes_look(n, remote);

	if (error || (!n->set && !n->known_count))
		return error;
	/* After the parts: what came before them is known when they are judged. */
	error = follow_newer(vol, remote);
	return error ? error : judge_and_act(&k, d);
}

int nodes_complete(struct volume *vol, struct remote *remote, struct store *store)
{
	struct damage d = {0};
	uint64_t put;
	int error;

	mutex_lock(&vol->lock);
	put = vol->nodes->put;
	mutex_unlock(&vol->lock);
	do
		error = look_and_act(vol, remote, store, &d);
	while (error == 1);
	free(d.places);
	if (error)
		return error;
	SCOPED_LOCK(&vol->lock);
	vol->nodes->looked = put;
	pthread_cond_broadcast(&vol->changed);
	return 0;
}
