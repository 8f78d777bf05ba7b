/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection for commands: `gc`, and `prune --gc`. */
#ifndef EPOCHFS_TOOLS_GC_H
#define EPOCHFS_TOOLS_GC_H

#include <jansson.h>
#include <stdbool.h>

struct collect {
	const char *command;		   /* whose words these are, for messages */
	const char *grace, *rewrite_below; /* as given; NULL: the default */
	bool dry_run;
};

/* Checks the words: EXIT_DONE, or EXIT_USAGE after the line. */
int collect_check(const struct collect *c);
/*
 * Collects the garbage of a TARGET's remote, with a progress bar. With `ret_json` the result is that, the caller's; else it is printed as a table. EXIT_DONE, or the
 * exit code after the line.
 */
int collect_run(const struct collect *c, const char *target, json_t **ret_json);

#endif
