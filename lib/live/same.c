/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An edit in place that leaves the bytes which were there changes nothing but times (contract 1.2.10): HDF5 writes the superblock of a file that
 * is opened to append and only read. The kernel may have written by itself, so only the bytes tell. They are compared at the last close, before
 * the commit, without the lock. Who seals waits for that (bodies_finish_closes); who only looks the name up finds the same bytes either way.
 *
 * Not compared, and so a change: a replacement, which says that the file was saved again, whatever it holds; what a killed writer left, or was
 * refused a write to; what a mapping may still write to, and its copies; logs, which are taken as they stand; and anything while something
 * is in doubt, for then what is saved again counts. After a crash nobody compares either.
 */
#include "lib/live/bodies.h"

#include <errno.h>
#include <unistd.h>

#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"

#define WAIT_STEP_NS (100 * NS_PER_MS)

static bool is_unharmed(const struct body *b)
{
	return b->staged && !b->discarded && !b->orphan && !b->killed && !b->cramped &&
	       b->refused_from >= b->refused_to && !b->half && !b->copied && !b->is_output &&
	       !b->watched && !b->preparing;
}

/* The closed version that it may be the same as; -ENOENT: none. */
static int find_before_locked(struct volume *vol, const struct body *b,
			      struct state_version *ret_before)
{
	struct state_file f;
	struct stat st;
	int error = is_unharmed(b) ? state_file_get(vol->state, b->ino, &f) : -ENOENT;

	if (!error && (!b->base || f.closed != b->base || state_doubt_any(vol->state)))
		error = -ENOENT;
	if (!error)
		error = fstat(b->fd, &st) < 0 ? -errno
					      : state_version_get(vol->state, b->base, ret_before);
	/* Where times tell that nothing was written, nothing is read. */
	if (!error &&
	    (ret_before->torn || ret_before->size != (uint64_t)st.st_size || same_as_base(b, &st)))
		error = -ENOENT;
	return error;
}

static bool look_locked(struct volume *vol, struct body *b, const struct state_version *before)
{
	/* Its file is to take the place of one that an fsync made safe. */
	bool promised = before->fsynced || before->rests_on_fsync;
	struct backing *backing = backing_ref(b->backing);
	int same;

	vol->bodies->comparing++;
	mutex_unlock(&vol->lock);
	FAULT_POINT("same.begin");
	same = content_same(vol, before->id, backing->fd);
	if (same > 0 && promised && fdatasync(backing->fd) < 0)
		same = -errno;
	backing_put(backing);
	mutex_lock(&vol->lock);
	vol->bodies->comparing--;
	pthread_cond_broadcast(&vol->changed);
	return same > 0;
}

void body_compare_locked(struct volume *vol, struct body *b)
{
	struct state_version before;
	unsigned long opens = b->opens;

	b->same = false;
	if (find_before_locked(vol, b, &before) != 0)
		return;
	/* Who opened it meanwhile may have written. */
	if (look_locked(vol, b, &before) && b->opens == opens)
		b->same = true;
}

bool body_is_same(struct volume *vol, uint64_t id)
{
	struct after after = {.vol = vol};
	struct state_version before;
	struct body *b;
	bool same = false;

	mutex_lock(&vol->lock);
	b = body_find_locked(vol, id);
	if (b && find_before_locked(vol, b, &before) == 0) {
		b->pins++;
		same = look_locked(vol, b, &before);
		body_unpin_locked(vol, b, &after);
	}
	mutex_unlock(&vol->lock);
	after_run(&after);
	return same;
}

void bodies_finish_comparing_locked(struct volume *vol)
{
	while (vol->bodies->comparing)
		cond_wait_until(&vol->changed, &vol->lock, clock_mono_ns() + WAIT_STEP_NS);
}
