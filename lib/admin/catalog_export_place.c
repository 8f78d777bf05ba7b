/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring: the way to a directory, temporary names, and the rename over what is there. */
#include "lib/admin/catalog_export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int export_open_dir(int dir, const char *name, int flags, int *ret_fd)
{
	int fd = openat(dir, name, flags | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOTDIR || errno == ELOOP ? -EEXIST : -errno;
	*ret_fd = fd;
	return 0;
}

/* One step down from *fd, which is closed. */
static int step(const struct export *x, uint32_t id, int *fd)
{
	struct tree_entry e;
	int below = -1, error;

	tree_get(x->tree, id, &e);
	error = export_open_dir(*fd, e.name, O_PATH, &below);
	if (error)
		return error;
	close(*fd);
	*fd = below;
	return 0;
}

/* A directory of the tree, by its names from to_fd on. */
static int walk(const struct export *x, uint32_t dir, int *ret_fd)
{
	uint32_t way[TREE_DEPTH_MAX + 1];
	size_t depth = 0;
	cleanup_close int fd = openat(x->how->to_fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int error = fd < 0 ? -errno : 0;

	/* The root has no name: it is to_fd itself, and so is what lies above `top`. */
	for (uint32_t id = dir; id >= x->top && id != 0; id = tree_parent(x->tree, id))
		way[depth++] = id;
	while (!error && depth)
		error = step(x, way[--depth], &fd);
	if (!error)
		*ret_fd = steal_fd(&fd);
	return error;
}

int export_parent_fd(const struct export *x, uint32_t id, struct export_cursor *c, int *ret_fd)
{
	uint32_t dir = tree_parent(x->tree, id);
	int error;

	if (c->fd < 0 || c->dir != dir) {
		export_cursor_close(c);
		error = walk(x, dir, &c->fd);
		if (error)
			return error;
		c->dir = dir;
	}
	*ret_fd = c->fd;
	return 0;
}

void export_cursor_close(struct export_cursor *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

int export_check_free(const struct export *x, int dir, const char *name)
{
	struct stat st;

	if (x->how->force)
		return 0;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST;
	return errno == ENOENT ? 0 : -errno;
}

static int rename_over(int dir, const char *temporary, const char *name)
{
	if (renameat(dir, temporary, dir, name))
		return -errno;
	/* Where both are links of one file, rename leaves both. */
	if (unlinkat(dir, temporary, 0) && errno != ENOENT)
		return -errno;
	return 0;
}

/* Not every file system knows RENAME_NOREPLACE; a link is never made over something either. */
static int rename_free(int dir, const char *temporary, const char *name)
{
	if (renameat2(dir, temporary, dir, name, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	if (linkat(dir, temporary, dir, name, 0))
		return -errno;
	return unlinkat(dir, temporary, 0) ? -errno : 0;
}

int export_publish(const struct export *x, int dir, const char *temporary, const char *name)
{
	int error = x->how->force ? rename_over(dir, temporary, name)
				  : rename_free(dir, temporary, name);

	if (error)
		unlinkat(dir, temporary, 0);
	return error;
}
