/* SPDX-License-Identifier: Apache-2.0 */
/* A process that does what it is told with files of a directory: one of the two of a history. */
#ifndef EPOCHFS_TESTS_WORKER_H
#define EPOCHFS_TESTS_WORKER_H

#include <sys/types.h>
#include "tests/enumerate/on.h"

/* What it is to do. */
enum ask_kind {
	ASK_STEP,	 /* an open, or what is done with a handle */
	ASK_STAT_HANDLE, /* step.handle */
	ASK_READ_HANDLE,
	ASK_STAT_NAME, /* path */
};

struct ask {
	enum ask_kind kind;
	struct step step;
	unsigned k, handle; /* handle: of an open */
	char path[64];	    /* OP_COPY: from where */
};

struct worker {
	pid_t pid;
	int fd;
};

/* Works where this process works. */
void worker_start(struct worker *w, unsigned unit);
void worker_ask(const struct worker *w, const struct ask *ask, struct seen *ret_seen);
/* Dead by SIGKILL, and gone. */
void worker_kill(struct worker *w);

/* The same for whoever calls: 0 or -errno. */
int open_flags_of(uint8_t op);
int read_descriptor(int fd, unsigned unit, struct seen *ret_seen);
int stat_path(const char *path, struct seen *ret_seen);

#endif
