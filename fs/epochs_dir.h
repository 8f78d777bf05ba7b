/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory .epochs: what its names show (here), and what mkdir, ln -s, rm, rename, rmdir and
 * sync do there (epochs_change.c); the files of epochs, .control and torn (below). Private to fs/.
 *
 *   000042    directory of epoch 42; at least six digits
 *   42        symlink to it, not listed
 *   latest    symlink to the newest complete epoch, absent while there is none
 *   step=500  symlink to the newest complete epoch of that step, not listed
 *   current   symlink to the epoch that the live tree stands on
 *   torn      directory of what killed writers left
 *   .control  file of the command, not listed
 *   NAME      a tag: a symlink to an epoch
 *
 * Inode numbers have bit 63 set, which those of the live tree never have, and the kind in the bits
 * below it.
 */
#ifndef EPOCHFS_FS_EPOCHS_DIR_H
#define EPOCHFS_FS_EPOCHS_DIR_H

#include <stdbool.h>
#include <stdint.h>
#include "fs/fs.h"
#include "fs/users.h"
#include "lib/util/buf.h"

#define EPOCHS_NAME_MAX 24
/* The name of an epoch's directory, and what symlinks say: "000042". */
void epochs_dir_name(uint64_t epoch, char ret_name[EPOCHS_NAME_MAX]);
/* Inode number of an entry of an epoch's tree (0: the epoch's directory). */
uint64_t epochs_dir_ino(uint64_t epoch, uint64_t entry);
/* Inode number of a torn file. */
uint64_t epochs_dir_torn_ino(uint64_t id);
/* What of stat(2) all of .epochs has in common: the live root's owner, and `ns` as all times. */
void epochs_dir_stat_base(struct fs_mount *m, uint64_t ino, mode_t mode, int64_t ns,
			  struct stat *ret_st);
/* The permissions of a directory here: the live root's. */
mode_t epochs_dir_mode(struct fs_mount *m);

/* The entry of .epochs itself, for a lookup in the root. */
int epochs_dir_entry(struct fs_mount *m, struct fuse_entry_param *ret_e);
/* .epochs, its symlinks, .control and the torn directory. */
int epochs_dir_stat(struct fs_mount *m, const struct node *n, struct stat *ret_st);
int epochs_dir_lookup(struct fs_mount *m, const struct node *dir, const char *name,
		      struct fuse_entry_param *ret_e);
int epochs_dir_readlink(struct fs_mount *m, const struct node *n, struct buf *out);
void epochs_dir_list(struct dir_reply *r, const struct node *dir, uint64_t after);
/* The epoch that a tag or a temporary symlink leads to. */
int epochs_dir_target(struct fs_mount *m, const char *name, uint64_t *ret_epoch);

/* Seals and tags. */
int epochs_dir_mkdir(struct fs_mount *m, const char *name, struct fuse_entry_param *ret_e);
/* Drops an epoch. */
int epochs_dir_rmdir(struct fs_mount *m, const char *name);
/* Makes a tag, or a temporary symlink that a rename then makes one. */
int epochs_dir_symlink(struct fs_mount *m, const struct node *dir, const char *name,
		       const char *target, struct fuse_entry_param *ret_e);
int epochs_dir_unlink(struct fs_mount *m, const char *name);
/* Of a symlink: over `current` a rollback, over a tag or to a new name a tag. */
int epochs_dir_rename(struct fs_mount *m, const char *name, const char *new_name, unsigned flags);
/* Waits until all that is closed is durable. */
int epochs_dir_fsync(struct fs_mount *m, const struct node *dir, fuse_req_t req);

/*
 * Names in .epochs that people choose get a number, by which nodes and listings know them: tags for
 * as long as the mount lives, temporary symlinks (made to be renamed) until they are gone. Private
 * to fs/. Has a lock of its own; nothing is called under it.
 */

struct epoch_names;

int epochs_names_new(struct epoch_names **ret_names);
void epochs_names_free(struct epoch_names *names);

/* What kind of name this is. */
enum epochs_name {
	EPOCHS_NAME_EPOCH,  /* "000042" */
	EPOCHS_NAME_NUMBER, /* "42", or digits that are no epoch's (number 0) */
	EPOCHS_NAME_LATEST,
	EPOCHS_NAME_CURRENT,
	EPOCHS_NAME_TORN,
	EPOCHS_NAME_CONTROL,
	EPOCHS_NAME_STEP,  /* "step=500"; others that begin so lead nowhere (number UINT64_MAX) */
	EPOCHS_NAME_OTHER, /* a tag's, perhaps */
};
/* ret_number: the epoch, or the step. */
enum epochs_name epochs_name_kind(const char *name, uint64_t *ret_number);
/* Whether it is made up to be renamed: ln's CuXXXXXX, or one that no tag may have. */
bool epochs_name_temporary(const char *name);

