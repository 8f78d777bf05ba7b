/* SPDX-License-Identifier: Apache-2.0 */
/* Content of a few bytes, which is in the database: its backing file. */
#include "lib/volume/content_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/volume/body.h"

/* Without a lock. */
static int write_inline(struct volume *vol, const char *temporary, const struct buf *data)
{
	cleanup_close int fd = -1;

	lock_none_held(LOCK_RANKS, "writing a backing file");
	fd = openat(vol->objects_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : io_pwrite_full(fd, data->data, data->len, 0);
}

/* The file gets its place, unless somebody was first. */
static int rename_inline_locked(struct volume *vol, uint64_t version, const char *temporary)
{
	char name[OBJECT_NAME_MAX];
	struct state_version v;
	struct stat st;
	int error = state_version_get(vol->state, version, &v);

	if (error || v.state != VERSION_DURABLE || content_in_use_locked(vol, version))
		return error;
	object_name(version, name);
	if (v.local_whole && fstatat(vol->objects_fd, name, &st, 0) == 0 &&
	    (uint64_t)st.st_size == v.size)
		return 0;
	if (renameat(vol->objects_fd, temporary, vol->objects_fd, name) < 0)
		return -errno;
	v.local_bytes = v.size;
	v.local_whole = true;
	v.used_ns = clock_wall_ns();
	return state_version_set(vol->state, &v);
}

int inline_place(struct volume *vol, uint64_t version)
{
	cleanup_buf struct buf data = {0};
	struct state_version v = {0};
	char temporary[40];
	int error;

	mutex_lock(&vol->lock);
	error = state_version_get(vol->state, version, &v);
	if (!error)
		error = state_inline_get(vol->state, version, &data);
	mutex_unlock(&vol->lock);
	if (error || data.len != v.size)
		return error && error != -ENOENT ? error : -EIO;
	snprintf(temporary, sizeof(temporary), "inline-%016" PRIx64 ".tmp", object_new_id(vol));
	error = write_inline(vol, temporary, &data);
	if (!error) {
		SCOPED_LOCK(&vol->lock);
		error = rename_inline_locked(vol, version, temporary);
	}
	/* It is there no more where it has its place. */
	unlinkat(vol->objects_fd, temporary, 0);
	return error;
}
