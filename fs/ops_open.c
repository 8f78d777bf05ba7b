/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing regular files: open, create, flush, release. */
#include "fs/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include "fs/epochs_dir.h"
#include "fs/files.h"
#include "fs/invalidate.h"
#include "fs/loop.h"
#include "fs/passthrough.h"
#include "fs/users.h"
#include "lib/util/cleanup.h"

/* ---- the live tree ---- */

/* What passthrough asks about. */
struct live_open {
	fuse_req_t req;
	struct handle *handle;
};

static bool live_has_room_ahead(void *arg)
{
	const struct live_open *o = arg;

	return handle_has_room_ahead(o->handle);
}

static int live_grant(void *arg, struct grant **ret_grant, int *ret_fd)
{
	const struct live_open *o = arg;

	return handle_is_blind(o->handle) ? -EOPNOTSUPP
					  : handle_grant(o->handle, ret_grant, ret_fd);
}

static int live_join(void *arg)
{
	const struct live_open *o = arg;

	return handle_join_grant(o->handle, request_interrupted, o->req);
}

/* The lookup that the entry counted is not the kernel's. */
static void answer_failed(fuse_req_t req, const struct fuse_entry_param *created, int error)
{
	if (created)
		nodes_forget(fs_of(req)->nodes, created->ino, 1);
	reply_error(req, error);
}

/* A second node of a body has no pages of its own in the kernel, which a write through the first would leave as they are. */
static uint32_t open_flags(const struct file *f, int flags)
{
	if (f->passthrough)
		return passthrough_open_flags(flags);
	if (f->kind == FILE_LIVE && passthrough_sends_all(f))
		return FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE;
	return FOPEN_KEEP_CACHE;
}

/* Makes a file of a handle, which it takes over, and answers OPEN or CREATE. False: not yet, as the node has moved to other content. */
static bool answer_live(fuse_req_t req, struct node *n, struct handle *h, int flags,
			const struct fuse_entry_param *created)
{
	struct fs_mount *m = fs_of(req);
	struct live_open opened = {.req = req, .handle = h};
	struct passthrough_source source = {
		.arg = &opened,
		.writes = handle_writes(h),
		.has_room_ahead = handle_writes(h) ? live_has_room_ahead : NULL,
		.grant = live_grant,
		.join = live_join,
	};
	struct file *f = file_new(m, FILE_LIVE, n);
	int32_t backing_id;
	int r;

	if (!f) {
		handle_cancel(h);
		answer_failed(req, created, -ENOMEM);
		return true;
	}
	f->handle = h;
	users_note(m->users, fuse_req_ctx(req)->pid);
	r = passthrough_open(m, f, &source, &backing_id);
	if (r == -EAGAIN) {
		f->handle = NULL;
		handle_retry(h);
	}
	if (r < 0) {
		file_release(m, f);
		if (r != -EAGAIN)
			answer_failed(req, created, r);
		return r != -EAGAIN;
	}
	if (flags & O_TRUNC)
		invalidate_twin(m, n, 0, 0, TELLER_ANY);
	r = reply_open(req, created, f, open_flags(f, flags), backing_id);
	if (r < 0)
		file_release(m, f);
	return true;
}

/*
 * The volume opened other content than the node stands for (handle.h), which nobody had open: the node goes over to it. False where somebody opened
 * it in this moment: what was made for this open is undone. Who opens it next waits until the kernel has been told.
 */
static bool move_node(struct fs_mount *m, struct node *n, struct handle *h)
{
	int moved = nodes_move(m->nodes, n, handle_body(h));

	if (moved < 0) {
		handle_retry(h);
		return false;
	}
	if (!moved)
		return true;
	/* Size and times, not the pages: those go in passthrough_open. */
	(void)fuse_lowlevel_notify_inval_inode(m->se, n->id, -1, 0);
	nodes_moved(m->nodes, n);
	volume_node_came(m->vol, n->a, node_body(n));
	return true;
}

