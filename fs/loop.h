/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads that read and answer requests. Private to fs/.
 *
 * One thread at a time reads /dev/fuse; so requests are known in the order in which the kernel
 * queued them. Two things rest on that:
 *   - A close is taken in before what is asked after it. The kernel queues RELEASE inside close(2)
 *     but waits for no answer. The reader notes a RELEASE as outstanding before anything later is
 *     read; a request that looks at names or attributes waits until those before it are done.
 *   - Quick requests of the live tree are answered by the reader itself, without waking another
 *     thread; where one takes longer after all, a watching thread lets others read on.
 *
 * Threads are started when all are busy, up to 64; idle ones above 8 end. Those that wait for the kernel do not count: what the kernel waits
 * for is always read.
 */
#ifndef EPOCHFS_FS_LOOP_H
#define EPOCHFS_FS_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/fs.h"
#include "fs/invalidate.h"

int loop_new(struct fs_mount *m, struct loop **ret_loop);
/* Its threads must have ended. */
void loop_free(struct loop *l);

/* Reads and answers one request on the calling thread (the handshake): 0 or -errno. */
int loop_one(struct loop *l);
/* Starts the first thread, with all signals blocked: 0 or -errno. */
int loop_start(struct loop *l);
/* A descriptor that polls readable once the connection to the kernel is gone. */
int loop_ended_fd(const struct loop *l);
/* Waits for the threads to end. */
void loop_join(struct loop *l);
/* Reads no request after the next one, and waits until those that were read are answered, or for `timeout_ns`. What is
 * left then, the kernel sends again to the next worker. */
void loop_stop(struct loop *l, int64_t timeout_ns);

/*
 * Called by the handler of a RELEASE, once the close is taken in: requests that waited for it go
 * on. The loop calls it itself after the handler, if it did not.
 */
void loop_release_done(void);
/* Of the request that the calling thread answers: its number, without the mark of one that is sent again; and
 * whether it has that mark: a process before this one read it, and may have done what it asks, but died before it
 * had answered. 0 and false where it answers none. */
uint64_t loop_request_unique(void);
bool loop_request_resent(void);
/* Nanoseconds since it was read; INT64_MAX where the thread answers none. */
int64_t loop_request_age(void);
/* Waits until all closes that were read before the request of the calling thread are taken in. */
void loop_wait_closes(void);
/* The calling thread, which answers a request, is about to do what takes long: others read on. */
void loop_let_others_read(void);
/* Around what waits for the kernel, which may wait for requests: others read on, with one thread more. On a thread that answers none they do
 * nothing. */
void loop_kernel_begin(void);
void loop_kernel_end(void);
/*
 * Where the calling thread answers a request of the live tree: keeps `i` until it has been
 * answered, and true. An invalidation takes kernel locks that the requester may hold.
 */
bool loop_defer(struct invalidation *i);
/* Between these two calls nothing is deferred: the requester holds no lock of the live tree, and
 * waits for the effect (a rollback). */
void loop_defer_off(void);
void loop_defer_on(void);

/* ---- what a request's kind says ---- */

/*
 * What a request's kind, its opcode in <linux/fuse.h>, says of how the loop handles it. Pure
 * functions; an opcode that is not known waits for nothing, and is judged by its node.
 */

/* How long an answer is likely to take. */
enum pace {
	PACE_QUICK,   /* a moment: nothing is asked of the volume, or little of its memory */
	PACE_SLOW,    /* it may move file data, or wait for a disk or a remote */
	PACE_BY_NODE, /* a moment for the live tree, longer in an epoch */
};

/* Whether it looks at names, attributes or .epochs: then closes before it come first. */
bool opcode_waits_for_closes(uint32_t opcode);
enum pace opcode_pace(uint32_t opcode);

#endif
