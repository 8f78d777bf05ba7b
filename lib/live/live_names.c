/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree: making and removing names. */
#include "lib/live/live_internal.h"
#include "lib/cache/evict.h"
#include "lib/live/events.h"
#include "lib/live/observer.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

/* ---- making ---- */

/* Whether the name may be made in this directory, which is given. */
static int may_add_locked(struct volume *vol, uint64_t parent, const char *name,
			  struct state_file *ret_dir)
{
	struct state_name n;
	int error = vol->options.read_only ? -EROFS : live_name_check(name);

	if (!error)
		error = live_dir_locked(vol, parent, ret_dir);
	if (error)
		return error;
	error = state_name_get(vol->state, parent, name, &n);
	if (error != -ENOENT)
		return error ? error : -EEXIST;
	return volume_room_for_names(vol);
}

int live_add_locked(struct volume *vol, uint64_t parent, const char *name,
		    const struct live_caller *who, struct state_file *f)
{
	int64_t now = live_now_ns();
	bool is_dir = S_ISDIR(f->mode);
	struct state_file dir;
	uint64_t ino;
	int error = may_add_locked(vol, parent, name, &dir);

	if (error)
		return error;
	if (is_dir && dir.nlink == LIVE_NLINK_MAX)
		return -EMLINK;
	error = is_dir ? live_depth_check_locked(vol, parent, 0) : 0;
	if (error)
		return error;
	f->uid = who->uid;
	f->gid = dir.mode & S_ISGID ? dir.gid : who->gid;
	if (is_dir)
		f->mode |= dir.mode & S_ISGID;
	f->nlink = is_dir ? 2 : 1;
	f->parent = is_dir ? parent : 0;
	f->mtime_ns = f->ctime_ns = f->atime_ns = now;
	f->born = vol->next_epoch;
	error = state_file_new(vol->state, f, &ino);
	if (!error)
		error = state_name_add(vol->state, parent, name, ino);
	if (error)
		return error;
	dir.nlink += is_dir;
	dir.mtime_ns = dir.ctime_ns = now;
	return state_file_set(vol->state, &dir);
}

/* What a file of a certain type has beside its row. In the transaction, `f` having its ino. */
typedef int (*complete_fn)(struct volume *vol, struct state_file *f, const void *arg);

static int make(struct volume *vol, uint64_t parent, const char *name,
		const struct live_caller *who, struct state_file *f, complete_fn complete,
		const void *arg, struct live_attr *ret_attr)
{
	int error;

	volume_make_room_for_names(vol);
	SCOPED_LOCK(&vol->lock);
	if (S_ISDIR(f->mode))
		vol->observer->before_name_locked(vol, parent, name, 0);
	if (S_ISDIR(f->mode))
		event_before_made_locked(vol, parent, name);
	error = live_begin_locked(vol);
	if (error)
		return error;
	error = live_add_locked(vol, parent, name, who, f);
	if (!error && complete)
		error = complete(vol, f, arg);
	error = state_end(vol->state, error);
	if (error)
		return error;
	if (S_ISDIR(f->mode))
		event_made_locked(vol, parent, name, who->pid);
	else if (S_ISLNK(f->mode))
		event_linked_locked(vol, parent, name, f, who->pid);
	vol->observer->note_locked(vol, ACTIVITY_CREATE, parent, NULL, name, f->ino);
	live_attr_locked(vol, f, ret_attr);
	return 0;
}

int live_mkdir(struct volume *vol, uint64_t parent, const char *name, mode_t mode,
	       const struct live_caller *who, struct live_attr *ret_attr)
{
	struct state_file f = {.mode = S_IFDIR | (mode & 07777), .size = LIVE_DIR_SIZE};

	return make(vol, parent, name, who, &f, NULL, NULL, ret_attr);
}

static int complete_regular(struct volume *vol, struct state_file *f, const void *arg)
{
	int error = body_empty_file_locked(vol, f);

	(void)arg;
	return error ? error : state_file_set(vol->state, f);
}

int live_mknod(struct volume *vol, uint64_t parent, const char *name, mode_t mode, dev_t rdev,
	       const struct live_caller *who, struct live_attr *ret_attr)
{
	struct state_file f = {.mode = mode & (S_IFMT | 07777)};

	switch (mode & S_IFMT) {
	case S_IFREG:
		return make(vol, parent, name, who, &f, complete_regular, NULL, ret_attr);
	case S_IFCHR:
	case S_IFBLK:
		f.rdev = (uint32_t)rdev;
		return make(vol, parent, name, who, &f, NULL, NULL, ret_attr);
	case S_IFIFO:
	case S_IFSOCK:
		return make(vol, parent, name, who, &f, NULL, NULL, ret_attr);
	}
	return -EINVAL;
}

