/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of the command to a mounted volume: one JSON object in, one out, carried by the file
 * .epochs/.control.
 *   {"op":"status"}                                     -> status (README lists the keys)
 *   {"op":"log"}                                        -> {"epochs":[record + state, complete,
 * tags ...]}
 *   {"op":"commit","tag":T,"step":N,"message":M}        -> {"epoch":N}
 *   {"op":"wait","epoch":"42","timeout_ms":N}           -> {"epoch":N}
 *   {"op":"rollback","epoch":E} {"op":"rm","epoch":E} {"op":"tag","epoch":E,"name":T,"replace":B}
 * {"op":"untag","name":T}
 *   {"op":"resolve","epoch":E}                          -> {"epoch":N}
 *   {"op":"finish","drain":B}                           before an unmount: seals, drains
 * An error: {"error":"one line","errno":N}; the command turns errno into its exit code
 * (tools/exit_code.h).
 */
#ifndef EPOCHFS_VOLUME_CONTROL_H
#define EPOCHFS_VOLUME_CONTROL_H

#include "lib/util/buf.h"
#include "lib/volume/handle.h"

/* Answers always (also to nonsense): 0, or -ENOMEM. `response` gets JSON text. */
int volume_control(struct volume *vol, const char *request, size_t len, interrupted_fn interrupted,
		   void *arg, struct buf *response);

#endif
