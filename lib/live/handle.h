/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files of the live tree. One handle is one open(2): from OPEN or CREATE to RELEASE.
 *
 * What an open for writing does (contract 1.2):
 *   new file                    a STAGED version that all see, kind NEW
 *   O_TRUNC of committed        -ESTALE: a pending REPLACE version exists now, and live_lookup gives
 *   content, not empty          the writer's process its body: the kernel looks up again and opens
 *                               that one
 *   no O_TRUNC, one is pending  -ESTALE likewise: the caller joins the newest pending version
 *   O_TRUNC of anything else    truncated in place; of empty content nothing but the times changes
 *   no O_TRUNC, closed content  nothing yet: the first change (or handle_begin_write,
 *                               handle_join_grant) begins an EDIT: a staged version follows the
 *                               closed one, which stays as it is for as long as something needs it
 *                               (edit.c says how)
 *
 * ESTALE also answers an open of a node whose content was replaced or whose file is gone, and an
 * open by a process that has a pending version of its own. It is never given twice in a row to one
 * thread (stale_retry.c): the kernel walks to the name again and opens once more, and that open succeeds. Its last lookup is answered
 * so that it does: O_TRUNC finds a replacement of its own, whatever the name leads to by then; what else was
 * replaced between lookup and open is opened as it was (volume_set_known keeps it).
 *
 * Where the kernel comes back with the same node without a walk (a file that is mounted by itself, /proc/self/fd) and nobody has the
 * node open, the handle is of the body that the open should lead to, and fs/ lets the node stand for it: handle_body
 * is another than the one that was asked for. Where somebody has it open, O_TRUNC of what the file shows truncates in place; of
 * content that was replaced any of them gets what was there, as a file without a name.
 *
 * The last handle open for writing of a body commits it at handle_release. Where another process inherited the descriptor that does not come; what
 * the opener has closed is committed all the same (held_close.c).
 *
 * Killed writers (contract 1.2.4): handle_flush looks at the closing thread; where the process that opened
 * the handle is ending by a signal or with an error, the release, or what takes the close in before that, undoes what is fragile and keeps
 * the bytes under .epochs/torn/.
 *
 * Passthrough: fs/ may give the kernel the backing file that handle_grant() grants; the daemon then sees no read and no write, so all sizes and times of an open body are taken
 * from its backing file.
 */
#ifndef EPOCHFS_LIVE_HANDLE_H
#define EPOCHFS_LIVE_HANDLE_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/cache/grant.h"
#include "lib/live/live.h"
#include "lib/util/clock.h"

struct handle;

/*
 * flags as in open(2) (access mode, O_TRUNC, O_APPEND, O_DIRECT count). body: the node's. -ESTALE
 * as above; -ENOSPC where the cache is full (after the wait that full=wait allows); -EROFS on a
 * read-only volume; -EISDIR, -ENOENT; -EBUSY where O_TRUNC cannot be sent on a second time and others read
 * what the node stands for, for a second.
 */
int handle_open(struct volume *vol, uint64_t ino, uint64_t body, int flags,
		const struct live_caller *who, interrupted_fn interrupted, void *arg,
		struct handle **ret_handle);
/* Before handle_create, which does not wait: waits, as full=wait allows, until there is room for what a writer writes.
 * 0, -ENOSPC, -EINTR. */
int handle_await_room(struct volume *vol, interrupted_fn interrupted, void *arg);
/* There was none, for a file of this name that is not known to be there: the save that it is for may be half. */
void handle_refused(struct volume *vol, uint64_t parent, const char *name, int flags,
		    const struct live_caller *who);
/* Makes the file and opens it. An existing name: -EEXIST (fs/ then opens it, or not with O_EXCL).
 */
int handle_create(struct volume *vol, uint64_t parent, const char *name, mode_t mode, int flags,
		  const struct live_caller *who, struct live_attr *ret_attr,
		  struct handle **ret_handle);

uint64_t handle_ino(const struct handle *h);
uint64_t handle_body(const struct handle *h);
/*
 * Opened to append, by a node that stood for other content: the kernel takes the end to be where that had it. So it may not write
 * by itself, and what it sends is appended: handle_write with UINT64_MAX.
 */
bool handle_is_blind(const struct handle *h);
bool handle_writes(const struct handle *h);

/*
 * Grants the backing file to the kernel (grant.h), for the first open of a node: all of it is local, and, for a handle that
 * writes, the version is STAGED (nothing is changed at open). `ret_fd`, the caller's, is a descriptor to register, open
 * read-only: a read-only one lets writes through, and the lease test at release sees a shared mapping that is left.
 * -EAGAIN where it cannot be granted: this open and those that come while it is open go through the daemon.
 */