/* An open that truncates changes the file, also where there was nothing to cut off. Undoes the open where that fails. */
static int drop_at_truncation(fuse_req_t req, struct node *n, int flags, struct handle *h)
{
	int r = flags & O_TRUNC ? setid_drop(req, n) : 0;

	if (r < 0)
		handle_cancel(h);
	return r;
}

/* False: the node stands for other content by now. Else it is answered. */
static bool try_open_live(fuse_req_t req, struct node *n, int flags)
{
	struct fs_mount *m = fs_of(req);
	struct live_caller who = request_caller(req);
	struct handle *h;
	int r = handle_open(m->vol, n->a, node_body(n), flags, &who, request_interrupted, req, &h);

	if (r == 0 && handle_body(h) != node_body(n) && !move_node(m, n, h))
		return false;
	if (r == 0)
		r = drop_at_truncation(req, n, flags, h);
	if (r == 0)
		return answer_live(req, n, h, flags, NULL);
	reply_error(req, node_error(r));
	return true;
}

/* Whoever moved the node has got on, so this ends. An error would be a second ESTALE for who came by the name. */
static void open_live(fuse_req_t req, struct node *n, int flags)
{
	while (!try_open_live(req, n, flags))
		;
}

/* A worker before this one opened the file, and died before it had said so. */
static bool answer_claimed(fuse_req_t req, const struct fuse_entry_param *created, struct file *f,
			   int flags)
{
	if (!f)
		return false;
	if (reply_open(req, created, f, open_flags(f, flags),
		       f->passthrough ? f->node->backing_id : 0) < 0)
		file_release(fs_of(req), f);
	return true;
}

/* Whoever opens or lists what is there holds no lock of the kernel in the live tree, so that this waits until that is told what goes. */
bool live_before_reading(fuse_req_t req, const struct node *n, int flags)
{
	const struct fs_mount *m = fs_of(req);
	pid_t pid = fuse_req_ctx(req)->pid;
	bool went;

	if (!live_goes_back(m->vol, n->a, flags, pid))
		return false;
	loop_let_others_read();
	loop_defer_off();
	went = live_go_back(m->vol, n->a, flags, pid);
	loop_defer_on();
	return went;
}

void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs_mount *m = fs_of(req);
	struct node *n = nodes_find(m->nodes, ino);

	if (answer_claimed(req, NULL, file_claim(m), fi->flags))
		return;
	if (!n || (n->kind == NODE_LIVE && live_before_reading(req, n, fi->flags)))
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

/* One try: -ESTALE where what the name led to was replaced, or has to be looked up again for this process. */
static int open_named(fuse_req_t req, uint64_t parent, const char *name, int flags,
		      struct fuse_entry_param *ret_e, struct handle **ret_handle)
{
	struct fs_mount *m = fs_of(req);
	struct live_caller who = request_caller(req);
	struct live_attr attr;
	int r = live_lookup(m->vol, parent, name, who.pid, &attr);

	if (r < 0)
		return r;
	if (S_ISDIR(attr.mode))
		return -EISDIR;
	if (!S_ISREG(attr.mode))
		return -ELOOP;
	r = entry_of_live(m, &attr, ret_e);
	if (r < 0)
		return r;
	r = handle_open(m->vol, attr.ino, attr.body, flags, &who, request_interrupted, req,
			ret_handle);
	if (r == 0 && handle_body(*ret_handle) != attr.body) {
		handle_cancel(*ret_handle);
		r = -ESTALE;
	}
	if (r == 0)
		r = drop_at_truncation(req, nodes_find(m->nodes, ret_e->ino), flags, *ret_handle);
	if (r == 0)
		r = live_getattr(m->vol, attr.ino, attr.body, &attr);
	if (r == 0)
		stat_of_live(&attr, &ret_e->attr);
	else
		nodes_forget(m->nodes, ret_e->ino, 1);
	return r;
}

/* The name is there already, though the kernel did not know it: opens what it leads to. */
static int open_existing(fuse_req_t req, uint64_t parent, const char *name, int flags,
			 struct fuse_entry_param *ret_e, struct handle **ret_handle)
{
	int r;

