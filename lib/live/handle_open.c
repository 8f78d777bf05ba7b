/* SPDX-License-Identifier: Apache-2.0 */
/* Opening: which content a process gets to see and to write (contract 1.2.1 and 1.2.2). */
#include "lib/live/bodies.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "lib/cache/evict.h"
#include "lib/live/live_internal.h"
#include "lib/live/events.h"
#include "lib/live/observer.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/process.h"

/* A writer finds room for this much, or the open says that there is none. */
#define ROOM_TO_WRITE (UINT64_C(1) << 20)

/* The kernel goes by a name that it has looked up for a second at most; a new name is a change of the file. */
#define NAME_KNOWN (2 * NS_PER_S)

struct opening {
	struct volume *vol;
	uint64_t ino, node; /* node: the body that the kernel's node stands for */
	int flags;
	bool writes;
	pid_t tid, tgid; /* 0: unknown */
	struct state_file f;
	bool told;	  /* the thread was told ESTALE for this file: not again */
	bool looked;	  /* and has looked the name up since: the node is what it was led to */
	struct body *led; /* what the file showed to all then; NULL: it has not */
	bool walks;	  /* it looks the name up now */
};

static bool flags_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
}

/* ---- handles ---- */

static struct handle *handle_new(struct volume *vol, int flags, pid_t tgid)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->vol = vol;
	h->flags = flags;
	h->writes = flags_write(flags);
	h->tgid = tgid;
	h->hold = -1;
	return h;
}

static void attach_writer_locked(struct handle *h, struct body *b)
{
	bool appends = (h->flags & O_APPEND) && !(h->flags & O_DIRECT);
	struct member *m = b->pending && h->tgid ? body_member_locked(b, h->tgid, true) : NULL;

	if (m)
		m->handles++;
	if (!b->writers) {
		b->opened_epoch = h->vol->next_epoch;
		b->opened_ns = clock_mono_ns();
		b->append_only = true;
		/* What an earlier save was refused is no matter of this one. */
		if (!b->staged) {
			b->cramped = false;
			b->refused_from = b->refused_to = 0;
		}
	}
	b->append_only = b->append_only && appends;
	b->writers++;
	b->opens++;
	body_set_closing_locked(h->vol, b, 0, b->releasing);
	output_opened_locked(h);
	event_opened_locked(h);
	if (h->tgid)
		h->vol->observer->writer_locked(h->vol, h->tgid);
	else
		h->vol->observer->unknown_locked(h->vol);
}

static void attach_locked(struct handle *h, struct body *b)
{
	h->body = b;
	handle_find_locked(h);
	h->next = b->open_handles;
	b->open_handles = h;
	b->handles++;
	if (h->writes)
		attach_writer_locked(h, b);
}

/* ---- versions to write ---- */

/* A staged version with its backing file and its body; `f` is the file's row, which the caller
 * stores. In a transaction: where that fails, `undo_stage_locked`. */
static int stage_locked(struct volume *vol, uint64_t ino, enum version_kind kind, bool fragile,
			struct body **ret_body)
{
	struct state_version v = {.ino = ino,
				  .body = object_new_id(vol),
				  .state = VERSION_STAGED,
				  .kind = kind,
				  .born = vol->next_epoch,
				  .fragile = fragile};
	int error = state_version_new(vol->state, &v, &v.id), fd;

	if (error)
		return error;
	fd = object_open(vol, v.id, O_RDWR | O_CREAT | O_EXCL);
	if (fd < 0)
		return fd;
	FAULT_POINT("open.object");
	error = body_new_staged_locked(vol, &v, fd, ret_body);
	if (error) {
		close(fd);
		object_remove(vol, v.id);
	}
	return error;
}

/* The transaction failed: rows are gone, so file and body go too. */
static void unstage_new_locked(struct volume *vol, struct body *b, struct after *after)
{
	object_remove(vol, b->version);
	b->discarded = true;
	body_drop_locked(vol, b, after);
}

