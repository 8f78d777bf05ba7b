/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files that outlive the process which served them. A mount under a supervisor keeps, in memory
 * that is not the process's own, a record of each handle. The process that comes after one that died
 * gives these records to volume_open, which, while it recovers, does not treat the files as left by a crash:
 * what was being written stays staged, and each record gets its handle back.
 *
 * A record is kept right by plain stores, under the volume's lock; the local state is what counts where a process
 * dies between a transaction and the store (revive.c).
 */
#ifndef EPOCHFS_LIVE_SURVIVORS_H
#define EPOCHFS_LIVE_SURVIVORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct handle;

/* The layout is known to two processes, perhaps of two releases: fs/table.h has its version. */
struct handle_record {
	uint64_t ino, body;
	uint64_t version;      /* of the body */
	uint64_t opened_epoch; /* of the body: next_epoch when its first writer opened */
	int64_t opened_ns;     /* the same, monotonic */
	int32_t flags;	       /* of open(2) */
	int32_t tgid;	       /* who opened it; 0: unknown */
	/* Of the handle. */
	uint8_t writes, killed, closed, direct, held;
	/* Of its body. */
	uint8_t body_killed, body_closed_well, body_orphan, body_tear, body_cramped;
	int32_t body_refused_error; /* as in body.h */
	uint64_t body_refused_from, body_refused_to;
};

/* One of options.survivors. */
struct survivor {
	struct handle_record *record;
	/* volume_open sets it: the handle, which keeps the record from then on; NULL where the content
	 * is gone or the record makes no sense. */
	struct handle *ret_handle;
};

/*
 * An open that was answered with ESTALE, because its process is to have a replacement of its own (handle.h): the kernel looks up and opens once
 * more, perhaps in the next process. Rows of a ring, the oldest is overwritten.
 */
struct stale_retry_record {
	uint64_t ino;  /* 0: none */
	uint64_t body; /* of the replacement; 0: there is none */
	int64_t at_ns; /* monotonic */
	int32_t tid, tgid;
	int32_t flags;
	int32_t taken; /* the second open came */
};

/* From now on, until the handle is released, the record says what revives it. */
void handle_keep_record(struct handle *h, struct handle_record *record);

#endif