int handle_grant(struct handle *h, struct grant **ret_grant, int *ret_fd);
/* One more open of a node that has a grant. A writer's edit begins now, in the very file that the kernel has; that may copy and wait for
 * space: -ENOSPC, -EINTR. */
int handle_join_grant(struct handle *h, interrupted_fn interrupted, void *arg);
/* Of a handle that came back (survivors.h) and whose node has its backing file registered still. */
int handle_grant_again(struct handle *h, struct grant **ret_grant);
/* False where the cache is so full that a writer had better write through the daemon, which evicts
 * and waits for him. Evicts; waits for nothing. */
bool handle_has_room_ahead(struct handle *h);

/* Up to len bytes at offset, fewer at the end of file. -EIO where the stored content is damaged or
 * lost. */
ssize_t handle_read(struct handle *h, void *data, size_t len, uint64_t offset,
		    interrupted_fn interrupted, void *arg);
/*
 * For fs/ to splice: a descriptor (borrowed, valid until release) and the count of bytes at offset
 * that may be read from it now. -EAGAIN where not all of the file is local: handle_read fetches.
 */
ssize_t handle_read_fd(struct handle *h, size_t len, uint64_t offset, int *ret_fd);
/*
 * Begins the edit if one is owed: fetches what is not local and clones what must stay, which may take
 * long and can be interrupted. Gives the descriptor to write to, borrowed until the handle's release. Any other change
 * (write, truncate, fallocate, handle_join_grant) begins it by itself where this was not called. -EBADF on a handle that does not
 * write, -ENOSPC, -EINTR.
 */
int handle_begin_write(struct handle *h, interrupted_fn interrupted, void *arg, int *ret_fd);
/*
 * Writes to that descriptor, without the lock. For O_APPEND handles of the page cache the kernel gives the offset; a direct append
 * passes offset UINT64_MAX: at the end. On a full disk it waits for space as full=wait says: -ENOSPC, -EINTR.
 */
ssize_t handle_write_to(struct handle *h, int fd, const void *data, size_t len, uint64_t offset,
			interrupted_fn interrupted, void *arg);
/* Both in one. */
ssize_t handle_write(struct handle *h, const void *data, size_t len, uint64_t offset,
		     interrupted_fn interrupted, void *arg);
/* Keeps, and fetches, only what is left. -EINTR. */
int handle_truncate(struct handle *h, uint64_t size, interrupted_fn interrupted, void *arg);
/* After a write through any of these: what it gave, of so many bytes. What was refused, and is not covered until the close,
 * makes that the close of a killed writer. offset UINT64_MAX: at the end. */
void handle_note_write(struct handle *h, uint64_t offset, size_t len, ssize_t result);

/*
 * Waits for the space that a handle_fallocate takes: that of holes, and behind the end. Before handle_begin_write, which
 * fetches and clones: nothing is done for what has no room. -ENOSPC, -EINTR.
 */
int handle_reserve(struct handle *h, int mode, uint64_t offset, uint64_t len,
		   interrupted_fn interrupted, void *arg);
/* After handle_reserve and handle_begin_write; mode as in fallocate(2). Waits for space like handle_write. */
int handle_fallocate(struct handle *h, int mode, uint64_t offset, uint64_t len,
		     interrupted_fn interrupted, void *arg);
/* whence SEEK_DATA or SEEK_HOLE; as content_seek. */
int handle_lseek(struct handle *h, uint64_t offset, int whence, interrupted_fn interrupted,
		 void *arg, uint64_t *ret_offset);
int handle_fsync(struct handle *h, bool data_only);

/*
 * One descriptor of the handle is being closed by thread `pid`. Errors of the content come out
 * here; the close is journaled so that a crash after it keeps the version. With durability=remote
 * it waits. -ENOSPC where the kernel wrote a replacement or a new file by itself (passthrough) and the cache's disk has no
 * room now: a write may have been refused, of which only the kernel and the program know. The release undoes it then.
 */
int handle_flush(struct handle *h, pid_t pid, interrupted_fn interrupted, void *arg);
/*
 * The last descriptor is closed: commits (or undoes) and frees the handle. `direct` says that the
 * kernel worked on the backing file: a writable mapping may be left (tested by a lease; a copy is
 * committed while it lives).
 */
void handle_release(struct handle *h, bool direct);
/* Of a handle that nobody was given: as if it had never been opened. */
void handle_cancel(struct handle *h);
/* The same of an open that the caller tries again at once: a thread that was told ESTALE is not told so once more. */
void handle_retry(struct handle *h);

#endif
