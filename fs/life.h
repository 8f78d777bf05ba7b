/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mount that outlives its daemon. Private to fs/; what tools/ sees is in mount.h and supervise.h.
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
#ifndef EPOCHFS_FS_LIFE_H
#define EPOCHFS_FS_LIFE_H

#include "fs/fs.h"
#include "fs/table.h"

/* A worker's part. */
struct fs_life {
	int socket;
	int fuse_fd; /* the connection that a worker before had; -1: this one is the first */
	struct table table;
	struct survivor *survivors; /* one for each row of a live file, in order */
	size_t survivors_count;
};

enum life_message {
	LIFE_SERVES = 'S',
	LIFE_LOG = 'L',
	LIFE_DEAD = 'D',
	LIFE_END = 'E',
	LIFE_HURRY = 'H',
};

/* Sends one, with this descriptor unless it is -1: 0 or -errno. */
int life_send(int socket, enum life_message what, int fd);
/* Takes one that is there and has no descriptor; 0: there is none, or the other end is closed. */
int life_take(int socket);
/* Whether the other end is closed. */
bool life_peer_gone(int socket);
/* Asks the kernel for the requests that were read and not answered: they come before all others. */
int life_resend(int fuse_fd);

#endif
