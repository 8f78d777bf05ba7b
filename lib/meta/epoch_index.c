/* SPDX-License-Identifier: Apache-2.0 */
/* The epochs of a volume in memory: found by number, step, age. */
#include "lib/meta/epoch_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/array.h"
#include "lib/util/parse.h"

void epoch_index_free(struct epoch_index *x)
{
	free(x->epochs);
	*x = (struct epoch_index){0};
}

/* Where this number is, or would be. */
static size_t place_of(const struct epoch_index *x, uint64_t number)
{
	size_t low = 0, high = x->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (x->epochs[middle].number < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct epoch_brief *find(const struct epoch_index *x, uint64_t number)
{
	size_t at = place_of(x, number);

	return at < x->count && x->epochs[at].number == number ? &x->epochs[at] : NULL;
}

const struct epoch_brief *epoch_index_find(const struct epoch_index *x, uint64_t number)
{
	return find(x, number);
}

const struct epoch_brief *epoch_index_after(const struct epoch_index *x, uint64_t number)
{
	size_t at = number == UINT64_MAX ? x->count : place_of(x, number + 1);

	return at < x->count ? &x->epochs[at] : NULL;
}

static int make_room(struct epoch_index *x, size_t at)
{
	if (array_reserve((void **)&x->epochs, &x->cap, x->count, sizeof(*x->epochs)))
		return -ENOMEM;
	memmove(&x->epochs[at + 1], &x->epochs[at], (x->count - at) * sizeof(*x->epochs));
	x->count++;
	return 0;
}

bool epoch_brief_is_half(const struct epoch_brief *e, uint64_t continued, uint64_t half,
			 uint64_t by)
{
	return continued && e->number < by &&
	       (e->number == continued || e->number == half || e->half == half);
}

uint64_t epoch_index_same_half(const struct epoch_index *x, uint64_t number)
{
	const struct epoch_brief *e = find(x, number);

	return e && e->half ? e->half : number;
}

uint64_t epoch_index_half_of(const struct epoch_index *x, uint64_t continued)
{
	const struct epoch_brief *e = find(x, continued);

	return e && e->continues && e->half ? e->half : continued;
}

bool epoch_brief_is_in_save(const struct epoch_brief *e, const struct epoch_brief *by)
{
	return by->continues_from && e->number >= by->continues_from && e->number < by->number &&
	       !e->restores && record_trigger_automatic(e->trigger);
}

static bool is_continued(const struct epoch_index *x, const struct epoch_brief *e)
{
	for (size_t i = place_of(x, e->number + 1); i < x->count; i++)
		if (epoch_brief_is_in_save(e, &x->epochs[i]) ||
		    epoch_brief_is_half(e, x->epochs[i].continues,
					epoch_index_half_of(x, x->epochs[i].continues),
					x->epochs[i].number))
			return true;
	return false;
}

static uint64_t first_continued(uint64_t continues, uint64_t from, uint64_t by)
{
	return continues && continues < by && from < continues ? from : 0;
}

static void supersede_save(struct epoch_index *x, const struct epoch_brief *by)
{
	for (size_t i = by->continues_from ? place_of(x, by->continues_from) : x->count;
	     i < x->count && x->epochs[i].number < by->number; i++)
		if (epoch_brief_is_in_save(&x->epochs[i], by))
			x->epochs[i].superseded = true;
}

int epoch_index_add(struct epoch_index *x, const struct epoch_record *record, bool superseded)
{
	size_t at = place_of(x, record->number);
	int error = 0;

	if (at == x->count || x->epochs[at].number != record->number)
		error = make_room(x, at);
	if (error)
		return error;
	x->epochs[at] = (struct epoch_brief){
		.number = record->number,
		.sealed_ns = record->sealed_ns,
		.continues = record->continues,
		.continues_from =
			first_continued(record->continues, record->continues_from, record->number),
		.half = record->half < record->number ? record->half : 0,
		.bytes_new = record->bytes_new,
		.parent = record->parent,
		.restores = record->restores,
		.step = record->step,
		.has_step = record->has_step,
		.complete = record->complete == RECORD_COMPLETE,
		.unknown = record->complete == RECORD_UNKNOWN,
		.superseded = superseded,
		.trigger = record->trigger,
	};
	if (!superseded)
		x->epochs[at].superseded = is_continued(x, &x->epochs[at]);
	epoch_index_supersede(x, record->continues, record->continues_from, record->number);
	return 0;
}

void epoch_index_supersede(struct epoch_index *x, uint64_t number, uint64_t from, uint64_t by)
{
	const struct epoch_brief save = {.number = by,
					 .continues_from = first_continued(number, from, by)};
	uint64_t half = epoch_index_half_of(x, number);

	for (size_t i = number ? place_of(x, half) : x->count;
	     i < x->count && x->epochs[i].number < by; i++)
		if (epoch_brief_is_half(&x->epochs[i], number, half, by))
			x->epochs[i].superseded = true;
	supersede_save(x, &save);
}

void epoch_index_remove(struct epoch_index *x, uint64_t number)
{
	struct epoch_brief *e = find(x, number);

	if (!e)
		return;
	x->count--;
	memmove(e, e + 1, (size_t)(x->epochs + x->count - e) * sizeof(*e));
}

bool epoch_brief_complete(const struct epoch_brief *e)
{
	return e->complete && !e->superseded;
}

uint64_t epoch_index_newest(const struct epoch_index *x)
{
	return x->count ? x->epochs[x->count - 1].number : 0;
}

uint64_t epoch_index_latest(const struct epoch_index *x)
{
	for (size_t i = x->count; i-- > 0;)
		if (epoch_brief_complete(&x->epochs[i]))
			return x->epochs[i].number;
	return 0;
}

uint64_t epoch_index_whole(const struct epoch_index *x)
{
	for (size_t i = x->count; i-- > 0;) {
		const struct epoch_brief *e = &x->epochs[i];

		if ((e->complete || e->unknown) && !e->superseded)
			return e->number;
	}
	return 0;
}

static bool has_step(const struct epoch_brief *e, uint64_t step)
{
	return e->has_step && e->step == step;
}

uint64_t epoch_index_complete_of_step(const struct epoch_index *x, uint64_t step)
{
	for (size_t i = x->count; i-- > 0;)
		if (has_step(&x->epochs[i], step) && epoch_brief_complete(&x->epochs[i]))
			return x->epochs[i].number;
	return 0;
}

/* The newest complete one with this step, else the newest with it. */
static uint64_t epoch_index_by_step(const struct epoch_index *x, uint64_t step)
{
	uint64_t complete = epoch_index_complete_of_step(x, step);

	if (complete)
		return complete;
	for (size_t i = x->count; i-- > 0;)
		if (has_step(&x->epochs[i], step))
			return x->epochs[i].number;
	return 0;
}

/* The newest that is sealed at this time or before. */
static uint64_t epoch_index_at(const struct epoch_index *x, int64_t wall_ns)
{
	for (size_t i = x->count; i-- > 0;)
		if (x->epochs[i].sealed_ns <= wall_ns)
			return x->epochs[i].number;
	return 0;
}

static int found(uint64_t number, uint64_t *ret_number)
{
	if (!number)
		return -ENOENT;
	*ret_number = number;
	return 0;
}

int epoch_index_resolve(const struct epoch_index *x, const char *text, int64_t now_ns,
			uint64_t *ret_number)
{
	uint64_t number;
	int64_t age;
	int error;

	if (!*text)
		return -EINVAL;
	if (strspn(text, "0123456789") == strlen(text)) {
		error = parse_u64(text, &number);
		return error || !find(x, number) ? -ENOENT : found(number, ret_number);
	}
	if (strncmp(text, "step=", 5) == 0) {
		if (parse_u64(text + 5, &number))
			return -EINVAL;
		return found(epoch_index_by_step(x, number), ret_number);
	}
	if (text[0] == '@') {
		if (parse_duration(text + 1, &age) || age < 0)
			return -EINVAL;
		return found(epoch_index_at(x, now_ns - age), ret_number);
	}
	if (strcmp(text, "latest") == 0)
		return found(epoch_index_latest(x), ret_number);
	return -EAGAIN;
}

void epoch_info_free(struct epoch_info *e)
{
	record_free(&e->record);
	free(e->error);
	*e = (struct epoch_info){0};
}
