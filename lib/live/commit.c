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
#include "lib/live/observer.h"
#include "lib/util/faultpoint.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/process.h"

static bool same_as_base(const struct body *b, const struct stat *st)
{
	return b->base && (uint64_t)st->st_size == b->base_size &&
	       stat_mtime(st) == b->base_mtime_ns && stat_ctime(st) == b->base_ctime_ns;
}

static void version_close(struct volume *vol, struct state_version *v, const struct stat *st)
{
	uint64_t allocated = (uint64_t)st->st_blocks * SECTOR;

	v->state = VERSION_CLOSED;
	v->fragile = false;
	v->size = (uint64_t)st->st_size;
	v->born = vol->next_epoch;
	v->died = 0;
	v->holes = 0;
	v->local_whole = true;
	v->local_bytes = v->size && !allocated ? 1 : allocated;
	v->used_ns = clock_wall_ns();
}

/* Other bodies of the file are what it was before. */
static void orphan_others_locked(struct volume *vol, struct body *b)
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
	return b->copied || !same_as_base(b, st);
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
	replaced = same_as_base(b, st) ? before.replaced : version_replaced_by_next(vol, &before);
	f.closed = closed;
	f.live = live;
	f.body = b->id;
	f.size = (uint64_t)st->st_size;
	f.mtime_ns = stat_mtime(st);
	if (stat_ctime(st) > f.ctime_ns)
		f.ctime_ns = stat_ctime(st);
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

static void note_close_locked(struct volume *vol, struct body *b, bool quietly,
			      const struct taken *taken)
{
	enum activity what = quietly || b->is_log ? ACTIVITY_ATTR : ACTIVITY_CLOSE;
	uint64_t parent = 0;
	char name[256];

	first_name_locked(vol, b->ino, name, &parent);
	if (!name[0])
		return;
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

/* Nothing was written: the inode goes back to the version that it was taken from, so that who has
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
	bool refused = b->cramped || b->refused_from < b->refused_to;
	const char *why;
	char name[256];

	if (body_is_half_locked(vol, b, st))
		return true;
	/* Nothing was written since: a copy may stand for it, which was found so. */
	if (same_as_base(b, st))
		return !state_version_get(vol->state, b->base, &base) && base.torn;
	if (((!b->killed || b->closed_well) && !b->cramped) || b->is_log)
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
		v.fsynced = b->synced_ctime_ns && b->synced_ctime_ns == stat_ctime(st) &&
			    b->synced_size == v.size;
		/* So it is of what follows a copy that was committed at the close, as far as times tell. */
		v.saved = same_as_base(b, st) ? saved_in_locked(vol, b) : 0;
		error = state_version_set(vol->state, &v);
	}
	if (!error)
		error = file_take_locked(vol, b, v.id, v.id, st, ret_taken);
	return state_end(vol->state, error);
}

static int commit_locked(struct volume *vol, struct body *b, struct after *after)
{
	bool whole = false, copied = b->copied, same;
	struct taken taken = {0};
	struct stat st;
	int error;

	if (fstat(b->fd, &st) < 0)
		return -errno;
	same = same_as_base(b, &st);
	if (same && b->base_compares && !content_in_use_locked(vol, b->base)) {
		error = restore_base_locked(vol, b, &st);
		if (!error)
			body_unstage_locked(vol, b);
		return error;
	}
	FAULT_POINT("commit.begin");
	error = commit_rows_locked(vol, b, &st, &taken, &whole);
	if (error)
		return error;
	FAULT_POINT("commit.rows");
	body_set_pending_locked(vol, b, false);
	orphan_others_locked(vol, b);
	body_is_log_locked(vol, b);
	if (whole && !b->is_log)
		uploads_closed(vol, b->version, (uint64_t)st.st_size);
	body_unstage_locked(vol, b);
	if (taken.replaced)
		after_names_locked(after, b->ino);
	/* What an epoch has already is no change, though the version is another. A mapping may have
	 * changed what was copied under it, and no time tells. */
	if ((!same || copied) && !(b->is_log && vol->observer->has_log_locked(vol, b->ino, &st)))
		note_close_locked(vol, b, same, &taken);
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

/* As far as times tell. */
static bool is_stored_after_close(const struct body *b)
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
	if (b->closer_hold < 0 || !is_stored_after_close(b) ||
	    !process_ended_badly(b->closer_hold, b->closer))
		return;
	b->killed = b->half = true;
	b->closed_well = false;
	b->kept_size = b->cut_size = UINT64_MAX;
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
	if (b->killed && !b->orphan && !body_is_log_locked(vol, b)) {
		vol->observer->doubt_locked(vol, b, undone, why_undone(b));
		vol->observer->killed_locked(vol);
	}
	if (b->orphan)
		error = let_go_locked(vol, b);
	else if (undone)
		error = body_undo_locked(vol, b, after);
	else
		error = commit_locked(vol, b, after);
	if (error) {
		if (!b->uncommitted)
			log_error("inode %" PRIu64 ": the close could not be recorded: %s; trying "
				  "again until it can",
				  b->ino, strerror(-error));
		b->uncommitted = true;
		body_watch_locked(vol, b, true);
		return;
	}
	b->uncommitted = false;
	b->killed = b->closed_well = b->tear = b->cramped = false;
	b->refused_from = b->refused_to = 0;
	body_note_locked(b);
	body_watch_locked(vol, b, false);
}

/* ---- a copy ---- */

static int copy_bytes(struct volume *vol, struct backing *from, const char *temporary,
		      struct stat *ret_st, interrupted_fn interrupted, void *arg)
{
	cleanup_close int to = -1;
	int error;

	if (fstat(from->fd, ret_st) < 0)
		return -errno;
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
			      const struct stat *st, struct after *after)
{
	struct taken taken = {0};
	uint64_t id = 0;
	int error;

	if (!b->staged || b->discarded || b->orphan)
		return -ENOENT;
	error = copy_rows_locked(vol, b, temporary, st, &id, &taken);
	if (error)
		return error;
	FAULT_POINT("commit.copied");
	body_set_pending_locked(vol, b, false);
	orphan_others_locked(vol, b);
	b->fragile = b->uncommitted = false;
	b->base = id;
	b->base_size = (uint64_t)st->st_size;
	b->base_mtime_ns = stat_mtime(st);
	b->base_ctime_ns = stat_ctime(st);
	b->base_compares = false;
	b->copied = true;
	if (taken.replaced)
		after_names_locked(after, b->ino);
	note_close_locked(vol, b, false, &taken);
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
	error = copy_bytes(vol, backing, temporary, &st, interrupted, arg);
	mutex_lock(&vol->lock);
	if (!error)
		error = copy_commit_locked(vol, b, temporary, &st, &after);
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
