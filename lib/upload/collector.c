/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection by a mount. */
#include "lib/upload/upload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/cache/uploads.h"
#include "lib/epochs/holder.h"
#include "lib/meta/collection.h"
#include "lib/meta/listing.h"
#include "lib/upload/nodes.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"

/* Between two collections: this part of the grace, within bounds, and so often what one took. */
#define PART_OF_GRACE 24
#define SHORTEST_NS   (100 * NS_PER_MS)
#define LONGEST_NS    (3600 * NS_PER_S)
#define REST	      4
/* After the volume was opened. */
#define FIRST_NS (60 * NS_PER_S)
/* Of several nodes that are mounted together, they begin at different times. */
#define SPREAD 8
/* For each moment of work, so many of rest; at most so long at once, since a phase waits meanwhile. */
#define REST_FOR_WORK 3
#define REST_MAX_NS   (100 * NS_PER_MS)
/* What it asks of a remote that is away. */
#define PATIENCE_NS (60 * NS_PER_S)
/* A confirmation that is so old will do before a deletion. */
#define CONFIRMED_NS NS_PER_S

struct collector {
	struct volume *vol;
	struct remote *remote;
	int64_t delay_ns;	      /* from a drop to the next collection */
	struct background background; /* due: as `status` says; INT64_MAX: nothing is to be done */

	/* Of the one collection under way: by its threads, one at a time. */
	int64_t worked_ns; /* monotonic: since when it has been working */
	int64_t owed_ns;

	/* Guarded by its background lock. */
	const char *phase;
	uint64_t collections;
	uint64_t freed; /* bytes, since the mount */
	int64_t began_ns, took_ns;
	struct gc_totals last; /* of the last one that went well; began_ns 0: none */
	char *error;	       /* of the last one; NULL: it went well */
};

/* ---- when ---- */

static void due_locked(struct collector *c, int64_t in_ns)
{
	int64_t now = clock_mono_ns();

	background_due_locked(&c->background, in_ns < INT64_MAX - now ? now + in_ns : INT64_MAX);
}

void collector_kick(struct volume *vol)
{
	struct collector *c = vol->collector;

	if (!c)
		return;
	SCOPED_LOCK(&c->background.lock);
	due_locked(c, c->delay_ns);
}

/* ---- a collection ---- */

/* Training goes first: work and rest in turn. */
static void on_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
	struct collector *c = arg;
	int64_t now = clock_mono_ns(), rest;
	struct timespec ts;
	bool stops;

	(void)done, (void)total;
	mutex_lock(&c->background.lock);
	c->phase = phase;
	stops = c->background.stops;
	mutex_unlock(&c->background.lock);
	c->owed_ns += (now - c->worked_ns) * REST_FOR_WORK;
	rest = c->owed_ns < REST_MAX_NS ? c->owed_ns : REST_MAX_NS;
	if (!stops) {
		ts = clock_timespec(rest);
		nanosleep(&ts, NULL);
	}
	c->owed_ns -= rest;
	c->worked_ns = clock_mono_ns();
}

static int confirm(void *arg)
{
	struct collector *c = arg;

	return background_stops(&c->background) ? -ECANCELED
						: holder_confirm(c->vol, c->remote, CONFIRMED_NS);
}

static void tell_done(const struct gc_totals *t)
{
	char freed[FORMAT_MAX], waiting[FORMAT_MAX];

	format_size(t->store.deleted.bytes, freed);
	format_size(t->store.waiting.bytes, waiting);
	log_write(t->store.deleted.bytes || t->store.condemned.bytes ? LOG_LEVEL_INFO
								     : LOG_LEVEL_DEBUG,
		  "garbage collection: %s %s, %s wait for the grace",
		  t->keeps_versions ? "marked as deleted" : "freed", freed, waiting);
}

/* After one that went well: when there is more to do by itself. */
static int64_t next_in_ns(const struct collector *c, const struct gc_totals *t)
{
	int64_t in_ns = INT64_MAX;

	if (t->store.next_ns)
		in_ns = t->store.next_ns - clock_wall_ns();
	/* Uploads that never ended: condemned when they were seen for the grace. */
	if (t->store.unnamed.packs && in_ns > c->vol->options.gc_grace_ns)
		in_ns = c->vol->options.gc_grace_ns;
	return in_ns < c->delay_ns ? c->delay_ns : in_ns;
}

static void note(struct collector *c, const struct gc_totals *totals, int error, char *message)
{
	int64_t rest = c->took_ns * REST;
	bool first;

	mutex_lock(&c->background.lock);
	c->collections++;
	first = error && !c->error;
	free(c->error);
	c->error = NULL;
	if (error) {
		due_locked(c, c->delay_ns > rest ? c->delay_ns : rest);
		c->error = strdup(message ? message : strerror(-error));
	} else {
		c->last = *totals;
		c->freed += totals->store.deleted.bytes;
		due_locked(c, next_in_ns(c, totals));
		/* Drops that came meanwhile wait as well. */
		if (c->background.due_ns < clock_mono_ns() + rest)
			c->background.due_ns = clock_mono_ns() + rest;
	}
	mutex_unlock(&c->background.lock);
	if (first)
		log_warn("garbage collection failed: %s; it is tried again",
			 message ? message : strerror(-error));
}

