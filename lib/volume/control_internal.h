/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of control*.c share. */
#ifndef EPOCHFS_VOLUME_CONTROL_INTERNAL_H
#define EPOCHFS_VOLUME_CONTROL_INTERNAL_H

#include <jansson.h>
#include "lib/volume/internal.h"

/* The answer to "status": a new object, or NULL where memory runs out. */
json_t *control_status(struct volume *vol);

#endif
