/* SPDX-License-Identifier: Apache-2.0 */
/* What each command ends with. Scripts rely on it: epochfs(1), EXIT STATUS. */
#ifndef EPOCHFS_TOOLS_EXIT_CODE_H
#define EPOCHFS_TOOLS_EXIT_CODE_H

/* The documented exit codes (epochfs(1)). */
enum exit_code {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_UNREACHABLE = 3, /* the remote cannot be reached */
	EXIT_DENIED = 4,      /* the remote does not allow it */
	EXIT_NOT_FOUND = 5,
	EXIT_DAMAGED = 6,
	EXIT_NOT_DURABLE = 7, /* not durable in time */
	EXIT_CONFLICT = 8,    /* in use or in conflict */
};

/* Of a negative errno. */
int exit_code_of(int error);

#endif
