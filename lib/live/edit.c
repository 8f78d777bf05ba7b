/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first change of closed content, V1: a staged version V2 follows it, and V1 stays as it is for
 * as long as something needs it. No write is let through before this has ended.
 *
 *   EMPTY     nothing of V1 is wanted: V2 begins empty, and V1 keeps its file.
 *   CLONE     V2 gets a clone of V1's bytes. Whoever has the live file open reads through the
 *             daemon, which goes over to the clone.
 *   TAKEOVER  the kernel has V1's file for somebody who has the live file open or mapped (passthrough), and
 *             he must see the change: V2 takes over that very inode, and V1 gets the clone.
 *   GIVE      V1 is durable, wanted as a whole, and nobody else reads it: V2 takes the inode over
 *             and nothing is copied. V1 is no longer local.
 *
 * Which of them may be is not decided here: grant.h says whose the inode is. One that is the body's own is
 * never left behind (EMPTY, CLONE), one that is another's never taken (TAKEOVER, GIVE), and that is asked
 * again with the lock that the change is made under.
 *
 * After a crash. Files come before rows: what the steps leave behind has the same bytes under every
 * name, and the file of a version without a row is removed (recover.c). In TAKEOVER the order is
 *   clone to <V1>.new         ->  a stray, removed
 *   link V1 to <V1>-<V2>.old  ->  the same file as V1: removed
 *   link V1 to V2             ->  V2 has no row: removed
 *   rename <V1>.new V1        ->  V2 has no row: V1 gets its inode back from <V1>-<V2>.old, as the kernel may have
 *                                 that for somebody who goes on with the next process (survivors.h)
 *   commit V2's row           ->  done
 *   unlink <V1>-<V2>.old      ->  else removed
 * and in GIVE: link V1 to V2; commit V2's row and V1 as not local; unlink V1 (else a stray).
 * After a power loss any of these may be there or not, alone; each combination is one of the above,
 * or leaves V2's row without a file: then V2 is forgotten, and V1 is what the file holds.
 */
#include "lib/live/bodies.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/cache/evict.h"
#include "lib/cache/grant.h"
#include "lib/format/tails.h"
#include "lib/live/cramped.h"
#include "lib/live/events.h"
#include "lib/live/observer.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/process.h"

/* A write in the same tick of the kernel's clock as the file's own mtime would not show. */
#define TICK_MAX (100 * NS_PER_MS)
/* How often who waits for another's edit asks whether he was interrupted. */
#define WAIT_STEP_NS (100 * NS_PER_MS)

enum edit_kind { EDIT_EMPTY, EDIT_CLONE, EDIT_TAKEOVER, EDIT_GIVE };

struct edit {
	struct volume *vol;
	struct body *b;
	struct state_version base;
	enum edit_kind kind;
	uint64_t keep; /* bytes of V1 that V2 begins with */
	bool promised; /* some of V1's bytes were fsynced: neither V1 nor V2 may lose them */
	bool cut;      /* V1 is torn, and shorter than its format says */
	char temporary[40], name[256];
};

/* V1's inode may go to V2 as it is: the remote has the bytes, and nobody but this body reads them. */
static bool may_give_locked(const struct edit *e)
{
	return e->base.state == VERSION_DURABLE && e->keep == e->base.size &&
	       content_users_locked(e->vol, e->base.id) == (e->b->content ? 1 : 0);
}

static void choose_kind_locked(struct edit *e)
{
	enum grant_use use = grant_use_locked(e->vol, e->base.id, e->b->id);

	if (use == GRANT_OWN)
		e->kind = may_give_locked(e) ? EDIT_GIVE : EDIT_TAKEOVER;
	else if (!e->keep)
		e->kind = EDIT_EMPTY;
	else
		e->kind = use == GRANT_FREE && may_give_locked(e) ? EDIT_GIVE : EDIT_CLONE;
}

/* What was planned without the lock may not be done any more: plan again. */
static int kind_holds_locked(struct edit *e, uint64_t id)
{
	bool takes = e->kind == EDIT_TAKEOVER || e->kind == EDIT_GIVE;

	if (takes)
		return grant_move_locked(e->vol, e->base.id, id, e->b->id) ? -EAGAIN : 0;
	return grant_use_locked(e->vol, e->base.id, e->b->id) == GRANT_OWN ? -EAGAIN : 0;
}

