/* SPDX-License-Identifier: Apache-2.0 */
/* The queues' threads, and what they tell `status`. */
#include "lib/epochs/announce_internal.h"
#include "lib/epochs/seal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/meta/listing.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"
#include "lib/util/thread.h"

#define FIRST_PAUSE_NS	 (1 * NS_PER_S)
#define LONGEST_PAUSE_NS (60 * NS_PER_S)
#define DRAIN_NS	 (10 * NS_PER_S)
#define POLL_NS		 (100 * NS_PER_MS)
/* In the state: the database that has every epoch of this volume, or has it in its queue. */
#define DB_META "announced_to"

struct sink {
	struct announcer *a;
	unsigned id;
	const char *name; /* as the option is called */
	pthread_t thread;
	bool runs;

	/* Guarded by the announcer's lock. */
	bool kicked;
	char *error; /* of the last try; NULL: it went well */
	int64_t failing_since_ns;
};

struct announcer {
	struct volume *vol;
	struct announce_program *program;
	struct sink sinks[SINK_COUNT];
	atomic_bool stops;   /* set with the lock held */
	struct mutex lock;   /* a leaf, but for the log */
	pthread_cond_t wake; /* a sink has work, has done it, or is to stop */
};

/* ---- telling ---- */

/* Of a row of failures the first goes to the log; `status` has the last. */
static void note_result(struct sink *k, int error, const char *why)
{
	bool failed;

	if (error == -ECANCELED)
		return;
	SCOPED_LOCK(&k->a->lock);
	failed = k->failing_since_ns != 0;
	free(k->error);
	k->error = error ? strdup(*why ? why : strerror(-error)) : NULL;
	if (error && !failed) {
		k->failing_since_ns = clock_wall_ns();
		log_warn("%s: %s; it is tried again until it succeeds", k->name, why);
	} else if (error) {
		log_debug("%s: %s", k->name, why);
	} else {
		if (failed)
			log_info("%s succeeds again", k->name);
		k->failing_since_ns = 0;
	}
	pthread_cond_broadcast(&k->a->wake);
}

static int tell(struct sink *k, const char *text, struct buf *why)
{
	struct announcer *a = k->a;

	if (k->id == SINK_PROGRAM)
		return announce_program_run(a->program, text, &a->stops, why);
	return announce_db_write(a->vol->options.catalog_db, text, why);
}

/* The oldest that waits: 0, -ENOENT where none does. */
static int tell_first(struct sink *k)
{
	struct volume *vol = k->a->vol;
	cleanup_buf struct buf why = {0};
	cleanup_free char *text = NULL;
	uint64_t id;
	int error;

	mutex_lock(&vol->lock);
	error = state_announcement_first(vol->state, k->id, &id, &text);
	mutex_unlock(&vol->lock);
	if (error == -ENOENT)
		return error;
	FAULT_POINT("announce.begin");
	if (!error)
		error = tell(k, text, &why);
	FAULT_POINT("announce.told");
	if (!error) {
		mutex_lock(&vol->lock);
		error = state_announcement_remove(vol->state, k->id, id);
		mutex_unlock(&vol->lock);
	}
	note_result(k, error, buf_str(&why));
	return error;
}

static bool wait_for_work(struct sink *k, int64_t pause_ns)
{
	struct announcer *a = k->a;
	int64_t deadline = clock_mono_ns() + pause_ns;

	SCOPED_LOCK(&a->lock);
	while (!atomic_load(&a->stops) && (!k->kicked || pause_ns)) {
		if (!pause_ns)
			cond_wait(&a->wake, &a->lock);
		else if (cond_wait_until(&a->wake, &a->lock, deadline) == -ETIMEDOUT)
			break;
	}
	k->kicked = false;
	return !atomic_load(&a->stops);
}

static void *run(void *arg)
{
	struct sink *k = arg;
	int64_t pause_ns = 0;

	while (wait_for_work(k, pause_ns)) {
		int error = 0;

		while (!error && !atomic_load(&k->a->stops))
			error = tell_first(k);
		pause_ns = error && error != -ENOENT
				   ? clock_backoff(pause_ns, FIRST_PAUSE_NS, LONGEST_PAUSE_NS)
				   : 0;
	}
	return NULL;
}

