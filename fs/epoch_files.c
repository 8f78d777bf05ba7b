/* SPDX-License-Identifier: Apache-2.0 */
/* Inside an epoch: attributes, listing, reading, by its tree. */

#include <errno.h>
#include <linux/fuse.h>
#include <string.h>
#include <sys/sysmacros.h>
#include "fs/epochs_dir.h"
#include "fs/files.h"
#include "fs/passthrough.h"
#include "lib/cache/torn.h"
#include "lib/epochs/epochs.h"
#include "lib/format/tree.h"
#include "lib/format/xattrs.h"
#include "lib/util/clock.h"

/* ---- the epoch's directory ---- */

int epoch_dir_stat(struct fs_mount *m, uint64_t epoch, struct stat *ret_st)
{
	int64_t ns;
	int r = epochs_sealed_ns(m->vol, epoch, &ns);

	if (r < 0)
		return r;
	epochs_dir_stat_base(m, epochs_dir_ino(epoch, 0), S_IFDIR | epochs_dir_mode(m), ns, ret_st);
	return 0;
}

int epoch_dir_entry(struct fs_mount *m, uint64_t epoch, enum node_kind kind, uint32_t view,
		    struct fuse_entry_param *ret_e)
{
	struct node_key key = {.kind = kind, .a = epoch, .view = view};
	struct stat st;
	int r = epoch ? epoch_dir_stat(m, epoch, &st) : -ENOENT;

	if (r < 0)
		return r;
	/* What mkdir seems to make is a symlink from the next lookup on. */
	return entry_of_key(m, &key, NULL, &st, kind == NODE_MADE ? 0 : TIMEOUT_LIVE, ret_e);
}

/* ---- the tree ---- */

static struct node *root_of(struct node *n)
{
	return n->b == 0 ? n : n->root;
}

/* The tree that a node is in, borrowed from the node of the epoch's directory. */
static int tree_of(struct fs_mount *m, struct node *n, struct tree **ret_tree)
{
	struct node *root = root_of(n);
	struct tree *tree = nodes_tree(m->nodes, root);
	int r;

	if (!tree) {
		r = epochs_tree(m->vol, root->a, &tree);
		if (r < 0)
			return r;
		tree = nodes_set_tree(m->nodes, root, tree);
	}
	*ret_tree = tree;
	return 0;
}

static const mode_t type_mode[] = {
	[TREE_DIR] = S_IFDIR,	[TREE_REGULAR] = S_IFREG, [TREE_SYMLINK] = S_IFLNK,
	[TREE_FIFO] = S_IFIFO,	[TREE_SOCKET] = S_IFSOCK, [TREE_CHAR] = S_IFCHR,
	[TREE_BLOCK] = S_IFBLK,
};

static void stat_of_entry(struct fs_mount *m, const struct tree *tree, uint64_t epoch, uint32_t id,
			  struct stat *ret_st)
{
	struct tree_entry e;
	struct timespec ts;

	tree_get(tree, id, &e);
	ts = clock_timespec(e.mtime_ns);
	*ret_st = (struct stat){
		.st_ino = epochs_dir_ino(epoch, tree_identity(tree, id)),
		.st_mode = type_mode[e.type] | e.mode,
		.st_nlink = tree_nlink(tree, id),
		.st_uid = e.uid,
		.st_gid = e.gid,
		.st_rdev = makedev(e.rdev_major, e.rdev_minor),
		.st_size = e.type == TREE_DIR ? 4096 : (off_t)e.size,
		.st_blocks =
			e.type == TREE_REGULAR ? (blkcnt_t)content_entry_blocks(m->vol, &e) : 0,
		.st_blksize = 4096,
		.st_mtim = ts,
		.st_ctim = ts,
		.st_atim = ts,
	};
}

int epoch_file_stat(struct fs_mount *m, struct node *n, struct stat *ret_st)
{
	struct tree *tree;
	int r = tree_of(m, n, &tree);

	if (r == 0)
		stat_of_entry(m, tree, n->a, (uint32_t)n->b, ret_st);
	return r;
}

static struct node_key key_of_entry(const struct tree *tree, uint64_t epoch, uint32_t id)
{
	return (struct node_key){
		.kind = NODE_EPOCH,
		.a = epoch,
		.b = tree_identity(tree, id),
	};
}

int epoch_file_lookup(struct fs_mount *m, struct node *dir, const char *name,
		      struct fuse_entry_param *ret_e)
{
	struct tree *tree;
	struct node_key key;
	struct stat st;
	uint32_t id;
	int r = tree_of(m, dir, &tree);

	if (r < 0)
		return r;
	id = tree_lookup(tree, (uint32_t)dir->b, name, strlen(name));
	if (id == TREE_NONE)
		return -ENOENT;
	key = key_of_entry(tree, dir->a, id);
	stat_of_entry(m, tree, dir->a, id, &st);
	return entry_of_key(m, &key, root_of(dir), &st, TIMEOUT_EPOCH, ret_e);
}