static int plan_locked(struct edit *e, uint64_t keep)
{
	int error = state_version_get(e->vol->state, e->b->version, &e->base);

	if (error)
		return error == -ENOENT ? -EIO : error;
	e->keep = keep < e->base.size ? keep : e->base.size;
	e->promised = e->base.fsynced || e->base.rests_on_fsync;
	first_name_locked(e->vol, e->b->ino, e->name, NULL);
	choose_kind_locked(e);
	if (e->kind == EDIT_TAKEOVER)
		snprintf(e->temporary, sizeof(e->temporary), "%016" PRIx64 ".new", e->base.id);
	else
		snprintf(e->temporary, sizeof(e->temporary), "edit-%016" PRIx64 ".tmp", e->b->id);
	return 0;
}

/* Everything of V1 that is needed becomes local and stays so until it is unpinned and put. */
static int fetch_base(struct edit *e, interrupted_fn interrupted, void *arg,
		      struct content **ret_content)
{
	struct content *c;
	int error = content_get(e->vol, e->base.id, &c);

	if (error)
		return error;
	content_pin(c);
	error = content_fetch(c, 0, e->kind == EDIT_TAKEOVER || e->base.torn ? UINT64_MAX : e->keep,
			      interrupted, arg);
	if (error) {
		content_unpin(c);
		content_put(c);
		return error;
	}
	*ret_content = c;
	return 0;
}

/* Whether V1 is cut off by its own account: then an edit may bring what it lacks. */
static bool is_cut(const struct edit *e)
{
	cleanup_close int fd = e->base.torn ? object_open(e->vol, e->base.id, O_RDONLY) : -1;
	const char *why;

	return fd >= 0 && tail_check(fd, e->base.size, e->name, &why) > 0;
}

