/* SPDX-License-Identifier: Apache-2.0 */
/* Which parts of a node set belong together. */
#include "lib/meta/nodes_decide.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/array.h"
#include "lib/util/cleanup.h"

int nodes_compare_names(const char *a, const char *b)
{
	int order = strverscmp(a, b);

	return order ? order : strcmp(a, b);
}

bool nodes_place_equal(const struct nodes_place *a, const struct nodes_place *b)
{
	if (a->generation != b->generation || a->has_step != b->has_step)
		return false;
	if (a->has_step)
		return a->step == b->step;
	return a->has_after == b->has_after && a->after == b->after && a->count == b->count;
}

/* ---- making groups ---- */

struct grouping {
	const struct nodes_part *parts;
	struct nodes_group *groups;
	size_t count, cap;
};

static const struct nodes_part *part_of(const struct grouping *g, const struct nodes_group *group,
					size_t i)
{
	return &g->parts[group->parts[i]];
}

/* The group of this place, made where there is none; NULL: no memory. */
static struct nodes_group *group_of(struct grouping *g, const struct nodes_part *p)
{
	for (size_t i = 0; i < g->count; i++)
		if (nodes_place_equal(&part_of(g, &g->groups[i], 0)->place, &p->place))
			return &g->groups[i];
	if (array_reserve((void **)&g->groups, &g->cap, g->count, sizeof(*g->groups)))
		return NULL;
	g->groups[g->count] = (struct nodes_group){.nodes = p->nodes};
	return &g->groups[g->count++];
}

/* The last one of each node counts. */
static int add_part(struct grouping *g, size_t number)
{
	const struct nodes_part *p = &g->parts[number];
	struct nodes_group *group = group_of(g, p);
	size_t *grown;

	if (!group)
		return -ENOMEM;
	if (p->merged > group->merged)
		group->merged = p->merged;
	for (size_t i = 0; i < group->count; i++) {
		const struct nodes_part *other = part_of(g, group, i);

		if (strcmp(other->node, p->node) != 0)
			continue;
		if (p->sequence > other->sequence)
			group->parts[i] = number;
		return 0;
	}
	grown = reallocarray(group->parts, group->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	group->parts = grown;
	group->parts[group->count++] = number;
	return 0;
}

/* ---- judging ---- */

static bool all_merged(const struct grouping *g, const struct nodes_group *group)
{
	for (size_t i = 0; i < group->count; i++)
		if (part_of(g, group, i)->merged != group->merged || !group->merged)
			return false;
	return true;
}

/* The node's part in a group: NULL where it has none. */
static const struct nodes_part *find_node(const struct grouping *g, const struct nodes_group *group,
					  const char *node)
{
	for (size_t i = 0; i < group->count; i++)
		if (!strcmp(part_of(g, group, i)->node, node))
			return part_of(g, group, i);
	return NULL;
}

static bool is_whole(const struct nodes_group *group)
{
	return group->nodes && group->count >= group->nodes;
}

/* Whether each node of the group has sealed the later one after it. */
static bool is_passed(const struct grouping *g, const struct nodes_group *group,
		      const struct nodes_group *later)
{
	if (part_of(g, later, 0)->place.generation != part_of(g, group, 0)->place.generation)
		return false;
	for (size_t i = 0; i < group->count; i++) {
		const struct nodes_part *p = part_of(g, group, i);
		const struct nodes_part *q = find_node(g, later, p->node);

		if (!q || q->sequence <= p->sequence)
			return false;
	}
	return true;
}

static enum nodes_verdict judge(const struct grouping *g, const struct nodes_group *group,
				uint64_t open)
{
	if (all_merged(g, group))
		return NODES_MERGED;
	if (is_whole(group))
		return NODES_WHOLE;
	if (part_of(g, group, 0)->place.generation < open)
		return NODES_CLOSED;
	for (size_t i = 0; i < g->count; i++)
		if (&g->groups[i] != group && is_whole(&g->groups[i]) &&
		    is_passed(g, group, &g->groups[i]))
			return NODES_CLOSED;
	return NODES_WAITING;
}

/* ---- order ---- */

static int compare_parts(const void *a, const void *b, void *arg)
{
	const struct nodes_part *parts = arg;

	return nodes_compare_names(parts[*(const size_t *)a].node, parts[*(const size_t *)b].node);
}

static int64_t last_sealed(const struct nodes_part *parts, const struct nodes_group *group)
{
	int64_t last = INT64_MIN;

	for (size_t i = 0; i < group->count; i++)
		if (parts[group->parts[i]].sealed_ns > last)
			last = parts[group->parts[i]].sealed_ns;
	return last;
}

static int compare_groups(const void *a, const void *b, void *arg)
{
	const struct nodes_group *x = a, *y = b;
	const struct nodes_part *parts = arg;
	uint64_t gx = parts[x->parts[0]].place.generation, gy = parts[y->parts[0]].place.generation;
	int64_t tx = last_sealed(parts, x), ty = last_sealed(parts, y);

	if (gx != gy)
		return gx < gy ? -1 : 1;
	return tx < ty ? -1 : tx > ty;
}

int nodes_groups(const struct nodes_part *parts, size_t count, uint64_t open,
		 struct nodes_group **ret_groups, size_t *ret_count)
{
	struct grouping g = {.parts = parts};
	void *arg = (void *)(uintptr_t)parts;
	int error = 0;

	for (size_t i = 0; !error && i < count; i++)
		error = add_part(&g, i);
	if (error) {
		/* A group that was just made may be empty. */
		nodes_groups_free(g.groups, g.count);
		return error;
	}
	for (size_t i = 0; i < g.count; i++) {
		qsort_r(g.groups[i].parts, g.groups[i].count, sizeof(size_t), compare_parts, arg);
		g.groups[i].verdict = judge(&g, &g.groups[i], open);
	}
	if (g.count)
		qsort_r(g.groups, g.count, sizeof(*g.groups), compare_groups, arg);
	*ret_groups = g.groups;
	*ret_count = g.count;
	return 0;
}

void nodes_groups_free(struct nodes_group *groups, size_t count)
{
	for (size_t i = 0; groups && i < count; i++)
		free(groups[i].parts);
	free(groups);
}
