/* SPDX-License-Identifier: Apache-2.0 */
/* Mounts as /proc shows them: the lists of each process (mountinfo, proc(5)), and who uses one. */
#include "lib/util/mountinfo.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/util/array.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "lib/util/text.h"

#define PATH_LEN 64

/* One process of a mount namespace. */
struct mount_namespace {
	ino_t id;
	pid_t pid;
};

void mountinfo_escape(const char *path, char ret_path[MOUNTINFO_PATH_MAX])
{
	size_t len = 0;

	for (; *path && len + 5 < MOUNTINFO_PATH_MAX; path++) {
		if (strchr(" \t\n\\", *path))
			len += (size_t)snprintf(ret_path + len, 5, "\\%03o", (unsigned char)*path);
		else
			ret_path[len++] = *path;
	}
	ret_path[len] = '\0';
}

/* What a mount is to be; NULL: anything. */
struct wanted {
	const char *device, *point, *type;
};

static bool is_wanted(const char *line, const struct wanted *w)
{
	char dev[MOUNTINFO_DEVICE_MAX], at[MOUNTINFO_PATH_MAX], type[64];
	const char *rest = strstr(line, " - "); /* no field before it is a lone dash */

	return sscanf(line, "%*d %*d %23s %*s %1023s", dev, at) == 2 &&
	       (!w->device || !strcmp(dev, w->device)) && (!w->point || !strcmp(at, w->point)) &&
	       (!w->type || (rest && sscanf(rest, " - %63s", type) == 1 && !strcmp(type, w->type)));
}

static bool list_has(const char *path, const struct wanted *wanted)
{
	cleanup_fclose FILE *f = fopen(path, "re");
	cleanup_free char *line = NULL;
	size_t room = 0;

	while (f && getline(&line, &room, f) > 0)
		if (is_wanted(line, wanted))
			return true;
	return false;
}

static bool process_has(pid_t pid, const struct wanted *wanted)
{
	char path[PATH_LEN] = "/proc/self/mountinfo";

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	return list_has(path, wanted);
}

bool mountinfo_has(pid_t pid, const char *device)
{
	return *device && process_has(pid, &(struct wanted){.device = device});
}

bool mountinfo_is_at(const char *device, const char *path)
{
	return *device && process_has(0, &(struct wanted){.device = device, .point = path});
}

bool mountinfo_below(const char *path, char ret_path[MOUNTINFO_PATH_MAX])
{
	cleanup_fclose FILE *f = fopen("/proc/self/mountinfo", "re");
	cleanup_free char *line = NULL;
	char top[MOUNTINFO_PATH_MAX];
	size_t room = 0, len;

	mountinfo_escape(path, top);
	len = strlen(top);
	while (f && getline(&line, &room, f) > 0)
		if (sscanf(line, "%*d %*d %*s %*s %1023s", ret_path) == 1 &&
		    !strncmp(ret_path, top, len) && ret_path[len] == '/')
			return true;
	return false;
}

/* 0 where it cannot be seen. */
static ino_t namespace_of(const char *process)
{
	char path[PATH_LEN];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%.16s/ns/mnt", process);
	return stat(path, &st) < 0 ? 0 : st.st_ino;
}

/* The array is in the order of their numbers. */
static int compare(const void *a, const void *b)
{
	pid_t x = ((const struct mount_namespace *)a)->pid;
	pid_t y = ((const struct mount_namespace *)b)->pid;

	return x < y ? -1 : x > y;
}

static bool note(struct mount_namespace *all, size_t count, ino_t id, pid_t pid)
{
	for (size_t i = 0; i < count; i++) {
		if (all[i].id != id)
			continue;
		if (pid < all[i].pid)
			all[i].pid = pid;
		return true;
	}
	return false;
}

/* All namespaces but our own. */
static size_t namespaces(struct mount_namespace **ret_all)
{
	cleanup_closedir DIR *proc = opendir("/proc");
	struct mount_namespace *all = NULL;
	size_t count = 0, cap = 0;
	ino_t ours = namespace_of("self");
	struct dirent *d;

	while (proc && (d = readdir(proc))) {
		pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);
		ino_t id = pid > 0 ? namespace_of(d->d_name) : 0;

		if (!id || id == ours || note(all, count, id, pid))
			continue;
		if (array_reserve((void **)&all, &cap, count, sizeof(*all)) < 0)
			break;
		all[count++] = (struct mount_namespace){.id = id, .pid = pid};
	}
	if (count)
		qsort(all, count, sizeof(*all), compare);
	*ret_all = all;
	return count;
}

