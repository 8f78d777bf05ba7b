/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring: owners, extended attributes, modes, times. */
#include "lib/admin/catalog_export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "lib/format/xattrs.h"
#include "lib/util/clock.h"
#include "lib/util/log.h"

#define PROC_PATH_MAX 40

/* What a descriptor of O_PATH lets us do only by a path: this one leads to exactly what it holds, also to a symlink itself. */
static const char *proc_path(int fd, char ret_path[PROC_PATH_MAX])
{
	snprintf(ret_path, PROC_PATH_MAX, "/proc/self/fd/%d", fd);
	return ret_path;
}

/* True where the owner is now the tree's. */
static bool set_owner(const struct export *x, int fd, const struct tree_entry *e)
{
	/* An owner that this machine or user namespace cannot have is kept from nobody: the file is ours then. So is one of
	 * (uint32_t)-1, which would mean to leave it as it is. */
	return x->owners && e->uid != UINT32_MAX && e->gid != UINT32_MAX &&
	       fchownat(fd, "", e->uid, e->gid, AT_EMPTY_PATH) == 0;
}

/* Setuid and setgid of a file lend its owner's rights: given only with that owner. */
static mode_t allowed_mode(const struct export *x, const struct tree_entry *e, bool owned)
{
	return e->type == TREE_REGULAR && !(owned && x->privileged) ? e->mode & 01777 : e->mode;
}

/* Attributes that this file system or user cannot have. */
static bool is_refused(int error)
{
	return error == ENOTSUP || error == EPERM || error == EACCES || error == EINVAL;
}

/* security.* lends rights as setuid does, trusted.* changes what file systems above this one believe, system.* are ACLs. */
static bool is_users(const char *name)
{
	return strncmp(name, "user.", strlen("user.")) == 0;
}

bool export_lends_rights(const struct tree_entry *e)
{
	struct xattrs_iter it = xattrs_iter_of(e->xattrs, e->xattrs_len);
	const char *name;
	const void *value;
	size_t len;

	if (e->type == TREE_CHAR || e->type == TREE_BLOCK ||
	    (e->type == TREE_REGULAR && e->mode & 06000))
		return true;
	while (xattrs_next(&it, &name, &value, &len))
		if (!is_users(name))
			return true;
	return false;
}

static int set_xattr(int fd, bool by_path, const char *name, const void *value, size_t len)
{
	char path[PROC_PATH_MAX];
	int result = by_path ? setxattr(proc_path(fd, path), name, value, len, 0)
			     : fsetxattr(fd, name, value, len, 0);

	if (!result)
		return 0;
	if (!is_refused(errno))
		return -errno;
	log_debug("attribute %s cannot be kept here: %s", name, strerror(errno));
	return 0;
}

static int set_xattrs(const struct export *x, int fd, bool by_path, const struct tree_entry *e,
		      bool owned)
{
	struct xattrs_iter it = xattrs_iter_of(e->xattrs, e->xattrs_len);
	const char *name;
	const void *value;
	size_t len;
	int error = 0;

	while (!error && xattrs_next(&it, &name, &value, &len))
		if (is_users(name) || (owned && x->privileged))
			error = set_xattr(fd, by_path, name, value, len);
	return error;
}

int export_attr_fd(const struct export *x, int fd, const struct tree_entry *e)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(e->mtime_ns)};
	bool owned = set_owner(x, fd, e);
	int error = set_xattrs(x, fd, false, e, owned);

	if (error)
		return error;
	if (fchmod(fd, allowed_mode(x, e, owned)) || futimens(fd, times))
		return -errno;
	return 0;
}

int export_attr_path(const struct export *x, int fd, const struct tree_entry *e)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(e->mtime_ns)};
	bool owned = set_owner(x, fd, e);
	char path[PROC_PATH_MAX];
	int error = set_xattrs(x, fd, true, e, owned);

	if (error)
		return error;
	proc_path(fd, path);
	if (e->type != TREE_SYMLINK && chmod(path, allowed_mode(x, e, owned)))
		return -errno;
	return utimensat(fd, "", times, AT_EMPTY_PATH) ? -errno : 0;
}
