/* SPDX-License-Identifier: Apache-2.0 */
/* Handles: what an open file is, its close, and what the kernel may work on itself. Opening is in
 * handle_open.c, reading and writing in handle_io.c. */
#include "lib/live/bodies.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "lib/cache/evict.h"
#include "lib/cache/grant.h"
#include "lib/live/cramped.h"
#include "lib/live/events.h"
#include "lib/live/observer.h"
#include "lib/saves/event.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/process.h"

uint64_t handle_ino(const struct handle *h)
{
	return h->body->ino;
}

uint64_t handle_body(const struct handle *h)
{
	return h->body->id;
}

bool handle_is_blind(const struct handle *h)
{
	return h->blind;
}

bool handle_writes(const struct handle *h)
{
	return h->writes;
}

/* ---- the kernel's own way ---- */

bool handle_has_room_ahead(struct handle *h)
{
	return evictor_keeps_ahead(h->vol);
}

static void set_direct_locked(struct handle *h)
{
	h->direct = true;
	h->body->passed |= h->writes;
	if (h->writes)
		cramped_begins_locked(h->vol);
	body_note_locked(h->body);
}

/* Closed content is open in the daemon, too, as long as the body is: it is not evicted, and an edit finds it. */
static bool is_ready_locked(struct volume *vol, const struct body *b, bool writes)
{
	struct state_version v;

	if (b->preparing || (writes && !b->staged))
		return false;
	/* What is torn is to be written whole, which the kernel would not tell. */
	if (b->staged)
		return !b->half;
	return b->content && content_size(b->content) &&
	       !state_version_get(vol->state, b->version, &v) && v.local_whole && !v.torn;
}

static int grant_locked(struct handle *h, struct grant **ret_grant, int *ret_fd)
{
	struct volume *vol = h->vol;
	struct body *b = h->body;
	struct grant *grant;
	int fd, error;

	if (!is_ready_locked(vol, b, h->writes))
		return -EAGAIN;
	/* First: a descriptor of ours would look like somebody's mapping. */
	error = grant_take_locked(vol, b->version, b->id, &grant);
	if (error)
		return error == -EBUSY ? -EAGAIN : error;
	fd = b->staged ? io_reopen(b->fd, O_RDONLY) : object_open(vol, b->version, O_RDONLY);
	if (fd < 0) {
		grant_release_locked(grant);
		return fd;
	}
	set_direct_locked(h);
	*ret_grant = grant;
	*ret_fd = fd;
	return 0;
}

int handle_grant(struct handle *h, struct grant **ret_grant, int *ret_fd)
{
	struct content *c = NULL;
	int error = h->writes ? 0 : body_content(h->vol, h->body, &c);

	content_put(c);
	if (error)
		return error;
	/* A disk that was full before is no matter of this writer. */
	if (h->writes)
		cramped_look(h->vol);
	SCOPED_LOCK(&h->vol->lock);
	return grant_locked(h, ret_grant, ret_fd);
}

int handle_join_grant(struct handle *h, interrupted_fn interrupted, void *arg)
{
	struct volume *vol = h->vol;
	int error = 0;

	if (h->writes)
		error = edit_begin(vol, h->body, UINT64_MAX, interrupted, arg);
	if (error)
		return error;
	if (h->writes)
		cramped_look(vol);
	SCOPED_LOCK(&vol->lock);
	set_direct_locked(h);
	return 0;
}

int handle_grant_again(struct handle *h, struct grant **ret_grant)
{
	SCOPED_LOCK(&h->vol->lock);
	return grant_take_again_locked(h->vol, h->body->version, h->body->id, ret_grant);
}

/* ---- closing ---- */

bool body_is_synced(const struct body *b, const struct stat *st)
{
	return b->synced_ctime_ns && b->synced_ctime_ns == stat_ctime(st) &&
	       b->synced_size == (uint64_t)st->st_size;
}

