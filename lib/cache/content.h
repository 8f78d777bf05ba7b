/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Closed content, read through the cache: of an epoch's file, or of a live file that is not being
 * written. Missing ranges are fetched from the remote (single flight, read-ahead), checked against
 * their hashes, and written into the sparse backing file objects/<version>; once all is there it is
 * whole. A content object is shared by all who have the same version open and keeps it from being
 * evicted; but where the cache has no room for all of it, what was read is dropped as more comes.
 */
#ifndef EPOCHFS_CACHE_CONTENT_H
#define EPOCHFS_CACHE_CONTENT_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/cache/grant.h"
#include "lib/format/tree.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"

struct content;
struct volume;

/* By version: -ENOENT where there is none. A reference; content_put gives it back. */
int content_get(struct volume *vol, uint64_t version, struct content **ret_content);
/* By what a tree's entry names (its inline bytes, recipe, or local version). `what` names epoch and
 * path for log lines ("epoch 41: model/a.pt"). */
int content_get_entry(struct volume *vol, const struct tree_entry *entry, const char *what,
		      struct content **ret_content);
struct content *content_ref(struct content *c);
/* NULL is allowed. */
void content_put(struct content *c);

/* st_blocks of a regular file's entry, as its tree tells it; of a version that only this machine has,
 * version_blocks_locked. Asks the local state for the latter alone: it is called for each entry listed. */
uint64_t content_entry_blocks(struct volume *vol, const struct tree_entry *entry);

uint64_t content_version(const struct content *c);
uint64_t content_size(const struct content *c);
/* All bytes are local. */
bool content_whole(struct content *c);
/*
 * Grants the backing file to the kernel (grant.h), which may read it for as long as it likes: all bytes are in it, and no
 * live file shares it. `ret_fd`, the caller's, is a read-only descriptor to register. -EAGAIN where it cannot be granted.
 */
int content_grant(struct content *c, struct grant **ret_grant, int *ret_fd);
/* Of a file whose node has the backing file registered since before this process: also where a live file shows the
 * same version by now, which then must not change it. */
int content_grant_again(struct content *c, struct grant **ret_grant);
/* Up to len bytes at offset into another file; fewer at the end. -EAGAIN where not all bytes are local. */
ssize_t content_copy(struct content *c, uint64_t offset, int to, uint64_t to_offset, size_t len);
/*
 * whence SEEK_DATA or SEEK_HOLE; -ENXIO at and after the end, and where no data follows. Of content that is not all local the
 * recipe tells, which may have to be fetched (-EINTR); where it cannot be had, all is data.
 */
int content_seek(struct content *c, uint64_t offset, int whence, interrupted_fn interrupted,
		 void *arg, uint64_t *ret_offset);
/* Up to len bytes; where the cache's disk has no room for them, through memory. -EIO where the remote's bytes are damaged or missing (logged with epoch, path
 * and pack), -EINTR, -EHOSTUNREACH/-ETIMEDOUT while the remote is away (after the patience of the
 * mount). */
ssize_t content_read(struct content *c, void *data, size_t len, uint64_t offset,
		     interrupted_fn interrupted, void *arg);
/* Makes a range local, in the backing file; len UINT64_MAX: to the end. It may be dropped again (contents.h: content_pin). */
int content_fetch(struct content *c, uint64_t offset, uint64_t len, interrupted_fn interrupted,
		  void *arg);

#endif
