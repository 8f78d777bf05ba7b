/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that a volume is mounted on: is it fit, and taking a mount away. */
#ifndef EPOCHFS_TOOLS_MOUNTPOINT_H
#define EPOCHFS_TOOLS_MOUNTPOINT_H

#include <limits.h>
#include <stdbool.h>
#include "lib/util/mountinfo.h"

/*
 * Checks that `path` can be mounted on and gives it without symlinks. Where only that directory is missing, it is made. Otherwise prints the line
 * and returns its exit code: no directory, in
 * use by another mount, not empty (unless `nonempty`), inside the remote or around it. A dead mount there ("transport
 * endpoint is not connected") stays until mountpoint_uncover.
 */
int mountpoint_prepare(const char *path, const char *remote, bool nonempty,
		       char ret_path[PATH_MAX]);

/*
 * Whether a place that the mount itself needs lies in it: whoever asks for it then waits for the mount, which waits for him. `what` names it; it need
 * not be there yet. EXIT_DONE, or EXIT_USAGE after a line.
 */
int mountpoint_check_outside(const char *mountpoint, const char *what, const char *place);

/*
 * Just before the mount: takes a dead mount away. Not before: whoever saves by this path meanwhile must not write into the directory below.
 * What lies there in spite of that is named, with EXIT_CONFLICT, unless `nonempty`.
 */
int mountpoint_uncover(const char *path, bool nonempty);

/* The directory here that a remote's URL names, below any fault+: false where it names none. */
bool mountpoint_remote_directory(const char *remote, char ret_path[PATH_MAX]);

/* Of a directory where nothing is mounted. */
bool mountpoint_is_empty(const char *path);
/* After an unmount: EXIT_DONE where nothing lies in the directory, else EXIT_CONFLICT after a line that names it. */
int mountpoint_tell_below(const char *path);

/* Who uses the mount there (mountinfo.h), also a dead one. */
void mountpoint_users(const char *path, char ret_text[MOUNT_USERS_TEXT]);

/* Unmounts: directly as root, else by fusermount3. `lazy` detaches what is busy. 0 or -errno (-EBUSY: in use). */
int mountpoint_unmount(const char *path, bool lazy);

#endif
