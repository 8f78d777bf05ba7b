/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The live tree: names and attributes, with the errno that POSIX asks for. Permission checks are
 * the kernel's (default_permissions); content goes through handle.h.
 *
 * A kernel node stands for (ino, body): `body` is 0 for all but regular files; it changes when the
 * content is replaced as a whole. While a replacement (O_TRUNC of committed, non-empty content) is
 * pending, processes that write it find its own body under the name, all others the file's. Names
 * are bytes without '/' or NUL, at most 255.
 */
#ifndef EPOCHFS_LIVE_LIVE_H
#define EPOCHFS_LIVE_LIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "lib/util/buf.h"

struct volume;

struct live_attr {
	uint64_t ino;
	uint64_t body;
	uint32_t mode, uid, gid, rdev, nlink;
	uint64_t size, blocks; /* blocks of 512 bytes */
	int64_t mtime_ns, ctime_ns, atime_ns;
	/* A replacement of this file is being written, or it is new and goes if a writer is killed (a directory, too: resume.h): do not cache
	 * the entry. */
	bool pending;
};

/* Who asks. pid is the thread id that the kernel gave (0: outside our pid namespace). */
struct live_caller {
	uint32_t uid, gid;
	pid_t pid;
};

int live_lookup(struct volume *vol, uint64_t parent, const char *name, pid_t pid,
		struct live_attr *ret_attr);
/* Whether a node of this file, with this body, can be opened for what it was looked up as: false where it was replaced or removed since
 * (look up again). Once the kernel's node is in the table that volume_set_known asks, it stays so. */
bool live_is_shown(struct volume *vol, uint64_t ino, uint64_t body);
/* body 0 for a regular file: the current one. Works as long as a handle has the body open, even
 * when unlinked. A body that is neither open nor what the file is now gives what the file is now: an
 * open asks before it opens, and only one ESTALE may come of the two. */
int live_getattr(struct volume *vol, uint64_t ino, uint64_t body, struct live_attr *ret_attr);

#define LIVE_SET_MODE  1u
#define LIVE_SET_UID   2u
#define LIVE_SET_GID   4u
#define LIVE_SET_SIZE  8u
#define LIVE_SET_ATIME 16u
#define LIVE_SET_MTIME 32u
struct live_change {
	unsigned set; /* LIVE_SET_* */
	uint32_t mode, uid, gid;
	uint64_t size;
	int64_t atime_ns, mtime_ns;
	pid_t pid; /* with LIVE_SET_SIZE and LIVE_SET_MTIME: who asks, as in live_caller */
	/* A change of size may fetch and copy what stays: polled meanwhile, true ends it with -EINTR. NULL: never. */
	bool (*interrupted)(void *arg);
	void *interrupted_arg;
};
/* A change of size is an edit in place, seen by all (handle.h says what is cloned aside). By the node of content that was replaced it
 * is first -ESTALE, then it changes what the file is now. */
int live_setattr(struct volume *vol, uint64_t ino, uint64_t body, const struct live_change *change,
		 struct live_attr *ret_attr);

int live_mkdir(struct volume *vol, uint64_t parent, const char *name, mode_t mode,
	       const struct live_caller *who, struct live_attr *ret_attr);
/* fifo, socket, device, or an empty regular file. */
int live_mknod(struct volume *vol, uint64_t parent, const char *name, mode_t mode, dev_t rdev,
	       const struct live_caller *who, struct live_attr *ret_attr);
int live_symlink(struct volume *vol, uint64_t parent, const char *name, const char *target,
		 const struct live_caller *who, struct live_attr *ret_attr);
/* `who` may be NULL, as for live_rename. */
int live_link(struct volume *vol, uint64_t ino, uint64_t parent, const char *name,
	      const struct live_caller *who, struct live_attr *ret_attr);
int live_unlink(struct volume *vol, uint64_t parent, const char *name);
int live_rmdir(struct volume *vol, uint64_t parent, const char *name);
/* flags: RENAME_NOREPLACE, RENAME_EXCHANGE, else -EINVAL. May seal an epoch (a temporary name made
 * final). `who` may be NULL: not known. */
int live_rename(struct volume *vol, uint64_t parent, const char *name, uint64_t new_parent,
		const char *new_name, unsigned flags, const struct live_caller *who);
int live_readlink(struct volume *vol, uint64_t ino, struct buf *out);

/*
 * Names with a cookie below `before` (0: all), in falling order; "." and ".." are the caller's. fn
 * non-zero stops; that is no error. Cookies rise with each name that is made, so what is made after
 * a listing began is behind it: it ends, whatever is done meanwhile. A name that changes within its
 * directory keeps its cookie, and is listed once.
 */
typedef int (*live_dir_fn)(void *arg, const char *name, uint64_t cookie,
			   const struct live_attr *attr);
int live_readdir(struct volume *vol, uint64_t ino, uint64_t before, pid_t pid, live_dir_fn fn,
		 void *arg);
/* The inode of the directory above. */
int live_parent(struct volume *vol, uint64_t ino, uint64_t *ret_parent);

/* Extended attributes as they are stored; user.epochfs.* is fs/'s. Flags XATTR_CREATE,
 * XATTR_REPLACE. Value <= 64 KiB. */
int live_getxattr(struct volume *vol, uint64_t ino, const char *name, struct buf *out);
int live_setxattr(struct volume *vol, uint64_t ino, const char *name, const void *value, size_t len,
		  int flags);
int live_removexattr(struct volume *vol, uint64_t ino, const char *name);
/* Names, each with its NUL. */
int live_listxattr(struct volume *vol, uint64_t ino, struct buf *out);

/* Before this thread opens a file with these flags, or lists a directory (O_RDONLY): true where the live tree is to go back first
 * (-o resume), by live_go_back. That may take long, and the caller holds no lock of the kernel in the live tree; true: it went back. */
bool live_goes_back(struct volume *vol, uint64_t ino, int flags, pid_t pid);
bool live_go_back(struct volume *vol, uint64_t ino, int flags, pid_t pid);

/* fsync of a directory: all names and attributes so far survive a power loss. */
int live_sync(struct volume *vol);

#endif
