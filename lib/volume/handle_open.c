/* SPDX-License-Identifier: Apache-2.0 */
/* Opening: which content a process gets to see and to write (contract 1.2 rules 1 and 2). */
#include "lib/volume/bodies.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/volume/sealer.h"

/* A writer finds room for this much, or the open says that there is none. */
#define ROOM_TO_WRITE (UINT64_C(1) << 20)

struct opening {
	struct volume *vol;
	uint64_t ino, node; /* node: the body that the kernel's node stands for */
	int flags;
	bool writes;
	pid_t tid, tgid; /* 0: unknown */
	struct state_file f;
	bool told; /* the thread was told ESTALE for this file: not again */
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
	}
	b->append_only = b->append_only && appends;
	b->writers++;
	body_set_closing_locked(h->vol, b, 0, b->releasing);
	if (!h->tgid)
		sealer_unknown_locked(h->vol);
}

static void attach_locked(struct handle *h, struct body *b)
{
	h->body = b;
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
				  .body = body_new_id(vol),
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
	return 0;
}

/* ---- which body ---- */

static int tell_stale_locked(struct opening *o)
{
	struct told told = {.ino = o->ino, .tid = o->tid, .tgid = o->tgid, .flags = o->flags};
	int error = told_add_locked(o->vol, &told);

	return error ? error : -ESTALE;
}

/* Replacements that this process was sent to, and then opened the old node all the same (a bind
 * mount, /proc/self/fd): nobody will come. */
static void forget_own_pending_locked(struct opening *o, struct after *after)
{
	struct body *b;

	while ((b = body_pending_for_locked(o->vol, o->ino, o->tid)) && !b->handles && !b->pins) {
		if (body_discard_locked(o->vol, b))
			return;
		body_drop_locked(o->vol, b, after);
	}
}

static bool replaces_locked(const struct opening *o, const struct body *b)
{
	struct state_version v;
	int error;

	if (!(o->flags & O_TRUNC) || !o->f.closed || !o->tgid ||
	    (b ? b->is_log : file_is_log_locked(o->vol, o->ino)))
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

/* The node of what the file shows to all. */
static int choose_current_locked(struct opening *o, struct body **ret_body, struct after *after)
{
	int result = body_get_locked(o->vol, &o->f, ret_body);

	if (result)
		return result;
	if (o->told) {
		forget_own_pending_locked(o, after);
		return 0;
	}
	result = redirect_locked(o, *ret_body, after);
	return result > 0 ? tell_stale_locked(o) : result;
}

/* The kernel's second walk follows the first at once; a lookup later than that is another's. */
#define WALK_MAX NS_PER_S

/* Whether this lookup is the last step of the second walk. The kernel may do it twice. */
static bool is_second_walk(struct told *t, uint64_t parent, const char *name)
{
	if (clock_mono_ns() - t->at_ns > WALK_MAX)
		return false;
	if (t->parent)
		return t->parent == parent && !strcmp(t->name, name);
	t->parent = parent;
	snprintf(t->name, sizeof(t->name), "%s", name);
	return true;
}

void body_looked_up_locked(struct volume *vol, pid_t tid, uint64_t parent, const char *name,
			   const struct state_file *f)
{
	struct told *t = vol->bodies->told ? told_find_locked(vol, tid) : NULL;
	struct after after = {.vol = vol};

	if (!t || (f && !S_ISREG(f->mode)))
		return;
	if (!is_second_walk(t, parent, name)) {
		told_take_locked(vol, t->ino, tid);
		return;
	}
	if (!f || f->ino == t->ino)
		return;
	/* A rename gave the name to another file: what was made for the one is made for that. */
	struct opening o = {.vol = vol,
			    .ino = f->ino,
			    .node = f->body,
			    .flags = t->flags,
			    .writes = flags_write(t->flags),
			    .tid = tid,
			    .tgid = t->tgid,
			    .f = *f};

	t->ino = f->ino;
	redirect_locked(&o, body_of_file_locked(vol, f), &after);
	if (after.dead) {
		mutex_unlock(&vol->lock);
		after_run(&after);
		mutex_lock(&vol->lock);
	}
}

static int choose_locked(struct opening *o, struct body **ret_body, struct after *after)
{
	struct volume *vol = o->vol;
	struct body *b = body_find_locked(vol, o->node);

	if (b && b->ino != o->ino)
		b = NULL;
	if (b && b->pending) {
		*ret_body = b;
		return 0;
	}
	if (o->node == o->f.body && (o->f.nlink || b))
		return choose_current_locked(o, ret_body, after);
	/* A node whose content was replaced: by name the new one is found. There is only one more
	 * try, so what it is to find must be there. */
	if (!o->told && o->tid && (o->f.nlink || !b)) {
		int result =
			o->f.nlink ? redirect_locked(o, body_of_file_locked(vol, &o->f), after) : 0;

		return result < 0 ? result : tell_stale_locked(o);
	}
	if (b) {
		*ret_body = b;
		return 0;
	}
	/* The last name went after the walk, and nobody has the content open: it is gone. */
	return o->f.nlink ? choose_current_locked(o, ret_body, after) : -ENOENT;
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

static int open_locked(struct opening *o, struct handle *h, struct after *after)
{
	struct body *b = NULL;
	int error;

	body_settle_locked(o->vol, o->ino);
	error = state_file_get(o->vol->state, o->ino, &o->f);
	if (error && error != -ENOENT)
		return error;
	o->told = o->tid && told_take_locked(o->vol, o->ino, o->tid);
	if (error) /* removed after the walk: by name something else is found, or nothing */
		return o->tid && !o->told ? tell_stale_locked(o) : error;
	if (!S_ISREG(o->f.mode))
		return S_ISDIR(o->f.mode) ? -EISDIR : -EINVAL;
	error = choose_locked(o, &b, after);
	if (!error) {
		attach_locked(h, b);
		note_use_locked(o->vol, b);
	} else if (b) {
		body_drop_locked(o->vol, b, after);
	}
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
	if (o.writes)
		error = volume_reserve(vol, ROOM_TO_WRITE, interrupted, arg);
	if (error)
		return error;
	h = handle_new(vol, flags, o.tgid);
	if (!h)
		return -ENOMEM;
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
	sealer_note_locked(vol, ACTIVITY_CREATE, parent, NULL, name, f->ino);
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
	error = volume_reserve(vol, ROOM_TO_WRITE, NULL, NULL);
	if (error)
		return error;
	h = handle_new(vol, flags & ~O_TRUNC, process_of(who->pid));
	if (!h)
		return -ENOMEM;
	h->writes =
		true; /* a file made by open(O_RDONLY | O_CREAT) is committed by its close too */
	mutex_lock(&vol->lock);
	error = create_locked(vol, parent, name, who, &f, h, &after);
	if (!error) {
		attr_of_file(&f, ret_attr);
		body_attr_locked(h->body, ret_attr);
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
				  .body = body_new_id(vol),
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
