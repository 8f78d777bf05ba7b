/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that fails while a directory is listed: readdir of the whole program, the library included. */
#ifndef EPOCHFS_TESTS_READDIR_UNIT_H
#define EPOCHFS_TESTS_READDIR_UNIT_H

#include <dirent.h>
#include <dlfcn.h>
#include "tests/unit/unit.h"

/* Listings of a directory whose path ends so (NULL: none) fail with EIO once `entries` came of them,
 * `.` and `..` included. */
static const char *readdir_fails_in;
static unsigned readdir_entries;
static unsigned readdir_listings;		 /* so many listings of it are well before */
static unsigned readdir_failures;		 /* how often it did */
static unsigned readdir_failures_max = UINT_MAX; /* after that the disk is well again */

static bool readdir_is_of(DIR *dir, const char *end)
{
	char link[64], path[PATH_MAX];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd(dir));
	len = readlink(link, path, sizeof(path));
	return len >= (ssize_t)strlen(end) &&
	       memcmp(path + len - strlen(end), end, strlen(end)) == 0;
}

struct dirent *readdir(DIR *dir)
{
	static struct dirent *(*real)(DIR *);
	static DIR *last;
	static unsigned came;
	static bool well;

	if (!real)
		real = (struct dirent * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir64");
	if (!readdir_fails_in || !readdir_is_of(dir, readdir_fails_in))
		return real(dir);
	if (dir != last || telldir(dir) == 0) {
		came = 0;
		well = readdir_listings > 0;
		readdir_listings -= well;
	}
	last = dir;
	if (well || came++ < readdir_entries || readdir_failures == readdir_failures_max)
		return real(dir);
	readdir_failures++;
	errno = EIO;
	return NULL;
}

#endif