static int pending_new_locked(struct opening *o, struct after *after)
{
	struct volume *vol = o->vol;
	struct body *b = NULL;
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = stage_locked(vol, o->ino, VERSION_REPLACE, true, &b);
	error = state_end(vol->state, error);
	if (!error && !body_member_locked(b, o->tgid, true))
		error = -ENOMEM;
	if (error) {
		if (b)
			unstage_new_locked(vol, b, after);
		return error;
	}
	FAULT_POINT("open.pending");
	body_set_pending_locked(vol, b, true);
	/*
	 * The process is to find it under each of them; the kernel may have looked one up when it was the only one. No later: who
	 * is notified of an entry has to wait for whoever waits for us in its directory, and a worker that is killed there cannot end
	 * before that one is refused (fs_refuse).
	 */
	if (o->f.nlink > 1 && clock_wall_ns() - o->f.ctime_ns < NAME_KNOWN)
		after_names_locked(after, o->ino);
	return 0;
}

/* ---- which body ---- */

static int tell_stale_locked(struct opening *o)
{
	struct stale_retry told = {
		.ino = o->ino, .tid = o->tid, .tgid = o->tgid, .flags = o->flags};
	int error = stale_retry_add_locked(o->vol, &told);

	return error ? error : -ESTALE;
}

/* Replacements that were made for this process and that it was led away from: nobody will come. */
static void abandon_pending_locked(struct volume *vol, uint64_t ino, pid_t tid, struct after *after)
{
	pid_t tgid = process_of(tid);
	struct body *b;

	/* Another thread of it may be on its way there. */
	if (stale_retry_other_locked(vol, ino, tid, tgid))
		return;
	while ((b = body_pending_for_locked(vol, ino, tid)) && !b->handles && !b->pins) {
		if (body_discard_locked(vol, b))
			return;
		body_drop_locked(vol, b, after);
	}
}

static bool replaces_locked(const struct opening *o, const struct body *b)
{
	struct state_version v;
	int error;

	/* A rename may have made it one since it was opened. */
	if (!(o->flags & O_TRUNC) || !o->tgid || (b && b->is_output) ||
	    file_is_log_locked(o->vol, o->ino))
		return false;
	/* When the open comes, an empty file may be another's full one, and one in the making closed. */
	if (o->walks)
		return true;
	if (!o->f.closed)
		return false;
	error = state_version_get(o->vol->state, o->f.closed, &v);
	/* Where it cannot be told there may be something to keep. */
	return error ? error != -ENOENT : v.size > 0;
}

/* Where this open must lead to another node: 1, and a lookup by the process finds that from now on.
 * `b` is what the file shows to all; NULL where that is not open. */
static int redirect_locked(struct opening *o, const struct body *b, struct after *after)
{
	struct body *pending = body_pending_locked(o->vol, o->ino);
	int error;

	/* Without a name nobody walks to a replacement: who comes by a link in /proc truncates it in place. */
	if (!o->f.nlink)
		return !o->told && replaces_locked(o, b);
	if (pending && body_pending_for_locked(o->vol, o->ino, o->tid))
		return 1;
	if (!o->writes || !o->tgid)
		return 0;
	if (replaces_locked(o, b)) {
		error = pending_new_locked(o, after);
		return error ? error : 1;
	}
	if (pending && pending->writers && !(o->flags & O_TRUNC))
		return body_member_locked(pending, o->tgid, true) ? 1 : -ENOMEM;
	return 0;
}

/* The first open: the kernel looks the name up again, and what it is to find is there by then. */
static int send_on_locked(struct opening *o, struct after *after)
{
	int result = redirect_locked(o, body_of_file_locked(o->vol, &o->f), after);

	return result < 0 ? result : tell_stale_locked(o);
}

/* Nobody has the content of the node open, so that the node may stand for other content from now on. */
static bool is_alone(const struct body *b)
{
	return !b || !b->handles;
}

/*
 * The second open came to the node of what the file shows to all, though there may be a replacement for the process: it did
 * not walk (a file that is mounted by itself, a link in /proc/self/fd). The node is given the replacement where
 * nobody has it open; else, by such a link alone, O_TRUNC truncates in place.
 */
static int choose_again_locked(struct opening *o, struct body **body, struct after *after)
{
	struct body *pending = body_pending_for_locked(o->vol, o->ino, o->tid);
	bool alone = is_alone(body_find_locked(o->vol, o->node));
	int error;

	/* With O_TRUNC alone: else the kernel would go by the size that it knows of the node. */
	if (!pending || !(o->flags & O_TRUNC) || !alone) {
		abandon_pending_locked(o->vol, o->ino, o->tid, after);
		if (!o->looked || !replaces_locked(o, *body))
			return 0;
		/* It has lost its name since: nobody sees what it holds. */
		if (alone && !o->f.nlink)
			return 0;
		/* The replacement that it was led to is the file's content by now. */
		error = alone ? pending_new_locked(o, after) : -EBUSY;
		if (error)
			return error;
		pending = body_pending_locked(o->vol, o->ino);
	}
	body_drop_locked(o->vol, *body, after);
	*body = pending;
	return 0;
}