int epoch_file_readlink(struct fs_mount *m, struct node *n, struct buf *out)
{
	struct tree_entry e;
	struct tree *tree;
	int r = tree_of(m, n, &tree);

	if (r < 0)
		return r;
	tree_get(tree, (uint32_t)n->b, &e);
	if (e.type != TREE_SYMLINK)
		return -EINVAL;
	buf_put(out, e.u.target, e.size);
	return buf_error(out);
}

/* Cookies are positions among the directory's entries, from 1. */
void epoch_file_list(struct dir_reply *r, struct node *dir, uint64_t after)
{
	const uint32_t *children;
	struct tree *tree;
	uint32_t count;

	r->error = tree_of(r->m, dir, &tree);
	if (r->error < 0)
		return;
	children = tree_children(tree, (uint32_t)dir->b, &count);
	for (uint64_t i = after; i < count; i++) {
		struct node_key key = key_of_entry(tree, dir->a, children[i]);
		struct tree_entry e;
		struct stat st;

		tree_get(tree, children[i], &e);
		stat_of_entry(r->m, tree, dir->a, children[i], &st);
		if (!dir_reply_add(r, e.name, i + 1 + DIR_DOTS, &key, root_of(dir), &st,
				   TIMEOUT_EPOCH))
			return;
	}
}

/* ---- attributes ---- */

int epoch_file_getxattr(struct fs_mount *m, struct node *n, const char *name, struct buf *out)
{
	struct tree_entry e;
	struct tree *tree;
	const void *value;
	size_t len;
	int r = tree_of(m, n, &tree);

	if (r < 0)
		return r;
	tree_get(tree, (uint32_t)n->b, &e);
	r = xattrs_get(e.xattrs, e.xattrs_len, name, &value, &len);
	if (r < 0)
		return r;
	buf_put(out, value, len);
	return buf_error(out);
}

int epoch_file_listxattr(struct fs_mount *m, struct node *n, struct buf *out)
{
	struct xattrs_iter it;
	struct tree_entry e;
	struct tree *tree;
	const char *name;
	const void *value;
	size_t len;
	int r = tree_of(m, n, &tree);

	if (r < 0)
		return r;
	tree_get(tree, (uint32_t)n->b, &e);
	it = xattrs_iter_of(e.xattrs, e.xattrs_len);
	while (xattrs_next(&it, &name, &value, &len))
		buf_put(out, name, strlen(name) + 1);
	return buf_error(out);
}

bool epoch_file_has_user_xattrs(struct fs_mount *m, struct node *n)
{
	struct tree_entry e;
	struct tree *tree;

	if (n->b == 0 || tree_of(m, n, &tree) < 0)
		return true;
	tree_get(tree, (uint32_t)n->b, &e);
	return e.type == TREE_REGULAR || e.type == TREE_DIR;
}

/* ---- opening ---- */

static int epoch_grant(void *arg, struct grant **ret_grant, int *ret_fd)
{
	return content_grant(arg, ret_grant, ret_fd);
}

/* An epoch's local tree gives way to the final one once the epoch is durable, and then the local
 * versions that it named may be gone. */
#define CONTENT_TRIES 4

/* The entry as the newest tree of its epoch has it; both trees list the same. */
static int open_local(struct fs_mount *m, struct node *n, const char *what,
		      struct content **ret_content)
{
	int r = -ENOENT;

	for (int i = 0; r == -ENOENT && i < CONTENT_TRIES; i++) {
		cleanup_tree struct tree *tree = NULL;
		struct tree_entry e;

		r = epochs_tree(m->vol, n->a, &tree);
		if (r < 0)
			return r;
		if (n->b >= tree_count(tree))
			return -EIO;
		tree_get(tree, (uint32_t)n->b, &e);
		if (e.type != TREE_REGULAR)
			return -EIO;
		r = content_get_entry(m->vol, &e, what, ret_content);
	}
	return r;
}

int epoch_file_content(struct fs_mount *m, struct node *n, struct content **ret_content)
{
	cleanup_buf struct buf what = {0};
	struct tree_entry e;
	struct tree *tree;
	int r = tree_of(m, n, &tree);

	if (r < 0)
		return r;
	tree_get(tree, (uint32_t)n->b, &e);
	if (e.type != TREE_REGULAR)
		return -EISDIR;
	if (e.content == TREE_EMPTY) {
		*ret_content = NULL;
		return 0;
	}
	buf_printf(&what, "epoch %llu: ", (unsigned long long)n->a);
	r = tree_path(tree, (uint32_t)n->b, &what);
	if (r < 0)
		return r;
	if (e.content == TREE_LOCAL)
		return open_local(m, n, buf_str(&what), ret_content);
	return content_get_entry(m->vol, &e, buf_str(&what), ret_content);
}

