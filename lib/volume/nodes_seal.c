/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of several nodes: what a part's record says. */
#include "lib/volume/nodes_internal.h"

#include <errno.h>
#include <string.h>

#include "lib/util/log.h"

void nodes_job_locked(struct volume *vol, struct seal_job *job)
{
	if (!nodes_is_set(vol))
		return;
	job->generation = vol->nodes->generation;
	job->base = vol->nodes->base;
}

const struct epoch_index *nodes_index_locked(const struct volume *vol)
{
	return &vol->nodes->index;
}

uint64_t nodes_origin_locked(const struct volume *vol)
{
	return vol->nodes->origin;
}

static const struct nodes_place *place_of(const struct nodes *n, uint64_t number)
{
	for (size_t i = 0; number && i < NODES_PLACES; i++)
		if (n->place_of[i] == number)
			return &n->places[i];
	return NULL;
}

int nodes_place_locked(struct volume *vol, const struct seal_job *job, struct epoch_record *record)
{
	const struct nodes *n = vol->nodes;
	const struct nodes_place *before = place_of(n, record->continues);
	struct record_part *p = &record->part;

	p->node = strdup(vol->node_name);
	if (!p->node)
		return -ENOMEM;
	p->sequence = job->number - NODES_FIRST;
	p->base = job->base;
	record->generation = job->generation;
	record->nodes = vol->options.nodes;
	if (record->has_step)
		return 0;
	if (before && before->has_step) {
		record->has_step = true;
		record->step = before->step;
	} else if (before) {
		p->has_after = before->has_after;
		p->after = before->after;
		p->count = before->count;
	} else {
		p->has_after = n->has_after && n->generation == job->generation;
		p->after = p->has_after ? n->after : 0;
		p->count = n->count + 1;
	}
	return 0;
}

void nodes_sealed_locked(struct volume *vol, const struct epoch_record *record)
{
	struct nodes *n = vol->nodes;
	size_t at = n->place_next++ % NODES_PLACES;

	n->place_of[at] = record->number;
	n->places[at] = (struct nodes_place){
		.generation = record->generation,
		.has_step = record->has_step,
		.step = record->step,
		.has_after = record->part.has_after,
		.after = record->part.after,
		.count = record->part.count,
	};
	/* Without memory it is not continued. */
	if (epoch_index_add(&n->index, record, false) != 0)
		log_warn("part %llu: out of memory", (unsigned long long)record->part.sequence);
	if (record->generation != n->generation)
		return;
	if (record->has_step) {
		n->has_after = true;
		n->after = record->step;
		n->count = 0;
	} else if (!record->continues) {
		n->count = record->part.count;
	}
}

bool nodes_has_step_locked(const struct volume *vol, uint64_t step)
{
	const struct nodes *n = vol->nodes;

	return n->has_after && n->after == step && !n->count;
}

void nodes_put_locked(struct volume *vol)
{
	vol->nodes->put++;
}

bool nodes_unlooked_locked(const struct volume *vol)
{
	return nodes_is_set(vol) && vol->nodes->put != vol->nodes->looked;
}

json_t *nodes_part_json(struct volume *vol, uint64_t number)
{
	const struct nodes_place *place;
	json_t *o = json_pack("{s:I, s:s}", "part", (json_int_t)(number - NODES_FIRST), "node",
			      vol->node_name);

	SCOPED_LOCK(&vol->lock);
	place = place_of(vol->nodes, number);
	if (o && place && place->has_step)
		json_object_set_new(o, "step", json_integer((json_int_t)place->step));
	return o;
}