int body_journal_locked(struct volume *vol, struct body *b, const struct stat *st)
{
	struct state_version v;
	int error;

	if (b->journaled_ctime_ns == stat_ctime(st) && b->journaled_size == (uint64_t)st->st_size)
		return 0;
	error = state_begin(vol->state);
	if (error)
		return error;
	error = state_version_get(vol->state, b->version, &v);
	if (!error) {
		v.flushed_size = (uint64_t)st->st_size;
		v.flushed_ctime_ns = stat_ctime(st);
		v.holes = stat_holes(st);
		v.torn = body_is_half_locked(vol, b, st);
		v.fsynced = body_is_synced(b, st);
		v.used_ns = clock_wall_ns();
		error = state_version_set(vol->state, &v);
	}
	error = state_end(vol->state, error);
	if (error)
		return error;
	b->journaled_size = v.flushed_size;
	b->journaled_ctime_ns = v.flushed_ctime_ns;
	return 0;
}

bool body_writers_closed_locked(const struct body *b)
{
	for (const struct handle *h = b->open_handles; h; h = h->next)
		if (h->writes && !h->closed)
			return false;
	return true;
}

bool body_awaits_release_locked(const struct body *b)
{
	for (const struct handle *h = b->open_handles; h; h = h->next)
		if (h->writes && h->awaited)
			return true;
	return false;
}

/*
 * What was fsynced while it was open must survive a power loss once it is closed, and not be undone
 * as the work of a killed writer: the close itself has to be on the disk. So has what was written to
 * a replacement since the fsync, as it counts as a whole or not at all.
 */
static int close_safely(struct handle *h)
{
	struct volume *vol = h->vol;
	struct body *b = h->body;
	bool safe, fragile;
	struct stat st;

	mutex_lock(&vol->lock);
	if (!b->staged || b->discarded || b->orphan || !b->synced_ctime_ns ||
	    fstat(b->fd, &st) < 0) {
		mutex_unlock(&vol->lock);
		return 0;
	}
	safe = b->synced_ctime_ns == stat_ctime(&st) && b->synced_size == (uint64_t)st.st_size;
	fragile = b->fragile;
	mutex_unlock(&vol->lock);
	if (safe)
		return state_sync(vol->state);
	return fragile ? handle_fsync(h, false) : 0;
}

/* The opener closes a descriptor: promises what is there by now. */
static int close_locked(struct handle *h)
{
	struct body *b = h->body;
	struct stat st;
	int error = 0;

	h->closed = true;
	if (b->staged && !b->discarded && !b->orphan)
		error = fstat(b->fd, &st) < 0 ? -errno : body_journal_locked(h->vol, b, &st);
	FAULT_POINT("flush.journaled");
	if (body_writers_closed_locked(b))
		body_set_closing_locked(h->vol, b, clock_mono_ns(), b->releasing);
	return error;
}

/* durability=remote: what was closed is committed before its release, as a copy, since another
 * descriptor may be left (the release then finds nothing new), and its epoch becomes durable. */
static int close_durably(struct handle *h, interrupted_fn interrupted, void *arg)
{
	struct body *b = h->body;
	uint64_t id = b->id;
	int64_t now, left;
	bool ready;
	int error;

	mutex_lock(&h->vol->lock);
	ready = b->staged && !b->orphan && body_writers_closed_locked(b);
	mutex_unlock(&h->vol->lock);
	if (!ready)
		return 0;
	/* What was there was waited for when it was closed. */
	if (body_is_same(h->vol, id))
		return 0;
	error = body_commit_copy(h->vol, id, interrupted, arg);
	if (error == -ENOENT)
		return 0;
	now = clock_mono_ns();
	left = atomic_load(&h->vol->durable_until_ns);
	if (left == INT64_MAX)
		left = -1;
	else
		left = left > now ? left - now : 0;
	if (!error)
		error = h->vol->observer->wait_durable(h->vol, left, interrupted, arg);
	/* Committed it is, or will be by its release; whoever set the time looks at what the remote has by then. A signal ends the wait, and must not
	 * make the save fail: batch systems send more than one. */
	return error == -ETIMEDOUT || (error == -EINTR && left >= 0) ? 0 : error;
}

