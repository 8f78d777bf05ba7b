/* SPDX-License-Identifier: Apache-2.0 */
/* Whole reads and writes, and replacing a file atomically. */
#include "lib/util/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define COPY_STEP ((size_t)1 << 20)
#define READ_STEP ((size_t)64 << 10)

/* Bytes that the kernel copies between two looks at whether to stop. */
#define CLONE_STEP ((size_t)32 << 20)

ssize_t io_pread_some(int fd, void *data, size_t len, uint64_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = pread(fd, (char *)data + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int io_pread_full(int fd, void *data, size_t len, uint64_t offset)
{
	ssize_t n = io_pread_some(fd, data, len, offset);

	if (n < 0)
		return (int)n;
	return (size_t)n == len ? 0 : -ENODATA;
}

int io_pwrite_full(int fd, const void *data, size_t len, uint64_t offset)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n =
			pwrite(fd, (const char *)data + done, len - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

int io_write_full(int fd, const void *data, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = write(fd, (const char *)data + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

/* Appends what is left of the file; the caller takes back what came before an error. */
static int read_to_end(int fd, size_t max, struct buf *out)
{
	size_t start = out->len;

	for (;;) {
		ssize_t n;

		if (buf_reserve(out, READ_STEP) < 0)
			return -ENOMEM;
		n = read(fd, out->data + out->len, READ_STEP);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		out->len += (size_t)n;
		if (out->len - start > max)
			return -EFBIG;
	}
}

int io_read_file(int dirfd, const char *path, size_t max, struct buf *out)
{
	/* O_NONBLOCK: the open of a pipe that nobody writes to would never return. */
	cleanup_close int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	size_t start = out->len;
	struct stat st;
	int error;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	if ((uint64_t)st.st_size > max)
		return -EFBIG;
	if (buf_reserve(out, (size_t)st.st_size + READ_STEP) < 0)
		return -ENOMEM;
	error = read_to_end(fd, max, out);
	if (error)
		out->len = start;
	return error;
}

int io_fsync_parent(int dirfd, const char *path)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];
	cleanup_close int fd = -1;

	if (!slash)
		snprintf(parent, sizeof(parent), ".");
	else if (slash == path)
		snprintf(parent, sizeof(parent), "/");
	else if ((size_t)(slash - path) < sizeof(parent))
		snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path), path);
	else
		return -ENAMETOOLONG;
	fd = openat(dirfd, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		return -errno;
	return 0;
}

int io_replace_file(int dirfd, const char *path, const void *data, size_t len)
{
	static atomic_uint counter;
	char temporary[PATH_MAX];
	int fd, error;

	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.tmp%d.%u", path, (int)getpid(),
			     atomic_fetch_add(&counter, 1)) >= sizeof(temporary))
		return -ENAMETOOLONG;
	fd = openat(dirfd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	error = io_write_full(fd, data, len);
	if (!error && fsync(fd) < 0)
		error = -errno;
	close(fd);
	if (!error && renameat(dirfd, temporary, dirfd, path) < 0)
		error = -errno;
	if (error) {
		unlinkat(dirfd, temporary, 0);
		return error;
	}
	return io_fsync_parent(dirfd, path);
}

/* A copy under way, which may be told to stop. */
struct copy {
	int from, to;
	bool (*stop)(void *arg);
	void *arg;
};

static int copy_by_buffer(const struct copy *c, uint64_t offset, uint64_t end)
{
	cleanup_free char *data = malloc(COPY_STEP);

	if (!data)
		return -ENOMEM;
	while (offset < end) {
		size_t want = end - offset < COPY_STEP ? (size_t)(end - offset) : COPY_STEP;
		ssize_t n = io_pread_some(c->from, data, want, offset);
		int error;

		if (n <= 0)
			return n < 0 ? (int)n : 0;
		error = io_pwrite_full(c->to, data, (size_t)n, offset);
		if (error)
			return error;
		offset += (uint64_t)n;
		if (c->stop && c->stop(c->arg))
			return -EINTR;
	}
	return 0;
}

static int copy_extent(const struct copy *c, uint64_t offset, uint64_t end)
{
	while (offset < end) {
		loff_t in = (loff_t)offset, out = (loff_t)offset;
		size_t want = end - offset < CLONE_STEP ? (size_t)(end - offset) : CLONE_STEP;
		ssize_t n = copy_file_range(c->from, &in, c->to, &out, want, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP ||
			      errno == ENOSYS || errno == EBADF))
			return copy_by_buffer(c, offset, end);
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		offset += (uint64_t)n;
		if (c->stop && c->stop(c->arg))
			return -EINTR;
	}
	return 0;
}

