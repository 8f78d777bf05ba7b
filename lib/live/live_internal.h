/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the live tree (live*.c) share, and how it begins. For lib/ alone. */
#ifndef EPOCHFS_LIVE_LIVE_INTERNAL_H
#define EPOCHFS_LIVE_LIVE_INTERNAL_H

#include "lib/live/body.h"
#include "lib/cache/context.h"
#include "lib/live/live.h"

#define LIVE_NAME_MAX  255
#define LIVE_LINK_MAX  65000 /* names of a file, as on ext4 */
#define LIVE_NLINK_MAX UINT32_MAX

/* What stat(2) says of a directory's size and of its 512-byte blocks. */
#define LIVE_DIR_SIZE	4096
#define LIVE_DIR_BLOCKS 8

/* Makes the root directory, ROOT_INO, where there is none yet. At volume_open. */
int live_make_root(struct volume *vol, uint32_t mode, uint32_t uid, uint32_t gid);

/* The time for a change of names or attributes. Like the times that the kernel gives to the backing
 * files, it is that of the last clock tick: else a file written after a mkdir could look older. */
int64_t live_now_ns(void);

/* 0, -ENAMETOOLONG, -ENOENT for "", or -EINVAL for what no name can be. */
int live_name_check(const char *name);

/* -EROFS, or begins a transaction: end it with state_end. */
int live_begin_locked(struct volume *vol);
/*
 * Puts a new file into a directory: checks (-EROFS, -ENOENT, -ENOTDIR, -EEXIST, -ENAMETOOLONG,
 * -EINVAL, -EMLINK), gives `f` its ino, owner, group and mode (the directory's setgid bit), times,
 * nlink and `born`, stores file and name, touches the directory. `f` comes with mode (and type),
 * rdev, size, live, closed, body. In the caller's transaction, with the lock; the caller notes
 * ACTIVITY_CREATE once that is committed (sealer.h), and rolls back where this fails.
 * (live_names.c; used by handle_create)
 */
int live_add_locked(struct volume *vol, uint64_t parent, const char *name,
		    const struct live_caller *who, struct state_file *f);
/* A directory: -ENOENT, -ENOTDIR. */
int live_dir_locked(struct volume *vol, uint64_t ino, struct state_file *ret_dir);
/*
 * -ENAMETOOLONG where a directory with so many levels of directories below it would be too deep in
 * this one: a tree holds TREE_DEPTH_MAX levels, and an epoch of a deeper one could not be sealed.
 */
int live_depth_check_locked(struct volume *vol, uint64_t parent, uint64_t height);
/* Names in the directory changed: its times, and `links` more or fewer subdirectories. */
int live_touch_locked(struct volume *vol, uint64_t ino, int links, int64_t now);
/*
 * The file that a name leads to, with what a close on its way to it does taken in (the lock may be
 * dropped for that, so call it before a transaction begins): -ENOENT, -ENAMETOOLONG, -ENOTDIR.
 */
int live_find_locked(struct volume *vol, uint64_t parent, const char *name,
		     struct state_name *ret_name, struct state_file *ret_file);
/* A name of this file went: stores one link less, or lets the file go. In a transaction. */
int live_unref_locked(struct volume *vol, struct state_file *f, int64_t now);
/* The committed file that this name hid is gone for good. In a transaction. */
int live_uncover_locked(struct volume *vol, const struct state_name *n, int64_t now);

/* What all see of a file. */
void live_attr_locked(struct volume *vol, const struct state_file *f, struct live_attr *ret_attr);
/* What the process of this thread sees. */
void live_attr_for_locked(struct volume *vol, const struct state_file *f, pid_t pid,
			  struct live_attr *ret_attr);

#endif
