/* SPDX-License-Identifier: Apache-2.0 */
/* The right of an open volume to write to its remote. */
#include "lib/epochs/holder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/meta/lease.h"
#include "lib/meta/listing.h"
#include "lib/net/open.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"

/* Whose lease the cache had last: with the cache locked, that holder is gone. */
#define META_LEASE "lease"
/* An object of a kilobyte: what takes longer is tried again. */
#define CONNECT_LIMIT (5 * NS_PER_S)
#define STALL_LIMIT   (10 * NS_PER_S)
#define TOTAL_LIMIT   (20 * NS_PER_S)
/* An unmount begins no further try after the first, and waits for no answer after the second. */
#define RELEASE_TRIES 3
#define RELEASE_TOTAL (5 * NS_PER_S)
#define RELEASE_LIMIT (8 * NS_PER_S)

_Static_assert(LEASE_MIN_NS == LEASE_TTL_MIN_NS && LEASE_MAX_NS == LEASE_TTL_MAX_NS,
	       "what may be asked for is what can be written");

struct holder {
	struct volume *vol;
	struct lease *lease;
	/* Its own, without retries: a renewal does not queue behind the transfers of an upload, nor behind
	 * their limit of rate. */
	struct remote *remote;
	int64_t ttl_ns;
	struct background background;

	/* Guarded by its background lock. */
	int error; /* of the last renewal; 0: it went well */
	bool late; /* not renewed for so long that it has lapsed for others; the log has it */
	bool told; /* the log has that it is lost */
};

/* ---- renewing ---- */

static void tell_lost(struct holder *h)
{
	cleanup_buf struct buf text = {0};
	bool first;

	mutex_lock(&h->background.lock);
	first = !h->told;
	h->told = true;
	mutex_unlock(&h->background.lock);
	if (!first)
		return;
	holder_lost_text(h->vol, &text);
	log_error("%s: %s", remote_name(h->vol->remote), buf_str(&text));
}

static void note(struct holder *h, int error)
{
	char text[REMOTE_TEXT_MAX];
	struct lease_view view;
	bool first;

	lease_get(h->lease, &view);
	mutex_lock(&h->background.lock);
	first = error && !h->late && clock_mono_ns() - view.confirmed_ns > h->ttl_ns;
	h->late = error && (h->late || first);
	h->error = error;
	mutex_unlock(&h->background.lock);
	if (error == -ESTALE)
		tell_lost(h);
	else if (first)
		log_warn("the lease is not renewed, and another mount may take it over now: %s",
			 remote_strerror(h->remote, error, text));
}

static void *run(void *arg)
{
	struct holder *h = arg;
	int64_t next_ns = clock_mono_ns();
	int error = 0;

	while (error != -ESTALE) {
		/* From the beginning of one to that of the next, however long it took. */
		next_ns += h->ttl_ns / LEASE_RENEWALS;
		if (next_ns < clock_mono_ns())
			next_ns = clock_mono_ns() + NS_PER_S / LEASE_RENEWALS;
		if (!background_next_until(&h->background, next_ns))
			break;
		error = lease_renew(h->lease, h->remote);
		note(h, error);
	}
	return NULL;
}

/* ---- taking ---- */

static void tell_waiting(void *arg, const struct lease_info *holder, int64_t at_most_ns)
{
	struct volume *vol = arg;
	cleanup_buf struct buf held = {0};

	lease_describe_held(holder, &held);
	log_warn("%s: %s; waiting for up to %" PRId64
		 " s to see whether it is alive (--take-over does not wait)",
		 remote_name(vol->remote), buf_str(&held), at_most_ns / NS_PER_S);
}

static bool gives_up(void *arg)
{
	struct volume *vol = arg;

	return vol->options.give_up && vol->options.give_up(vol->options.give_up_arg);
}

