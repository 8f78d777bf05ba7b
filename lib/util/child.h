/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is run and talked to by pipes: exec.c runs one for an operation, sftp_link.c one
 * (ssh) for a connection, the volume one for an epoch that it announces. */
#ifndef EPOCHFS_UTIL_CHILD_H
#define EPOCHFS_UTIL_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include "lib/util/cleanup.h"

#define CHILD_SAID_MAX 2048

/*
 * A child runs in a session, and so a process group, of its own: it has no terminal to ask at, no
 * key press of the user reaches it, and all of the group is killed at once. It is started by
 * posix_spawn, so from any thread and whatever memory the daemon holds, with default signal
 * handling and no descriptor but its three: here all are close-on-exec.
 *
 * Initialise with NO_CHILD; end with child_end, or mark cleanup_child. One thread at a time.
 */
struct child {
	pid_t pid; /* 0: none */
	int pidfd; /* readable once it has ended */
	int in;	   /* our end of its standard input, a socket: send() with MSG_NOSIGNAL; -1: none */
	int out;   /* its standard output; our pipe ends do not block */
	int err;
	char said[CHILD_SAID_MAX + 1]; /* the last that it wrote to its standard error */
	size_t said_len;
};
#define NO_CHILD ((struct child){.pidfd = -1, .in = -1, .out = -1, .err = -1})

/*
 * Starts `argv` (the first is looked for in PATH where it has no slash). `input` becomes its
 * standard input and stays the caller's; -1: a socket, c->in. 0, -ENOENT or -EACCES where there is no
 * such program or it may not be run, -EIO (no process or descriptor to be had), -ENOMEM.
 */
int child_start(const char *const *argv, int input, struct child *c);

/* Takes what it wrote to its standard error, as far as it has come; only the end is kept. */
void child_listen(struct child *c);
/* The last line of that, without control characters; "" where there is none. Valid until the next
 * child_listen or child_last_line. */
const char *child_last_line(struct child *c);
/* What is kept of its standard error goes to the log at debug level, a few lines at most. */
void child_log(struct child *c, const char *who);

/* Ends it and its group: SIGTERM and a moment to tidy up where it still runs, then SIGKILL. Reaps
 * it and closes all. Gives the status of waitpid; -1 where there was no child. `said` stays. */
int child_end(struct child *c);
#define cleanup_child CLEANUP(child_end)

#endif
