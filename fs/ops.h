/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that session.c gives to libfuse, and what several of them share. Private to fs/. */
#ifndef EPOCHFS_FS_OPS_H
#define EPOCHFS_FS_OPS_H

#include "fs/fs.h"

/* ops_names.c */
void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count);
void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets);
void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev);
void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name);
void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name);
void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned int flags);

/* ops_attr.c */
void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi);
void op_readlink(fuse_req_t req, fuse_ino_t ino);
void op_statfs(fuse_req_t req, fuse_ino_t ino);

/* ops_open.c */
/* Before the requester opens a node of the live tree with these flags, or lists it: the tree may go back first. True: it did, and the kernel is
 * to look the path up again. */
bool live_before_reading(fuse_req_t req, const struct node *n, int flags);
void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi);
void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);

/* ops_file.c */
void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_write_buf(fuse_req_t req, fuse_ino_t ino, struct fuse_bufvec *data, off_t off,
		  struct fuse_file_info *fi);
void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);
void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
		  struct fuse_file_info *fi);
void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t off, int whence, struct fuse_file_info *fi);
void op_copy_file_range(fuse_req_t req, fuse_ino_t ino_in, off_t off_in,
			struct fuse_file_info *fi_in, fuse_ino_t ino_out, off_t off_out,
			struct fuse_file_info *fi_out, size_t len, int flags);

/* ops_names.c */
void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi);
void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* ops_attr.c */
void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size);
void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags);
void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* ---- setuid and setgid (ops_attr.c) ---- */

/*
 * The kernel leaves it to us to take them away (FUSE_HANDLE_KILLPRIV_V2): at every chown, and when
 * others than root change what a file holds. As on a local disk: setuid always; setgid with it where the group may execute,
 * or where the caller is not of the file's group.
 */

/* Whether a write by anybody could take bits away. */
bool setid_may_drop(mode_t mode);
/* The caller changes the content of a live file: takes away what must go. 0 or -errno. */
int setid_drop(fuse_req_t req, struct node *n);

/* ---- requests that are sent again (reply.c) ---- */

/*
 * The kernel marks what an earlier worker read and did not answer; it may have been carried out
 * all the same. Doing it twice is harmless for most (a lookup, a read, a write to an offset, attributes). For
 * the others the second time fails, and then what the first would have left is looked for. That this is no other's
 * doing follows from the kernel: it has seen that a name that is to be made was free, and one that is to go was there, and holds
 * the directory locked until the answer comes. What cannot be told apart so is EIO. Private to fs/.
 */

/*
 * `error` is what making the name gave. Where it is -EEXIST, to a request that is sent again, and the name leads to just what was to
 * be made: 0, and its attributes. Else `error`. Of `made` count the type in mode; ino unless it is 0; `target`, of a symlink.
 */
int resent_made(fuse_req_t req, int error, uint64_t parent, const char *name,
		const struct live_attr *made, const char *target, struct live_attr *ret_attr);
/* The same for a name (or attribute) that was to go, where it is `missing` (-ENOENT, -ENODATA): 0. */
int resent_removed(int error, int missing);
/* The same for a rename: 0 where the new name is there. */
int resent_renamed(fuse_req_t req, int error, uint64_t new_parent, const char *new_name);
/* XATTR_CREATE of one that is there: 0 where it has that value. */
int resent_xattr(fuse_req_t req, int error, uint64_t ino, const char *name, const void *value,
		 size_t size);
/* What cannot be told: -EIO for a failure of a request that is sent again. */
int resent_unknown(int error);

#endif