static int refuse(struct volume *vol, const struct lease_info *by, struct opening_message *m)
{
	cleanup_buf struct buf held = {0};

	lease_describe_held(by, &held);
	if (by->nodes && by->nodes == vol->options.nodes && !strcmp(by->run, vol->run_id))
		return opening_fail(
			m, -EBUSY,
			"%s: this run has %s already, %s: give each node a name of its own "
			"with -o node=NAME, or a new attempt another with -o run=ID",
			remote_name(vol->remote),
			strcmp(by->node, vol->node_name) ? "all its nodes" : "this node",
			buf_str(&held));
	return opening_fail(
		m, -EBUSY,
		"%s is in use: %s: unmount it there, read along with -o ro, or take it away "
		"with --take-over",
		remote_name(vol->remote), buf_str(&held));
}

static int take_failed(struct volume *vol, int error, const struct lease_info *by,
		       struct opening_message *m)
{
	const char *name = remote_name(vol->remote);

	switch (error) {
	case -EBUSY:
		return refuse(vol, by, m);
	case -EINTR:
		return opening_fail(m, error, "%s: gave up waiting for the lease", name);
	case -EOPNOTSUPP:
		return opening_fail(
			m, error,
			vol->options.nodes ? "%s does not refuse to create what is there already, "
					     "and so cannot hold the epochs of several nodes: "
					     "give the run a remote that does"
					   : "%s cannot create an object only if it is absent, so "
					     "nothing keeps two writers apart: mount it with -o ro",
			name);
	case -EPROTONOSUPPORT:
		return opening_fail(
			m, error,
			"%s: its lease is of a newer version of epochfs: upgrade this one", name);
	case -EBADMSG:
		return opening_fail(m, error,
				    "%s: the generations of its lease are used up: remove what is "
				    "below lease/ while nothing is mounted",
				    name);
	default:
		return contact_fail(vol->remote, error, m);
	}
}

static void set_self(struct volume *vol, struct lease_info *self)
{
	const char *mountpoint = vol->options.mountpoint;

	self->ttl_ns = vol->options.lease_ns / NS_PER_MS * NS_PER_MS;
	snprintf(self->node, sizeof(self->node), "%s", vol->node_name);
	self->nodes = vol->options.nodes;
	if (self->nodes)
		snprintf(self->run, sizeof(self->run), "%s", vol->run_id);
	snprintf(self->mountpoint, sizeof(self->mountpoint), "%s", mountpoint ? mountpoint : "");
}

/* Whether this cache has epochs that are not in the remote. */
static bool has_pending(struct volume *vol)
{
	uint64_t pending = 0, oldest, changes;

	SCOPED_LOCK(&vol->lock);
	return state_epoch_count_waiting(vol->state, &pending, &oldest, &changes) == 0 && pending;
}

static void tell_taken(struct volume *vol, const struct lease_info *before)
{
	cleanup_buf struct buf who = {0};

	if (!before->generation)
		return;
	lease_describe(before, &who);
	if (!before->released)
		log_warn("took the lease of %s over from %s", remote_name(vol->remote),
			 buf_str(&who));
	else if (before->pending && has_pending(vol))
		log_info("%s: epochs that the last mount left are uploaded now",
			 remote_name(vol->remote));
	else if (before->pending)
		log_warn(
			"%s was unmounted by %s with %" PRIu64
			" epoch%s not uploaded, which %s in its cache: %s cannot be uploaded once this mount "
			"seals some of its own",
			remote_name(vol->remote), buf_str(&who), before->pending,
			plural(before->pending), plural_of(before->pending, "lies", "lie"),
			plural_of(before->pending, "it", "they"));
}

static int take(struct holder *h, struct opening_message *m)
{
	struct volume *vol = h->vol;
	cleanup_buf struct buf last = {0};
	struct lease_info before = {0};
	struct lease_view view;
	struct lease_terms terms = {
		.take_over = vol->options.take_over,
		.waiting = tell_waiting,
		.give_up = gives_up,
		.arg = vol,
	};
	int error = lease_process_self(&terms.self);

	if (error)
		return opening_fail(m, error, "lease: %s", strerror(-error));
	set_self(vol, &terms.self);
	if (state_get_meta(vol->state, META_LEASE, &last) == 0)
		terms.last_holder = buf_str(&last);
	error = lease_take(vol->remote, &terms, &h->lease, &before);
	if (error)
		return take_failed(vol, error, &before, m);
	tell_taken(vol, &before);
	lease_get(h->lease, &view);
	mutex_lock(&vol->lock);
	error = state_set_meta(vol->state, META_LEASE, view.own.holder);
	mutex_unlock(&vol->lock);
	return error;
}

