/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts of epochfs in this mount namespace that are this user's; for root, all. */
#ifndef EPOCHFS_TOOLS_MOUNTS_H
#define EPOCHFS_TOOLS_MOUNTS_H

typedef void (*mount_fn)(void *arg, const char *mount);

/* In the order in which they were mounted. Those of others do not let us ask. */
void mounts_each(mount_fn fn, void *arg);

#endif
