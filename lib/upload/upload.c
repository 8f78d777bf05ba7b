/* SPDX-License-Identifier: Apache-2.0 */
/* The uploader's thread, and what it tells `status`. */
#include "lib/upload/upload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "lib/cache/store_index.h"
#include "lib/epochs/driver.h"
#include "lib/epochs/holder.h"
#include "lib/upload/early_upload.h"
#include "lib/upload/nodes.h"
#include "lib/upload/upload_epoch.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"

/* Between tries of what the retrying remote does not repeat itself: local errors, damaged answers. */
/* How often who waits for a call asks whether he is interrupted. */
#define CALL_POLL_NS	 (50 * NS_PER_MS)
#define FIRST_PAUSE_NS	 (1 * NS_PER_S)
#define LONGEST_PAUSE_NS (60 * NS_PER_S)
/* Before an epoch's bytes; before its record it is asked again. */
#define CONFIRMED_NS (1 * NS_PER_S)
/* Training goes first. */
#define UPLOAD_NICE 10

struct uploader {
	struct volume *vol;
	struct remote *remote; /* retries for ever */
	struct store *store;
	struct upload_progress progress;
	struct early_upload *ahead;
	pthread_t thread;
	bool runs;

	struct mutex lock; /* a leaf: guards the rest */
	pthread_cond_t wake;
	struct upload_call *calls; /* in their order */
	pthread_cond_t called;	   /* one of them is done */
	bool kicked, stops;
	bool conflict; /* another writer took a number: nothing is uploaded any more */
	char *error;   /* of the last try; NULL: it went well */
	int64_t failing_since_ns;
};

static bool uploader_gave_up(struct volume *vol)
{
	struct uploader *up = vol->uploader;

	if (!up)
		return false;
	SCOPED_LOCK(&up->lock);
	return up->conflict;
}

/* What one of several nodes seals is a part. */
static const char *kind(uint64_t number)
{
	return nodes_is_part(number) ? "part" : "epoch";
}

static uint64_t shown(uint64_t number)
{
	return nodes_is_part(number) ? number - NODES_FIRST : number;
}

static void set_error(struct uploader *up, uint64_t number, int error)
{
	char text[REMOTE_TEXT_MAX];

	mutex_lock(&up->lock);
	free(up->error);
	up->error = NULL;
	if (error == -ESTALE) {
		cleanup_buf struct buf why = {0};

		up->conflict = true;
		holder_lost_text(up->vol, &why);
		up->error = strdup(buf_str(&why));
	} else if (error == -EEXIST) {
		up->conflict = true;
		if (text_print(
			    &up->error,
			    "%s %" PRIu64
			    ": another writer has taken this number in the remote; what is sealed stays "
			    "in the cache: copy what you need, unmount with --no-drain, and mount with "
			    "another cache-dir",
			    kind(number), shown(number)) < 0)
			up->error = NULL;
	} else if (error) {
		up->error = strdup(remote_strerror(up->remote, error, text));
	}
	if (!error)
		up->failing_since_ns = 0;
	else if (!up->failing_since_ns)
		up->failing_since_ns = clock_wall_ns();
	mutex_unlock(&up->lock);
}

static bool stopping(struct uploader *up)
{
	bool stops;

	mutex_lock(&up->lock);
	stops = up->stops;
	mutex_unlock(&up->lock);
	return stops;
}

/* The epoch's row says that the last try failed, and why. */
static void mark_failed(struct uploader *up, uint64_t number)
{
	struct volume *vol = up->vol;
	struct state_epoch row;

	mutex_lock(&vol->lock);
	if (state_epoch_get(vol->state, number, &row) == 0) {
		if (row.state == EPOCH_UPLOADING || row.state == EPOCH_SEALED) {
			row.state = EPOCH_FAILED;
			free(row.error);
			mutex_lock(&up->lock);
			row.error = up->error ? strdup(up->error) : NULL;
			mutex_unlock(&up->lock);
			state_epoch_set(vol->state, &row);
		}
		state_epoch_free(&row);
	}
	pthread_cond_broadcast(&vol->changed);
	mutex_unlock(&vol->lock);
}

static int collect_pending(void *arg, const struct state_epoch *e)
{
	struct buf *numbers = arg;

	if (e->state == EPOCH_UPLOADING || (e->state == EPOCH_SEALED && e->record))
		buf_put(numbers, &e->number, sizeof(e->number));
	return buf_error(numbers);
}

/* Another writer is there: what is left stays here, and what is sealed later too. */
static void fail_all(struct uploader *up)
{
	cleanup_buf struct buf numbers = {0};
	int error;

	mutex_lock(&up->vol->lock);
	error = state_epoch_each(up->vol->state, collect_pending, &numbers);
	mutex_unlock(&up->vol->lock);
	for (size_t at = 0; !error && at < numbers.len; at += sizeof(uint64_t)) {
		uint64_t number;

		memcpy(&number, numbers.data + at, sizeof(number));
		mark_failed(up, number);
	}
}