static void tell_how_safe(struct volume *vol)
{
	enum remote_create create;

	if (remote_check_create(vol->remote, &create) < 0)
		return;
	if (remote_keeps_versions(vol->remote))
		log_info("%s: " REMOTE_VERSIONS_ADVICE, remote_name(vol->remote));
	if (create == REMOTE_CREATE_CHECKED && remote_keeps_versions(vol->remote))
		log_warn(
			"%s: the bucket keeps versions (versioning, or object lock), and the server then creates what is there already instead of refusing "
			"it: of two mounts that start at the same moment the one whose version is the first has the volume, as far as the versions may be listed; mount it on one machine at "
			"a time, or take a bucket without versions",
			remote_name(vol->remote));
	else if (create == REMOTE_CREATE_CHECKED)
		log_warn(
			"%s does not refuse to create what is there already: two mounts that start at "
			"the same moment may not see each other; mount it on one machine at a time",
			remote_name(vol->remote));
}

int holder_start(struct volume *vol, struct opening_message *m)
{
	struct remote_limits limits = vol->options.limits;
	char text[REMOTE_TEXT_MAX];
	struct holder *h;
	int error;

	limits.connections = 1;
	limits.upload_rate = limits.download_rate = 0;
	limits.connect_timeout_ns = CONNECT_LIMIT;
	limits.stall_timeout_ns = STALL_LIMIT;
	limits.total_timeout_ns = TOTAL_LIMIT;
	if (vol->local_only || vol->options.read_only)
		return 0;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	error = background_init(&h->background, LOCK_HOLDER);
	if (error) {
		free(h);
		return error;
	}
	h->vol = vol;
	h->ttl_ns = vol->options.lease_ns;
	vol->holder = h;
	error = remote_open_with(vol->options.remote, &limits, &h->remote);
	if (error)
		return opening_fail(m, contact_open_errno(error), "%s",
				    remote_open_strerror(vol->options.remote, error, text));
	error = contact_encrypt(&h->remote, vol->encryption);
	if (!error)
		error = take(h, m);
	if (error)
		return error;
	tell_how_safe(vol);
	return background_start(&h->background, run, h);
}

/* ---- giving back ---- */

static int count_pending(void *arg, const struct state_epoch *e)
{
	uint64_t *count = arg;

	*count += e->state != EPOCH_DURABLE && e->state != EPOCH_DROPPED;
	return 0;
}

struct release {
	struct holder *h;
	struct remote *remote; /* with retries */
	uint64_t pending;
	int error;
	bool done; /* with `error`; guarded by the holder's lock */
};

static void *release_main(void *arg)
{
	struct release *r = arg;
	int error = lease_release(r->h->lease, r->remote, r->pending);

	SCOPED_LOCK(&r->h->background.lock);
	r->error = error;
	r->done = true;
	pthread_cond_broadcast(&r->h->background.wake);
	return NULL;
}

/* Whatever the kind of remote, and however it hangs: its own times may be those of an upload. */
static int release_in_time(struct release *r)
{
	struct background *b = &r->h->background;
	int64_t deadline_ns = clock_mono_ns() + RELEASE_LIMIT;
	pthread_t thread;
	bool late;
	int error = thread_start(&thread, NULL, release_main, r);

	if (error)
		return error;
	mutex_lock(&b->lock);
	while (!r->done && cond_wait_until(&b->wake, &b->lock, deadline_ns) != -ETIMEDOUT)
		;
	late = !r->done;
	mutex_unlock(&b->lock);
	if (late)
		remote_cancel(r->remote);
	pthread_join(thread, NULL);
	return late && r->error == -ECANCELED ? -ETIMEDOUT : r->error;
}

