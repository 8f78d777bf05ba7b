/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a crash: what was open for writing is committed, undone or let go (contract 1.2.4), as
 * if its writers had been killed; what a close had promised is kept. Backing files without a row are
 * removed. Runs at volume_open, before any thread. What is still open, because a supervised mount goes on
 * in this process, is left alone (survivors.h).
 */
#include "lib/volume/recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "lib/cache/grant.h"
#include "lib/live/live_internal.h"
#include "lib/util/array.h"
#include "lib/util/faultpoint.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* ---- lists ---- */

void recovery_free(struct recovery *r)
{
	free(r->staged.v);
	free(r->closed.v);
	free(r->objects.id);
	free(r->torn);
}

static int versions_add(struct version_list *l, const struct state_version *v)
{
	if (array_reserve((void **)&l->v, &l->cap, l->count, sizeof(*l->v)))
		return -ENOMEM;
	l->v[l->count++] = *v;
	return 0;
}

static int collect_unsafe(void *arg, const struct state_version *v)
{
	struct recovery *r = arg;

	return versions_add(v->state == VERSION_STAGED ? &r->staged : &r->closed, v);
}

static int by_id(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

bool recovery_has_object(const struct recovery *r, uint64_t id)
{
	return r->objects.count &&
	       bsearch(&id, r->objects.id, r->objects.count, sizeof(id), by_id) != NULL;
}

static int objects_add(struct recovery *r, uint64_t id)
{
	if (array_reserve((void **)&r->objects.id, &r->objects.cap, r->objects.count,
			  sizeof(*r->objects.id)))
		return -ENOMEM;
	r->objects.id[r->objects.count++] = id;
	return 0;
}

/* ---- objects/ ---- */

/* Whether a file in objects/ is one that a row speaks of: 1 or 0. An error is neither: what is not known is removed. */
static int object_is_known(struct volume *vol, const char *name, uint64_t *ret_id)
{
	struct state_version v;
	char again[OBJECT_NAME_MAX];
	char *end;
	uint64_t id = strtoull(name, &end, 16);
	int error;

	object_name(id, again);
	if (*end || strcmp(again, name) != 0)
		return 0;
	*ret_id = id;
	error = state_version_get(vol->state, id, &v);
	if (error)
		return error == -ENOENT ? 0 : error;
	/* An edit took the file over and did not come to removing the old name. */
	return v.state != VERSION_DURABLE || v.local_bytes || !v.size;
}

static bool has_row(struct volume *vol, uint64_t version)
{
	return state_version_exists(vol->state, version);
}

/*
 * An edit was cut off while it took the inode of a version over (edit.c): the version gets it back, as the kernel may have it for
 * somebody. After a reboot nobody has it, and it may have been changed since: the rows are not the last ones.
 */
static int give_back_taken(struct volume *vol, const struct recovery *r)
{
	cleanup_closedir DIR *dir = NULL;
	char to[OBJECT_NAME_MAX];
	uint64_t from, taker;
	const char *name;
	int got, error;

	if (r->rebooted || vol->options.read_only)
		return 0;
	error = io_opendir(vol->objects_fd, &dir);
	if (error)
		return error;
	while ((got = io_readdir(dir, &name)) > 0) {
		if (!object_is_taken_name(name, &from, &taker) || has_row(vol, taker) ||
		    !has_row(vol, from))
			continue;
		object_name(from, to);
		if (renameat(vol->objects_fd, name, vol->objects_fd, to) < 0)
			return -errno;
	}
	return got;
}

static int scan_objects(struct volume *vol, struct recovery *r)
{
	cleanup_closedir DIR *dir = NULL;
	const char *name;
	int got, error = io_opendir(vol->objects_fd, &dir);

	if (error)
		return error;
	while (!error && (got = io_readdir(dir, &name)) != 0) {
		uint64_t id = 0;
		int known;

		/* What was not listed would count as gone: closed content as torn, for good. */
		if (got < 0)
			return got;
		known = object_is_known(vol, name, &id);
		if (known)
			error = known < 0 ? known : objects_add(r, id);
		else if (!vol->options.read_only && unlinkat(vol->objects_fd, name, 0) < 0)
			log_warn("removing objects/%s: %s", name, strerror(errno));
	}
	if (r->objects.count)
		qsort(r->objects.id, r->objects.count, sizeof(r->objects.id[0]), by_id);
	return error;
}

/* A cached copy that is gone is fetched again when it is read. */
static int find_lost_copy(void *arg, const struct state_version *v)
{
	struct recovery *r = arg;

	return recovery_has_object(r, v->id) ? 0 : versions_add(&r->lost, v);
}

static int forget_lost_copies_locked(struct volume *vol, struct recovery *r)
{
	int error = state_version_each_evictable(vol->state, find_lost_copy, r);

	for (size_t i = 0; !error && i < r->lost.count; i++) {
		struct state_version *v = &r->lost.v[i];

		v->local_bytes = 0;
		v->local_whole = false;
		error = state_version_set(vol->state, v);
	}
	free(steal_ptr(r->lost.v));
	return error;
}

/* ---- what was open ---- */

int recovery_forget_staged_locked(struct volume *vol, const struct state_version *v)
{
	struct after after = {.vol = vol};
	struct state_file f;
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = state_version_remove(vol->state, v->id);
	if (!error)
		error = state_file_get(vol->state, v->ino, &f);
	if (!error && f.live == v->id) {
		f.live = f.closed;
		if (f.closed)
			error = state_file_set(vol->state, &f);
		else
			error = file_unname_locked(vol, &f, &after);
		if (!error && !f.closed)
			error = body_file_unlinked_locked(vol, &f);
	}
	error = state_end(vol->state, error == -ENOENT ? 0 : error);
	after_run(&after);
	if (!error)
		object_remove(vol, v->id);
	return error;
}

/*
 * Size and time may be on the disk before what was written: after a power loss blocks that are missing tell (an ftruncate just before it), or
 * that are there and were never written (ext4 says that they were one transaction after it has taken them).
 */
static bool lost_blocks(int fd, const struct state_version *v, const struct stat *st)
{
	return !v->fsynced &&
	       (stat_holes(st) > v->holes || (!v->holes && recovery_finds_hole(fd, st)));
}

/* What the last close promised is there. */
static bool close_is_kept(const struct recovery *r, const struct state_version *v, int fd,
			  const struct stat *st)
{
	return v->flushed_ctime_ns && v->flushed_ctime_ns == stat_ctime(st) &&
	       v->flushed_size == (uint64_t)st->st_size && !(r->rebooted && lost_blocks(fd, v, st));
}

/*
 * A writable mapping outlived the process before: as at a release that finds one (handle.c). What is there now is committed as
 * a copy, and the deferred-work thread commits the file itself when the mapping has ended. Drops the lock.
 */
static int watch_staged_locked(struct volume *vol, struct body *b)
{
	int error;

	body_watch_locked(vol, b, true);
	mutex_unlock(&vol->lock);
	error = body_commit_copy(vol, b->id, NULL, NULL);
	mutex_lock(&vol->lock);
	if (error)
		log_error("inode %" PRIu64 ": a file with a mapping left is committed later: %s",
			  b->ino, strerror(-error));
	b->uncommitted = error != 0;
	return 0;
}

/* As at the last release of a killed writer, or of one that closed. */
static int finish_locked(struct volume *vol, struct body *b, struct after *after)
{
	if (body_commits_locked(vol, b) && body_is_mapped_locked(b))
		return watch_staged_locked(vol, b);
	body_finish_locked(vol, b, after);
	return b->watched ? -EIO : 0;
}

static int finish_staged_locked(struct volume *vol, struct recovery *r,
				const struct state_version *v, int fd, bool closed)
{
	struct after after = {.vol = vol};
	struct body *b = NULL;
	int error = body_new_staged_locked(vol, v, fd, &b);

	if (error) {
		close(fd);
		return error;
	}
	body_set_pending_locked(vol, b, v->kind == VERSION_REPLACE);
	/* After a close only a mapping can have changed it. */
	closed = closed || (v->flushed_ctime_ns && body_is_mapped_locked(b));
	b->killed = !closed;
	b->closed_well = closed;
	output_look_grown_locked(vol, b);
	if (!closed && !b->is_output)
		r->killed = true;
	FAULT_POINT("recover.begin");
	error = finish_locked(vol, b, &after);
	body_drop_locked(vol, b, &after);
	mutex_unlock(&vol->lock);
	after_run(&after);
	mutex_lock(&vol->lock);
	FAULT_POINT("recover.end");
	return error;
}

static int recover_staged_locked(struct volume *vol, struct recovery *r,
				 const struct state_version *v)
{
	struct state_file f;
	struct stat st;
	int fd, error;

	/* Still open: its handles came back. */
	if (body_find_locked(vol, v->body))
		return 0;
	fd = object_open(vol, v->id, O_RDWR);
	error = state_file_get(vol->state, v->ino, &f);
	if (error && error != -ENOENT) {
		if (fd >= 0)
			close(fd);
		return error;
	}
	if (fd < 0)
		log_warn("inode %" PRIu64 ": objects/%016" PRIx64
			 ": %s: the file is as it was last "
			 "closed",
			 v->ino, v->id, strerror(-fd));
	/* An edit of content that is no longer the file's had nowhere to go. */
	if (error || fd < 0 || !f.nlink || (v->kind != VERSION_REPLACE && f.live != v->id) ||
	    fstat(fd, &st) < 0) {
		if (fd >= 0)
			close(fd);
		return recovery_forget_staged_locked(vol, v);
	}
	return finish_staged_locked(vol, r, v, fd, close_is_kept(r, v, fd, &st));
}

/* The last close wins: earlier ones come first. Who closed last need not be who wrote last, so the files' times do not tell. */
static int by_close(const void *a, const void *b)
{
	const struct state_version *x = a, *y = b;

	if (!x->flushed_ctime_ns != !y->flushed_ctime_ns)
		return x->flushed_ctime_ns ? 1 : -1;
	if (x->used_ns != y->used_ns)
		return x->used_ns < y->used_ns ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static int recover_all_staged_locked(struct volume *vol, struct recovery *r)
{
	int error = 0;

	if (r->staged.count)
		qsort(r->staged.v, r->staged.count, sizeof(r->staged.v[0]), by_close);
	for (size_t i = 0; !error && i < r->staged.count; i++)
		error = recover_staged_locked(vol, r, &r->staged.v[i]);
	return error;
}

/* ---- files that waited for their last close ---- */

struct ino_list {
	uint64_t *ino;
	size_t count, cap;
};

static int collect_unlinked(void *arg, const struct state_file *f)
{
	struct ino_list *l = arg;

	if (array_reserve((void **)&l->ino, &l->cap, l->count, sizeof(*l->ino)))
		return -ENOMEM;
	l->ino[l->count++] = f->ino;
	return 0;
}

static int remove_unlinked_locked(struct volume *vol)
{
	struct ino_list l = {0};
	int error = state_file_each_unlinked(vol->state, collect_unlinked, &l);

	for (size_t i = 0; !error && i < l.count; i++) {
		struct state_file f;

		error = state_begin(vol->state);
		if (error)
			break;
		error = state_file_get(vol->state, l.ino[i], &f);
		if (!error)
			error = body_file_unlinked_locked(vol, &f);
		error = state_end(vol->state, error);
	}
	free(l.ino);
	return error;
}

/* ---- what an earlier mount knew ---- */

static int find_unfinished(void *arg, const struct state_epoch *e)
{
	uint64_t *unfinished = arg;

	if (!*unfinished && e->state == EPOCH_SEALED && !e->record)
		*unfinished = e->number;
	return 0;
}

static int recover_locked(struct volume *vol, struct recovery *r)
{
	int error = state_version_each_unsafe(vol->state, collect_unsafe, r);

	if (!error)
		error = boot_changed_locked(vol, &r->rebooted);
	if (!r->rebooted)
		grants_begin_locked(vol, state_version_next(vol->state));
	if (!error)
		error = give_back_taken(vol, r);
	if (!error)
		error = scan_objects(vol, r);
	if (!error)
		error = state_epoch_each(vol->state, find_unfinished, &r->unfinished);
	if (error)
		return error;
	survivors_revive_locked(vol, r);
	/* A read-only mount looks only. */
	if (vol->options.read_only)
		return 0;
	if (r->rebooted && !vol->local_only)
		error = settle_epochs_locked(vol, r);
	if (!error)
		error = recover_all_staged_locked(vol, r);
	if (!error)
		error = check_closed_locked(vol, r);
	if (!error)
		error = check_epochs_locked(vol, r);
	if (!error)
		error = forget_lost_copies_locked(vol, r);
	if (!error && r->rebooted)
		error = doubt_copies_locked(vol);
	if (!error)
		error = remove_unlinked_locked(vol);
	return error ? error : boot_remember_locked(vol);
}

int recover(struct volume *vol, bool *ret_killed)
{
	struct recovery r = {0};
	int error;

	mutex_lock(&vol->lock);
	error = recover_locked(vol, &r);
	mutex_unlock(&vol->lock);
	if (!error)
		*ret_killed = r.killed;
	recovery_free(&r);
	return error;
}