/* ---- calls ---- */

static struct upload_call *take_call(struct uploader *up)
{
	struct upload_call *c;

	SCOPED_LOCK(&up->lock);
	c = up->calls;
	if (c)
		up->calls = c->next;
	return c;
}

static void end_call(struct uploader *up, struct upload_call *c, int error)
{
	bool abandoned;

	mutex_lock(&up->lock);
	c->error = error;
	c->done = true;
	abandoned = c->abandoned;
	pthread_cond_broadcast(&up->called);
	mutex_unlock(&up->lock);
	if (abandoned)
		c->free(c);
}

/* With `refused` they are only answered. -ECANCELED: the thread is to end. */
static int run_calls(struct uploader *up, int refused)
{
	struct upload_call *c;
	int error = 0;

	while ((refused || error != -ECANCELED) && (c = take_call(up))) {
		error = refused ? refused : c->run(c, up->remote, up->store);
		end_call(up, c, error);
	}
	return error == -ECANCELED ? error : 0;
}

static void abandon_call_locked(struct uploader *up, struct upload_call *c)
{
	for (struct upload_call **p = &up->calls; *p; p = &(*p)->next) {
		if (*p != c)
			continue;
		*p = c->next;
		c->done = true;
		return;
	}
	c->abandoned = !c->done;
}

/* *ret_left: the call is the uploader's to free. */
static int wait_for_call(struct uploader *up, struct upload_call *c, interrupted_fn interrupted,
			 void *arg, bool *ret_left)
{
	for (;;) {
		/* Without the lock: it may ask the kernel. */
		bool stop = interrupted && interrupted(arg);
		SCOPED_LOCK(&up->lock);

		if (c->done)
			return c->error;
		if (stop) {
			abandon_call_locked(up, c);
			*ret_left = c->abandoned;
			return -EINTR;
		}
		cond_wait_until(&up->called, &up->lock, clock_mono_ns() + CALL_POLL_NS);
	}
}

int uploader_call(struct volume *vol, struct upload_call *c, interrupted_fn interrupted, void *arg)
{
	struct uploader *up = vol->uploader;
	struct upload_call **last = &up->calls;
	bool left = false;
	int error;

	c->done = c->abandoned = false;
	c->next = NULL;
	mutex_lock(&up->lock);
	while (*last)
		last = &(*last)->next;
	*last = c;
	up->kicked = true;
	pthread_cond_signal(&up->wake);
	mutex_unlock(&up->lock);
	error = wait_for_call(up, c, interrupted, arg, &left);
	if (!left)
		c->free(c);
	return error;
}

/* What the nodes' parts make whole becomes an epoch. */
static int complete(struct uploader *up)
{
	int error = nodes_is_set(up->vol) ? nodes_complete(up->vol, up->remote, up->store) : 0;

	if (error != -ECANCELED)
		set_error(up, 0, error);
	return error;
}

/* One pass over all that waits: 0 when nothing is left. */
static int work(struct uploader *up)
{
	for (;;) {
		uint64_t number = 0;
		bool more = false;
		int error = upload_changes(up->vol, up->remote, &more);

		if (error || stopping(up)) {
			set_error(up, 0, error == -ECANCELED ? 0 : error);
			return error;
		}
		error = run_calls(up, 0);
		if (error)
			return error;
		mutex_lock(&up->vol->lock);
		error = state_epoch_first_pending(up->vol->state, &number);
		if (!error && driver_holds_upload_locked(up->vol, number))
			error = -ENOENT;
		mutex_unlock(&up->vol->lock);
		if (error == -ENOENT && more)
			continue;
		if (error == -ENOENT) {
			/* One at a time: what is sealed meanwhile goes first. */
			error = early_upload_store(up->ahead, up->vol, up->remote, up->store);
			if (error <= 0)
				return error ? error : complete(up);
			continue;
		}
		if (error)
			return error;
		error = holder_confirm(up->vol, up->remote, CONFIRMED_NS);
		if (!error)
			error = upload_epoch(up->vol, up->remote, up->store, number, up->ahead,
					     &up->progress);
		if (error == -ECANCELED)
			return error;
		set_error(up, number, error);
		if (error) {
			mark_failed(up, number);
			if (error != -ESTALE) /* holder.c has said why */
				log_warn("%s %" PRIu64 " is not uploaded yet: %s", kind(number),
					 shown(number), strerror(-error));
			return error;
		}
		log_info("%s %" PRIu64 " is durable", kind(number), shown(number));
		memory_give_back();
		/* Where it fails, what is sealed goes first; it comes again when nothing is left of that. */
		error = complete(up);
		if (error == -ECANCELED || error == -ESTALE)
			return error;
	}
}

