/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing regular files: open, create, flush, release. */
#include "fs/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include "fs/control_file.h"
#include "fs/epoch_files.h"
#include "fs/files.h"
#include "fs/loop.h"
#include "fs/passthrough.h"
#include "fs/torn_files.h"
#include "fs/users.h"
#include "lib/util/cleanup.h"

/* Lookup and open race with those who replace the file; nobody replaces it that often. */
#define OPEN_TRIES 8

/* ---- the live tree ---- */

/* What passthrough asks about. */
struct live_open {
	fuse_req_t req;
	struct handle *handle;
};

static bool live_direct(void *arg)
{
	const struct live_open *o = arg;

	return handle_direct(o->handle);
}

static bool live_has_room_ahead(void *arg)
{
	const struct live_open *o = arg;

	return handle_has_room_ahead(o->handle);
}

static int live_prepare(void *arg)
{
	const struct live_open *o = arg;
	int r = handle_begin_write(o->handle, request_interrupted, o->req);

	if (r == -EHOSTUNREACH || r == -ETIMEDOUT) /* not local, and cannot become so now */
		return -EAGAIN;
	return r == 0 ? handle_prepare_direct(o->handle) : r;
}

static int live_backing_fd(void *arg)
{
	const struct live_open *o = arg;

	return handle_backing_fd(o->handle);
}

/* Makes a file of a handle, which it takes over, and answers OPEN or CREATE. */
static void answer_live(fuse_req_t req, struct node *n, struct handle *h,
			const struct fuse_entry_param *created)
{
	struct fs_mount *m = fs_of(req);
	struct live_open opened = {.req = req, .handle = h};
	struct passthrough_source source = {
		.arg = &opened,
		.writes = handle_writes(h),
		.direct = live_direct,
		.has_room_ahead = handle_writes(h) ? live_has_room_ahead : NULL,
		.prepare = handle_writes(h) ? live_prepare : NULL,
		.backing_fd = live_backing_fd,
	};
	struct file *f = file_new(m, FILE_LIVE, n);
	int32_t backing_id;
	bool keep;
	int r;

	if (!f) {
		handle_release(h, false);
		reply_error(req, -ENOMEM);
		return;
	}
	f->handle = h;
	users_note(m->users, fuse_req_ctx(req)->pid);
	r = passthrough_open(m, f, &source, &backing_id, &keep);
	if (r < 0) {
		file_release(m, f);
		reply_error(req, r);
		return;
	}
	r = reply_open(req, created, f, keep && !f->passthrough ? FOPEN_KEEP_CACHE : 0, backing_id);
	if (r < 0)
		file_release(m, f);
}

static void open_live(fuse_req_t req, struct node *n, int flags)
{
	struct fs_mount *m = fs_of(req);
	struct live_caller who = request_caller(req);
	struct handle *h;
	int r = handle_open(m->vol, n->a, n->b, flags, &who, request_interrupted, req, &h);

	if (r < 0)
		reply_error(req, node_error(r));
	else
		answer_live(req, n, h, NULL);
}

/* A worker before this one opened the file, and died before it had said so. */
static bool answer_claimed(fuse_req_t req, const struct fuse_entry_param *created, struct file *f)
{
	if (!f)
		return false;
	if (reply_open(req, created, f, 0, f->passthrough ? f->node->backing_id : 0) < 0)
		file_release(fs_of(req), f);
	return true;
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_mount *m = fs_of(req);
	struct node *n = nodes_find(m->nodes, ino);

	if (answer_claimed(req, NULL, file_claim(m)))
		return;
	if (!n)
		reply_error(req, -ESTALE);
	else if (n->kind == NODE_LIVE)
		open_live(req, n, fi->flags);
	else if (n->kind == NODE_SPECIAL && n->a == SPECIAL_CONTROL)
		control_file_open(req, n);
	else if ((fi->flags & O_ACCMODE) != O_RDONLY || fi->flags & O_TRUNC)
		reply_error(req, -EROFS);
	else if (n->kind == NODE_EPOCH)
		epoch_file_open(req, n, fi->flags);
	else if (n->kind == NODE_TORN)
		torn_file_open(req, n, fi->flags);
	else
		reply_error(req, -EISDIR);
}

/* The name is there already, though the kernel did not know it: opens what it leads to. */
static int open_existing(fuse_req_t req, uint64_t parent, const char *name, int flags,
			 struct live_attr *ret_attr, struct handle **ret_handle)
{
	struct fs_mount *m = fs_of(req);
	struct live_caller who = request_caller(req);
	int r = -ESTALE;

	for (int i = 0; r == -ESTALE && i < OPEN_TRIES; i++) {
		r = live_lookup(m->vol, parent, name, who.pid, ret_attr);
		if (r < 0)
			return r == -ENOENT ? -ESTALE : r;
		if (S_ISDIR(ret_attr->mode))
			return -EISDIR;
		if (!S_ISREG(ret_attr->mode))
			return -ESTALE; /* the kernel follows a symlink, when it looks again */
		r = handle_open(m->vol, ret_attr->ino, ret_attr->body, flags, &who,
				request_interrupted, req, ret_handle);
	}
	if (r == 0)
		r = live_getattr(m->vol, ret_attr->ino, ret_attr->body, ret_attr);
	return r;
}

static bool answer_claimed_create(fuse_req_t req, struct file *f)
{
	struct fs_mount *m = fs_of(req);
	struct fuse_entry_param e;
	struct live_attr attr;
	int r;

	if (!f)
		return false;
	r = live_getattr(m->vol, f->node->a, f->node->b, &attr);
	if (r == 0)
		r = entry_of_live(m, &attr, &e);
	if (r == 0)
		return answer_claimed(req, &e, f);
	file_release(m, f);
	reply_error(req, -EIO);
	return true;
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct fs_mount *m = fs_of(req);
	const struct node *dir = nodes_find(m->nodes, parent);
	struct live_caller who = request_caller(req);
	struct fuse_entry_param e;
	struct live_attr attr;
	struct handle *h = NULL;
	int r = node_writable(m, dir);

	if (answer_claimed_create(req, file_claim(m)))
		return;
	if (r == 0 && is_epochs_name(dir, name))
		r = -EISDIR;
	if (r == 0)
		r = handle_await_room(m->vol, request_interrupted, req);
	if (r == 0) {
		r = handle_create(m->vol, dir->a, name, mode, fi->flags, &who, &attr, &h);
		/* Sent again: the kernel has seen that the name was free, so it was made by this request. */
		if (r == -EEXIST && (!(fi->flags & O_EXCL) || loop_request_resent()))
			r = open_existing(req, dir->a, name, fi->flags, &attr, &h);
	}
	if (r == 0)
		r = entry_of_live(m, &attr, &e);
	if (r < 0) {
		if (h)
			handle_release(h, false);
		reply_error(req, r);
		return;
	}
	answer_live(req, nodes_find(m->nodes, e.ino), h, &e);
}

void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct file *f = file_of(req, fi);
	int r = 0;

	(void)ino;
	if (f->kind == FILE_DEAD)
		r = -EIO;
	if (f->kind == FILE_LIVE)
		r = handle_flush(f->handle, fuse_req_ctx(req)->pid, request_interrupted, req);
	reply_error(req, r);
}

void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	(void)ino;
	file_release(fs_of(req), file_of(req, fi));
	fuse_reply_err(req, 0);
}