static void release(struct holder *h)
{
	const struct remote_retry_policy policy = {.max_tries = RELEASE_TRIES,
						   .max_total_ns = RELEASE_TOTAL};
	struct volume *vol = h->vol;
	struct remote *inner = remote_ref(h->remote);
	struct release r = {.h = h};
	int error;

	mutex_lock(&vol->lock);
	state_epoch_each(vol->state, count_pending, &r.pending);
	mutex_unlock(&vol->lock);
	error = remote_retry_new(inner, &policy, &r.remote);
	if (error) {
		remote_close(inner);
		return;
	}
	error = release_in_time(&r);
	remote_close(r.remote);
	if (error && error != -ESTALE)
		log_warn(
			"the lease was not given back (%s): another machine that mounts the volume "
			"waits for up to %" PRId64 " s",
			strerror(-error), h->ttl_ns / NS_PER_S);
}

void holder_stop(struct volume *vol)
{
	struct holder *h = vol->holder;

	if (!h)
		return;
	if (h->background.runs) {
		background_tell_stop(&h->background);
		remote_cancel(h->remote);
		background_join(&h->background);
		remote_resume(h->remote);
	}
	if (h->lease && !holder_lost(vol))
		release(h);
	vol->holder = NULL;
	lease_free(h->lease);
	remote_close(h->remote);
	background_destroy(&h->background);
	free(h);
}

/* ---- asking ---- */

int holder_confirm(struct volume *vol, struct remote *remote, int64_t max_age_ns)
{
	int error = vol->holder ? lease_confirm(vol->holder->lease, remote, max_age_ns) : 0;

	if (error == -ESTALE)
		tell_lost(vol->holder);
	return error;
}

uint64_t holder_generation(struct volume *vol)
{
	struct lease_view view = {0};

	if (vol->holder && vol->holder->lease)
		lease_get(vol->holder->lease, &view);
	return view.own.generation;
}

bool holder_lost(struct volume *vol)
{
	struct lease_view view = {0};

	if (vol->holder)
		lease_get(vol->holder->lease, &view);
	return view.lost;
}

bool holder_holds(struct volume *vol)
{
	struct lease_view view;

	if (!vol->holder || !vol->holder->lease)
		return false;
	lease_get(vol->holder->lease, &view);
	return !view.lost && clock_mono_ns() - view.confirmed_ns <= vol->holder->ttl_ns;
}

void holder_lost_text(struct volume *vol, struct buf *out)
{
	struct lease_view view = {0};

	if (vol->holder)
		lease_get(vol->holder->lease, &view);
	buf_printf(out, "the lease was taken over by ");
	lease_describe(&view.winner, out);
	buf_printf(out, vol->imports ? ": nothing more is imported from here"
				     : ": nothing is uploaded any more, and what is sealed stays "
				       "in the cache; copy what you need, then unmount with "
				       "--no-drain");
}

static void add_times(struct holder *h, const struct lease_view *view, json_t *lease)
{
	int64_t age_ns = clock_mono_ns() - view->confirmed_ns;

	json_object_set_new(lease, "since_ns", json_integer(view->own.since_ns));
	json_object_set_new(lease, "confirmed_ns", json_integer(clock_wall_ns() - age_ns));
	json_object_set_new(lease, "ttl_ns", json_integer(h->ttl_ns));
	mutex_lock(&h->background.lock);
	if (h->error)
		json_object_set_new(lease, "error", listing_string(strerror(-h->error)));
	mutex_unlock(&h->background.lock);
}

int holder_status(struct volume *vol, json_t *status)
{
	struct lease_view view;
	json_t *lease;

	if (!vol->holder || !vol->holder->lease)
		return 0;
	lease_get(vol->holder->lease, &view);
	lease = json_pack("{s:s, s:I}", "state", view.lost ? "lost" : "held", "generation",
			  (json_int_t)view.own.generation);
	if (!lease)
		return -ENOMEM;
	if (view.own.nodes) {
		json_object_set_new(lease, "run", listing_string(view.own.run));
		json_object_set_new(lease, "node", listing_string(view.own.node));
	}
	if (view.lost) {
		cleanup_buf struct buf who = {0};

		lease_describe(&view.winner, &who);
		json_object_set_new(lease, "taken_over_by", listing_string(buf_str(&who)));
	} else {
		add_times(vol->holder, &view, lease);
	}
	return json_object_set_new(status, "lease", lease) ? -ENOMEM : 0;
}