/*
 * A shell's redirection: the file was opened, dup2 gave it its place, and the first descriptor is
 * closed, with nothing written. That is no close: after a crash the file must not be there as empty.
 * Where something was written, a look at all descriptors of the process is not worth its time.
 */
static bool another_is_left(struct handle *h)
{
	cleanup_buf struct buf path = {0};
	struct body *b = h->body;
	struct stat st;

	mutex_lock(&h->vol->lock);
	if (b->staged && fstat(b->fd, &st) == 0 && st.st_size == 0)
		volume_path_locked(h->vol, b->ino, &path);
	mutex_unlock(&h->vol->lock);
	return path.len && process_has_open(h->tgid, buf_str(&path), h->body->ino, true);
}

/* Who may map it for writing, and so change it after the close: how that process ends will be asked (contract 1.2.9). */
static void hold_closer(struct handle *h)
{
	if ((h->flags & O_ACCMODE) == O_RDWR && h->tgid && h->hold < 0)
		h->hold = process_hold(h->tgid);
}

static int flush_writer(struct handle *h, pid_t pid, interrupted_fn interrupted, void *arg)
{
	struct volume *vol = h->vol;
	bool known = h->tgid && pid, killed = false, refused, undone, spoilt;
	int error = 0;

	/* A forked child that closes what it inherited: no commit, and its death does not count. */
	if (known && process_of(pid) != h->tgid)
		return 0;
	killed = known && process_was_killed(pid);
	/* Once it is waited for, nobody knows that any more. */
	h->parent = killed ? process_parent(h->tgid) : 0;
	if (known && !killed && another_is_left(h))
		return 0;
	FAULT_POINT("flush.begin");
	if (!killed)
		hold_closer(h);
	if (h->direct)
		cramped_look(vol);
	mutex_lock(&vol->lock);
	body_finish_other_closes_locked(vol, h->body);
	handle_unhold_locked(h);
	h->ended = killed;
	h->awaited = true;
	/* What is not all there is not saved, however it is closed. */
	refused = h->body->refused_from < h->body->refused_to;
	/* Of a mapping's store that did not even begin an edit nobody else tells the program. */
	if (refused && !killed && !h->body->staged)
		error = h->body->refused_error;
	/* Whether all of it was written is not known, so whoever wrote it is told: it is as it was before. */
	undone = h->body->cramped && h->body->fragile && !body_is_output_locked(vol, h->body);
	if (undone && !killed && !refused)
		error = -ENOSPC;
	spoilt = killed || refused || undone;
	if (spoilt) {
		h->killed = true;
		h->closed = true;
		body_set_closing_locked(vol, h->body, clock_mono_ns(), h->body->releasing);
	} else {
		/* A write that was refused when another descriptor was closed may be made good by now. */
		h->killed = false;
		error = close_locked(h);
	}
	body_note_locked(h->body);
	mutex_unlock(&vol->lock);
	if (!error && !spoilt)
		error = close_safely(h);
	if (!error && !spoilt && clock_mono_ns() < atomic_load(&vol->durable_until_ns))
		error = close_durably(h, interrupted, arg);
	return error;
}

int handle_flush(struct handle *h, pid_t pid, interrupted_fn interrupted, void *arg)
{
	int64_t began_ns;
	int error;

	if (!h->writes)
		return 0;
	began_ns = clock_mono_ns();
	error = flush_writer(h, pid, interrupted, arg);
	histogram_add(&h->vol->counters.close, clock_mono_ns() - began_ns);
	return error;
}

