/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on attributes: getattr, setattr, readlink, statfs. */
#include "fs/ops.h"

#include <errno.h>
#include "fs/epoch_files.h"
#include "fs/epochs_dir.h"
#include "fs/files.h"
#include "fs/invalidate.h"
#include "fs/setid.h"
#include "fs/torn_files.h"
#include "lib/util/buf.h"
#include "lib/util/clock.h"

static int stat_live(struct fs_mount *m, struct node *n, struct stat *ret_st, double *ret_timeout)
{
	struct live_attr attr;
	int r = live_getattr(m->vol, n->a, n->b, &attr);

	if (r == -ENOENT && noted_mode(n) && !S_ISREG(noted_mode(n))) {
		/*
		 * A directory that is gone may still be open, or where a process works; and of what has no content the
		 * kernel tells nobody that it is open, so after a restart nothing is left of it but this.
		 */
		*ret_st = (struct stat){.st_ino = n->a, .st_mode = noted_mode(n)};
		noted_owner(n, &ret_st->st_uid, &ret_st->st_gid);
		return 0;
	}
	if (r < 0)
		return node_error(r);
	note_attr(n, &attr);
	stat_of_live(&attr, ret_st);
	/* What the kernel writes by the other node of that body, nobody tells of this one. */
	*ret_timeout = n->unlisted ? 0 : timeout_of_live(&attr);
	return 0;
}

int node_stat(struct fs_mount *m, struct node *n, struct stat *ret_st, double *ret_timeout)
{
	*ret_timeout = 0;
	switch (n->kind) {
	case NODE_LIVE:
		return stat_live(m, n, ret_st, ret_timeout);
	case NODE_EPOCH:
		*ret_timeout = n->b ? TIMEOUT_EPOCH : TIMEOUT_LIVE;
		return n->b ? epoch_file_stat(m, n, ret_st) : epoch_dir_stat(m, n->a, ret_st);
	case NODE_MADE:
		return epoch_dir_stat(m, n->a, ret_st);
	case NODE_TORN:
		return torn_file_stat(m, n, ret_st);
	default:
		if (n->kind == NODE_SPECIAL && n->a == SPECIAL_EPOCHS)
			*ret_timeout = TIMEOUT_LIVE;
		return epochs_dir_stat(m, n, ret_st);
	}
}

void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_mount *m = fs_of(req);
	struct node *n = nodes_find(m->nodes, ino);
	struct stat st;
	double timeout;
	int r = n ? node_stat(m, n, &st, &timeout) : -ESTALE;

	(void)fi;
	if (r < 0)
		reply_error(req, r);
	else
		reply_attr(req, &st, timeout);
}

/* What the kernel asks for, as the volume takes it; with what happens to setuid and setgid (setid.h). */
static int change_of(fuse_req_t req, const struct node *n, const struct stat *attr, int to_set,
		     struct live_change *ret_change)
{
	const struct fuse_ctx *who = fuse_req_ctx(req);
	struct fs_mount *m = fs_of(req);
	struct live_change c = {
		.pid = who->pid,
		.mode = attr->st_mode & 07777,
		.uid = attr->st_uid,
		.gid = attr->st_gid,
		.size = (uint64_t)attr->st_size,
		.atime_ns = to_set & FUSE_SET_ATTR_ATIME_NOW ? clock_wall_ns()
							     : clock_ns(attr->st_atim),
		.mtime_ns = to_set & FUSE_SET_ATTR_MTIME_NOW ? clock_wall_ns()
							     : clock_ns(attr->st_mtim),
	};
	bool owner = to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID);
	struct live_attr now;
	int r;

	if (to_set & FUSE_SET_ATTR_MODE)
		c.set |= LIVE_SET_MODE;
	if (to_set & FUSE_SET_ATTR_UID)
		c.set |= LIVE_SET_UID;
	if (to_set & FUSE_SET_ATTR_GID)
		c.set |= LIVE_SET_GID;
	if (to_set & FUSE_SET_ATTR_SIZE)
		c.set |= LIVE_SET_SIZE;
	if (to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW))
		c.set |= LIVE_SET_ATIME;
	if (to_set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW))
		c.set |= LIVE_SET_MTIME;
	if (!(to_set & FUSE_SET_ATTR_MODE) &&
	    (owner || (to_set & FUSE_SET_ATTR_SIZE && who->uid))) {
		r = live_getattr(m->vol, n->a, n->b, &now);
		if (r < 0)
			return r;
		c.mode = setid_after_change(req, now.mode, now.gid) & 07777;
		if (c.mode != (now.mode & 07777))
			c.set |= LIVE_SET_MODE;
	}
	*ret_change = c;
	return 0;
}