/* The node of what the file shows to all. */
static int choose_current_locked(struct opening *o, struct body **ret_body, struct after *after)
{
	int result = body_get_locked(o->vol, &o->f, ret_body);

	if (result)
		return result;
	if (o->told)
		return choose_again_locked(o, ret_body, after);
	result = redirect_locked(o, *ret_body, after);
	return result > 0 ? tell_stale_locked(o) : result;
}

/* A replacement's node: of those that write it. Others have it by a node that was theirs (choose_again_locked). */
static int choose_pending_locked(struct opening *o, struct body *b, struct body **ret_body,
				 struct after *after)
{
	pid_t tgid = o->told || !o->tid || !o->f.nlink ? 0 : process_of(o->tid);

	if (tgid && !body_member_locked(b, tgid, false))
		return send_on_locked(o, after);
	/* Made at the second walk, of a file that is in the making still: there is nothing to replace. */
	if (!o->f.closed && o->f.nlink && is_alone(b)) {
		abandon_pending_locked(o->vol, o->ino, o->tid, after);
		return body_get_locked(o->vol, &o->f, ret_body);
	}
	*ret_body = b;
	return 0;
}

/*
 * The second walk led to a replacement of another process, which joined it; that has ended since, and the file has lost its name. Nobody
 * has the node open, so that it may stand for other content.
 */
static int choose_last_locked(struct opening *o, struct body **ret_body, struct after *after)
{
	int error;

	if (!o->led || o->led->ino != o->ino)
		return -ENOENT;
	*ret_body = o->led;
	if (!o->led->discarded && (!(o->flags & O_TRUNC) || is_alone(o->led)))
		return 0;
	/* Others read that, or it was made for a try of this open. */
	*ret_body = NULL;
	error = pending_new_locked(o, after);
	if (error)
		return error;
	*ret_body = body_pending_locked(o->vol, o->ino);
	(*ret_body)->orphan = true;
	return 0;
}

/*
 * The node of content that was replaced since the kernel looked it up; `b` is that content, which is kept as long
 * as the kernel knows the node. Who has just been led here by the name opened it before it was replaced. Who came
 * without a name gets what the file shows now, where the node may change; else the old content, as that of a file without a
 * name: what is written there is seen by those who have it open, and goes with them.
 */
static int choose_stale_locked(struct opening *o, struct body *b, struct body **ret_body,
			       struct after *after)
{
	*ret_body = b;
	if (o->looked && (o->flags & O_TRUNC) && !is_alone(b))
		return -EBUSY;
	if (!o->f.nlink)
		return b ? 0 : choose_last_locked(o, ret_body, after);
	if (b && o->looked && !(o->flags & O_TRUNC))
		return 0;
	if (is_alone(b))
		return choose_current_locked(o, ret_body, after);
	/* By the name the process would find what was made for this open. */
	abandon_pending_locked(o->vol, o->ino, o->tid, after);
	return 0;
}

static int choose_locked(struct opening *o, struct body **ret_body, struct after *after)
{
	struct body *b = body_find_locked(o->vol, o->node);

	if (b && b->ino != o->ino)
		b = NULL;
	if (b && b->pending)
		return choose_pending_locked(o, b, ret_body, after);
	if (o->node == o->f.body && (o->f.nlink || b))
		return choose_current_locked(o, ret_body, after);
	if (!o->told && o->tid)
		return send_on_locked(o, after);
	return choose_stale_locked(o, b, ret_body, after);
}

/* How long O_TRUNC that cannot be sent on any more waits for those who read what it would truncate. */
#define BUSY_WAIT NS_PER_S
#define BUSY_STEP (10 * NS_PER_MS)

/*
 * A thread that was led to a replacement which another of its process wrote and closed meanwhile finds it as the file's content, and
 * others may read that. Drops the lock while it waits.
 */
