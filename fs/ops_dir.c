/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on directories: opendir, readdir with and without attributes, fsync. */
#include "fs/ops.h"

#include <errno.h>
#include <string.h>
#include "fs/epoch_files.h"
#include "fs/epochs_dir.h"
#include "fs/torn_files.h"
#include "lib/util/cleanup.h"

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
