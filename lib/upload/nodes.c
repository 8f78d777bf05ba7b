/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of several nodes: opening, and what the live tree begins from. */
#include "lib/upload/nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/cache/reclaim.h"
#include "lib/cache/trees.h"
#include "lib/cache/uploads.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/follow.h"
#include "lib/epochs/holder.h"
#include "lib/epochs/rollback.h"
#include "lib/epochs/sealer.h"
#include "lib/format/names.h"
#include "lib/live/body.h"
#include "lib/meta/listing.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* ---- what status shows ---- */

static json_t *names_json(char **names, size_t count)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, json_string(names[i]));
	return list;
}

/* When the first part of the group came, by the clock of its node. */
static int64_t since(const struct node_set *n, const struct nodes_group *group)
{
	int64_t first = INT64_MAX;

	for (size_t i = 0; i < group->count; i++) {
		int64_t ns = n->known[group->parts[i]].record.durable_ns;

		if (ns < first)
			first = ns;
	}
	return first;
}

static json_t *group_json(struct node_set *n, const struct nodes_part *parts,
			  const struct nodes_group *group)
{
	const struct nodes_place *place = &parts[group->parts[0]].place;
	json_t *o = json_object(), *have = json_array();
	char **missing = NULL;
	size_t count = 0;

	if (nodes_missing(n, parts, group, &missing, &count) != 0) {
		json_decref(o);
		json_decref(have);
		return NULL;
	}
	if (place->has_step)
		json_object_set_new(o, "step", json_integer((json_int_t)place->step));
	else if (place->has_after)
		json_object_set_new(o, "after_step", json_integer((json_int_t)place->after));
	if (!place->has_step)
		json_object_set_new(o, "count", json_integer((json_int_t)place->count));
	json_object_set_new(o, "attempt", json_integer((json_int_t)place->generation));
	for (size_t i = 0; i < group->count; i++)
		json_array_append_new(have, json_string(parts[group->parts[i]].node));
	json_object_set_new(o, "have", have);
	json_object_set_new(o, "missing", names_json(missing, count));
	if (group->count + count < group->nodes)
		json_object_set_new(
			o, "never_came",
			json_integer((json_int_t)(group->nodes - group->count - count)));
	json_object_set_new(o, "since_ns", json_integer(since(n, group)));
	nodes_names_free(missing, count);
	return o;
}

int nodes_publish(struct node_set *n, const struct nodes_part *parts,
		  const struct nodes_group *groups, size_t count)
{
	json_t *waiting = json_array(), *old;

	for (size_t i = 0; waiting && i < count; i++)
		if (groups[i].verdict == NODES_WAITING &&
		    json_array_append_new(waiting, group_json(n, parts, &groups[i])) < 0) {
			json_decref(waiting);
			waiting = NULL;
		}
	if (!waiting)
		return -ENOMEM;
	mutex_lock(&n->lock);
	old = n->waiting;
	n->waiting = waiting;
	mutex_unlock(&n->lock);
	json_decref(old);
	return 0;
}

int nodes_status(struct volume *vol, json_t *status)
{
	struct node_set *n = vol->nodes;
	json_t *o;

	if (!nodes_is_set(vol))
		return 0;
	o = json_pack("{s:s, s:s, s:I}", "run", vol->run_id, "node", vol->node_name, "count",
		      (json_int_t)vol->options.nodes);
	if (!o)
		return -ENOMEM;
	mutex_lock(&vol->lock);
	json_object_set_new(o, "attempt", json_integer((json_int_t)n->generation));
	json_object_set_new(o, "began_from", json_integer((json_int_t)n->base));
	mutex_unlock(&vol->lock);
	mutex_lock(&n->lock);
	if (n->waiting)
		json_object_set_new(o, "waiting_for", json_deep_copy(n->waiting));
	mutex_unlock(&n->lock);
	return json_object_set_new(status, "nodes", o) ? -ENOMEM : 0;
}

