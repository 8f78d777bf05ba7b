/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts, in a process that it is preloaded into, the system calls on a disk, and kills the process
 * after one of them, or lets some of them fail:
 *
 *	LD_PRELOAD=libcalls.so EPOCHFS_CALLS=FILE [EPOCHFS_CALLS_BELOW=DIR] epochfs mount -f ...
 *
 * FILE holds the struct shared below in the host's order. It is shared memory, so it can be read while
 * the process runs and when it is dead.
 *
 * Without DIR, calls that change or sync any disk are counted once they succeeded, and `kill_after` is
 * the one after which the process gets SIGKILL (0: none). Not counted are writes to what is no regular
 * file (pipes, sockets, /dev/fuse), to memory files, or to the standard streams.
 *
 * With DIR, calls on files below it are counted before they are made, and those from `fail_first` to
 * `fail_last` fail with `fail_errno`. Those that this error is never seen of do not count: ENOSPC comes of
 * calls that may take space (a sync included, where the file system allocates late), EIO of all, reading
 * included. The first write that finds no space is done by half, as by the kernel. `failed` tells which call
 * failed first.
 *
 * With EPOCHFS_CALLS_OF=DIR in its place, the process is one that uses a mount: calls that change what lies below DIR are counted once
 * they succeeded, the close of what was open for writing as well, and `kill_after` ends it after one of them; `failed` tells after which.
 *
 * The wrapped names are those that epochfs and SQLite are linked to (nm -D --undefined-only), and Python and the C++ library.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

struct shared {
	atomic_uint_least64_t count;
	uint64_t kill_after;
	uint64_t fail_first, fail_last; /* 0: none */
	uint64_t fail_errno;
	char failed[256]; /* the call and its path */
};

/* What a call wants of the disk. */
enum wants { READS, GROWS, SHRINKS };

static struct shared *shared;
static char below[PATH_MAX], of[PATH_MAX];
static _Thread_local int the_first;

__attribute__((constructor)) static void start(void)
{
	const char *path = getenv("EPOCHFS_CALLS"), *dir = getenv("EPOCHFS_CALLS_BELOW"),
		   *user = getenv("EPOCHFS_CALLS_OF");
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (dir)
		snprintf(below, sizeof(below), "%s/", dir);
	if (user)
		snprintf(of, sizeof(of), "%s/", user);
	if (map != MAP_FAILED)
		shared = map;
}

/* Of what an open file is, or of a path from a directory: whether it lies below `top`. */
static int is_below(const char *top, int fd, const char *path, char ret_path[PATH_MAX])
{
	char link[32];
	ssize_t len;

	ret_path[0] = '\0';
	if (!path || path[0] != '/') {
		snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		len = readlink(link, ret_path, PATH_MAX - 1);
		if (len < 0)
			return 0;
		ret_path[len] = '\0';
	}
	if (path) {
		size_t at = strlen(ret_path);

		snprintf(ret_path + at, PATH_MAX - at, "%s%s", at ? "/" : "", path);
	}
	return strncmp(ret_path, top, strlen(top)) == 0;
}

/* Whether this call is to fail: errno says how then. */
static int fails(const char *name, enum wants wants, int fd, const char *path)
{
	char full[PATH_MAX];
	int saved = errno;
	uint64_t number;

	if (!shared || !below[0] || (shared->fail_errno == ENOSPC && wants != GROWS))
		return 0;
	if (!is_below(below, fd, path, full)) {
		errno = saved;
		return 0;
	}
	errno = saved;
	number = atomic_fetch_add(&shared->count, 1) + 1;
	if (number < shared->fail_first || number > shared->fail_last)
		return 0;
	if (number == shared->fail_first)
		snprintf(shared->failed, sizeof(shared->failed), "%s %s", name,
			 full + strlen(below));
	the_first = number == shared->fail_first && number < shared->fail_last;
	errno = (int)shared->fail_errno;
	return 1;
}

