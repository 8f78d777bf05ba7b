/* SPDX-License-Identifier: Apache-2.0 */
/* Mount points: fitness, and unmounting. */
#include "tools/mountpoint.h"

#include <dirent.h>
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "tools/cli.h"
#include "tools/client.h"

extern char **environ;

static int run_fusermount(const char *path, bool lazy)
{
	char program[] = "fusermount3", unmount[] = "-u", lazily[] = "-uz", dashes[] = "--";
	char *copy = strdup(path);
	char *argv[] = {program, lazy ? lazily : unmount, dashes, copy, NULL};
	int status = 0, error;
	pid_t pid;

	if (!copy)
		return -ENOMEM;
	error = posix_spawnp(&pid, program, NULL, NULL, argv, environ);
	free(copy);
	if (error)
		return -error;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

int mountpoint_unmount(const char *path, bool lazy)
{
	if (umount2(path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	if (errno != EPERM)
		return -errno;
	return run_fusermount(path, lazy);
}

static bool is_empty(const char *path)
{
	cleanup_closedir DIR *dir = opendir(path);
	const char *name;

	return !dir || io_readdir(dir, &name) == 0;
}

/* Whether a is b or lies below it; both without symlinks. */
static bool is_within(const char *a, const char *b)
{
	size_t len = strlen(b);

	return !strncmp(a, b, len) && (a[len] == '/' || a[len] == '\0' || !strcmp(b, "/"));
}

static const char *remote_directory(const char *remote)
{
	if (remote[0] == '/')
		return remote;
	return strncmp(remote, "file:///", 8) ? NULL : remote + 7;
}

static int check_remote(const char *path, const char *remote)
{
	const char *directory = remote_directory(remote);
	char real[PATH_MAX];

	if (!directory || !realpath(directory, real))
		return EXIT_DONE;
	if (is_within(real, path) || is_within(path, real))
		return cli_error(
			EXIT_USAGE,
			"%s: the remote %s and the mount point lie inside each other; choose another "
			"directory for one of them",
			path, real);
	return EXIT_DONE;
}

int mountpoint_prepare(const char *path, const char *remote, bool nonempty, char ret_path[PATH_MAX])
{
	struct stat st;
	int mounted = client_is_mount(path), error;

	if (mounted == -ENOTCONN) {
		error = mountpoint_unmount(path, true);
		if (error)
			return cli_error(EXIT_FAILED,
					 "%s: a dead mount is there and cannot be taken away: %s",
					 path, strerror(-error));
	}
	if (mounted == 1)
		return cli_error(EXIT_CONFLICT,
				 "%s: a volume is mounted there already; `epochfs umount %s` first",
				 path, path);
	if (stat(path, &st) < 0)
		return cli_error(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_FAILED,
				 "%s: cannot mount there: %s; make the directory first", path,
				 strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return cli_error(EXIT_USAGE, "%s: cannot mount there: it is not a directory", path);
	if (!realpath(path, ret_path))
		return cli_error(EXIT_FAILED, "%s: %s", path, strerror(errno));
	if (!nonempty && !is_empty(ret_path))
		return cli_error(
			EXIT_CONFLICT,
			"%s: the directory is not empty, and a mount would hide what is in it; choose "
			"an empty one, or add -o nonempty",
			path);
	return check_remote(ret_path, remote);
}
