/* SPDX-License-Identifier: Apache-2.0 */
/* Dropping what the policy lets go. */
#include "lib/epochs/retention.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/cache/uploads.h"
#include "lib/epochs/adopt.h"
#include "lib/epochs/holder.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/seal.h"
#include "lib/live/bodies.h"
#include "lib/meta/listing.h"
#include "lib/meta/retention_policy.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"

/* Training goes first. */
#define RETAIN_NICE 10
/* A line of the log names so many of the epochs that went. */
#define NAMED_MAX 10

struct retention {
	struct volume *vol;
	struct retention_policy policy;
	struct background background; /* due: when what stays for a while only may go */
	uint64_t dropped;	      /* since the mount; guarded by its background lock */
};

/* ---- what there is ---- */

struct candidates {
	struct retention_epoch *list;
	size_t count;
	int64_t recent_ns; /* for so long one at least is recent; 0: none is */
};

static int compare_epochs(const void *a, const void *b)
{
	const struct retention_epoch *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static int mark_tagged(void *arg, const char *name, uint64_t number)
{
	const struct candidates *c = arg;
	const struct retention_epoch wanted = {.number = number};
	struct retention_epoch *e =
		c->count ? bsearch(&wanted, c->list, c->count, sizeof(wanted), compare_epochs)
			 : NULL;

	(void)name;
	if (e)
		e->tagged = true;
	return 0;
}

struct since {
	int64_t from_ns, to_ns; /* monotonic */
};

static int was_opened_then(void *arg, struct body *b)
{
	const struct since *s = arg;

	return b->writers && !b->orphan && !b->append_only && b->opened_ns >= s->from_ns &&
	       b->opened_ns <= s->to_ns;
}

/* Whether something is being written still that was opened while the epoch was recent: its save goes on for as long. */
static bool is_written_since_locked(struct volume *vol, const struct retention_epoch *e)
{
	struct since s = {.from_ns = clock_mono_ns() - (clock_wall_ns() - e->sealed_ns)};

	s.to_ns = s.from_ns + vol->options.patience_ns;
	return bodies_each_writing_locked(vol, was_opened_then, &s) != 0;
}

/* Whether the next epoch continues it, by what is known so far: then it is a part of a save. */
static bool is_continued_locked(const struct volume *vol, const struct retention_epoch *e)
{
	const struct pending *p = vol->sealer ? &vol->sealer->pending : NULL;
	uint64_t first = p ? p->continues : 0;

	if (first && p->continues_from && p->continues_from < first)
		first = p->continues_from;
	return first && e->number >= first;
}

/* For how long the epoch is recent still; 0: it is not. */
static int64_t recent_for_locked(struct volume *vol, const struct retention_epoch *e, bool untold)
{
	int64_t age = clock_wall_ns() - e->sealed_ns, patience = vol->options.patience_ns;

	if (untold && age < patience)
		return patience - (age > 0 ? age : 0);
	if (is_continued_locked(vol, e) || (untold && is_written_since_locked(vol, e)))
		return patience;
	return 0;
}

static void find_recent_locked(struct volume *vol, struct candidates *c)
{
	size_t untold = retention_untold(c->list, c->count);

	if (nodes_is_set(vol))
		return;
	retention_find_saves(c->list, c->count);
	for (size_t i = 0; i < c->count; i++) {
		int64_t recent_ns = recent_for_locked(vol, &c->list[i], i >= untold);

		c->list[i].recent = recent_ns > 0;
		if (recent_ns > c->recent_ns)
			c->recent_ns = recent_ns;
	}
}

static int collect_locked(struct volume *vol, struct candidates *c)
{
	const struct epoch_index *x = epochs_index_locked(vol);
	uint64_t pending = UINT64_MAX, current;
	int error = x ? 0 : -EIO;

	/* They become durable in their order: from the first that is not, none counts as it. */
	if (!error && !vol->local_only) {
		error = state_epoch_first_pending(vol->state, &pending);
		if (error == -ENOENT)
			error = 0;
	}
	if (error)
		return error;
	current = epochs_current_locked(vol);
	c->list = calloc(x->count + 1, sizeof(*c->list));
	if (!c->list)
		return -ENOMEM;
	for (size_t i = 0; i < x->count; i++) {
		const struct epoch_brief *e = &x->epochs[i];

		c->list[c->count++] = (struct retention_epoch){
			.number = e->number,
			.sealed_ns = e->sealed_ns,
			.step = e->step,
			.has_step = e->has_step,
			.complete = epoch_brief_complete(e),
			.unknown = e->unknown && !e->superseded,
			.durable = e->number < pending,
			.current = e->number == current || nodes_need_locked(vol, e->number),
			.bytes_new = e->bytes_new,
			.restores = e->restores != 0,
			.parent = e->parent,
			.trigger = e->trigger,
			.continues = e->continues,
			.half = e->half,
		};
	}
	find_recent_locked(vol, c);
	return state_tag_each(vol->state, mark_tagged, c);
}

/* ---- dropping ---- */

static void tell_dropped(const struct buf *numbers, uint64_t count)
{
	if (count)
		log_info("keep: dropped epoch%s %s%s", plural(count),
			 buf_str((struct buf *)(uintptr_t)numbers),
			 count > NAMED_MAX ? ", ..." : "");
}

/* What has got a tag or become current since it was decided stays: -EBUSY. */
static int drop_all(struct retention *r, const struct candidates *c)
{
	cleanup_buf struct buf numbers = {0};
	uint64_t dropped = 0;
	int error = 0;

	for (size_t i = 0; !error && i < c->count && !background_stops(&r->background); i++) {
		if (c->list[i].reasons)
			continue;
		error = drop_epoch(r->vol, c->list[i].number);
		if (error == -EBUSY || error == -ENOENT) {
			error = 0;
			continue;
		}
		if (error)
			break;
		FAULT_POINT("retain.dropped");
		if (dropped++ < NAMED_MAX)
			buf_printf(&numbers, "%s%" PRIu64, numbers.len ? ", " : "",
				   c->list[i].number);
	}
	if (dropped)
		drop_finish(r->vol);
	tell_dropped(&numbers, dropped);
	mutex_lock(&r->background.lock);
	r->dropped += dropped;
	mutex_unlock(&r->background.lock);
	return error;
}

static void look_again(struct retention *r, int64_t pause_ns)
{
	int64_t now = clock_mono_ns();

	SCOPED_LOCK(&r->background.lock);
	if (pause_ns && pause_ns < INT64_MAX - now)
		background_due_locked(&r->background, now + pause_ns);
}

static void pass(struct retention *r)
{
	struct candidates c = {0};
	int error;

	/* Whose epochs these are is another's to say now. */
	if (uploads_gave_up(r->vol) || holder_lost(r->vol))
		return;
	/* Other nodes may have tagged some. */
	error = nodes_is_set(r->vol) ? adopt_tags(r->vol) : 0;
	if (!error) {
		SCOPED_LOCK(&r->vol->lock);
		error = collect_locked(r->vol, &c);
	}
	if (!error)
		error = retention_decide(&r->policy, c.list, c.count);
	if (!error)
		error = drop_all(r, &c);
	free(c.list);
	look_again(r, c.recent_ns);
	if (error)
		log_warn("keep: epochs that may go are not dropped yet: %s", strerror(-error));
}

/* ---- the thread ---- */

static void *run(void *arg)
{
	struct retention *r = arg;

	/* A thread has its own nice value on Linux. */
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), RETAIN_NICE);
	while (background_next(&r->background))
		pass(r);
	return NULL;
}

