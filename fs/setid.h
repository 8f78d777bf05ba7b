/* SPDX-License-Identifier: Apache-2.0 */
/*
 * setuid and setgid of files. The kernel leaves it to us to take them away (FUSE_HANDLE_KILLPRIV_V2): at every chown, and when
 * others than root change what a file holds. As on a local disk: setuid always; setgid with it where the group may execute,
 * or where the caller is not of the file's group.
 */
#ifndef EPOCHFS_FS_SETID_H
#define EPOCHFS_FS_SETID_H

#include "fs/fs.h"

/* Whether a write by anybody could take bits away. */
bool setid_may_drop(mode_t mode);
/* The mode that a change by the caller leaves of the mode of a file of this group. */
mode_t setid_after_change(fuse_req_t req, mode_t mode, gid_t gid);
/* The caller changes the content of a live file: takes away what must go. 0 or -errno. */
int setid_drop(fuse_req_t req, struct node *n);

#endif