static int set_live(struct fs_mount *m, struct node *n, struct file *f,
		    const struct live_change *change, struct live_attr *ret_attr)
{
	struct live_change c = *change;
	int r;

	if (c.set & LIVE_SET_SIZE && f && f->kind == FILE_DEAD)
		return -EIO;
	if (c.set & LIVE_SET_SIZE && f && f->kind == FILE_LIVE) {
		r = handle_truncate(f->handle, c.size, c.interrupted, c.interrupted_arg);
		if (r < 0)
			return r;
		c.set &= ~LIVE_SET_SIZE;
	}
	if (!c.set)
		return live_getattr(m->vol, n->a, n->b, ret_attr);
	return live_setattr(m->vol, n->a, n->b, &c, ret_attr);
}

void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
		struct fuse_file_info *fi)
{
	struct fs_mount *m = fs_of(req);
	struct node *n = nodes_find(m->nodes, ino);
	struct live_change change;
	struct live_attr now;
	struct stat st;
	int r = node_writable(m, n);

	if (r == 0)
		r = change_of(req, n, attr, to_set, &change);
	if (r == 0) {
		change.interrupted = request_interrupted;
		change.interrupted_arg = req;
		r = set_live(m, n, fi ? file_of(req, fi) : NULL, &change, &now);
	}
	if (r < 0) {
		reply_error(req, node_error(r));
		return;
	}
	if (change.set & LIVE_SET_SIZE)
		invalidate_twin(m, n, 0, 0);
	/* Without an open file the size is that of what the file shows now, whatever the node stands for. */
	invalidate_others(m, n, change.set & LIVE_SET_SIZE && !fi);
	note_attr(n, &now);
	stat_of_live(&now, &st);
	reply_attr(req, &st, n->unlisted ? 0 : timeout_of_live(&now));
}

void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
	struct fs_mount *m = fs_of(req);
	struct node *n = nodes_find(m->nodes, ino);
	cleanup_buf struct buf target = {0};
	int r;

	if (!n)
		r = -ESTALE;
	else if (n->kind == NODE_LIVE)
		r = node_error(live_readlink(m->vol, n->a, &target));
	else if (n->kind == NODE_EPOCH)
		r = epoch_file_readlink(m, n, &target);
	else
		r = epochs_dir_readlink(m, n, &target);
	if (r == 0)
		(void)buf_str(&target);
	if (r == 0)
		r = buf_error(&target);
	if (r < 0)
		reply_error(req, r);
	else
		fuse_reply_readlink(req, buf_str(&target));
}

void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct volume_space space;
	struct statvfs st;
	int r = volume_statfs(fs_of(req)->vol, &space);

	(void)ino;
	if (r < 0) {
		reply_error(req, r);
		return;
	}
	st = (struct statvfs){
		.f_bsize = space.block_size,
		.f_frsize = space.block_size,
		.f_blocks = space.blocks,
		.f_bfree = space.free_blocks,
		.f_bavail = space.available_blocks,
		.f_files = space.files,
		.f_ffree = space.free_files,
		.f_favail = space.free_files,
		.f_namemax = 255,
	};
	fuse_reply_statfs(req, &st);
}
