/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lets a directory look as if it lay on another file system, such as NFS, in a process that this is preloaded into:
 *
 *	LD_PRELOAD=libstatfs.so EPOCHFS_STATFS=TYPE:DIR epochfs mount ...
 *
 * statfs(2) of DIR and of what is below it then has TYPE, a number as in <linux/magic.h>. With offsets of 64 bits, as
 * all of epochfs is compiled with, the functions are those that the C library calls statfs64.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

static void change(const char *path, struct statfs *st)
{
	const char *how = getenv("EPOCHFS_STATFS"), *below = how ? strchr(how, ':') : NULL;
	size_t len = below ? strlen(below + 1) : 0;

	if (len && !strncmp(path, below + 1, len) && (!path[len] || path[len] == '/'))
		st->f_type = strtol(how, NULL, 0);
}

int statfs(const char *path, struct statfs *st)
{
	int (*real)(const char *, struct statfs *) = dlsym(RTLD_NEXT, "statfs64");
	int r = real(path, st);

	if (r == 0)
		change(path, st);
	return r;
}

int fstatfs(int fd, struct statfs *st)
{
	int (*real)(int, struct statfs *) = dlsym(RTLD_NEXT, "fstatfs64");
	char name[64], path[PATH_MAX];
	ssize_t len;
	int r = real(fd, st);

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	len = readlink(name, path, sizeof(path) - 1);
	if (r == 0 && len > 0) {
		path[len] = '\0';
		change(path, st);
	}
	return r;
}