static int add_record(void *arg, const struct record_found *found)
{
	return nodes_add_record(arg, found);
}

static int look_for_waiting(struct node_set *n, struct remote *remote)
{
	cleanup_free struct nodes_part *parts = NULL;
	struct nodes_group *groups = NULL;
	size_t part_count = 0, count = 0;
	int error = nodes_look(n, remote);

	if (!error && n->known_count)
		error = records_each(remote, 0, add_record, n);
	if (!error)
		error = nodes_list(n, &parts, &part_count);
	if (!error)
		error = nodes_groups(parts, part_count, n->complete_generation, &groups, &count);
	if (!error)
		error = nodes_publish(n, parts, groups, count);
	nodes_groups_free(groups, count);
	return error;
}

int nodes_waiting(struct remote *remote, json_t **ret_waiting)
{
	struct node_set n = {0};
	int error;

	mutex_init(&n.lock, LOCK_NODES);
	error = look_for_waiting(&n, remote);
	if (!error)
		*ret_waiting = steal_ptr(n.waiting);
	json_decref(n.waiting);
	nodes_made_free(&n);
	nodes_known_free(&n);
	mutex_destroy(&n.lock);
	return error;
}

/* Of the attempt that the cache's parts belong to. */
#define META_GENERATION "nodes_generation"
#define META_BASE	"nodes_base"
#define META_OLDEST	"nodes_oldest"

/* ---- opening ---- */

struct left {
	uint64_t parts, epochs; /* not uploaded, or not frozen */
};

static int count_left(void *arg, const struct state_epoch *e)
{
	struct left *left = arg;

	if (e->state != EPOCH_DURABLE && e->state != EPOCH_DROPPED)
		*(nodes_is_part(e->number) ? &left->parts : &left->epochs) += 1;
	return 0;
}

static uint64_t meta_or(struct volume *vol, const char *key, uint64_t fallback)
{
	uint64_t value = fallback;

	state_get_meta_u64(vol->state, key, &value);
	return value;
}

static int refuse(struct volume *vol, bool set, struct opening_message *m)
{
	return opening_fail(m, -EBUSY,
			    set ? "%s: the cache %s has epochs that this machine sealed for itself "
				  "and did not upload: mount it once without nodes=, unmount, and "
				  "mount it again"
				: "%s: the cache %s has parts that it sealed as one of several "
				  "nodes and did not upload: mount it with nodes= as before, or "
				  "with another cache-dir",
			    remote_name(vol->remote), vol->cache_path);
}

/* The cache goes from one kind of numbers to the other; nothing in it waits. */
static int change_kind_locked(struct volume *vol, bool set)
{
	uint64_t next = set ? NODES_FIRST + 1 : 1;
	int error = state_begin(vol->state);

	if (error)
		return error;
	if (!set)
		error = state_forget_numbers(vol->state, NODES_FIRST);
	if (!error)
		error = state_set_meta_u64(vol->state, "next_epoch", next);
	if (!error && !set)
		error = state_set_meta_u64(vol->state, "current", 0);
	error = state_end(vol->state, error);
	if (error)
		return error;
	vol->next_epoch = next;
	if (!set)
		vol->current_epoch = 0;
	return 0;
}

static int check_cache(struct volume *vol, struct opening_message *m)
{
	bool set = vol->nodes->set, was_set = nodes_is_part(vol->next_epoch);
	struct left left = {0};
	int unsealed, error;

	SCOPED_LOCK(&vol->lock);
	error = state_epoch_each(vol->state, count_left, &left);
	if (error || set == was_set)
		return error;
	unsealed = sealer_left_changes_locked(vol);
	if (unsealed < 0)
		return unsealed;
	if (unsealed || left.parts || left.epochs)
		return refuse(vol, set, m);
	return change_kind_locked(vol, set);
}

