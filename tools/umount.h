/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that serve a mount, and their end. */
#ifndef EPOCHFS_TOOLS_UMOUNT_H
#define EPOCHFS_TOOLS_UMOUNT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/util/mountinfo.h"

/* 0: none, or not known here (of a container that counts its processes by itself). */
struct ending {
	pid_t server, supervisor;
	const char *mount; /* as it was given to ending_find; the caller's */
	char device[MOUNTINFO_DEVICE_MAX];
	char cache[PATH_MAX]; /* the cache directory; "": not known */
};

/* Asks a mount that is there: EXIT_DONE, or the exit code after a line. */
int ending_find(const char *mount, struct ending *ret_ending);
bool ending_is_over(const struct ending *e);
/*
 * After the unmount the serving process writes its last state: waits for its end, so that the next mount finds the cache free. EXIT_DONE, or
 * after a line EXIT_FAILED where that takes longer than a minute, EXIT_CONFLICT where the mount is still there in another place or mount namespace.
 */
int ending_wait(const struct ending *e);

#endif
