/* SPDX-License-Identifier: Apache-2.0 */
/* Going back to the newest whole epoch. */
#include "lib/epochs/driver_internal.h"

#include <inttypes.h>
#include <string.h>

#include "lib/epochs/epochs.h"
#include "lib/epochs/rollback.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

bool driver_is_back_due_locked(const struct volume *vol)
{
	const struct driver *d = vol->driver;
	const struct epoch_index *x;

	if (!d || !vol->sealer || !vol->sealer->runs || vol->sealer->stops || d->lost_lives ||
	    saves_back(d->saves) != BACK_NOW || d->retry_ns > clock_mono_ns())
		return false;
	/* What was sealed a moment ago is known to be whole once it is frozen, which going back waits for. */
	if (vol->sealer->first)
		return true;
	x = epochs_index_locked((struct volume *)(uintptr_t)vol);
	return x && epoch_index_whole(x);
}

static void tell_back_locked(struct volume *vol, const struct resumed *done, int error)
{
	const char *at = vol->options.mountpoint ? vol->options.mountpoint : "DIRECTORY";
	const struct epoch_index *x = epochs_index_locked(vol);
	struct driver *d = vol->driver;
	const struct save_event e = {
		.kind = SAVE_BACK, .at_ns = driver_now_ns(), .epoch = x ? epoch_index_whole(x) : 0};

	d->error = error;
	if (!error && done->as) {
		d->back = *done;
		d->back_ns = clock_wall_ns();
	}
	if (error) {
		d->retry_ns = clock_mono_ns() + DRIVER_LOOK_NS;
		log_error("after a broken save the live tree could not go back, and this is tried "
			  "again: %s",
			  strerror(-error));
		return;
	}
	if (done->as)
		log_warn("the live tree went back from epoch %" PRIu64 " to epoch %" PRIu64
			 ", as epoch %" PRIu64 "; to undo that: epochfs rollback %s %" PRIu64,
			 done->left, done->to, done->as, at, done->left);
	else if (e.epoch) /* What is there is that epoch's. */
		driver_apply_locked(vol, &e);
}

/* One at a time. Drops the lock. */
static int go_back_locked(struct volume *vol, struct resumed *done)
{
	struct driver *d = vol->driver;
	int error;

	d->going_back = true;
	mutex_unlock(&vol->lock);
	error = epochs_go_back(vol, done);
	mutex_lock(&vol->lock);
	tell_back_locked(vol, done, error);
	d->going_back = false;
	pthread_cond_broadcast(&vol->changed);
	return error;
}

/* Nobody is at it, and who has ended is told. */
static void begin_locked(struct volume *vol)
{
	while (vol->driver->going_back)
		cond_wait(&vol->changed, &vol->lock);
	driver_tell_ended_locked(vol);
}

void driver_go_back(struct volume *vol)
{
	struct resumed done;

	if (!driver_is_started(vol))
		return;
	mutex_lock(&vol->lock);
	driver_tell_ended_locked(vol);
	if (!vol->driver->going_back && driver_is_back_due_locked(vol))
		go_back_locked(vol, &done);
	mutex_unlock(&vol->lock);
}

/* Waits for who is at it. */
static void go_back_for_reader(struct volume *vol)
{
	struct resumed done;

	mutex_lock(&vol->lock);
	begin_locked(vol);
	if (driver_is_back_due_locked(vol))
		go_back_locked(vol, &done);
	mutex_unlock(&vol->lock);
}

int driver_go_back_now(struct volume *vol, struct resumed *ret_done)
{
	struct driver *d = vol->driver;
	const struct epoch_index *x;
	int error = 0;

	*ret_done = (struct resumed){0};
	mutex_lock(&vol->lock);
	begin_locked(vol);
	x = epochs_index_locked(vol);
	if (saves_back_when(d->saves, RESUME_ALWAYS) == BACK_NOW) {
		if (x && epoch_index_whole(x))
			error = go_back_locked(vol, ret_done);
		else
			ret_done->left = vol->current_epoch;
	} else if (d->back.as && d->back.as == vol->current_epoch) {
		/* It was done when the volume was opened, say. */
		*ret_done = d->back;
	}
	mutex_unlock(&vol->lock);
	return error;
}

bool driver_before_reading(struct volume *vol, uint64_t ino, int flags, pid_t tid)
{
	(void)ino, (void)flags, (void)tid;
	if (!driver_is_started(vol))
		return false;
	SCOPED_LOCK(&vol->lock);
	driver_tell_ended_locked(vol);
	return vol->driver->going_back || driver_is_back_due_locked(vol);
}

bool driver_for_reader(struct volume *vol, uint64_t ino, int flags, pid_t tid)
{
	bool waits = driver_before_reading(vol, ino, flags, tid);

	if (waits)
		go_back_for_reader(vol);
	return waits;
}
