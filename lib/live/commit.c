/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last close of what was written. Committing copies nothing and renames nothing: the version's
 * row says CLOSED from then on, and the file points to it, in one transaction.
 */
#include "lib/live/bodies.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "lib/cache/evict.h"
#include "lib/cache/grant.h"
#include "lib/cache/reclaim.h"
#include "lib/cache/torn.h"
#include "lib/cache/uploads.h"
#include "lib/format/tails.h"
#include "lib/live/events.h"
#include "lib/live/observer.h"
#include "lib/saves/event.h"
#include "lib/util/faultpoint.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/process.h"

bool same_as_base(const struct body *b, const struct stat *st)
{
	return b->base && (uint64_t)st->st_size == b->base_size &&
	       stat_mtime(st) == b->base_mtime_ns && stat_ctime(st) == b->base_ctime_ns;
}

static void version_close(struct volume *vol, struct state_version *v, const struct stat *st)
{
	uint64_t allocated = (uint64_t)st->st_blocks * SECTOR;

	v->state = VERSION_CLOSED;
	v->fragile = v->output = false;
	v->size = (uint64_t)st->st_size;
	v->born = vol->next_epoch;
	v->died = 0;
	v->holes = 0;
	v->local_whole = true;
	v->local_bytes = v->size && !allocated ? 1 : allocated;
	v->used_ns = clock_wall_ns();
}

void body_orphan_others_locked(struct volume *vol, struct body *b)
{
	struct body *o = body_of_ino_locked(vol, b->ino);

	for (; o; o = body_next_of_ino_locked(o))
		if (o != b && !o->pending) {
			o->orphan = true;
			body_note_locked(o);
		}
}

/* What a commit has changed besides content. */
struct taken {
	bool replaced;	/* other names lead to another body now */
	uint64_t epoch; /* that has the content before first; 0: there was none */
};

uint64_t version_replaced_by_next(struct volume *vol, const struct state_version *before)
{
	uint64_t epoch = state_version_epoch(before);

	if (state_version_placed(before) == vol->next_epoch ||
	    (before->replaced && vol->observer->is_try_locked(vol, epoch)))
		return before->replaced;
	return epoch;
}

/* An edit that began as a file was opened, and changed nothing, saves nothing. */
static bool is_saved(const struct body *b, const struct stat *st)
{
	return b->copied || !(b->same || same_as_base(b, st));
}

/* Nothing of the content before is left in it; a database mends that by itself. */
static bool is_whole_locked(struct volume *vol, const struct body *b)
{
	char name[256];

	if (spans_reach(&b->written, b->kept_size))
		return true;
	first_name_locked(vol, b->ino, name, NULL);
	return file_endures_kill(b->fd, name);
}

bool body_is_half_locked(struct volume *vol, const struct body *b, const struct stat *st)
{
	return b->half && (uint64_t)st->st_size <= b->cut_size && !is_whole_locked(vol, b);
}

static void take_times(struct state_file *f, const struct stat *st)
{
	f->mtime_ns = stat_mtime(st);
	if (stat_ctime(st) > f->ctime_ns)
		f->ctime_ns = stat_ctime(st);
}

/* `closed` becomes what the file holds, `live` what is seen. In a transaction. */
static int file_take_locked(struct volume *vol, struct body *b, uint64_t closed, uint64_t live,
			    const struct stat *st, struct taken *ret_taken)
{
	bool saved = is_saved(b, st);
	struct state_version before = {0};
	struct state_file f;
	uint64_t old, replaced;
	int error = state_file_get(vol->state, b->ino, &f);

	if (error)
		return error;
	if (f.body != b->id)
		body_replaced_locked(vol, &f);
	old = f.closed;
	if (old)
		error = state_version_get(vol->state, old, &before);
	/* What is lost is replaced all the same. */
	if (error && error != -ENOENT)
		return error;
	*ret_taken = (struct taken){f.body != b->id && f.nlink > 1, state_version_placed(&before)};
	replaced = b->same || same_as_base(b, st) ? before.replaced
						  : version_replaced_by_next(vol, &before);
	f.closed = closed;
	f.live = live;
	f.body = b->id;
	f.size = (uint64_t)st->st_size;
	take_times(&f, st);
	error = state_file_set(vol->state, &f);
	if (!error && replaced)
		error = state_version_replaces(vol->state, closed, replaced);
	if (!error && !old)
		error = covered_drop_locked(vol, b->ino);
	b->base = 0;
	/* What is changed in part is not saved again. */
	if (!error && saved && (!old || is_whole_locked(vol, b)))
		error = vol->observer->saved_locked(vol, b->ino, old, live);
	else if (!error && old)
		error = vol->observer->changed_locked(vol, b->ino, old, live);
	return error ? error : version_died_locked(vol, old);
}

