/* SPDX-License-Identifier: Apache-2.0 */
/* What the live tree tells (lib/live/observer.h). */
#include "lib/epochs/driver_internal.h"

#include <sys/stat.h>

#include "lib/epochs/fact_log.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/sealer.h"
#include "lib/live/body.h"
#include "lib/util/clock.h"

static void note_opened(struct pending *p, int64_t now)
{
	if (p->opened_ns)
		return;
	p->opened_ns = clock_wall_ns();
	p->opened_mono_ns = now;
}

/* What of an epoch's record, and of the next mount, depends on. */
static void note_change_locked(struct volume *vol, const struct save_event *e)
{
	struct pending *p = &vol->sealer->pending;

	switch (e->kind) {
	case SAVE_CLOSED:
		if (!e->path || e->facts & SAVE_IS_SAME)
			return;
		p->content_ns = e->at_ns;
		break;
	case SAVE_OPENED:
	case SAVE_REFUSED:
	case SAVE_UNDONE:
		return;
	default:
		break;
	}
	note_opened(p, e->at_ns);
	if (saves_dirty(vol->driver->saves))
		sealer_opens_locked(vol);
	else
		sealer_rides_locked(vol);
}

static void tell_locked(struct volume *vol, const struct save_event *e)
{
	struct sealer *s = vol->sealer;

	bool was_dirty = saves_dirty(vol->driver->saves);
	enum saves_back back;

	driver_apply_locked(vol, e);
	/* What came is gone: what was there before it is, too. */
	if (was_dirty && !saves_dirty(vol->driver->saves) && e->kind == SAVE_REMOVED)
		s->pending.opens = false;
	note_change_locked(vol, e);
	driver_seal_now_locked(vol, e);
	back = saves_back(vol->driver->saves);
	/* Whose close it is goes back himself (closed). */
	if (s->looking_ns > saves_next_ns(vol->driver->saves) || back == BACK_LATER ||
	    (back == BACK_NOW && e->kind != SAVE_CLOSED && e->kind != SAVE_UNDONE))
		sealer_wake_locked(vol);
}

static void event_locked(struct volume *vol, const struct save_event *e)
{
	struct save_event own = *e;

	fact_log_note_locked(vol, e);
	own.at_ns = driver_now_ns();
	own.process = writers_number(vol->driver->writers, (pid_t)e->process);
	if (!driver_is_started(vol)) {
		driver_keep_event(vol->driver, &own);
		return;
	}
	/* It ended before what it had open was closed. */
	if (e->facts & SAVE_IS_KILLED)
		driver_tell_ended_locked(vol);
	tell_locked(vol, &own);
}

static void before_locked(struct volume *vol, const struct save_event *e)
{
	const struct seal_rule *rule;
	struct save_event own = *e;

	if (!driver_is_started(vol))
		return;
	/* A close that is on its way ends what this follows. */
	body_finish_closes_locked(vol, 0);
	driver_pass_time_locked(vol);
	own.at_ns = driver_now_ns();
	rule = saves_seal_before(vol->driver->saves, &own);
	if (rule)
		driver_seal_locked(vol, rule, e);
}

static void note_locked(struct volume *vol, enum activity what, uint64_t parent,
			const char *old_name, const char *name, uint64_t ino)
{
	struct state_file f;

	(void)parent, (void)old_name, (void)name;
	if (!driver_is_started(vol))
		return;
	if (what == ACTIVITY_TIMES)
		vol->sealer->pending.times = true;
	/* What has no content there is no event for. */
	if (what == ACTIVITY_CREATE && state_file_get(vol->state, ino, &f) == 0 &&
	    !S_ISREG(f.mode) && !S_ISDIR(f.mode) && !S_ISLNK(f.mode))
		what = ACTIVITY_ATTR;
	if (what == ACTIVITY_ATTR || what == ACTIVITY_EMPTIED) {
		note_opened(&vol->sealer->pending, driver_now_ns());
		sealer_rides_locked(vol);
	}
}

static void closed(struct volume *vol, uint64_t ino, pid_t by, int64_t at_ns)
{
	(void)ino, (void)by, (void)at_ns;
	driver_go_back(vol);
}

/* ---- what the rules of lib/saves have no use for ---- */

static void no_replace_locked(struct volume *vol, uint64_t ino)
{
	(void)vol, (void)ino;
}

static void no_name_locked(struct volume *vol, uint64_t parent, const char *name, uint64_t ino)
{
	(void)vol, (void)parent, (void)name, (void)ino;
}

static void no_rename_locked(struct volume *vol, uint64_t parent, const char *name,
			     uint64_t new_parent, const char *new_name)
{
	(void)vol, (void)parent, (void)name, (void)new_parent, (void)new_name;
}

static bool no_exchange_locked(struct volume *vol, uint64_t parent, const char *name,
			       uint64_t new_parent, const char *new_name)
{
	no_rename_locked(vol, parent, name, new_parent, new_name);
	return false;
}

static void no_taken_locked(struct volume *vol, const struct body *b, uint64_t epoch)
{
	(void)vol, (void)b, (void)epoch;
}

static void no_writer_locked(struct volume *vol, pid_t pid)
{
	(void)vol, (void)pid;
}

static void no_kill_locked(struct volume *vol)
{
	(void)vol;
}

static void no_refused_locked(struct volume *vol, uint64_t parent, const char *name, pid_t by)
{
	(void)vol, (void)parent, (void)name, (void)by;
}

static int no_saved_locked(struct volume *vol, uint64_t ino, uint64_t old_version, uint64_t began)
{
	(void)vol, (void)ino, (void)old_version, (void)began;
	return 0;
}

static int no_renamed_locked(struct volume *vol, uint64_t parent, const char *name, const char *to,
			     uint64_t began)
{
	(void)vol, (void)parent, (void)name, (void)to, (void)began;
	return 0;
}

static int no_moves_locked(struct volume *vol, const struct state_file *f, uint64_t parent,
			   const char *name, uint64_t new_parent, const char *new_name)
{
	(void)f;
	no_rename_locked(vol, parent, name, new_parent, new_name);
	return 0;
}

static bool no_try_locked(struct volume *vol, uint64_t epoch)
{
	(void)vol, (void)epoch;
	return false;
}

const struct live_observer driver_observer = {
	.event_locked = event_locked,
	.before_event_locked = before_locked,
	.note_locked = note_locked,
	.before_replace_locked = no_replace_locked,
	.before_name_locked = no_name_locked,
	.before_rename_locked = no_rename_locked,
	.before_exchange_locked = no_exchange_locked,
	.moves_locked = no_moves_locked,
	.before_taken_locked = no_taken_locked,
	.incomplete_locked = sealer_incomplete_locked,
	.writer_locked = no_writer_locked,
	.unknown_locked = no_kill_locked,
	.doubt_locked = driver_doubt_locked,
	.refused_locked = no_refused_locked,
	.killed_locked = no_kill_locked,
	.saved_locked = no_saved_locked,
	.changed_locked = no_saved_locked,
	.renamed_locked = no_renamed_locked,
	.is_try_locked = no_try_locked,
	.has_log_locked = sealer_has_log_locked,
	.may_remove_locked = resume_may_remove_locked,
	.before_reading = driver_before_reading,
	.for_reader = driver_for_reader,
	.await_log_locked = seal_await_log_locked,
	.closed = closed,
	.wait_durable = sealer_wait_durable,
};