static int decide(struct fs_mount *m, struct file *f, int32_t *ret_backing_id)
{
	struct passthrough_source source = {
		.arg = f->content,
		.grant = epoch_grant,
	};

	*ret_backing_id = 0;
	return f->content ? passthrough_open(m, f, &source, ret_backing_id) : 0;
}

void epoch_file_open(fuse_req_t req, struct node *n, int flags)
{
	struct fs_mount *m = fs_of(req);
	struct content *content = NULL;
	struct file *f = NULL;
	int32_t backing_id;
	int r = epoch_file_content(m, n, &content);

	if (r == 0) {
		f = file_new(m, FILE_EPOCH, n);
		if (!f && content)
			content_put(content);
		r = f ? 0 : -ENOMEM;
	}
	if (r == 0) {
		f->content = content;
		r = decide(m, f, &backing_id);
	}
	if (r < 0) {
		if (f)
			file_release(m, f);
		reply_error(req, r);
		return;
	}
	/* Its pages are right for ever, whoever read them. */
	r = reply_open(req, NULL, f,
		       f->passthrough ? passthrough_open_flags(flags) : FOPEN_KEEP_CACHE,
		       backing_id);
	if (r < 0)
		file_release(m, f);
}

/* ---- .epochs/torn: what killed writers left ---- */

/* Called in callbacks of torn_each: asks nothing of the volume. */
static void stat_of(const struct fs_mount *m, uint64_t id, uint64_t size, int64_t ns,
		    struct stat *ret_st)
{
	struct timespec ts = clock_timespec(ns);

	*ret_st = (struct stat){
		.st_ino = epochs_dir_torn_ino(id),
		.st_mode = S_IFREG | 0400,
		.st_nlink = 1,
		.st_uid = m->uid,
		.st_gid = m->gid,
		.st_size = (off_t)size,
		.st_blocks = (blkcnt_t)((size + 511) / 512),
		.st_blksize = 4096,
		.st_mtim = ts,
		.st_ctim = ts,
		.st_atim = ts,
	};
}

/* Looks for one by name, or (name NULL) by id. */
struct search {
	struct fs_mount *m;
	const char *name;
	uint64_t id;
	bool found;
	struct stat st;
	char found_name[256];
};

static int compare(void *arg, const char *name, uint64_t id, uint64_t size, int64_t ns)
{
	struct search *s = arg;

	if (s->name ? strcmp(s->name, name) : s->id != id)
		return 0;
	s->found = true;
	s->id = id;
	stat_of(s->m, id, size, ns, &s->st);
	strncpy(s->found_name, name, sizeof(s->found_name) - 1);
	return 1;
}

static int search(struct fs_mount *m, struct search *s)
{
	int r;

	s->m = m;
	r = torn_each(m->vol, compare, s);
	if (r < 0)
		return r;
	return s->found ? 0 : -ENOENT;
}

int torn_file_lookup(struct fs_mount *m, const char *name, struct fuse_entry_param *ret_e)
{
	struct search s = {.name = name};
	struct node_key key = {.kind = NODE_TORN};
	int r = search(m, &s);

	key.a = s.id;
	return r < 0 ? r : entry_of_key(m, &key, NULL, &s.st, 0, ret_e);
}

int torn_file_stat(struct fs_mount *m, const struct node *n, struct stat *ret_st)
{
	struct search s = {.id = n->a};
	int r = search(m, &s);

	if (r == 0)
		*ret_st = s.st;
	return r;
}

struct listing {
	struct dir_reply *r;
	uint64_t after;
};

static int list_one(void *arg, const char *name, uint64_t id, uint64_t size, int64_t ns)
{
	struct listing *l = arg;
	struct node_key key = {.kind = NODE_TORN, .a = id};
	struct stat st;

	if (id <= l->after)
		return 0;
	stat_of(l->r->m, id, size, ns, &st);
	return !dir_reply_add(l->r, name, id + DIR_DOTS, &key, NULL, &st, 0);
}

void torn_file_list(struct dir_reply *r, uint64_t after)
{
	struct listing l = {.r = r, .after = after};
	int error = torn_each(r->m->vol, list_one, &l);

	if (error < 0)
		r->error = error;
}

int torn_file_fd(struct fs_mount *m, const struct node *n, int *ret_fd)
{
	struct search s = {.id = n->a};
	int r = search(m, &s), fd;

	if (r < 0)
		return r;
	fd = torn_open(m->vol, s.found_name);
	if (fd < 0)
		return fd;
	*ret_fd = fd;
	return 0;
}

void torn_file_open(fuse_req_t req, struct node *n, int flags)
{
	struct fs_mount *m = fs_of(req);
	struct file *f = file_new(m, FILE_TORN, n);
	int r = f ? torn_file_fd(m, n, &f->fd) : -ENOMEM;

	(void)flags;
	if (r == 0)
		r = reply_open(req, NULL, f, 0, 0);
	else
		reply_error(req, r);
	if (r < 0 && f)
		file_release(m, f);
}