static int complete_symlink(struct volume *vol, struct state_file *f, const void *arg)
{
	return state_symlink_set(vol->state, f->ino, arg, strlen(arg));
}

int live_symlink(struct volume *vol, uint64_t parent, const char *name, const char *target,
		 const struct live_caller *who, struct live_attr *ret_attr)
{
	struct state_file f = {.mode = S_IFLNK | 0777, .size = strlen(target)};

	if (!*target)
		return -ENOENT;
	if (strlen(target) >= PATH_MAX)
		return -ENAMETOOLONG;
	return make(vol, parent, name, who, &f, complete_symlink, target, ret_attr);
}

static int link_locked(struct volume *vol, struct state_file *f, uint64_t parent, const char *name)
{
	int64_t now = live_now_ns();
	int error;

	f->nlink++;
	f->ctime_ns = now;
	error = state_file_set(vol->state, f);
	if (!error)
		error = state_name_add(vol->state, parent, name, f->ino);
	return error ? error : live_touch_locked(vol, parent, 0, now);
}

int live_link(struct volume *vol, uint64_t ino, uint64_t parent, const char *name,
	      const struct live_caller *who, struct live_attr *ret_attr)
{
	struct state_file f, dir;
	int error;

	volume_make_room_for_names(vol);
	SCOPED_LOCK(&vol->lock);
	vol->observer->before_name_locked(vol, parent, name, ino);
	error = may_add_locked(vol, parent, name, &dir);
	if (!error)
		error = state_file_get(vol->state, ino, &f);
	if (error)
		return error;
	if (S_ISDIR(f.mode))
		return -EPERM;
	if (!f.nlink)
		return -ENOENT;
	if (f.nlink >= LIVE_LINK_MAX)
		return -EMLINK;
	error = live_begin_locked(vol);
	if (error)
		return error;
	error = state_end(vol->state, link_locked(vol, &f, parent, name));
	if (error)
		return error;
	event_linked_locked(vol, parent, name, &f, who ? who->pid : 0);
	vol->observer->note_locked(vol, ACTIVITY_CREATE, parent, NULL, name, ino);
	live_attr_locked(vol, &f, ret_attr);
	return 0;
}

/* ---- removing ---- */

int live_unref_locked(struct volume *vol, struct state_file *f, int64_t now)
{
	f->ctime_ns = now;
	if (f->nlink)
		f->nlink--;
	return f->nlink ? state_file_set(vol->state, f) : body_file_unlinked_locked(vol, f);
}

int live_uncover_locked(struct volume *vol, const struct state_name *n, int64_t now)
{
	struct state_file f;
	int error;

	if (!n->covered)
		return 0;
	error = state_file_get(vol->state, n->covered, &f);
	if (error)
		return error == -ENOENT ? 0 : error;
	return live_unref_locked(vol, &f, now);
}

static int unlink_locked(struct volume *vol, const struct state_name *n, const char *name,
			 struct state_file *f)
{
	int64_t now = live_now_ns();
	int error = state_name_remove(vol->state, n->parent, name);

	if (!error)
		error = live_uncover_locked(vol, n, now);
	if (!error)
		error = live_unref_locked(vol, f, now);
	return error ? error : live_touch_locked(vol, n->parent, 0, now);
}

static int rmdir_locked(struct volume *vol, const struct state_name *n, const char *name,
			struct state_file *f)
{
	int error = state_dir_empty(vol->state, f->ino);

	if (!error)
		error = state_name_remove(vol->state, n->parent, name);
	if (!error)
		error = state_file_remove(vol->state, f->ino);
	return error ? error : live_touch_locked(vol, n->parent, -1, live_now_ns());
}

static int remove_name(struct volume *vol, uint64_t parent, const char *name, bool want_dir)
{
	struct state_name n;
	struct state_file f;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = vol->options.read_only ? -EROFS : live_find_locked(vol, parent, name, &n, &f);
	if (error)
		return error;
	if (want_dir != S_ISDIR(f.mode))
		return want_dir ? -ENOTDIR : -EISDIR;
	error = live_begin_locked(vol);
	if (error)
		return error;
	error = want_dir ? rmdir_locked(vol, &n, name, &f) : unlink_locked(vol, &n, name, &f);
	error = state_end(vol->state, error);
	if (error)
		return error;
	event_removed_locked(vol, parent, name, &f);
	vol->observer->note_locked(vol, ACTIVITY_REMOVE, parent, NULL, name, f.ino);
	return 0;
}

int live_unlink(struct volume *vol, uint64_t parent, const char *name)
{
	return remove_name(vol, parent, name, false);
}

int live_rmdir(struct volume *vol, uint64_t parent, const char *name)
{
	return remove_name(vol, parent, name, true);
}
