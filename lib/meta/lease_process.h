/* SPDX-License-Identifier: Apache-2.0 */
/* Which process holds a lease, and whether it is still there. */
#ifndef EPOCHFS_META_LEASE_PROCESS_H
#define EPOCHFS_META_LEASE_PROCESS_H

#include "lib/format/lease.h"

/* Fills boot_id, pid, pid_started, pid_namespace and host with this process. What /proc does not tell is
 * made up, so that it equals nothing. 0 or -errno of the random source. */
int lease_process_self(struct lease_info *ret_self);

/* The same boot of the same host: its processes can be asked for, if their namespace is ours. */
bool lease_process_same_boot(const struct lease_info *holder, const struct lease_info *self);

enum lease_process {
	LEASE_PROCESS_UNKNOWN, /* of another host, boot, or namespace of pids */
	LEASE_PROCESS_THERE,
	LEASE_PROCESS_GONE, /* ended, and its number perhaps another's by now */
};
enum lease_process lease_process_of(const struct lease_info *holder, const struct lease_info *self);

#endif
