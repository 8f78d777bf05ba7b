/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the cache's disk has room for one more write. */
#include "lib/cache/disk_room.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/cache/context.h"

#define MIB (UINT64_C(1) << 20)
/* Less is no room: what one write takes. */
#define ONE_WRITE MIB
/* The most that XFS asks for at once for a buffered write, and what its own records take. */
#define ONE_WRITE_XFS (5 * MIB)
/* ext4 keeps some of the free blocks for itself, whoever asks: a 50th of the disk with its tables, at most so many. */
#define EXT_OWN_PART 40
#define EXT_OWN_MAX  4096

/* Whether blocks that are kept for root are given to this process: capabilities count, the user, and options of that mount, so it is tried. */
static bool has_root_blocks(struct volume *vol)
{
	cleanup_close int fd = -1;

	if (atomic_load(&vol->has_root_blocks))
		return true;
	fd = openat(vol->objects_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 || fallocate(fd, 0, 0, ONE_WRITE) < 0)
		return false;
	atomic_store(&vol->has_root_blocks, true);
	return true;
}

/* Bytes that the kernel still gives to this process. */
static uint64_t bytes_left(struct volume *vol, const struct statfs *fs)
{
	uint64_t size = (uint64_t)fs->f_bsize, all = (uint64_t)fs->f_blocks, own, free;

	if (fs->f_type != EXT4_SUPER_MAGIC || (uint64_t)fs->f_bavail * size >= ONE_WRITE)
		return (uint64_t)fs->f_bavail * size;
	own = all / EXT_OWN_PART < EXT_OWN_MAX ? all / EXT_OWN_PART : EXT_OWN_MAX;
	free = (uint64_t)fs->f_bfree > own ? ((uint64_t)fs->f_bfree - own) * size : 0;
	return free >= ONE_WRITE && has_root_blocks(vol) ? free : 0;
}

struct disk_room disk_room(struct volume *vol)
{
	struct disk_room room = {.left = UINT64_MAX, .at_ns = clock_wall_ns()};
	struct statfs fs;
	uint64_t least;

	if (fstatfs(vol->objects_fd, &fs) < 0)
		return room;
	least = fs.f_type == XFS_SUPER_MAGIC ? ONE_WRITE_XFS : ONE_WRITE;
	room.left = bytes_left(vol, &fs);
	if (room.left < least)
		room.left = 0;
	return room;
}

void disk_note(struct volume *vol)
{
	if (!disk_room(vol).left)
		atomic_store(&vol->disk_was_full, true);
}
