/* SPDX-License-Identifier: Apache-2.0 */
/*
 * .epochs/.control: requests of the command. Private to fs/.
 *
 * Written is one JSON request (control.h of the volume), in as many pieces as one likes; the first
 * read after it carries it out, and reads give the answer to its end. Then the next may follow. A restart begins once the file
 * that it was asked through is closed.
 */
#ifndef EPOCHFS_FS_CONTROL_FILE_H
#define EPOCHFS_FS_CONTROL_FILE_H

#include "fs/fs.h"
#include "fs/users.h"

void control_file_open(fuse_req_t req, struct node *n);
void control_file_read(fuse_req_t req, struct file *f, size_t size);
void control_file_write(fuse_req_t req, struct file *f, struct fuse_bufvec *data);
/* One that was a hold (users.h) in the worker before: NULL without memory. */
struct control *control_revive(struct fs_mount *m, enum hold hold);
void control_free(struct control *c);

#endif
