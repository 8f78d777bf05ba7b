/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts, in a process that it is preloaded into, the system calls that change or sync a disk, and
 * kills the process right after one of them:
 *
 *	LD_PRELOAD=libcalls.so EPOCHFS_CALLS=FILE epochfs mount -f ...
 *
 * FILE holds two numbers of 8 bytes in the host's order: how many calls there were, by all threads,
 * and after which of them the process gets SIGKILL (0: after none). It is shared memory, so it can be
 * read while the process runs and when it is dead. Calls that fail do not count, nor writes to what
 * is no regular file (pipes, sockets, /dev/fuse), to memory files, or to the standard streams. The
 * wrapped names are those that epochfs and SQLite are linked to (nm -D --undefined-only).
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

struct shared {
	atomic_uint_least64_t count;
	uint64_t kill_after;
};

static struct shared *shared;

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("EPOCHFS_CALLS");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		shared = map;
}

static void done(void)
{
	if (shared && atomic_fetch_add(&shared->count, 1) + 1 == shared->kill_after) {
		kill(getpid(), SIGKILL);
		/* The other threads may already be gone; this one goes no further. */
		pause();
	}
}

static int on_disk(int fd)
{
	struct stat st;

	/* A memory file has no name. */
	return fd > STDERR_FILENO && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       (fcntl(fd, F_GET_SEALS) < 0 || st.st_nlink > 0);
}

/* WRAP(type, name, (parameters), (arguments), whether it counts) */
#define WRAP(type, name, parameters, arguments, counts)                                            \
	type name parameters                                                                       \
	{                                                                                          \
		static type(*_Atomic real) parameters;                                             \
		type result;                                                                       \
                                                                                                   \
		if (!real)                                                                         \
			real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                        \
		result = real arguments;                                                           \
		if (result >= 0 && (counts))                                                       \
			done();                                                                    \
		return result;                                                                     \
	}

WRAP(ssize_t, write, (int fd, const void *data, size_t len), (fd, data, len), on_disk(fd))
WRAP(ssize_t, pwrite64, (int fd, const void *data, size_t len, off_t offset),
     (fd, data, len, offset), on_disk(fd))
WRAP(ssize_t, pwritev64v2, (int fd, const struct iovec *iov, int count, off_t offset, int flags),
     (fd, iov, count, offset, flags), on_disk(fd))
WRAP(ssize_t, splice, (int in, off_t *off_in, int out, off_t *off_out, size_t len, unsigned flags),
     (in, off_in, out, off_out, len, flags), on_disk(out))
WRAP(ssize_t, copy_file_range,
     (int in, off_t *off_in, int out, off_t *off_out, size_t len, unsigned flags),
     (in, off_in, out, off_out, len, flags), on_disk(out))
WRAP(int, ftruncate64, (int fd, off_t size), (fd, size), on_disk(fd))
WRAP(int, fallocate64, (int fd, int mode, off_t offset, off_t len), (fd, mode, offset, len), 1)
WRAP(int, fsync, (int fd), (fd), 1)
WRAP(int, fdatasync, (int fd), (fd), 1)
WRAP(int, syncfs, (int fd), (fd), 1)
WRAP(int, renameat, (int from_dir, const char *from, int to_dir, const char *to),
     (from_dir, from, to_dir, to), 1)
WRAP(int, renameat2,
     (int from_dir, const char *from, int to_dir, const char *to, unsigned int flags),
     (from_dir, from, to_dir, to, flags), 1)
WRAP(int, linkat, (int from_dir, const char *from, int to_dir, const char *to, int flags),
     (from_dir, from, to_dir, to, flags), 1)
WRAP(int, symlinkat, (const char *target, int dir, const char *name), (target, dir, name), 1)
WRAP(int, unlink, (const char *path), (path), 1)
WRAP(int, unlinkat, (int dir, const char *name, int flags), (dir, name, flags), 1)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), 1)
WRAP(int, mkdirat, (int dir, const char *name, mode_t mode), (dir, name, mode), 1)
WRAP(int, fsetxattr, (int fd, const char *name, const void *value, size_t len, int flags),
     (fd, name, value, len, flags), 1)

/* Those with a variable parameter. */

static mode_t mode_of(int flags, va_list more)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(more, mode_t) : 0;
}

int open64(const char *path, int flags, ...)
{
	va_list more;
	mode_t mode;

	va_start(more, flags);
	mode = mode_of(flags, more);
	va_end(more);
	return openat(AT_FDCWD, path, flags, mode);
}

int openat64(int dir, const char *path, int flags, ...)
{
	static int (*_Atomic real)(int, const char *, int, ...);
	va_list more;
	mode_t mode;
	int fd;

	va_start(more, flags);
	mode = mode_of(flags, more);
	va_end(more);
	if (!real)
		real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
	fd = real(dir, path, flags, mode);
	if (fd >= 0 && flags & (O_CREAT | O_TRUNC))
		done();
	return fd;
}

int ioctl(int fd, unsigned long request, ...)
{
	static int (*_Atomic real)(int, unsigned long, ...);
	va_list more;
	void *arg;
	int result;

	va_start(more, request);
	arg = va_arg(more, void *);
	va_end(more);
	if (!real)
		real = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	result = real(fd, request, arg);
	if (result >= 0 && (request == FICLONE || request == FICLONERANGE))
		done();
	return result;
}