static int choose_patiently_locked(struct opening *o, struct body **ret_body, struct after *after)
{
	int64_t now = clock_mono_ns(), end = now + BUSY_WAIT;
	int error = choose_locked(o, ret_body, after);

	for (; error == -EBUSY && now < end; now = clock_mono_ns()) {
		if (*ret_body)
			body_drop_locked(o->vol, *ret_body, after);
		*ret_body = NULL;
		cond_wait_until(&o->vol->changed, &o->vol->lock, now + BUSY_STEP);
		error = state_file_get(o->vol->state, o->ino, &o->f);
		if (!error)
			error = choose_locked(o, ret_body, after);
	}
	return error;
}

/* ---- the second walk ---- */

/* A name that was missing may be there again when the kernel, which does not believe it, asks once more at once. */
#define MISSED_MAX NS_PER_S

/* Whether this lookup is the last step of the second walk. The kernel may do it twice. */
static bool is_second_walk(struct stale_retry *t, uint64_t parent, const char *name)
{
	int64_t now = clock_mono_ns();

	if (t->missed_ns && now - t->missed_ns > MISSED_MAX)
		return false;
	if (t->parent)
		return t->parent == parent && !strcmp(t->name, name);
	t->parent = parent;
	snprintf(t->name, sizeof(t->name), "%s", name);
	return true;
}

/* What the open that follows is to find: also where a rename gave the name to another file, or the file was empty. */
static void prepare_open_locked(struct volume *vol, struct stale_retry *t,
				const struct state_file *f, struct after *after)
{
	struct opening o = {.vol = vol,
			    .ino = f->ino,
			    .node = f->body,
			    .flags = t->flags,
			    .writes = flags_write(t->flags),
			    .tid = t->tid,
			    .tgid = t->tgid,
			    .f = *f,
			    .walks = true};
	uint64_t before = t->ino;

	t->ino = f->ino;
	stale_retry_lead_locked(vol, t, f, after);
	if (before != f->ino)
		abandon_pending_locked(vol, before, t->tid, after);
	redirect_locked(&o, body_of_file_locked(vol, f), after);
}

bool body_looked_up_locked(struct volume *vol, pid_t tid, uint64_t parent, const char *name,
			   const struct state_file *f)
{
	struct stale_retry *t = vol->bodies->told ? stale_retry_find_locked(vol, tid) : NULL;
	struct after after = {.vol = vol};

	if (!t || (f && !S_ISREG(f->mode)))
		return false;
	if (!is_second_walk(t, parent, name)) {
		stale_retry_forget_locked(vol, tid, &after);
	} else {
		t->missed_ns = f ? 0 : clock_mono_ns();
		if (f)
			prepare_open_locked(vol, t, f, &after);
	}
	if (!after.dead && !after.entries)
		return false;
	mutex_unlock(&vol->lock);
	after_run(&after);
	mutex_lock(&vol->lock);
	return true;
}

/* ---- open ---- */

/* O_TRUNC where nothing is replaced. Of empty content it changes the times only. */
static int truncate_opened(struct handle *h)
{
	struct volume *vol = h->vol;
	struct body *b = h->body;
	struct state_version v;
	struct state_file f;
	int error;

	mutex_lock(&vol->lock);
	if (!b->staged && !b->preparing && !state_version_get(vol->state, b->version, &v) &&
	    !v.size) {
		error = state_file_get(vol->state, b->ino, &f);
		f.mtime_ns = f.ctime_ns = clock_wall_ns();
		if (!error)
			error = state_file_set(vol->state, &f);
		if (!error) {
			h->emptied = true;
			vol->observer->note_locked(vol, ACTIVITY_ATTR, 0, NULL, NULL, b->ino);
		}
		mutex_unlock(&vol->lock);
		return error;
	}
	mutex_unlock(&vol->lock);
	return handle_truncate(h, 0, NULL, NULL);
}

/* An open is a use, though the kernel may have the bytes yet and read none: the evictor goes by it. */
static void note_use_locked(struct volume *vol, const struct body *b)
{
	struct state_version v;

	if (b->staged || b->content || state_version_get(vol->state, b->version, &v) ||
	    v.state != VERSION_DURABLE || !v.local_bytes)
		return;
	v.used_ns = clock_wall_ns();
	state_version_set(vol->state, &v);
}

