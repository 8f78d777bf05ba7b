/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree: attributes of files, extended ones too, and changing them. */
#include "lib/live/live_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

#include "lib/cache/evict.h"
#include "lib/format/xattrs.h"
#include "lib/live/bodies.h"
#include "lib/live/observer.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/process.h"

/* What the row says. */
static void attr_of_row(const struct state_file *f, struct live_attr *ret_attr)
{
	*ret_attr = (struct live_attr){
		.ino = f->ino,
		.body = S_ISREG(f->mode) ? f->body : 0,
		.mode = f->mode,
		.uid = f->uid,
		.gid = f->gid,
		.rdev = f->rdev,
		.nlink = f->nlink,
		.size = f->size,
		.mtime_ns = f->mtime_ns,
		.ctime_ns = f->ctime_ns,
		.atime_ns = f->atime_ns,
	};
	if (S_ISDIR(f->mode))
		ret_attr->blocks = LIVE_DIR_BLOCKS;
}

/* A name that a rename covered for the time being is no link that anybody sees. */
static void hide_covered_locked(struct volume *vol, struct live_attr *attr)
{
	cleanup_buf struct buf name = {0};
	uint64_t parent;

	if (attr->nlink > 1 && S_ISREG(attr->mode) &&
	    !state_name_covering(vol->state, attr->ino, &parent, &name))
		attr->nlink--;
}

void live_attr_locked(struct volume *vol, const struct state_file *f, struct live_attr *ret_attr)
{
	struct body *b;

	attr_of_row(f, ret_attr);
	if (S_ISDIR(f->mode))
		ret_attr->pending = vol->observer->may_remove_locked(vol, f);
	if (!S_ISREG(f->mode))
		return;
	hide_covered_locked(vol, ret_attr);
	b = body_of_file_locked(vol, f);
	if (b && b->staged)
		body_attr_locked(b, ret_attr);
	else
		ret_attr->blocks = version_blocks_locked(vol, f->closed, f->size);
	ret_attr->pending = body_pending_locked(vol, f->ino) || (b && b->fragile && !f->closed) ||
			    (b && b->staged && vol->observer->may_remove_locked(vol, f));
}

/* What those see who have this body of it open. */
static void live_attr_of_body_locked(struct volume *vol, const struct state_file *f,
				     const struct body *b, struct live_attr *ret_attr)
{
	struct state_version v;

	attr_of_row(f, ret_attr);
	hide_covered_locked(vol, ret_attr);
	ret_attr->body = b->id;
	ret_attr->pending = b->pending;
	if (b->staged) {
		body_attr_locked(b, ret_attr);
		return;
	}
	/* Closed content that was replaced: its size and times, which the row no longer says. */
	if (b->mtime_ns && b->id != f->body) {
		ret_attr->mtime_ns = b->mtime_ns;
		ret_attr->ctime_ns = b->ctime_ns;
	}
	if (b->content)
		ret_attr->size = content_size(b->content);
	else if (!state_version_get(vol->state, b->version, &v))
		ret_attr->size = v.size;
	ret_attr->blocks = version_blocks_locked(vol, b->version, ret_attr->size);
}

void live_attr_for_locked(struct volume *vol, const struct state_file *f, pid_t pid,
			  struct live_attr *ret_attr)
{
	struct body *b = S_ISREG(f->mode) ? body_pending_for_locked(vol, f->ino, pid) : NULL;

	if (b)
		live_attr_of_body_locked(vol, f, b, ret_attr);
	else
		live_attr_locked(vol, f, ret_attr);
}

/* The open body that is meant by a node of this file: NULL where it is closed, or no file's. */
static struct body *body_meant_locked(struct volume *vol, const struct state_file *f, uint64_t body)
{
	struct body *b;

	if (!S_ISREG(f->mode))
		return NULL;
	b = body ? body_find_locked(vol, body) : body_of_file_locked(vol, f);
	return b && b->ino == f->ino ? b : NULL;
}

static int attr_meant_locked(struct volume *vol, const struct state_file *f, uint64_t body,
			     struct live_attr *ret_attr)
{
	struct body *b = body_meant_locked(vol, f, body);

	if (b && b->id != f->body)
		live_attr_of_body_locked(vol, f, b, ret_attr);
	else if (b || !body || body == f->body || !S_ISREG(f->mode))
		live_attr_locked(vol, f, ret_attr);
	else
		return -ESTALE;
	return 0;
}

