/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files: what the kernel's file handles (fh) stand for. Private to fs/.
 *
 * An fh is the number of a row and a count that rises with each open, so that none is given twice in the life
 * of a mount: a close that the kernel sends once more finds nothing. Under a supervisor the row is one of the table
 * (table.h), too, from just before the open is answered until its close is taken in; files_revive makes files
 * of the rows that a worker left.
 */
#ifndef EPOCHFS_FS_FILES_H
#define EPOCHFS_FS_FILES_H

#include "fs/fs.h"

struct table_file;

/* What `files` is for a mount with this handover (NULL: none). */
int files_new(const struct fs_handover *handover, struct files **ret_files);
/* No file may be left. */
void files_free(struct files *files);

/* Of a new file the caller sets what it holds. NULL without memory, or with 262,144 files open. */
struct file *file_new(struct fs_mount *m, enum file_kind kind, struct node *n);
/* Gives back what it holds, and frees it. */
void file_release(struct fs_mount *m, struct file *f);

/* The open file of a request. Where there is none, one of kind FILE_DEAD, which is nobody's. */
struct file *file_of(fuse_req_t req, const struct fuse_file_info *fi);
/* Makes the content of a file that came back from the table ready to be read: 0 or -errno. */
int file_wake(struct fs_mount *m, struct file *f);

/* Around the answer of the request that opens the file: the worker that comes next knows it, by this row (NULL: there is
 * none); and knows that the kernel knows it. Once it is answered the file may be closed at any moment. */
struct table_file *file_publish(struct fs_mount *m, struct file *f);
void file_answered(struct table_file *row);
/* Of an open .control: the next worker knows that it is a hold, of this kind (users.h). */
void file_note_hold(struct fs_mount *m, const struct file *f, int hold);
/* Where the request of the calling thread is one that is sent again, and a worker before had opened the file for
 * it but not answered: that file. Else NULL. */
struct file *file_claim(struct fs_mount *m);

/* Files of all rows of the table: after nodes_new and volume_open, before requests. */
int files_revive(struct fs_mount *m);

/* Whether a live file is open for writing. */
bool files_written(struct fs_mount *m);
/* Closes all, in order. No thread may answer requests any more. */
void files_release_all(struct fs_mount *m);

#endif
