/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files of a volume without a mount: what the kernel and fs/ make of lib/live/handle.h. The only
 * place that uses it.
 *
 * With passthrough a node (inode and body) that is opened first by a handle which may be worked on
 * directly keeps its backing file until its last release; all of its handles read and write it, each
 * by a descriptor of its own, and the volume sees none of that.
 */
#ifndef EPOCHFS_TESTS_VOLUME_FILES_H
#define EPOCHFS_TESTS_VOLUME_FILES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "lib/volume/volume.h"

struct vnodes;
struct vfile;

struct vnodes *vnodes_new(struct volume *vol, bool passthrough);
void vnodes_free(struct vnodes *nodes);

/* open(2) of a name in this directory by this process; all of these: 0 or more, or -errno. */
int vfile_open(struct vnodes *nodes, uint64_t dir, const char *name, int flags, pid_t pid,
	       struct vfile **ret_file);
/* Whether the kernel works on the backing file. */
bool vfile_is_direct(const struct vfile *f);
ssize_t vfile_pread(struct vfile *f, void *data, size_t len, uint64_t offset);
/* offset: not looked at with O_APPEND. */
ssize_t vfile_pwrite(struct vfile *f, const void *data, size_t len, uint64_t offset);
int vfile_truncate(struct vfile *f, uint64_t size);
/* A shared mapping is made, changed, written back, and gone. */
int vfile_map_write(struct vfile *f, const void *data, size_t len);
/* As fallocate(2). */
int vfile_fallocate(struct vfile *f, int mode, uint64_t offset, uint64_t len);
int vfile_fsync(struct vfile *f);

/* A shared mapping of the beginning, so long, that stays; `ret_mapping`: the caller's. */
struct vmapping;
int vmapping_new(struct vfile *f, size_t len, struct vmapping **ret_mapping);
/* Changed, and written back: 0 or -errno. */
int vmapping_store(struct vmapping *m, const void *data);
/* Where the kernel counts it as an open file (all but passthrough), the file is released with it. */
void vmapping_free(struct vmapping *m);
/* st_size of fstat(2), or -errno. */
int64_t vfile_size(const struct vfile *f);
/* One descriptor is closed by this thread. */
int vfile_flush(struct vfile *f, pid_t pid);
/* After the last one; frees it, or leaves it to its mapping. */
void vfile_release(struct vfile *f);

#endif
