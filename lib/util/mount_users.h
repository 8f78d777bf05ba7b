/* SPDX-License-Identifier: Apache-2.0 */
/* Which processes of this machine use a mount, as /proc shows it. */
#ifndef EPOCHFS_UTIL_MOUNT_USERS_H
#define EPOCHFS_UTIL_MOUNT_USERS_H

/* Room for the text. */
#define MOUNT_USERS_TEXT 256

/*
 * Names the processes that have a file or directory below `path` (absolute, without symlinks) open or mapped, or stand in one: "python3
 * (process 123, ckpt/model.pt), bash (process 7, its working directory)", at most three and a count of the rest. Empty where none is
 * found: processes of other users do not let us look. This process is left out. Asks nothing of the mount itself.
 */
void mount_users_text(const char *path, char ret_text[MOUNT_USERS_TEXT]);

#endif
