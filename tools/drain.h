/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting until a mount's epochs are durable, with a progress bar. */
#ifndef EPOCHFS_TOOLS_DRAIN_H
#define EPOCHFS_TOOLS_DRAIN_H

#include <stdint.h>

/*
 * Waits until all that is sealed is durable; timeout_ns < 0: for ever. On a terminal a progress bar; else a line now and then.
 * EXIT_DONE; EXIT_NOT_DURABLE with a line that says what is left and why; EXIT_FAILED.
 */
int drain_with_progress(const char *mount, int64_t timeout_ns);
/* The same for one epoch and all before it. */
int drain_epoch_with_progress(const char *mount, uint64_t number, int64_t timeout_ns);
/*
 * Waits, for 10 s and for no remote that fails, until a mount has dropped what its policy lets go, and the remote knows of tags
 * and drops. Where it does not, a line on stderr says so: it goes on by itself.
 */
void drain_changes(const char *mount);

#endif
