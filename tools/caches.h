/* SPDX-License-Identifier: Apache-2.0 */
/* The caches of this machine, mounted or not: epochfs cache list and drop. */
#ifndef EPOCHFS_TOOLS_CACHES_H
#define EPOCHFS_TOOLS_CACHES_H

#include <stdbool.h>

struct caches_words {
	const char *cache_dir; /* as given; NULL: where mounts keep them */
	bool json, force;
};

int caches_list(const struct caches_words *w);
/* `name` is a UUID, or the remote of just one. */
int caches_drop(const struct caches_words *w, const char *name);

#endif