void handle_writes_no_more_locked(struct handle *h)
{
	struct body *b = h->body;

	b->writers--;
	b->closer = h->tgid;
	b->closer_tid = h->tid;
	output_closed_locked(h);
	event_released_locked(h);
	b->closer_parent = h->parent;
	cleanup_close_fn(&b->closer_hold);
	b->closer_hold = steal_fd(&h->hold);
	/* Also what another process was refused, which had inherited the descriptor. */
	if (h->killed || b->refused_from < b->refused_to)
		b->killed = true;
	else if (!h->cancelled && handle_vouches_locked(h))
		b->closed_well = true;
}

static void unlink_handle_locked(struct handle *h)
{
	struct body *b = h->body;
	struct handle **p = &b->open_handles;
	struct member *m = h->writes ? body_member_locked(b, h->tgid, false) : NULL;

	while (*p != h)
		p = &(*p)->next;
	*p = h->next;
	b->handles--;
	if (m && m->handles)
		m->handles--;
	if (!h->writes)
		return;
	if (!h->held) {
		handle_writes_no_more_locked(h);
	} else {
		b->held--;
		b->killed = b->killed || b->refused_from < b->refused_to;
	}
	body_note_locked(b);
}

/* Drops our own write descriptor and tests whether somebody else's is left. Drops the lock. */
static bool no_mapping_left_locked(struct volume *vol, struct body *b)
{
	struct backing *backing = backing_ref(b->backing);
	bool quiet;

	if (b->write_fd >= 0)
		close(b->write_fd);
	b->write_fd = -1;
	mutex_unlock(&vol->lock);
	quiet = backing_is_quiet(backing->fd, true);
	backing_put(backing);
	mutex_lock(&vol->lock);
	return quiet;
}

/* The last writer closed. True where a copy must be committed because a mapping is left. */
static bool finish_locked(struct volume *vol, struct body *b, bool direct, struct after *after)
{
	if (b->held) {
		body_finish_held_locked(vol, b, after);
		return false;
	}
	if (direct && body_commits_locked(vol, b) && !no_mapping_left_locked(vol, b)) {
		if (b->writers || !b->staged || b->discarded)
			return false;
		body_watch_locked(vol, b, true);
		return body_commits_locked(vol, b);
	}
	if (!b->writers)
		body_compare_locked(vol, b);
	output_look_grown_locked(vol, b);
	body_look_cut_off_locked(vol, b);
	/* Without the lock a new writer may have come: the close is his. */
	if (!b->writers && b->staged && !b->discarded && !b->preparing)
		body_finish_locked(vol, b, after);
	return false;
}

/* All that was written was refused before an edit began: the file is as it was, what goes with it may not be. */
static void note_refused_locked(struct volume *vol, struct body *b)
{
	static const char why[] = "a write to it was refused";
	cleanup_buf struct buf path = {0};

	if (b->writers || b->staged || b->discarded || b->refused_from >= b->refused_to)
		return;
	volume_path_locked(vol, b->ino, &path);
	log_warn("%s: %s: %s: the file is as it was last closed; save it again", buf_str(&path),
		 why, strerror(-b->refused_error));
	if (!b->is_output && !b->orphan)
		vol->observer->doubt_locked(vol, b, true, why);
	event_undone_locked(vol, b, buf_error(&path) ? "" : buf_str(&path));
	b->refused_from = b->refused_to = 0;
	b->killed = b->closed_well = false;
}

/* A close of what was empty and is: no content, but perhaps a marker. Where something was written since, that is closed. */
static void note_emptied_locked(struct handle *h)
{
	uint64_t parent = 0;
	char name[256];

	if (!h->emptied || h->killed || h->body->staged)
		return;
	first_name_locked(h->vol, h->body->ino, name, &parent);
	if (name[0])
		h->vol->observer->note_locked(h->vol, ACTIVITY_EMPTIED, parent, NULL, name,
					      h->body->ino);
}