void announcer_kick_locked(struct volume *vol)
{
	struct announcer *a = vol->announcer;

	if (!a)
		return;
	SCOPED_LOCK(&a->lock);
	for (unsigned i = 0; i < SINK_COUNT; i++)
		a->sinks[i].kicked = true;
	pthread_cond_broadcast(&a->wake);
}

/* ---- a database that has not all epochs ---- */

static int seed_epoch(void *arg, const struct state_epoch *e)
{
	struct volume *vol = arg;
	cleanup_free char *text = NULL;
	int error;

	if (!e->record || e->state == EPOCH_DROPPED)
		return 0;
	error = announce_text(vol, e->state == EPOCH_DURABLE ? ANNOUNCE_DURABLE : ANNOUNCE_SEALED,
			      e, &text);
	/* A damaged row is its reader's to tell. */
	if (error)
		return error == -ENOMEM ? error : 0;
	return state_announcement_add(vol->state, SINK_DB, text);
}

static int seed_locked(struct volume *vol)
{
	const char *path = vol->options.catalog_db ? vol->options.catalog_db : "";
	cleanup_buf struct buf known = {0};
	int error = state_get_meta(vol->state, DB_META, &known);

	if (error && error != -ENOENT)
		return error;
	if (!strcmp(error ? "" : buf_str(&known), path))
		return 0;
	error = state_begin(vol->state);
	if (error)
		return error;
	error = state_announcements_clear(vol->state, SINK_DB);
	if (!error && *path)
		error = state_epoch_each(vol->state, seed_epoch, vol);
	if (!error)
		error = state_set_meta(vol->state, DB_META, path);
	return state_end(vol->state, error);
}

/* ---- start and stop ---- */

static void announcer_free(struct announcer *a)
{
	for (unsigned i = 0; i < SINK_COUNT; i++)
		free(a->sinks[i].error);
	announce_program_free(a->program);
	pthread_cond_destroy(&a->wake);
	mutex_destroy(&a->lock);
	free(a);
}

static int make_program(struct announcer *a, struct opening_message *m)
{
	const struct volume_options *o = &a->vol->options;
	int error = announce_program_new(o->on_epoch, o->on_epoch_timeout_ns, &a->program);

	if (error == -EINVAL)
		return opening_fail(m, error,
				    "on-epoch=%s: give a path from / or a name in PATH, and its "
				    "arguments, with quotes closed",
				    o->on_epoch);
	if (error == -ENOENT || error == -EACCES)
		return opening_fail(m, -EINVAL, "on-epoch=%s: %s", o->on_epoch,
				    error == -ENOENT ? "there is no such program"
						     : "the program may not be run");
	return error;
}

/* Each write would be a change that the next epoch takes and announces. */
static int check_db(const struct volume_options *o, struct opening_message *m)
{
	size_t len = o->mountpoint ? strlen(o->mountpoint) : 0;

	if (len && !strncmp(o->catalog_db, o->mountpoint, len) && o->catalog_db[len] == '/')
		return opening_fail(m, -EINVAL,
				    "catalog=%s lies in the mount: keep the database elsewhere",
				    o->catalog_db);
	return 0;
}

static int make_sinks(struct announcer *a, struct opening_message *m)
{
	static const char *const names[SINK_COUNT] = {"on-epoch", "catalog"};
	const struct volume_options *o = &a->vol->options;
	int error = 0;

	for (unsigned i = 0; i < SINK_COUNT; i++)
		a->sinks[i] = (struct sink){.a = a, .id = i, .name = names[i], .kicked = true};
	if (o->on_epoch)
		error = make_program(a, m);
	if (!error && o->catalog_db)
		error = check_db(o, m);
	return error;
}