int live_getattr(struct volume *vol, uint64_t ino, uint64_t body, struct live_attr *ret_attr)
{
	struct state_file f;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_file_get(vol->state, ino, &f);
	if (!error && attr_meant_locked(vol, &f, body, ret_attr))
		live_attr_locked(vol, &f, ret_attr);
	return error;
}

/* ---- changing ---- */

static int change_size(struct volume *vol, uint64_t ino, uint64_t body,
		       const struct live_change *change)
{
	struct state_file f;
	int error;

	mutex_lock(&vol->lock);
	error = state_file_get(vol->state, ino, &f);
	mutex_unlock(&vol->lock);
	if (error)
		return error;
	if (!S_ISREG(f.mode))
		return S_ISDIR(f.mode) ? -EISDIR : -EINVAL;
	if (change->size > INT64_MAX)
		return -EFBIG;
	return body_truncate(vol, ino, body, change);
}

static void change_owner(struct state_file *f, const struct live_change *change)
{
	if (change->set & LIVE_SET_MODE)
		f->mode = (f->mode & S_IFMT) | (change->mode & 07777);
	if (change->set & LIVE_SET_UID)
		f->uid = change->uid;
	if (change->set & LIVE_SET_GID)
		f->gid = change->gid;
	/* chown(2): a new owner does not inherit the right to be somebody. */
	if (!(change->set & (LIVE_SET_UID | LIVE_SET_GID)) || change->set & LIVE_SET_MODE ||
	    S_ISDIR(f->mode))
		return;
	f->mode &= ~(uint32_t)S_ISUID;
	if (f->mode & S_IXGRP)
		f->mode &= ~(uint32_t)S_ISGID;
}

/* The times of content that is being written are those of its backing file. */
static int change_mtime_locked(struct volume *vol, struct state_file *f, uint64_t body,
			       const struct live_change *change)
{
	struct body *b = body_meant_locked(vol, f, body);
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(change->mtime_ns)};
	struct stat st;

	if (b && b->staged) {
		if (fstat(b->fd, &st) < 0 || futimens(b->fd, times) < 0)
			return -errno;
		handles_found_time_locked(b, &st, change->mtime_ns, process_of(change->pid));
		return 0;
	}
	f->mtime_ns = change->mtime_ns;
	return 0;
}

static int change_row_locked(struct volume *vol, uint64_t ino, uint64_t body,
			     const struct live_change *change)
{
	struct state_file f;
	int error = state_file_get(vol->state, ino, &f);

	if (error)
		return error;
	change_owner(&f, change);
	if (change->set & LIVE_SET_ATIME)
		f.atime_ns = change->atime_ns;
	if (change->set & LIVE_SET_MTIME)
		error = change_mtime_locked(vol, &f, body, change);
	if (error)
		return error;
	f.ctime_ns = live_now_ns();
	return state_file_set(vol->state, &f);
}

static void finish_closes(struct volume *vol, uint64_t ino)
{
	SCOPED_LOCK(&vol->lock);
	body_finish_closes_locked(vol, ino);
}

int live_setattr(struct volume *vol, uint64_t ino, uint64_t body, const struct live_change *change,
		 struct live_attr *ret_attr)
{
	struct state_file f;
	int error = vol->options.read_only ? -EROFS : 0;

	/* What was closed is closed as it was. */
	if (!error)
		finish_closes(vol, ino);
	if (!error && change->set & LIVE_SET_SIZE)
		error = change_size(vol, ino, body, change);
	if (error)
		return error;
	SCOPED_LOCK(&vol->lock);
	if (change->set & ~LIVE_SET_SIZE) {
		error = live_begin_locked(vol);
		if (error)
			return error;
		error = change_row_locked(vol, ino, body, change);
		error = state_end(vol->state, error);
		if (error)
			return error;
		vol->observer->note_locked(vol, ACTIVITY_ATTR, 0, NULL, NULL, ino);
	}
	error = state_file_get(vol->state, ino, &f);
	if (error)
		return error;
	/* A node whose body went meanwhile: the file is what it was changed in. */
	if (attr_meant_locked(vol, &f, body, ret_attr))
		live_attr_locked(vol, &f, ret_attr);
	return 0;
}

/* ---- The live tree: extended attributes. ---- */

