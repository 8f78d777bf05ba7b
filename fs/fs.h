/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of fs/ share: the mount, open files, and answering. Private to fs/. */
#ifndef EPOCHFS_FS_FS_H
#define EPOCHFS_FS_FS_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include "fs/mount.h"
#include "fs/node.h"
#include "lib/cache/content.h"
#include "lib/live/handle.h"
#include "lib/live/live.h"

struct control;	     /* control_file.c: one open of .epochs/.control */
struct epoch_names;  /* epochs_dir.h: names of .epochs that have got a number */
struct epochs_views; /* epochs_dir.h: nodes of .epochs that nobody waits in */
struct files;	     /* files.h: what is open */
struct loop;
struct passthrough;
struct users; /* users.h: who needs the mount to stay */

struct fs_mount {
	struct volume *vol;
	struct fs_options options;
	char *mountpoint;  /* absolute */
	char device[24];   /* "0:45" in mountinfo; "" where it is not found there */
	pid_t watchdog;	   /* handover.h; 0: none */
	uint32_t uid, gid; /* who mounted: owner of .control and torn/ */
	struct fuse_session *se;
	bool expires; /* the kernel knows names that expire without being dropped (Linux 6.2) */
	_Atomic bool
		telling; /* invalidate.h: of the requests that a notice may wait for, one sends one */
	_Atomic bool gone; /* the connection to the kernel: nobody waits for an answer any more */
	struct nodes *nodes;
	struct loop *loop;
	struct passthrough *passthrough;
	struct epoch_names *names;
	struct epochs_views *views;
	struct files *files;
	struct users *users;
	int restart_fd;		      /* polls readable once fs_restart was called */
	struct fs_handover *handover; /* handover.h; NULL: no supervisor restarts this process */
};

/* In the table that outlives the process, too (table.h). FILE_DEAD: was open in a process before this one, and
 * cannot be brought back. */
enum file_kind { FILE_LIVE, FILE_EPOCH, FILE_TORN, FILE_CONTROL, FILE_DEAD };

/* One open(2) of a regular file: what the kernel gives back as fh. */
struct file {
	enum file_kind kind;
	uint64_t fh;
	struct node *node; /* pinned; NULL only of FILE_DEAD */
	bool passthrough;  /* the kernel reads and writes by itself */
	bool counted;	   /* passthrough_close is owed */
	bool asleep;	   /* came back, and has no content or fd yet: file_wake; atomic */
	union {
		struct handle *handle;	 /* FILE_LIVE */
		struct content *content; /* FILE_EPOCH; NULL for an empty file */
		int fd;			 /* FILE_TORN */
		struct control *control; /* FILE_CONTROL */
	};
	struct file *prev, *next; /* of files.c */
};

/* Seconds that the kernel may keep what it was told. Nothing of the live tree changes behind its
 * back but by rollback and undo, of which it is told, as it is of an epoch that is dropped. */
#define TIMEOUT_LIVE  1.0
#define TIMEOUT_EPOCH 3600.0
/* For the attributes of a file that was made just now, whose name is not kept: the kernel asks for those
 * it has not kept before the first write. What is done through the mount meanwhile it knows itself. */
#define ATTR_TIMEOUT_NEW 0.05

static inline struct fs_mount *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

/* Ends this process in order to start another, perhaps of a new release, which goes on with the mount: fs_serve returns soon. 0, or
 * -EOPNOTSUPP where no supervisor is there. (serve.c) */
int fs_restart(struct fs_mount *m);

/* An interrupted_fn; arg is the request: a signal ended the wait for it, or the mount is gone. (interrupt.c) */
bool request_interrupted(void *req);
/* The same of a READ, which the kernel may send beside who asked for it, and then never interrupts: who asked is gone, too. Somebody else who waits for
 * the same pages asks for them himself. */
bool read_interrupted(void *req);
struct live_caller request_caller(fuse_req_t req);
/*
 * The error of an operation on a node: where the file is gone (undone, rolled back), -ESTALE, so that
 * the kernel looks the name up again, which may lead elsewhere by now.
 */
int node_error(int error);
/* Answers with 0 or -errno; what is no errno of a file system becomes EIO. */
void reply_error(fuse_req_t req, int error);
void reply_attr(fuse_req_t req, const struct stat *st, double timeout);
/* Answers with a name that was looked up or made; where the kernel does not take it, forgets it. */
void reply_entry(fuse_req_t req, const struct fuse_entry_param *e);
/* The answer of getxattr and listxattr: `size` is what the caller has room for, 0 asks how much. */
void reply_xattr(fuse_req_t req, const void *value, size_t len, size_t size);

void stat_of_live(const struct live_attr *attr, struct stat *ret_st);
struct node_key key_of_live(const struct live_attr *attr);
/* Remembers mode and owner: for what must know the mode at every write, and of a directory that is removed
 * while it is open. */
void note_attr(struct node *n, const struct live_attr *attr);
void noted_owner(const struct node *n, uid_t *ret_uid, gid_t *ret_gid);
mode_t noted_mode(const struct node *n);
/* How long the kernel may keep this name. */
double timeout_of_live(const struct live_attr *attr);
/* Finds or makes the node of an entry, counts the lookup, and fills the entry. */
int entry_of_live(struct fs_mount *m, const struct live_attr *attr, struct fuse_entry_param *ret_e);
int entry_of_key(struct fs_mount *m, const struct node_key *key, struct node *root,
		 const struct stat *st, double timeout, struct fuse_entry_param *ret_e);

/* What stat(2) shows of any node. */
int node_stat(struct fs_mount *m, struct node *n, struct stat *ret_st, double *ret_timeout);
/* Whether a change may be asked of it: 0, -EROFS outside the live tree. */
int node_writable(const struct fs_mount *m, const struct node *n);
/* The root and this name in it: .epochs. */
bool is_epochs_name(const struct node *parent, const char *name);

/* Offsets 1 and 2 of a listing follow "." and ".."; cookies of names are counted from here. */
#define DIR_DOTS 2

/* One listing being put together (ops_names.c). */
struct dir_reply {
	fuse_req_t req;
	struct fs_mount *m;
	bool plus; /* with attributes and a lookup */
	char *data;
	size_t used, size;
	int error;
};
/*
 * Adds a name, after which the listing goes on at offset `next`: false where it does not fit, or
 * for an error, and the listing ends. `key` NULL: no lookup (".", ".."). `root` as in nodes_lookup.
 */
bool dir_reply_add(struct dir_reply *r, const char *name, uint64_t next, const struct node_key *key,
		   struct node *root, const struct stat *st, double timeout);

/* Right after mounting: notes the device number that tells our mount from others. (serve.c) */
void serve_find_device(struct fs_mount *m);

#endif