/* The number of a name: 0 without memory. */
uint64_t epochs_names_id(struct epoch_names *names, const char *name);

/* Temporary symlinks: -EEXIST, -ENOENT, -ENOMEM. */
int epochs_names_add_temporary(struct epoch_names *names, const char *name, uint64_t epoch);
int epochs_names_get_temporary(struct epoch_names *names, const char *name, uint64_t *ret_epoch);
int epochs_names_remove_temporary(struct epoch_names *names, const char *name);

/* ---- views of .epochs (epochs_change.c) ---- */

/*
 * While `sync .epochs` waits, the kernel holds the lock of that directory's inode,
 * and whoever lists it or looks up a name there would wait too, for as long as an upload takes. So
 * whoever comes meanwhile is given the same directory as another node, with its directories as
 * other nodes (a directory has one place in the kernel's tree of names). Once nobody waits, all are
 * given the first view again. While nobody waits the kernel keeps which view it was given, for each
 * path below .epochs asks; it is told that this has expired when somebody begins to wait, and in the
 * instant between, a name is looked up behind his lock.
 */

struct epochs_views;

int epochs_views_new(struct epochs_views **ret_views);
void epochs_views_free(struct epochs_views *v);
/* The first view that nobody waits in (with very many, one that somebody does). */
uint32_t epochs_views_free_one(struct epochs_views *v);
/* Whether somebody waits in any. */
bool epochs_views_any_busy(struct epochs_views *v);
/* Whether somebody waits in it. */
bool epochs_views_busy(struct epochs_views *v, uint32_t view);
/* How many there may be: 0 to this less one. */
uint32_t epochs_views_max(void);
void epochs_views_wait_begin(struct epochs_views *v, uint32_t view);
void epochs_views_wait_end(struct epochs_views *v, uint32_t view);

/* ---- .epochs/.control: requests of the command (control_file.c) ---- */

/*
 * Written is one JSON request (control.h of the volume), in as many pieces as one likes; the first
 * read after it carries it out, and reads give the answer to its end. Then the next may follow. A restart begins once the file
 * that it was asked through is closed.
 */

void control_file_open(fuse_req_t req, struct node *n);
void control_file_read(fuse_req_t req, struct file *f, size_t size);
void control_file_write(fuse_req_t req, struct file *f, struct fuse_bufvec *data);
/* One that was a hold (users.h) in the worker before: NULL without memory. */
struct control *control_revive(struct fs_mount *m, enum hold hold);
void control_free(struct control *c);

/* ---- inside an epoch: the entries of its tree, all of them fixed for ever (epoch_files.c) ---- */

/* The entry of an epoch's directory as .epochs shows it; -ENOENT. */
int epoch_dir_entry(struct fs_mount *m, uint64_t epoch, enum node_kind kind, uint32_t view,
		    struct fuse_entry_param *ret_e);
int epoch_dir_stat(struct fs_mount *m, uint64_t epoch, struct stat *ret_st);

int epoch_file_stat(struct fs_mount *m, struct node *n, struct stat *ret_st);
int epoch_file_lookup(struct fs_mount *m, struct node *dir, const char *name,
		      struct fuse_entry_param *ret_e);
int epoch_file_readlink(struct fs_mount *m, struct node *n, struct buf *out);
void epoch_file_list(struct dir_reply *r, struct node *dir, uint64_t after);
/* Opens for reading: answers the request. */
void epoch_file_open(fuse_req_t req, struct node *n, int flags);
/* Its content, NULL where it is empty; content_put it. */
int epoch_file_content(struct fs_mount *m, struct node *n, struct content **ret_content);
/* Attributes that the file was sealed with. */
int epoch_file_getxattr(struct fs_mount *m, struct node *n, const char *name, struct buf *out);
int epoch_file_listxattr(struct fs_mount *m, struct node *n, struct buf *out);
/* Whether the kernel lets anybody read user.* of it: of a regular file or a directory. */
bool epoch_file_has_user_xattrs(struct fs_mount *m, struct node *n);

/* ---- .epochs/torn: what killed writers left, for inspection (epoch_files.c) ---- */

int torn_file_lookup(struct fs_mount *m, const char *name, struct fuse_entry_param *ret_e);
int torn_file_stat(struct fs_mount *m, const struct node *n, struct stat *ret_st);
void torn_file_list(struct dir_reply *r, uint64_t after);
/* Opens for reading: answers the request. */
void torn_file_open(fuse_req_t req, struct node *n, int flags);
/* A descriptor of its bytes, which the caller closes. */
int torn_file_fd(struct fs_mount *m, const struct node *n, int *ret_fd);

#endif
