/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of control*.c share. */
#ifndef EPOCHFS_ADMIN_CONTROL_INTERNAL_H
#define EPOCHFS_ADMIN_CONTROL_INTERNAL_H

#include <jansson.h>
#include "lib/cache/context.h"

/* The answer to "status": a new object, or NULL where memory runs out. */
json_t *control_status(struct volume *vol);

/* A part of a file of an epoch; `entry` counts as "files" of "show" do, from 1. */
struct control_range {
	uint64_t epoch, entry, offset, length;
};
/* Makes it local, as content_fetch does: its errors, and those of epochs_tree; -EINVAL: no such entry. */
int control_fetch(struct volume *vol, const struct control_range *range, interrupted_fn interrupted,
		  void *arg);

#endif
