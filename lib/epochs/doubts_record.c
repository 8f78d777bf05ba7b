/* SPDX-License-Identifier: Apache-2.0 */
/* What the record of an epoch says of its doubts. */
#include "lib/epochs/doubts_volume.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/meta/doubts.h"
#include "lib/epochs/record_fill.h"

static const struct record_doubt *find_before(const struct epoch_record *before,
					      const struct doubt *d)
{
	for (size_t i = 0; before && i < before->doubt_count; i++)
		if (!strcmp(before->doubts[i].path, d->path) &&
		    doubt_kind_parse(before->doubts[i].kind) == d->kind)
			return &before->doubts[i];
	return NULL;
}

/* A torn file's is found out once: its end may not be here any more. */
static const char *why_of(const struct doubt *d, const struct epoch_record *before)
{
	const struct record_doubt *b = d->kind == DOUBT_TORN ? find_before(before, d) : NULL;

	return b && b->why ? b->why : d->why;
}

/* Those that have no room are not to be forgotten: then the others cannot settle it. */
static int copy_companions(const struct doubt *d, struct record_doubt *to, size_t room)
{
	if (!d->companion_count)
		return 0;
	to->companions = calloc(d->companion_count, sizeof(*to->companions));
	if (!to->companions)
		return -ENOMEM;
	for (size_t i = 0; i < d->companion_count; i++) {
		size_t size = record_companion_size(d->companions[i].path);

		if (size > room) {
			to->alone = true;
			break;
		}
		to->companions[i] = strdup(d->companions[i].path);
		if (!to->companions[i])
			return -ENOMEM;
		room -= size;
		to->companion_count++;
	}
	return 0;
}

static int to_record(const struct doubt *d, const struct record_doubt *before,
		     const struct epoch_record *r, struct record_doubt *to)
{
	bool torn = d->kind == DOUBT_TORN, carried = torn && before;

	to->path = strdup(d->path);
	to->why = strdup(carried && before->why ? before->why : d->why);
	to->kind = strdup(doubt_kind_name(d->kind));
	to->since = carried ? before->since : d->since;
	to->at_ns = carried ? before->at_ns
		    : torn  ? (d->since == r->number ? r->sealed_ns : 0)
			    : d->at_ns;
	to->counts = d->counts;
	to->alone = d->alone;
	return to->path && to->why && to->kind ? 0 : -ENOMEM;
}

int doubts_tell_record(struct doubts *d, const struct epoch_record *before)
{
	int error = before->newest ? doubts_set_before(d, before->newest) : 0;

	for (size_t i = 0; !error && i < before->doubt_count; i++) {
		const struct record_doubt *b = &before->doubts[i];

		if (doubt_kind_parse(b->kind) == DOUBT_TORN && b->companion_count)
			error = doubts_set_part(d, b->path, b->companions[0]);
	}
	return error;
}

static bool spoils_step(const struct doubts *d, const struct rules *rules, uint64_t step)
{
	size_t count;
	const struct doubt *list = doubts_list(d, &count);
	struct step_place place;

	for (size_t i = 0; i < count; i++)
		if (list[i].stands && !list[i].counts && rules_step(rules, list[i].path, &place) &&
		    place.step == step)
			return true;
	return false;
}

/*
 * The paths have voted for a step. Where a unit of that step is in doubt, and does not count because another one is newer,
 * the epoch is complete for that other one, and has its step.
 */
static int correct_step(const struct doubts *d, const struct rules *rules, struct epoch_record *r)
{
	struct step_place place;

	if (!r->step_name || !rules_step(rules, r->newest, &place) || place.step == r->step ||
	    !spoils_step(d, rules, r->step))
		return 0;
	free(r->step_name);
	r->step = place.step;
	r->step_name = strndup(r->newest + place.begin, place.end - place.begin);
	return r->step_name ? 0 : -ENOMEM;
}

int doubts_newest_to_record(const struct doubts *d, const struct rules *rules,
			    struct epoch_record *r)
{
	int error;

	if (!doubts_newest(d))
		return 0;
	error = record_set_text(&r->newest, doubts_newest(d));
	return error ? error : correct_step(d, rules, r);
}

/* Without its companions; not at all where there is no room. */
static int name_doubt(const struct doubt *d, const struct epoch_record *before,
		      struct epoch_record *r, size_t *left)
{
	struct record_doubt *to = &r->doubts[r->doubt_count];
	int error = to_record(d, find_before(before, d), r, to);

	/* Also of one that fails the record has what is to be freed. */
	r->doubt_count++;
	if (error)
		return error;
	if (record_doubt_size(to) <= *left)
		*left -= record_doubt_size(to);
	else
		record_doubt_drop_last(r);
	return 0;
}

int doubts_to_record(const struct doubts *d, const struct epoch_record *before,
		     struct epoch_record *r)
{
	size_t count, left = RECORD_DOUBTS_SIZE_MAX, named;
	const struct doubt *list = doubts_list(d, &count);
	int error = 0;

	r->doubts = calloc(count + 1, sizeof(*r->doubts));
	if (!r->doubts)
		return -ENOMEM;
	/* First each doubt, then companions, as there is room. */
	for (size_t i = 0; !error && i < count && r->doubt_count < RECORD_LIST_MAX; i++)
		if (list[i].stands)
			error = name_doubt(&list[i], before, r, &left);
	named = r->doubt_count;
	for (size_t i = 0, at = 0; !error && i < count && at < named; i++) {
		struct record_doubt *to = &r->doubts[at];
		size_t size = record_doubt_size(to);

		if (!list[i].stands || strcmp(list[i].path, to->path) != 0 ||
		    list[i].kind != doubt_kind_parse(to->kind))
			continue;
		error = copy_companions(&list[i], to, left / (named - at++));
		left -= record_doubt_size(to) - size;
	}
	return error;
}

/* A file may be killed in two saves, and then is in doubt for each of them. */
static bool is_told(const struct doubt *list, size_t i)
{
	for (size_t k = 0; k < i; k++)
		if (list[k].counts && !strcmp(list[k].path, list[i].path))
			return true;
	return false;
}

void doubts_reason(const struct doubts *d, const struct epoch_record *before, struct buf *reason)
{
	size_t count, counting = doubts_counting(d);
	const struct doubt *list = doubts_list(d, &count);
	unsigned named = 0;

	for (size_t i = 0; i < count; i++) {
		if (!list[i].counts)
			continue;
		if (is_told(list, i))
			counting--;
		else
			reason_add(reason, &named, list[i].path, why_of(&list[i], before));
	}
	reason_end(reason, (unsigned)(counting > UINT32_MAX ? UINT32_MAX : counting));
}
