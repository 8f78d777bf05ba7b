/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of mounts: /proc/N/mountinfo, proc(5). */
#include "lib/util/mountinfo.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/util/array.h"
#include "lib/util/cleanup.h"

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

/* `point` NULL: anywhere. */
static bool list_has(const char *path, const char *device, const char *point)
{
	cleanup_fclose FILE *f = fopen(path, "re");
	cleanup_free char *line = NULL;
	size_t room = 0;

	while (f && getline(&line, &room, f) > 0) {
		char dev[MOUNTINFO_DEVICE_MAX], at[MOUNTINFO_PATH_MAX];

		if (sscanf(line, "%*d %*d %23s %*s %1023s", dev, at) == 2 && !strcmp(dev, device) &&
		    (!point || !strcmp(at, point)))
			return true;
	}
	return false;
}

bool mountinfo_has(pid_t pid, const char *device)
{
	char path[PATH_LEN] = "/proc/self/mountinfo";

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/mountinfo", (int)pid);
	return *device && list_has(path, device, NULL);
}

bool mountinfo_is_at(const char *device, const char *path)
{
	return *device && list_has("/proc/self/mountinfo", device, path);
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

size_t mountinfo_elsewhere(const char *device, pid_t *ret_pids, size_t max)
{
	cleanup_free struct mount_namespace *all = NULL;
	size_t count = namespaces(&all), found = 0;

	for (size_t i = 0; i < count; i++) {
		if (!mountinfo_has(all[i].pid, device))
			continue;
		if (found < max)
			ret_pids[found] = all[i].pid;
		found++;
	}
	return found;
}
