/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring: the way to a directory, temporary names, and the rename over what is there. */
#include "lib/admin/catalog_export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "lib/util/io.h"
#include "lib/util/log.h"

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

/* Restoring: files without a name until they are whole, and what killed runs have left. */

#define PREFIX	   ".epochfs-export-"
#define RANDOM_LEN 8
/* A younger one may belong to a run that has not locked it yet. */
#define STALE_NS (60 * NS_PER_S)

int export_temporary_name(char ret_name[EXPORT_TEMPORARY_MAX])
{
	uint8_t random[RANDOM_LEN];
	char hex[2 * sizeof(random) + 1];
	int error = random_bytes(random, sizeof(random));

	if (error)
		return error;
	hex_encode(random, sizeof(random), hex);
	snprintf(ret_name, EXPORT_TEMPORARY_MAX, PREFIX "%s", hex);
	return 0;
}

/* ---- a file ---- */

/* How a file without a name is named: link(2) of what the descriptor is. */
static void path_of_fd(int fd, char ret_path[32])
{
	snprintf(ret_path, 32, "/proc/self/fd/%d", fd);
}

/* -1 where the file system knows no such files, or there is no /proc to name them by; what else is
 * wrong, an open with a name tells. */
static int open_nameless(int dir)
{
	char path[32];
	int fd = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);

	if (fd < 0)
		return -1;
	path_of_fd(fd, path);
	if (faccessat(AT_FDCWD, path, F_OK, 0) == 0)
		return fd;
	close(fd);
	return -1;
}

/* Locked while it is there: who sweeps locks before he removes. */
static int open_named(int dir, struct export_file *f)
{
	for (;;) {
		struct stat st;
		int error = export_temporary_name(f->temporary);

		if (error)
			return error;
		f->fd = openat(dir, f->temporary,
			       O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (f->fd < 0)
			return -errno;
		/* Where there are no locks nobody sweeps. */
		if (flock(f->fd, LOCK_EX) < 0 || fstat(f->fd, &st) < 0 || st.st_nlink)
			return 0;
		close(f->fd);
	}
}

int export_file_new(int dir, struct export_file *ret_file)
{
	struct export_file f = {.fd = open_nameless(dir)};
	int error = f.fd < 0 ? open_named(dir, &f) : 0;

	if (error)
		return error;
	*ret_file = f;
	return 0;
}

void export_file_drop(int dir, struct export_file *f)
{
	if (f->temporary[0])
		unlinkat(dir, f->temporary, 0);
	close(steal_fd(&f->fd));
}

static int link_fd(int fd, int dir, const char *name)
{
	char path[32];

	path_of_fd(fd, path);
	return linkat(AT_FDCWD, path, dir, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

/* A temporary name only where something must be replaced, which a link never does. */
static int publish_nameless(const struct export *x, int dir, struct export_file *f,
			    const char *name)
{
	int error = link_fd(f->fd, dir, name);

	if (error != -EEXIST || !x->how->force)
		return error;
	error = export_temporary_name(f->temporary);
	if (!error)
		error = link_fd(f->fd, dir, f->temporary);
	return error ? error : export_publish(x, dir, f->temporary, name);
}

/* A write that fails late, on a network's file system, is told by close; ours stays open, and locked. */
static int check_writes(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	return copy < 0 || close(copy) < 0 ? -errno : 0;
}

int export_file_publish(const struct export *x, int dir, struct export_file *f, const char *name)
{
	int error = check_writes(f->fd);

	if (error) {
		export_file_drop(dir, f);
		return error;
	}
	error = f->temporary[0] ? export_publish(x, dir, f->temporary, name)
				: publish_nameless(x, dir, f, name);
	close(steal_fd(&f->fd));
	return error;
}

/* ---- what killed runs have left ---- */

static bool is_temporary_name(const char *name)
{
	size_t prefix = strlen(PREFIX);

	return strncmp(name, PREFIX, prefix) == 0 && strlen(name) == prefix + 2 * RANDOM_LEN &&
	       strspn(name + prefix, "0123456789abcdef") == 2 * RANDOM_LEN;
}

static void sweep_one(int dir, const char *name)
{
	cleanup_close int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    flock(fd, LOCK_EX | LOCK_NB) < 0)
		return;
	if (unlinkat(dir, name, 0) == 0)
		log_info("%s, left by a restoring that was killed, is removed", name);
}

void export_sweep(int dir)
{
	cleanup_closedir DIR *d = NULL;
	const char *name;
	int got = io_opendir(dir, &d);

	while (!got && (got = io_readdir(d, &name)) > 0) {
		if (is_temporary_name(name))
			sweep_one(dir, name);
		got = 0;
	}
	if (got)
		log_warn("looking for what a killed run has left: %s", strerror(-got));
}