static int open_file_locked(struct opening *o, struct handle *h, struct after *after)
{
	struct body *b = NULL;
	int error;

	body_finish_closes_locked(o->vol, o->ino);
	if (o->flags & O_TRUNC)
		o->vol->observer->before_replace_locked(o->vol, o->ino);
	if (o->flags & O_TRUNC)
		event_before_replaced_locked(o->vol, o->ino);
	error = state_file_get(o->vol->state, o->ino, &o->f);
	if (error && error != -ENOENT)
		return error;
	o->told = o->tid && stale_retry_take_locked(o->vol, o->ino, o->tid, &o->looked, after);
	if (error) /* removed after the walk: by name something else is found, or nothing */
		return o->tid && !o->told ? tell_stale_locked(o) : error;
	if (!S_ISREG(o->f.mode))
		return S_ISDIR(o->f.mode) ? -EISDIR : -EINVAL;
	error = choose_patiently_locked(o, &b, after);
	if (!error) {
		h->told = o->told;
		h->looked = o->looked;
		h->blind = b->id != o->node && (o->flags & (O_APPEND | O_TRUNC)) == O_APPEND;
		attach_locked(h, b);
		note_use_locked(o->vol, b);
		/* The names led to the node that stands for this body now; others are to find the one that all see. */
		if (b->id != o->node)
			after_names_locked(after, o->ino);
	} else if (b) {
		body_drop_locked(o->vol, b, after);
	}
	/* The process would find by the name what was made for this open alone. */
	if (error && o->told)
		abandon_pending_locked(o->vol, o->ino, o->tid, after);
	return error;
}

static int open_locked(struct opening *o, struct handle *h, struct after *after)
{
	const struct stale_retry *t = o->tid ? stale_retry_find_locked(o->vol, o->tid) : NULL;
	int error;

	o->led = t ? t->led : NULL;
	if (o->led)
		o->led->pins++;
	error = open_file_locked(o, h, after);
	if (o->led)
		body_unpin_locked(o->vol, o->led, after);
	return error;
}

static bool is_told(const struct opening *o)
{
	const struct stale_retry *t;
	SCOPED_LOCK(&o->vol->lock);

	t = o->tid ? stale_retry_find_locked(o->vol, o->tid) : NULL;
	return t && t->ino == o->ino;
}

/* Who appends to a file adds nothing to a save. */
static bool replaces(int flags)
{
	return flags_write(flags) && !(flags & O_APPEND);
}

static int make_room(const struct opening *o, interrupted_fn interrupted, void *arg)
{
	int error = volume_reserve(o->vol, ROOM_TO_WRITE, interrupted, arg);
	uint64_t parent;
	char name[256];

	if (error != -ENOSPC || !replaces(o->flags))
		return error;
	mutex_lock(&o->vol->lock);
	first_name_locked(o->vol, o->ino, name, &parent);
	if (name[0])
		o->vol->observer->refused_locked(o->vol, parent, name, o->tgid);
	mutex_unlock(&o->vol->lock);
	return error;
}

int handle_open(struct volume *vol, uint64_t ino, uint64_t body, int flags,
		const struct live_caller *who, interrupted_fn interrupted, void *arg,
		struct handle **ret_handle)
{
	struct opening o = {.vol = vol, .ino = ino, .node = body, .flags = flags};
	struct after after = {.vol = vol};
	struct handle *h;
	int error = 0;

	o.writes = flags_write(flags);
	if (o.writes && vol->options.read_only)
		return -EROFS;
	o.tid = who->pid;
	if (o.writes)
		o.tgid = process_of(who->pid);
	/* The second open of a thread that was told ESTALE has waited, and must not come too late. */
	if (o.writes && !is_told(&o))
		error = make_room(&o, interrupted, arg);
	if (error)
		return error;
	h = handle_new(vol, flags, o.tgid);
	if (!h)
		return -ENOMEM;
	h->tid = o.tid;
	mutex_lock(&vol->lock);
	error = open_locked(&o, h, &after);
	mutex_unlock(&vol->lock);
	after_run(&after);
	FAULT_POINT("open.chosen");
	if (error) {
		free(h);
		return error;
	}
	if (flags & O_TRUNC)
		error = truncate_opened(h);
	if (error) {
		handle_release(h, false);
		return error;
	}
	*ret_handle = h;
	return 0;
}

/* ---- create ---- */

int handle_await_room(struct volume *vol, interrupted_fn interrupted, void *arg)
{
	if (vol->options.read_only)
		return 0; /* what follows says so */
	return volume_reserve(vol, ROOM_TO_WRITE, interrupted, arg);
}

