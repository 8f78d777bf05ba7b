/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on attributes: getattr, setattr, readlink, statfs, extended attributes. */
#include "fs/ops.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fs/epochs_dir.h"
#include "fs/files.h"
#include "fs/invalidate.h"
#include "lib/epochs/epochs.h"
#include "lib/util/buf.h"
#include "lib/util/clock.h"

/* ---- setuid and setgid ---- */

bool setid_may_drop(mode_t mode)
{
	return !S_ISDIR(mode) && mode & (S_ISUID | S_ISGID);
}

/* Groups of which nothing can be learned count as none. */
static bool is_of_group(fuse_req_t req, gid_t gid)
{
	gid_t few[64], *groups = few;
	int n, room = 64;
	bool found = false;

	if (fuse_req_ctx(req)->uid == 0 || fuse_req_ctx(req)->gid == gid)
		return true;
	n = fuse_req_getgroups(req, room, few);
	if (n > room) {
		room = n;
		groups = calloc((size_t)room, sizeof(*groups));
		n = groups ? fuse_req_getgroups(req, room, groups) : 0;
	}
	for (int i = 0; i < n && i < room && !found; i++)
		found = groups[i] == gid;
	if (groups != few)
		free(groups);
	return found;
}

/* The mode that a change by the caller leaves of the mode of a file of this group. */
static mode_t setid_after_change(fuse_req_t req, mode_t mode, gid_t gid)
{
	if (S_ISDIR(mode))
		return mode;
	mode &= ~(mode_t)S_ISUID;
	if (mode & S_ISGID && (mode & S_IXGRP || !is_of_group(req, gid)))
		mode &= ~(mode_t)S_ISGID;
	return mode;
}

int setid_drop(fuse_req_t req, struct node *n)
{
	struct fs_mount *m = fs_of(req);
	struct live_change change = {.set = LIVE_SET_MODE};
	struct live_attr attr;
	mode_t less;
	int r;

	if (!setid_may_drop(noted_mode(n)) || fuse_req_ctx(req)->uid == 0)
		return 0;
	r = live_getattr(m->vol, n->a, node_body(n), &attr);
	if (r < 0)
		return r;
	less = setid_after_change(req, attr.mode, attr.gid);
	if (less == attr.mode)
		return 0;
	change.mode = less & 07777;
	r = live_setattr(m->vol, n->a, node_body(n), &change, &attr);
	if (r == 0)
		note_attr(n, &attr);
	return r;
}

/*
 * A directory that is gone may still be open, or where a process works; and of what has no content the kernel tells nobody that it is
 * open. Nothing is left of them but mode and owner, in the node. An error here would be ESTALE for who has it open: of a file with
 * content nothing of the kind happens, for the volume keeps it.
 */
static bool is_only_noted(const struct node *n, int error)
{
	return error == -ENOENT && n->kind == NODE_LIVE && noted_mode(n) && !S_ISREG(noted_mode(n));
}

static void stat_noted(const struct node *n, struct stat *ret_st)
{
	*ret_st = (struct stat){.st_ino = n->a, .st_mode = noted_mode(n)};
	noted_owner(n, &ret_st->st_uid, &ret_st->st_gid);
}

static int stat_live(struct fs_mount *m, struct node *n, struct stat *ret_st, double *ret_timeout)
{
	struct live_attr attr;
	int r = live_getattr(m->vol, n->a, node_body(n), &attr);

	if (is_only_noted(n, r)) {
		stat_noted(n, ret_st);
		return 0;
	}
	if (r < 0)
		return node_error(r);
	note_attr(n, &attr);
	stat_of_live(&attr, ret_st);
	*ret_timeout = node_attr_timeout(n, timeout_of_live(&attr));
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

/* What the kernel asks for, as the volume takes it; with what happens to setuid and setgid (ops.h). */
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
		r = live_getattr(m->vol, n->a, node_body(n), &now);
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
		return live_getattr(m->vol, n->a, node_body(n), ret_attr);
	return live_setattr(m->vol, n->a, node_body(n), &c, ret_attr);
}

