/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closes of what another process has inherited, as a data loader's worker has what its parent was saving when it forked. The kernel sends no release
 * until the last descriptor is gone, yet a file is closed once the process that opened it has closed its own (contract 1.2.3).
 *
 * What is there is committed then, as a copy, which whoever still writes by the descriptor cannot change; the staged version follows it. From
 * then on the handle is held: it counts as no writer, and how its process ended is known. When it is released at last and nothing was
 * written since, the staged file becomes the committed one's, and nothing has changed (restore_base_locked).
 */
#include "lib/live/bodies.h"
#include "lib/live/events.h"

#include "lib/live/observer.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

static bool is_writer(const struct handle *h)
{
	return h->writes && !h->held;
}

/* All that write it have closed it, and it is known which processes those are. */
static bool is_closed_locked(const struct body *b)
{
	unsigned closed = 0;

	for (const struct handle *h = b->open_handles; h; h = h->next)
		if (is_writer(h)) {
			if (!h->closed || !h->tgid)
				return false;
			closed++;
		}
	return closed && closed == b->writers;
}

static bool is_killed_locked(const struct body *b)
{
	for (const struct handle *h = b->open_handles; h; h = h->next)
		if (is_writer(h) && h->killed)
			return true;
	return false;
}

/*
 * Its opener gave it away: a file with nothing in it, for another to write, or one that another has written since. Then it is that one who
 * closes it. Of a killed opener all the same goes what it made.
 */
static bool is_given_away_locked(const struct body *b)
{
	if (is_killed_locked(b))
		return false;
	return (!b->base && !b->journaled_size) || body_is_stored_since_close(b);
}

static void hold_handle_locked(struct handle *h)
{
	struct body *b = h->body;

	handle_writes_no_more_locked(h);
	/* It has nothing mapped: what is stored from now on is another's. */
	cleanup_close_fn(&b->closer_hold);
	b->closer_hold = -1;
	h->held = true;
	h->killed = false;
	b->held++;
}

static void set_untold_locked(struct volume *vol, struct body *b, bool untold)
{
	if (b->untold == untold)
		return;
	b->untold = untold;
	vol->bodies->untold += untold ? 1u : -1u;
	/* The deferred-work thread has it until then. */
	if (untold)
		b->pins++;
	vol->bodies->deferred_asked |= untold;
	pthread_cond_signal(&vol->bodies->deferred_wake);
}

void body_take_held_locked(struct volume *vol, struct body *b, struct after *after)
{
	if (!b->staged || b->discarded || b->orphan || b->preparing || b->taking ||
	    !is_closed_locked(b) || body_is_output_locked(vol, b) || is_given_away_locked(b))
		return;
	for (struct handle *h = b->open_handles; h; h = h->next)
		if (is_writer(h))
			hold_handle_locked(h);
	body_note_locked(b);
	body_finish_held_locked(vol, b, after);
	set_untold_locked(vol, b, true);
}

void handle_unhold_locked(struct handle *h)
{
	if (!h->held)
		return;
	h->held = false;
	h->body->held--;
	h->body->writers++;
	event_opened_locked(h);
}

void bodies_tell_held_locked(struct volume *vol)
{
	struct after after = {.vol = vol};
	struct body *b;

	while (vol->bodies->untold) {
		for (b = body_next_locked(vol, NULL); b && !b->untold;)
			b = body_next_locked(vol, b);
		if (!b)
			break;
		set_untold_locked(vol, b, false);
		if (!vol->bodies->deferred_stops) {
			mutex_unlock(&vol->lock);
			vol->observer->closed(vol, b->ino, b->closer, clock_mono_ns());
			mutex_lock(&vol->lock);
		}
		body_unpin_locked(vol, b, &after);
	}
	mutex_unlock(&vol->lock);
	after_run(&after);
	mutex_lock(&vol->lock);
}
