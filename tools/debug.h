/* SPDX-License-Identifier: Apache-2.0 */
/* What epochfs debug writes: a folder of texts without secrets, and who fills it. Private to debug*.c. */
#ifndef EPOCHFS_TOOLS_DEBUG_H
#define EPOCHFS_TOOLS_DEBUG_H

#include <limits.h>
#include <stdbool.h>
#include "lib/util/buf.h"
#include "tools/scrub.h"

struct debug_report {
	const char *target; /* as it was given */
	char *mount;	    /* where it is one, or lies in one, that answers; NULL: none */
	bool hangs;	    /* a mount that does not answer: who asks it would not come back */
	char folder[PATH_MAX];
	struct scrub secrets; /* complete before the first text is put */
	struct buf done;      /* what was asked, and how it ended */
	int error;	      /* of writing: -errno, the first */
};

/* A file of the folder, without what is secret in it. An empty text makes none. */
void debug_put(struct debug_report *r, const char *name, struct buf *text);

/*
 * Runs a program to its end, without a terminal and at most for a minute: its standard output is appended, `ret_said` is the last line of what it wrote to stderr. Its exit
 * code; -1: it was ended, or could not be started.
 */
#define DEBUG_SAID_MAX 2048
int debug_run(const char *const *argv, struct buf *out, char ret_said[DEBUG_SAID_MAX]);

/* debug_parts.c: all of it. */
void debug_collect(struct debug_report *r);

#endif