/* Waits until there is something to do, or until a failed pass is worth another try. False: stop. */
static bool wait_for_work(struct uploader *up, int64_t pause_ns)
{
	int64_t deadline = clock_mono_ns() + pause_ns;
	bool goes_on;

	mutex_lock(&up->lock);
	while (!up->stops && (!up->kicked || pause_ns)) {
		if (!pause_ns)
			cond_wait(&up->wake, &up->lock);
		else if (cond_wait_until(&up->wake, &up->lock, deadline) == -ETIMEDOUT)
			break;
	}
	up->kicked = false;
	goes_on = !up->stops;
	mutex_unlock(&up->lock);
	return goes_on;
}

static void *run(void *arg)
{
	struct uploader *up = arg;
	int64_t pause_ns = 0;

	/* A thread has its own nice value on Linux. */
	setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), UPLOAD_NICE);
	while (wait_for_work(up, pause_ns)) {
		int error = uploader_gave_up(up->vol) ? -ESTALE : work(up);
		bool gave_up = error == -EEXIST || error == -ESTALE;

		if (gave_up) {
			fail_all(up);
			run_calls(up, -ESTALE);
		}
		pause_ns = error && !gave_up
				   ? clock_backoff(pause_ns, FIRST_PAUSE_NS, LONGEST_PAUSE_NS)
				   : 0;
	}
	run_calls(up, -ECANCELED);
	return NULL;
}

static void uploader_free(struct uploader *up)
{
	if (up->store)
		store_close(up->store);
	remote_close(up->remote);
	early_upload_free(up->ahead);
	pthread_cond_destroy(&up->wake);
	pthread_cond_destroy(&up->called);
	mutex_destroy(&up->lock);
	mutex_destroy(&up->progress.lock);
	free(up->error);
	free(up);
}

static int open_remote(struct uploader *up)
{
	/* For ever, and also what a person can put right: the operator frees space, and it goes on. */
	const struct remote_retry_policy policy = {.persist = true};
	struct store_index index = volume_store_index(up->vol);
	struct remote *inner = remote_ref(up->vol->plain);
	int error = remote_retry_new(inner, &policy, &up->remote);

	if (error) {
		remote_close(inner);
		return error;
	}
	error = store_open(up->remote, &index, up->vol->options.threads, &up->store);
	if (!error && up->vol->store)
		store_learn_with(up->store, up->vol->store);
	return error;
}

int uploader_start(struct volume *vol)
{
	struct uploader *up = calloc(1, sizeof(*up));
	int error;

	if (!up)
		return -ENOMEM;
	error = cond_init_mono(&up->wake);
	if (!error) {
		error = cond_init_mono(&up->called);
		if (error)
			pthread_cond_destroy(&up->wake);
	}
	if (error) {
		free(up);
		return error;
	}
	up->vol = vol;
	up->kicked = true;
	mutex_init(&up->lock, LOCK_UPLOADER);
	mutex_init(&up->progress.lock, LOCK_UPLOAD_PROGRESS);
	vol->uploader = up;
	if (vol->local_only || vol->options.read_only)
		return 0;
	error = early_upload_new(&up->ahead);
	if (!error)
		error = open_remote(up);
	if (!error) {
		error = thread_start(&up->thread, NULL, run, up);
		up->runs = !error;
	}
	if (error) {
		vol->uploader = NULL;
		uploader_free(up);
	}
	return error;
}

void uploader_stop(struct volume *vol)
{
	struct uploader *up = vol->uploader;

	if (!up)
		return;
	if (up->runs) {
		mutex_lock(&up->lock);
		up->stops = true;
		pthread_cond_broadcast(&up->wake);
		mutex_unlock(&up->lock);
		remote_cancel(up->remote);
		pthread_join(up->thread, NULL);
		remote_resume(up->remote);
	}
	vol->uploader = NULL;
	uploader_free(up);
}

static void uploader_kick(struct volume *vol)
{
	struct uploader *up = vol->uploader;

	if (!up)
		return;
	mutex_lock(&up->lock);
	up->kicked = true;
	pthread_cond_signal(&up->wake);
	mutex_unlock(&up->lock);
}

static void uploader_closed(struct volume *vol, uint64_t version, uint64_t size)
{
	struct uploader *up = vol->uploader;

	if (!up || !up->runs || !vol->options.upload_ahead || size < vol->options.upload_ahead)
		return;
	early_upload_note(up->ahead, version);
	uploader_kick(vol);
}

const struct upload_ops uploader_ops = {
	.kick = uploader_kick,
	.closed = uploader_closed,
	.gave_up = uploader_gave_up,
};

/* ---- status ---- */