/* Of what is_only_noted; times are not kept. */
static void set_noted(fuse_req_t req, struct node *n, const struct stat *attr, int to_set,
		      struct stat *ret_st)
{
	struct live_attr a = {.mode = noted_mode(n)};
	bool owner = to_set & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID);

	noted_owner(n, &a.uid, &a.gid);
	if (to_set & FUSE_SET_ATTR_MODE)
		a.mode = (a.mode & S_IFMT) | (attr->st_mode & 07777);
	else if (owner)
		a.mode = setid_after_change(req, a.mode, a.gid);
	if (to_set & FUSE_SET_ATTR_UID)
		a.uid = attr->st_uid;
	if (to_set & FUSE_SET_ATTR_GID)
		a.gid = attr->st_gid;
	note_attr(n, &a);
	stat_noted(n, ret_st);
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
	if (n && is_only_noted(n, r)) {
		set_noted(req, n, attr, to_set, &st);
		reply_attr(req, &st, 0);
		return;
	}
	if (r < 0) {
		reply_error(req, node_error(r));
		return;
	}
	if (change.set & LIVE_SET_SIZE)
		invalidate_twin(m, n, 0, 0, TELLER_AWAITED);
	/* Without an open file the size is that of what the file shows now, whatever the node stands for. */
	invalidate_others(m, n, change.set & LIVE_SET_SIZE && !fi);
	note_attr(n, &now);
	stat_of_live(&now, &st);
	reply_attr(req, &st, node_attr_timeout(n, timeout_of_live(&now)));
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

/*
 * Extended attributes: those of files, and user.epochfs.*, which say what became of them.
 *
 * user.epochfs.* are listed, so that getfattr -d shows them. Tools that copy attributes therefore
 * try to set and remove them, also on copies that come back from elsewhere: both succeed and
 * change nothing.
 */

#define OWN_PREFIX "user.epochfs."
#define LABEL	   "security.selinux"

static bool is_own(const char *name)
{
	return strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0;
}

/* No ACLs (system.*): tools then ask no more. */
static bool is_supported(const char *name)
{
	static const char *const prefixes[] = {"user.", "trusted.", "security."};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
		size_t len = strlen(prefixes[i]);

		if (strncmp(name, prefixes[i], len) == 0 && name[len])
			return true;
	}
	return false;
}

/* Where user.epochfs.* go: into a list of names, or the value of one of them. */
struct own_sink {
	const char *wanted; /* after the prefix; NULL: list all names */
	struct buf *out;
	bool found;
};

static void own(struct own_sink *s, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void own(struct own_sink *s, const char *name, const char *fmt, ...)
{
	char value[256];
	va_list args;
	int len;

	if (!s->wanted) {
		buf_printf(s->out, OWN_PREFIX "%s", name);
		buf_put_u8(s->out, 0);
		return;
	}
	if (strcmp(s->wanted, name))
		return;
	va_start(args, fmt);
	len = vsnprintf(value, sizeof(value), fmt, args);
	va_end(args);
	buf_put(s->out, value, (size_t)len < sizeof(value) ? (size_t)len : sizeof(value) - 1);
	s->found = true;
}

static const char *state_name(enum epoch_state state)
{
	switch (state) {
	case EPOCH_UPLOADING:
		return "uploading";
	case EPOCH_DURABLE:
		return "durable";
	case EPOCH_FAILED:
		return "failed";
	default:
		return "sealed";
	}
}

static const char *complete_name(const struct epoch_info *e)
{
	if (e->complete)
		return "true";
	return e->record.complete == RECORD_UNKNOWN ? "unknown" : "false";
}

static void own_of_node_names(struct own_sink *s, const struct epoch_record *r)
{
	cleanup_buf struct buf names = {0};

	for (size_t i = 0; i < r->node_count; i++)
		buf_printf(&names, "%s%s", i ? "," : "", r->node_names[i]);
	if (!names.len && r->host) /* of one node: it */
		buf_printf(&names, "%s", r->host);
	if (names.len)
		own(s, "nodes", "%s", buf_str(&names));
}

static int own_of_epoch(struct fs_mount *m, const struct node *n, struct own_sink *s)
{
	struct epoch_info e;
	int r = epochs_get(m->vol, n->a, &e);

	if (r < 0)
		return r;
	own(s, "state", "%s", state_name(e.state));
	own(s, "epoch", "%llu", (unsigned long long)e.number);
	if (e.record.has_step)
		own(s, "step", "%llu", (unsigned long long)e.record.step);
	if (n->b == 0) {
		own(s, "complete", "%s", complete_name(&e));
		own_of_node_names(s, &e.record);
		own(s, "bytes", "%llu", (unsigned long long)e.record.bytes);
		own(s, "bytes_new", "%llu", (unsigned long long)e.record.bytes_new);
		if (e.error)
			own(s, "error", "%s", e.error);
	}
	epoch_info_free(&e);
	return 0;
}

static int own_of_live(struct fs_mount *m, const struct node *n, struct own_sink *s)
{
	struct file_epoch info;
	int r;

	if (n->b == 0) /* no regular file */
		return 0;
	r = node_error(epochs_of_file(m->vol, n->a, &info));
	if (r < 0)
		return r;
	own(s, "state", "%s", info.state);
	if (info.epoch)
		own(s, "epoch", "%llu", (unsigned long long)info.epoch);
	if (info.has_step)
		own(s, "step", "%llu", (unsigned long long)info.step);
	return 0;
}

/* The error of an operation on a live node's attributes; `gone` is that of is_only_noted, of which none are kept. */
static int xattr_error(const struct node *n, int error, int gone)
{
	return is_only_noted(n, error) ? gone : node_error(error);
}

static int own_of(struct fs_mount *m, const struct node *n, struct own_sink *s)
{
	if (n->kind == NODE_LIVE)
		return own_of_live(m, n, s);
	return n->kind == NODE_EPOCH ? own_of_epoch(m, n, s) : 0;
}

static int get_xattr(struct fs_mount *m, struct node *n, const char *name, struct buf *out)
{
	struct own_sink s = {.wanted = name + strlen(OWN_PREFIX), .out = out};
	int r = -ENODATA;

	if (!is_supported(name))
		return -EOPNOTSUPP;
	if (is_own(name)) {
		r = own_of(m, n, &s);
		return r < 0 ? r : s.found ? 0 : -ENODATA;
	}
	if (n->kind == NODE_LIVE)
		r = xattr_error(n, live_getxattr(m->vol, n->a, name, out), -ENODATA);
	else if (n->kind == NODE_EPOCH)
		r = epoch_file_getxattr(m, n, name, out);
	/* ls -l asks for it once a file, unless it hears that there are no labels here at all. */
	return r == -ENODATA && strcmp(name, LABEL) == 0 ? -EOPNOTSUPP : r;
}

void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	struct fs_mount *m = fs_of(req);
	struct node *n = nodes_find(m->nodes, ino);
	cleanup_buf struct buf value = {0};
	int r = n ? get_xattr(m, n, name, &value) : -ESTALE;

	if (r == 0)
		r = buf_error(&value);
	if (r < 0)
		reply_error(req, r);
	else
		reply_xattr(req, value.data, value.len, size);
}

