/* SPDX-License-Identifier: Apache-2.0 */
/* Fetching an epoch of a mount into its cache. */
#ifndef EPOCHFS_TOOLS_WARM_H
#define EPOCHFS_TOOLS_WARM_H

#include <stdbool.h>
#include <stddef.h>

struct warm_request {
	const char *mount;
	const char *epoch;	  /* NULL: the latest */
	const char *const *paths; /* files or directories in it; none: all of it */
	size_t path_count;
	bool json;
};

/*
 * Fetches, several parts of files at once, with a progress bar, and prints what came. EXIT_DONE;
 * EXIT_DAMAGED after a line for each file that is; EXIT_FAILED where it does not fit into the cache;
 * EXIT_NOT_FOUND for a path that is not there; else what the mount says.
 */
int warm(const struct warm_request *request);

#endif
