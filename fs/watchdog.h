/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that ends the connection to the kernel when the daemon was killed. Private to fs/.
 *
 * The kernel fails the requests of a mount once /dev/fuse is closed, and a killed process closes it
 * when its last thread has ended. A thread that tells the kernel what changed (invalidate.h) waits
 * in there for locks of a directory or a page, and no signal ends that wait. Where the program that
 * holds the lock waits for an answer of the daemon, a SIGKILL (as when memory runs out) would leave
 * both waiting for ever. So a child of the daemon, which has nothing open, sleeps until the daemon's
 * main thread is gone, and then aborts the connection: every request fails with ECONNABORTED, later
 * ones with ENOTCONN, and the mount point stays covered until somebody mounts again. Under a supervisor (handover.h) that is alive it
 * tells that one instead.
 */
#ifndef EPOCHFS_FS_WATCHDOG_H
#define EPOCHFS_FS_WATCHDOG_H

#include "fs/fs.h"

/*
 * After the handshake, on the thread that lives as long as the daemon. Where it cannot be
 * started the log says so, and the mount works as well.
 */
void watchdog_start(struct fs_mount *m);
/* Before the daemon ends in order. */
void watchdog_stop(struct fs_mount *m);

#endif
