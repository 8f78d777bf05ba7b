/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount -o supervise: this process keeps the connection to the kernel, and a worker, its child, serves the mount. A worker that dies is followed
 * by another, started from the program's file as it is then; so is one that ends for `epochfs restart`. Where that one cannot go on with the mount, the
 * program that mounted it does.
 */
#ifndef EPOCHFS_TOOLS_SUPERVISE_H
#define EPOCHFS_TOOLS_SUPERVISE_H

#include <stdbool.h>

struct fs_handover;

struct supervised {
	const char *mountpoint; /* absolute */
	bool background;	/* its output goes to the worker's log, once there is one */
	int ready_fd;		/* of the first worker only: closed here; -1: none */
	/* Arguments of the mount, for the workers after the first: a NULL-terminated list. They may hold a password, so they go from
	 * process to process in memory, not on a command line. */
	char *const *arguments;
	/* Runs in the first worker: its exit code. */
	int (*first)(void *arg, struct fs_handover *handover);
	void *arg;
};

/* Until the mount has ended: the exit code. */
int supervise(const struct supervised *s);

/* In a worker after the first, which was started with these words after "--worker": its part, and the arguments of the mount, in
 * memory that free(ret_argv[1]) and free(ret_argv) give back. EXIT_DONE, or the exit code after a line. */
int supervise_worker(const char *descriptors, struct fs_handover **ret_handover, int *ret_argc,
		     char ***ret_argv);

#endif