static void load_locked(struct volume *vol)
{
	struct node_set *n = vol->nodes;

	n->generation = meta_or(vol, META_GENERATION, 0);
	n->base = meta_or(vol, META_BASE, 0);
	n->oldest = meta_or(vol, META_OLDEST, NODES_FIRST + 1);
}

int nodes_open(struct volume *vol, struct opening_message *m)
{
	struct node_set *n;
	int error;

	if (vol->options.read_only || vol->local_only) {
		if (!vol->options.nodes || vol->options.read_only)
			return 0;
		return opening_fail(m, -EINVAL, "several nodes need a remote: `none` is of one");
	}
	if (vol->options.nodes && !vol->options.run_id)
		return opening_fail(m, -EINVAL, "several nodes need the name of their run");
	if (vol->options.nodes && !node_name_valid(vol->node_name))
		return opening_fail(m, -EINVAL,
				    "%s cannot be the name of a node: up to %d letters, digits, "
				    "'.', '-', '_', the first a letter or a digit; give one with "
				    "-o node=NAME",
				    vol->node_name, NODE_NAME_MAX);
	n = calloc(1, sizeof(*n));
	if (!n)
		return -ENOMEM;
	mutex_init(&n->lock, LOCK_NODES);
	n->set = vol->options.nodes != 0;
	vol->nodes = n;
	error = check_cache(vol, m);
	if (error || !n->set)
		return error;
	SCOPED_LOCK(&vol->lock);
	load_locked(vol);
	return 0;
}

void nodes_close(struct volume *vol)
{
	struct node_set *n = steal_ptr(vol->nodes);

	if (!n)
		return;
	nodes_made_free(n);
	nodes_known_free(n);
	epoch_index_free(&n->index);
	json_decref(n->waiting);
	buf_free(&n->bases);
	mutex_destroy(&n->lock);
	free(n);
}

/* ---- the base ---- */

static int parse_base(const struct buf *text, uint64_t *ret_base)
{
	if (text->len == 2 && !memcmp(text->data, "0\n", 2)) {
		*ret_base = 0;
		return 0;
	}
	return tag_text_parse(text->data, text->len, ret_base);
}

/* What the attempt begins from: as the first of its nodes has found it. */
static int get_base(struct volume *vol, uint64_t generation, uint64_t *ret_base)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX], own[TAG_TEXT_MAX] = "0\n";
	uint64_t latest = epochs_latest(vol);
	int error;

	lease_base_key(generation, key);
	error = remote_get(vol->remote, key, 0, TAG_TEXT_MAX, &text);
	if (error != -ENOENT)
		return error ? error : parse_base(&text, ret_base);
	if (latest)
		tag_text(latest, own);
	error = remote_put_if_absent(vol->remote, key, own, strlen(own));
	if (error != -EEXIST) {
		if (!error)
			*ret_base = latest;
		return error;
	}
	buf_reset(&text);
	error = remote_get(vol->remote, key, 0, TAG_TEXT_MAX, &text);
	return error ? error : parse_base(&text, ret_base);
}

/* A tree of nothing but the root, as the live one is. */
static int empty_tree(struct volume *vol, struct tree **ret_tree)
{
	struct tree_entry root = {.name = "", .type = TREE_DIR};
	struct state_file f;
	int error;

	mutex_lock(&vol->lock);
	error = state_file_get(vol->state, ROOT_INO, &f);
	mutex_unlock(&vol->lock);
	if (error)
		return error;
	root.mode = f.mode & 07777;
	root.uid = f.uid;
	root.gid = f.gid;
	root.mtime_ns = f.mtime_ns;
	return tree_of_root(&root, ret_tree);
}

static int base_tree(struct volume *vol, uint64_t base, struct tree **ret_tree)
{
	int error = base ? epochs_tree(vol, base, ret_tree) : empty_tree(vol, ret_tree);

	/* The one who set it knew of an epoch that came just now. */
	if (error == -ENOENT) {
		error = follow_newer(vol, vol->remote);
		if (!error)
			error = epochs_tree(vol, base, ret_tree);
	}
	return error;
}