/* The copy, without the lock: a descriptor of the clone, read-write, or -errno. */
static int make_clone(struct edit *e, interrupted_fn interrupted, void *arg)
{
	uint64_t size = e->kind == EDIT_TAKEOVER ? e->base.size : e->keep;
	cleanup_close int from = size ? object_open(e->vol, e->base.id, O_RDONLY) : -1;
	cleanup_close int to = -1;
	int error = size && from < 0 ? from : 0;

	if (!error && size)
		error = volume_reserve(e->vol, io_allocated(from, size), interrupted, arg);
	if (error)
		return error;
	to = openat(e->vol->objects_fd, e->temporary, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (to < 0)
		return -errno;
	if (size)
		error = io_clone_until(from, to, size, interrupted, arg);
	/* What fsync promised of V1 must hold for its new file, and for V2, which a close will put in
	 * V1's place with whatever was changed. */
	if (!error && e->promised && fsync(to) < 0)
		error = -errno;
	if (error) {
		unlinkat(e->vol->objects_fd, e->temporary, 0);
		return error;
	}
	FAULT_POINT("edit.cloned");
	return steal_fd(&to);
}

static int new_row_locked(struct edit *e, struct state_version *v)
{
	*v = (struct state_version){.ino = e->b->ino,
				    .body = e->b->id,
				    .state = VERSION_STAGED,
				    .kind = VERSION_EDIT,
				    .size = e->keep,
				    .rests_on_fsync = e->promised && e->keep,
				    .torn = e->base.torn && e->keep,
				    .output = e->b->is_output,
				    .born = e->vol->next_epoch};
	return state_version_new(e->vol->state, v, &v->id);
}

/* The file now lives by V2, if the body is still what it shows. */
static int point_file_locked(struct edit *e, uint64_t version)
{
	struct state_file f;
	int error = state_file_get(e->vol->state, e->b->ino, &f);

	if (error || f.body != e->b->id || e->b->orphan)
		return error == -ENOENT ? 0 : error;
	f.live = version;
	return state_file_set(e->vol->state, &f);
}

static int rename_object(struct volume *vol, const char *from, uint64_t version)
{
	char name[OBJECT_NAME_MAX];

	object_name(version, name);
	return renameat(vol->objects_fd, from, vol->objects_fd, name) < 0 ? -errno : 0;
}

static int link_object(struct volume *vol, uint64_t from, uint64_t to)
{
	char old[OBJECT_NAME_MAX], new[OBJECT_NAME_MAX];

	object_name(from, old);
	object_name(to, new);
	return linkat(vol->objects_fd, old, vol->objects_fd, new, 0) < 0 ? -errno : 0;
}

/* The second name of the inode that V2 takes over, until V2 has its row. */
static int link_taken(struct volume *vol, uint64_t from, uint64_t to)
{
	char old[OBJECT_NAME_MAX], taken[OBJECT_TAKEN_MAX];

	object_name(from, old);
	object_taken_name(from, to, taken);
	return linkat(vol->objects_fd, old, vol->objects_fd, taken, 0) < 0 ? -errno : 0;
}

static void unlink_taken(struct volume *vol, uint64_t from, uint64_t to)
{
	char taken[OBJECT_TAKEN_MAX];

	object_taken_name(from, to, taken);
	unlinkat(vol->objects_fd, taken, 0);
}

/* The files of the versions, before the rows. */
static int place_files_locked(struct edit *e, uint64_t id)
{
	int error = 0;

	if (e->kind == EDIT_EMPTY) {
		cleanup_close int fd = object_open(e->vol, id, O_RDWR | O_CREAT | O_TRUNC);

		return fd < 0 ? fd : 0;
	}
	if (e->kind == EDIT_CLONE)
		return rename_object(e->vol, e->temporary, id);
	if (e->kind == EDIT_TAKEOVER)
		error = link_taken(e->vol, e->base.id, id);
	if (!error)
		error = link_object(e->vol, e->base.id, id);
	if (!error)
		FAULT_POINT("edit.linked");
	if (!error && e->kind == EDIT_TAKEOVER)
		error = rename_object(e->vol, e->temporary, e->base.id);
	if (!error)
		FAULT_POINT("edit.renamed");
	return error;
}

static int give_base_locked(struct edit *e)
{
	struct state_version base;
	int error = state_version_get(e->vol->state, e->base.id, &base);

	if (error)
		return error;
	base.local_bytes = 0;
	base.local_whole = false;
	return state_version_set(e->vol->state, &base);
}

/* A rollback of the rows: V1 gets its own file back. */
static void replace_files_locked(struct edit *e, uint64_t id)
{
	char name[OBJECT_NAME_MAX];

	object_name(id, name);
	if (e->kind == EDIT_TAKEOVER)
		rename_object(e->vol, name, e->base.id);
	if (e->kind == EDIT_TAKEOVER || e->kind == EDIT_GIVE)
		grant_move_locked(e->vol, id, e->base.id, e->b->id);
	object_remove(e->vol, id);
	if (e->kind == EDIT_TAKEOVER)
		unlink_taken(e->vol, e->base.id, id);
}

/* Before the rows say so: once they do, nothing may fail. */
static int open_files_locked(struct edit *e, uint64_t id)
{
	int fd = object_open(e->vol, id, O_RDONLY), error;

	if (fd < 0)
		return fd;
	error = body_set_backing(e->b, fd);
	return error ? error : body_open_write_locked(e->b);
}

static int rows_locked(struct edit *e, uint64_t *ret_id)
{
	struct state_version v = {0};
	int error = state_begin(e->vol->state);
	bool placed;

	if (error)
		return error;
	error = new_row_locked(e, &v);
	if (!error)
		error = kind_holds_locked(e, v.id);
	placed = !error;
	if (!error)
		error = place_files_locked(e, v.id);
	if (!error)
		error = open_files_locked(e, v.id);
	if (!error)
		error = point_file_locked(e, v.id);
	if (!error && e->kind == EDIT_GIVE)
		error = give_base_locked(e);
	error = state_end(e->vol->state, error);
	if (error) {
		if (placed) {
			body_unstage_locked(e->vol, e->b);
			replace_files_locked(e, v.id);
		}
		return error;
	}
	FAULT_POINT("edit.rows");
	if (e->kind == EDIT_TAKEOVER)
		unlink_taken(e->vol, e->base.id, v.id);
	*ret_id = v.id;
	return 0;
}

/* Until something is written the file's time is the old one, and then it is not. */
static void set_baseline(struct edit *e, const struct state_file *f)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(f->mtime_ns)};
	struct body *b = e->b;
	struct stat st;

	/* Who wants less truncates it next, when who reads V1 has gone over to its clone. */
	if (e->keep < e->base.size || futimens(b->write_fd, times) < 0 ||
	    fstat(b->write_fd, &st) < 0)
		return;
	b->base_size = (uint64_t)st.st_size;
	b->base_mtime_ns = stat_mtime(&st);
	b->base_ctime_ns = stat_ctime(&st);
	b->base_compares = clock_wall_ns() - f->mtime_ns > TICK_MAX;
}

static void switch_body_locked(struct edit *e, uint64_t id, struct content **ret_content)
{
	struct body *b = e->b;
	struct state_file f;
	bool known;

	b->version = id;
	b->base = e->base.id;
	b->killed = b->closed_well = false;
	b->kept_size = e->keep;
	atomic_store(&b->lowest, e->keep < e->base.size ? 0 : UINT64_MAX);
	b->passed = false;
	b->half = e->base.torn && e->keep;
	b->cut_size = e->cut ? e->base.size : UINT64_MAX;
	atomic_store(&b->is_followed, b->half || state_doubt_any(e->vol->state));
	b->journaled_ctime_ns = b->synced_ctime_ns = 0;
	body_note_locked(b);
	known = state_file_get(e->vol->state, b->ino, &f) == 0;
	/* Before the baseline: it is a change of the inode's time. */
	if (e->kind == EDIT_GIVE) {
		content_detach_locked(e->vol, e->base.id);
		object_remove(e->vol, e->base.id);
	}
	/* Without one whatever is closed counts as changed. */
	if (known)
		set_baseline(e, &f);
	*ret_content = steal_ptr(b->content);
}

