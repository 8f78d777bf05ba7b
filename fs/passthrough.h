/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel passthrough: the kernel reads and writes backing files itself. Private to fs/.
 *
 * The protocol is that of Linux 6.9 and later; libfuse before 3.17 does not know it, so the
 * session's I/O hooks (here) put it into the answer to INIT, and replies to OPEN are made by hand.
 *
 * The kernel wants all opens of a node to be of one mode, and with passthrough of one backing id.
 * The first open decides: passthrough where the volume grants the backing file (lib/cache/grant.h), and
 * for a writer the cache has room ahead of him; else ordinary. A writer on closed content starts an ordinary node
 * (nothing is cloned at open), unless readers hold passthrough: then the edit begins at open, in the
 * file that they have. The node keeps mode, backing id and grant until its last close; every open until then
 * joins them.
 *
 * What an open asks of its file is looked at once, by the kernel, as it opens the backing file: that keeps O_DIRECT where fcntl takes it
 * from the file (a tail that is no multiple of the block is EINVAL then), and of a write with O_SYNC or O_DSYNC the daemon would hear
 * nothing, where the killed writer of what was fsynced is told from others by that. So these opens are served: FOPEN_DIRECT_IO beside
 * FOPEN_PASSTHROUGH has the kernel send reads and writes, and map the backing file. It keeps no pages of them, but for
 * sendfile(2) without O_DIRECT.
 */
#ifndef EPOCHFS_FS_PASSTHROUGH_H
#define EPOCHFS_FS_PASSTHROUGH_H

#include <jansson.h>
#include "fs/fs.h"

int passthrough_new(const struct fs_mount *m, struct passthrough **ret_p);
void passthrough_free(struct passthrough *p);

/* Hooks of the session's descriptor; fs_mount.passthrough must be set. */
extern const struct fuse_custom_io passthrough_io;

/*
 * After the handshake: tries whether the kernel takes a backing file. 0, or -EOPNOTSUPP where it
 * does not and passthrough=on; `ret_why` (static) says why.
 */
int passthrough_probe(struct fs_mount *m, const char **ret_why);

/* After the handshake: whether the kernel can send requests again (Linux 6.9); and, where a worker before this one shook
 * hands, whether this epochfs would have agreed on the same. */
bool passthrough_can_resend(const struct fs_mount *m);
bool passthrough_same_terms(const struct fs_mount *m);
/* After files_revive: gives back what a worker before had registered and nobody uses. */
void passthrough_revived(struct fs_mount *m);

/* What the volume says of a file: functions of handle.h or content.h behind it. */
struct passthrough_source {
	void *arg;
	bool writes;
	/* NULL for readers. False: space is short, and only the daemon can wait for it. */
	bool (*has_room_ahead)(void *arg);
	/* Grants the backing file: with the caller's descriptor of it, or -EAGAIN. */
	int (*grant)(void *arg, struct grant **ret_grant, int *ret_fd);
	/* Makes the file ready to be one more of a node that has a grant. NULL: it is. */
	int (*join)(void *arg);
};

/*
 * One more open of the node: sets f->passthrough, and for it `ret_backing_id`; else the kernel's
 * cached pages are right when this returns, and the answer must keep them (FOPEN_KEEP_CACHE). 0; -EAGAIN: the node does not stand for
 * what the file opened any more; or -errno of join. After 0 passthrough_close is owed (f->counted).
 */
int passthrough_open(struct fs_mount *m, struct file *f, const struct passthrough_source *source,
		     int32_t *ret_backing_id);
void passthrough_close(struct fs_mount *m, struct file *f);

/* What `status` shows: {"mode","opens","ordinary_opens","reason"}; NULL without memory. */
json_t *passthrough_status(const struct fs_mount *m);

/* FOPEN_* of an open of a node that has passthrough; flags as in open(2). */
uint32_t passthrough_open_flags(int flags);
/* Whether the kernel keeps no pages of the file: then it does not ask for FSYNC after a write with O_SYNC, O_DSYNC or RWF_DSYNC either. */
bool passthrough_sends_all(const struct file *f);

/*
 * Answers OPEN, or with an entry CREATE. `flags` are FOPEN_*. 0, or -errno where the kernel did
 * not take it: then no RELEASE will come.
 */
int reply_open(fuse_req_t req, const struct fuse_entry_param *created, struct file *f,
	       uint32_t flags, int32_t backing_id);

#endif
