/* SPDX-License-Identifier: Apache-2.0 */
/* The lease's object: who writes to a volume. */
#ifndef EPOCHFS_FORMAT_LEASE_H
#define EPOCHFS_FORMAT_LEASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/clock.h"

/*
 * A JSON object under lease/<generation> (names.h), made with create-if-absent by who takes the
 * lease, and rewritten by the same holder to renew and to release it. What the generations mean
 * is in lib/meta/lease.h.
 *
 *   "format"         1
 *   "generation"     as in the key
 *   "holder"         a UUID, generated each time that a lease is taken
 *   "host", "node"   names, for people
 *   "mountpoint"     for people; "" where it is none
 *   "boot_id"        UUID of the kernel's boot (/proc/sys/kernel/random/boot_id)
 *   "pid", "pid_started", "pid_namespace"
 *                    the process: its number, when it was started (field 22 of /proc/PID/stat), and
 *                    the inode number of the namespace that the number is of. With the boot id they
 *                    tell another process of the same host whether the holder is still there
 *   "since"          RFC 3339: when it was taken, by the holder's own clock
 *   "renewed"        how often it was renewed. It rises, and the text changes with it: that, not the
 *                    time, is what others judge by
 *   "ttl_ms"         unchanged for so long, it has lapsed
 *   "released"       true: its holder gave it back
 *   "pending"        epochs that the holder had not uploaded when it gave the lease back
 *
 * Of the nodes of a run that hold it together (lib/upload/nodes.h) there is more: the object of the
 * generation, made by the first of them and never written again, and for each node one of its own,
 * lease/<generation>-<node>, which it renews and releases. They have "format" 2, and
 *   "run"            the run's identity
 *   "nodes"          how many nodes the set has, from 2
 *
 * Unknown keys are ignored. A string that is too long is cut when it is encoded, and refused when it
 * is decoded; what a terminal would obey comes back as `?` (text.h).
 */
#define LEASE_FORMAT	  1
#define LEASE_FORMAT_SET  2
#define LEASE_ENCODED_MAX (16u << 10)
#define LEASE_TTL_MIN_NS  (1 * NS_PER_S)
#define LEASE_TTL_MAX_NS  (3600 * NS_PER_S)
#define LEASE_NAME_MAX	  255
#define LEASE_PATH_MAX	  1023
#define LEASE_NODES_MIN	  2
#define LEASE_NODES_MAX	  1024

struct lease_info {
	uint64_t generation; /* 1 to INT64_MAX */
	char holder[37];
	char boot_id[37];
	char host[LEASE_NAME_MAX + 1];
	char node[LEASE_NAME_MAX + 1];
	char mountpoint[LEASE_PATH_MAX + 1];
	uint64_t pid, pid_started, pid_namespace;
	int64_t since_ns; /* wall clock of the holder */
	uint64_t renewed;
	int64_t ttl_ns; /* whole milliseconds */
	bool released;
	uint64_t pending;
	uint32_t nodes; /* of the set; 0: one writer */
	char run[LEASE_NAME_MAX + 1];
};

/* Appends the text: 0, -EINVAL where a number or a UUID is none, -ENOMEM. */
int lease_encode(const struct lease_info *l, struct buf *out);
/* 0; -EBADMSG: this is no lease; -EPROTONOSUPPORT: of a newer format; -ENOMEM. */
int lease_decode(const void *data, size_t len, struct lease_info *ret_lease);

#endif
