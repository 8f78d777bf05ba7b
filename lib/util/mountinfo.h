/* SPDX-License-Identifier: Apache-2.0 */
/* Who has a file system mounted, and who uses it, as /proc shows it. */
#ifndef EPOCHFS_UTIL_MOUNTINFO_H
#define EPOCHFS_UTIL_MOUNTINFO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Room for a device as mountinfo writes it, "0:45". */
#define MOUNTINFO_DEVICE_MAX 24
/* Room for a path as mountinfo_escape writes it; one that is longer is cut off. */
#define MOUNTINFO_PATH_MAX 1024

/* Whether a mount namespace has a mount of this device: that of process `pid`, 0 for our own. Where its list cannot be
 * read, or the device is "", it has none that we know of. */
bool mountinfo_has(pid_t pid, const char *device);

/* The same for a mount at just this path, as mountinfo_escape writes it. The number of a device is used again soon after it is unmounted. */
bool mountinfo_is_at(const char *device, const char *path);
/* Without blanks and newlines, as the kernel does it. */
void mountinfo_escape(const char *path, char ret_path[MOUNTINFO_PATH_MAX]);

/* Whether something else is mounted below this path, which is without symlinks: what is named first, escaped. */
bool mountinfo_below(const char *path, char ret_path[MOUNTINFO_PATH_MAX]);

/*
 * The mount namespaces besides our own that have a mount of this device, each by the lowest number of a process in it:
 * how many there are, of which at most `max` are given. Those of processes that we may not look into are not seen.
 */
size_t mountinfo_elsewhere(const char *device, pid_t *ret_pids, size_t max);
/* The same of those that have an epochfs mounted at just this path, which is without symlinks. */
size_t mountinfo_epochfs_elsewhere(const char *path, pid_t *ret_pids, size_t max);

/* ---- Which processes of this machine use a mount, as /proc shows it. ---- */

/* Room for the text. */
#define MOUNT_USERS_TEXT 256

/*
 * Names the processes that have a file or directory below `path` (absolute, without symlinks) open or mapped, or stand in one: "python3
 * (process 123, ckpt/model.pt), bash (process 7, its working directory)", at most three and a count of the rest. Empty where none is
 * found: processes of other users do not let us look. This process is left out. Asks nothing of the mount itself.
 */
void mount_users_text(const char *path, char ret_text[MOUNT_USERS_TEXT]);

#endif
