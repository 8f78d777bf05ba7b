/* SPDX-License-Identifier: Apache-2.0 */
/* The directory tree of the file remote: its root, and the way from there to an object. Private to
 * it. */
#ifndef EPOCHFS_REMOTE_FILE_TREE_H
#define EPOCHFS_REMOTE_FILE_TREE_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

#define TREE_DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

/*
 * The root stays open, so that unmounting its file system under a running volume is EBUSY and
 * cannot make the remote look empty. Where it had to be opened again (a network file system that
 * came back), it must have the same inode number: the bare mount point has another. A root that is
 * not there yet is made by the first tree_make; one that was there and is gone is -EIO from then
 * on.
 *
 * Trust: the tree may hold what somebody else put there, so no symlink below the root is followed.
 * The root itself may be reached through symlinks.
 *
 * Permissions of what is made here are the root's (0700 where it is made too), not the process's
 * umask, which a FUSE daemon sets to 0.
 */
struct file_tree {
	char *path; /* of the root: absolute, without a `/` at the end unless that is all */
	/* Guards what follows, and is held while directories are made, so that nobody returns with
	 * an object in one whose own name is not yet on disk. Nothing else is locked under it. */
	struct mutex lock;
	int root;  /* -1: not open */
	bool seen; /* the root has been there */
	ino_t ino;
	mode_t mode; /* permission bits of the root */
};

/* Takes `path` over on success. 0, or why this cannot be a root: -ENOENT where the directory above
 * it is missing too, -ENOTDIR, -EACCES, -EINVAL, -EIO, -ENOMEM. */
int tree_init(struct file_tree *t, char *path);
void tree_release(struct file_tree *t);

/* Where an object lies; descriptors are the place's own. */
struct file_place {
	int root;
	int dir; /* the directory that holds it */
	const char
		*name; /* in dir: the key's last component (points into the key); "" for a prefix */
	mode_t mode;   /* permission bits of the root */
};

void place_close(struct file_place *p);
#define cleanup_place CLEANUP(place_close)
#define NO_PLACE      ((struct file_place){.root = -1, .dir = -1})

/* To the directory in which the object of this key would lie, or that a prefix names: 0, -ENOENT
 * where there is no such directory, or another error of remote.h. */
int tree_find(struct file_tree *t, const char *key, struct file_place *p);
/* The same, but makes what is missing on the way, durably. */
int tree_make(struct file_tree *t, const char *key, struct file_place *p);
/* What a missing name means: -ENOENT, or -EIO where it is because the whole root was removed. */
int tree_missing(const struct file_tree *t, const struct file_place *p);

/* Maps the errno (positive) of a system call below the root to a negative one of remote.h. */
int tree_error(struct file_tree *t, int err);
/* fsync of a directory, where its file system can; 0 or -errno. */
int tree_sync_dir(int dir);
/* Gives what we made the permission bits `mode`; no error where the file system has none of its
 * own. */
void tree_share(int fd, mode_t mode);

#endif