static int is_writing(void *arg, struct body *b)
{
	(void)arg;
	return b->staged && !b->orphan && !body_is_held(b);
}

static bool is_untouched_locked(struct volume *vol)
{
	return vol->current_epoch == vol->nodes->origin && !seal_needed_locked(vol) &&
	       !bodies_each_writing_locked(vol, is_writing, vol);
}

static int store_standing_locked(struct volume *vol, uint64_t number, uint64_t base,
				 const struct tree *tree, struct rollback_notice *notice)
{
	struct state_epoch row = {.number = number, .state = EPOCH_DROPPED};
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = rollback_apply_locked(vol, base, tree, ROLLBACK_ALL, notice);
	if (!error)
		error = state_epoch_set(vol->state, &row);
	if (!error)
		error = state_set_meta_u64(vol->state, "current", number);
	if (!error)
		error = state_set_meta_u64(vol->state, "next_epoch", number + 1);
	if (!error)
		error = state_set_meta_u64(vol->state, "unsealed", UNSEALED_NOTHING);
	if (!error)
		error = doubts_of_epoch_locked(vol, base);
	return state_end(vol->state, error);
}

/* The live tree becomes this one, of the epoch `base`, and counts as sealed: as the local number that comes next. */
static int stand_on_locked(struct volume *vol, uint64_t number, uint64_t base,
			   const struct tree *tree, struct rollback_notice *notice)
{
	struct sealer *s = vol->sealer;
	int error = store_standing_locked(vol, number, base, tree, notice);

	if (error)
		return error;
	vol->nodes->origin = vol->current_epoch = number;
	vol->next_epoch = number + 1;
	pending_clear(&s->pending);
	s->pending.activity_ns = clock_mono_ns();
	free(s->last.logs);
	s->last = (struct seal_last){.number = number, .chain = number};
	return 0;
}

/* -EAGAIN: something was sealed meanwhile. 1: the live tree is touched, and stays. */
static int try_stand(struct volume *vol, uint64_t base, struct tree *tree, bool only_untouched)
{
	struct rollback_notice notice = {0};
	uint64_t number;
	size_t len;
	const void *bytes = tree_data(tree, &len);
	void *copy = malloc(len);
	int error;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, bytes, len);
	mutex_lock(&vol->lock);
	number = vol->next_epoch;
	mutex_unlock(&vol->lock);
	error = trees_store(vol, number, copy, len, 0, NULL);
	if (error)
		return error;
	mutex_lock(&vol->lock);
	if (only_untouched && !is_untouched_locked(vol))
		error = 1;
	else if (vol->next_epoch != number || vol->sealer->first)
		error = -EAGAIN;
	else
		error = stand_on_locked(vol, number, base, tree, &notice);
	mutex_unlock(&vol->lock);
	rollback_notice_tell(vol, &notice);
	return error;
}

static int stand_on(struct volume *vol, uint64_t base, bool only_untouched)
{
	cleanup_tree struct tree *tree = NULL;
	int error = base_tree(vol, base, &tree);

	if (error)
		return error;
	do {
		error = seal_finish_until(vol, INT64_MAX);
		if (!error)
			error = try_stand(vol, base, tree, only_untouched);
	} while (error == -EAGAIN);
	versions_reclaim(vol);
	return error;
}

/* From now on parts are of this attempt. `base`: what the live tree began from. */
static int enter_locked(struct volume *vol, uint64_t generation, uint64_t base)
{
	struct node_set *n = vol->nodes;
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = state_set_meta_u64(vol->state, META_GENERATION, generation);
	if (!error)
		error = state_set_meta_u64(vol->state, META_BASE, base);
	error = state_end(vol->state, error);
	if (error)
		return error;
	n->generation = generation;
	n->base = base;
	n->has_after = false;
	n->after = n->count = 0;
	n->begun = true;
	return 0;
}

