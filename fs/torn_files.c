/* SPDX-License-Identifier: Apache-2.0 */
/* .epochs/torn: listing and reading what killed writers left. */
#include "fs/torn_files.h"

#include <errno.h>
#include <string.h>
#include "fs/epochs_dir.h"
#include "fs/files.h"
#include "fs/passthrough.h"
#include "lib/util/clock.h"
#include "lib/epochs/epochs.h"
#include "lib/cache/torn.h"

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