int retention_start(struct volume *vol, struct opening_message *m)
{
	char why[RETENTION_WHY_MAX];
	struct retention *r;
	int error;

	if (!vol->options.keep)
		return 0;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	error = retention_parse(vol->options.keep, &r->policy, why);
	if (error || vol->options.read_only) {
		free(r);
		return error ? opening_fail(m, error, "keep=%s: expected %s", vol->options.keep,
					    why)
			     : 0;
	}
	error = background_init(&r->background, LOCK_RETAINER);
	if (error) {
		free(r);
		return error;
	}
	r->vol = vol;
	r->background.kicked = !nodes_is_set(vol);
	vol->retention = r;
	return 0;
}

int retention_run(struct volume *vol)
{
	struct retention *r = vol->retention;

	return r ? background_start(&r->background, run, r) : 0;
}

void retention_stop(struct volume *vol)
{
	if (vol->retention)
		background_stop(&vol->retention->background);
}

void retention_free(struct volume *vol)
{
	struct retention *r = vol->retention;

	if (!r)
		return;
	vol->retention = NULL;
	background_destroy(&r->background);
	free(r);
}

static void kick(struct retention *r)
{
	if (r)
		background_kick(&r->background);
}

void retention_kick(struct volume *vol)
{
	if (!nodes_is_set(vol))
		kick(vol->retention);
}

void retention_completed(struct volume *vol)
{
	kick(vol->retention);
}

uint64_t retention_recent_from_locked(struct volume *vol)
{
	struct candidates c = {0};
	uint64_t from = 0;

	if (collect_locked(vol, &c) == 0)
		for (size_t i = c.count; i-- > 0;)
			from = c.list[i].recent ? c.list[i].number : from;
	free(c.list);
	return from;
}

int retention_status(struct volume *vol, json_t *status)
{
	struct retention *r = vol->retention;
	json_t *retention;

	if (!r)
		return 0;
	SCOPED_LOCK(&r->background.lock);
	retention = json_pack("{s:o, s:I, s:b}", "keep", listing_string(vol->options.keep),
			      "dropped", (json_int_t)r->dropped, "busy",
			      r->background.kicked || r->background.busy);
	return json_object_set_new(status, "retention", retention) ? -ENOMEM : 0;
}