static size_t elsewhere(const struct wanted *wanted, pid_t *ret_pids, size_t max)
{
	cleanup_free struct mount_namespace *all = NULL;
	size_t count = namespaces(&all), found = 0;

	for (size_t i = 0; i < count; i++) {
		if (!process_has(all[i].pid, wanted))
			continue;
		if (found < max)
			ret_pids[found] = all[i].pid;
		found++;
	}
	return found;
}

size_t mountinfo_elsewhere(const char *device, pid_t *ret_pids, size_t max)
{
	return *device ? elsewhere(&(struct wanted){.device = device}, ret_pids, max) : 0;
}

size_t mountinfo_epochfs_elsewhere(const char *path, pid_t *ret_pids, size_t max)
{
	char point[MOUNTINFO_PATH_MAX];

	mountinfo_escape(path, point);
	return elsewhere(&(struct wanted){.point = point, .type = "fuse.epochfs"}, ret_pids, max);
}

/* ---- A look through /proc for those who use a mount. ---- */

#define NAMED_MAX 3
#define MAPS_MAX  ((size_t)16 << 20)

/* The mount, by its path and its device. */
struct place {
	const char *path;
	unsigned major, minor;
	bool known; /* the device is */
};

/* What a path below the mount is called in there: NULL where it is elsewhere. */
static const char *below(const char *mount, const char *path)
{
	size_t len = strlen(mount);

	if (strncmp(path, mount, len) != 0 || (path[len] && path[len] != '/'))
		return NULL;
	return path[len] ? path + len + 1 : "";
}

/* The kernel answers from what it has: a mount that hangs is not asked. 0 or -errno. */
static int device_of(int dirfd, const char *name, unsigned *ret_major, unsigned *ret_minor)
{
	struct statx st;

	if (statx(dirfd, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st) < 0)
		return -errno;
	*ret_major = st.stx_dev_major;
	*ret_minor = st.stx_dev_minor;
	return 0;
}

/* A path may read the same and be of what the mount covers, or of another root directory. Where it cannot be told, it is of the mount. */
static bool is_of(const struct place *mount, int dirfd, const char *name)
{
	unsigned major, minor;

	return !mount->known || device_of(dirfd, name, &major, &minor) < 0 ||
	       (major == mount->major && minor == mount->minor);
}

static const char *link_below(const struct place *mount, int dirfd, const char *name,
			      char target[PATH_MAX])
{
	ssize_t n = readlinkat(dirfd, name, target, PATH_MAX - 1);
	const char *what;

	if (n <= 0)
		return NULL;
	target[n] = '\0';
	what = below(mount->path, target);
	return what && is_of(mount, dirfd, name) ? what : NULL;
}

static bool has_open(const struct place *mount, int pid_fd, char ret_what[PATH_MAX])
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
			snprintf(ret_what, PATH_MAX, "%s", *what ? what : "the top of the mount");
			return true;
		}
	}
	return false;
}

static bool has_mapped(const struct place *mount, int pid_fd, char ret_what[PATH_MAX])
{
	cleanup_buf struct buf text = {0};
	char *at, *line;

	if (io_read_file(pid_fd, "maps", MAPS_MAX, &text) != 0)
		return false;
	at = (char *)(uintptr_t)buf_str(&text);
	while ((line = strsep(&at, "\n"))) {
		const char *path = strchr(line, '/'),
			   *what = path ? below(mount->path, path) : NULL;
		unsigned major, minor;

		if (what &&
		    (!mount->known || (sscanf(line, "%*s %*s %*s %x:%x", &major, &minor) == 2 &&
				       major == mount->major && minor == mount->minor))) {
			snprintf(ret_what, PATH_MAX, "%s", what);
			return true;
		}
	}
	return false;
}

static bool uses(const struct place *mount, int pid_fd, char ret_what[PATH_MAX])
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
	struct place mount = {.path = path};
	char what[PATH_MAX];
	unsigned count = 0;
	struct dirent *d;

	mount.known = device_of(AT_FDCWD, path, &mount.major, &mount.minor) == 0;
	while (proc && (d = readdir(proc))) {
		cleanup_close int pid_fd = -1;

		if (d->d_name[0] < '0' || d->d_name[0] > '9' || atoi(d->d_name) == getpid())
			continue;
		pid_fd = openat(dirfd(proc), d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (pid_fd >= 0 && uses(&mount, pid_fd, what) && count++ < NAMED_MAX)
			add(&text, pid_fd, d->d_name, what);
	}
	if (count > NAMED_MAX)
		buf_printf(&text, " and %u more", count - NAMED_MAX);
	snprintf(ret_text, MOUNT_USERS_TEXT, "%s", buf_error(&text) ? "" : buf_str(&text));
	printable_mask(ret_text);
}