/* Whether a write that is to fail is done by half: the first that finds the disk full. */
static int half(size_t len)
{
	return the_first && shared->fail_errno == ENOSPC && len > 1;
}

static void count(void)
{
	if (atomic_fetch_add(&shared->count, 1) + 1 != shared->kill_after)
		return;
	kill(getpid(), SIGKILL);
	/* The other threads may already be gone; this one goes no further. */
	pause();
}

/* A call of a process that uses a mount, which succeeded. */
static void done_of(const char *name, const char *full)
{
	snprintf(shared->failed, sizeof(shared->failed), "%s %s", name, full + strlen(of));
	count();
}

static void done(const char *name, int fd, const char *path)
{
	char full[PATH_MAX];
	int saved = errno;

	if (!shared || below[0])
		return;
	if (!of[0])
		count();
	else if (is_below(of, fd, path, full))
		done_of(name, full);
	errno = saved;
}

static int on_disk(int fd)
{
	struct stat st;

	/* A memory file has no name. */
	return fd > STDERR_FILENO && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       (fcntl(fd, F_GET_SEALS) < 0 || st.st_nlink > 0);
}

/* WRAP(type, name, (parameters), (arguments), whether it counts, what it wants, fd, path) */
#define WRAP(type, name, parameters, arguments, counts, wants, fd, path)                           \
	WRAP_ELSE(type, name, parameters, arguments, counts, wants, fd, path, -1)