/* What an attribute takes in a list beside name and value (xattrs.h): two lengths and a NUL. */
#define XATTR_OVERHEAD 8

/* The kernel checks no ACLs here (default_permissions knows the mode only), so none are taken. */
static bool is_acl(const char *name)
{
	static const char prefix[] = "system.posix_acl_";

	return strncmp(name, prefix, sizeof(prefix) - 1) == 0;
}

static int name_check(const char *name)
{
	if (!*name || strlen(name) > XATTR_NAME_BYTES_MAX)
		return -ERANGE;
	return is_acl(name) ? -EOPNOTSUPP : 0;
}

int live_getxattr(struct volume *vol, uint64_t ino, const char *name, struct buf *out)
{
	struct state_file f;
	int error = name_check(name);

	if (error)
		return error;
	SCOPED_LOCK(&vol->lock);
	error = state_xattr_get(vol->state, ino, name, out);
	if (error == -ENODATA && state_file_get(vol->state, ino, &f) == -ENOENT)
		return -ENOENT;
	return error;
}

struct sum {
	const char *without;
	size_t bytes;
	bool found;
};

static int add_size(void *arg, const char *name, const void *value, size_t len)
{
	struct sum *sum = arg;

	(void)value;
	if (strcmp(name, sum->without))
		sum->bytes += strlen(name) + len + XATTR_OVERHEAD;
	else
		sum->found = true;
	return 0;
}

/* Whether the attribute may be set: flags, and the room that a tree has for all of them. */
static int may_set_locked(struct volume *vol, uint64_t ino, const char *name, size_t len, int flags)
{
	struct sum sum = {.without = name, .bytes = strlen(name) + len + XATTR_OVERHEAD};
	int error = state_xattr_list(vol->state, ino, add_size, &sum);

	if (error)
		return error;
	if (flags & XATTR_CREATE && sum.found)
		return -EEXIST;
	if (flags & XATTR_REPLACE && !sum.found)
		return -ENODATA;
	return sum.bytes > XATTRS_BYTES_MAX ? -ENOSPC : 0;
}

static int touch_ctime_locked(struct volume *vol, struct state_file *f)
{
	f->ctime_ns = live_now_ns();
	return state_file_set(vol->state, f);
}

int live_setxattr(struct volume *vol, uint64_t ino, const char *name, const void *value, size_t len,
		  int flags)
{
	struct state_file f;
	int error = name_check(name);

	if (error)
		return error;
	if (flags & ~(XATTR_CREATE | XATTR_REPLACE))
		return -EINVAL;
	if (len > XATTR_VALUE_BYTES_MAX)
		return -E2BIG;
	volume_make_room_for_names(vol);
	SCOPED_LOCK(&vol->lock);
	error = live_begin_locked(vol);
	if (error)
		return error;
	error = state_file_get(vol->state, ino, &f);
	if (!error)
		error = may_set_locked(vol, ino, name, len, flags);
	if (!error)
		error = volume_room_for_names(vol);
	if (!error)
		error = state_xattr_set(vol->state, ino, name, value, len);
	if (!error)
		error = touch_ctime_locked(vol, &f);
	error = state_end(vol->state, error);
	if (!error)
		vol->observer->note_locked(vol, ACTIVITY_ATTR, 0, NULL, NULL, ino);
	return error;
}

int live_removexattr(struct volume *vol, uint64_t ino, const char *name)
{
	struct state_file f;
	int error = name_check(name);

	if (error)
		return error;
	SCOPED_LOCK(&vol->lock);
	error = live_begin_locked(vol);
	if (error)
		return error;
	error = state_file_get(vol->state, ino, &f);
	if (!error)
		error = state_xattr_remove(vol->state, ino, name);
	if (!error)
		error = touch_ctime_locked(vol, &f);
	error = state_end(vol->state, error);
	if (!error)
		vol->observer->note_locked(vol, ACTIVITY_ATTR, 0, NULL, NULL, ino);
	return error;
}

static int add_name(void *arg, const char *name, const void *value, size_t len)
{
	(void)value;
	(void)len;
	buf_put(arg, name, strlen(name) + 1);
	return 0;
}

int live_listxattr(struct volume *vol, uint64_t ino, struct buf *out)
{
	struct state_file f;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_file_get(vol->state, ino, &f);
	if (!error)
		error = state_xattr_list(vol->state, ino, add_name, out);
	return error ? error : buf_error(out);
}
