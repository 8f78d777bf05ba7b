/* SPDX-License-Identifier: Apache-2.0 */
/* A look through /proc for those who use a mount. */
#include "lib/util/mount_users.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "lib/util/printable.h"

#define NAMED_MAX 3
#define MAPS_MAX  ((size_t)16 << 20)

/* What a path below the mount is called in there: NULL where it is elsewhere. */
static const char *below(const char *mount, const char *path)
{
	size_t len = strlen(mount);

	if (strncmp(path, mount, len) != 0 || (path[len] && path[len] != '/'))
		return NULL;
	return path[len] ? path + len + 1 : "";
}

static const char *link_below(const char *mount, int dirfd, const char *name, char target[PATH_MAX])
{
	ssize_t n = readlinkat(dirfd, name, target, PATH_MAX - 1);

	if (n <= 0)
		return NULL;
	target[n] = '\0';
	return below(mount, target);
}

static bool has_open(const char *mount, int pid_fd, char ret_what[PATH_MAX])
{
	cleanup_closedir DIR *dir = NULL;
	cleanup_close int fd = openat(pid_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char target[PATH_MAX];
	struct dirent *d;

	if (fd < 0 || io_opendir(fd, &dir) < 0)
		return false;
	while ((d = readdir(dir))) {
		const char *what = link_below(mount, dirfd(dir), d->d_name, target);

		if (what) {
			snprintf(ret_what, PATH_MAX, "%s", *what ? what : "its root");
			return true;
		}
	}
	return false;
}

static bool has_mapped(const char *mount, int pid_fd, char ret_what[PATH_MAX])
{
	cleanup_buf struct buf text = {0};
	char *at, *line;

	if (io_read_file(pid_fd, "maps", MAPS_MAX, &text) != 0)
		return false;
	at = (char *)(uintptr_t)buf_str(&text);
	while ((line = strsep(&at, "\n"))) {
		const char *path = strchr(line, '/'), *what = path ? below(mount, path) : NULL;

		if (what) {
			snprintf(ret_what, PATH_MAX, "%s", what);
			return true;
		}
	}
	return false;
}

static bool uses(const char *mount, int pid_fd, char ret_what[PATH_MAX])
{
	char target[PATH_MAX];

	if (link_below(mount, pid_fd, "cwd", target)) {
		snprintf(ret_what, PATH_MAX, "its working directory");
		return true;
	}
	if (link_below(mount, pid_fd, "root", target)) {
		snprintf(ret_what, PATH_MAX, "its root directory");
		return true;
	}
	return has_open(mount, pid_fd, ret_what) || has_mapped(mount, pid_fd, ret_what);
}

static void add(struct buf *text, int pid_fd, const char *pid, const char *what)
{
	cleanup_buf struct buf name = {0};
	char *end;

	if (io_read_file(pid_fd, "comm", 64, &name) != 0)
		return;
	end = strchr(buf_str(&name), '\n');
	buf_printf(text, "%s%.*s (process %s, %.60s)", text->len ? ", " : "",
		   end ? (int)(end - buf_str(&name)) : (int)name.len, buf_str(&name), pid, what);
}

void mount_users_text(const char *path, char ret_text[MOUNT_USERS_TEXT])
{
	cleanup_closedir DIR *proc = opendir("/proc");
	cleanup_buf struct buf text = {0};
	char what[PATH_MAX];
	unsigned count = 0;
	struct dirent *d;

	while (proc && (d = readdir(proc))) {
		cleanup_close int pid_fd = -1;

		if (d->d_name[0] < '0' || d->d_name[0] > '9' || atoi(d->d_name) == getpid())
			continue;
		pid_fd = openat(dirfd(proc), d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (pid_fd >= 0 && uses(path, pid_fd, what) && count++ < NAMED_MAX)
			add(&text, pid_fd, d->d_name, what);
	}
	if (count > NAMED_MAX)
		buf_printf(&text, " and %u more", count - NAMED_MAX);
	snprintf(ret_text, MOUNT_USERS_TEXT, "%s", buf_error(&text) ? "" : buf_str(&text));
	printable_mask(ret_text);
}