void handle_refused(struct volume *vol, uint64_t parent, const char *name, int flags,
		    const struct live_caller *who)
{
	SCOPED_LOCK(&vol->lock);
	if (replaces(flags))
		vol->observer->refused_locked(vol, parent, name, process_of(who->pid));
}

static bool starts_fragile(int flags)
{
	return (flags & O_ACCMODE) == O_WRONLY && !(flags & O_APPEND);
}

static int create_rows_locked(struct volume *vol, uint64_t parent, const char *name, int flags,
			      const struct live_caller *who, struct state_file *f,
			      struct body **ret_body)
{
	int error = live_add_locked(vol, parent, name, who, f);

	if (error)
		return error;
	error = stage_locked(vol, f->ino, VERSION_NEW, starts_fragile(flags), ret_body);
	if (error)
		return error;
	f->live = (*ret_body)->version;
	f->body = (*ret_body)->id;
	return state_file_set(vol->state, f);
}

static int create_locked(struct volume *vol, uint64_t parent, const char *name,
			 const struct live_caller *who, struct state_file *f, struct handle *h,
			 struct after *after)
{
	struct body *b = NULL;
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = create_rows_locked(vol, parent, name, h->flags, who, f, &b);
	error = state_end(vol->state, error);
	if (error) {
		if (b)
			unstage_new_locked(vol, b, after);
		return error;
	}
	FAULT_POINT("create.rows");
	attach_locked(h, b);
	h->found_size = -1; /* it made the file */
	vol->observer->note_locked(vol, ACTIVITY_CREATE, parent, NULL, name, f->ino);
	return 0;
}

static void attr_of_file(const struct state_file *f, struct live_attr *attr)
{
	*attr = (struct live_attr){.ino = f->ino,
				   .body = f->body,
				   .mode = f->mode,
				   .uid = f->uid,
				   .gid = f->gid,
				   .rdev = f->rdev,
				   .nlink = f->nlink,
				   .size = f->size,
				   .mtime_ns = f->mtime_ns,
				   .ctime_ns = f->ctime_ns,
				   .atime_ns = f->atime_ns};
}

/* The name had gone at the second walk: the thread makes a new file. */
static void end_told_locked(struct volume *vol, pid_t tid, struct after *after)
{
	const struct stale_retry *t;

	while (tid && (t = stale_retry_find_locked(vol, tid))) {
		abandon_pending_locked(vol, t->ino, tid, after);
		stale_retry_forget_locked(vol, tid, after);
	}
}

int handle_create(struct volume *vol, uint64_t parent, const char *name, mode_t mode, int flags,
		  const struct live_caller *who, struct live_attr *ret_attr,
		  struct handle **ret_handle)
{
	struct state_file f = {.mode = S_IFREG | (mode & 07777)};
	struct after after = {.vol = vol};
	struct handle *h;
	int error;

	if (vol->options.read_only)
		return -EROFS;
	h = handle_new(vol, flags & ~O_TRUNC, process_of(who->pid));
	if (!h)
		return -ENOMEM;
	h->tid = who->pid;
	h->writes =
		true; /* a file made by open(O_RDONLY | O_CREAT) is committed by its close too */
	mutex_lock(&vol->lock);
	end_told_locked(vol, who->pid, &after);
	vol->observer->before_name_locked(vol, parent, name, 0);
	event_before_created_locked(vol, parent, name);
	error = create_locked(vol, parent, name, who, &f, h, &after);
	if (!error) {
		attr_of_file(&f, ret_attr);
		body_attr_locked(h->body, ret_attr);
		ret_attr->pending = h->body->fragile || vol->observer->may_remove_locked(vol, &f);
	}
	mutex_unlock(&vol->lock);
	after_run(&after);
	if (error) {
		free(h);
		return error;
	}
	*ret_handle = h;
	return 0;
}

int body_empty_file_locked(struct volume *vol, struct state_file *f)
{
	struct state_version v = {.ino = f->ino,
				  .body = object_new_id(vol),
				  .state = VERSION_CLOSED,
				  .kind = VERSION_NEW,
				  .born = vol->next_epoch,
				  .local_whole = true};
	int error = state_version_new(vol->state, &v, &v.id);

	if (error)
		return error;
	f->live = f->closed = v.id;
	f->body = v.body;
	f->size = 0;
	return 0;
}
