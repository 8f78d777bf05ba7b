/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on names: lookup, forget, mkdir, mknod, symlink, link, unlink, rmdir, rename, and listing directories. */
#include "fs/ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "fs/epochs_dir.h"
#include "fs/invalidate.h"
#include "fs/loop.h"
#include "lib/util/cleanup.h"

static bool is_special(const struct node *n, enum special which)
{
	return n && n->kind == NODE_SPECIAL && n->a == which;
}

/*
 * The node is made after the volume was asked, so what it stands for may have been replaced in between, and then it is not kept
 * for the node. From the answer on it is.
 */
static int lookup_live(struct fs_mount *m, const struct node *parent, const char *name, pid_t pid,
		       struct fuse_entry_param *ret_e)
{
	struct live_attr attr;

	for (;;) {
		int r = live_lookup(m->vol, parent->a, name, pid, &attr);

		if (r == 0)
			r = entry_of_live(m, &attr, ret_e);
		if (r < 0 || live_is_shown(m->vol, attr.ino, attr.body))
			return r;
		nodes_forget(m->nodes, ret_e->ino, 1);
	}
}

static int lookup(struct fs_mount *m, struct node *parent, const char *name, pid_t pid,
		  struct fuse_entry_param *ret_e)
{

	if (!parent)
		return -ESTALE;
	if (is_epochs_name(parent, name))
		return epochs_dir_entry(m, ret_e);
	switch (parent->kind) {
	case NODE_LIVE:
		return lookup_live(m, parent, name, pid, ret_e);
	case NODE_EPOCH:
		return epoch_file_lookup(m, parent, name, ret_e);
	case NODE_SPECIAL:
		if (parent->a == SPECIAL_TORN)
			return torn_file_lookup(m, name, ret_e);
		return epochs_dir_lookup(m, parent, name, ret_e);
	default:
		return -ESTALE;
	}
}

/* Answers with an entry, or with the error that there is none. */
static void answer_entry(fuse_req_t req, int error, const struct fuse_entry_param *e)
{
	if (error < 0)
		reply_error(req, error);
	else
		reply_entry(req, e);
}

static void answer_live(fuse_req_t req, int error, const struct live_attr *attr)
{
	struct fuse_entry_param e;

	if (error == 0)
		error = entry_of_live(fs_of(req), attr, &e);
	answer_entry(req, error, &e);
}

void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs_mount *m = fs_of(req);
	struct fuse_entry_param e;
	int r = strlen(name) > 255
			? -ENAMETOOLONG
			: lookup(m, nodes_find(m->nodes, parent), name, fuse_req_ctx(req)->pid, &e);

	answer_entry(req, r, &e);
}

void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t count)
{
	nodes_forget(fs_of(req)->nodes, ino, count);
	fuse_reply_none(req);
}

void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
	for (size_t i = 0; i < count; i++)
		nodes_forget(fs_of(req)->nodes, forgets[i].ino, forgets[i].nlookup);
	fuse_reply_none(req);
}

/* Whether a name may be made in this directory of the live tree. */
static int may_make(const struct fs_mount *m, const struct node *parent, const char *name)
{
	if (parent && is_epochs_name(parent, name))
		return -EEXIST;
	return node_writable(m, parent);
}

void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
	struct fs_mount *m = fs_of(req);
	const struct node *dir = nodes_find(m->nodes, parent);
	struct live_caller who = request_caller(req);
	struct live_attr attr;
	int r = may_make(m, dir, name);

	if (r == 0)
		r = live_mknod(m->vol, dir->a, name, mode, rdev, &who, &attr);
	if (r < 0 && dir)
		r = resent_made(req, r, dir->a, name, &(struct live_attr){.mode = mode}, NULL,
				&attr);
	answer_live(req, r, &attr);
}

/* Epochs are of the whole run: in a mount that is shared only its owner and root seal, tag, roll back and drop. Others: -EPERM. */
static int may_change_epochs(fuse_req_t req)
{
	uint32_t uid = fuse_req_ctx(req)->uid;

	return uid == 0 || uid == fs_of(req)->uid ? 0 : -EPERM;
}

void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
	struct fs_mount *m = fs_of(req);
	const struct node *dir = nodes_find(m->nodes, parent);
	struct live_caller who = request_caller(req);
	struct fuse_entry_param e;
	struct live_attr attr;
	int r;

	if (is_special(dir, SPECIAL_EPOCHS)) {
		r = may_change_epochs(req);
		if (r == 0)
			r = resent_unknown(epochs_dir_mkdir(m, name, &e));
		answer_entry(req, r, &e);
		return;
	}
	r = may_make(m, dir, name);
	if (r == 0)
		r = live_mkdir(m->vol, dir->a, name, mode, &who, &attr);
	if (r < 0 && dir)
		r = resent_made(req, r, dir->a, name, &(struct live_attr){.mode = S_IFDIR}, NULL,
				&attr);
	answer_live(req, r, &attr);
}

