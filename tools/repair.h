/* SPDX-License-Identifier: Apache-2.0 */
/* `epochfs fsck --repair`. */
#ifndef EPOCHFS_TOOLS_REPAIR_H
#define EPOCHFS_TOOLS_REPAIR_H

#include <stdbool.h>

struct repair_words {
	const char *target; /* a remote or a mount point */
	bool dry_run, json;
	const char *cache_dir; /* where the caches of this machine lie; NULL: the default */
};

/* Repairs and prints: the exit code, EXIT_DAMAGED where something is gone. */
int repair_run(const struct repair_words *words);

#endif
