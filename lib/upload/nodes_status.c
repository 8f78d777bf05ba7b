/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of several nodes: what `status` shows of them. */
#include "lib/upload/nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/meta/listing.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

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
