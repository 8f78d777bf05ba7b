/* SPDX-License-Identifier: Apache-2.0 */
/* Inside an epoch: the entries of its tree, all of them fixed for ever. Private to fs/. */
#ifndef EPOCHFS_FS_EPOCH_FILES_H
#define EPOCHFS_FS_EPOCH_FILES_H

#include "fs/fs.h"
#include "lib/util/buf.h"

/* The entry of an epoch's directory as .epochs shows it; -ENOENT. */
int epoch_dir_entry(struct fs_mount *m, uint64_t epoch, enum node_kind kind, uint32_t view,
		    struct fuse_entry_param *ret_e);
int epoch_dir_stat(struct fs_mount *m, uint64_t epoch, struct stat *ret_st);

int epoch_file_stat(struct fs_mount *m, struct node *n, struct stat *ret_st);
int epoch_file_lookup(struct fs_mount *m, struct node *dir, const char *name,
		      struct fuse_entry_param *ret_e);
int epoch_file_readlink(struct fs_mount *m, struct node *n, struct buf *out);
void epoch_file_list(struct dir_reply *r, struct node *dir, uint64_t after);
/* Opens for reading: answers the request. */
void epoch_file_open(fuse_req_t req, struct node *n, int flags);
/* Its content, NULL where it is empty; content_put it. */
int epoch_file_content(struct fs_mount *m, struct node *n, struct content **ret_content);
/* Attributes that the file was sealed with. */
int epoch_file_getxattr(struct fs_mount *m, struct node *n, const char *name, struct buf *out);
int epoch_file_listxattr(struct fs_mount *m, struct node *n, struct buf *out);

/* ---- .epochs/torn: what killed writers left, for inspection ---- */

int torn_file_lookup(struct fs_mount *m, const char *name, struct fuse_entry_param *ret_e);
int torn_file_stat(struct fs_mount *m, const struct node *n, struct stat *ret_st);
void torn_file_list(struct dir_reply *r, uint64_t after);
/* Opens for reading: answers the request. */
void torn_file_open(fuse_req_t req, struct node *n, int flags);
/* A descriptor of its bytes, which the caller closes. */
int torn_file_fd(struct fs_mount *m, const struct node *n, int *ret_fd);

#endif