/* Who appends adds nothing to a save, and what a killed writer leaves is none. */
static void note_saved_locked(struct volume *vol, const struct body *b, uint64_t parent,
			      const char *name)
{
	const struct handle *h = b->open_handles;

	while (h && !h->writes)
		h = h->next;
	if (!b->append_only && (!b->killed || b->closed_well))
		output_saved_locked(vol, parent, name, h ? h->tgid : b->closer,
				    h ? h->tid : b->closer_tid);
}

static void note_close_locked(struct volume *vol, struct body *b, enum activity what,
			      const struct taken *taken)
{
	uint64_t parent = 0;
	char name[256];

	if (what == ACTIVITY_CLOSE && b->is_output)
		what = ACTIVITY_ATTR;
	first_name_locked(vol, b->ino, name, &parent);
	if (!name[0])
		return;
	if (what == ACTIVITY_CLOSE)
		note_saved_locked(vol, b, parent, name);
	if (what == ACTIVITY_CLOSE)
		vol->observer->before_taken_locked(vol, b, taken->epoch);
	vol->observer->note_locked(vol, what, parent, NULL, name, b->ino);
}

static int note_local_locked(struct volume *vol, struct state_version *v, const struct stat *st)
{
	v->local_whole = true;
	v->local_bytes = (uint64_t)st->st_blocks * SECTOR;
	return state_version_set(vol->state, v);
}

/* The version before may have the inode back. Not where it would lose what an fsync promised of this one alone. */
static bool may_restore_locked(struct volume *vol, const struct body *b, const struct stat *st)
{
	struct state_version base;

	if (content_in_use_locked(vol, b->base))
		return false;
	if (!b->same)
		return same_as_base(b, st) && b->base_compares;
	return !state_version_get(vol->state, b->base, &base) &&
	       (base.fsynced || !b->synced_ctime_ns);
}

/* Nothing was written, or what was there: the inode goes back to the version that it was taken from, so that who has
 * the live file open by it (passthrough) still has what the file is. */
static int restore_base_locked(struct volume *vol, struct body *b, const struct stat *st)
{
	char from[OBJECT_NAME_MAX], to[OBJECT_NAME_MAX];
	struct state_version base;
	struct state_file f;
	int error = state_version_get(vol->state, b->base, &base);

	if (!error)
		error = state_file_get(vol->state, b->ino, &f);
	if (error)
		return error;
	/* First: recovery removes a file of which no row knows. */
	if (!base.local_whole)
		error = note_local_locked(vol, &base, st);
	if (error)
		return error;
	object_name(b->version, from);
	object_name(b->base, to);
	/* ENOENT: an earlier try did this and then failed. */
	if (renameat(vol->objects_fd, from, vol->objects_fd, to) < 0 && errno != ENOENT)
		return -errno;
	error = grant_move_locked(vol, b->version, b->base, b->id);
	if (error)
		return error;
	FAULT_POINT("commit.restored");
	error = state_begin(vol->state);
	if (error)
		return error;
	error = note_local_locked(vol, &base, st);
	f.live = b->base;
	if (b->same)
		take_times(&f, st);
	if (!error)
		error = state_file_set(vol->state, &f);
	if (!error)
		error = state_version_remove(vol->state, b->version);
	error = state_end(vol->state, error);
	if (!error)
		b->version = base.id;
	return error;
}

/* What a killed writer left, or may not have been able to write, may be half of something, but for what endures that. */
static bool left_torn_locked(struct volume *vol, const struct body *b, const struct stat *st)
{
	struct state_version base;
	bool refused = body_is_refused(b);
	const char *why;
	char name[256];

	if (body_is_half_locked(vol, b, st))
		return true;
	/* Nothing was written since: a copy may stand for it, which was found so. */
	if (same_as_base(b, st))
		return !state_version_get(vol->state, b->base, &base) && base.torn;
	if (((!b->killed || b->closed_well) && !b->cramped) || b->is_output)
		return false;
	first_name_locked(vol, b->ino, name, NULL);
	/* Records may end anywhere; a model that is written in one go, and could not be, may not. */
	if (b->append_only && (!refused || tail_check(-1, 0, name, &why) <= 0))
		return false;
	return !file_endures_kill(b->fd, name);
}

/* The epoch that has these bytes first, where the file has them already. */
static uint64_t saved_in_locked(struct volume *vol, const struct body *b)
{
	struct state_version base;
	struct state_file f;

	if (state_file_get(vol->state, b->ino, &f) != 0 || f.closed != b->base ||
	    state_version_get(vol->state, b->base, &base) != 0)
		return 0;
	return state_version_epoch(&base);
}

