/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of several nodes: the record of one that is put together. */
#include "lib/meta/record_metadata.h"
#include "lib/upload/nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- who is missing ---- */

static bool has_node(const struct nodes_part *parts, const struct nodes_group *group,
		     const char *node)
{
	for (size_t i = 0; i < group->count; i++)
		if (!strcmp(parts[group->parts[i]].node, node))
			return true;
	return false;
}

static int add_name(char ***names, size_t *count, const char *node)
{
	char **grown;

	for (size_t i = 0; i < *count; i++)
		if (!strcmp((*names)[i], node))
			return 0;
	grown = reallocarray(*names, *count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	*names = grown;
	grown[*count] = strdup(node);
	if (!grown[*count])
		return -ENOMEM;
	*count += 1;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return nodes_compare_names(*(char *const *)a, *(char *const *)b);
}

void nodes_names_free(char **names, size_t count)
{
	for (size_t i = 0; names && i < count; i++)
		free(names[i]);
	free(names);
}

int nodes_missing(struct node_set *n, const struct nodes_part *parts,
		  const struct nodes_group *group, char ***ret_names, size_t *ret_count)
{
	uint64_t generation = parts[group->parts[0]].place.generation;
	char **names = NULL;
	size_t count = 0;
	int error = 0;

	/* Who is named by a lease object, or by a part of this attempt. */
	for (size_t i = 0; !error && i < n->member_count; i++)
		if (n->members[i].generation == generation &&
		    !has_node(parts, group, n->members[i].node))
			error = add_name(&names, &count, n->members[i].node);
	for (size_t i = 0; !error && i < n->known_count; i++)
		if (n->known[i].generation == generation &&
		    !has_node(parts, group, n->known[i].record.part.node))
			error = add_name(&names, &count, n->known[i].record.part.node);
	if (error) {
		nodes_names_free(names, count);
		return error;
	}
	if (count)
		qsort(names, count, sizeof(*names), compare_names);
	*ret_names = names;
	*ret_count = count;
	return 0;
}

/* ---- the record ---- */

static int set_text(char **ret_text, const char *text)
{
	if (!text || *ret_text)
		return 0;
	*ret_text = strdup(text);
	return *ret_text ? 0 : -ENOMEM;
}

static int add_part(struct epoch_record *r, const struct epoch_record *p)
{
	struct record_part *part = &r->parts[r->part_count];

	*part = p->part;
	part->node = strdup(p->part.node);
	r->node_names[r->node_count] = strdup(p->part.node);
	r->part_count++;
	r->node_count++;
	return part->node && r->node_names[r->node_count - 1] ? 0 : -ENOMEM;
}

/* Times, counts and texts. */
static int add_facts(struct epoch_record *r, const struct epoch_record *p)
{
	int error;

	if (!r->opened_ns || p->opened_ns < r->opened_ns)
		r->opened_ns = p->opened_ns;
	if (p->sealed_ns >= r->sealed_ns) {
		r->sealed_ns = p->sealed_ns;
		r->trigger = p->trigger;
	}
	if (p->save_ns > r->save_ns)
		r->save_ns = p->save_ns;
	r->added += p->added;
	r->changed += p->changed;
	r->removed += p->removed;
	r->bytes_new += p->bytes_new;
	r->bytes_stored += p->bytes_stored;
	error = set_text(&r->step_name, p->step_name);
	if (!error)
		error = set_text(&r->message, p->message);
	if (!error)
		error = set_text(&r->user, p->user);
	return error ? error : set_text(&r->run_id, p->run_id);
}

static int add_indexes(struct epoch_record *r, const struct epoch_record *p)
{
	for (size_t i = 0; i < p->index_count && r->index_count < RECORD_LIST_MAX / 2; i++) {
		char **grown = reallocarray(r->indexes, r->index_count + 1, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		r->indexes = grown;
		grown[r->index_count] = strdup(p->indexes[i]);
		if (!grown[r->index_count])
			return -ENOMEM;
		r->index_count++;
	}
	return 0;
}

/* ---- doubts ---- */

static const struct record_doubt *find_doubt(const struct epoch_record *r,
					     const struct record_doubt *d)
{
	for (size_t i = 0; i < r->doubt_count; i++)
		if (!strcmp(r->doubts[i].path, d->path) &&
		    !strcmp(r->doubts[i].kind ? r->doubts[i].kind : "", d->kind ? d->kind : ""))
			return &r->doubts[i];
	return NULL;
}

/* What the base had in doubt, some node may have settled; what is new, one node alone knows. */
static bool doubt_stands(const struct record_doubt *d, const struct nodes_known *const *parts,
			 size_t count)
{
	for (size_t i = 0; !nodes_is_part(d->since) && i < count; i++)
		if (!find_doubt(&parts[i]->record, d))
			return false;
	return true;
}

static size_t doubts_size(const struct epoch_record *r)
{
	size_t size = 0;

	for (size_t i = 0; i < r->doubt_count; i++)
		size += record_doubt_size(&r->doubts[i]);
	return size;
}

/* Two parts have the same one of their base: it counts where it does for both, since the newest unit of all is that of one of
 * them. */
static bool has_doubt(struct epoch_record *r, const struct record_doubt *d)
{
	struct record_doubt *found = (struct record_doubt *)(uintptr_t)find_doubt(r, d);

	if (found)
		found->counts = found->counts && d->counts;
	return found != NULL;
}

/* It is to be named, also where there is no room for its companions: `alone` says that there may be some. */
static void forget_companions(struct record_doubt *d)
{
	for (size_t i = 0; i < d->companion_count; i++)
		free(d->companions[i]);
	d->companion_count = 0;
	d->alone = true;
}

static int add_doubts(struct epoch_record *r, const struct epoch_record *p,
		      const struct nodes_known *const *parts, size_t count)
{
	size_t size = doubts_size(r);

	for (size_t i = 0; i < p->doubt_count && r->doubt_count < RECORD_LIST_MAX; i++) {
		const struct record_doubt *d = &p->doubts[i];
		struct record_doubt *grown, *to;
		int error;

		if (has_doubt(r, d) || !doubt_stands(d, parts, count))
			continue;
		grown = reallocarray(r->doubts, r->doubt_count + 1, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		r->doubts = grown;
		to = &grown[r->doubt_count++];
		error = record_doubt_copy(d, to);
		if (error)
			return error;
		if (size + record_doubt_size(to) > RECORD_DOUBTS_SIZE_MAX)
			forget_companions(to);
		size += record_doubt_size(to);
		if (size > RECORD_DOUBTS_SIZE_MAX) {
			record_doubt_drop_last(r);
			break;
		}
	}
	return 0;
}

/* What a part is not complete for may have been settled by another node, or be of an older unit. The record may have no room for it. */
static bool doubts_are_over(const struct epoch_record *r, const struct epoch_record *p,
			    const struct nodes_known *const *parts, size_t count)
{
	for (size_t i = 0; i < p->doubt_count; i++) {
		const struct record_doubt *d = find_doubt(r, &p->doubts[i]);

		if (d ? d->counts
		      : p->doubts[i].counts && doubt_stands(&p->doubts[i], parts, count))
			return false;
	}
	return p->doubted && p->doubt_count;
}

/* After the doubts of all. */
static void judge_part(struct epoch_record *r, const struct epoch_record *p,
		       const struct nodes_known *const *parts, size_t count, struct buf *why)
{
	if (p->complete == RECORD_INCOMPLETE && !doubts_are_over(r, p, parts, count))
		buf_printf(why, "%s%s: %s", why->len ? "; " : "", p->part.node,
			   p->reason ? p->reason : "not complete");
	if (p->complete == RECORD_UNKNOWN && r->complete == RECORD_COMPLETE)
		r->complete = RECORD_UNKNOWN;
}

/* "no part of c" and "no part of 2 nodes that never came". */
static void judge_missing(const struct epoch_record *r, struct buf *why)
{
	uint64_t known = r->part_count + r->missing_count;

	for (size_t i = 0; i < r->missing_count; i++)
		buf_printf(why, "%s%s",
			   i	      ? ", "
			   : why->len ? "; no part of "
				      : "no part of ",
			   r->missing[i]);
	if (r->part_count < r->nodes && known < r->nodes)
		buf_printf(why, "%s%" PRIu64 " of %" PRIu64 " nodes never came",
			   why->len ? "; " : "", r->nodes - known, r->nodes);
}

static int fill(struct epoch_record *r, const struct nodes_known *const *parts, size_t count,
		bool over)
{
	cleanup_buf struct buf why = {0};
	int error = 0;

	for (size_t i = 0; !error && i < count; i++) {
		const struct epoch_record *p = &parts[i]->record;

		error = add_part(r, p);
		if (!error)
			error = add_facts(r, p);
		if (!error)
			error = add_indexes(r, p);
		if (!error)
			error = add_doubts(r, p, parts, count);
	}
	if (error)
		return error;
	for (size_t i = 0; i < count; i++)
		judge_part(r, &parts[i]->record, parts, count, &why);
	judge_missing(r, &why);
	if (over)
		buf_printf(&why, "%sits last part came when a later attempt had gone on",
			   why.len ? "; " : "");
	if (!why.len)
		return 0;
	r->complete = RECORD_INCOMPLETE;
	if (buf_error(&why))
		return -ENOMEM;
	return set_text(&r->reason, buf_str(&why));
}

int nodes_record(struct volume *vol, const struct nodes_known *const *parts, size_t count,
		 const struct nodes_group *group, bool over, char **missing, size_t missing_count,
		 struct epoch_record *ret_record)
{
	const struct epoch_record *first = &parts[0]->record;
	cleanup_record struct epoch_record r = {
		.complete = RECORD_COMPLETE,
		.continues = group->merged,
		.has_step = first->has_step,
		.step = first->step,
		.generation = first->generation,
		.nodes = group->nodes,
	};
	int error;

	memcpy(r.volume, vol->uuid, sizeof(r.volume));
	r.parts = calloc(count, sizeof(*r.parts));
	r.node_names = calloc(count, sizeof(*r.node_names));
	r.missing = calloc(missing_count + 1, sizeof(*r.missing));
	if (!r.parts || !r.node_names || !r.missing)
		return -ENOMEM;
	for (size_t i = 0; i < missing_count; i++) {
		r.missing[i] = strdup(missing[i]);
		if (!r.missing[i])
			return -ENOMEM;
		r.missing_count++;
	}
	error = fill(&r, parts, count, over);
	/* Its names of nodes take the place of ours. */
	for (size_t i = 0; !error && i < count; i++)
		error = metadata_take(&r, &parts[i]->record);
	if (!error)
		error = set_text(&r.host, vol->node_name);
	if (error)
		return error;
	*ret_record = r;
	r = (struct epoch_record){0};
	return 0;
}
