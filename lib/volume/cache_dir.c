/* SPDX-License-Identifier: Apache-2.0 */
/* The cache directory of a volume: where it is, its lock, and what lies in it. */
#include "lib/volume/opening.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/util/io.h"
#include "lib/util/log.h"

#define ROOT_CACHE "/var/cache/epochfs"

int cache_root(const struct volume_options *o, struct buf *out, struct opening_message *m)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (o->cache_dir)
		buf_printf(out, "%s", o->cache_dir);
	else if (geteuid() == 0)
		buf_printf(out, "%s", ROOT_CACHE);
	else if (xdg && xdg[0] == '/')
		buf_printf(out, "%s/epochfs", xdg);
	else if (home && home[0] == '/')
		buf_printf(out, "%s/.cache/epochfs", home);
	else
		return opening_fail(m, -EINVAL,
				    "no place for the cache: neither XDG_CACHE_HOME nor HOME is "
				    "set; give -o cache-dir=DIR");
	if (buf_error(out))
		return -ENOMEM;
	int error = io_mkdir_p(buf_str(out));

	return error ? opening_fail(m, error,
				    "cache directory %s: %s: give another with -o cache-dir=DIR",
				    buf_str(out), strerror(-error))
		     : 0;
}

/* Held until the descriptor is closed; the file names the holder. */
static int take_lock(struct volume *vol, const char *path, struct opening_message *m)
{
	cleanup_buf struct buf holder = {0};
	char pid[32];
	int error, fd = openat(vol->cache_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		error = -errno;
		close(fd);
		if (error != -EWOULDBLOCK)
			return error;
		if (io_read_file(vol->cache_fd, "lock", sizeof(pid), &holder))
			buf_reset(&holder);
		return opening_fail(m, -ENOTUNIQ,
				    "cache %s is in use by another %s (process %s): %s "
				    "that, or give this one a cache of its own with -o "
				    "cache-dir=DIR",
				    path, vol->imports ? "import or watch" : "mount",
				    holder.len ? buf_str(&holder) : "unknown",
				    vol->imports ? "wait for" : "unmount");
	}
	/* Over what is there: a full disk has no space for another block. */
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	error = io_pwrite_full(fd, pid, strlen(pid), 0);
	if (!error && ftruncate(fd, (off_t)strlen(pid)) < 0)
		error = -errno;
	if (error) {
		close(fd);
		return error;
	}
	vol->lock_fd = fd;
	return 0;
}

static int subdirectory(struct volume *vol, const char *name, int *ret_fd)
{
	int fd;

	if (mkdirat(vol->cache_fd, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(vol->cache_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int cache_open(struct volume *vol, struct buf *out, struct opening_message *m)
{
	int error = cache_root(&vol->options, out, m);

	if (error)
		return error;
	buf_printf(out, "/%s%s", vol->uuid, vol->imports ? "/import" : "");
	error = buf_error(out);
	if (!error)
		error = io_mkdir_p(buf_str(out));
	if (!error) {
		vol->cache_fd = open(buf_str(out), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		error = vol->cache_fd < 0 ? -errno : 0;
	}
	if (!error)
		error = take_lock(vol, buf_str(out), m);
	if (!error)
		error = subdirectory(vol, "objects", &vol->objects_fd);
	if (!error)
		error = subdirectory(vol, "trees", &vol->trees_fd);
	if (!error)
		error = subdirectory(vol, "torn", &vol->torn_fd);
	return error ? opening_fail(m, error, "cache directory %s: %s", buf_str(out),
				    strerror(-error))
		     : 0;
}

int cache_errno(struct volume *vol, int error)
{
	struct stat objects, trees;

	if (error != -ENOENT || fstat(vol->objects_fd, &objects) < 0 ||
	    fstat(vol->trees_fd, &trees) < 0 || (objects.st_nlink && trees.st_nlink))
		return error;
	if (!atomic_exchange(&vol->cache_gone, true))
		log_error("%s was removed under the mount: what was not in the remote is lost; "
			  "copy what is still readable, then `umount` and mount again",
			  vol->cache_path);
	return -EIO;
}