static int enter(struct volume *vol, uint64_t generation, uint64_t base)
{
	SCOPED_LOCK(&vol->lock);
	return enter_locked(vol, generation, base);
}

/* What the cache has and no part: it belongs to the attempt in which it was written. */
static int seal_left(struct volume *vol)
{
	struct epochs_seal how = {.trigger = "recovery"};
	uint64_t number;
	bool needed;

	mutex_lock(&vol->lock);
	needed = vol->nodes->generation && seal_needed_locked(vol);
	mutex_unlock(&vol->lock);
	return needed ? epochs_seal(vol, &how, &number) : 0;
}

int nodes_begin(struct volume *vol, struct opening_message *m)
{
	uint64_t generation = holder_generation(vol), base;
	int error;

	if (!nodes_is_set(vol))
		return 0;
	error = seal_left(vol);
	if (!error)
		error = get_base(vol, generation, &base);
	if (error)
		return error;
	error = stand_on(vol, base, false);
	if (error == -ENOENT)
		return opening_fail(m, -ENOENT,
				    "%s: epoch %" PRIu64 ", which run %s began from, is gone: "
				    "unmount the run on all nodes and mount it again",
				    remote_name(vol->remote), base, vol->run_id);
	if (!error)
		error = enter(vol, generation, base);
	if (!error)
		log_info("node %s of %u of run %s, attempt %" PRIu64 ", from epoch %" PRIu64,
			 vol->node_name, vol->options.nodes, vol->run_id, generation, base);
	return error;
}

/* ---- going on ---- */

static int go_on(struct volume *vol, uint64_t generation)
{
	uint64_t base, kept;
	int error = get_base(vol, generation, &base);

	if (error)
		return error;
	error = stand_on(vol, base, true);
	if (error < 0)
		return error;
	mutex_lock(&vol->lock);
	kept = vol->nodes->base;
	mutex_unlock(&vol->lock);
	error = enter(vol, generation, error ? kept : base);
	if (!error)
		log_warn("run %s goes on in attempt %" PRIu64
			 ": a node came back; what this one seals from now on counts for it",
			 vol->run_id, generation);
	return error;
}

/* Trees and records of our own parts that nobody needs any more. */
static void forget_old(struct volume *vol)
{
	struct node_set *n = vol->nodes;

	for (;;) {
		struct state_epoch row = {0};
		uint64_t number;
		int error;

		mutex_lock(&vol->lock);
		number = n->oldest;
		error = number < vol->current_epoch ? state_epoch_get(vol->state, number, &row)
						    : -ERANGE;
		if (error == -ENOENT)
			error = 0;
		else if (!error && row.state != EPOCH_DURABLE && row.state != EPOCH_DROPPED)
			error = -ERANGE;
		state_epoch_free(&row);
		if (!error) {
			row = (struct state_epoch){.number = number, .state = EPOCH_DROPPED};
			error = state_epoch_set(vol->state, &row);
		}
		if (!error) {
			n->oldest = number + 1;
			error = state_set_meta_u64(vol->state, META_OLDEST, n->oldest);
			epoch_index_remove(&n->index, number);
		}
		mutex_unlock(&vol->lock);
		if (error || trees_remove(vol, number) != 0)
			return;
	}
}

void nodes_pass(struct volume *vol)
{
	uint64_t generation;
	bool moved;
	int error = holder_confirm(vol, vol->remote, vol->options.refresh_ns / 2);

	if (error)
		return;
	generation = holder_generation(vol);
	mutex_lock(&vol->lock);
	moved = generation != vol->nodes->generation;
	mutex_unlock(&vol->lock);
	if (moved) {
		error = go_on(vol, generation);
		if (error)
			log_warn("attempt %" PRIu64 " of run %s is not entered yet: %s", generation,
				 vol->run_id, strerror(-error));
	}
	forget_old(vol);
	uploads_kick(vol);
}
