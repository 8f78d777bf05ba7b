/* SPDX-License-Identifier: Apache-2.0 */
/* What epochs and the live tree of a volume hold, as JSON. */
#ifndef EPOCHFS_TESTS_PLACE_LOOK_H
#define EPOCHFS_TESTS_PLACE_LOOK_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include "lib/remote/remote.h"
#include "lib/volume/volume.h"
#include "tests/enumerate/volume_files.h"

/* The first epoch after this one: 0 where there is none. */
uint64_t look_next_epoch(struct volume *vol, uint64_t after);
struct look {
	struct volume *vol;
	struct vnodes *nodes;
	struct remote *remote;
	pid_t pid; /* who looks at the live tree */
	const char *what;
};
/* One line, as place_look says. */
void look_at(const struct look *l, FILE *out);

#endif
