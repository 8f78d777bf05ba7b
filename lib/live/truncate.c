/* SPDX-License-Identifier: Apache-2.0 */
/* truncate(2): an edit that has no handle. */
#include "lib/live/bodies.h"

#include <errno.h>
#include <sys/stat.h>
#include "lib/live/cramped.h"
#include "lib/live/observer.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/process.h"

static int truncate_pinned(struct volume *vol, struct body *b, const struct live_change *change)
{
	int error = edit_begin(vol, b, change->size, change->interrupted, change->interrupted_arg);

	if (error)
		return error;
	cramped_look(vol);
	SCOPED_LOCK(&vol->lock);
	vol->observer->await_log_locked(vol, b->ino);
	/* Without a handle nothing holds up the end of another's edit. */
	if (b->write_fd < 0)
		return -EAGAIN;
	b->changes++;
	error = io_truncate(b->write_fd, change->size);
	if (!error)
		body_note_truncated_locked(b, change->size);
	return error;
}

/* By the node of what was replaced, the file that shows other content now is meant: the kernel looks again once. */
static int truncate_stale_locked(struct volume *vol, uint64_t ino, pid_t tid, struct after *after)
{
	const struct stale_retry told = {.ino = ino, .tid = tid, .tgid = process_of(tid)};
	bool looked;
	int error;

	if (!tid || stale_retry_take_locked(vol, ino, tid, &looked, after))
		return 0;
	error = stale_retry_add_locked(vol, &told);
	return error ? error : -ESTALE;
}

/* The body that is meant; NULL where it is that of a file without a name which nobody has open: what it holds nobody will see. */
static int truncate_pin_locked(struct volume *vol, uint64_t ino, uint64_t body, pid_t tid,
			       struct body **ret_body, struct after *after)
{
	struct body *b = body_find_locked(vol, body);
	struct state_file f;
	int error = 0;

	if (b && b->ino != ino)
		b = NULL;
	if (!b || b->orphan)
		error = state_file_get(vol->state, ino, &f);
	if (error)
		return error;
	if ((!b || b->orphan) && !f.nlink) {
		b = b && b->handles ? b : NULL;
	} else if (!b || b->orphan) {
		if (body && f.body != body)
			error = truncate_stale_locked(vol, ino, tid, after);
		if (!error)
			error = body_get_locked(vol, &f, &b);
	}
	if (error)
		return error;
	if (b)
		b->pins++;
	/* It is there: what the thread opens later has nothing to do with it. */
	stale_retry_forget_locked(vol, tid, after);
	*ret_body = b;
	return 0;
}

/* Somebody closed it in order, and nothing that was written to it was refused. */
static bool is_closed_well_locked(const struct body *b)
{
	bool well = false;

	for (const struct handle *h = b->open_handles; h; h = h->next)
		well |= h->writes && !h->killed;
	return well && body_writers_closed_locked(b) && b->refused_from >= b->refused_to &&
	       !b->cramped;
}

/* Where a mapping alone holds the edit up, whose descriptor is closed, the truncation is taken in like a close: by the next seal, where
 * the mapping keeps the file open (pending_close.c). True: it is to be copied now, for with passthrough nothing more is told. */
static bool close_truncated_locked(struct volume *vol, struct body *b, int *ret_error)
{
	struct stat st;

	if (!b->staged || b->discarded || b->orphan)
		return false;
	if (!b->writers)
		return b->watched && !b->pending && !b->preparing;
	if (!is_closed_well_locked(b))
		return false;
	*ret_error = fstat(b->fd, &st) < 0 ? -errno : body_journal_locked(vol, b, &st);
	body_set_closing_locked(vol, b, clock_mono_ns(), b->releasing);
	return false;
}

int body_truncate(struct volume *vol, uint64_t ino, uint64_t body, const struct live_change *change)
{
	struct after after = {.vol = vol};
	struct body *b = NULL;
	int error;

	if (vol->options.read_only)
		return -EROFS;
	mutex_lock(&vol->lock);
	error = truncate_pin_locked(vol, ino, body, change->pid, &b, &after);
	mutex_unlock(&vol->lock);
	after_run(&after);
	if (error || !b)
		return error;
	do
		error = truncate_pinned(vol, b, change);
	while (error == -EAGAIN);
	mutex_lock(&vol->lock);
	if (!error && close_truncated_locked(vol, b, &error))
		body_commit_copy_locked(vol, b, change->interrupted, change->interrupted_arg);
	if (!b->writers && b->staged && !b->discarded && !b->watched && !b->preparing &&
	    !b->pending)
		body_finish_locked(vol, b, &after);
	body_unpin_locked(vol, b, &after);
	mutex_unlock(&vol->lock);
	after_run(&after);
	return error;
}