static int apply_locked(struct edit *e, struct content **ret_content)
{
	uint64_t id;
	int error;

	/* Somebody opened V1 meanwhile (beside the body and fetch_base): it stays, so plan again. */
	if (e->kind == EDIT_GIVE &&
	    content_users_locked(e->vol, e->base.id) > (e->b->content ? 2 : 1))
		return -EAGAIN;
	error = rows_locked(e, &id);
	if (!error)
		switch_body_locked(e, id, ret_content);
	return error;
}

static int edit_once(struct edit *e, interrupted_fn interrupted, void *arg)
{
	cleanup_close int clone = -1;
	struct content *base = NULL, *old = NULL;
	int error = 0;

	if (e->kind != EDIT_EMPTY && e->base.size)
		error = fetch_base(e, interrupted, arg, &base);
	if (base)
		e->cut = is_cut(e);
	/* V1's file goes: that the remote has it must be known after a power loss. */
	if (!error && e->kind == EDIT_GIVE)
		error = state_sync(e->vol->state);
	if (!error && (e->kind == EDIT_CLONE || e->kind == EDIT_TAKEOVER)) {
		clone = make_clone(e, interrupted, arg);
		error = clone < 0 ? clone : 0;
	}
	if (!error) {
		SCOPED_LOCK(&e->vol->lock);
		error = apply_locked(e, &old);
	}
	if (!error && e->kind == EDIT_TAKEOVER)
		content_rebind(e->vol, e->base.id, steal_fd(&clone));
	/* After a power loss V1's name must not lead to the file that is changed now, and V2's must
	 * lead to its own. */
	if (!error && e->promised && e->kind != EDIT_EMPTY && fsync(e->vol->objects_fd) < 0)
		error = -errno;
	if (!error && e->kind == EDIT_GIVE && e->promised)
		error = state_sync(e->vol->state);
	if (error && clone >= 0)
		unlinkat(e->vol->objects_fd, e->temporary, 0);
	content_put(old);
	if (base)
		content_unpin(base);
	content_put(base);
	return error;
}

int edit_begin(struct volume *vol, struct body *b, uint64_t keep, interrupted_fn interrupted,
	       void *arg)
{
	struct edit e = {.vol = vol, .b = b};
	struct after after = {.vol = vol};
	int error;

	mutex_lock(&vol->lock);
	while (b->preparing) {
		if (interrupted && interrupted(arg)) {
			mutex_unlock(&vol->lock);
			return -EINTR;
		}
		cond_wait_until(&vol->changed, &vol->lock, clock_mono_ns() + WAIT_STEP_NS);
	}
	if (b->staged) {
		error = body_open_write_locked(b);
		mutex_unlock(&vol->lock);
		return error;
	}
	b->preparing = true;
	b->pins++;
	do {
		error = plan_locked(&e, keep);
		if (error)
			break;
		mutex_unlock(&vol->lock);
		error = edit_once(&e, interrupted, arg);
		mutex_lock(&vol->lock);
	} while (error == -EAGAIN);
	b->preparing = false;
	pthread_cond_broadcast(&vol->changed);
	body_unpin_locked(vol, b, &after);
	mutex_unlock(&vol->lock);
	after_run(&after);
	return error;
}

/* ---- truncate(2): an edit that has no handle ---- */

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
	b->opens++;
	b->same = false;
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
		return b->watched && !b->held && !b->pending && !b->preparing;
	if (!is_closed_well_locked(b))
		return false;
	*ret_error = fstat(b->fd, &st) < 0 ? -errno : body_journal_locked(vol, b, &st);
	body_set_closing_locked(vol, b, clock_mono_ns(), b->releasing);
	return false;
}

/* Nobody else ends the edit. */
static bool truncate_ends_locked(const struct body *b)
{
	return !b->writers && !b->held && b->staged && !b->discarded && !b->watched &&
	       !b->preparing && !b->pending;
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
	if (!error && body_is_held(b))
		body_finish_held_locked(vol, b, &after);
	if (truncate_ends_locked(b)) {
		event_truncated_locked(vol, b, change->pid);
		body_compare_locked(vol, b);
	}
	if (truncate_ends_locked(b))
		body_finish_locked(vol, b, &after);
	body_unpin_locked(vol, b, &after);
	mutex_unlock(&vol->lock);
	after_run(&after);
	return error;
}