static void collect(struct collector *c)
{
	struct gc how = {
		.grace_ns = c->vol->options.gc_grace_ns,
		.keep_percent = GC_KEEP_PERCENT,
		.background = true,
		.confirm = confirm,
		.progress = on_progress,
		.arg = c,
	};
	struct gc_totals totals = {0};
	cleanup_free char *message = NULL;
	int64_t began = clock_mono_ns();
	int error;

	mutex_lock(&c->background.lock);
	c->began_ns = clock_wall_ns();
	mutex_unlock(&c->background.lock);
	c->worked_ns = began;
	c->owed_ns = 0;
	/* None at all would be a loop of passes: the writer here must be waited for anyway. */
	if (how.grace_ns < GC_WRITER_NS)
		how.grace_ns = GC_WRITER_NS;
	error = gc_collect(c->remote, &how, &totals, &message);
	if (error == -ECANCELED || error == -ESTALE)
		return;
	c->took_ns = clock_mono_ns() - began;
	/* Another node's, or a person's. */
	if (error == -EEXIST) {
		mutex_lock(&c->background.lock);
		due_locked(c, c->delay_ns + REST_MAX_NS);
		mutex_unlock(&c->background.lock);
		return;
	}
	if (!error)
		tell_done(&totals);
	note(c, &totals, error, message);
	memory_give_back();
}

static void *run(void *arg)
{
	struct collector *c = arg;

	/* So do the threads that it starts. */
	thread_give_way();
	while (background_next(&c->background)) {
		if (!uploads_gave_up(c->vol) && !holder_lost(c->vol))
			collect(c);
		mutex_lock(&c->background.lock);
		c->phase = NULL;
		mutex_unlock(&c->background.lock);
	}
	return NULL;
}

/* ---- making and ending ---- */

static int open_remote(struct collector *c)
{
	const struct remote_retry_policy policy = {.max_total_ns = PATIENCE_NS};
	struct remote *inner = remote_ref(c->vol->plain);
	int error = remote_retry_new(inner, &policy, &c->remote);

	if (error)
		remote_close(inner);
	return error;
}

static int64_t first_in_ns(const struct collector *c)
{
	int64_t in_ns = c->delay_ns < FIRST_NS ? c->delay_ns : FIRST_NS;

	if (nodes_is_set(c->vol))
		in_ns += in_ns / SPREAD * (clock_wall_ns() / NS_PER_MS % SPREAD);
	return in_ns;
}

static void set_delay(struct collector *c)
{
	c->delay_ns = c->vol->options.gc_grace_ns / PART_OF_GRACE;
	if (c->delay_ns < SHORTEST_NS)
		c->delay_ns = SHORTEST_NS;
	if (c->delay_ns > LONGEST_NS)
		c->delay_ns = LONGEST_NS;
}

int collector_start(struct volume *vol)
{
	struct collector *c;
	int error;

	if (!vol->options.keep || vol->options.gc_off || vol->options.read_only || vol->local_only)
		return 0;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	error = background_init(&c->background, LOCK_COLLECTOR);
	if (error) {
		free(c);
		return error;
	}
	c->vol = vol;
	set_delay(c);
	c->background.due_ns = clock_mono_ns() + first_in_ns(c);
	vol->collector = c;
	return 0;
}

int collector_run(struct volume *vol)
{
	struct collector *c = vol->collector;
	int error = c ? open_remote(c) : 0;

	return error || !c ? error : background_start(&c->background, run, c);
}

void collector_stop(struct volume *vol)
{
	struct collector *c = vol->collector;

	if (!c || !c->background.runs)
		return;
	background_tell_stop(&c->background);
	remote_cancel(c->remote);
	background_join(&c->background);
	remote_resume(c->remote);
}

void collector_free(struct volume *vol)
{
	struct collector *c = vol->collector;

	if (!c)
		return;
	vol->collector = NULL;
	remote_close(c->remote);
	background_destroy(&c->background);
	free(c->error);
	free(c);
}

/* ---- status ---- */

static void add_last_locked(const struct collector *c, json_t *gc)
{
	const struct store_gc_totals *s = &c->last.store;

	json_object_set_new(gc, "last",
			    json_pack("{s:I, s:I, s:I, s:I, s:I}", "began_ns",
				      (json_int_t)c->began_ns, "took_ns", (json_int_t)c->took_ns,
				      "bytes_freed", (json_int_t)s->deleted.bytes,
				      "bytes_condemned", (json_int_t)s->condemned.bytes,
				      "bytes_waiting", (json_int_t)s->waiting.bytes));
}

static int64_t due_in_ns(const struct collector *c)
{
	int64_t now = clock_mono_ns();

	return c->background.due_ns > now ? c->background.due_ns - now : 0;
}

int collector_status(struct volume *vol, json_t *status)
{
	struct collector *c = vol->collector;
	json_t *gc;

	if (!c)
		return 0;
	SCOPED_LOCK(&c->background.lock);
	gc = json_pack("{s:b, s:I, s:I, s:I}", "busy", (int)c->background.busy, "grace_ns",
		       (json_int_t)vol->options.gc_grace_ns, "collections",
		       (json_int_t)c->collections, "bytes_freed", (json_int_t)c->freed);
	if (!gc)
		return -ENOMEM;
	json_object_set_new(gc, "keeps_versions", json_boolean(remote_keeps_versions(vol->remote)));
	if (c->phase)
		json_object_set_new(gc, "phase", json_string(c->phase));
	if (c->collections && !c->background.busy && !c->error)
		add_last_locked(c, gc);
	if (c->background.due_ns != INT64_MAX)
		json_object_set_new(gc, "next_in_ns", json_integer(due_in_ns(c)));
	if (c->error)
		json_object_set_new(gc, "error", listing_string(c->error));
	return json_object_set_new(status, "gc", gc) ? -ENOMEM : 0;
}