void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
	struct fs_mount *m = fs_of(req);
	const struct node *dir = nodes_find(m->nodes, parent);
	struct live_caller who = request_caller(req);
	struct fuse_entry_param e;
	struct live_attr attr;
	int r;

	if (is_special(dir, SPECIAL_EPOCHS)) {
		r = may_change_epochs(req);
		if (r == 0)
			r = resent_unknown(epochs_dir_symlink(m, dir, name, target, &e));
		answer_entry(req, r, &e);
		return;
	}
	r = may_make(m, dir, name);
	if (r == 0)
		r = live_symlink(m->vol, dir->a, name, target, &who, &attr);
	if (r < 0 && dir)
		r = resent_made(req, r, dir->a, name, &(struct live_attr){.mode = S_IFLNK}, target,
				&attr);
	answer_live(req, r, &attr);
}

void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
	struct fs_mount *m = fs_of(req);
	const struct node *n = nodes_find(m->nodes, ino);
	const struct node *dir = nodes_find(m->nodes, parent);
	struct live_caller who = request_caller(req);
	struct live_attr attr;
	int r = may_make(m, dir, name);

	/* What is in an epoch is on another file system, as far as links go: callers then copy. */
	if (r == 0 && (!n || n->kind != NODE_LIVE))
		r = -EXDEV;
	if (r == 0)
		r = live_link(m->vol, n->a, dir->a, name, &who, &attr);
	if (r < 0 && n && dir)
		r = resent_made(req, r, dir->a, name,
				&(struct live_attr){.mode = noted_mode(n), .ino = n->a}, NULL,
				&attr);
	if (r == 0)
		invalidate_others(m, n, false);
	answer_live(req, r, &attr);
}

static void remove_name(fuse_req_t req, fuse_ino_t parent, const char *name,
			int (*in_live)(struct volume *vol, uint64_t parent, const char *name),
			int (*in_epochs)(struct fs_mount *m, const char *name))
{
	struct fs_mount *m = fs_of(req);
	const struct node *dir = nodes_find(m->nodes, parent);
	int r;

	if (is_special(dir, SPECIAL_EPOCHS)) {
		r = may_change_epochs(req);
		if (r == 0)
			r = resent_unknown(in_epochs(m, name));
	} else if (dir && is_epochs_name(dir, name))
		r = -EROFS;
	else
		r = node_writable(m, dir);
	if (r == 0 && dir->kind == NODE_LIVE)
		r = resent_removed(in_live(m->vol, dir->a, name), -ENOENT);
	reply_error(req, r);
}

void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, live_unlink, epochs_dir_unlink);
}

void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	remove_name(req, parent, name, live_rmdir, epochs_dir_rmdir);
}

void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
	       const char *new_name, unsigned int flags)
{
	struct fs_mount *m = fs_of(req);
	const struct node *from = nodes_find(m->nodes, parent);
	const struct node *to = nodes_find(m->nodes, new_parent);
	struct live_caller who = request_caller(req);
	int r;

	if (is_special(from, SPECIAL_EPOCHS) && is_special(to, SPECIAL_EPOCHS)) {
		r = may_change_epochs(req);
		if (r == 0)
			r = resent_unknown(epochs_dir_rename(m, name, new_name, flags));
		reply_error(req, r);
		return;
	}
	r = node_writable(m, from);
	if (r == 0)
		r = node_writable(m, to);
	if (r == 0 && (is_epochs_name(from, name) || is_epochs_name(to, new_name)))
		r = -EROFS;
	if (r == 0)
		r = flags & RENAME_EXCHANGE && loop_request_resent()
			    ? -EIO /* done twice it would be undone */
			    : live_rename(m->vol, from->a, name, to->a, new_name, flags, &who);
	if (r < 0 && to)
		r = resent_renamed(req, r, to->a, new_name);
	reply_error(req, r);
}

/* ---- Operations on directories: opendir, readdir with and without attributes, fsync. ---- */

bool dir_reply_add(struct dir_reply *r, const char *name, uint64_t next, const struct node_key *key,
		   struct node *root, const struct stat *st, double timeout)
{
	struct fuse_entry_param e = {.attr = *st};
	size_t left = r->size - r->used, need;

