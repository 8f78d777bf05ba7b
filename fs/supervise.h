/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The supervisor's part of a mount that outlives its daemon; tools/supervise.c runs the processes. The worker's part is fs_handover in
 * mount.h, what passes between them handover.h.
 */
#ifndef EPOCHFS_FS_SUPERVISE_H
#define EPOCHFS_FS_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The table that workers leave to each other, empty: a descriptor, close-on-exec, or -errno. */
int fs_table_make(void);
/* Tells `status` which process this is, and how many workers came after the first. */
int fs_table_note(int table_fd, uint32_t restarts);

enum fs_told {
	FS_TOLD_NOTHING, /* the worker and its watchdog are gone, or what came makes no sense */
	FS_TOLD_SERVES,	 /* with the connection to the kernel: keep it open */
	FS_TOLD_LOG,	 /* with where the worker logs to */
	FS_TOLD_DEAD,	 /* the worker's first thread ended; others may hang in the kernel */
};
/* Takes one message from a worker's socket; the descriptor, or -1, is the caller's. */
enum fs_told fs_told(int socket, int *ret_fd);

/* Asks a worker that serves for the end of the mount; `hurry`: uploads are not waited for. */
void fs_tell_end(int socket, bool hurry);

/* Whether a thread of the process waits in the kernel where no signal ends the wait. */
bool fs_waits_in_kernel(pid_t pid);

/*
 * While a dead worker does not end, because a thread of it waits in the kernel for a lock that a program holds which
 * waits for an answer: answers requests with EIO until `until_fd` polls readable. Closes are left for the next worker.
 */
void fs_refuse(int fuse_fd, int table_fd, int until_fd);

#endif
