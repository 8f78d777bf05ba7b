/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes and the targets of symlinks. */
#include "lib/import/import_attr.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/format/xattrs.h"
#include "lib/util/log.h"

/* Leads to the name itself, also where it is a symlink, however deep the directory lies. */
#define PROC_PATH_MAX (40 + TREE_NAME_MAX)

static bool is_kept(const char *name)
{
	return !strncmp(name, "user.", 5) || !strncmp(name, "trusted.", 8) ||
	       !strcmp(name, "security.capability");
}

/* Gone, or not for us, since it was listed. */
static bool is_gone(int error)
{
	return error == ENODATA || error == EPERM || error == EACCES || error == ENOTSUP;
}

static int read_value(const char *path, const char *name, struct buf *value)
{
	ssize_t got;

	buf_reset(value);
	if (buf_reserve(value, XATTR_VALUE_BYTES_MAX))
		return -ENOMEM;
	got = lgetxattr(path, name, value->data, XATTR_VALUE_BYTES_MAX);
	if (got < 0)
		return -errno;
	value->len = (size_t)got;
	return 0;
}

static int add_value(const char *path, const char *name, struct buf *attrs)
{
	cleanup_buf struct buf value = {0};
	int error = read_value(path, name, &value);

	if (error == -ENOMEM)
		return error;
	if (error)
		return is_gone(-error) ? 0 : error;
	error = xattrs_set(attrs, name, value.data, value.len);
	if (error == -ENOMEM)
		return error;
	if (error)
		log_warn("%s: its attribute %s does not fit and is left out",
			 strrchr(path, '/') + 1, name);
	return 0;
}

static int read_xattrs(const char *path, struct buf *attrs)
{
	char names[XATTR_LIST_MAX];
	ssize_t len = llistxattr(path, names, sizeof(names));
	int error = 0;

	if (len < 0)
		return is_gone(errno) ? 0 : -errno;
	for (ssize_t at = 0; !error && at < len; at += (ssize_t)strlen(names + at) + 1)
		if (is_kept(names + at))
			error = add_value(path, names + at, attrs);
	return error;
}

static int read_target(int dir_fd, const char *name, struct scan *s, size_t number)
{
	char target[TREE_TARGET_MAX + 1];
	ssize_t len = readlinkat(dir_fd, name, target, sizeof(target));

	if (len < 0)
		return errno == EINVAL ? -ESTALE : -errno;
	if (!len || len > TREE_TARGET_MAX)
		return -ENAMETOOLONG;
	target[len] = '\0';
	s->nodes[number].target = s->extra.len;
	s->nodes[number].size = (uint64_t)len;
	buf_put(&s->extra, target, (size_t)len + 1);
	return buf_error(&s->extra);
}

int import_attr_read(int dir_fd, const char *name, const struct stat *st, struct scan *s,
		     size_t number)
{
	cleanup_buf struct buf attrs = {0};
	char path[PROC_PATH_MAX];
	int error;

	snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", dir_fd, name);
	error = read_xattrs(path, &attrs);
	if (error)
		return error;
	s->nodes[number].xattrs = s->extra.len;
	s->nodes[number].xattrs_len = attrs.len;
	buf_put(&s->extra, attrs.data, attrs.len);
	if (buf_error(&s->extra))
		return -ENOMEM;
	return S_ISLNK(st->st_mode) ? read_target(dir_fd, name, s, number) : 0;
}
