/* SPDX-License-Identifier: Apache-2.0 */
/* Whole reads and writes, and replacing a file atomically. All return 0 or -errno unless said
 * otherwise. */
#ifndef EPOCHFS_UTIL_IO_H
#define EPOCHFS_UTIL_IO_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "lib/util/buf.h"

/* Reads exactly len bytes at offset; -ENODATA where the file ends before. */
int io_pread_full(int fd, void *data, size_t len, uint64_t offset);
/* Reads up to len bytes at offset, fewer only at the end of file: the count, or -errno. */
ssize_t io_pread_some(int fd, void *data, size_t len, uint64_t offset);
int io_pwrite_full(int fd, const void *data, size_t len, uint64_t offset);
int io_write_full(int fd, const void *data, size_t len);

/* Appends the whole file to `out`, which stays as it was on failure; -EFBIG where the file is
 * larger than max, -EISDIR or -EINVAL where it is no regular file. dirfd may be AT_FDCWD. */
int io_read_file(int dirfd, const char *path, size_t max, struct buf *out);
/*
 * Makes `path` hold these bytes, or leaves it as it was: a temporary name in the same directory,
 * fsync, rename, fsync of the directory. Mode 0600.
 */
int io_replace_file(int dirfd, const char *path, const void *data, size_t len);
/* ftruncate, always with a new mtime. What is empty already is not touched otherwise: ext4 writes a
 * file that was ever truncated to nothing to the disk when it is closed, and whoever closes waits. */
int io_truncate(int fd, uint64_t size);
/* Opens the directory that holds path (relative to dirfd) and fsyncs it. */
int io_fsync_parent(int dirfd, const char *path);
/* Copies [0, size) from one descriptor to another, keeping holes; FICLONE where the file system
 * can, else copy_file_range, else reads and writes. The target is emptied first; where `from` is
 * shorter than size, the rest is a hole. May move the file offset of `from`. */
int io_clone(int from, int to, uint64_t size);
/* The same; where `stop` (may be NULL) gives true, polled every 32 MiB, it ends with -EINTR, and the
 * target holds a part. */
int io_clone_until(int from, int to, uint64_t size, bool (*stop)(void *arg), void *arg);
/* How many bytes of [0, size) a copy needs at most: those that are allocated, as far as that can be told. */
uint64_t io_allocated(int fd, uint64_t size);
/* Another descriptor of the file, with flags of its own, close-on-exec, also where it has no name any more. Or -errno. Needs /proc. */
int io_reopen(int fd, int flags);
/*
 * Whether somebody has the file open or mapped for writing, by a read lease, which is granted only while nobody has (fcntl(2)). `fd` is read-only. Who opens the file for
 * writing in that moment waits for microseconds, and SIGIO comes to this process: block or ignore it.
 * Not known where leases are not for us: another's file, a file system without them.
 */
enum io_writers { IO_WRITERS_NONE, IO_WRITERS_SOME, IO_WRITERS_UNKNOWN };
enum io_writers io_writers(int fd);
/*
 * Whether somebody besides `fd` has the file open or mapped, for reading or writing, by a write lease; `fd` is the only
 * descriptor that counts as the caller's own. Notes as for io_writers.
 */
enum io_users { IO_USERS_NONE, IO_USERS_SOME, IO_USERS_UNKNOWN };
enum io_users io_users(int fd);
/* A stream of its own over an open directory, from its beginning; dirfd stays the caller's. 0 or -errno; ret_dir is closed by
 * closedir (cleanup_closedir). */
int io_opendir(int dirfd, DIR **ret_dir);
/* The name of the next entry but `.` and `..`, valid until the next call: 1; 0 at the end, or -errno: what
 * is left is not known then, and must not be taken for the end. */
int io_readdir(DIR *dir, const char **ret_name);
/* mkdir -p of the parents of path and of path itself, mode 0700 for what it makes. */
int io_mkdir_p(const char *path);
/* Removes a directory with all in it; a missing one is no error. Does not follow symlinks. */
int io_remove_tree(int dirfd, const char *path);

#endif
