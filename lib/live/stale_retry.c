/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that were told ESTALE by an open. The kernel looks the name up again and opens once more;
 * a second ESTALE would reach the program. */
#include "lib/live/bodies.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include "lib/util/log.h"

/* The second open follows at once, but on a machine that does much else; what is older is of a thread that was killed on its way. */
#define STALE_RETRY_LIFE (60 * NS_PER_S)

/* Of what it replaces there is the old record until its number is set. */
static struct stale_retry_record *keep_record_locked(struct volume *vol,
						     const struct stale_retry *t)
{
	const struct body *b = body_pending_for_locked(vol, t->ino, t->tid);
	struct stale_retry_record *r;

	if (!vol->options.stale_retry_records)
		return NULL;
	r = &vol->options.stale_retry_records[vol->bodies->next_told_record++ %
					      vol->options.stale_retry_records_count];
	__atomic_store_n(&r->ino, 0, __ATOMIC_RELEASE);
	r->body = b ? b->id : 0;
	r->at_ns = t->at_ns;
	r->tid = t->tid;
	r->tgid = t->tgid;
	r->flags = t->flags;
	r->taken = false;
	__atomic_store_n(&r->ino, t->ino, __ATOMIC_RELEASE);
	return r;
}

int stale_retry_add_locked(struct volume *vol, const struct stale_retry *what)
{
	struct stale_retry *t = malloc(sizeof(*t));

	if (!t)
		return -ENOMEM;
	*t = *what;
	t->at_ns = clock_mono_ns();
	t->record = keep_record_locked(vol, t);
	t->next = vol->bodies->told;
	vol->bodies->told = t;
	return 0;
}

void stale_retry_again_locked(struct handle *h)
{
	/* What the walk looked up is known by the open that is undone. */
	struct stale_retry told = {.ino = h->body->ino,
				   .tid = h->tid,
				   .tgid = h->tgid,
				   .flags = h->flags,
				   .parent = h->looked,
				   .led = h->body};

	if (!h->told)
		return;
	if (stale_retry_add_locked(h->vol, &told))
		log_warn("inode %" PRIu64 ": an open cannot be tried again: %s", told.ino,
			 strerror(ENOMEM));
	else
		h->body->pins++;
}

static bool is_late(int64_t at_ns)
{
	int64_t age = clock_mono_ns() - at_ns;

	return age < 0 || age > STALE_RETRY_LIFE;
}

void stale_retry_revive_locked(struct volume *vol)
{
	for (size_t i = 0; i < vol->options.stale_retry_records_count; i++) {
		struct stale_retry_record *r = &vol->options.stale_retry_records[i];
		struct stale_retry *t =
			r->ino && !r->taken && !is_late(r->at_ns) ? calloc(1, sizeof(*t)) : NULL;

		if (!t)
			continue;
		t->ino = r->ino;
		t->tid = r->tid;
		t->tgid = r->tgid;
		t->flags = r->flags;
		t->at_ns = r->at_ns;
		t->record = r;
		t->next = vol->bodies->told;
		vol->bodies->told = t;
	}
}

bool stale_retry_leads_locked(const struct volume *vol, uint64_t body, pid_t *ret_tgid)
{
	for (size_t i = 0; i < vol->options.stale_retry_records_count; i++) {
		const struct stale_retry_record *r = &vol->options.stale_retry_records[i];

		if (r->ino && r->body == body && !is_late(r->at_ns)) {
			*ret_tgid = r->tgid;
			return true;
		}
	}
	return false;
}

struct stale_retry *stale_retry_find_locked(struct volume *vol, pid_t tid)
{
	struct stale_retry *t = vol->bodies->told;

	while (t && t->tid != tid)
		t = t->next;
	return t;
}

bool stale_retry_other_locked(const struct volume *vol, uint64_t ino, pid_t tid, pid_t tgid)
{
	for (const struct stale_retry *t = vol->bodies->told; t; t = t->next)
		if (t->ino == ino && t->tgid == tgid && t->tid != tid && !is_late(t->at_ns))
			return true;
	return false;
}

void stale_retry_lead_locked(struct volume *vol, struct stale_retry *t, const struct state_file *f,
			     struct after *after)
{
	struct body *before = t->led;

	/* Without memory the open may meet ESTALE once more. */
	if (body_get_locked(vol, f, &t->led))
		t->led = NULL;
	if (t->led)
		t->led->pins++;
	if (before)
		body_unpin_locked(vol, before, after);
}

static void stale_retry_remove_locked(struct volume *vol, struct stale_retry **p,
				      struct after *after)
{
	struct stale_retry *t = *p;

	if (t->record && t->record->ino == t->ino && t->record->tid == t->tid)
		t->record->taken = true;
	*p = t->next;
	if (t->led)
		body_unpin_locked(vol, t->led, after);
	free(t);
}

void stale_retry_forget_locked(struct volume *vol, pid_t tid, struct after *after)
{
	for (struct stale_retry **p = &vol->bodies->told, *t; tid && (t = *p);)
		if (t->tid == tid)
			stale_retry_remove_locked(vol, p, after);
		else
			p = &t->next;
}

bool stale_retry_take_locked(struct volume *vol, uint64_t ino, pid_t tid, bool *ret_looked,
			     struct after *after)
{
	int64_t now = clock_mono_ns();
	struct stale_retry **p = &vol->bodies->told, *t;
	bool found = false;

	while ((t = *p)) {
		bool mine = t->ino == ino && t->tid == tid, old = now - t->at_ns > STALE_RETRY_LIFE;

		if (!mine && !old) {
			p = &t->next;
			continue;
		}
		found |= mine && !old;
		if (mine && !old)
			*ret_looked = t->parent != 0;
		stale_retry_remove_locked(vol, p, after);
	}
	return found;
}

void stale_retry_expire_locked(struct volume *vol, bool all, struct after *after)
{
	for (struct stale_retry **p = &vol->bodies->told, *t; (t = *p);)
		if (all || is_late(t->at_ns))
			stale_retry_remove_locked(vol, p, after);
		else
			p = &t->next;
}