/* Its tail says that it is cut off, or the kernel may not have had room to write all of it. */
static unsigned close_facts_locked(struct volume *vol, const struct body *b, const struct stat *st)
{
	return event_close_facts_locked(vol, b, (uint64_t)st->st_size) |
	       (b->ends_torn || (b->cramped && left_torn_locked(vol, b, st)) ? SAVE_IS_TORN : 0);
}

static int commit_rows_locked(struct volume *vol, struct body *b, const struct stat *st,
			      struct taken *ret_taken, bool *ret_whole)
{
	struct state_version v;
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = state_version_get(vol->state, b->version, &v);
	if (!error) {
		*ret_whole = v.kind == VERSION_NEW || v.kind == VERSION_REPLACE;
		version_close(vol, &v, st);
		v.torn = left_torn_locked(vol, b, st);
		v.lost = v.torn && b->cramped;
		v.fsynced = body_is_synced(b, st);
		/* So it is of what follows a copy that was committed at the close, as far as times tell. */
		v.saved = b->same || same_as_base(b, st) ? saved_in_locked(vol, b) : 0;
		error = state_version_set(vol->state, &v);
	}
	if (!error)
		error = file_take_locked(vol, b, v.id, v.id, st, ret_taken);
	return state_end(vol->state, error);
}

static int commit_locked(struct volume *vol, struct body *b, struct after *after)
{
	bool whole = false, copied = b->copied, same, bytes = b->same;
	struct taken taken = {0};
	unsigned facts;
	struct stat st;
	int error;

	if (fstat(b->fd, &st) < 0)
		return -errno;
	same = bytes || same_as_base(b, &st);
	facts = close_facts_locked(vol, b, &st) | (same && !copied ? SAVE_IS_SAME : 0);
	if (may_restore_locked(vol, b, &st)) {
		error = restore_base_locked(vol, b, &st);
		if (error)
			return error;
		body_unstage_locked(vol, b);
		event_closed_locked(vol, b, (uint64_t)st.st_size, facts);
		if (bytes)
			note_close_locked(vol, b, ACTIVITY_TIMES, &taken);
		return 0;
	}
	FAULT_POINT("commit.begin");
	error = commit_rows_locked(vol, b, &st, &taken, &whole);
	if (error)
		return error;
	FAULT_POINT("commit.rows");
	body_set_pending_locked(vol, b, false);
	body_orphan_others_locked(vol, b);
	body_is_output_locked(vol, b);
	if (whole && !b->is_output)
		uploads_closed(vol, b->version, (uint64_t)st.st_size);
	body_unstage_locked(vol, b);
	if (taken.replaced)
		after_names_locked(after, b->ino);
	event_closed_locked(vol, b, (uint64_t)st.st_size, facts);
	if (bytes)
		note_close_locked(vol, b, ACTIVITY_TIMES, &taken);
	/* What an epoch has already is no change, though the version is another. A mapping may have
	 * changed what was copied under it, and no time tells. */
	if ((!same || copied) && !(b->is_output && vol->observer->has_log_locked(vol, b->ino, &st)))
		note_close_locked(vol, b, same ? ACTIVITY_ATTR : ACTIVITY_CLOSE, &taken);
	return 0;
}

bool body_commits_locked(struct volume *vol, struct body *b)
{
	return b->staged && !b->discarded && !b->orphan && !body_is_undone_locked(vol, b);
}

/* An orphan's bytes go nowhere, or, where a rollback made it one, to torn/. */
static int let_go_locked(struct volume *vol, struct body *b)
{
	if (b->tear)
		torn_keep_locked(vol, b->version, b->torn_name ? b->torn_name : "", b->handles);
	return body_let_go_locked(vol, b);
}

static const char *why_undone(const struct body *b)
{
	if (b->refused_from < b->refused_to)
		return "a write to it was refused";
	return b->cramped ? "the cache's disk was full as it was written" : "its writer was killed";
}

bool body_is_stored_since_close(const struct body *b)
{
	struct stat st;

	return b->staged && !b->discarded && fstat(b->fd, &st) == 0 &&
	       (b->journaled_ctime_ns != stat_ctime(&st) ||
		b->journaled_size != (uint64_t)st.st_size);
}

/* A mapping that was left has stored something since the close, which a copy that was committed then may have in part, and
 * its process was killed. */
