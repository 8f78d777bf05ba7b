/* SPDX-License-Identifier: Apache-2.0 */
/* Dropping epochs of a TARGET, a mount or a remote: what rm and prune share. */
#ifndef EPOCHFS_TOOLS_RM_H
#define EPOCHFS_TOOLS_RM_H

#include "tools/target.h"

/* Of a remote: takes the volume's lease, which may wait, until target_close; of a mount: nothing. Before the epochs are read.
 * EXIT_DONE, or the exit code after the line: EXIT_CONFLICT where a mount writes to it. */
int drop_begin(const struct target *t);
/* EXIT_DONE, or the exit code after a line; EXIT_CONFLICT where it is tagged, current, or the newest complete one. One that is
 * not there is EXIT_NOT_FOUND, or EXIT_DONE where it may be gone: something else drops, too. */
int drop_epoch_of(const struct target *t, uint64_t number, bool may_be_gone);
/* Of a mount: waits a little until the remote knows, and says where it does not yet. */
void drop_end(const struct target *t);

#endif
