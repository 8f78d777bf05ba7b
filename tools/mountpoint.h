/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that a volume is mounted on: is it fit, and taking a mount away. */
#ifndef EPOCHFS_TOOLS_MOUNTPOINT_H
#define EPOCHFS_TOOLS_MOUNTPOINT_H

#include <limits.h>
#include <stdbool.h>

/*
 * Checks that `path` can be mounted on and gives it without symlinks. A dead mount there ("transport endpoint is not connected")
 * is taken away first. Otherwise prints the line and returns its exit code: no directory, in use by another mount, not empty (unless `nonempty`), inside the remote or
 * around it.
 */
int mountpoint_prepare(const char *path, const char *remote, bool nonempty,
		       char ret_path[PATH_MAX]);

/* Unmounts: directly as root, else by fusermount3. `lazy` detaches what is busy. 0 or -errno (-EBUSY: in use). */
int mountpoint_unmount(const char *path, bool lazy);

#endif
