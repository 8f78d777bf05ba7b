/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are sent again. The kernel marks what an earlier worker read and did not answer; it may have been carried out
 * all the same. Doing it twice is harmless for most (a lookup, a read, a write to an offset, attributes). For
 * the others the second time fails, and then what the first would have left is looked for. That this is no other's
 * doing follows from the kernel: it has seen that a name that is to be made was free, and one that is to go was there, and holds
 * the directory locked until the answer comes. What cannot be told apart so is EIO. Private to fs/.
 */
#ifndef EPOCHFS_FS_RESENT_H
#define EPOCHFS_FS_RESENT_H

#include "fs/fs.h"

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
