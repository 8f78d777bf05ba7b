/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread for what bodies leave for later. It removes backing files of versions whose
 * rows are gone, finishes bodies that a writable mapping still changes or whose commit failed, takes in
 * closes whose release does not come, and drops replacements whose open never came.
 */
#include "lib/live/bodies.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include "lib/cache/grant.h"
#include "lib/cache/reclaim.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"

/* How often closes are looked after while there are any without a release. */
#define CLOSE_WAIT   (500 * NS_PER_MS)
#define WATCH_FIRST  (100 * NS_PER_MS)
#define WATCH_LAST   (2 * NS_PER_S)
#define IDLE_WAIT    (15 * NS_PER_S)
#define BATCH_WAIT   (20 * NS_PER_MS)
#define PENDING_LIFE (30 * NS_PER_S)
#define QUIET_TRIES  10
#define QUIET_STEP   (2 * NS_PER_MS)

/* The kernel puts away the descriptors of a passthrough open a little after its release. */
bool backing_is_quiet(int read_fd, bool wait)
{
	for (int i = 0; i < (wait ? QUIET_TRIES : 1); i++) {
		struct timespec step = clock_timespec(QUIET_STEP);

		if (i)
			nanosleep(&step, NULL);
		/* Where it cannot be told, it counts as quiet. */
		if (io_writers(read_fd) != IO_WRITERS_SOME)
			return true;
	}
	return false;
}

void body_watch_locked(struct volume *vol, struct body *b, bool watch)
{
	if (b->watched == watch)
		return;
	b->watched = watch;
	vol->bodies->watched += watch ? 1u : -1u;
	vol->bodies->deferred_asked |= watch;
	if (watch)
		pthread_cond_signal(&vol->bodies->deferred_wake);
}

bool body_is_mapped_locked(struct body *b)
{
	if (b->held)
		return true;
	/* Our own descriptor would keep it busy. */
	if (b->write_fd >= 0)
		close(b->write_fd);
	b->write_fd = -1;
	return !backing_is_quiet(b->fd, false);
}

/* One that is mapped still when the volume is closed stays staged: the next mount takes it up (recover.c), as closed where the
 * mapping has changed nothing since. */
static void leave_watched_locked(struct volume *vol, struct body *b)
{
	struct stat st;

	if (fstat(b->fd, &st) < 0 || body_journal_locked(vol, b, &st))
		log_warn("inode %" PRIu64 " has a mapping left, and may count as torn", b->ino);
	body_watch_locked(vol, b, false);
}

static void finish_watched_locked(struct volume *vol, struct after *after, bool last)
{
	struct body *next;

	/* A commit may add the body that it replaces. */
	map_hold(&vol->bodies->by_id);
	for (struct body *b = body_next_locked(vol, NULL); b && vol->bodies->watched; b = next) {
		next = body_next_locked(vol, b);
		if (!b->watched || b->writers || b->releasing || b->taking || b->preparing)
			continue;
		/* Its last descriptor, or the next seal, commits it. */
		if (b->discarded || !b->staged || (b->held && !b->uncommitted))
			body_watch_locked(vol, b, false);
		else if (!body_is_mapped_locked(b))
			body_finish_locked(vol, b, after);
		else if (last)
			leave_watched_locked(vol, b);
		body_drop_locked(vol, b, after);
	}
	map_unhold(&vol->bodies->by_id);
}

struct body *body_uncommitted_locked(struct volume *vol)
{
	struct body *b = vol->bodies->watched ? body_next_locked(vol, NULL) : NULL;

	while (b && !(b->watched && b->uncommitted && !b->writers))
		b = body_next_locked(vol, b);
	return b;
}

/* The body is not freed while the lock is held; where a mapping is left, the lock is dropped for a copy. */
static void commit_left_locked(struct volume *vol, struct body *b, struct after *after)
{
	uint64_t id = b->id;

	if (b->releasing || b->taking || b->preparing || !b->staged || b->discarded)
		return;
	if (b->held) {
		b->pins++;
		body_finish_held_locked(vol, b, after);
		body_unpin_locked(vol, b, after);
		return;
	}
	if (!body_is_mapped_locked(b)) {
		body_finish_locked(vol, b, after);
		body_drop_locked(vol, b, after);
		return;
	}
	mutex_unlock(&vol->lock);
	body_commit_copy(vol, id, NULL, NULL);
	mutex_lock(&vol->lock);
}

int deferred_commit_left(struct volume *vol)
{
	struct after after = {.vol = vol};
	struct body *b;
	int error = 0;

	mutex_lock(&vol->lock);
	while (!error && (b = body_uncommitted_locked(vol))) {
		uint64_t id = b->id;

		commit_left_locked(vol, b, &after);
		b = body_find_locked(vol, id);
		if (b && b->watched && b->uncommitted)
			error = -EIO;
	}
	mutex_unlock(&vol->lock);
	after_run(&after);
	return error;
}

