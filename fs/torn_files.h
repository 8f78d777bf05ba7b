/* SPDX-License-Identifier: Apache-2.0 */
/* .epochs/torn: what killed writers left, for inspection. Private to fs/. */
#ifndef EPOCHFS_FS_TORN_FILES_H
#define EPOCHFS_FS_TORN_FILES_H

#include "fs/fs.h"

int torn_file_lookup(struct fs_mount *m, const char *name, struct fuse_entry_param *ret_e);
int torn_file_stat(struct fs_mount *m, const struct node *n, struct stat *ret_st);
void torn_file_list(struct dir_reply *r, uint64_t after);
/* Opens for reading: answers the request. */
void torn_file_open(fuse_req_t req, struct node *n, int flags);
/* A descriptor of its bytes, which the caller closes. */
int torn_file_fd(struct fs_mount *m, const struct node *n, int *ret_fd);

#endif