static int start_threads(struct announcer *a)
{
	const struct volume_options *o = &a->vol->options;
	const char *const wanted[SINK_COUNT] = {o->on_epoch, o->catalog_db};
	int error = 0;

	for (unsigned i = 0; !error && i < SINK_COUNT; i++) {
		struct sink *k = &a->sinks[i];

		if (!wanted[i])
			continue;
		error = thread_start(&k->thread, NULL, run, k);
		k->runs = !error;
	}
	return error;
}

int announcer_start(struct volume *vol, struct opening_message *m)
{
	struct announcer *a;
	int error;

	if (vol->options.read_only)
		return 0;
	mutex_lock(&vol->lock);
	error = seed_locked(vol);
	mutex_unlock(&vol->lock);
	if (error || (!vol->options.on_epoch && !vol->options.catalog_db))
		return error;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	error = cond_init_mono(&a->wake);
	if (error) {
		free(a);
		return error;
	}
	a->vol = vol;
	mutex_init(&a->lock, LOCK_ANNOUNCER);
	error = make_sinks(a, m);
	if (error) {
		announcer_free(a);
		return error;
	}
	vol->announcer = a;
	return start_threads(a);
}

void announcer_stop(struct volume *vol)
{
	struct announcer *a = vol->announcer;

	if (!a)
		return;
	mutex_lock(&a->lock);
	atomic_store(&a->stops, true);
	pthread_cond_broadcast(&a->wake);
	mutex_unlock(&a->lock);
	for (unsigned i = 0; i < SINK_COUNT; i++)
		if (a->sinks[i].runs)
			pthread_join(a->sinks[i].thread, NULL);
	mutex_lock(&vol->lock);
	vol->announcer = NULL;
	mutex_unlock(&vol->lock);
	announcer_free(a);
}

/* ---- waiting and status ---- */

static uint64_t waiting(struct sink *k)
{
	struct volume *vol = k->a->vol;
	uint64_t count = 0;

	SCOPED_LOCK(&vol->lock);
	if (state_announcements_count(vol->state, k->id, &count) != 0)
		return 0;
	return count;
}

/* Something waits, and the last try went well. */
static bool makes_headway(struct announcer *a)
{
	for (unsigned i = 0; i < SINK_COUNT; i++) {
		struct sink *k = &a->sinks[i];
		bool failing;

		if (!k->runs)
			continue;
		mutex_lock(&a->lock);
		failing = k->failing_since_ns != 0;
		mutex_unlock(&a->lock);
		if (!failing && waiting(k))
			return true;
	}
	return false;
}

void announcer_drain(struct volume *vol, interrupted_fn interrupted, void *arg)
{
	struct announcer *a = vol->announcer;
	int64_t deadline = clock_mono_ns() + DRAIN_NS;

	while (a && makes_headway(a) && clock_mono_ns() < deadline) {
		if (interrupted && interrupted(arg))
			return;
		SCOPED_LOCK(&a->lock);
		cond_wait_until(&a->wake, &a->lock, clock_mono_ns() + POLL_NS);
	}
}

static json_t *sink_status(struct sink *k)
{
	json_t *o = json_pack("{s:I}", "waiting", (json_int_t)waiting(k));

	SCOPED_LOCK(&k->a->lock);
	if (k->error)
		json_object_set_new(o, "error", listing_string(k->error));
	if (k->failing_since_ns)
		json_object_set_new(o, "failing_since_ns", json_integer(k->failing_since_ns));
	return o;
}

int announcer_status(struct volume *vol, json_t *status)
{
	struct announcer *a = vol->announcer;
	json_t *all;

	if (!a)
		return 0;
	all = json_object();
	for (unsigned i = 0; i < SINK_COUNT; i++)
		if (a->sinks[i].runs)
			json_object_set_new(all, a->sinks[i].name, sink_status(&a->sinks[i]));
	return json_object_set_new(status, "announce", all) ? -ENOMEM : 0;
}

/* ---- What is announced of an epoch, and who wants it. ---- */

