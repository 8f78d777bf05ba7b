/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree: extended attributes. */
#include "lib/live/live_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>
#include "lib/cache/evict.h"
#include "lib/format/xattrs.h"
#include "lib/live/observer.h"

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
