/* SPDX-License-Identifier: Apache-2.0 */
/* What dropping epochs gives back, and when: rm and prune. */
#ifndef EPOCHFS_TOOLS_FREED_H
#define EPOCHFS_TOOLS_FREED_H

#include <stdbool.h>
#include <stdint.h>
#include "tools/target.h"

struct freed {
	bool counted; /* what the epochs take in the remote is known */
	uint64_t epochs, stored;
};

/* Before the drop. Of a remote it would have to be read: it is not known. */
void freed_before(const struct target *t, struct freed *ret_freed);
/* After it, on stdout: how much can go, by what, and until when it can be brought back. Nothing where there is no remote. */
void freed_print(const struct target *t, const struct freed *before);

#endif