static void drop_pending_locked(struct volume *vol, struct after *after, bool last)
{
	int64_t now = clock_mono_ns();
	struct body *next;

	for (struct body *b = body_next_locked(vol, NULL); b && vol->bodies->pending; b = next) {
		next = body_next_locked(vol, b);
		if (!b->pending || b->handles || b->pins)
			continue;
		if (!last && now - b->made_ns < PENDING_LIFE)
			continue;
		if (!body_discard_locked(vol, b))
			body_drop_locked(vol, b, after);
	}
}

/* Mappings of files that the kernel read by itself and that were closed: those of readers end without a word. */
static void sweep_grants(struct volume *vol)
{
	size_t at = 0;

	do {
		SCOPED_LOCK(&vol->lock);
		at = grants_sweep_locked(vol, at);
	} while (at);
}

/* One round; true where something waits for a later one, and soon. */
static bool keep(struct volume *vol, bool last)
{
	struct after after = {.vol = vol};
	bool left;

	mutex_lock(&vol->lock);
	finish_watched_locked(vol, &after, last);
	stale_retry_expire_locked(vol, last, &after);
	drop_pending_locked(vol, &after, last);
	left = vol->bodies->watched;
	mutex_unlock(&vol->lock);
	after_run(&after);
	objects_delete_marked(vol);
	sweep_grants(vol);
	return left;
}

/* How long to sleep; what comes meanwhile is done in one go. */
static int64_t next_wait_locked(struct volume *vol, bool left, int64_t last)
{
	if (!left && !vol->bodies->watched)
		return IDLE_WAIT;
	if (last >= WATCH_LAST || last < WATCH_FIRST)
		return last < WATCH_FIRST ? WATCH_FIRST : WATCH_LAST;
	return 2 * last;
}

static bool is_asked_locked(const struct volume *vol)
{
	return vol->bodies->deferred_stops || vol->bodies->deferred_asked || vol->marked;
}

/* Until there is something to do, or this time is over: true where it was not. Closes come all the time, and are looked after meanwhile. */
static bool sleep_locked(struct volume *vol, int64_t wait)
{
	int64_t end = clock_mono_ns() + wait, look = INT64_MAX, now;

	while (!is_asked_locked(vol) && (now = clock_mono_ns()) < end) {
		if (now >= look)
			bodies_finish_late_closes_locked(vol);
		if (!vol->bodies->closing || now >= look)
			look = INT64_MAX;
		if (vol->bodies->closing && look == INT64_MAX)
			look = now + CLOSE_WAIT;
		cond_wait_until(&vol->bodies->deferred_wake, &vol->lock, look < end ? look : end);
	}
	return is_asked_locked(vol);
}

static void *deferred_main(void *arg)
{
	struct volume *vol = arg;
	int64_t wait = WATCH_FIRST;

	mutex_lock(&vol->lock);
	while (!vol->bodies->deferred_stops) {
		bool left, woken;

		vol->bodies->deferred_asked = false;
		bodies_finish_late_closes_locked(vol);
		bodies_tell_held_locked(vol);
		mutex_unlock(&vol->lock);
		left = keep(vol, false);
		mutex_lock(&vol->lock);
		wait = next_wait_locked(vol, left, wait == IDLE_WAIT ? 0 : wait);
		woken = sleep_locked(vol, wait);
		if (woken && !vol->bodies->deferred_stops) {
			cond_wait_until(&vol->bodies->deferred_wake, &vol->lock,
					clock_mono_ns() + BATCH_WAIT);
			wait = 0;
		}
	}
	mutex_unlock(&vol->lock);
	return NULL;
}

int deferred_start(struct volume *vol)
{
	struct sigaction old;
	int error;

	/* An open for writing in the moment that a lease is held is announced by SIGIO, which would
	 * end the process. */
	if (sigaction(SIGIO, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
		signal(SIGIO, SIG_IGN);
	error = thread_start(&vol->bodies->deferred, NULL, deferred_main, vol);
	/* The thread may read what lies beside it in one with that. */
	mutex_lock(&vol->lock);
	vol->bodies->deferred_runs = !error;
	vol->marked_wake = &vol->bodies->deferred_wake;
	mutex_unlock(&vol->lock);
	return error;
}

void deferred_stop(struct volume *vol)
{
	if (vol->bodies->deferred_runs) {
		mutex_lock(&vol->lock);
		vol->bodies->deferred_stops = true;
		vol->marked_wake = NULL;
		pthread_cond_signal(&vol->bodies->deferred_wake);
		mutex_unlock(&vol->lock);
		pthread_join(vol->bodies->deferred, NULL);
		vol->bodies->deferred_runs = false;
	}
	mutex_lock(&vol->lock);
	vol->bodies->deferred_stops = true;
	bodies_tell_held_locked(vol);
	mutex_unlock(&vol->lock);
	keep(vol, true);
}