static json_t *drop_object(const struct volume *vol, const char *event, uint64_t number)
{
	char now[FORMAT_MAX];

	format_time(clock_wall_ns(), now);
	return json_pack("{s:s, s:I, s:s, s:s}", "event", event, "epoch", (json_int_t)number,
			 "volume", vol->uuid, event, now);
}

static void add_tree_hash(json_t *object, const struct epoch_record *r)
{
	char text[HASH_HEX];

	if (!r->tree_size)
		return;
	hash_to_hex(&r->tree_hash, text);
	json_object_set_new(object, "tree_hash", json_string(text));
}

/* What is no longer complete by this epoch: the one that it continues, and those that have the same half. */
static void add_continued(const struct volume *vol, json_t *object, const struct epoch_record *r)
{
	const struct sealer *s = vol->sealer;
	const struct epoch_index *x;
	json_t *list;
	uint64_t half;
	const struct epoch_brief by = {
		.number = r->number,
		.continues_from = r->continues_from < r->continues ? r->continues_from : 0,
	};

	/* What is told as the volume is opened is as it is now: nothing becomes so by it. */
	if (!r->continues || !s || !s->index_loaded)
		return;
	x = &s->index;
	half = epoch_index_half_of(x, r->continues);
	list = json_array();
	for (size_t i = 0; list && i < x->count; i++)
		if (epoch_brief_is_half(&x->epochs[i], r->continues, half, r->number) ||
		    epoch_brief_is_in_save(&x->epochs[i], &by))
			json_array_append_new(list, json_integer((json_int_t)x->epochs[i].number));
	if (list)
		json_object_set_new(object, "continued_epochs", list);
}

static int epoch_object(const struct volume *vol, enum announce_event event,
			const struct state_epoch *row, json_t **ret_object)
{
	struct epoch_info info = {
		.number = row->number,
		.state = row->state,
		.superseded = row->superseded,
	};
	int error = record_decode(row->record, strlen(row->record), &info.record);
	json_t *object;

	if (error)
		return error;
	info.complete = info.record.complete == RECORD_COMPLETE && !info.superseded;
	object = listing_epoch(&info);
	if (object) {
		json_object_set_new(object, "event",
				    json_string(event == ANNOUNCE_SEALED ? "sealed" : "durable"));
		json_object_set_new(object, "remote", listing_string(remote_name(vol->remote)));
		if (vol->options.mountpoint)
			json_object_set_new(object, "mountpoint",
					    listing_string(vol->options.mountpoint));
		add_tree_hash(object, &info.record);
		add_continued(vol, object, &info.record);
	}
	record_free(&info.record);
	*ret_object = object;
	return object ? 0 : -ENOMEM;
}

int announce_text(const struct volume *vol, enum announce_event event,
		  const struct state_epoch *row, char **ret_text)
{
	json_t *object = NULL;
	int error = 0;

	if (event == ANNOUNCE_DROPPED)
		object = drop_object(vol, "dropped", row->number);
	else if (event == ANNOUNCE_UNDROPPED)
		object = drop_object(vol, "undropped", row->number);
	else
		error = epoch_object(vol, event, row, &object);
	*ret_text = error ? NULL : json_dumps(object, JSON_COMPACT);
	json_decref(object);
	return error ? error : *ret_text ? 0 : -ENOMEM;
}

static bool wants(const struct volume *vol, unsigned sink, enum announce_event event)
{
	if (vol->options.read_only)
		return false;
	if (sink == SINK_PROGRAM)
		return vol->options.on_epoch && event != ANNOUNCE_DROPPED &&
		       event != ANNOUNCE_UNDROPPED;
	return vol->options.catalog_db != NULL;
}

int announce_locked(struct volume *vol, enum announce_event event, const struct state_epoch *row)
{
	cleanup_free char *text = NULL;
	int error = 0;

	for (unsigned sink = 0; !error && sink < SINK_COUNT; sink++) {
		if (!wants(vol, sink, event))
			continue;
		if (!text)
			error = announce_text(vol, event, row, &text);
		if (!error)
			error = state_announcement_add(vol->state, sink, text);
	}
	if (text)
		announcer_kick_locked(vol);
	return error;
}