/* Nothing was written. */
static void note_unwritten_locked(struct volume *vol, struct body *b)
{
	struct state_file f = {0};

	state_file_get(vol->state, b->ino, &f);
	event_closed_locked(vol, b, f.size,
			    SAVE_IS_SAME | event_close_facts_locked(vol, b, f.size));
}

static void release_writer_locked(struct handle *h, bool direct, struct after *after)
{
	struct volume *vol = h->vol;
	struct body *b = h->body;
	bool copy = false;

	body_set_closing_locked(vol, b, b->closing_ns, b->releasing + 1);
	FAULT_POINT("release.begin");
	note_emptied_locked(h);
	note_refused_locked(vol, b);
	/* One of several that others have inherited goes: what they have in common is committed with the last. */
	if (!b->writers && b->staged && !b->discarded && !(h->held && b->held))
		copy = finish_locked(vol, b, direct, after);
	else if (!b->writers)
		note_unwritten_locked(vol, b);
	if (copy)
		body_commit_copy_locked(vol, b, NULL, NULL);
	body_set_closing_locked(vol, b, b->writers ? b->closing_ns : 0, b->releasing - 1);
	pthread_cond_broadcast(&vol->changed);
	FAULT_POINT("release.end");
}

void handle_release(struct handle *h, bool direct)
{
	struct volume *vol = h->vol;
	struct body *b = h->body;
	struct after after = {.vol = vol};
	uint64_t ino = b->ino;
	pid_t by = h->tgid;
	int64_t at_ns;
	bool wrote;

	mutex_lock(&vol->lock);
	wrote = h->writes && !h->held;
	at_ns = b->closing_ns ? b->closing_ns : clock_mono_ns();
	b->pins++;
	unlink_handle_locked(h);
	if (h->writes)
		release_writer_locked(h, direct, &after);
	body_unpin_locked(vol, b, &after);
	mutex_unlock(&vol->lock);
	after_run(&after);
	lent_free(h->lent);
	cleanup_close_fn(&h->hold);
	free(h);
	if (wrote)
		vol->observer->closed(vol, ino, by, at_ns);
}

static void cancel(struct handle *h, bool retry)
{
	mutex_lock(&h->vol->lock);
	h->cancelled = true;
	if (retry)
		stale_retry_again_locked(h);
	if (h->body->pending && h->body->handles == 1 && body_discard_locked(h->vol, h->body))
		log_warn("a replacement that nobody writes is left until the next mount");
	mutex_unlock(&h->vol->lock);
	handle_release(h, false);
}

void handle_cancel(struct handle *h)
{
	cancel(h, false);
}

void handle_retry(struct handle *h)
{
	cancel(h, true);
}

/* ---- records for the process that comes after this one (survivors.h) ---- */

static void note_handle_locked(const struct handle *h)
{
	const struct body *b = h->body;
	struct handle_record *r = h->record;

	r->version = b->version;
	r->opened_epoch = b->opened_epoch;
	r->opened_ns = b->opened_ns;
	r->killed = h->killed;
	r->closed = h->closed;
	r->held = h->held;
	r->direct = h->direct;
	r->body_killed = b->killed;
	r->body_closed_well = b->closed_well;
	r->body_orphan = b->orphan;
	r->body_tear = b->tear;
	r->body_cramped = b->cramped;
	r->body_refused_error = b->refused_error;
	r->body_refused_from = b->refused_from;
	r->body_refused_to = b->refused_to;
}

void body_note_locked(const struct body *b)
{
	for (const struct handle *h = b->open_handles; h; h = h->next)
		if (h->record)
			note_handle_locked(h);
}

void handle_keep_record(struct handle *h, struct handle_record *record)
{
	SCOPED_LOCK(&h->vol->lock);
	*record = (struct handle_record){
		.ino = h->body->ino,
		.body = h->body->id,
		.flags = h->flags,
		.tgid = h->tgid,
		.writes = h->writes,
	};
	h->record = record;
	note_handle_locked(h);
}