static void look_at_mapper_locked(struct body *b)
{
	if (b->closer_hold < 0 || !body_is_stored_since_close(b) ||
	    !process_ended_badly(b->closer_hold, b->closer))
		return;
	b->killed = b->half = true;
	b->closed_well = false;
	b->kept_size = b->cut_size = UINT64_MAX;
}

static void note_killed_locked(struct volume *vol, struct body *b, bool undone)
{
	if (!b->killed || b->orphan || body_is_output_locked(vol, b))
		return;
	vol->observer->doubt_locked(vol, b, undone, why_undone(b));
	vol->observer->killed_locked(vol);
}

static void not_recorded_locked(struct volume *vol, struct body *b, int error)
{
	if (!b->uncommitted)
		log_error("inode %" PRIu64 ": the close could not be recorded: %s; trying "
			  "again until it can",
			  b->ino, strerror(-error));
	b->uncommitted = true;
	body_watch_locked(vol, b, true);
}

static void recorded_locked(struct volume *vol, struct body *b)
{
	b->uncommitted = false;
	b->killed = b->closed_well = b->tear = b->cramped = false;
	b->refused_from = b->refused_to = 0;
	output_ended_locked(vol, b);
	body_note_locked(b);
	body_watch_locked(vol, b, false);
}

void body_finish_locked(struct volume *vol, struct body *b, struct after *after)
{
	struct state_file f;
	bool undone;
	int error;

	look_at_mapper_locked(b);
	undone = body_is_undone_locked(vol, b);
	if (b->orphan && !state_file_get(vol->state, b->ino, &f))
		body_is_shown_locked(b, &f);
	note_killed_locked(vol, b, undone);
	if (b->orphan) {
		event_closed_locked(vol, b, 0, 0);
		error = let_go_locked(vol, b);
	} else if (undone) {
		error = body_undo_locked(vol, b, after);
	} else {
		error = commit_locked(vol, b, after);
	}
	if (error)
		not_recorded_locked(vol, b, error);
	else
		recorded_locked(vol, b);
}

/* ---- a copy ---- */

/* `ret_racy`: a write beside it may leave the file's times as they are. */
static int copy_bytes(struct volume *vol, struct backing *from, const char *temporary,
		      struct stat *ret_st, bool *ret_racy, interrupted_fn interrupted, void *arg)
{
	cleanup_close int to = -1;
	int error;

	if (fstat(from->fd, ret_st) < 0)
		return -errno;
	*ret_racy = time_may_stay(stat_ctime(ret_st));
	error = volume_reserve(vol, io_allocated(from->fd, (uint64_t)ret_st->st_size), interrupted,
			       arg);
	if (error)
		return error;
	to = openat(vol->objects_fd, temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	return io_clone(from->fd, to, (uint64_t)ret_st->st_size);
}

/* The staged version is one that edits the copy from now on: a kill does not undo it. */
static int stage_follows_locked(struct volume *vol, struct body *b)
{
	struct state_version v;
	int error = state_version_get(vol->state, b->version, &v);

	if (error)
		return error;
	v.kind = VERSION_EDIT;
	v.fragile = false;
	return state_version_set(vol->state, &v);
}

static int copy_rows_locked(struct volume *vol, struct body *b, const char *temporary,
			    const struct stat *st, uint64_t *ret_id, struct taken *ret_taken)
{
	struct state_version v = {.ino = b->ino, .body = b->id, .kind = VERSION_EDIT};
	char name[OBJECT_NAME_MAX];
	int error = state_begin(vol->state);

	if (error)
		return error;
	version_close(vol, &v, st);
	v.torn = left_torn_locked(vol, b, st);
	v.lost = v.torn && b->cramped;
	error = state_version_new(vol->state, &v, &v.id);
	object_name(v.id, name);
	if (!error && renameat(vol->objects_fd, temporary, vol->objects_fd, name) < 0)
		error = -errno;
	if (!error)
		error = file_take_locked(vol, b, v.id, b->version, st, ret_taken);
	if (!error)
		error = stage_follows_locked(vol, b);
	error = state_end(vol->state, error);
	if (!error)
		*ret_id = v.id;
	return error;
}

static int copy_commit_locked(struct volume *vol, struct body *b, const char *temporary,
			      const struct stat *st, bool racy, struct after *after)
{
	struct taken taken = {0};
	uint64_t id = 0;
	unsigned facts;
	int error;

	if (!b->staged || b->discarded || b->orphan)
		return -ENOENT;
	facts = close_facts_locked(vol, b, st);
	error = copy_rows_locked(vol, b, temporary, st, &id, &taken);
	if (error)
		return error;
	FAULT_POINT("commit.copied");
	body_set_pending_locked(vol, b, false);
	body_orphan_others_locked(vol, b);
	b->fragile = b->uncommitted = false;
	b->base = id;
	b->base_size = (uint64_t)st->st_size;
	b->base_mtime_ns = stat_mtime(st);
	b->base_ctime_ns = stat_ctime(st);
	/* Of a mapping no time tells what it has changed. A write by a descriptor that is left gives the file another. */
	b->base_compares = body_is_held(b) && !racy;
	b->copied = !b->base_compares;
	if (taken.replaced)
		after_names_locked(after, b->ino);
	event_closed_locked(vol, b, (uint64_t)st->st_size, facts);
	note_close_locked(vol, b, ACTIVITY_CLOSE, &taken);
	return 0;
}

/* The body, pinned, where there is something to copy. */
static struct body *copy_pin_locked(struct volume *vol, uint64_t id, int *ret_error)
{
	struct body *b = body_find_locked(vol, id);
	struct stat st;

