/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handover of a mount that outlives its daemon, from one worker to the next. Private to fs/; what tools/ sees is in mount.h and supervise.h.
 *
 * Supervisor, worker and watchdog share a socket, one for each worker: the worker has one end, and its watchdog a
 * copy of that; the supervisor the other. A message is one byte, perhaps with descriptors:
 *   S  worker: it serves; with the connection to the kernel
 *   L  worker: here is its log
 *   D  watchdog: the worker's first thread is gone, though another may still hang in the kernel
 *   E  supervisor: a signal asks for the end; H: the end is not to wait for uploads. The worker itself ignores signals while the
 *      supervisor lives: whoever signals all processes of a job signals both, and of two pending ones the kernel keeps one
 * Whoever finds the other end closed knows that all who had it are dead.
 */
#ifndef EPOCHFS_FS_HANDOVER_H
#define EPOCHFS_FS_HANDOVER_H

#include "fs/fs.h"
#include "fs/table.h"

/* What a worker was handed, and has for the next one. */
struct fs_handover {
	int socket;
	int fuse_fd; /* the connection that a worker before had; -1: this one is the first */
	struct table table;
	struct survivor *survivors; /* one for each row of a live file, in order */
	size_t survivors_count;
};

enum handover_message {
	HANDOVER_SERVES = 'S',
	HANDOVER_LOG = 'L',
	HANDOVER_DEAD = 'D',
	HANDOVER_END = 'E',
	HANDOVER_HURRY = 'H',
};

/* Sends one, with this descriptor unless it is -1: 0 or -errno. */
int handover_send(int socket, enum handover_message what, int fd);
/* Takes one that is there and has no descriptor; 0: there is none, or the other end is closed. */
int handover_take(int socket);
/* Whether the other end is closed. */
bool handover_peer_gone(int socket);
/* Asks the kernel for the requests that were read and not answered: they come before all others. */
int handover_resend(int fuse_fd);

/* ---- the watchdog (watchdog.c) ---- */

/*
 * A process that ends the connection to the kernel when the daemon was killed.
 *
 * The kernel fails the requests of a mount once /dev/fuse is closed, and a killed process closes it
 * when its last thread has ended. A thread that tells the kernel what changed (invalidate.h) waits
 * in there for locks of a directory or a page, and no signal ends that wait. Where the program that
 * holds the lock waits for an answer of the daemon, a SIGKILL (as when memory runs out) would leave
 * both waiting for ever. So a child of the daemon, which has nothing open, sleeps until the daemon's
 * main thread is gone, and then aborts the connection: every request fails with ECONNABORTED, later
 * ones with ENOTCONN, and the mount point stays covered until somebody mounts again. Under a supervisor that is alive it
 * tells that one instead.
 */

/*
 * After the handshake, on the thread that lives as long as the daemon. Where it cannot be
 * started the log says so, and the mount works as well.
 */
void watchdog_start(struct fs_mount *m);
/* Before the daemon ends in order. */
void watchdog_stop(struct fs_mount *m);

#endif