int io_truncate(int fd, uint64_t size)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
	struct stat st;

	if (!size && fstat(fd, &st) == 0 && !st.st_size && !st.st_blocks)
		return futimens(fd, times) < 0 ? -errno : 0;
	return ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
}

int io_clone_until(int from, int to, uint64_t size, bool (*stop)(void *arg), void *arg)
{
	const struct copy c = {.from = from, .to = to, .stop = stop, .arg = arg};
	uint64_t offset = 0;
	/* Nothing of the old content may stay where `from` is shorter than size. */
	int emptied = io_truncate(to, 0);

	if (emptied)
		return emptied;
	if (ioctl(to, FICLONE, from) == 0)
		return ftruncate(to, (off_t)size) < 0 ? -errno : 0;
	if (ftruncate(to, (off_t)size) < 0)
		return -errno;
	while (offset < size) {
		off_t data = lseek(from, (off_t)offset, SEEK_DATA), hole;
		uint64_t end;
		int error;

		if (data < 0 && errno == ENXIO)
			return 0;
		if (data < 0)
			data = (off_t)offset;
		if ((uint64_t)data >= size)
			return 0;
		hole = lseek(from, data, SEEK_HOLE);
		end = hole < 0 || (uint64_t)hole > size ? size : (uint64_t)hole;
		error = copy_extent(&c, (uint64_t)data, end);
		if (error)
			return error;
		offset = end;
	}
	return 0;
}

int io_clone(int from, int to, uint64_t size)
{
	return io_clone_until(from, to, size, NULL, NULL);
}

uint64_t io_allocated(int fd, uint64_t size)
{
	struct stat st;
	uint64_t allocated = fstat(fd, &st) < 0 ? size : (uint64_t)st.st_blocks * 512;

	return allocated < size ? allocated : size;
}

int io_reopen(int fd, int flags)
{
	char path[64];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	return again < 0 ? -errno : again;
}

/* 0 where the lease is granted, else -errno; -EAGAIN where somebody has the file. */
static int try_lease(int fd, int kind)
{
	if (fcntl(fd, F_SETLEASE, kind) < 0)
		return errno == EBUSY ? -EAGAIN : -errno;
	fcntl(fd, F_SETLEASE, F_UNLCK);
	return 0;
}

enum io_writers io_writers(int fd)
{
	int error = try_lease(fd, F_RDLCK);

	return !error ? IO_WRITERS_NONE : error == -EAGAIN ? IO_WRITERS_SOME : IO_WRITERS_UNKNOWN;
}

enum io_users io_users(int fd)
{
	int error = try_lease(fd, F_WRLCK);

	return !error ? IO_USERS_NONE : error == -EAGAIN ? IO_USERS_SOME : IO_USERS_UNKNOWN;
}

int io_mkdir_p(const char *path)
{
	char part[PATH_MAX];
	size_t len = strlen(path);

	if (!len || len >= sizeof(part))
		return len ? -ENAMETOOLONG : -ENOENT;
	memcpy(part, path, len + 1);
	for (char *p = part + 1;; p++) {
		char c = *p;

		if (c != '/' && c != '\0')
			continue;
		*p = '\0';
		if (mkdir(part, 0700) < 0 && errno != EEXIST) {
			struct stat st;
			int error = -errno;

			if (stat(part, &st) < 0 || !S_ISDIR(st.st_mode))
				return error;
		}
		*p = c;
		if (c == '\0')
			break;
	}
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int io_opendir(int dirfd, DIR **ret_dir)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int error = dir ? 0 : -errno;

	if (!dir && fd >= 0)
		close(fd);
	if (dir)
		*ret_dir = dir;
	return error;
}

int io_readdir(DIR *dir, const char **ret_name)
{
	for (;;) {
		const struct dirent *entry;

		errno = 0;
		entry = readdir(dir);
		if (!entry)
			return -errno;
		*ret_name = entry->d_name;
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			return 1;
	}
}

int io_remove_tree(int dirfd, const char *path)
{
	int got, fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_closedir DIR *dir = NULL;
	const char *name;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return unlinkat(dirfd, path, 0) < 0 && errno != ENOENT ? -errno : 0;
	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}
	while ((got = io_readdir(dir, &name)) > 0) {
		int error = io_remove_tree(fd, name);

		if (error)
			return error;
	}
	if (got)
		return got;
	return unlinkat(dirfd, path, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}
