/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree: looking names up, listing directories, and what all its parts need. */
#include "lib/live/live_internal.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include "lib/format/tree.h"
#include "lib/live/live.h"
#include "lib/live/observer.h"
#include "lib/util/clock.h"

/* readdir takes names in batches, small at first: the kernel's buffer may hold no more. */
#define BATCH_FIRST 32
#define BATCH_MAX   256

int64_t live_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	return clock_ns(now);
}

int live_name_check(const char *name)
{
	if (!*name)
		return -ENOENT;
	if (strlen(name) > LIVE_NAME_MAX)
		return -ENAMETOOLONG;
	if (strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
		return -EINVAL;
	return 0;
}

int live_begin_locked(struct volume *vol)
{
	return vol->options.read_only ? -EROFS : state_begin(vol->state);
}

int live_dir_locked(struct volume *vol, uint64_t ino, struct state_file *ret_dir)
{
	struct state_file dir;
	int error = state_file_get(vol->state, ino, &dir);

	if (error)
		return error;
	if (!S_ISDIR(dir.mode))
		return -ENOTDIR;
	*ret_dir = dir;
	return 0;
}

int live_depth_check_locked(struct volume *vol, uint64_t parent, uint64_t height)
{
	uint64_t depth = 0;
	int error = state_dir_depth(vol->state, parent, &depth);

	/* One level for the directory, one for what is in the deepest below it. */
	return error ? error : depth + 1 + height + 1 > TREE_DEPTH_MAX ? -ENAMETOOLONG : 0;
}

int live_touch_locked(struct volume *vol, uint64_t ino, int links, int64_t now)
{
	struct state_file dir;
	int error = state_file_get(vol->state, ino, &dir);

	if (error)
		return error;
	dir.nlink += (uint32_t)links;
	dir.mtime_ns = dir.ctime_ns = now;
	return state_file_set(vol->state, &dir);
}

int live_make_root(struct volume *vol, uint32_t mode, uint32_t uid, uint32_t gid)
{
	int64_t now = live_now_ns();
	struct state_file root = {
		.mode = S_IFDIR | (mode & 07777),
		.uid = uid,
		.gid = gid,
		.nlink = 2,
		.size = LIVE_DIR_SIZE,
		.mtime_ns = now,
		.ctime_ns = now,
		.atime_ns = now,
		.born = 1,
		.parent = ROOT_INO,
	};
	uint64_t ino;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_file_get(vol->state, ROOT_INO, &root);
	if (error != -ENOENT)
		return error;
	error = state_begin(vol->state);
	if (error)
		return error;
	error = state_file_new(vol->state, &root, &ino);
	if (!error && ino != ROOT_INO)
		error = -EUCLEAN;
	return state_end(vol->state, error);
}

int live_find_locked(struct volume *vol, uint64_t parent, const char *name,
		     struct state_name *ret_name, struct state_file *ret_file)
{
	struct state_file dir;
	int error = live_name_check(name);

	if (error)
		return error == -EINVAL ? -ENOENT : error;
	do {
		error = state_name_lookup(vol->state, parent, name, ret_name, ret_file);
	} while (!error && S_ISREG(ret_file->mode) &&
		 body_finish_closes_locked(vol, ret_file->ino));
	if (error != -ENOENT)
		return error;
	error = live_dir_locked(vol, parent, &dir);
	return error ? error : -ENOENT;
}

int live_lookup(struct volume *vol, uint64_t parent, const char *name, pid_t pid,
		struct live_attr *ret_attr)
{
	struct state_name n;
	struct state_file f;
	int error;

	SCOPED_LOCK(&vol->lock);
	do {
		error = live_find_locked(vol, parent, name, &n, &f);
	} while ((!error || error == -ENOENT) &&
		 body_looked_up_locked(vol, pid, parent, name, error ? NULL : &f));
	if (!error)
		live_attr_for_locked(vol, &f, pid, ret_attr);
	return error;
}

bool live_is_shown(struct volume *vol, uint64_t ino, uint64_t body)
{
	const struct body *b;
	struct state_file f;
	int error;
	SCOPED_LOCK(&vol->lock);

	error = state_file_get(vol->state, ino, &f);
	if (error)
		return error != -ENOENT;
	if (!S_ISREG(f.mode) || f.body == body)
		return true;
	b = body_find_locked(vol, body);
	return b && b->ino == ino;
}

int live_parent(struct volume *vol, uint64_t ino, uint64_t *ret_parent)
{
	struct state_file dir;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = live_dir_locked(vol, ino, &dir);
	if (!error)
		*ret_parent = dir.parent;
	return error;
}

int live_readlink(struct volume *vol, uint64_t ino, struct buf *out)
{
	struct state_file f;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_file_get(vol->state, ino, &f);
	if (error)
		return error;
	return S_ISLNK(f.mode) ? state_symlink_get(vol->state, ino, out) : -EINVAL;
}

int live_sync(struct volume *vol)
{
	return state_sync(vol->state);
}

bool live_goes_back(struct volume *vol, uint64_t ino, int flags, pid_t pid)
{
	return vol->observer->before_reading(vol, ino, flags, pid);
}

bool live_go_back(struct volume *vol, uint64_t ino, int flags, pid_t pid)
{
	return vol->observer->for_reader(vol, ino, flags, pid);
}

/* ---- listing ---- */

struct entry {
	uint64_t cookie;
	struct live_attr attr;
	char name[LIVE_NAME_MAX + 1];
};

struct batch {
	struct volume *vol;
	pid_t pid;
	struct entry *entries;
	size_t count, limit;
};

static int batch_add(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	struct batch *b = arg;
	struct entry *e = &b->entries[b->count];

	if (!f)
		return 0;
	e->cookie = n->id;
	strcpy(e->name, name);
	live_attr_for_locked(b->vol, f, b->pid, &e->attr);
	return ++b->count == b->limit ? 1 : 0;
}

/* The next names of the directory. */
static int batch_fill(struct batch *b, uint64_t ino, uint64_t before)
{
	struct state_file dir;
	int error;

	SCOPED_LOCK(&b->vol->lock);
	b->count = 0;
	error = live_dir_locked(b->vol, ino, &dir);
	if (!error)
		error = state_dir_list(b->vol->state, ino, before, batch_add, b);
	return error < 0 ? error : 0;
}

int live_readdir(struct volume *vol, uint64_t ino, uint64_t before, pid_t pid, live_dir_fn fn,
		 void *arg)
{
	cleanup_free struct entry *entries = malloc(BATCH_MAX * sizeof(*entries));
	struct batch b = {.vol = vol, .pid = pid, .entries = entries, .limit = BATCH_FIRST};

	if (!entries)
		return -ENOMEM;
	bodies_finish_closes(vol);
	for (;;) {
		int error = batch_fill(&b, ino, before);

		if (error)
			return error;
		for (size_t i = 0; i < b.count; i++)
			if (fn(arg, entries[i].name, entries[i].cookie, &entries[i].attr))
				return 0;
		if (b.count < b.limit)
			return 0;
		before = entries[b.count - 1].cookie;
		b.limit = BATCH_MAX;
	}
}