	do {
		r = open_named(req, parent, name, flags, ret_e, ret_handle);
	} while (r == -ESTALE && !request_interrupted(req));
	/* A symlink, which the kernel follows: it looks once more. */
	return r == -ELOOP ? -ESTALE : r;
}

static bool answer_claimed_create(fuse_req_t req, struct file *f, int flags)
{
	struct fs_mount *m = fs_of(req);
	struct fuse_entry_param e;
	struct live_attr attr;
	int r;

	if (!f)
		return false;
	r = live_getattr(m->vol, f->node->a, node_body(f->node), &attr);
	if (r == 0)
		r = entry_of_live(m, &attr, &e);
	if (r == 0)
		return answer_claimed(req, &e, f, flags);
	file_release(m, f);
	reply_error(req, -EIO);
	return true;
}

/* Made by an open that cannot write: it is whole at once, and no epoch waits for a close, which a mapping may put off. */
static int create_unwritten(fuse_req_t req, uint64_t parent, const char *name, mode_t mode,
			    int flags, struct live_attr *ret_attr, struct handle **ret_handle)
{
	struct fs_mount *m = fs_of(req);
	struct live_caller who = request_caller(req);
	int r = live_mknod(m->vol, parent, name, S_IFREG | (mode & 07777), 0, &who, ret_attr);

	if (r < 0)
		return r;
	return handle_open(m->vol, ret_attr->ino, ret_attr->body,
			   flags & ~(O_CREAT | O_EXCL | O_TRUNC), &who, request_interrupted, req,
			   ret_handle);
}

/* Makes the file, or opens the one that is there: with its entry and a handle. */
static int create_or_open(fuse_req_t req, const struct node *dir, const char *name, mode_t mode,
			  int flags, struct fuse_entry_param *ret_e, struct handle **ret_handle)
{
	struct fs_mount *m = fs_of(req);
	struct live_caller who = request_caller(req);
	struct live_attr attr;
	int r;

	do {
		r = (flags & O_ACCMODE) == O_RDONLY
			    ? create_unwritten(req, dir->a, name, mode, flags, &attr, ret_handle)
			    : handle_create(m->vol, dir->a, name, mode, flags, &who, &attr,
					    ret_handle);
		/* Sent again: the kernel has seen that the name was free, so it was made by this request. */
		if (r != -EEXIST || (flags & O_EXCL && !loop_request_resent()))
			break;
		r = open_existing(req, dir->a, name, flags, ret_e, ret_handle);
		if (r != -ENOENT)
			return r;
	} while (!request_interrupted(req));
	if (r < 0)
		return r;
	r = entry_of_live(m, &attr, ret_e);
	if (r < 0)
		handle_release(*ret_handle, false);
	else if (ret_e->attr_timeout < ATTR_TIMEOUT_NEW)
		ret_e->attr_timeout = ATTR_TIMEOUT_NEW;
	return r;
}

static int await_room(fuse_req_t req, const struct node *dir, const char *name, int flags)
{
	struct volume *vol = fs_of(req)->vol;
	struct live_caller who = request_caller(req);
	int r = handle_await_room(vol, request_interrupted, req);

	if (r == -ENOSPC)
		handle_refused(vol, dir->a, name, flags, &who);
	return r;
}

void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	       struct fuse_file_info *fi)
{
	struct fs_mount *m = fs_of(req);
	const struct node *dir = nodes_find(m->nodes, parent);
	struct fuse_entry_param e;
	struct handle *h = NULL;
	int r = node_writable(m, dir);

	if (answer_claimed_create(req, file_claim(m), fi->flags))
		return;
	if (r == 0 && is_epochs_name(dir, name))
		r = -EISDIR;
	if (r == 0)
		r = await_room(req, dir, name, fi->flags);
	while (r == 0) {
		r = create_or_open(req, dir, name, mode, fi->flags, &e, &h);
		if (r < 0)
			break;
		if (answer_live(req, nodes_find(m->nodes, e.ino), h, fi->flags, &e))
			return;
		nodes_forget(m->nodes, e.ino, 1);
	}
	reply_error(req, r);
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
