/* SPDX-License-Identifier: Apache-2.0 */
/* The backing files of versions: objects/<id in 16 hex digits>. */
#include "lib/volume/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <string.h>
#include <unistd.h>

void object_name(uint64_t version, char ret_name[OBJECT_NAME_MAX])
{
	snprintf(ret_name, OBJECT_NAME_MAX, "%016" PRIx64, version);
}

int object_open(struct volume *vol, uint64_t version, int flags)
{
	char name[OBJECT_NAME_MAX];
	int fd;

	object_name(version, name);
	fd = openat(vol->objects_fd, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

int object_remove(struct volume *vol, uint64_t version)
{
	char name[OBJECT_NAME_MAX];

	object_name(version, name);
	return unlinkat(vol->objects_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

bool object_is_still(struct volume *vol, uint64_t version, int fd)
{
	char name[OBJECT_NAME_MAX];
	struct stat by_name, by_fd;

	object_name(version, name);
	return fstatat(vol->objects_fd, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstat(fd, &by_fd) == 0 && by_name.st_ino == by_fd.st_ino;
}