static void hide(struct buf *names, const char *prefix)
{
	size_t kept = 0;

	for (size_t at = 0, len; at < names->len; at += len) {
		const char *name = (const char *)names->data + at;

		len = strnlen(name, names->len - at) + 1;
		if (strncmp(name, prefix, strlen(prefix)) == 0)
			continue;
		memmove(names->data + kept, name, len);
		kept += len;
	}
	names->len = kept;
}

void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	struct fs_mount *m = fs_of(req);
	struct node *n = nodes_find(m->nodes, ino);
	cleanup_buf struct buf names = {0};
	struct own_sink s = {.out = &names};
	int r = -ESTALE;

	if (n && n->kind == NODE_LIVE)
		r = xattr_error(n, live_listxattr(m->vol, n->a, &names), 0);
	else if (n)
		r = n->kind == NODE_EPOCH ? epoch_file_listxattr(m, n, &names) : 0;
	if (r == 0)
		r = own_of(m, n, &s);
	if (r == 0)
		r = buf_error(&names);
	/* As on a local disk: who may not read one does not see it. */
	if (r == 0 && fuse_req_ctx(req)->uid)
		hide(&names, "trusted.");
	if (r == 0 && n->kind == NODE_EPOCH && !epoch_file_has_user_xattrs(m, n))
		hide(&names, "user.");
	if (r < 0)
		reply_error(req, r);
	else
		reply_xattr(req, names.data, names.len, size);
}

void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size,
		 int flags)
{
	struct fs_mount *m = fs_of(req);
	const struct node *n = nodes_find(m->nodes, ino);
	int r = node_writable(m, n);

	if (r == 0 && !is_supported(name))
		r = -EOPNOTSUPP;
	if (r == 0 && !is_own(name))
		r = resent_xattr(req,
				 xattr_error(n,
					     live_setxattr(m->vol, n->a, name, value, size, flags),
					     -EOPNOTSUPP),
				 n->a, name, value, size);
	if (r == 0)
		invalidate_others(m, n, false);
	reply_error(req, r);
}

void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	struct fs_mount *m = fs_of(req);
	const struct node *n = nodes_find(m->nodes, ino);
	int r = node_writable(m, n);

	if (r == 0 && !is_supported(name))
		r = -EOPNOTSUPP;
	if (r == 0 && !is_own(name))
		r = resent_removed(xattr_error(n, live_removexattr(m->vol, n->a, name), -ENODATA),
				   -ENODATA);
	if (r == 0)
		invalidate_others(m, n, false);
	reply_error(req, r);
}
