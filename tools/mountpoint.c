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

#include "lib/remote/remote_url.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "lib/util/text.h"
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

/* ---- what lies below ---- */

#define NAMED_MAX 3

/* The names in a directory, "model.pt, log and 2 more": how many there are, or -errno. */
static int list(const char *path, struct buf *out)
{
	cleanup_closedir DIR *dir = opendir(path);
	const char *name;
	int count = 0, got;

	if (!dir)
		return -errno;
	while ((got = io_readdir(dir, &name)) > 0) {
		if (count++ >= NAMED_MAX)
			continue;
		buf_printf(out, "%s", count > 1 ? ", " : "");
		printable_put(out, name);
	}
	if (count > NAMED_MAX)
		buf_printf(out, " and %d more", count - NAMED_MAX);
	return got < 0 ? got : count;
}

static int check_empty(const char *path)
{
	cleanup_buf struct buf names = {0};
	int count = list(path, &names);

	if (!count)
		return EXIT_DONE;
	if (count < 0)
		return cli_error(
			EXIT_FAILED,
			"%s: what lies there cannot be listed: %s; a mount would hide it (-o nonempty: all the same)",
			path, strerror(-count));
	return cli_error(
		EXIT_CONFLICT,
		"%s: the directory is not empty (%s), and a mount would hide that. If a job wrote it while "
		"nothing was mounted, move it away (mv %s %s.below && mkdir %s), mount, and copy what is "
		"wanted into the mount; else choose an empty directory, or add -o nonempty",
		path, buf_str(&names), path, path, path);
}

bool mountpoint_is_empty(const char *path)
{
	cleanup_buf struct buf names = {0};

	return list(path, &names) == 0;
}

int mountpoint_tell_below(const char *path)
{
	cleanup_buf struct buf names = {0};

	if (list(path, &names) <= 0)
		return EXIT_DONE;
	return cli_error(
		EXIT_CONFLICT,
		"%s: unmounted, and the directory below is not empty (%s): that is in no epoch. Move it away "
		"(mv %s %s.below && mkdir %s), mount, and copy what is wanted into the mount",
		path, buf_str(&names), path, path, path);
}

int mountpoint_uncover(const char *path, bool nonempty)
{
	int error;

	if (client_is_mount(path) != -ENOTCONN)
		return EXIT_DONE;
	error = mountpoint_unmount(path, true);
	if (error)
		return cli_error(EXIT_FAILED,
				 "%s: a dead mount is there and cannot be taken away: %s", path,
				 strerror(-error));
	return nonempty ? EXIT_DONE : check_empty(path);
}

/* A dead mount cannot be asked, but the directory that its name is in can. */
static bool resolve_dead(const char *path, char ret_path[PATH_MAX])
{
	cleanup_free char *copy = strdup(path);
	char parent[PATH_MAX], *name, *slash;
	int n;

	if (!copy)
		return false;
	for (size_t len = strlen(copy); len > 1 && copy[len - 1] == '/'; len--)
		copy[len - 1] = '\0';
	slash = strrchr(copy, '/');
	name = slash ? slash + 1 : copy;
	if (slash)
		*slash = '\0';
	if (!realpath(slash ? (*copy ? copy : "/") : ".", parent))
		return false;
	n = snprintf(ret_path, PATH_MAX, "%s/%s", strcmp(parent, "/") != 0 ? parent : "", name);
	return n > 0 && n < PATH_MAX;
}

/* Whether a is b or lies below it; both without symlinks. */
static bool is_within(const char *a, const char *b)
{
	size_t len = strlen(b);

	return !strncmp(a, b, len) && (a[len] == '/' || a[len] == '\0' || !strcmp(b, "/"));
}

/* Whether path, or what it will lie in, is the mount point itself by another name: of a bind mount, which may share what is
 * mounted there. */
static bool is_within_inode(const char *path, const char *mountpoint)
{
	struct stat point, here;
	char head[PATH_MAX];

	if (stat(mountpoint, &point) < 0)
		return false;
	snprintf(head, sizeof(head), "%s", path);
	for (char *end = head + strlen(head); end > head; *end = '\0') {
		if (stat(head, &here) == 0 && here.st_dev == point.st_dev &&
		    here.st_ino == point.st_ino)
			return true;
		do
			end--;
		while (end > head && *end != '/');
	}
	return false;
}

/* As many as the kernel follows. */
#define LINKS_MAX 40

/* Where the path leads through a link to what is not there yet, the link is replaced by what it says. */
static bool follow_dangling(char path[PATH_MAX])
{
	char link[PATH_MAX], says[PATH_MAX], next[PATH_MAX];
	const char *slash;
	ssize_t len = 0;
	int n;

	snprintf(link, sizeof(link), "%s", path);
	for (char *end = link + strlen(link); end > link; *end = '\0') {
		len = readlink(link, says, sizeof(says) - 1);
		if (len > 0 && access(link, F_OK) < 0)
			break;
		do
			end--;
		while (end > link && *end != '/');
	}
	if (!*link)
		return false;
	says[len] = '\0';
	slash = strrchr(link, '/');
	n = snprintf(next, sizeof(next), "%.*s%s%s",
		     *says == '/' || !slash ? 0 : (int)(slash - link) + 1, link, says,
		     path + strlen(link));
	if (n < 0 || n >= PATH_MAX)
		return false;
	memcpy(path, next, (size_t)n + 1);
	return true;
}

