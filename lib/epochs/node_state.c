/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of several nodes: what sealing them needs to know, and what epochs have of them. */
#include "lib/epochs/node_state.h"

#include <errno.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/util/array.h"
#include "lib/util/log.h"

bool nodes_is_set(const struct volume *vol)
{
	return vol->nodes && vol->nodes->set;
}

uint64_t nodes_current_locked(const struct volume *vol)
{
	const struct node_set *n = vol->nodes;

	return n->shown > n->base ? n->shown : n->base;
}

bool nodes_need_locked(const struct volume *vol, uint64_t number)
{
	struct node_set *n = vol->nodes;

	if (!nodes_is_set(vol))
		return false;
	if (number == n->base)
		return true;
	SCOPED_LOCK(&n->lock);
	for (size_t at = 0; at < n->bases.len; at += sizeof(number))
		if (!memcmp(n->bases.data + at, &number, sizeof(number)))
			return true;
	return false;
}

bool nodes_has_begun_locked(const struct volume *vol)
{
	return nodes_is_set(vol) && vol->nodes->begun;
}

/* ---- sealing ---- */

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

static const struct nodes_place *place_of(const struct node_set *n, uint64_t number)
{
	for (size_t i = 0; number && i < NODES_PLACES; i++)
		if (n->place_of[i] == number)
			return &n->places[i];
	return NULL;
}

int nodes_place_locked(struct volume *vol, const struct seal_job *job, struct epoch_record *record)
{
	const struct node_set *n = vol->nodes;
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
	struct node_set *n = vol->nodes;
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
	const struct node_set *n = vol->nodes;

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

/* ---- what epochs have of parts ---- */

void nodes_made_free_one(struct nodes_made *m)
{
	for (size_t i = 0; i < m->count; i++)
		free(m->parts[i].node);
	free(m->parts);
}

void nodes_made_free(struct node_set *n)
{
	for (size_t i = 0; i < n->made_count; i++)
		nodes_made_free_one(&n->made[i]);
	free(n->made);
}

static int copy_parts(struct nodes_made *m, const struct epoch_record *r)
{
	m->parts = calloc(r->part_count, sizeof(*m->parts));
	if (!m->parts)
		return -ENOMEM;
	for (size_t i = 0; i < r->part_count; i++) {
		m->parts[i] = r->parts[i];
		m->parts[i].node = strdup(r->parts[i].node);
		if (!m->parts[i].node) {
			nodes_made_free_one(m);
			return -ENOMEM;
		}
		m->count++;
	}
	return 0;
}

static int add_made_locked(struct node_set *n, const struct epoch_record *r)
{
	struct nodes_made m = {.number = r->number,
			       .generation = r->generation,
			       .complete = r->complete == RECORD_COMPLETE};
	int error;

	for (size_t i = 0; i < n->made_count; i++)
		if (n->made[i].number == r->number)
			return 0;
	if (array_reserve((void **)&n->made, &n->made_cap, n->made_count, sizeof(*n->made)))
		return -ENOMEM;
	error = copy_parts(&m, r);
	if (!error)
		n->made[n->made_count++] = m;
	return error;
}

static bool has_our_part(const struct volume *vol, const struct epoch_record *r)
{
	for (size_t i = 0; i < r->part_count; i++)
		if (!strcmp(r->parts[i].node, vol->node_name))
			return true;
	return false;
}

int nodes_add_record(struct node_set *n, const struct record_found *found)
{
	const struct epoch_record *r = found->record;
	int error = 0;

	SCOPED_LOCK(&n->lock);
	if (found->number > n->highest)
		n->highest = found->number;
	if (r && found->number > n->newest)
		n->newest = found->number;
	if (r && r->part_count)
		error = add_made_locked(n, r);
	if (r && r->complete == RECORD_COMPLETE && r->generation > n->complete_generation)
		n->complete_generation = r->generation;
	return error;
}

int nodes_note_record(struct volume *vol, const struct record_found *found)
{
	const struct epoch_record *r = found->record;
	struct node_set *n = vol->nodes;
	int error;

	if (!n)
		return 0;
	error = nodes_add_record(n, found);
	if (!r || !r->part_count || !n->set)
		return error;
	SCOPED_LOCK(&vol->lock);
	if (r->generation == n->generation && has_our_part(vol, r) && found->number > n->shown)
		n->shown = found->number;
	return error;
}

uint64_t nodes_highest(struct volume *vol)
{
	SCOPED_LOCK(&vol->nodes->lock);
	return vol->nodes->highest;
}
