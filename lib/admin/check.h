/* SPDX-License-Identifier: Apache-2.0 */
/* Trying out a remote: what it can and cannot, how fast it is, and what epochfs makes of it. */
#ifndef EPOCHFS_ADMIN_CHECK_H
#define EPOCHFS_ADMIN_CHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "lib/remote/remote.h"
#include "lib/util/clock.h"

struct check_options {
	struct remote_limits limits;
	uint64_t object_size; /* bytes of the objects that measure throughput; 0: 8 MiB */
	bool unmeasured;      /* neither latency nor throughput: these are empty in the report */
	/* What is being tried, before it is; may be NULL. */
	void (*step)(void *arg, const char *what);
	void *step_arg;
	/* Polled, by another thread: true ends the check with -EINTR, once all that was put is deleted. May be NULL. */
	interrupted_fn interrupted;
	void *interrupted_arg;
};

/* The detail of an operation that gave back something else. */
#define CHECK_OTHER_BYTES "other bytes came back than were put"

/*
 * Tries each operation on the remote, which may hold a volume, also one that is mounted: all is done
 * with objects `packs/epochfs.probe-RANDOM-*`, a name that nothing of epochfs reads, and all are
 * deleted at the end, also after failures. What may stay is an empty folder `packs`. Each request is
 * made once: a failure is told, not repeated.
 *
 * The report, the caller's reference, is
 *   {"remote": name, "usable": bool,
 *    "operations": [{"name", "ok": bool, "detail": text or null}],
 *    "create_if_absent": "atomic" | "checked" | "none" | "racy",
 *    "keeps_versions": bool, what is deleted stays in the bucket,
 *    "upload_check": what guards an upload on its way, or null where nobody can tell,
 *    "clock_ahead_ms": of the server against ours, or null where it does not tell its time,
 *    "redirects_to": scheme and host that reads were redirected to, or null,
 *    "credentials": {"expires_ns": wall clock, "renewed": by themselves}, or null where they do not say when they end
 *    "latency_ms": {"put", "get", "size", "list", "delete"}  medians of small requests, one at a time
 *    "throughput": {"object_bytes", "connections", "upload_one", "upload_many",
 *                   "download_one", "download_many"}  bytes a second, medians; without what failed
 *    "advice": [text]}
 * usable: a volume can be kept there. racy: kept by the server in turn, not in a race.
 *
 * 0 with a report, also where operations fail; -errno and a line in ret_message (free it; NULL if
 * memory ran out) where the remote cannot be reached or lets us write nothing: -EHOSTUNREACH,
 * -EACCES, -ENOENT, -EINVAL, -ENOMEM; -EINTR.
 */
int check_remote(const char *url, const struct check_options *options, json_t **ret_report,
		 char **ret_message);

#endif
