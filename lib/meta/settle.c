/* SPDX-License-Identifier: Apache-2.0 */
/* The decision whether an epoch is sealed by quiet. */
#include "lib/meta/settle.h"

/* Saturates, so that a patience "for ever" works. */
static int64_t later(int64_t at_ns, int64_t by_ns)
{
	int64_t sum;

	return __builtin_add_overflow(at_ns, by_ns, &sum) ? INT64_MAX : sum;
}

/* Unfinished work holds a seal up until it finishes, or has not changed for as long as patience. */
static bool work_holds(int64_t changed_ns, int64_t now_ns, int64_t patience_ns)
{
	return now_ns < later(changed_ns, patience_ns);
}

/* True where this writer is unfinished work that a seal would leave out. */
static bool settle_holds(const struct settle_writer *w, int64_t now_ns, int64_t patience_ns)
{
	return w->fresh && !w->log && !w->in_place &&
	       work_holds(w->changed_ns, now_ns, patience_ns);
}

/* Keeps the hold that lasts longest; of equals the first that was found. */
static void hold_until(struct settle_answer *a, int64_t until_ns, enum settle_hold hold,
		       unsigned index)
{
	if (a->verdict == SETTLE_WAIT && a->until_ns >= until_ns)
		return;
	*a = (struct settle_answer){SETTLE_WAIT, until_ns, hold, index};
}

struct settle_answer settle_decide(const struct settle_view *v)
{
	struct settle_answer a = {.verdict = SETTLE_IDLE, .until_ns = INT64_MAX};
	int64_t quiet_since = v->activity_ns;

	if (!v->dirty)
		return a;
	a.verdict = SETTLE_SEAL;
	for (unsigned i = 0; i < v->writer_count; i++) {
		const struct settle_writer *w = &v->writers[i];

		if (settle_holds(w, v->now_ns, v->patience_ns))
			hold_until(&a, later(w->changed_ns, v->patience_ns), SETTLE_HOLD_WRITER, i);
		if (w->fresh && !w->log && !w->in_place && w->changed_ns > quiet_since)
			quiet_since = w->changed_ns;
	}
	for (unsigned i = 0; i < v->temporary_count; i++) {
		int64_t changed = v->temporaries[i].changed_ns;

		if (work_holds(changed, v->now_ns, v->patience_ns))
			hold_until(&a, later(changed, v->patience_ns), SETTLE_HOLD_TEMPORARY, i);
	}
	if (v->now_ns < later(quiet_since, v->settle_ns))
		hold_until(&a, later(quiet_since, v->settle_ns), SETTLE_HOLD_QUIET, 0);
	return a;
}