struct pending_count {
	uint64_t count, oldest, changes;
	int64_t oldest_ns;
};

static int count_tag(void *arg, const char *name, uint64_t number)
{
	struct pending_count *p = arg;

	(void)name;
	(void)number;
	p->changes++;
	return 0;
}

/* When the oldest was sealed; 0 where it is not frozen yet. */
static int64_t sealed_ns(struct volume *vol, uint64_t number)
{
	cleanup_record struct epoch_record record = {0};
	struct state_epoch row;
	int64_t ns = 0;

	if (state_epoch_get(vol->state, number, &row))
		return 0;
	if (row.record && !record_decode(row.record, strlen(row.record), &record))
		ns = record.sealed_ns;
	state_epoch_free(&row);
	return ns;
}

static int count_all_locked(struct volume *vol, struct pending_count *p)
{
	int error = state_epoch_count_waiting(vol->state, &p->count, &p->oldest, &p->changes);

	if (error)
		return error;
	if (p->oldest)
		p->oldest_ns = sealed_ns(vol, p->oldest);
	return state_tag_each_unsynced(vol->state, count_tag, p);
}

static void add_progress(struct uploader *up, json_t *upload)
{
	struct store_stats stats = {0};
	uint64_t epoch, total;

	mutex_lock(&up->progress.lock);
	epoch = up->progress.epoch;
	total = up->progress.total;
	if (up->progress.batch)
		store_batch_progress(up->progress.batch, &stats);
	mutex_unlock(&up->progress.lock);
	if (!epoch)
		return;
	json_object_set_new(upload, nodes_is_part(epoch) ? "uploading_part" : "uploading_epoch",
			    json_integer((json_int_t)shown(epoch)));
	json_object_set_new(upload, "bytes_done", json_integer((json_int_t)stats.plain));
	json_object_set_new(upload, "bytes_total", json_integer((json_int_t)total));
	json_object_set_new(upload, "bytes_stored", json_integer((json_int_t)stats.stored));
}

void uploader_get_health(struct volume *vol, struct uploader_health *ret_health)
{
	struct uploader *up = vol->uploader;
	struct remote_state remote = {0};

	*ret_health = (struct uploader_health){0};
	if (!up)
		return;
	if (up->remote)
		remote_get_state(up->remote, &remote);
	SCOPED_LOCK(&up->lock);
	ret_health->failing_since_ns =
		up->failing_since_ns ? up->failing_since_ns : remote.failing_since_ns;
	ret_health->retries = remote.retries;
	ret_health->conflict = up->conflict;
}

static void add_error(struct uploader *up, json_t *upload)
{
	struct remote_state remote = {0};
	char text[REMOTE_TEXT_MAX];

	if (up->remote)
		remote_get_state(up->remote, &remote);
	SCOPED_LOCK(&up->lock);
	if (up->error)
		json_object_set_new(upload, "error", json_string(up->error));
	else if (remote.failing_since_ns)
		json_object_set_new(
			upload, "error",
			json_string(remote_strerror(up->remote, remote.last_error, text)));
}

static void add_failure(struct uploader *up, json_t *upload)
{
	struct uploader_health health;

	uploader_get_health(up->vol, &health);
	add_error(up, upload);
	if (health.conflict)
		json_object_set_new(upload, "conflict", json_true());
	if (health.failing_since_ns)
		json_object_set_new(upload, "failing_since_ns",
				    json_integer(health.failing_since_ns));
	if (health.retries)
		json_object_set_new(upload, "retries", json_integer((json_int_t)health.retries));
}

int uploader_status(struct volume *vol, json_t *status)
{
	struct uploader *up = vol->uploader;
	struct pending_count pending = {0};
	json_t *upload = json_object();
	int error;

	if (!upload)
		return -ENOMEM;
	mutex_lock(&vol->lock);
	error = vol->local_only ? 0 : count_all_locked(vol, &pending);
	/* The last part is there, and it is not looked at yet whether it makes an epoch whole. */
	if (!pending.count && nodes_unlooked_locked(vol))
		pending.count = 1;
	mutex_unlock(&vol->lock);
	json_object_set_new(upload, "pending_epochs", json_integer((json_int_t)pending.count));
	json_object_set_new(upload, "pending_changes", json_integer((json_int_t)pending.changes));
	if (pending.oldest) {
		json_object_set_new(upload,
				    nodes_is_part(pending.oldest) ? "oldest_part" : "oldest_epoch",
				    json_integer((json_int_t)shown(pending.oldest)));
		json_object_set_new(upload, "oldest_sealed_ns", json_integer(pending.oldest_ns));
	}
	if (up) {
		add_progress(up, upload);
		add_failure(up, upload);
	}
	if (json_object_set_new(status, "upload", upload))
		error = -ENOMEM;
	return error;
}
