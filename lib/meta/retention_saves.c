/* SPDX-License-Identifier: Apache-2.0 */
/* Which epochs a later one may continue, by what their records say (contract 1.3.7). */
#include "lib/meta/retention_policy.h"

#include <stdlib.h>

struct list {
	struct retention_epoch *epochs;
	size_t count;
};

static int compare_epochs(const void *a, const void *b)
{
	const struct retention_epoch *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static const struct retention_epoch *find(const struct list *l, uint64_t number)
{
	const struct retention_epoch wanted = {.number = number};

	return bsearch(&wanted, l->epochs, l->count, sizeof(wanted), compare_epochs);
}

/* Whether the save has this step, or none yet, as far as the epochs before `end` say. */
static bool may_have_step(const struct list *l, size_t end, uint64_t save, uint64_t step)
{
	while (save && end-- > 0)
		if (l->epochs[end].save == save && l->epochs[end].has_step)
			return l->epochs[end].step == step;
	return true;
}

/*
 * The save of an epoch that has a half. What was sealed before the first file of a step, as its directory, may have the half of the step before
 * by its own record; an epoch with another step that continues it says that its save began there.
 */
static uint64_t save_of_half(struct list *l, size_t at)
{
	const struct retention_epoch *e = &l->epochs[at], *half = find(l, e->half);

	if (!half)
		return e->half;
	if (!e->continues || !e->has_step || may_have_step(l, at, half->save, e->step))
		return half->save;
	for (size_t i = at; i-- > 0 && l->epochs[i].number >= e->half;)
		l->epochs[i].save = e->half;
	return e->half;
}

/* The first epoch of the save whose half a tree has that was sealed by quiet: that of its step, and what has the same half. 0: there is none. */
static uint64_t save_of(struct list *l, size_t at, uint64_t before, uint64_t before_step)
{
	const struct retention_epoch *e = &l->epochs[at];

	if (e->half)
		return save_of_half(l, at);
	if (e->trigger != RECORD_TRIGGER_QUIET && e->trigger != RECORD_TRIGGER_CLOSE)
		return 0;
	if (!e->has_step)
		return 0;
	return before && e->step == before_step ? before : e->number;
}

void retention_find_saves(struct retention_epoch *epochs, size_t count)
{
	struct list l = {epochs, count};
	uint64_t save = 0, step = 0;

	for (size_t i = 0; i < count; i++) {
		epochs[i].save = 0;
		save = save_of(&l, i, save, step);
		step = epochs[i].has_step ? epochs[i].step : step;
		epochs[i].save = save;
	}
}

size_t retention_untold(const struct retention_epoch *epochs, size_t count)
{
	while (count && record_trigger_automatic(epochs[count - 1].trigger) &&
	       !epochs[count - 1].restores)
		count--;
	return count;
}