/* The same, with what it gives where it is to fail. */
#define WRAP_ELSE(type, name, parameters, arguments, counts, wants, fd, path, otherwise)           \
	type name parameters                                                                       \
	{                                                                                          \
		static type(*_Atomic real) parameters;                                             \
		type result;                                                                       \
                                                                                                   \
		if (!real)                                                                         \
			real = (type(*) parameters)dlsym(RTLD_NEXT, #name);                        \
		if (fails(#name, wants, fd, path))                                                 \
			return otherwise;                                                          \
		result = real arguments;                                                           \
		if (result >= 0 && (counts))                                                       \
			done(#name, fd, path);                                                     \
		return result;                                                                     \
	}

WRAP(ssize_t, read, (int fd, void *data, size_t len), (fd, data, len), 0, READS, fd, NULL)
WRAP(ssize_t, pread64, (int fd, void *data, size_t len, off_t offset), (fd, data, len, offset), 0,
     READS, fd, NULL)
WRAP_ELSE(ssize_t, write, (int fd, const void *data, size_t len), (fd, data, len), on_disk(fd),
	  GROWS, fd, NULL, half(len) ? real(fd, data, len / 2) : -1)
WRAP_ELSE(ssize_t, pwrite64, (int fd, const void *data, size_t len, off_t offset),
	  (fd, data, len, offset), on_disk(fd), GROWS, fd, NULL,
	  half(len) ? real(fd, data, len / 2, offset) : -1)
WRAP(ssize_t, pwritev64v2, (int fd, const struct iovec *iov, int count, off_t offset, int flags),
     (fd, iov, count, offset, flags), on_disk(fd), GROWS, fd, NULL)
WRAP(ssize_t, splice, (int in, off_t *off_in, int out, off_t *off_out, size_t len, unsigned flags),
     (in, off_in, out, off_out, len, flags), on_disk(out), GROWS, out, NULL)
WRAP(ssize_t, copy_file_range,
     (int in, off_t *off_in, int out, off_t *off_out, size_t len, unsigned flags),
     (in, off_in, out, off_out, len, flags), on_disk(out), GROWS, out, NULL)
WRAP(int, ftruncate64, (int fd, off_t size), (fd, size), on_disk(fd), GROWS, fd, NULL)
WRAP(int, fallocate64, (int fd, int mode, off_t offset, off_t len), (fd, mode, offset, len), 1,
     GROWS, fd, NULL)
WRAP(int, fsync, (int fd), (fd), 1, GROWS, fd, NULL)
WRAP(int, fdatasync, (int fd), (fd), 1, GROWS, fd, NULL)
WRAP(int, syncfs, (int fd), (fd), 1, GROWS, fd, NULL)
WRAP(ssize_t, writev, (int fd, const struct iovec *iov, int n), (fd, iov, n), of[0] && on_disk(fd),
     GROWS, fd, NULL)
WRAP(int, rename, (const char *from, const char *to), (from, to), of[0], GROWS, AT_FDCWD, to)
WRAP(int, renameat, (int from_dir, const char *from, int to_dir, const char *to),
     (from_dir, from, to_dir, to), 1, GROWS, to_dir, to)
WRAP(int, renameat2,
     (int from_dir, const char *from, int to_dir, const char *to, unsigned int flags),
     (from_dir, from, to_dir, to, flags), 1, GROWS, to_dir, to)
WRAP(int, linkat, (int from_dir, const char *from, int to_dir, const char *to, int flags),
     (from_dir, from, to_dir, to, flags), 1, GROWS, to_dir, to)
WRAP(int, symlinkat, (const char *target, int dir, const char *name), (target, dir, name), 1, GROWS,
     dir, name)
WRAP(int, unlink, (const char *path), (path), 1, SHRINKS, AT_FDCWD, path)
WRAP(int, unlinkat, (int dir, const char *name, int flags), (dir, name, flags), 1, SHRINKS, dir,
     name)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), 1, GROWS, AT_FDCWD, path)
WRAP(int, mkdirat, (int dir, const char *name, mode_t mode), (dir, name, mode), 1, GROWS, dir, name)
WRAP(int, fsetxattr, (int fd, const char *name, const void *value, size_t len, int flags),
     (fd, name, value, len, flags), 1, GROWS, fd, NULL)

/* What it gives is a pointer: none at the end, and where it fails. */
struct dirent64 *readdir64(DIR *dir)
{
	static struct dirent64 *(*_Atomic real)(DIR *);

	if (!real)
		real = (struct dirent64 * (*)(DIR *)) dlsym(RTLD_NEXT, "readdir64");
	return fails("readdir", READS, dirfd(dir), NULL) ? NULL : real(dir);
}

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
	if (fails("openat", flags & (O_CREAT | O_TRUNC) ? GROWS : READS, dir, path))
		return -1;
	fd = real(dir, path, flags, mode);
	if (fd >= 0 && flags & (O_CREAT | O_TRUNC))
		done("open", dir, path);
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
	if ((request == FICLONE || request == FICLONERANGE) && fails("clone", GROWS, fd, NULL))
		return -1;
	result = real(fd, request, arg);
	if (result >= 0 && (request == FICLONE || request == FICLONERANGE))
		done("clone", fd, NULL);
	return result;
}

/* Of processes that use a mount alone. */

/* Whether its close is to be counted: the path is what is told then. */
static int counts_close(int fd, char ret_path[PATH_MAX])
{
	int saved = errno, flags = of[0] && shared ? fcntl(fd, F_GETFL) : -1;
	int is = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && is_below(of, fd, NULL, ret_path);

	errno = saved;
	return is;
}

int close(int fd)
{
	static int (*_Atomic real)(int);
	char full[PATH_MAX];
	int counts = counts_close(fd, full), result;

	if (!real)
		real = (int (*)(int))dlsym(RTLD_NEXT, "close");
	result = real(fd);
	if (counts)
		done_of("close", full);
	return result;
}

/* The C++ library opens and closes files so. */
int fclose(FILE *file)
{
	static int (*_Atomic real)(FILE *);
	char full[PATH_MAX];
	int counts = counts_close(fileno(file), full), result;

	if (!real)
		real = (int (*)(FILE *))dlsym(RTLD_NEXT, "fclose");
	result = real(file);
	if (counts)
		done_of("close", full);
	return result;
}

FILE *fopen64(const char *path, const char *mode)
{
	static FILE *(*_Atomic real)(const char *, const char *);
	FILE *file;

	if (!real)
		real = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen64");
	file = real(path, mode);
	if (file && mode[0] != 'r' && of[0])
		done("open", AT_FDCWD, path);
	return file;
}
