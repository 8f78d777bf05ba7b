/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that writes down what happens to it, for a loop device over it:
 *
 *	recorder IMAGE LOG MOUNTPOINT
 *
 * MOUNTPOINT gets two files: `disk`, which is IMAGE, and `mark`. Each write to `disk`, each flush of
 * it (a flush of the loop device is an fsync here) and each write to `mark` is appended to LOG before
 * it is answered: a record of 16 bytes in the host's order, struct record, and the bytes. One thread
 * serves all, so LOG has one order: who wrote a mark after his fsync had returned finds in front of
 * it all that this fsync brought to the disk. Runs in the foreground until MOUNTPOINT is unmounted.
 */
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct record {
	uint32_t type;
	uint32_t len;
	uint64_t offset; /* on the disk; of a write only */
};

enum { RECORD_WRITE = 1, RECORD_FLUSH = 2, RECORD_MARK = 3 };

static int image, journal;

static int note(uint32_t type, const void *data, size_t len, off_t offset)
{
	struct record r = {type, (uint32_t)len, (uint64_t)offset};
	struct iovec iov[] = {{&r, sizeof(r)}, {(void *)(uintptr_t)data, len}};

	return writev(journal, iov, 2) == (ssize_t)(sizeof(r) + len) ? 0 : -EIO;
}

static int is_disk(const char *path)
{
	return !strcmp(path, "/disk");
}

static int on_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
	(void)fi;
	if (!strcmp(path, "/")) {
		*st = (struct stat){.st_mode = S_IFDIR | 0700, .st_nlink = 2};
		return 0;
	}
	if (!is_disk(path) && strcmp(path, "/mark") != 0)
		return -ENOENT;
	if (is_disk(path) && fstat(image, st) < 0)
		return -errno;
	st->st_mode = S_IFREG | 0600;
	st->st_nlink = 1;
	return 0;
}

static int on_open(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	fi->direct_io = 1; /* no page of the kernel's stands between the loop device and LOG */
	return 0;
}

static int on_read(const char *path, char *out, size_t len, off_t offset, struct fuse_file_info *fi)
{
	ssize_t got = is_disk(path) ? pread(image, out, len, offset) : 0;

	(void)fi;
	return got < 0 ? -errno : (int)got;
}

static int on_write(const char *path, const char *data, size_t len, off_t offset,
		    struct fuse_file_info *fi)
{
	int error = note(is_disk(path) ? RECORD_WRITE : RECORD_MARK, data, len, offset);

	(void)fi;
	if (!error && is_disk(path) && pwrite(image, data, len, offset) != (ssize_t)len)
		error = -EIO;
	return error ? error : (int)len;
}

static int on_fsync(const char *path, int data_only, struct fuse_file_info *fi)
{
	(void)data_only;
	(void)fi;
	return is_disk(path) ? note(RECORD_FLUSH, NULL, 0, 0) : 0;
}

/* No fallocate: the block layer then writes the zeros of what it would punch or zero. */
static const struct fuse_operations operations = {
	.getattr = on_getattr,
	.open = on_open,
	.read = on_read,
	.write = on_write,
	.fsync = on_fsync,
};

int main(int argc, char **argv)
{
	char foreground[] = "-f", one_thread[] = "-s";
	char *words[] = {argv[0], foreground, one_thread, argc == 4 ? argv[3] : NULL, NULL};

	if (argc != 4) {
		fprintf(stderr, "usage: recorder IMAGE LOG MOUNTPOINT\n");
		return 2;
	}
	image = open(argv[1], O_RDWR | O_CLOEXEC);
	journal = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (image < 0 || journal < 0) {
		fprintf(stderr, "recorder: %s, %s: %s\n", argv[1], argv[2], strerror(errno));
		return 1;
	}
	return fuse_main(4, words, &operations, NULL);
}
