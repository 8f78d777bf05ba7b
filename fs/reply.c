/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: errors, attributes, entries, and what a live file looks like to the kernel. */
#include "fs/fs.h"

#include <errno.h>
#include <string.h>
#include "fs/loop.h"
#include "fs/ops.h"
#include "fs/passthrough.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"

struct live_caller request_caller(fuse_req_t req)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);

	return (struct live_caller){.uid = ctx->uid, .gid = ctx->gid, .pid = ctx->pid};
}

int node_error(int error)
{
	return error == -ENOENT ? -ESTALE : error;
}

void reply_error(fuse_req_t req, int error)
{
	switch (error) {
	case -EBADMSG: /* damaged in the remote */
	case -EUCLEAN: /* damaged local state */
	case -EPROTONOSUPPORT:
		error = -EIO;
		break;
	default:
		break;
	}
	fuse_reply_err(req, -error);
}

void reply_attr(fuse_req_t req, const struct stat *st, double timeout)
{
	fuse_reply_attr(req, st, timeout);
}

void reply_entry(fuse_req_t req, const struct fuse_entry_param *e)
{
	struct fs_mount *m = fs_of(req);

	if (fuse_reply_entry(req, e) < 0)
		nodes_forget(m->nodes, e->ino, 1);
}

void reply_xattr(fuse_req_t req, const void *value, size_t len, size_t size)
{
	if (size == 0)
		fuse_reply_xattr(req, len);
	else if (len > size)
		fuse_reply_err(req, ERANGE);
	else
		fuse_reply_buf(req, value, len);
}

void stat_of_live(const struct live_attr *attr, struct stat *ret_st)
{
	*ret_st = (struct stat){
		.st_ino = attr->ino,
		.st_mode = attr->mode,
		.st_nlink = attr->nlink,
		.st_uid = attr->uid,
		.st_gid = attr->gid,
		.st_rdev = attr->rdev,
		.st_size = (off_t)attr->size,
		.st_blocks = (blkcnt_t)attr->blocks,
		.st_blksize = 4096,
		.st_mtim = clock_timespec(attr->mtime_ns),
		.st_ctim = clock_timespec(attr->ctime_ns),
		.st_atim = clock_timespec(attr->atime_ns),
	};
}

struct node_key key_of_live(const struct live_attr *attr)
{
	return (struct node_key){.kind = NODE_LIVE, .a = attr->ino, .b = attr->body};
}

double timeout_of_live(const struct live_attr *attr)
{
	bool stable = !attr->pending && (S_ISDIR(attr->mode) || attr->nlink == 1);

	return stable ? TIMEOUT_LIVE : 0;
}

void note_attr(struct node *n, const struct live_attr *attr)
{
	node_note(n, (uint16_t)attr->mode, (uint64_t)attr->uid << 32 | attr->gid);
}

void noted_owner(const struct node *n, uid_t *ret_uid, gid_t *ret_gid)
{
	uint64_t owner = __atomic_load_n(&n->owner, __ATOMIC_RELAXED);

	*ret_uid = (uid_t)(owner >> 32);
	*ret_gid = (gid_t)owner;
}

mode_t noted_mode(const struct node *n)
{
	return __atomic_load_n(&n->mode, __ATOMIC_RELAXED);
}

int entry_of_key(struct fs_mount *m, const struct node_key *key, struct node *root,
		 const struct stat *st, double timeout, struct fuse_entry_param *ret_e)
{
	struct node *n = nodes_lookup(m->nodes, key, root);

	if (!n)
		return -ENOMEM;
	if (key->kind == NODE_LIVE)
		note_attr(n, &(struct live_attr){
				     .mode = st->st_mode, .uid = st->st_uid, .gid = st->st_gid});
	*ret_e = (struct fuse_entry_param){
		.ino = n->id,
		.attr = *st,
		.attr_timeout = node_attr_timeout(n, timeout),
		.entry_timeout = timeout,
	};
	return 0;
}

int entry_of_live(struct fs_mount *m, const struct live_attr *attr, struct fuse_entry_param *ret_e)
{
	struct node_key key = key_of_live(attr);
	struct stat st;

	stat_of_live(attr, &st);
	return entry_of_key(m, &key, NULL, &st, timeout_of_live(attr), ret_e);
}

int node_writable(const struct fs_mount *m, const struct node *n)
{
	if (!n)
		return -ESTALE;
	return n->kind == NODE_LIVE && !volume_read_only(m->vol) ? 0 : -EROFS;
}

bool is_epochs_name(const struct node *parent, const char *name)
{
	return parent->id == FUSE_ROOT_ID && strcmp(name, ".epochs") == 0;
}

/* ---- requests that are sent again ---- */

static bool has_target(struct fs_mount *m, uint64_t ino, const char *target)
{
	cleanup_buf struct buf found = {0};

	return live_readlink(m->vol, ino, &found) == 0 && strcmp(buf_str(&found), target) == 0;
}

int resent_made(fuse_req_t req, int error, uint64_t parent, const char *name,
		const struct live_attr *made, const char *target, struct live_attr *ret_attr)
{
	struct fs_mount *m = fs_of(req);
	struct live_attr attr;

	if (error != -EEXIST || !loop_request_resent() ||
	    live_lookup(m->vol, parent, name, fuse_req_ctx(req)->pid, &attr) < 0)
		return error;
	if ((attr.mode & S_IFMT) != (made->mode & S_IFMT) || (made->ino && attr.ino != made->ino) ||
	    (target && !has_target(m, attr.ino, target)))
		return error;
	*ret_attr = attr;
	return 0;
}

int resent_removed(int error, int missing)
{
	return error == missing && loop_request_resent() ? 0 : error;
}

int resent_renamed(fuse_req_t req, int error, uint64_t new_parent, const char *new_name)
{
	struct live_attr attr;

	if (error != -ENOENT || !loop_request_resent())
		return error;
	return live_lookup(fs_of(req)->vol, new_parent, new_name, fuse_req_ctx(req)->pid, &attr);
}

int resent_xattr(fuse_req_t req, int error, uint64_t ino, const char *name, const void *value,
		 size_t size)
{
	cleanup_buf struct buf found = {0};

	if (error != -EEXIST || !loop_request_resent())
		return error;
	if (live_getxattr(fs_of(req)->vol, ino, name, &found) == 0 && found.len == size &&
	    memcmp(found.data ? (const void *)found.data : "", value, size) == 0)
		return 0;
	return error;
}

int resent_unknown(int error)
{
	return error < 0 && loop_request_resent() ? -EIO : error;
}
