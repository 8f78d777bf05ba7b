/* SPDX-License-Identifier: Apache-2.0 */
/* What a person asks of a status first, in three lines: what latest is and where, what is wrong and what to do, what is pending. */
#ifndef EPOCHFS_TOOLS_GLANCE_H
#define EPOCHFS_TOOLS_GLANCE_H

#include <jansson.h>

/* On stdout, each line behind `indent`. The status of a mount, as it answers. */
void glance_mount(const json_t *status, const char *indent);
/* Of a remote, as `epochfs status` makes it: who writes to it, in place of what is wrong and pending. */
void glance_remote(const json_t *status);

#endif
