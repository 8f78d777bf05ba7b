/* SPDX-License-Identifier: Apache-2.0 */
/* A command that epochfs runs: its process group, the signals that are passed on to it, its end. */
#ifndef EPOCHFS_TOOLS_JOB_H
#define EPOCHFS_TOOLS_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/util/end_signals.h"

struct job {
	pid_t pid;	  /* also its process group */
	int status;	  /* as waitpid gave it, once it has ended */
	bool interrupted; /* a signal that asks for an end or a checkpoint came before the end */
	/* The first of these, or of those that came after the end (job_asked); only the latter hurry. */
	struct end_request asked;
	/* Called once, at the first of them, after it was passed on; or NULL. */
	void (*on_interrupt)(void *arg);
	void *arg;
};

/*
 * Blocks SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGCONT and SIGCHLD in this process, so that
 * none is lost from here on; call it before anything that takes time. job_run waits for them.
 */
void job_block_signals(void);
/*
 * Until job_run, what takes time can be interrupted: by job_wait_readable, which waits until the descriptor is readable, or false
 * once one of these signals (but SIGCONT and SIGCHLD) has come; and between job_let_interrupt(true) and (false) each system call that waits,
 * by -EINTR. Without job_block_signals the first only waits, and the second does nothing.
 */
bool job_wait_readable(int fd);
void job_let_interrupt(bool on);
/* The signal that has come, or 0. */
int job_interrupted(void);
/* In a forked process that serves the mount: signals as this program found them. */
void job_restore_signals(void);

/*
 * Starts the command (argv ends with NULL, looked up in PATH) in a process group of its own, with
 * the signals as this program found them, and waits for its end. Each of the six signals that comes
 * meanwhile is passed on to that group, once; all but SIGCONT count as an interruption. Where stdin
 * is a terminal that is ours, the group has it while the command runs, and stops and continues with
 * this program. 0, or -errno where it could not be started (-ENOENT, -EACCES: of the program).
 */
int job_run(struct job *c, char *const argv[]);

/* After it: takes in the signals, but SIGCONT, that have come since, without waiting. */
const struct end_request *job_asked(struct job *c);

/* What a shell would say: the exit code, or 128 + the signal. */
int job_exit_code(const struct job *c);

#endif