/* A path without symlinks, of which the last parts may not be there: false where that cannot be told. */
static bool resolve_new(const char *path, char ret_path[PATH_MAX])
{
	char whole[PATH_MAX], head[PATH_MAX], real[PATH_MAX];
	size_t len = strlen(path);
	int n;

	if (len == 0 || len >= sizeof(whole))
		return false;
	memcpy(whole, path, len + 1);
	for (int links = 0; links < LINKS_MAX && follow_dangling(whole); links++)
		;
	path = whole;
	memcpy(head, path, strlen(path) + 1);
	while (!realpath(*head ? head : path[0] == '/' ? "/" : ".", real)) {
		char *slash = strrchr(head, '/');

		if (errno != ENOENT || !*head)
			return false;
		head[slash ? slash - head : 0] = '\0';
	}
	n = snprintf(ret_path, PATH_MAX, "%s/%s", strcmp(real, "/") != 0 ? real : "",
		     path + strlen(head) + (path[strlen(head)] == '/'));
	if (n < 0 || n >= PATH_MAX)
		return false;
	for (; n > 1 && ret_path[n - 1] == '/'; n--)
		ret_path[n - 1] = '\0';
	return true;
}

int mountpoint_check_outside(const char *mountpoint, const char *what, const char *place)
{
	char real[PATH_MAX];

	if (!resolve_new(place, real) ||
	    (!is_within(real, mountpoint) && !is_within_inode(real, mountpoint)))
		return EXIT_DONE;
	return cli_error(
		EXIT_USAGE,
		"%s: the %s %s lies in it, and the mount would wait for itself: choose another "
		"place",
		mountpoint, what, real);
}

bool mountpoint_remote_directory(const char *remote, char ret_path[PATH_MAX])
{
	static const char host[] = "//localhost/";
	cleanup_remote_url struct remote_url url = {0};
	cleanup_free char *path = NULL;
	const char *rest;
	int n;

	if (remote_url_parse(remote, &url) < 0)
		return false;
	if (url.layered)
		return mountpoint_remote_directory(url.rest, ret_path);
	if (strcmp(url.scheme, "file") != 0)
		return false;
	rest = url.rest;
	if (!url.plain && !strncmp(rest, host, strlen(host)))
		rest += strlen(host) - 1;
	if (url.plain)
		path = strdup(rest);
	else if (remote_url_decode(rest, &path) < 0)
		return false;
	n = path ? snprintf(ret_path, PATH_MAX, "%s", path) : -1;
	return n > 0 && n < PATH_MAX && *ret_path == '/';
}

static int check_remote(const char *path, const char *remote)
{
	char directory[PATH_MAX], real[PATH_MAX];

	if (!mountpoint_remote_directory(remote, directory) || !resolve_new(directory, real))
		return EXIT_DONE;
	if (is_within(real, path) || is_within(path, real) || is_within_inode(real, path))
		return cli_error(
			EXIT_USAGE,
			"%s: the remote %s and the mount point lie inside each other; choose another "
			"directory for one of them",
			path, real);
	return EXIT_DONE;
}

void mountpoint_users(const char *path, char ret_text[MOUNT_USERS_TEXT])
{
	char real[PATH_MAX];

	*ret_text = '\0';
	if (realpath(path, real) || (errno == ENOTCONN && resolve_dead(path, real)))
		mount_users_text(real, ret_text);
}

int mountpoint_prepare(const char *path, const char *remote, bool nonempty, char ret_path[PATH_MAX])
{
	struct stat st;
	int mounted = client_is_mount(path), code = EXIT_DONE;

	if (mounted == -ENOTCONN && resolve_dead(path, ret_path))
		return check_remote(ret_path, remote);
	if (mounted == 1)
		return cli_error(EXIT_CONFLICT,
				 "%s: a volume is mounted there already; `epochfs umount %s` first",
				 path, path);
	if (stat(path, &st) < 0 && errno == ENOENT && mkdir(path, 0777) < 0 && errno != EEXIST)
		return cli_error(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_FAILED,
				 "%s: the mount point cannot be made: %s", path, strerror(errno));
	if (stat(path, &st) < 0)
		return cli_error(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_FAILED,
				 "%s: cannot mount there: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return cli_error(EXIT_USAGE, "%s: cannot mount there: it is not a directory", path);
	if (!realpath(path, ret_path))
		return cli_error(EXIT_FAILED, "%s: %s", path, strerror(errno));
	if (!nonempty)
		code = check_empty(ret_path);
	return code == EXIT_DONE ? check_remote(ret_path, remote) : code;
}