	if (!r->plus) {
		need = fuse_add_direntry(r->req, r->data + r->used, left, name, st, (off_t)next);
		if (need > left)
			return false;
		r->used += need;
		return true;
	}
	/* Only what fits is looked up. */
	need = fuse_add_direntry_plus(r->req, NULL, 0, name, NULL, 0);
	if (need > left)
		return false;
	if (key)
		r->error = entry_of_key(r->m, key, root, st, timeout, &e);
	if (r->error < 0)
		return false;
	r->used += fuse_add_direntry_plus(r->req, r->data + r->used, left, name, &e, (off_t)next);
	return true;
}

static int add_live(void *arg, const char *name, uint64_t cookie, const struct live_attr *attr)
{
	struct dir_reply *r = arg;
	struct node_key key = key_of_live(attr);
	struct stat st;

	stat_of_live(attr, &st);
	return !dir_reply_add(r, name, cookie + DIR_DOTS, &key, NULL, &st, timeout_of_live(attr));
}

/* The inode of the directory above. */
static uint64_t parent_ino(struct fs_mount *m, const struct node *n, const struct stat *st)
{
	uint64_t parent;

	if (n->kind == NODE_LIVE && live_parent(m->vol, n->a, &parent) == 0)
		return parent;
	return st->st_ino;
}

/* "." and "..": false where one did not fit. */
static bool add_dots(struct dir_reply *r, struct node *n, uint64_t after)
{
	struct stat st;
	double timeout;

	r->error = node_stat(r->m, n, &st, &timeout);
	if (r->error < 0)
		return false;
	if (after < 1 && !dir_reply_add(r, ".", 1, NULL, NULL, &st, 0))
		return false;
	st.st_ino = parent_ino(r->m, n, &st);
	return after >= 2 || dir_reply_add(r, "..", 2, NULL, NULL, &st, 0);
}

/* What is behind offset `after` of a listing. In the live tree names are in falling order of their cookies
 * (live.h): after the dots, which are `after` 2, come all. */
static void list(struct dir_reply *r, struct node *n, uint64_t after)
{
	int error;

	if (after < DIR_DOTS && !add_dots(r, n, after))
		return;
	after = after > DIR_DOTS ? after - DIR_DOTS : 0;
	switch (n->kind) {
	case NODE_LIVE:
		error = live_readdir(r->m->vol, n->a, after, fuse_req_ctx(r->req)->pid, add_live,
				     r);
		if (error < 0)
			r->error = error;
		break;
	case NODE_EPOCH:
		epoch_file_list(r, n, after);
		break;
	case NODE_SPECIAL:
		if (n->a == SPECIAL_TORN)
			torn_file_list(r, after);
		else
			epochs_dir_list(r, n, after);
		break;
	default:
		break;
	}
}

static void read_dir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, bool plus)
{
	struct fs_mount *m = fs_of(req);
	struct node *n = nodes_find(m->nodes, ino);
	cleanup_free char *data = malloc(size);
	struct dir_reply r = {.req = req, .m = m, .plus = plus, .data = data, .size = size};

	if (!n)
		r.error = -ESTALE;
	else if (!data)
		r.error = -ENOMEM;
	else
		list(&r, n, (uint64_t)off);
	/* What was added before an error counts: the error comes again with the next call. */
	if (r.error < 0 && !r.used)
		reply_error(req, r.error);
	else
		fuse_reply_buf(req, data, r.used);
}

void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	const struct node *n = nodes_find(fs_of(req)->nodes, ino);

	/* What an epoch lists never changes. */
	if (n && n->kind == NODE_EPOCH)
		fi->keep_cache = fi->cache_readdir = 1;
	if (n && n->kind == NODE_LIVE && live_before_reading(req, n, O_RDONLY))
		reply_error(req, -ESTALE);
	else
		fuse_reply_open(req, fi);
}

void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off, struct fuse_file_info *fi)
{
	(void)fi;
	read_dir(req, ino, size, off, false);
}

void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	(void)fi;
	read_dir(req, ino, size, off, true);
}

void op_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
	struct fs_mount *m = fs_of(req);
	const struct node *n = nodes_find(m->nodes, ino);
	int r = 0;

	(void)datasync;
	(void)fi;
	if (!n)
		r = -ESTALE;
	else if (n->kind == NODE_LIVE)
		r = live_sync(m->vol);
	else if (n->kind == NODE_SPECIAL && n->a == SPECIAL_EPOCHS)
		r = may_change_epochs(req) < 0 ? -EPERM : epochs_dir_fsync(m, n, req);
	reply_error(req, r);
}