	*ret_error = -ENOENT;
	if (!b || !b->staged || b->discarded || b->orphan)
		return NULL;
	*ret_error = fstat(b->fd, &st) < 0 ? -errno : 0;
	if (*ret_error || (same_as_base(b, &st) && !b->watched))
		return NULL;
	b->pins++;
	return b;
}

int body_commit_copy(struct volume *vol, uint64_t id, interrupted_fn interrupted, void *arg)
{
	struct after after = {.vol = vol};
	struct backing *backing;
	char temporary[40];
	struct stat st;
	bool racy = true;
	struct body *b;
	int error;

	mutex_lock(&vol->lock);
	b = copy_pin_locked(vol, id, &error);
	if (!b) {
		mutex_unlock(&vol->lock);
		return error;
	}
	backing = backing_ref(b->backing);
	snprintf(temporary, sizeof(temporary), "copy-%016" PRIx64 ".tmp", object_new_id(vol));
	mutex_unlock(&vol->lock);
	error = copy_bytes(vol, backing, temporary, &st, &racy, interrupted, arg);
	mutex_lock(&vol->lock);
	if (!error)
		error = copy_commit_locked(vol, b, temporary, &st, racy, &after);
	if (error)
		unlinkat(vol->objects_fd, temporary, 0);
	body_unpin_locked(vol, b, &after);
	mutex_unlock(&vol->lock);
	backing_put(backing);
	after_run(&after);
	return error;
}

void body_commit_copy_locked(struct volume *vol, struct body *b, interrupted_fn interrupted,
			     void *arg)
{
	int error;

	mutex_unlock(&vol->lock);
	error = body_commit_copy(vol, b->id, interrupted, arg);
	mutex_lock(&vol->lock);
	if (!error || error == -ENOENT)
		return;
	b->uncommitted = true;
	log_error("a file with a mapping left is committed later: %s", strerror(-error));
}

/* Who asks by name is not to wait until others have made room: what finds none is tried again. */
static bool never_waits(void *arg)
{
	(void)arg;
	return true;
}

/* Till the clock that files are stamped with has gone on, so that whatever is written after the copy is told from it. */
#define TICKS	  20
#define TICK_STEP NS_PER_MS

static void await_stamp(int fd)
{
	struct timespec step = clock_timespec(TICK_STEP);
	struct stat st;

	for (int i = 0; i < TICKS && fstat(fd, &st) == 0 && time_may_stay(stat_ctime(&st)); i++)
		nanosleep(&step, NULL);
}

static int copy_held_locked(struct volume *vol, struct body *b)
{
	struct backing *backing = backing_ref(b->backing);
	int error;

	b->taking = true;
	mutex_unlock(&vol->lock);
	await_stamp(backing->fd);
	backing_put(backing);
	error = body_commit_copy(vol, b->id, never_waits, NULL);
	mutex_lock(&vol->lock);
	b->taking = false;
	pthread_cond_broadcast(&vol->changed);
	return error;
}

void body_finish_held_locked(struct volume *vol, struct body *b, struct after *after)
{
	bool undone;
	int error;

	while (b->taking)
		cond_wait(&vol->changed, &vol->lock);
	if (!body_is_held(b) || !b->staged || b->discarded)
		return;
	undone = body_is_undone_locked(vol, b);
	if (b->orphan || undone) {
		body_finish_locked(vol, b, after);
		return;
	}
	note_killed_locked(vol, b, false);
	error = copy_held_locked(vol, b);
	/* Else the last descriptor has gone meanwhile, or somebody writes again: the close is theirs. */
	if (!body_is_held(b))
		return;
	if (error && error != -ENOENT)
		not_recorded_locked(vol, b, error);
	else
		recorded_locked(vol, b);
}
